"""Stage 2: the correctness-gated process-shape reward, and the one-score reward of its ablation."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from scope_jax.rewards.outcome import require_bool

STEP_LABELS = ("useful", "mechanical", "redundant", "reversion", "error")  # label ids 0..4
PENALTIES = (0.3, 0.5, 0.5, 0.8)  # lambda of mechanical, redundant, reversion, error; our choice
ALPHA = 0.1  # strength of the length factor; our choice


def process_quality(
    step_labels: Int[Array, "B N"],
    step_mask: Bool[Array, "B N"],
    *,
    penalties: Float[Array, "4"] | Sequence[float] = PENALTIES,
    alpha: float = ALPHA,
    positive: bool = True,
    penalise: bool = True,
    length: bool = True,
) -> Float[Array, "B"]:
    """Quality of the shape of a response, whatever its answer.

        S_u       = (1/N) * #useful
        r_k       = (1/N) * #k             for k in {mechanical, redundant, reversion, error}
        Phi       = prod_k (1 - lambda_k * r_k)
        kappa     = 1 / (1 + alpha * ln(N + 1))
        Q_process = S_u * Phi * kappa

    N is the number of real steps of the row. N = 0: Q_process = 0 (our choice; the paper has no such row).

    Args:
      step_labels: indices into `STEP_LABELS`. Padded steps may hold any number. A real step with a label outside 0 to 4
        counts in N and is of no kind.
      step_mask: True on real steps.
      penalties: lambda_k in the order above, each at least 0 and below 1.
      alpha: strength of the length factor, at least 0.
      positive, penalise, length: False drops S_u, Phi or kappa from the product (the paper's ablations).

    Returns:
      Float32 in [0, 1].

    Raises:
      ValueError: a penalty or `alpha` out of range.

    Source: SCOPE-RL (arXiv 2607.11506), Stage 2.
    """
    _check(penalties, alpha)
    step_mask = require_bool("step_mask", step_mask)
    count = jnp.sum(step_mask, axis=1).astype(jnp.float32)
    shares = _counts(step_labels, step_mask) / jnp.maximum(count, 1.0)[:, None]
    s_u = shares[:, 0]
    phi = jnp.prod(1.0 - jnp.asarray(penalties, jnp.float32) * shares[:, 1:], axis=1)
    kappa = 1.0 / (1.0 + alpha * jnp.log(count + 1.0))
    quality = jnp.where(positive, s_u, 1.0) * jnp.where(penalise, phi, 1.0) * jnp.where(length, kappa, 1.0)
    return jnp.where(count > 0, quality, 0.0)


def qpr_reward(
    step_labels: Int[Array, "B N"],
    step_mask: Bool[Array, "B N"],
    main_correct: Bool[Array, "B"],
    *,
    penalties: Float[Array, "4"] | Sequence[float] = PENALTIES,
    alpha: float = ALPHA,
    positive: bool = True,
    penalise: bool = True,
    length: bool = True,
) -> Float[Array, "B"]:
    """Pays a right response by its shape, and a wrong one nothing: style never buys back correctness.

        R_QPR(y, a) = 0 if answer(y) != a, else Q_process(y)

    Args:
      main_correct: whether the final answer is right. For the rest see `process_quality`.

    Source: SCOPE-RL (arXiv 2607.11506), Stage 2, correctness gate.
    """
    quality = process_quality(
        step_labels, step_mask, penalties=penalties, alpha=alpha, positive=positive, penalise=penalise, length=length
    )
    return jnp.where(require_bool("main_correct", main_correct), quality, 0.0)


def holistic_quality(step_labels: Int[Array, "B N"], step_mask: Bool[Array, "B N"]) -> Float[Array, "B"]:
    """One score for a whole response, on a scale of five: the stand-in of a judge that does not look at steps.

        Q_holistic = (4 - number of kinds k in {mechanical, redundant, reversion, error} that occur at all) / 4

    A clean response scores 1, one with every kind of flaw 0. How often a flaw occurs and how long the response is do
    not matter: that is what the holistic ablation lacks. No real step: 0. The rule is ours, the paper asks a model.

    Args: see `process_quality`.
    """
    step_mask = require_bool("step_mask", step_mask)
    kinds = jnp.sum(_counts(step_labels, step_mask)[:, 1:] > 0, axis=1)
    return jnp.where(jnp.any(step_mask, axis=1), (4.0 - kinds) / 4.0, 0.0).astype(jnp.float32)


def holistic_reward(
    step_labels: Int[Array, "B N"], step_mask: Bool[Array, "B N"], main_correct: Bool[Array, "B"]
) -> Float[Array, "B"]:
    """`holistic_quality` behind the correctness gate of `qpr_reward`."""
    return jnp.where(require_bool("main_correct", main_correct), holistic_quality(step_labels, step_mask), 0.0)


def _counts(step_labels, step_mask) -> Float[Array, "B 5"]:
    """How many real steps carry each label."""
    is_label = step_labels[..., None] == jnp.arange(len(STEP_LABELS))
    return jnp.sum(is_label & step_mask[..., None], axis=1).astype(jnp.float32)


def _check(penalties, alpha):
    """Refuse coefficients under which the reward could be negative or grow with flaws; traced ones are trusted."""
    if jnp.shape(jnp.asarray(penalties)) != (4,):
        raise ValueError(f"penalties are {penalties}; give four: {', '.join(STEP_LABELS[1:])}")
    for label, penalty in zip(STEP_LABELS[1:], penalties, strict=True):
        if not isinstance(penalty, jax.Array) and not 0.0 <= penalty < 1.0:
            raise ValueError(f"the penalty of {label} is {penalty}; it must be at least 0 and below 1")
    if not isinstance(alpha, jax.Array) and alpha < 0.0:
        raise ValueError(f"alpha is {alpha}; a negative length factor would pay for length")
