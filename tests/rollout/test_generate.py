import dataclasses
import functools
import importlib
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scope_jax import qwen3
from scope_jax.meshes import batch_sharding, make_mesh
from scope_jax.policy import token_logprobs
from scope_jax.rollout import generate
from scope_jax.rollout.sampling import sample_token

P, N, V = 6, 8, 61  # prompt columns, completion columns, vocabulary
LAYOUTS = {
    "full": "111111",
    "left_padded": "000111",
    "right_padded": "111000",
    "gaps": "101101",
    "one_token_first": "100000",
    "one_token_last": "000001",
    "one_token_inside": "001000",
    "all_sides": "010110",
}
MASK = np.array([[column == "1" for column in row] for row in LAYOUTS.values()])
PROMPTS = np.random.default_rng(1).integers(V, size=MASK.shape).astype(np.int32)  # random tokens at padding too
EOS = (13, 57)  # greedily, one row ends at its first token, four later, three never
LENGTHS = [1, 6, N, N, 3, N, 5, 2]
# Sampling options that two tests share, so that they compile once. Both end never: no id, and an id that nothing has.
COLD = {"temperature": 0.7, "eos_ids": ()}
TRUNCATED = {"temperature": 0.7, "top_k": 2, "top_p": 0.9, "eos_ids": (V + 1000,)}

run = jax.jit(
    generate,
    static_argnames=("config", "samples_per_prompt", "max_new_tokens", "temperature", "top_k", "top_p", "eos_ids"),
)
score = jax.jit(token_logprobs, static_argnames=("config", "temperature", "chunk"))
forward = jax.jit(qwen3.forward, static_argnames="config")


@pytest.fixture(scope="module")
def greedy(tiny_config, tiny_params):
    """Greedy completions of `PROMPTS`."""
    return decode_greedily(tiny_params, tiny_config, PROMPTS, MASK)


@pytest.fixture(scope="module")
def sampled(tiny_config, tiny_params):
    """Four samples of each prompt."""
    return sample_groups(tiny_params, tiny_config)


def decode_greedily(params, config, prompts, mask):
    return run(params, config, prompts, mask, jax.random.key(0), max_new_tokens=N, temperature=0.0, eos_ids=EOS)


def sample_groups(params, config, prompts=PROMPTS, mask=MASK, key=0, group=4, **options):
    options = {"temperature": 1.0, "eos_ids": EOS} | options
    key = jax.random.key(key)
    return run(params, config, prompts, mask, key, samples_per_prompt=group, max_new_tokens=N, **options)


def completions(rollout):
    """Each row's sampled tokens, by the rollout's own mask."""
    return [tokens[mask].tolist() for tokens, mask in zip(np.asarray(rollout.tokens), rollout.mask, strict=True)]


def up_to_end(tokens):
    """A row cut behind its first end token."""
    ends = [i for i, token in enumerate(tokens) if token in EOS]
    return list(tokens)[: ends[0] + 1] if ends else list(tokens)


def test_greedy_equals_repeated_full_forwards_without_a_cache(tiny_config, tiny_params, greedy):
    tokens = np.zeros((len(PROMPTS), P + N), np.int32)
    tokens[:, :P] = PROMPTS
    segment_ids = np.zeros_like(tokens)
    segment_ids[:, :P] = MASK
    for column in range(P, P + N):
        logits = np.asarray(forward(tiny_params, tiny_config, tokens, segment_ids=segment_ids))
        last = np.array([np.flatnonzero(row)[-1] for row in segment_ids])
        tokens[:, column] = logits[np.arange(len(tokens)), last].argmax(axis=-1)
        segment_ids[:, column] = 1
    assert completions(greedy) == [up_to_end(row) for row in tokens[:, P:].tolist()]
    assert [len(row) for row in completions(greedy)] == LENGTHS  # so that the cases below are there


def test_greedy_equals_transformers_token_by_token(tmp_path, tiny_config, tiny_params, greedy):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    qwen3.save(tmp_path, tiny_config, tiny_params)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    prompts, attention = np.zeros_like(PROMPTS), np.zeros_like(PROMPTS)
    for row, (tokens, mask) in enumerate(zip(PROMPTS, MASK, strict=True)):
        prompts[row, P - mask.sum() :], attention[row, P - mask.sum() :] = tokens[mask], 1
    theirs = model.generate(
        input_ids=torch.tensor(prompts, dtype=torch.int64),
        attention_mask=torch.tensor(attention, dtype=torch.int64),
        do_sample=False,
        max_new_tokens=N,
        eos_token_id=list(EOS),
        pad_token_id=tiny_config.pad_id,
    ).numpy()[:, P:]
    assert completions(greedy) == [up_to_end(row) for row in theirs.tolist()]
    np.testing.assert_array_equal(np.asarray(greedy.tokens)[:, P:], theirs)  # and the same filler behind the end


@pytest.mark.parametrize("name", ["qwen2", "llama"])
def test_other_architectures_sample_greedily_as_transformers_does(tmp_path, tiny_models, name):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config, params = tiny_models[name]
    qwen3.save(tmp_path, config, params)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    rows = [row for row, mask in enumerate(MASK) if mask.all() or mask[-3:].all() and mask.sum() == 3]
    theirs = model.generate(
        input_ids=torch.tensor(PROMPTS[rows], dtype=torch.int64),
        attention_mask=torch.tensor(MASK[rows], dtype=torch.int64),
        do_sample=False,
        max_new_tokens=N,
        eos_token_id=list(EOS),
        pad_token_id=config.pad_id,
    ).numpy()[:, P:]
    found = completions(decode_greedily(params, config, PROMPTS, MASK))
    assert len(rows) == 2 and [found[row] for row in rows] == [up_to_end(row) for row in theirs.tolist()]


@pytest.mark.parametrize("name", ["qwen2", "llama"])
def test_cached_decoding_of_other_architectures_equals_the_whole_forward(tiny_models, name):
    config, params = tiny_models[name]
    rollout = sample_groups(params, config, group=1)
    scored = score(params, config, rollout.tokens, rollout.mask, segment_ids=rollout.segment_ids, chunk=5)
    assert rollout.mask.any(axis=1).all()
    np.testing.assert_allclose(rollout.logprobs, scored, rtol=0, atol=1e-5)


@pytest.mark.parametrize("options", [{}, COLD, TRUNCATED], ids=["plain", "cold", "truncated"])
def test_sampler_logprobs_equal_the_trainers_in_every_padding_layout(tiny_config, tiny_params, options):
    """Temperature counts on both sides, and truncation on neither: the trainer optimises the untruncated policy."""
    rollout = sample_groups(tiny_params, tiny_config, **options)
    temperature = options.get("temperature", 1.0)
    ids = rollout.segment_ids
    scored = score(
        tiny_params, tiny_config, rollout.tokens, rollout.mask, segment_ids=ids, temperature=temperature, chunk=5
    )
    assert rollout.mask.any(axis=1).all() and (rollout.logprobs[rollout.mask] < 0).all()
    np.testing.assert_allclose(rollout.logprobs, scored, rtol=0, atol=1e-5)  # 2e-6 was reached
    if "top_k" in options:
        logits = np.asarray(forward(tiny_params, tiny_config, rollout.tokens, segment_ids=ids))
        for row, column in np.argwhere(rollout.mask):
            before = np.flatnonzero(ids[row, :column])[-1]
            assert rollout.tokens[row, column] in np.argsort(logits[row, before])[-2:]


def test_padding_never_changes_a_completion(tiny_config, tiny_params):
    rng = np.random.default_rng(5)
    for prompt in ([9, 40, 2], [17]):
        mask = np.zeros((8, P), bool)
        tokens = rng.integers(V, size=(8, P)).astype(np.int32)
        places = list(itertools.combinations(range(P), len(prompt)))
        for row, columns in enumerate((places * 2)[:: len(places) // 6][:8]):
            mask[row, columns], tokens[row, columns] = True, prompt
        rollout = decode_greedily(tiny_params, tiny_config, tokens, mask)
        assert (rollout.tokens[:, P:] == rollout.tokens[:1, P:]).all()
        np.testing.assert_allclose(rollout.logprobs, np.tile(rollout.logprobs[:1], (8, 1)), rtol=0, atol=1e-5)


def test_a_prompt_of_one_token_is_continued_from_that_token(tiny_config, tiny_params, greedy):
    rows = [row for row, name in enumerate(LAYOUTS) if name.startswith("one_token")]
    logits = forward(tiny_params, tiny_config, PROMPTS[MASK & (MASK.sum(axis=1, keepdims=True) == 1)][:, None])
    assert [completions(greedy)[row][0] for row in rows] == logits[:, 0].argmax(axis=-1).tolist()


def test_the_smallest_nucleus_is_the_likeliest_token(tiny_config, tiny_params, greedy):
    rollout = sample_groups(tiny_params, tiny_config, group=1, top_p=1e-6)
    np.testing.assert_array_equal(rollout.tokens, greedy.tokens)


def test_the_cache_has_the_precision_of_the_activations(monkeypatch, tiny_config, tiny_params):
    """A wider one would take twice the memory, and sample from other logits than those that are trained."""
    module, caches = importlib.import_module("scope_jax.rollout.generate"), []
    forward = module.hidden_states

    def watched(*args, **options):
        caches.extend(args[6:7])
        return forward(*args, **options)

    monkeypatch.setattr(module, "hidden_states", watched)
    half = dataclasses.replace(tiny_config, dtype="bfloat16")
    sample = functools.partial(generate, samples_per_prompt=2, max_new_tokens=N, eos_ids=EOS)
    jax.eval_shape(lambda params: sample(params, half, PROMPTS, MASK, jax.random.key(0)), tiny_params)
    assert caches and all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(caches))


def test_a_row_may_end_at_its_first_token(greedy):
    """Ended at once and never ended must not look alike."""
    assert greedy.tokens[0, P] == EOS[0]
    assert greedy.mask[0].tolist() == [False] * P + [True] + [False] * (N - 1)
    assert greedy.logprobs[0, P] < 0


@pytest.mark.parametrize("options", [COLD, TRUNCATED], ids=["no_end_id", "an_end_id_that_cannot_occur"])
def test_a_row_that_never_ends_runs_to_the_limit(tiny_config, tiny_params, options):
    rollout = sample_groups(tiny_params, tiny_config, **options)
    assert rollout.mask[:, P:].all() and not rollout.mask[:, :P].any()
    assert (rollout.logprobs[:, P:] < 0).all()


def test_any_end_token_ends_a_row_and_belongs_to_it(greedy):
    ended = [row for row, length in zip(completions(greedy), LENGTHS, strict=True) if length < N]
    assert {row[-1] for row in ended} == set(EOS)
    assert not any(token in EOS for row in completions(greedy) for token in row[:-1])


def test_nothing_is_real_behind_the_end(tiny_config, sampled):
    mask = np.asarray(sampled.mask)
    after = ~mask[:, P:]
    assert after.any()
    np.testing.assert_array_equal(mask[:, P:], np.cumsum(after, axis=1) == 0)  # real columns come first
    assert (np.asarray(sampled.tokens)[:, P:][after] == tiny_config.pad_id).all()
    assert (np.asarray(sampled.logprobs)[~mask] == 0).all()
    np.testing.assert_array_equal(sampled.segment_ids[:, P:], mask[:, P:])


def test_a_pad_id_that_is_an_end_id_does_not_confuse_the_mask(tiny_config, tiny_params, greedy):
    """The mask is carried from the sampler; "not pad" would drop the end token, or keep all the filler."""
    rollout = decode_greedily(tiny_params, dataclasses.replace(tiny_config, pad_id=EOS[0]), PROMPTS, MASK)
    np.testing.assert_array_equal(rollout.mask, greedy.mask)
    assert completions(rollout) == completions(greedy)
    assert (np.asarray(rollout.tokens)[:, P:][~np.asarray(greedy.mask)[:, P:]] == EOS[0]).all()


def test_the_prompts_columns_are_kept_and_the_rows_of_a_group_are_consecutive(sampled):
    np.testing.assert_array_equal(sampled.tokens[:, :P], np.repeat(PROMPTS, 4, axis=0))
    np.testing.assert_array_equal(sampled.segment_ids[:, :P], np.repeat(MASK, 4, axis=0))
    assert not sampled.mask[:, :P].any() and not sampled.logprobs[:, :P].any()


def test_samples_of_a_prompt_differ_and_one_key_gives_one_rollout(tiny_config, tiny_params, sampled):
    groups = np.asarray(sampled.tokens)[:, P:].reshape(-1, 4, N)
    assert all(len({row.tobytes() for row in group}) > 1 for group in groups)
    for again, same in ((0, True), (1, False)):
        other = sample_groups(tiny_params, tiny_config, key=again)
        assert np.array_equal(other.tokens, sampled.tokens) == same


def test_columns_draw_independently(tiny_config, tiny_params):
    """Under a uniform policy a token says nothing about the next one."""
    uniform = tiny_params | {"lm_head": jnp.zeros_like(tiny_params["lm_head"])}
    rollout = sample_groups(uniform, tiny_config)
    tokens, pair = np.asarray(rollout.tokens), np.asarray(rollout.mask[:, :-1] & rollout.mask[:, 1:])
    repeats = (tokens[:, 1:] == tokens[:, :-1])[pair]
    assert len(repeats) > 100 and repeats.mean() < 0.1
    np.testing.assert_allclose(rollout.logprobs[rollout.mask], -np.log(V), rtol=1e-6)


def test_first_tokens_are_spread_as_the_softmax_of_the_forward_pass(tiny_config, tiny_params):
    samples = 4000
    key = jax.random.key(7)
    options = {"samples_per_prompt": samples, "max_new_tokens": 1, "temperature": 0.8, "eos_ids": EOS}
    rollout = run(tiny_params, tiny_config, PROMPTS[1:3], MASK[1:3], key, **options)
    logits = forward(tiny_params, tiny_config, PROMPTS[1:3], segment_ids=MASK[1:3].astype(np.int32))
    logits = np.stack([logits[0, 5], logits[1, 2]])  # the last real columns
    probabilities = np.asarray(jax.nn.softmax(logits / 0.8))
    for tokens, expected in zip(rollout.tokens[:, P].reshape(2, samples), probabilities, strict=True):
        share = np.bincount(tokens, minlength=V) / samples
        assert (np.abs(share - expected) < 4.5 * np.sqrt(expected / samples) + 1 / samples).all()


def test_a_shared_prefill_equals_repeated_prompts(tiny_config, tiny_params, sampled):
    repeated = np.repeat(PROMPTS, 4, axis=0), np.repeat(MASK, 4, axis=0)
    alone = sample_groups(tiny_params, tiny_config, *repeated, group=1)
    np.testing.assert_array_equal(alone.tokens, sampled.tokens)
    np.testing.assert_array_equal(alone.mask, sampled.mask)
    np.testing.assert_allclose(alone.logprobs, sampled.logprobs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("rows, eos_ids, steps", [(range(8), tuple(range(V)), 1), ((0, 1, 4, 7), EOS, 6)])
def test_decoding_stops_when_every_row_has_ended(monkeypatch, tiny_config, tiny_params, rows, eos_ids, steps):
    counted = []

    def sample_and_count(*args, **options):
        jax.debug.callback(lambda: counted.append(1))
        return sample_token(*args, **options)

    # The package's attribute of this name is the function.
    monkeypatch.setattr(importlib.import_module("scope_jax.rollout.generate"), "sample_token", sample_and_count)
    rows, options = list(rows), {"max_new_tokens": N, "temperature": 0.0, "eos_ids": eos_ids}
    generate(tiny_params, tiny_config, PROMPTS[rows], MASK[rows], jax.random.key(0), **options)
    jax.effects_barrier()
    assert len(counted) == steps


def test_a_sharded_batch_gives_the_same_rollout(tiny_config, tiny_params, sampled):
    mesh = make_mesh("data=8")
    prompts, mask = jax.device_put((PROMPTS, MASK), batch_sharding(mesh))
    rollout = sample_groups(tiny_params, tiny_config, prompts, mask)
    assert len(rollout.tokens.sharding.device_set) == 8 and not rollout.tokens.is_fully_replicated
    np.testing.assert_array_equal(rollout.tokens, sampled.tokens)
    np.testing.assert_array_equal(rollout.mask, sampled.mask)
    np.testing.assert_allclose(rollout.logprobs, sampled.logprobs, rtol=0, atol=1e-5)
