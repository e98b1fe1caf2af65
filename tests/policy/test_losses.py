"""Policy losses against numbers worked by hand, and what adding up over micro-batches must keep."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scope_jax.policy import policy_loss
from scope_jax.policy.losses import AGGREGATIONS, ALGORITHMS, aggregate, kl_penalty

LIVE = {  # (advantage, ratio) -> is the gradient live, from min(r A, clip(r, 0.8, 1.2) A) on paper
    (1.0, 0.5): True,
    (1.0, 1.0): True,
    (1.0, 1.5): False,
    (-1.0, 0.5): False,
    (-1.0, 1.0): True,
    (-1.0, 1.5): True,
}


@functools.cache
def value_and_grad(**options):
    """Jitted loss / max(denominator, 1) and its gradient by the log-probs."""

    def loss(logprobs, old, advantages, mask, ref=None):
        numerator, denominator, metrics = policy_loss(logprobs, old, advantages, mask, ref_logprobs=ref, **options)
        return numerator / jnp.maximum(denominator, 1.0), metrics

    return jax.jit(jax.value_and_grad(loss, has_aux=True))


def random_batch(seed=0, rows=8, columns=6):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, columns + 1, rows)
    lengths[:2] = [0, columns]  # one row without any token
    mask = np.arange(columns)[None] < lengths[:, None]
    logprobs = rng.normal(-1.0, 0.5, (rows, columns)).astype(np.float32)
    old = (logprobs + rng.normal(0, 0.4, (rows, columns))).astype(np.float32)
    ref = (logprobs + rng.normal(0, 0.4, (rows, columns))).astype(np.float32)
    advantages = rng.normal(0, 1, rows).astype(np.float32)
    return logprobs, old, advantages, mask, ref


@pytest.mark.parametrize(("advantage", "ratio"), LIVE)
def test_grpo_takes_the_smaller_objective_for_either_sign(advantage, ratio):
    """Taking the larger one for negative advantages swaps which ratios are live; at ratio 1 nobody would see it."""
    old = jnp.full((1, 1), -2.0)
    (loss, _), gradient = value_and_grad()(old + np.log(ratio), old, jnp.array([advantage]), jnp.ones((1, 1), bool))
    expected = {1.5: 1.2, 0.5: 0.8}.get(ratio, ratio) if not LIVE[advantage, ratio] else ratio
    assert loss == pytest.approx(-advantage * expected, rel=1e-5)
    assert gradient[0, 0] == pytest.approx(-advantage * ratio * LIVE[advantage, ratio], rel=1e-5)


@pytest.mark.parametrize(("advantage", "ratio"), LIVE)
def test_gspo_clips_the_geometric_mean_of_the_ratios(advantage, ratio):
    """Tokens of ratio 4 r and r / 4 are one sequence of ratio r: both are live, or neither."""
    old = jnp.full((1, 3), -2.0)
    logprobs = old + np.log(ratio) + jnp.array([[np.log(4.0), -np.log(4.0), jnp.nan]])
    mask = jnp.array([[True, True, False]])
    (loss, _), gradient = value_and_grad(algorithm="gspo")(logprobs, old, jnp.array([advantage]), mask)
    live = LIVE[advantage, ratio]
    assert loss == pytest.approx(-advantage * (ratio if live else {1.5: 1.2, 0.5: 0.8}[ratio]), rel=1e-5)
    each = -advantage * ratio * live / 2
    np.testing.assert_allclose(gradient, [[each, each, 0.0]], rtol=1e-5)


def test_dual_clip_bounds_the_ratio_of_negative_advantages_only():
    old = jnp.full((3, 1), -2.0)
    logprobs = old + jnp.log(jnp.array([[5.0], [2.0], [0.5]]))
    loss = value_and_grad(dual_clip=3.0, aggregation="seq-mean-token-sum")
    (value, _), gradient = loss(logprobs, old, jnp.array([-1.0, -1.0, 1.0]), jnp.ones((3, 1), bool))
    assert value == pytest.approx((3.0 + 2.0 - 0.5) / 3, rel=1e-5)
    np.testing.assert_allclose(gradient[:, 0], np.array([0.0, 2.0, -0.5]) / 3, rtol=1e-5)


def test_each_aggregation_matches_numbers_worked_by_hand():
    loss = jnp.array([[1.0, 2.0, 3.0], [5.0, jnp.nan, jnp.inf], [7.0, 7.0, 7.0]])
    mask = jnp.array([[True, True, True], [True, False, False], [False, False, False]])
    expected = {  # sum 11; row means 2 and 5; 4 tokens, 2 rows with tokens
        "token-mean": (11.0, 4.0),
        "seq-mean-token-mean": (7.0, 2.0),
        "seq-mean-token-sum": (11.0, 2.0),
        "constant": (11.0, 20.0),
    }
    for mode in AGGREGATIONS:
        assert aggregate(loss, mask, mode=mode, constant_length=10) == expected[mode], mode


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_micro_batches_add_up_to_the_full_batch(algorithm, aggregation):
    """Accumulation must not rescale the loss, whatever the lengths of the rows in each micro-batch."""
    batch = random_batch()

    def numerator(logprobs, old, advantages, mask, ref):
        top, bottom, metrics = policy_loss(
            logprobs, old, advantages, mask, algorithm=algorithm, aggregation=aggregation,
            ref_logprobs=ref, kl_coef=0.1, constant_length=6,
        )  # fmt: skip
        return top, (bottom, metrics)

    run = jax.jit(jax.value_and_grad(numerator, has_aux=True))
    (top, (bottom, metrics)), gradient = run(*batch)
    parts = [run(*(array[i : i + 2] for array in batch)) for i in range(0, 8, 2)]
    add = functools.partial(jax.tree.map, lambda *leaves: sum(leaves))
    np.testing.assert_allclose(sum(part[0][0] for part in parts), top, rtol=2e-6)
    assert sum(part[0][1][0] for part in parts) == bottom
    np.testing.assert_allclose(np.concatenate([part[1] for part in parts]), gradient, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), add(*(p[0][1][1] for p in parts)), metrics)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_padding_never_changes_the_loss_or_leaks_a_nan_into_the_gradient(algorithm):
    logprobs, old, advantages, mask, ref = random_batch(1)
    run = value_and_grad(algorithm=algorithm, kl_coef=0.1, aggregation="seq-mean-token-mean")
    (loss, metrics), gradient = run(logprobs, old, advantages, mask, ref)
    for junk_new, junk_old in itertools.product([0.0, -np.inf, np.nan, 1e30], [0.0, -np.inf]):
        spoilt = [np.where(mask, x, j).astype(np.float32) for x, j in [(logprobs, junk_new), (old, junk_old)]]
        rows = np.where(mask.any(1), advantages, np.nan)
        (again, more), same = run(*spoilt, rows, mask, np.where(mask, ref, -np.inf))
        assert again == loss
        np.testing.assert_array_equal(same, gradient)
        jax.tree.map(np.testing.assert_array_equal, more, metrics)
    wide = [np.pad(x, [(0, 2), (3, 4)]) for x in (logprobs, old)]
    wide += [np.pad(advantages, (0, 2)), np.pad(mask, [(0, 2), (3, 4)]), np.pad(ref, [(0, 2), (3, 4)])]
    (again, _), same = run(*wide)
    assert again == pytest.approx(float(loss), rel=1e-6)
    np.testing.assert_allclose(same[:8, 3:9], gradient, rtol=1e-6)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_batch_without_tokens_has_loss_zero_and_gradient_zero(algorithm, aggregation):
    logprobs, old, advantages, mask, ref = random_batch(2)
    run = value_and_grad(algorithm=algorithm, aggregation=aggregation, kl_coef=0.1, constant_length=6)
    (loss, metrics), gradient = run(np.full_like(logprobs, -np.inf), old, advantages, mask & False, ref)
    assert loss == 0.0
    np.testing.assert_array_equal(gradient, np.zeros_like(gradient))
    assert all(pair == (0.0, 0.0) for pair in metrics.values())


def test_on_policy_gradient_is_the_policy_gradient():
    """The loss of centred advantages is 0 on-policy by construction; its gradient is not."""
    logprobs, _, _, _, _ = random_batch(3)
    mask, advantages = np.ones_like(logprobs, bool), np.array([1, -1, 1, -1, 2, -2, 0, 0], np.float32)
    (loss, metrics), gradient = value_and_grad()(logprobs, None, advantages, mask)
    assert loss == 0.0
    np.testing.assert_allclose(gradient, np.repeat(-advantages[:, None] / mask.size, 6, axis=1), rtol=1e-6)
    assert metrics["ratio"] == (48.0, 48.0) and metrics["kl_old_k3"][0] == 0.0
    (_, _), given = value_and_grad()(logprobs, logprobs, advantages, mask)
    np.testing.assert_array_equal(given, gradient)


def test_the_first_end_token_is_trained_like_any_other():
    """A row that ends at its first token has one token, and that token has a gradient."""
    mask = jnp.array([[True, False, False], [True, True, True]])
    (_, _), gradient = value_and_grad()(jnp.full((2, 3), -1.0), None, jnp.array([1.0, 0.0]), mask)
    np.testing.assert_allclose(gradient, [[-0.25, 0, 0], [0, 0, 0]], rtol=1e-6)


def test_rows_without_signal_stay_in_the_denominator_unless_masked():
    logprobs, mask = jnp.full((2, 4), -1.0), jnp.ones((2, 4), bool)
    denominators = [
        policy_loss(logprobs, None, jnp.array([1.0, 0.0]), keep)[1]
        for keep in (mask, mask & jnp.array([[True], [False]]))
    ]
    assert denominators == [8.0, 4.0]


def test_one_ratio_a_sequence_weights_rows_by_length_only_when_asked():
    """Broadcast over tokens, a sequence's ratio counts once a token; GSPO's own aggregation undoes that."""
    mask = jnp.array([[True, False, False, False], [True, True, True, True]])
    logprobs, advantages = jnp.full((2, 4), -1.0), jnp.array([1.0, 1.0])
    weight = {
        mode: np.asarray(value_and_grad(algorithm="gspo", aggregation=mode)(logprobs, None, advantages, mask)[1]).sum(1)
        for mode in (None, "seq-mean-token-mean", "token-mean")
    }
    np.testing.assert_allclose(weight[None], [-0.5, -0.5], rtol=1e-6)
    np.testing.assert_allclose(weight["seq-mean-token-mean"], [-0.5, -0.5], rtol=1e-6)
    np.testing.assert_allclose(weight["token-mean"], [-0.2, -0.8], rtol=1e-6)


def test_extreme_log_ratios_stay_finite():
    old = jnp.array([[-500.0, -1.0]])
    (loss, metrics), gradient = value_and_grad()(old[:, ::-1], old, jnp.array([-1.0]), jnp.ones((1, 2), bool))
    assert np.isfinite(loss) and np.all(np.isfinite(gradient))
    assert all(np.isfinite(x) for x in jax.tree.leaves(metrics))


def test_metrics_count_the_clipped_tokens_by_side():
    old = jnp.full((2, 3), -2.0)
    logprobs = old + jnp.log(jnp.array([[1.5, 1.0, 0.5], [0.5, 0.7, 1.5]]))
    _, _, metrics = policy_loss(logprobs, old, jnp.array([1.0, -1.0]), jnp.ones((2, 3), bool))
    assert metrics["clip_high"] == (1.0, 6.0) and metrics["clip_low"] == (2.0, 6.0)
    assert metrics["ratio"][0] == pytest.approx(5.7, rel=1e-6)
    assert metrics["kl_old_k1"][0] == pytest.approx(-np.log(1.5 * 0.5 * 0.5 * 0.7 * 1.5), rel=1e-5)
    assert metrics["kl_old_k3"][0] == pytest.approx(5.7 - 6 - np.log(1.5 * 0.5 * 0.5 * 0.7 * 1.5), rel=1e-4)


PI, REF = np.array([0.5, 0.25, 0.25]), np.array([0.2, 0.5, 0.3])


def exact_kl(logits, forward):
    log_pi, log_ref = jax.nn.log_softmax(logits), jnp.log(REF)
    return jnp.sum(REF * (log_ref - log_pi)) if forward else jnp.sum(jnp.exp(log_pi) * (log_pi - log_ref))


@pytest.mark.parametrize(("estimator", "forward"), [("k2", False), ("k3", True)])
def test_kl_gradient_is_that_of_an_enumerated_softmax(estimator, forward):
    """Drawing (0, 0, 1, 2) from (1/2, 1/4, 1/4) is the exact expectation: k2 gives the reverse, k3 the forward KL."""
    draws, logits = jnp.array([0, 0, 1, 2]), jnp.log(PI)

    def loss(logits):
        logprobs = jax.nn.log_softmax(logits)[draws][:, None]
        top, bottom, _ = policy_loss(
            logprobs, None, jnp.zeros(4), jnp.ones((4, 1), bool),
            ref_logprobs=jnp.log(REF)[draws][:, None], kl_coef=1.0, kl_estimator=estimator,
        )  # fmt: skip
        return top / bottom

    np.testing.assert_allclose(jax.grad(loss)(logits), jax.grad(exact_kl)(logits, forward), atol=1e-6)
    value = jnp.mean(kl_penalty(jnp.log(PI)[draws], jnp.log(REF)[draws], estimator="k3"))
    assert value == pytest.approx(float(exact_kl(logits, False)), rel=1e-5)


def test_k1_in_the_loss_is_refused_because_it_does_not_regularise():
    """Its mean gradient is that of log pi: 0, so a larger coefficient would only add noise."""
    draws = jnp.array([0, 0, 1, 2])
    gradient = jax.grad(lambda x: jnp.mean(jax.nn.log_softmax(x)[draws] - jnp.log(REF)[draws]))(jnp.log(PI))
    np.testing.assert_allclose(gradient, np.zeros(3), atol=1e-7)
    with pytest.raises(ValueError, match="does not regularise"):
        kl_penalty(jnp.zeros((1, 1)), jnp.zeros((1, 1)), estimator="k1")


def test_the_kl_term_trains_rows_of_advantage_zero_too():
    logprobs, mask = jnp.full((1, 2), -1.0), jnp.ones((1, 2), bool)
    (loss, metrics), gradient = value_and_grad(kl_coef=0.5, kl_estimator="k2")(
        logprobs, None, jnp.zeros(1), mask, logprobs - 0.2
    )
    assert loss == pytest.approx(0.5 * 0.02, rel=1e-4)
    np.testing.assert_allclose(gradient, [[0.05, 0.05]], rtol=1e-4)
    assert metrics["kl_ref"][0] == pytest.approx(0.04, rel=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "ppo"}, "algorithm is 'ppo'.*grpo, gspo"),
        ({"aggregation": "mean"}, "aggregation is 'mean'.*token-mean"),
        ({"aggregation": "constant"}, "constant_length"),
        ({"kl_coef": 0.1}, "ref_logprobs"),
        ({"dual_clip": 0.5}, "dual_clip is 0.5"),
        ({"kl_coef": 0.1, "ref_logprobs": jnp.zeros((1, 1)), "kl_estimator": "k4"}, "k2, k3"),
    ],
)
def test_bad_options_are_refused_with_what_to_do(options, message):
    with pytest.raises(ValueError, match=message):
        policy_loss(jnp.zeros((1, 1)), None, jnp.zeros(1), jnp.ones((1, 1), bool), **options)
