"""A reward of one's own: a function named in the config, which sees each rollout with its stage's reward and pays.

    def short(rollouts):  # in my_rewards.py, with --config.reward=my_rewards:short
        return [None if r["reward"] is None else r["reward"] - 0.001 * r["length"] for r in rollouts]

It runs on the host, so it costs a step the decoding of its rollouts; without it nothing is decoded.
"""

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from scope_jax import scope

# [{"stage", "id", "problem", "answer", "completion", "reward", "routed", "ended", "length"}] -> a number for each, or None
Reward = Callable[[list[dict[str, Any]]], Sequence[float | None]]


def load_reward(name: str) -> Reward | None:
    """The function that `config.reward` names, as `package.module:function`; None for the empty name.

    Raises:
      ValueError: there is no such module or no such function.
    """
    if not name:
        return None
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function) if module and function else None
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and not module.startswith(error.name):
            raise  # the module is there, and something that it imports is not
        raise ValueError(f"config.reward={name!r}: {error}; the module must be importable from here") from error
    if not callable(found):
        raise ValueError(f"config.reward={name!r} must name a function as package.module:function")
    return found


def make_own_reward(
    name: str, tokenizer, eos_ids: tuple[int, ...]
) -> Callable[[scope.Experience, scope.Batch, str], scope.Experience] | None:
    """`pay(experience, batch, stage)`, which replaces a stage's rewards by those of `config.reward`; None without one.

    A rollout's `reward` is what the stage paid, None where that is undecided. A None that the function gives leaves the
    rollout out of its group; a number counts, decided or not. What it gives must depend on nothing but its argument:
    a resumed run calls it again.
    """
    reward = load_reward(name)
    if reward is None:
        return None

    def pay(experience: scope.Experience, batch: scope.Batch, stage: str) -> scope.Experience:
        rollouts = _rollouts(experience, batch, stage, tokenizer, eos_ids)
        values = list(reward(rollouts))
        if len(values) != len(rollouts):
            raise ValueError(f"config.reward={name!r} gave {len(values)} rewards for {len(rollouts)} rollouts")
        for row, value in enumerate(values):
            if value is not None and not math.isfinite(value):
                raise ValueError(f"config.reward={name!r} gave {value!r} for rollout {row} of problem {rollouts[row]['id']}")
        shape = np.shape(experience.rewards)
        valid = np.array([value is not None for value in values]).reshape(shape)
        paid = np.array([0.0 if value is None else float(value) for value in values], np.float32).reshape(shape)
        return experience.replace(rewards=jnp.asarray(paid), valid=jnp.asarray(valid))

    return pay


def _rollouts(experience, batch, stage, tokenizer, eos_ids) -> list[dict[str, Any]]:
    """What the function sees, in the order of the rollouts."""
    tokens, mask = np.asarray(experience.rollout.tokens), np.asarray(experience.rollout.mask)
    rewards, valid = (np.asarray(x).reshape(-1) for x in (experience.rewards, experience.valid))
    ended, routed = np.asarray(scope.ended(experience.rollout, eos_ids)), np.asarray(experience.routed)
    group = len(tokens) // len(batch.problems)
    texts = tokenizer.batch_decode([row[m] for row, m in zip(tokens, mask, strict=True)], skip_special_tokens=True)
    return [
        {
            "stage": stage,
            "id": problem.id,
            "problem": problem.problem,
            "answer": problem.answer,
            "completion": texts[i],
            "reward": float(rewards[i]) if valid[i] else None,
            "routed": bool(routed[i // group]),  # the prompt was the problem with its scaffold
            "ended": bool(ended[i]),
            "length": int(mask[i].sum()),
        }
        for i, problem in enumerate(scope.by_row(batch.problems, group))
    ]
