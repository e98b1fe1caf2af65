import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from scope_jax import qwen3
from scope_jax.policy import token_logprobs
from scope_jax.policy.logprobs import score_tokens

B, T, V = 4, 11, 61
LAYOUTS = {
    "unpadded": ["11111111111"] * B,
    "left_padded": ["00000111111", "00111111111", "00000000001", "11111111111"],
    "right_padded": ["11111100000", "11111111100", "10000000000", "11111111111"],
    "gaps": ["01101001110", "10000000011", "11011011011", "00100100100"],
    "packed": ["11122222333", "11111112000", "00122003330", "12345670000"],
}
score = jax.jit(score_tokens, static_argnames=("config", "temperature", "start", "chunk"))


def batch(layout, seed=0):
    """Random tokens, padding's included, the layout's segment ids, and a mask that leaves out some real tokens."""
    rng = np.random.default_rng(seed)
    segment_ids = np.array([[int(segment) for segment in row] for row in LAYOUTS[layout]], np.int32)
    tokens = rng.integers(V, size=(B, T)).astype(np.int32)
    return tokens, segment_ids, (segment_ids > 0) & (rng.random((B, T)) < 0.8)


def predictors(segment_ids):
    """The column before each column in its segment, -1 where there is none."""
    before = np.full(segment_ids.shape, -1)
    for row, column in np.argwhere(segment_ids > 0):
        same = np.flatnonzero(segment_ids[row, :column] == segment_ids[row, column])
        before[row, column] = same[-1] if len(same) else -1
    return before


@functools.partial(jax.jit, static_argnames=("config", "temperature"))
def naive(params, config, tokens, wanted, segment_ids, before, temperature):
    """Log-probs and entropies read off the logits of the whole batch."""
    logits = qwen3.forward(params, config, tokens, segment_ids=segment_ids) / temperature
    logits = jnp.take_along_axis(logits, before[..., None], axis=1)
    distribution = jax.nn.log_softmax(logits)
    logprobs = jnp.take_along_axis(distribution, tokens[..., None], axis=-1)[..., 0]
    entropy = -jnp.sum(jax.nn.softmax(logits) * distribution, axis=-1)
    return jnp.where(wanted, logprobs, 0.0), jnp.where(wanted, entropy, 0.0)


def expected(params, config, tokens, segment_ids, mask, temperature=1.0):
    before = predictors(segment_ids)
    return naive(params, config, tokens, mask & (before >= 0), segment_ids, np.maximum(before, 0), temperature)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_logprobs_and_entropies_equal_those_of_the_whole_logits(tiny_config, tiny_params, layout):
    tokens, segment_ids, mask = batch(layout)
    for temperature, chunk in ((1.0, 3), (0.7, T)):
        options = {"segment_ids": segment_ids, "temperature": temperature, "chunk": chunk}
        logprobs, entropy = score(tiny_params, tiny_config, tokens, mask, **options)
        wanted = expected(tiny_params, tiny_config, tokens, segment_ids, mask, temperature)
        assert logprobs.dtype == entropy.dtype == jnp.float32
        np.testing.assert_allclose(logprobs, wanted[0], rtol=0, atol=5e-6)
        np.testing.assert_allclose(entropy, wanted[1], rtol=0, atol=5e-6)


def test_a_logprob_stands_in_the_column_of_its_own_token(tiny_config, tiny_params):
    """Labels shifted by one against the mask compare different tokens; here the neighbours' values differ widely."""
    tokens, segment_ids, _ = batch("unpadded")
    logprobs, _ = score(tiny_params, tiny_config, tokens, np.ones((B, T), bool), segment_ids=segment_ids, chunk=3)
    logits = np.asarray(jax.jit(qwen3.forward, static_argnames="config")(tiny_params, tiny_config, tokens))
    distribution = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    logprobs = np.asarray(logprobs)
    for column in range(1, T):
        own = distribution[np.arange(B), column - 1, tokens[:, column]]
        assert np.abs(logprobs[:, column] - own).max() < 5e-6
        assert np.abs(logprobs[:, column - 1] - own).max() > 0.1
    changed = tokens.copy()
    changed[:, 5] = (changed[:, 5] + 1) % V
    other, _ = score(tiny_params, tiny_config, changed, np.ones((B, T), bool), segment_ids=segment_ids, chunk=3)
    moved = np.abs(other - logprobs).max(axis=0) > 1e-4
    assert moved.tolist() == [False] * 5 + [True] * 6


def test_the_first_token_of_a_segment_scores_zero(tiny_config, tiny_params):
    for layout in LAYOUTS:
        tokens, segment_ids, _ = batch(layout)
        logprobs, entropy = score(tiny_params, tiny_config, tokens, segment_ids > 0, segment_ids=segment_ids, chunk=3)
        scored = predictors(segment_ids) >= 0
        assert (np.asarray(logprobs)[~scored] == 0).all() and (np.asarray(entropy)[~scored] == 0).all()
        assert (np.asarray(logprobs)[scored] < 0).all()


def test_without_segment_ids_a_row_is_one_segment(tiny_config, tiny_params):
    tokens, segment_ids, mask = batch("unpadded")
    implied, _ = score(tiny_params, tiny_config, tokens, mask, chunk=3)
    given, _ = score(tiny_params, tiny_config, tokens, mask, segment_ids=segment_ids, chunk=3)
    np.testing.assert_array_equal(implied, given)


@pytest.mark.parametrize("chunk", [1, 3, T, 10_000])
def test_the_chunk_size_never_changes_a_logprob(tiny_config, tiny_params, chunk):
    """A trainer that scores in other chunks than before would see ratios that are not one."""
    tokens, segment_ids, mask = batch("gaps")
    logprobs, entropy = score(tiny_params, tiny_config, tokens, mask, segment_ids=segment_ids, chunk=chunk)
    wanted = expected(tiny_params, tiny_config, tokens, segment_ids, mask)
    np.testing.assert_allclose(logprobs, wanted[0], rtol=0, atol=2e-6)
    np.testing.assert_allclose(entropy, wanted[1], rtol=0, atol=5e-6)


@pytest.mark.parametrize("start, chunk", [(1, 4), (7, 3), (T - 1, 4)])
def test_columns_before_start_are_zero_and_the_others_as_without_it(tiny_config, tiny_params, start, chunk):
    tokens, segment_ids, mask = batch("gaps")
    logprobs, entropy = score(tiny_params, tiny_config, tokens, mask, segment_ids=segment_ids, start=start, chunk=chunk)
    for part, whole in zip(
        (logprobs, entropy), expected(tiny_params, tiny_config, tokens, segment_ids, mask), strict=True
    ):
        assert part.shape == (B, T) and not part[:, :start].any()
        np.testing.assert_allclose(part[:, start:], whole[:, start:], rtol=0, atol=5e-6)


@pytest.mark.parametrize("name, value", [("start", -1), ("start", T), ("chunk", 0)])
def test_a_start_or_chunk_that_makes_no_sense_is_refused(tiny_config, tiny_params, name, value):
    tokens, _, mask = batch("unpadded")
    with pytest.raises(ValueError, match=f"{name} is {value};"):
        score_tokens(tiny_params, tiny_config, tokens, mask, **{name: value})


def test_the_gradient_is_that_of_the_whole_logits(tiny_config, tiny_params):
    start = 2
    weights = np.random.default_rng(2).normal(size=(B, T)).astype(np.float32)

    @jax.jit
    @jax.grad
    def chunked(params, tokens, segment_ids, mask):
        options = {"segment_ids": segment_ids, "temperature": 0.7, "start": start, "chunk": 4}
        return jnp.sum(weights * token_logprobs(params, tiny_config, tokens, mask, **options))

    @jax.jit
    @jax.grad
    def whole(params, tokens, segment_ids, wanted, before):
        return jnp.sum(weights * naive(params, tiny_config, tokens, wanted, segment_ids, before, 0.7)[0])

    for layout in LAYOUTS:
        tokens, segment_ids, mask = batch(layout)
        before = predictors(segment_ids)
        wanted = mask & (before >= 0) & (np.arange(T) >= start)
        ours = chunked(tiny_params, tokens, segment_ids, mask)
        theirs = whole(tiny_params, tokens, segment_ids, wanted, np.maximum(before, 0))
        for (path, leaf), right in zip(jax.tree.leaves_with_path(ours), jax.tree.leaves(theirs), strict=True):
            size = np.abs(right).max()
            assert size > 0
            np.testing.assert_allclose(leaf, right, rtol=0, atol=2e-5 * size, err_msg=f"{layout} {path}")


def test_entropies_carry_no_gradient_and_a_masked_batch_has_a_zero_one(tiny_config, tiny_params):
    tokens, segment_ids, mask = batch("gaps")

    @jax.jit
    def gradients(params, mask):
        def total(params, part):
            return jnp.sum(score_tokens(params, tiny_config, tokens, mask, segment_ids=segment_ids, chunk=3)[part])

        values, pullback = jax.vjp(lambda p: (total(p, 0), total(p, 1)), params)
        one, zero = jnp.float32(1), jnp.float32(0)
        return values, pullback((one, zero))[0], pullback((zero, one))[0]

    values, of_logprobs, of_entropy = gradients(tiny_params, mask)
    assert values[0] < 0 < values[1]
    assert all(leaf.any() for leaf in jax.tree.leaves(of_logprobs))
    assert not any(leaf.any() for leaf in jax.tree.leaves(of_entropy))
    values, of_logprobs, _ = gradients(tiny_params, np.zeros((B, T), bool))
    assert values == (0, 0)
    assert not any(leaf.any() for leaf in jax.tree.leaves(of_logprobs))  # a NaN would count as true


def test_a_temperature_near_zero_gives_finite_scores_and_gradients(tiny_config, tiny_params):
    """Probabilities are 0 and 1 there: zero times minus infinity hides in the entropy."""
    tokens, segment_ids, mask = batch("packed")

    @jax.jit
    def run(params):
        def total(params):
            options = {"segment_ids": segment_ids, "temperature": 1e-12, "chunk": 3}
            logprobs, entropy = score_tokens(params, tiny_config, tokens, mask, **options)
            return jnp.sum(logprobs), entropy

        return jax.value_and_grad(total, has_aux=True)(params)

    (total, entropy), gradient = run(tiny_params)
    assert np.isfinite(total) and np.isfinite(entropy).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def largest_array(jaxpr):
    """Elements of the largest array that a program computes anywhere, loop bodies and called programs included."""
    sizes = [0]
    for equation in jaxpr.eqns:
        sizes += [variable.aval.size for variable in equation.outvars if hasattr(variable.aval, "size")]
        sizes += [largest_array(inner) for inner in jaxprs_in_params(equation.params)]
    return max(sizes)


def test_no_array_of_all_logits_is_ever_held(tiny_config, tiny_params):
    """Chunks that are put together again undo the gain, forwards or backwards."""
    rows, width, chunk = 6, 48, 4
    config = qwen3.Config(
        vocab_size=997, d_model=8, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=4, d_ff=8, tie_embeddings=True
    )
    params = jax.eval_shape(functools.partial(qwen3.init, config), jax.random.key(0))
    tokens, mask = jax.ShapeDtypeStruct((rows, width), jnp.int32), jax.ShapeDtypeStruct((rows, width), jnp.bool_)

    def total(params, tokens, mask):
        logprobs, entropy = score_tokens(params, config, tokens, mask, chunk=chunk)
        return jnp.sum(logprobs) + jnp.sum(entropy)

    def naive_total(params, tokens, mask):
        return jnp.sum(jax.nn.log_softmax(qwen3.forward(params, config, tokens)))

    one_chunk, all_logits = rows * chunk * 997, rows * width * 997
    for transform in (lambda f: f, jax.grad):
        assert largest_array(jax.make_jaxpr(transform(naive_total))(params, tokens, mask).jaxpr) >= all_logits
        largest = largest_array(jax.make_jaxpr(transform(total))(params, tokens, mask).jaxpr)
        assert one_chunk <= largest < 2 * one_chunk
