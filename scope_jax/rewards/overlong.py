"""The soft overlong penalty, the rival of the process-shape reward in the paper's ablation."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def overlong_penalty(lengths: Int[Array, "B"], *, max_length: int, cache: int) -> Float[Array, "B"]:
    """What to add to the outcome reward of a long response.

        0                                       |y| <= L_max - L_cache
        ((L_max - L_cache) - |y|) / L_cache     in between
        -1                                      |y| >= L_max

    Args:
      lengths: tokens of each completion.
      max_length: L_max, the hard limit of the rollout.
      cache: L_cache, width of the interval in which the penalty grows.

    Returns:
      Float32 in [-1, 0].

    Raises:
      ValueError: `cache` is not between 1 and `max_length`.

    Source: DAPO (arXiv 2503.14476), equation 13.
    """
    if not 1 <= cache <= max_length:
        raise ValueError(f"cache is {cache}; it must lie between 1 and max_length, {max_length}")
    return jnp.clip((max_length - cache - lengths.astype(jnp.float32)) / cache, -1.0, 0.0)
