import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scope_jax.rollout.sampling import keep_top_k, keep_top_p, policy_logprobs, sample_token

ROWS = 40_000
LOGITS = np.array([2.0, 1.5, 1.0, 0.0, -0.5, -1.0, -3.0, 0.5], np.float32)
draw = jax.jit(sample_token, static_argnames=("temperature", "top_k", "top_p"))


def softmax(logits, temperature=1.0):
    weights = np.exp((logits - logits.max()) / temperature, dtype=np.float64)
    return weights / weights.sum()


def truncated(probabilities, kept):
    """Probabilities of the kept tokens alone, summing to one."""
    probabilities = np.where(np.isin(np.arange(len(probabilities)), kept), probabilities, 0.0)
    return probabilities / probabilities.sum()


def finite(logits):
    """The columns that survived, row by row."""
    return [np.flatnonzero(np.isfinite(row)).tolist() for row in np.asarray(logits)]


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"temperature": 1.0}, softmax(LOGITS)),
        ({"temperature": 0.7}, softmax(LOGITS, 0.7)),
        ({"temperature": 2.5}, softmax(LOGITS, 2.5)),
        ({"temperature": 1.0, "top_k": 3}, truncated(softmax(LOGITS), [0, 1, 2])),
        # 0.39, 0.24, 0.14 and 0.09 are the largest: three reach 0.77, so the fourth is the one that passes 0.8.
        ({"temperature": 1.0, "top_p": 0.8}, truncated(softmax(LOGITS), [0, 1, 2, 7])),
        ({"temperature": 1.5, "top_k": 5, "top_p": 0.6}, truncated(softmax(LOGITS, 1.5), [0, 1, 2])),
    ],
    ids=["plain", "cold", "hot", "top_k", "top_p", "top_k_then_top_p"],
)
def test_sampled_shares_are_those_of_the_softmax(options, expected):
    tokens, _ = draw(jnp.tile(LOGITS, (ROWS, 1)), jax.random.key(1), **options)
    counts = np.bincount(tokens, minlength=len(LOGITS))
    likely = expected > 0
    assert counts[~likely].sum() == 0
    chi_square = np.sum((counts[likely] - ROWS * expected[likely]) ** 2 / (ROWS * expected[likely]))
    assert chi_square < 30  # 7 degrees of freedom or fewer: passed by chance once in ten thousand


def test_the_reported_logprob_is_that_of_the_untruncated_tempered_policy():
    """A sampler that renormalises over survivors gives the trainer a ratio that is not one."""
    for options in ({"temperature": 0.7}, {"temperature": 0.7, "top_k": 2}, {"temperature": 0.7, "top_p": 0.5}):
        tokens, logprobs = draw(jnp.tile(LOGITS, (64, 1)), jax.random.key(2), **options)
        np.testing.assert_allclose(logprobs, np.log(softmax(LOGITS, 0.7))[np.asarray(tokens)], rtol=0, atol=2e-6)


def test_greedy_takes_the_likeliest_and_reports_its_logprob_at_temperature_one():
    logits = jax.random.normal(jax.random.key(3), (16, 33))
    tokens, logprobs = draw(logits, jax.random.key(4), temperature=0.0, top_k=1, top_p=0.1)
    np.testing.assert_array_equal(tokens, np.argmax(logits, axis=-1))
    np.testing.assert_allclose(logprobs, np.max(jax.nn.log_softmax(logits), axis=-1), rtol=0, atol=1e-6)
    assert tokens.dtype == jnp.int32


def test_greedy_takes_the_first_of_equal_logits():
    tokens, _ = draw(jnp.array([[0.0, 2.0, 2.0, 1.0]]), jax.random.key(0), temperature=0.0)
    assert tokens.tolist() == [1]


def test_rows_draw_independently():
    tokens, _ = draw(jnp.zeros((2 * ROWS, 2)), jax.random.key(5), temperature=1.0)
    pairs = np.asarray(tokens).reshape(ROWS, 2)
    counts = np.bincount(2 * pairs[:, 0] + pairs[:, 1], minlength=4)
    assert np.abs(counts / ROWS - 0.25).max() < 0.01  # four standard deviations


def test_one_key_gives_one_draw_and_another_key_another():
    logits = jnp.zeros((64, 64))
    first, again, other = (draw(logits, jax.random.key(k), temperature=1.0)[0] for k in (6, 6, 7))
    np.testing.assert_array_equal(first, again)
    assert (first != other).sum() > 32


def test_top_k_keeps_the_largest_in_any_order_and_leaves_them_unchanged():
    logits = jnp.array([[0.0, 3.0, 1.0, 2.0], [5.0, -1.0, 4.0, -2.0]])
    kept = keep_top_k(logits, 2)
    assert finite(kept) == [[1, 3], [0, 2]]
    np.testing.assert_array_equal(np.where(np.isfinite(kept), kept, logits), logits)


def test_top_k_keeps_every_token_that_ties_with_the_last_one():
    assert finite(keep_top_k(jnp.array([[1.0, 2.0, 1.0, 0.0]]), 2)) == [[0, 1, 2]]


@pytest.mark.parametrize("top_k", [0, 4, 5, 1000])
def test_top_k_off_or_of_the_whole_vocabulary_keeps_all(top_k):
    logits = jnp.array([[0.0, 3.0, 1.0, 2.0]])
    np.testing.assert_array_equal(keep_top_k(logits, top_k), logits)


def test_top_p_keeps_the_smallest_set_that_reaches_the_mass():
    probabilities = jnp.array([[0.1, 0.4, 0.2, 0.3]])
    for top_p, kept in ((0.35, [1]), (0.5, [1, 3]), (0.69, [1, 3]), (0.75, [1, 2, 3]), (0.95, [0, 1, 2, 3])):
        assert finite(keep_top_p(jnp.log(probabilities), top_p)) == [kept], top_p


@pytest.mark.parametrize("top_p", [0.0, 1e-12, 1e-4])
def test_a_tiny_top_p_keeps_the_likeliest(top_p):
    logits = jnp.concatenate([jnp.zeros((1, 5000)), jnp.full((1, 1), 0.01)], axis=1)
    assert finite(keep_top_p(logits, top_p)) == [[5000]]


def test_top_p_keeps_every_token_that_ties_with_the_last_one():
    assert finite(keep_top_p(jnp.log(jnp.array([[0.4, 0.2, 0.2, 0.2]])), 0.5)) == [[0, 1, 2, 3]]


def test_top_p_of_one_keeps_all_and_top_p_counts_mass_among_top_k_survivors():
    logits = jnp.log(jnp.array([[0.1, 0.4, 0.2, 0.3]]))
    np.testing.assert_array_equal(keep_top_p(logits, 1.0), logits)
    assert finite(keep_top_p(keep_top_k(logits, 2), 0.55)) == [[1]]  # 0.4 of 0.7 is 0.57
    assert finite(keep_top_p(logits, 0.55)) == [[1, 3]]
    assert finite(keep_top_p(keep_top_k(logits, 2), 0.9999999)) == [[1, 3]]  # the struck-out ones stay out


@pytest.mark.parametrize("temperature", [1e-3, 1e-10, 1e-30])
def test_a_temperature_near_zero_samples_the_likeliest_without_nan(temperature):
    """Entropies and gradients must stay finite too: zero times minus infinity hides there."""
    logits = 10 * jax.random.normal(jax.random.key(8), (8, 50))
    tokens, logprobs = draw(logits, jax.random.key(9), temperature=temperature, top_p=0.9)
    np.testing.assert_array_equal(tokens, np.argmax(logits, axis=-1))
    np.testing.assert_allclose(logprobs, 0.0, atol=1e-6)

    def total(logits):
        return jnp.sum(jnp.take_along_axis(policy_logprobs(logits, temperature), tokens[:, None], axis=1))

    assert np.isfinite(jax.jit(jax.grad(total))(logits)).all()
    assert np.isfinite(policy_logprobs(logits, temperature)).all()
