"""The forward pass: one function for prefill, decode and training, so that their log-probs agree."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from scope_jax.qwen3.config import Config
from scope_jax.qwen3.params import Params

MASKED = -1e30  # finite: a row with no visible key gives an even softmax, not NaN


class KV(NamedTuple):
    """Keys and values of S columns, every layer's stacked, laid out as attention multiplies them: no copy on reading."""

    k: Float[Array, "L B K H S"]
    v: Float[Array, "L B K S H"]


class KVBlock(NamedTuple):
    """Keys and values that queries may attend to besides their own, one entry a layer.

    A block's batch b may divide the queries' batch B: rows of one group then share it, as G samples share their prompt.
    """

    k: Float[Array, "L b K H S"]
    v: Float[Array, "L b K S H"]
    mask: Bool[Array, "B T S"]  # True where query t of row B may see key s


def rms_norm(x: Float[Array, "... D"], weight: Float[Array, "D"], eps: float) -> Float[Array, "... D"]:
    """Root-mean-square norm in float32, as the reference implementation does."""
    x32 = x.astype(jnp.float32)
    x32 = x32 * lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + eps)
    return weight * x32.astype(x.dtype)


def rotary(positions: Int[Array, "B T"], head_dim: int, theta: float) -> tuple[Float[Array, "B T H2"], ...]:
    """Cosine and sine of the rotary angles, for the halves-rotated layout of Hugging Face checkpoints."""
    frequencies = theta ** (-jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)
    angles = positions.astype(jnp.float32)[..., None] * frequencies
    return jnp.cos(angles), jnp.sin(angles)


def apply_rotary(x: Float[Array, "B N T H"], cos: Float[Array, "B T H2"], sin: Float[Array, "B T H2"]):
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def attention(q: Float[Array, "B N T H"], blocks: list[tuple[Array, Array, Array]]) -> Float[Array, "B N T H"]:
    """Softmax attention over several key/value blocks at once.

    Args:
      q: queries.
      blocks: (k [b K H S], v [b K S H], mask [B T S]) triples; b divides B, consecutive rows share a block's row.
    """
    scores = [jnp.where(mask[:, None, None], _score(q, k), MASKED) for k, _, mask in blocks]
    weights = jax.nn.softmax(jnp.concatenate(scores, axis=-1), axis=-1)
    out, start = 0.0, 0
    for _, v, _ in blocks:
        out, start = out + _mix(weights[..., start : start + v.shape[2]], v), start + v.shape[2]
    return out.reshape(q.shape).astype(q.dtype)


def _score(q: Float[Array, "B N T H"], k: Float[Array, "b K H S"]) -> Float[Array, "B K R T S"]:
    """Scaled products of queries and keys. Rows that share a row of keys are one longer query to it."""
    (batch, heads, length, head_dim), (groups, kv_heads) = q.shape, k.shape[:2]
    q = q.reshape(groups, batch // groups, kv_heads, heads // kv_heads, length, head_dim)
    q = q.swapaxes(1, 2).reshape(groups, kv_heads, -1, head_dim)
    s = jnp.einsum("bkqh,bkhs->bkqs", q, k, preferred_element_type=jnp.float32) * head_dim**-0.5
    s = s.reshape(groups, kv_heads, batch // groups, heads // kv_heads, length, -1)
    return s.swapaxes(1, 2).reshape(batch, kv_heads, heads // kv_heads, length, -1)


def _mix(weights: Float[Array, "B K R T S"], v: Float[Array, "b K S H"]) -> Float[Array, "B K R T H"]:
    """Values mixed by attention weights, in float32."""
    (batch, kv_heads, repeats, length, size), groups = weights.shape, v.shape[0]
    w = weights.astype(v.dtype).reshape(groups, batch // groups, kv_heads, repeats, length, size)
    w = w.swapaxes(1, 2).reshape(groups, kv_heads, -1, size)
    out = jnp.einsum("bkqs,bksh->bkqh", w, v, preferred_element_type=jnp.float32)
    out = out.reshape(groups, kv_heads, batch // groups, repeats, length, -1)
    return out.swapaxes(1, 2).reshape(batch, kv_heads, repeats, length, -1)


def _project(h: Float[Array, "B T D"], w: Params, name: str, config: Config) -> Float[Array, "B N T H"]:
    """One layer's queries ("q"), keys ("k") or values ("v"), before their rotation."""
    x = jnp.einsum("btd,dnh->bnth", h, w[name])
    if config.qkv_bias:
        x = x + w[f"{name}_bias"][:, None]
    if config.qk_norm and name != "v":
        x = rms_norm(x, w[f"{name}_norm"], config.rms_norm_eps)
    return x


def layer_step(x, layer, context, cache, index, *, config: Config, cos, sin, mask, column):
    """One decoder layer.

    Args:
      x: [B T D] residual stream.
      layer: this layer's parameters.
      context: list of (k, v, mask) blocks seen besides the row's own columns.
      cache: every layer's `KV`, or None.
      index: which layer this is, of the cache.
      mask: which columns each query sees: of the cache [B T S], or of x itself [B T T].
      column: where the cache takes the keys and values of x.

    Returns:
      The new residual stream, this layer's `KV` of x, and the cache with them written.
    """
    dtype, eps = config.compute_dtype, config.rms_norm_eps
    w = jax.tree.map(lambda p: p.astype(dtype), layer)
    with jax.named_scope("attention"):
        h = rms_norm(x, w["attn_norm"], eps)
        q, k, v = (_project(h, w, name, config) for name in "qkv")
        q, k = apply_rotary(q, cos, sin), apply_rotary(k, cos, sin)
        seen = own = KV(k.swapaxes(2, 3), v)
        if cache is not None:
            # Written before it is read, so that the loop around updates the cache in place and never copies it.
            cache = KV(
                lax.dynamic_update_slice(cache.k, own.k[None].astype(cache.k.dtype), (index, 0, 0, 0, column)),
                lax.dynamic_update_slice(cache.v, own.v[None].astype(cache.v.dtype), (index, 0, 0, column, 0)),
            )
            seen = jax.tree.map(lambda c: lax.dynamic_index_in_dim(c, index, keepdims=False), cache)
        attended = attention(q, [*context, (*seen, mask)])
        x = x + jnp.einsum("bnth,nhd->btd", attended, w["o"])
    with jax.named_scope("mlp"):
        h = rms_norm(x, w["mlp_norm"], eps)
        gated = jax.nn.silu(jnp.einsum("btd,df->btf", h, w["gate"])) * jnp.einsum("btd,df->btf", h, w["up"])
        x = x + jnp.einsum("btf,fd->btd", gated, w["down"])
    return x, own, cache


def hidden_states(
    params: Params,
    config: Config,
    tokens: Int[Array, "B T"],
    positions: Int[Array, "B T"],
    mask: Bool[Array, "B T S"],
    context: tuple[KVBlock, ...] = (),
    cache: KV | None = None,
    column: Int[Array, ""] | int = 0,
) -> tuple[Float[Array, "B T D"], KV]:
    """Final-norm hidden states, and every layer's keys and values.

    Args:
      params: the model's parameters.
      config: its architecture.
      tokens: token ids; ids at padding are read but seen by no real query.
      positions: rotary position of each token.
      mask: which columns each query sees: its own row's T tokens, or the cache's S columns.
      context: key/value blocks computed before and shared by rows, such as a prompt's.
      cache: each row's keys and values so far; those of `tokens` are written to it from `column` on, then seen.
      column: see `cache`.

    Returns:
      Hidden states, and the keys and values of `tokens`; with a cache, all of it instead.
    """
    cos, sin = rotary(positions, config.head_dim, config.rope_theta)
    x = params["embed"][tokens].astype(config.compute_dtype)  # cast last: a token's gradients add up in full precision
    step = functools.partial(layer_step, config=config, cos=cos, sin=sin, mask=mask, column=column)
    if config.remat:
        step = jax.checkpoint(step)

    def body(carry, xs):
        x, cache = carry
        layer, cached, index = xs
        blocks = [(*kv, block.mask) for kv, block in zip(cached, context, strict=True)]
        x, own, cache = step(x, layer, blocks, cache, index)
        return (x, cache), own if cache is None else None

    layers = (params["layers"], [(block.k, block.v) for block in context], jnp.arange(config.num_layers))
    (x, cache), own = lax.scan(body, (x, cache), layers)
    return rms_norm(x, params["final_norm"].astype(x.dtype), config.rms_norm_eps), own if cache is None else cache


def unembed(params: Params, config: Config, hidden: Float[Array, "... D"]) -> Float[Array, "... V"]:
    """Logits in float32 from final-norm hidden states.

    Raises:
      ValueError: the model is a reward model, which has no output head.
    """
    if config.reward_classes:
        raise ValueError("this is a process reward model, which predicts no tokens; give a language model's folder")
    if config.tie_embeddings:
        weight = params["embed"].astype(hidden.dtype)
        return jnp.einsum("...d,vd->...v", hidden, weight, preferred_element_type=jnp.float32)
    weight = params["lm_head"].astype(hidden.dtype)
    return jnp.einsum("...d,dv->...v", hidden, weight, preferred_element_type=jnp.float32)


def segment_positions(segment_ids: Int[Array, "B T"]) -> Int[Array, "B T"]:
    """Position of each real token inside its segment, whatever the padding; 0 at padding.

    Segment ids rise along a row; padding (0) may stand anywhere, inside a segment too.
    """
    real = segment_ids > 0
    seen = jnp.cumsum(real, axis=1)
    highest = lax.cummax(segment_ids, axis=1)
    starts = real & (segment_ids != jnp.pad(highest, ((0, 0), (1, 0)))[:, :-1])
    offset = lax.cummax(jnp.where(starts, seen - 1, 0), axis=1)
    return jnp.where(real, seen - 1 - offset, 0).astype(jnp.int32)


def causal_mask(segment_ids: Int[Array, "B T"]) -> Bool[Array, "B T T"]:
    """Query t sees key s iff s <= t and both are real tokens of one segment (segment 0 is padding)."""
    length = segment_ids.shape[1]
    same = (segment_ids[:, :, None] == segment_ids[:, None, :]) & (segment_ids[:, None, :] > 0)
    return same & jnp.tril(jnp.ones((length, length), bool))


def forward(
    params: Params,
    config: Config,
    tokens: Int[Array, "B T"],
    positions: Int[Array, "B T"] | None = None,
    segment_ids: Int[Array, "B T"] | None = None,
) -> Float[Array, "B T V"]:
    """Logits of every column, in float32. For log-probs use `policy.token_logprobs`, which never holds [B T V].

    Args:
      params: the model's parameters.
      config: its architecture.
      tokens: token ids.
      positions: rotary positions; counted inside each segment when None.
      segment_ids: 0 is padding, each other id a sequence of its own; None means one segment.
    """
    segment_ids = jnp.ones_like(tokens) if segment_ids is None else segment_ids
    positions = segment_positions(segment_ids) if positions is None else positions
    hidden, _ = hidden_states(params, config, tokens, positions, causal_mask(segment_ids))
    return unembed(params, config, hidden)
