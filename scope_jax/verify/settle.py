"""Settles on the host the verdicts that the device left undecided."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Int8

from scope_jax.data.records import Problem
from scope_jax.rewards import RIGHT, UNDECIDED, WRONG
from scope_jax.rollout import Rollout
from scope_jax.verify.extract import extract_answer, extract_slots
from scope_jax.verify.pool import Verifier
from scope_jax.verify.result import Result

# Without a verdict of its own (timed out, unreadable gold) a row stays UNDECIDED: masked out, never paid as 0.
VERDICTS = {Result.right: RIGHT, Result.wrong: WRONG, Result.no_answer: WRONG}


def make_settle(tokenizer, eos_ids: tuple[int, ...], open_verifier: Callable[[], Verifier] | None) -> Callable:
    """The function that the stages call with a rollout, its verdicts [B C] and the problem of each row.

    One column is the main answer; more are the slots of a scaffold, the main one last. Only rows with an undecided
    column leave the device. A slot behind a wrong one is not checked: the chain is broken already.

    Args:
      tokenizer: decodes the rows.
      eos_ids: a row without any of them was cut by the length limit.
      open_verifier: gives the verifier, asked for when a row first needs it; None leaves undecided what is.
    """

    def settle(rollout: Rollout, verdicts: Int8[np.ndarray, "B C"], problems: Sequence[Problem]):
        verdicts = np.array(verdicts)
        rows = np.flatnonzero((verdicts == UNDECIDED).any(axis=1))
        if open_verifier is None or not len(rows):
            return verdicts
        tokens, mask = np.asarray(rollout.tokens[rows]), np.asarray(rollout.mask[rows])
        places, given, gold = [], [], []
        for i, row in enumerate(rows):
            sampled = tokens[i][mask[i]]
            ended = bool(np.isin(sampled, eos_ids).any())
            completion = tokenizer.decode(sampled, skip_special_tokens=True)
            for column, answer, expected in _open_slots(verdicts[row], completion, ended, problems[row]):
                places.append((row, column))
                given.append(answer)
                gold.append(expected)
        for place, result in zip(places, open_verifier().check_answers(given, gold), strict=True):
            verdicts[place] = VERDICTS.get(result, UNDECIDED)
        return verdicts

    return settle


def _open_slots(verdicts: Int8[np.ndarray, "C"], completion: str, ended: bool, problem: Problem):
    """(column, extracted answer, gold) of the undecided columns that matter."""
    if len(verdicts) == 1:
        yield 0, extract_answer(completion, ended=ended), problem.answer
        return
    subs = len(problem.scaffold)
    answers = extract_slots(completion, subs, ended=ended)
    golds = [*(sub.answer for sub in problem.scaffold), problem.answer]
    for column, answer, gold in zip((*range(subs), len(verdicts) - 1), answers, golds, strict=True):
        if verdicts[column] == WRONG:
            return
        if verdicts[column] == UNDECIDED:
            yield column, answer, gold
