"""Log-probs of given tokens, without ever holding logits of the whole batch."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from scope_jax.qwen3.config import Config
from scope_jax.qwen3.forward import causal_mask, hidden_states, segment_positions, unembed
from scope_jax.qwen3.params import Params
from scope_jax.rollout.sampling import policy_logprobs


def score_tokens(
    params: Params,
    config: Config,
    tokens: Int[Array, "B T"],
    mask: Bool[Array, "B T"],
    *,
    segment_ids: Int[Array, "B T"] | None = None,
    temperature: float = 1.0,
    start: int = 0,
    chunk: int = 128,
) -> tuple[Float[Array, "B T"], Float[Array, "B T"]]:
    """Log-prob of every masked token given those before it, and the entropy of the distribution it was drawn from.

    The head runs over `chunk` columns at a time, forwards and (recomputed) backwards, so that memory is
    [B chunk V], not [B T V].

    Args:
      params: the policy's parameters.
      config: its architecture.
      tokens: token ids.
      mask: True where a log-prob is wanted.
      segment_ids: 0 is padding, each other id a sequence; None means one segment. Padding may stand anywhere.
      temperature: the policy is softmax(logits / temperature); 0.0 scores as 1.0 does.
      start: columns before it are not scored, so their head is not computed (a prompt's width, say).
      chunk: columns of the head in memory at once.

    Returns:
      Log-probs and entropies, float32, 0 where `mask` is False, before `start`, and at a segment's first token, which
      nothing predicts. Entropies carry no gradient.

    Raises:
      ValueError: `start` is not a column of the row, or `chunk` is below 1.
    """
    if not 0 <= start < tokens.shape[1]:
        raise ValueError(f"start is {start}; it must be a column of a row of {tokens.shape[1]} tokens")
    if chunk < 1:
        raise ValueError(f"chunk is {chunk}; the head runs over 1 column at a time or more")
    segment_ids = jnp.ones_like(tokens) if segment_ids is None else segment_ids
    hidden, _ = hidden_states(params, config, tokens, segment_positions(segment_ids), causal_mask(segment_ids))
    before, has_before = _previous_column(segment_ids)
    scored = (mask & has_before)[:, start:]
    hidden = jnp.take_along_axis(hidden, before[:, start:, None], axis=1)

    batch, width = scored.shape
    chunk = min(chunk, width)
    padding = -width % chunk
    hidden = jnp.pad(hidden, ((0, 0), (0, padding), (0, 0))).reshape(batch, -1, chunk, hidden.shape[-1])
    targets = jnp.pad(tokens[:, start:], ((0, 0), (0, padding))).reshape(batch, -1, chunk)

    @jax.checkpoint
    def head(params, h, target):
        logprobs = policy_logprobs(unembed(params, config, h), temperature)
        entropy = -jnp.sum(jnp.exp(logprobs) * logprobs, axis=-1)
        return jnp.take_along_axis(logprobs, target[..., None], axis=-1)[..., 0], lax.stop_gradient(entropy)

    _, parts = lax.scan(
        lambda _, xs: (None, head(params, *xs)), None, (hidden.swapaxes(0, 1), targets.swapaxes(0, 1))
    )

    def lay_out(part):
        row = part.swapaxes(0, 1).reshape(batch, -1)[:, :width]
        return jnp.pad(jnp.where(scored, row, 0.0), ((0, 0), (start, 0)))

    return lay_out(parts[0]), lay_out(parts[1])


def token_logprobs(
    params: Params, config: Config, tokens: Int[Array, "B T"], mask: Bool[Array, "B T"], **options
) -> Float[Array, "B T"]:
    """Log-prob at column t of token t, float32, 0 where `mask` is False. Options and memory: see `score_tokens`."""
    return score_tokens(params, config, tokens, mask, **options)[0]


def _previous_column(segment_ids: Int[Array, "B T"]) -> tuple[Int[Array, "B T"], Bool[Array, "B T"]]:
    """The column that predicts each column: the last real one before it, and whether it is of the same segment."""
    columns = jnp.arange(segment_ids.shape[1])
    latest = lax.cummax(jnp.where(segment_ids > 0, columns, -1), axis=1)
    before = jnp.pad(latest, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
    index = jnp.maximum(before, 0)
    same = jnp.take_along_axis(segment_ids, index, axis=1) == segment_ids
    return index, (before >= 0) & same & (segment_ids > 0)
