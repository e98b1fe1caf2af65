"""One training step: which stage it belongs to, its batch, its rollouts, its update."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec

from scope_jax import scope
from scope_jax.data.batches import PromptTable, take
from scope_jax.data.sources import batch_indices
from scope_jax.policy.advantages import effective_gradient_ratio
from scope_jax.policy.update import TrainState, update
from scope_jax.rollout import Rollout


class Place(NamedTuple):
    """Where a step stands in the config's stages."""

    stage: str
    first: bool  # first update of its stage


def place_of(step: int, stages) -> Place:
    """The stage of update `step`, counted from 0 over all stages."""
    for name, updates in stages:
        if step < updates:
            return Place(name, step == 0)
        step -= updates
    raise ValueError(f"step lies {step + 1} past the last stage of {stages}")


def initial_state(params, config, optimizer, mesh) -> TrainState:
    """The state before the first update; optimizer moments are laid out as their parameters."""
    whole = NamedSharding(mesh, PartitionSpec())
    shapes = jax.eval_shape(optimizer.init, params)
    shardings = optax.tree_map_params(
        optimizer, lambda _, p: p.sharding, shapes, params, transform_non_params=lambda _: whole
    )
    return TrainState(
        params=params,
        optimizer_state=jax.jit(optimizer.init, out_shardings=shardings)(params),
        ref_params=jax.tree.map(jnp.copy, params) if config.loss.kl > 0 else None,
        step=jax.device_put(jnp.int32(0), whole),
        key=jax.device_put(jax.random.key(config.seed), whole),
    )


def begin_stage(state: TrainState, config, optimizer, mesh) -> TrainState:
    """A stage starts from the parameters of the one before, with a fresh optimizer and itself as the reference."""
    fresh = initial_state(state.params, config, optimizer, mesh)
    return fresh.replace(step=state.step, key=state.key)


def train_step(state, policy, table: PromptTable, step: int, config, optimizer, settle, judge, own_reward=None):
    """One step: sample, pay, update. `own_reward` replaces the stage's rewards; see `make_own_reward`.

    Returns:
      The new state, the experience with its batch and advantages, and the step's metrics, still on the device.
    """
    stage = place_of(step, config.stages).stage
    rows = batch_indices(len(table.problems), config.rollout.prompts, step, config.seed)
    batch = take(table, rows, policy.place)
    key = jax.random.fold_in(state.key, step)
    experience = scope.STAGES[stage](policy._replace(params=state.params), batch, key, config, settle, judge)
    if own_reward is not None:
        experience = own_reward(experience, batch, stage)
    width = experience.rollout.tokens.shape[1] - config.rollout.max_new_tokens
    state, measured, advantages = update(
        state,
        trim(experience.rollout, width, config.rollout.length_buckets),
        experience.rewards,
        experience.valid,
        model=policy.model,
        config=config,
        optimizer=optimizer,
        start=width,
    )
    return state, (experience, batch, advantages), measured | summarise(experience, policy.model.eos_ids)


def trim(rollout: Rollout, start: int, buckets: int) -> Rollout:
    """The rollout without the last columns that no completion reached, cut to one of a few widths.

    Args:
      rollout: its completions begin at column `start`.
      start: width of the prompts.
      buckets: the completion's width becomes a multiple of 1/buckets of the limit, so that few updates are compiled.
    """
    limit = rollout.tokens.shape[1] - start
    unit = -(-limit // buckets)
    longest = int(jnp.max(jnp.sum(rollout.mask, axis=1)))
    width = start + min(limit, max(unit, -(-longest // unit) * unit))
    return jax.tree.map(lambda x: x[:, :width], rollout)


@functools.partial(jax.jit, static_argnames="eos_ids")
def summarise(experience: scope.Experience, eos_ids: tuple[int, ...]) -> dict:
    """What the log shows of a step's rollouts; means are over valid rows."""
    valid, failed = experience.valid, experience.judge_failed
    count = jnp.maximum(jnp.sum(valid), 1)
    judged = {} if failed is None else {"judge_failed": jnp.sum(failed)}
    return judged | {
        "reward": jnp.sum(jnp.where(valid, experience.rewards, 0.0)) / count,
        "outcome": jnp.mean(experience.outcome),
        "eta_r": effective_gradient_ratio(experience.rewards, valid),
        "routed": jnp.mean(experience.routed.astype(jnp.float32)),
        "length": jnp.mean(jnp.sum(experience.rollout.mask, axis=1).astype(jnp.float32)),
        "truncated": jnp.mean((~scope.ended(experience.rollout, eos_ids)).astype(jnp.float32)),
        "undecided": jnp.mean((~valid).astype(jnp.float32)),
        "generated_tokens": experience.sampled_tokens,
    } | {f"verify_{kind}": count for kind, count in experience.checks.items()}
