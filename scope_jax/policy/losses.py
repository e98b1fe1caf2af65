"""Policy losses as numerators and denominators, so that micro-batches and devices add up to the full batch.

A loss is put together from one importance ratio, one surrogate and one aggregation; each is a function of its own.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

MAX_LOG_RATIO = 20.0  # exp(20) is about 5e8: beyond it a ratio only overflows

# Importance ratio of each algorithm, and the aggregation of its paper.
ALGORITHMS = {
    "grpo": ("token", "token-mean"),
    "gspo": ("sequence", "seq-mean-token-mean"),
}
AGGREGATIONS = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "constant")
KL_ESTIMATORS = ("k2", "k3")

Pair = tuple[Float[Array, ""], Float[Array, ""]]


def policy_loss(
    logprobs: Float[Array, "B T"],
    old_logprobs: Float[Array, "B T"] | None,
    advantages: Float[Array, "B"],
    mask: Bool[Array, "B T"],
    *,
    algorithm: str = "grpo",
    aggregation: str | None = None,
    ref_logprobs: Float[Array, "B T"] | None = None,
    kl_coef: float = 0.0,
    kl_estimator: str = "k3",
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    constant_length: int | None = None,
    dual_clip: float | None = None,
) -> tuple[Float[Array, ""], Float[Array, ""], dict[str, Pair]]:
    """Clipped policy-gradient loss of a batch or micro-batch: loss = numerator / max(denominator, 1).

    Add numerators and denominators over micro-batches and devices, then divide once. Differentiate the numerator only.

    Args:
      logprobs: log-probs of the sampled tokens under the policy that is trained. Masked entries may hold anything.
      old_logprobs: under the policy that sampled; None: on-policy, the ratio is 1 and only its gradient counts.
      advantages: one a row. Rows of advantage 0 (groups without signal) stay in the denominator: the step then shrinks
        with the share of groups that teach. Take them out of `mask` where that is not wanted. With `kl_coef` above 0
        such rows still feel the pull to the reference.
      mask: True on sampled tokens, the end token included. A row without any is not there: it counts nowhere.
      algorithm: "grpo", one ratio a token; "gspo", one a sequence, the geometric mean of its token ratios.
      aggregation: see `aggregate`; None: "token-mean" for grpo, "seq-mean-token-mean" for gspo. With one ratio a
        sequence every other choice weights a row by its length.
      ref_logprobs: under the reference policy, for the KL term; with `kl_coef` 0 it is only measured.
      kl_coef: weight of the KL term.
      kl_estimator: see `kl_penalty`.
      clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high]. GSPO's paper uses 3e-4 and 4e-4.
      constant_length: divisor of a row under the aggregation "constant", usually the most tokens a row may have.
      dual_clip: see `clipped_surrogate`; None: off.

    Returns:
      (numerator, denominator, metrics): metrics map a name to a (numerator, denominator) pair that adds up likewise.
      clip_low, clip_high: share of ratios whose gradient the bound stopped; ratio: mean; kl_old_k1, kl_old_k3: KL of
      the sampling policy from the trained one, a token; kl_ref: the KL term, a token. A maximum does not add up, so
      none is here.

    Raises:
      ValueError: an unknown name, k1 as the KL estimator, or a missing `ref_logprobs` or `constant_length`.

    Source: GRPO, arXiv 2402.03300, equation 3; GSPO, arXiv 2507.18071, equations 5 to 7.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm is {algorithm!r}; it must be one of {', '.join(ALGORITHMS)}")
    if ref_logprobs is None and kl_coef != 0.0:
        raise ValueError(f"kl_coef is {kl_coef} but ref_logprobs is None: pass the reference policy's log-probs")
    level, own_aggregation = ALGORITHMS[algorithm]
    aggregation = own_aggregation if aggregation is None else aggregation

    # Made safe before any exp: a zero times an infinity in the backward pass is NaN, whatever the forward value.
    logprobs = jnp.where(mask, logprobs.astype(jnp.float32), 0.0)
    old = logprobs if old_logprobs is None else jnp.where(mask, old_logprobs.astype(jnp.float32), 0.0)
    old = lax.stop_gradient(old)
    rows = jnp.any(mask, axis=1)
    advantages = jnp.where(rows, lax.stop_gradient(advantages.astype(jnp.float32)), 0.0)[:, None]

    ratio = importance_ratio(logprobs, old, mask, level=level)
    loss = clipped_surrogate(ratio, advantages, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip)
    loss = jnp.broadcast_to(loss, mask.shape)
    metrics = _metrics(logprobs, old, ratio, advantages, mask, clip_low, clip_high)
    if ref_logprobs is not None:
        ref = lax.stop_gradient(jnp.where(mask, ref_logprobs.astype(jnp.float32), 0.0))
        kl = kl_penalty(logprobs, ref, estimator=kl_estimator)
        loss = loss + kl_coef * kl
        metrics["kl_ref"] = _masked_pair(kl, mask)
    numerator, denominator = aggregate(loss, mask, mode=aggregation, constant_length=constant_length)
    return numerator, denominator, metrics


def importance_ratio(
    logprobs: Float[Array, "B T"], old_logprobs: Float[Array, "B T"], mask: Bool[Array, "B T"], *, level: str
) -> Float[Array, "B T"] | Float[Array, "B 1"]:
    """Ratio of the trained to the sampling policy; log-ratios beyond +-20 are cut and carry no gradient.

        token:     r_t = pi(y_t) / pi_old(y_t)                               [B T], 1 on masked entries
        sequence:  s   = exp( 1/|y| sum_t log(pi(y_t) / pi_old(y_t)) )       [B 1], 1 for a row without tokens

    Source: GRPO, arXiv 2402.03300, equation 3; GSPO, arXiv 2507.18071, equation 7.
    """
    log_ratio = jnp.where(mask, logprobs - old_logprobs, 0.0)
    if level == "sequence":
        length = jnp.maximum(jnp.sum(mask, axis=1, keepdims=True), 1)
        log_ratio = jnp.sum(log_ratio, axis=1, keepdims=True) / length
    return jnp.exp(jnp.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO))


def clipped_surrogate(
    ratio: Float[Array, "B N"],
    advantages: Float[Array, "B 1"],
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> Float[Array, "B N"]:
    """The pessimistic surrogate, as a loss: the smaller objective is taken for either sign of the advantage.

        loss = -min( r A, clip(r, 1 - clip_low, 1 + clip_high) A )
        dual_clip c > 1, where A < 0:  loss = -max( min(...), c A )

    Source: PPO, arXiv 1707.06347, equation 7; dual clip: arXiv 1912.09729, equation 5.

    Raises:
      ValueError: `dual_clip` is not above 1.
    """
    if dual_clip is not None and dual_clip <= 1.0:
        raise ValueError(f"dual_clip is {dual_clip}; use a value above 1, it bounds the ratio of negative advantages")
    objective = jnp.minimum(ratio * advantages, jnp.clip(ratio, 1.0 - clip_low, 1.0 + clip_high) * advantages)
    if dual_clip is not None:
        objective = jnp.where(advantages < 0, jnp.maximum(objective, dual_clip * advantages), objective)
    return -objective


def kl_penalty(
    logprobs: Float[Array, "B T"], ref_logprobs: Float[Array, "B T"], *, estimator: str
) -> Float[Array, "B T"]:
    """KL of the policy from the reference, estimated at each sampled token, to be differentiated.

        d = log pi_ref(y_t) - log pi(y_t);    k2 = d^2 / 2;    k3 = exp(d) - d - 1

    On-policy, the mean gradient of k2 is that of KL(pi || pi_ref), and that of k3 is that of KL(pi_ref || pi).
    The value of k3 estimates KL(pi || pi_ref) without bias.

    Source: J. Schulman, "Approximating KL divergence" (2020); k3 in GRPO: arXiv 2402.03300, equation 4.

    Raises:
      ValueError: the estimator is k1, whose mean gradient is 0, or unknown.
    """
    if estimator == "k1":
        raise ValueError(
            "kl_estimator 'k1' does not regularise inside the loss: the mean gradient of log pi is 0; use 'k2' or 'k3'"
        )
    if estimator not in KL_ESTIMATORS:
        raise ValueError(f"kl_estimator is {estimator!r}; it must be one of {', '.join(KL_ESTIMATORS)}")
    difference = ref_logprobs - logprobs
    if estimator == "k2":
        return 0.5 * difference**2
    difference = jnp.clip(difference, -MAX_LOG_RATIO, MAX_LOG_RATIO)
    return jnp.expm1(difference) - difference


def aggregate(
    loss: Float[Array, "B T"], mask: Bool[Array, "B T"], *, mode: str, constant_length: int | None = None
) -> Pair:
    """Token losses of a batch as (numerator, denominator); rows without tokens count in neither.

        token-mean            sum_{i,t} l / sum_i |y_i|                          every token weighs alike
        seq-mean-token-mean   sum_i ( sum_t l / |y_i| ) / rows                   every row weighs alike
        seq-mean-token-sum    sum_{i,t} l / rows                                 long rows weigh more
        constant              sum_{i,t} l / (rows * constant_length)             the same, scaled by a constant

    Per-row means make the tokens of a short row count more: a short right answer is pushed harder and a long wrong one
    is punished less. The others have no such bias.

    Raises:
      ValueError: an unknown mode, or "constant" without `constant_length`.

    Source: token-mean, DAPO, arXiv 2503.14476, equation 8; constant, Dr. GRPO, arXiv 2503.20783, section 3.2.
    """
    loss = jnp.where(mask, loss, 0.0)
    lengths = jnp.sum(mask, axis=1).astype(jnp.float32)
    rows = jnp.sum(lengths > 0).astype(jnp.float32)
    if mode == "token-mean":
        return jnp.sum(loss), jnp.sum(lengths)
    if mode == "seq-mean-token-mean":
        return jnp.sum(jnp.sum(loss, axis=1) / jnp.maximum(lengths, 1.0)), rows
    if mode == "seq-mean-token-sum":
        return jnp.sum(loss), rows
    if mode == "constant":
        if constant_length is None:
            raise ValueError("aggregation 'constant' needs constant_length, the tokens that a row is divided by")
        return jnp.sum(loss), rows * constant_length
    raise ValueError(f"aggregation is {mode!r}; it must be one of {', '.join(AGGREGATIONS)}")


def _metrics(logprobs, old, ratio, advantages, mask, clip_low, clip_high) -> dict[str, Pair]:
    """What is worth watching about the ratio. One unit is a token, or a sequence where the ratio is the sequence's."""
    unit = mask if ratio.shape == mask.shape else jnp.any(mask, axis=1, keepdims=True)
    difference = jnp.clip(logprobs - old, -MAX_LOG_RATIO, MAX_LOG_RATIO)
    return {
        "ratio": _masked_pair(ratio, unit),
        "clip_low": _masked_pair((ratio < 1.0 - clip_low) & (advantages < 0), unit),
        "clip_high": _masked_pair((ratio > 1.0 + clip_high) & (advantages > 0), unit),
        "kl_old_k1": _masked_pair(-difference, mask),
        "kl_old_k3": _masked_pair(jnp.expm1(difference) - difference, mask),
    }


def _masked_pair(values, mask) -> Pair:
    """Sum and count of the masked values, without gradient."""
    values = lax.stop_gradient(values).astype(jnp.float32)
    return jnp.sum(jnp.where(mask, values, 0.0)), jnp.sum(mask).astype(jnp.float32)
