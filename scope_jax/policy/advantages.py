"""Group-relative advantages and the share of groups that carry a signal."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

SCALES = ("std", "none")


def has_signal(rewards: Float[Array, "P G"], valid: Bool[Array, "P G"] | None = None) -> Bool[Array, "P"]:
    """Which groups have two different rewards among their valid rows.

    Compares the raw rewards. The standard deviation cannot serve: twelve rewards of 1.1 do not centre to 0 in float32.
    """
    rewards, valid = _prepare(rewards, valid)
    highest = jnp.max(jnp.where(valid, rewards, -jnp.inf), axis=1)
    lowest = jnp.min(jnp.where(valid, rewards, jnp.inf), axis=1)
    return jnp.any(valid, axis=1) & (highest != lowest)  # a NaN in a valid row counts as signal, so that it shows


def group_advantages(
    rewards: Float[Array, "P G"],
    *,
    scale: str = "std",
    eps: float = 1e-6,
    valid: Bool[Array, "P G"] | None = None,
) -> Float[Array, "P G"]:
    """Advantage of each rollout within the group of its prompt.

        A_g = (R_g - mean_j R_j) / (std_j R_j + eps)        (A = 0 where the group is constant)

    std is the population standard deviation (divisor G), as the formula reads. Some implementations use the sample
    standard deviation (divisor G - 1), which makes every advantage smaller by sqrt((G - 1) / G), 0.935 at G = 8.

    Args:
      rewards: one row a prompt, one column a rollout.
      scale: "std" divides by std + eps; "none" only centres, so that hard and easy prompts weigh alike (Dr. GRPO).
      eps: added to the standard deviation.
      valid: rows to use. The others enter neither mean nor std, whatever they hold, NaN included, and get advantage 0.
        None: all are valid.

    Returns:
      Float32 advantages, never differentiated. Exactly 0 in constant groups, in groups with fewer than two valid rows
      and in invalid rows. A NaN in a valid row makes its group NaN: it is a fault to be seen.

    Raises:
      ValueError: the group size is 1 (its advantage is not defined), or `scale` is unknown.

    Source: DeepSeekMath (arXiv 2402.03300), section 4.1.2; `scale="none"`: Dr. GRPO (arXiv 2503.20783), section 3.2.
    """
    if scale not in SCALES:
        raise ValueError(f"scale is {scale!r}; it must be one of {', '.join(SCALES)}")
    if rewards.shape[1] < 2:
        raise ValueError(
            f"rewards have shape {rewards.shape}: a group of one has no advantage; sample 2 or more a prompt"
        )
    rewards, valid = _prepare(rewards, valid)
    count = jnp.maximum(jnp.sum(valid, axis=1, keepdims=True), 1)
    centred = jnp.where(valid, rewards - jnp.sum(rewards, axis=1, keepdims=True) / count, 0.0)
    if scale == "std":
        std = jnp.sqrt(jnp.sum(centred**2, axis=1, keepdims=True) / count)
        centred = centred / (std + eps)
    return jnp.where(valid & has_signal(rewards, valid)[:, None], centred, 0.0)


def effective_gradient_ratio(rewards: Float[Array, "P G"], valid: Bool[Array, "P G"] | None = None) -> Float[Array, ""]:
    """Share of prompts whose group teaches, over all prompts of the batch.

        eta_R = P_q[ Var_g R(q, y_g) > 0 ]

    Args:
      rewards: one row a prompt.
      valid: rows to use; a group with fewer than two valid rows has no signal. None: all are valid.

    Source: SCOPE-RL (arXiv 2607.11506), effective gradient ratio.
    """
    return jnp.mean(has_signal(rewards, valid).astype(jnp.float32))


def _prepare(rewards, valid):
    """Float32 rewards that are 0 in invalid rows, and an explicit mask."""
    valid = jnp.ones(rewards.shape, bool) if valid is None else jnp.asarray(valid, bool)
    return jnp.where(valid, lax.stop_gradient(jnp.asarray(rewards, jnp.float32)), 0.0), valid
