"""One policy update: the gradient of the policy loss, added up over micro-batches, and one optimizer step."""

import functools

import flax.struct
import jax
import jax.numpy as jnp
import ml_collections
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from scope_jax.policy.advantages import group_advantages
from scope_jax.policy.logprobs import score_tokens
from scope_jax.policy.losses import policy_loss
from scope_jax.qwen3.config import Config
from scope_jax.qwen3.params import Params
from scope_jax.rollout.generate import Rollout


@flax.struct.dataclass
class TrainState:
    """Everything that an update reads and writes; a checkpoint of it resumes the run."""

    params: Params
    optimizer_state: optax.OptState
    ref_params: Params | None  # reference policy: the stage's first parameters; None without a KL term
    step: Int[Array, ""]  # updates made, over all stages
    key: PRNGKeyArray  # of the run; each step folds its number into it


def make_optimizer(c: ml_collections.ConfigDict) -> optax.GradientTransformation:
    """AdamW behind a global-norm clip; constant learning rate after a linear warm-up. `c` is `config.optimizer`."""
    schedule = c.learning_rate
    if c.warmup:
        schedule = optax.linear_schedule(c.learning_rate / (c.warmup + 1), c.learning_rate, c.warmup)
    adam = optax.adamw(schedule, b1=c.b1, b2=c.b2, eps=c.eps, weight_decay=c.weight_decay)
    return optax.chain(optax.clip_by_global_norm(c.max_grad_norm), adam)


@functools.partial(jax.jit, static_argnames=("model", "config", "optimizer", "start"), donate_argnames="state")
def update(
    state: TrainState,
    rollout: Rollout,
    rewards: Float[Array, "P G"],
    valid: Bool[Array, "P G"],
    *,
    model: Config,
    config: ml_collections.FrozenConfigDict,
    optimizer: optax.GradientTransformation,
    start: int,
) -> tuple[TrainState, dict[str, Float[Array, ""]], Float[Array, "P G"]]:
    """One on-policy update from P * G paid rollouts.

    The old log-probs are the sampler's: one forward function made them, so none are computed again.

    Args:
      state: parameters and optimizer state before; its buffers are reused.
      rollout: the completions, rows of a group together.
      rewards: what they are paid.
      valid: False where the verdict is unknown; such a row is in no group mean and in no loss.
      model: architecture.
      config: reads `loss`, `rollout.temperature` and `rollout.max_new_tokens`.
      optimizer: made by `make_optimizer`.
      start: first completion column; the output head is not computed before it.

    Returns:
      The state after, metrics, and the advantages. Metrics: loss, grad_norm, entropy (nats a token), sampler_gap
      (largest |log-prob of the trainer - of the sampler|) and sampler_gap_mean, those of `policy_loss`, and `finite`: for each parameter,
      whether its gradient is.

    Raises:
      ValueError: `loss.micro_batches` does not divide the number of rollouts.
    """
    if rewards.size % config.loss.micro_batches:
        raise ValueError(f"loss.micro_batches={config.loss.micro_batches} does not divide {rewards.size} rollouts")
    advantages = group_advantages(rewards, scale=config.loss.advantage_scale, valid=valid)
    rollout = rollout.replace(mask=rollout.mask & valid.reshape(-1, 1))
    parts = config.loss.micro_batches
    # Every parts-th row, so that each device of a sharded batch holds its share of every micro-batch.
    rows = jax.tree.map(
        lambda x: x.reshape(-1, parts, *x.shape[1:]).swapaxes(0, 1), (rollout, advantages.reshape(-1))
    )
    differentiate = jax.value_and_grad(_numerator, has_aux=True)

    def add(total, part):
        (numerator, (denominator, metrics, gap)), gradient = differentiate(
            state.params, state.ref_params, *part, model=model, config=config, start=start
        )
        sums = jax.tree.map(jnp.add, total[0], (gradient, numerator, denominator, metrics))
        return (sums, jnp.maximum(total[1], gap)), None

    first = jax.tree.map(lambda x: x[0], rows)
    shapes = _sums_of(differentiate, state, first, model, config, start)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    ((gradient, numerator, denominator, metrics), gap), _ = lax.scan(add, (nothing, jnp.float32(0.0)), rows)

    denominator = jnp.maximum(denominator, 1.0)
    gradient = jax.tree.map(lambda g: g / denominator, gradient)
    change, optimizer_state = optimizer.update(gradient, state.optimizer_state, state.params)
    measured = {name: total / jnp.maximum(count, 1.0) for name, (total, count) in metrics.items()}
    measured |= {"loss": numerator / denominator, "grad_norm": optax.tree.norm(gradient), "sampler_gap": gap}
    measured["finite"] = jax.tree.map(lambda g: jnp.all(jnp.isfinite(g)), gradient)
    state = state.replace(
        params=optax.apply_updates(state.params, change), optimizer_state=optimizer_state, step=state.step + 1
    )
    return state, measured, advantages


def _sums_of(differentiate, state, part, model, config, start):
    """Shapes of what a micro-batch adds: gradient, numerator, denominator, metric pairs."""

    def sums(params, ref_params, rollout, advantages):
        (numerator, (denominator, metrics, _)), gradient = differentiate(
            params, ref_params, rollout, advantages, model=model, config=config, start=start
        )
        return gradient, numerator, denominator, metrics

    return jax.eval_shape(sums, state.params, state.ref_params, *part)


def _numerator(params, ref_params, rollout, advantages, *, model, config, start):
    """The policy loss's numerator of some rows, with its denominator, metrics and sampler gap."""
    c = config.loss
    score = functools.partial(
        score_tokens,
        config=model,
        tokens=rollout.tokens,
        mask=rollout.mask,
        segment_ids=rollout.segment_ids,
        temperature=config.rollout.temperature,
        start=start,
        chunk=c.head_chunk,
    )
    logprobs, entropy = score(params)
    numerator, denominator, metrics = policy_loss(
        logprobs,
        rollout.logprobs,
        advantages,
        rollout.mask,
        algorithm=c.algorithm,
        aggregation=c.aggregation or None,
        ref_logprobs=score(ref_params)[0] if c.kl > 0 else None,
        kl_coef=c.kl,
        kl_estimator=c.kl_estimator,
        clip_low=c.clip_low,
        clip_high=c.clip_high,
        constant_length=config.rollout.max_new_tokens,  # not the width at hand, which follows the longest row
    )
    metrics["entropy"] = (jnp.sum(entropy), jnp.sum(rollout.mask).astype(jnp.float32))
    gaps = lax.stop_gradient(jnp.where(rollout.mask, jnp.abs(logprobs - rollout.logprobs), 0.0))
    metrics["sampler_gap_mean"] = (jnp.sum(gaps), jnp.sum(rollout.mask).astype(jnp.float32))
    return numerator, (denominator, metrics, jnp.max(gaps))
