"""The Qwen3 forward pass: one function for prefill, decode and training, so that their log-probs agree."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from scope_jax.qwen3.config import Config
from scope_jax.qwen3.params import Params

MASKED = -1e30  # finite: a row with no visible key gives an even softmax, not NaN


class KVBlock(NamedTuple):
    """Keys and values that queries may attend to besides their own, one entry a layer.

    A block's batch b may divide the queries' batch B: rows of one group then share it, as G samples share their prompt.
    """

    k: Float[Array, "L b S K H"]
    v: Float[Array, "L b S K H"]
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


def apply_rotary(x: Float[Array, "B T N H"], cos: Float[Array, "B T H2"], sin: Float[Array, "B T H2"]):
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = cos[:, :, None, :], sin[:, :, None, :]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def attention(q: Float[Array, "B T N H"], blocks: list[tuple[Array, Array, Array]]) -> Float[Array, "B T N H"]:
    """Softmax attention over several key/value blocks at once.

    Args:
      q: queries.
      blocks: (k [b S K H], v [b S K H], mask [B T S]) triples; b divides B, consecutive rows share a block's row.
    """
    batch, length, heads, head_dim = q.shape
    scores = []
    for k, _, mask in blocks:
        groups, kv_heads = k.shape[0], k.shape[2]
        grouped = q.reshape(groups, batch // groups, length, kv_heads, heads // kv_heads, head_dim)
        s = jnp.einsum("bgtkrh,bskh->bgkrts", grouped, k, preferred_element_type=jnp.float32)
        s = s.reshape(batch, kv_heads, heads // kv_heads, length, -1) * head_dim**-0.5
        scores.append(jnp.where(mask[:, None, None], s, MASKED))
    weights = jax.nn.softmax(jnp.concatenate(scores, axis=-1), axis=-1)
    out, start = 0.0, 0
    for k, v, _ in blocks:
        groups, size, kv_heads = k.shape[:3]
        w = weights[..., start : start + size].astype(v.dtype)
        w = w.reshape(groups, batch // groups, kv_heads, heads // kv_heads, length, size)
        part = jnp.einsum("bgkrts,bskh->bgtkrh", w, v, preferred_element_type=jnp.float32)
        out, start = out + part.reshape(batch, length, heads, head_dim), start + size
    return out.astype(q.dtype)


def layer_step(x, layer, config: Config, cos, sin, mask, context):
    """One decoder layer.

    Args:
      x: [B T D] residual stream.
      layer: this layer's parameters.
      mask: [B T T] which of the row's own columns each query sees.
      context: list of (k, v, mask) blocks seen besides them.

    Returns:
      The new residual stream, and this layer's own keys and values [B T K H].
    """
    dtype, eps = config.compute_dtype, config.rms_norm_eps
    w = jax.tree.map(lambda p: p.astype(dtype), layer)
    with jax.named_scope("attention"):
        h = rms_norm(x, w["attn_norm"], eps)
        q = rms_norm(jnp.einsum("btd,dnh->btnh", h, w["q"]), w["q_norm"], eps)
        k = rms_norm(jnp.einsum("btd,dkh->btkh", h, w["k"]), w["k_norm"], eps)
        v = jnp.einsum("btd,dkh->btkh", h, w["v"])
        q, k = apply_rotary(q, cos, sin), apply_rotary(k, cos, sin)
        attended = attention(q, [*context, (k, v, mask)])
        x = x + jnp.einsum("btnh,nhd->btd", attended, w["o"])
    with jax.named_scope("mlp"):
        h = rms_norm(x, w["mlp_norm"], eps)
        gated = jax.nn.silu(jnp.einsum("btd,df->btf", h, w["gate"])) * jnp.einsum("btd,df->btf", h, w["up"])
        x = x + jnp.einsum("btf,fd->btd", gated, w["down"])
    return x, (k, v)


def hidden_states(
    params: Params,
    config: Config,
    tokens: Int[Array, "B T"],
    positions: Int[Array, "B T"],
    mask: Bool[Array, "B T T"],
    context: tuple[KVBlock, ...] = (),
) -> tuple[Float[Array, "B T D"], tuple[Float[Array, "L B T K H"], Float[Array, "L B T K H"]]]:
    """Final-norm hidden states, and every layer's keys and values of these tokens.

    Args:
      params: the model's parameters.
      config: its architecture.
      tokens: token ids; ids at padding are read but seen by no real query.
      positions: rotary position of each token.
      mask: which own columns each query sees.
      context: key/value blocks computed before, such as a prompt's.
    """
    cos, sin = rotary(positions, config.head_dim, config.rope_theta)
    x = params["embed"][tokens].astype(config.compute_dtype)  # cast last: a token's gradients add up in full precision
    step = functools.partial(layer_step, config=config, cos=cos, sin=sin, mask=mask)
    if config.remat:
        step = jax.checkpoint(step)

    def body(x, xs):
        layer, cached = xs
        blocks = [(k, v, block.mask) for (k, v), block in zip(cached, context, strict=True)]
        return step(x, layer, context=blocks)

    x, (k, v) = lax.scan(body, x, (params["layers"], [(block.k, block.v) for block in context]))
    return rms_norm(x, params["final_norm"].astype(x.dtype), config.rms_norm_eps), (k, v)


def unembed(params: Params, config: Config, hidden: Float[Array, "... D"]) -> Float[Array, "... V"]:
    """Logits in float32 from final-norm hidden states."""
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
