"""Rollouts: prefill each prompt once, decode its samples together in one device loop."""

from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from scope_jax.qwen3.config import Config
from scope_jax.qwen3.forward import KV, KVBlock, causal_mask, hidden_states, segment_positions, unembed
from scope_jax.qwen3.params import Params
from scope_jax.rollout.sampling import sample_token


@flax.struct.dataclass
class Rollout:
    """Sampled completions behind their prompts; the completion's columns come last."""

    tokens: Int[Array, "B T"]
    mask: Bool[Array, "B T"]  # True on sampled completion tokens, the end token included
    logprobs: Float[Array, "B T"]  # of the token in the same column; 0 where mask is False
    segment_ids: Int[Array, "B T"]  # 1 on real tokens of prompt and completion, 0 on padding


class _Decoding(NamedTuple):
    """What the decode loop carries; R rows, N completion columns."""

    step: Int[Array, ""]
    logits: Float[Array, "R V"]  # of the column about to be sampled
    done: Bool[Array, "R"]
    tokens: Int[Array, "R N"]
    mask: Bool[Array, "R N"]
    logprobs: Float[Array, "R N"]
    cache: KV  # of the completion's N columns


def generate(
    params: Params,
    config: Config,
    prompts: Int[Array, "B P"],
    prompt_mask: Bool[Array, "B P"],
    key: PRNGKeyArray,
    *,
    samples_per_prompt: int = 1,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    eos_ids: tuple[int, ...],
) -> Rollout:
    """Samples completions; call it under `jit` with everything but arrays static.

    A prompt is prefilled once and its keys and values are shared, not copied, by its samples. The loop stops when every
    row has ended. Each row of B needs at least one real prompt token; where the padding stands does not matter.

    Args:
      params: the policy's parameters.
      config: its architecture.
      prompts: prompt token ids.
      prompt_mask: True on real prompt tokens.
      key: PRNG key.
      samples_per_prompt: G completions of each prompt, in consecutive rows of the result.
      max_new_tokens: N; a row that has not ended by then stays without an end token.
      temperature, top_k, top_p: see `sample_token`.
      eos_ids: tokens that end a completion; with none, every row runs to the limit.

    Returns:
      A rollout of B * G rows and P + N columns.
    """
    eos = jnp.asarray(eos_ids, jnp.int32)
    prompt, last_hidden = _prefill(params, config, prompts, prompt_mask)
    rows = prompts.shape[0] * samples_per_prompt
    seen = jnp.repeat(prompt_mask, samples_per_prompt, axis=0)
    prompt_block = KVBlock(*prompt, seen[:, None, :])
    prompt_length = jnp.sum(seen, axis=1)

    def unfinished(state: _Decoding):
        return (state.step < max_new_tokens) & ~jnp.all(state.done)

    def decode(state: _Decoding):
        t = state.step
        sampled, logprob = sample_token(
            state.logits, jax.random.fold_in(key, t), temperature=temperature, top_k=top_k, top_p=top_p
        )
        live = ~state.done
        token = jnp.where(live, sampled, config.pad_id)
        mask = lax.dynamic_update_index_in_dim(state.mask, live, t, axis=1)
        hidden, cache = hidden_states(
            params,
            config,
            token[:, None],
            (prompt_length + t)[:, None],
            mask[:, None, :],
            (prompt_block,),
            state.cache,
            column=t,
        )
        return _Decoding(
            step=t + 1,
            logits=unembed(params, config, hidden[:, 0]),
            done=state.done | jnp.isin(sampled, eos),
            tokens=lax.dynamic_update_index_in_dim(state.tokens, token, t, axis=1),
            mask=mask,
            logprobs=lax.dynamic_update_index_in_dim(state.logprobs, jnp.where(live, logprob, 0.0), t, axis=1),
            cache=cache,
        )

    start = _Decoding(
        step=jnp.int32(0),
        logits=jnp.repeat(unembed(params, config, last_hidden), samples_per_prompt, axis=0),
        done=jnp.zeros(rows, bool),
        tokens=jnp.full((rows, max_new_tokens), config.pad_id, jnp.int32),
        mask=jnp.zeros((rows, max_new_tokens), bool),
        logprobs=jnp.zeros((rows, max_new_tokens), jnp.float32),
        cache=_empty_cache(config, rows, max_new_tokens, prompt.k.dtype),
    )
    end = lax.while_loop(unfinished, decode, start)
    prompt_columns = jnp.repeat(prompts, samples_per_prompt, axis=0)
    none = jnp.zeros_like(seen)
    return Rollout(
        tokens=jnp.concatenate([prompt_columns, end.tokens], axis=1),
        mask=jnp.concatenate([none, end.mask], axis=1),
        logprobs=jnp.concatenate([none.astype(jnp.float32), end.logprobs], axis=1),
        segment_ids=jnp.concatenate([seen, end.mask], axis=1).astype(jnp.int32),
    )


def _empty_cache(config: Config, rows: int, columns: int, dtype) -> KV:
    shape = (config.num_layers, rows, config.num_kv_heads, columns, config.head_dim)
    return KV(jnp.zeros((*shape[:3], config.head_dim, columns), dtype), jnp.zeros(shape, dtype))


def _prefill(params, config, prompts, prompt_mask):
    """Every prompt's keys and values, and the hidden state of its last real token."""
    segment_ids = prompt_mask.astype(jnp.int32)
    hidden, kv = hidden_states(params, config, prompts, segment_positions(segment_ids), causal_mask(segment_ids))
    columns = jnp.arange(prompts.shape[1])
    last = jnp.max(jnp.where(prompt_mask, columns, 0), axis=1)
    return kv, jnp.take_along_axis(hidden, last[:, None, None], axis=1)[:, 0]
