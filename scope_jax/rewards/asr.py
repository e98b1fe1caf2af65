"""Stage 1: the prefix-consistent reward of a scaffolded completion."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from scope_jax.rewards.outcome import require_bool


def asr_reward(
    sub_correct: Bool[Array, "B M"],
    sub_mask: Bool[Array, "B M"],
    main_correct: Bool[Array, "B"],
    *,
    beta: float = 0.5,
) -> Float[Array, "B"]:
    """Pays for the unbroken chain of right sub-answers, and for the main answer at the end of a whole one.

        Pi_i  = prod_{j<=i} 1[answer_j = a_j]
        R_ASR = beta * (1/m) * sum_{i=1..m} Pi_i + (1 - beta) * Pi_m * 1[main = a]

    m is the number of real sub-questions of the row. m = 0: R_ASR = 1[main = a] (our choice, not given by the paper).

    Args:
      sub_correct: which sub-answers are right, in the order of the scaffold. Padded slots may hold anything.
      sub_mask: True on the real sub-questions of the row.
      main_correct: whether the main answer is right.
      beta: share of the reward that the sub-answers carry, 0 to 1.

    Returns:
      Float32 in [0, 1].

    Raises:
      TypeError: an argument is not boolean.
      ValueError: `beta` is outside 0 to 1.

    Source: SCOPE-RL (arXiv 2607.11506), Stage 1, prefix-decomposed sub-question reward.
    """
    if not isinstance(beta, jax.Array) and not 0.0 <= beta <= 1.0:
        raise ValueError(f"beta is {beta}; it is a share and must lie between 0 and 1")
    sub_correct, sub_mask = require_bool("sub_correct", sub_correct), require_bool("sub_mask", sub_mask)
    main = require_bool("main_correct", main_correct).astype(jnp.float32)
    prefix = jnp.cumprod((sub_correct | ~sub_mask).astype(jnp.float32), axis=1)  # padding passes the product on
    m = jnp.sum(sub_mask, axis=1)
    partial = jnp.sum(jnp.where(sub_mask, prefix, 0.0), axis=1) / jnp.maximum(m, 1)
    whole = jnp.all(sub_correct | ~sub_mask, axis=1).astype(jnp.float32)
    return jnp.where(m > 0, beta * partial + (1.0 - beta) * whole * main, main)
