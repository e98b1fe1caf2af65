"""The rule judge: labels by the rules of `scope_jax.rewards.steps`, without leaving the device."""

import functools

import jax
from jaxtyping import Array, Bool, Int

from scope_jax import rewards
from scope_jax.rewards import TokenBytes
from scope_jax.rollout import Rollout


@functools.partial(jax.jit, static_argnames="judge")
def step_labels(rollout: Rollout, table: TokenBytes, *, judge) -> tuple[Int[Array, "B N"], Bool[Array, "B N"]]:
    """The rule judge's step label of every step of every completion. `judge` is `config.judge`."""
    view = rewards.completion_bytes(rollout.tokens, rollout.mask, table, size=judge.max_bytes)
    return rewards.rule_labels(view, max_steps=judge.max_steps)


def make_rule_judge(table: TokenBytes, judge):
    """The judge that the stages call (`scope.Judge`). It labels every row: that is as fast as to choose."""

    def label_rows(rollout, right, problems):
        return *step_labels(rollout, table, judge=judge), None

    return label_rows
