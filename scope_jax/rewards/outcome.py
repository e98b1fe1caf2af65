"""The outcome reward and the routing of prompts by it."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def outcome_reward(main_correct: Bool[Array, "B"]) -> Float[Array, "B"]:
    """Pays for a right final answer and nothing else.

        r_out(y, a) = 1[answer(y) = a]

    Args:
      main_correct: True where the final answer is right. A verdict has a third value, undecided: compare it with RIGHT
        first, and keep undecided rows out of their group by the `valid` mask of `group_advantages` and `route`.

    Raises:
      TypeError: `main_correct` is not boolean.

    Source: SCOPE-RL (arXiv 2607.11506), outcome reward.
    """
    return require_bool("main_correct", main_correct).astype(jnp.float32)


def route(
    outcome: Float[Array, "P G"], *, tau: float = 0.5, valid: Bool[Array, "P G"] | None = None
) -> Bool[Array, "P"]:
    """Which prompts the policy solves too rarely to learn from, so that they get their scaffold.

        routed(q) = mean_g r_out(y_g, a) < tau

    Args:
      outcome: outcome rewards, one row a prompt.
      tau: prompts at or above it keep their original rollouts.
      valid: rollouts whose verdict is known; the mean is over these. A prompt without any is not routed: nothing is
        known against it. None: all are valid.

    Source: SCOPE-RL (arXiv 2607.11506), Stage 1, on-policy routing.
    """
    valid = jnp.ones(outcome.shape, bool) if valid is None else valid
    count = jnp.sum(valid, axis=1)
    mean = jnp.sum(jnp.where(valid, outcome.astype(jnp.float32), 0.0), axis=1) / jnp.maximum(count, 1)
    return (mean < tau) & (count > 0)


def require_bool(name: str, array: Array) -> Bool[Array, "..."]:
    """The array, refused unless it is boolean: a verdict of 2 (undecided) must never be paid as a number."""
    array = jnp.asarray(array)
    if array.dtype != jnp.bool_:
        raise TypeError(f"{name} has dtype {array.dtype}; pass booleans, e.g. verdict == RIGHT")
    return array
