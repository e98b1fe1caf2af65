import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scope_jax import qwen3
from scope_jax.qwen3.forward import KVBlock, causal_mask, hidden_states, segment_positions, unembed

GOLDEN = pathlib.Path(__file__).parent / "golden"
WIDTH = 12
run = jax.jit(qwen3.forward, static_argnames="config")


@functools.partial(jax.jit, static_argnames="config")
def loss_and_gradient(params, config, tokens, segment_ids, weights):
    """A weighted sum of log-probs, weights [B T]."""

    def loss(params):
        logprobs = jax.nn.log_softmax(qwen3.forward(params, config, tokens, segment_ids=segment_ids))
        return jnp.sum(logprobs[..., 7] * weights)

    return jax.value_and_grad(loss)(params)


def lay_out(rows, rng, vocabulary):
    """Rows of (start column, length) segments, filled with random tokens; random tokens at padding too."""
    tokens = rng.integers(vocabulary, size=(len(rows), WIDTH)).astype(np.int32)
    segment_ids = np.zeros((len(rows), WIDTH), np.int32)
    for row, segments in enumerate(rows):
        for number, (start, length) in enumerate(segments, start=1):
            segment_ids[row, start : start + length] = number
    return tokens, segment_ids


@pytest.mark.parametrize("layout", ["unpadded", "left_padded", "right_padded", "packed"])
@pytest.mark.parametrize("model", sorted(path.stem for path in GOLDEN.glob("*.npz")))
def test_logits_equal_those_of_transformers(golden, model, layout):
    folder, arrays = golden(model)
    config, params = qwen3.load(folder)
    segment_ids = arrays[f"{layout}/segment_ids"]
    logits = run(params, config, arrays[f"{layout}/tokens"], segment_ids=segment_ids)
    difference = np.abs(np.where(segment_ids[..., None] > 0, logits - arrays[f"{layout}/logits"], 0))
    assert logits.dtype == jnp.float32
    assert difference.max() < 1e-5  # 4e-6 was reached, with logits up to 3.7


def test_every_architecture_has_golden_logits(golden):
    found = {qwen3.load(golden(path.stem)[0])[0].model_type for path in GOLDEN.glob("*.npz")}
    assert found == {"qwen3", "qwen2", "llama"}


def test_padding_and_packing_never_change_logits(tiny_config, tiny_params):
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(16):
        cuts = np.sort(rng.choice(np.arange(WIDTH + 1), size=2 * rng.integers(1, 4), replace=False))
        rows.append([(int(a), int(b - a)) for a, b in cuts.reshape(-1, 2)])
    tokens, segment_ids = lay_out(rows, rng, tiny_config.vocab_size)
    alone = [(row, start, length) for row, segments in enumerate(rows) for start, length in segments]
    alone_tokens = np.zeros((48, WIDTH), np.int32)
    alone_ids = np.zeros((48, WIDTH), np.int32)
    for i, (row, start, length) in enumerate(alone):
        alone_tokens[i, :length] = tokens[row, start : start + length]
        alone_ids[i, :length] = 1
    logits = run(tiny_params, tiny_config, tokens, segment_ids=segment_ids)
    expected = run(tiny_params, tiny_config, alone_tokens, segment_ids=alone_ids)
    for i, (row, start, length) in enumerate(alone):
        np.testing.assert_allclose(logits[row, start : start + length], expected[i, :length], rtol=0, atol=5e-6)


@pytest.mark.parametrize("remat", [True, False])
def test_left_right_and_packed_rows_give_equal_gradients(tiny_config, tiny_params, remat):
    config = dataclasses.replace(tiny_config, remat=remat)
    rng = np.random.default_rng(1)
    sequences = [rng.integers(61, size=length) for length in (5, 7)]

    def batch(places):
        tokens, segment_ids = lay_out([[], []], rng, 61)
        weights = np.zeros((2, WIDTH), np.float32)  # one of its own for each token
        for sequence, first, (row, start, segment) in zip(sequences, (1, 6), places, strict=True):
            columns = slice(start, start + len(sequence))
            tokens[row, columns], segment_ids[row, columns] = sequence, segment
            weights[row, columns] = np.arange(first, first + len(sequence)) / 12
        return tokens, segment_ids, weights

    left = loss_and_gradient(tiny_params, config, *batch([(0, 7, 1), (1, 5, 1)]))
    right = loss_and_gradient(tiny_params, config, *batch([(0, 0, 1), (1, 0, 1)]))
    packed = loss_and_gradient(tiny_params, config, *batch([(0, 0, 1), (0, 5, 2)]))
    for other in (right, packed):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), left, other)


def test_a_row_that_is_all_padding_gives_finite_logits_and_gradients(tiny_config, tiny_params):
    tokens, segment_ids = lay_out([[(0, 5)], []], np.random.default_rng(2), 61)
    weights = np.ones((2, WIDTH), np.float32)  # the padding row's own log-probs too
    result = loss_and_gradient(tiny_params, tiny_config, tokens, segment_ids, weights)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result))


def test_a_token_sees_only_earlier_tokens_of_its_own_segment(tiny_config, tiny_params):
    tokens, segment_ids = lay_out([[(0, 4), (4, 6)]] * 2, np.random.default_rng(3), 61)
    tokens[1] = tokens[0]
    tokens[1, 2] = (tokens[0, 2] + 1) % 61
    first, second = run(tiny_params, tiny_config, tokens, segment_ids=segment_ids)
    changed = np.abs(first - second).max(axis=-1)[:10] > 0
    assert changed.tolist() == [False, False, True, True] + [False] * 6


def test_each_bias_moves_the_logits(tiny_models):
    config, params = tiny_models["qwen2"]
    tokens, segment_ids = lay_out([[(0, 12)]] * 2, np.random.default_rng(8), 61)
    logits = run(params, config, tokens, segment_ids=segment_ids)
    for bias in ("q_bias", "k_bias", "v_bias"):
        moved = params["layers"] | {bias: params["layers"][bias] + 0.5}
        changed = run({**params, "layers": moved}, config, tokens, segment_ids=segment_ids)
        assert np.abs(changed - logits).max() > 1e-2


def test_a_llama_is_a_qwen2_whose_biases_are_zero(tiny_models):
    (qwen2, _), (llama, params) = tiny_models["qwen2"], tiny_models["llama"]
    tokens, segment_ids = lay_out([[(0, 12)]] * 2, np.random.default_rng(9), 61)
    zeros = {"q_bias": jnp.zeros((2, 4, 6)), "k_bias": jnp.zeros((2, 2, 6)), "v_bias": jnp.zeros((2, 2, 6))}
    with_biases = {**params, "layers": params["layers"] | zeros}
    expected = run(with_biases, qwen2, tokens, segment_ids=segment_ids)
    found = run(params, llama, tokens, segment_ids=segment_ids)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_no_segment_ids_means_one_segment(tiny_config, tiny_params):
    tokens, _ = lay_out([[]], np.random.default_rng(4), 61)
    whole = run(tiny_params, tiny_config, tokens, segment_ids=np.ones_like(tokens))
    np.testing.assert_array_equal(run(tiny_params, tiny_config, tokens), whole)


def test_positions_count_real_tokens_of_each_segment():
    ids = jnp.array([[0, 0, 1, 1, 1], [1, 1, 2, 2, 0], [1, 0, 1, 3, 3], [0, 0, 0, 0, 0]])
    expected = [[0, 0, 0, 1, 2], [0, 1, 0, 1, 0], [0, 0, 1, 0, 1], [0, 0, 0, 0, 0]]
    assert segment_positions(ids).tolist() == expected


def test_rows_that_share_a_context_block_equal_whole_rows(tiny_config, tiny_params):
    """Two prompts, left-padded, each with two continuations: prefill once, as sampling does."""
    rng = np.random.default_rng(5)
    prompts, prompt_ids = lay_out([[(3, 5)], [(1, 7)]], rng, 61)
    prompts, prompt_ids = prompts[:, :8], prompt_ids[:, :8]
    later = rng.integers(61, size=(4, 4)).astype(np.int32)
    seen = np.repeat(prompt_ids > 0, 2, axis=0)[:, None, :].repeat(4, axis=1)
    later_positions = np.repeat(np.sum(prompt_ids, axis=1), 2)[:, None] + np.arange(4)

    @jax.jit
    def continue_prompts(params):
        positions, mask = segment_positions(prompt_ids), causal_mask(prompt_ids)
        _, (k, v) = hidden_states(params, tiny_config, prompts, positions, mask)
        mask = causal_mask(jnp.ones_like(later))
        context = (KVBlock(k, v, seen),)
        hidden, _ = hidden_states(params, tiny_config, later, later_positions, mask, context)
        return unembed(params, tiny_config, hidden)

    rows = np.concatenate([np.repeat(prompts, 2, axis=0), later], axis=1)
    ids = np.concatenate([np.repeat(prompt_ids, 2, axis=0), np.ones_like(later)], axis=1)
    expected = run(tiny_params, tiny_config, rows, segment_ids=ids)[:, 8:]
    np.testing.assert_allclose(continue_prompts(tiny_params), expected, rtol=0, atol=5e-6)


def test_bfloat16_activations_stay_near_float32_and_logits_are_float32(tiny_config, tiny_params):
    tokens, segment_ids = lay_out([[(0, 12)]] * 2, np.random.default_rng(6), 61)
    half = dataclasses.replace(tiny_config, dtype="bfloat16")
    exact = run(tiny_params, tiny_config, tokens, segment_ids=segment_ids)
    logits = run(tiny_params, half, tokens, segment_ids=segment_ids)
    assert logits.dtype == jnp.float32
    assert 0 < np.abs(logits - exact).max() < 0.05 * np.abs(exact).max()


def test_embedding_gradients_add_up_in_float32_under_bfloat16_activations(tiny_config, tiny_params):
    half = dataclasses.replace(tiny_config, dtype="bfloat16")
    tokens = np.full((2, WIDTH), 5, np.int32)
    tokens[:, ::3] = 9
    weights = np.random.default_rng(7).normal(size=(2, WIDTH)).astype(np.float32)
    _, gradient = loss_and_gradient(tiny_params, half, tokens, np.ones_like(tokens), weights)
    row = np.asarray(gradient["embed"][5])
    assert np.any(row != row.astype(jnp.bfloat16).astype(np.float32))
