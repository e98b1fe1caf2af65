"""Settles on the host the verdicts that the device left undecided."""

import collections
import functools
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Int8

from scope_jax.data.records import Problem
from scope_jax.rewards import RIGHT, UNDECIDED, WRONG
from scope_jax.rollout import Rollout
from scope_jax.verify import minerva
from scope_jax.verify.extract import Box, extract_answer, extract_slots
from scope_jax.verify.pool import Checks, Verifier
from scope_jax.verify.result import Result

MODES = ("math", "minerva")
# Without a verdict of its own (timed out, unreadable gold) a row stays UNDECIDED: masked out, never paid as 0.
VERDICTS = {Result.right: RIGHT, Result.wrong: WRONG, Result.no_answer: WRONG}


def make_settle(
    tokenizer,
    eos_ids: tuple[int, ...],
    open_verifier: Callable[[], Verifier] | None,
    *,
    mode: str = "math",
    box: Box = "last",
) -> Callable:
    """The function that the stages call with a rollout, its verdicts [B C] and the problem of each row.

    One column is the main answer; more are the slots of a scaffold, the main one last. It starts the checks and gives a
    function that waits for them: what the device is sent between the two calls runs while the host checks. That function
    returns the verdicts, and how many answers the host checked by `Result` name.

    mode "math": only rows with an undecided column leave the device. A slot behind a wrong one is not checked: the chain
    is broken already. A row whose problem is None is nobody's and stays as it is.
    mode "minerva": all answers are compared on the host, as text (`scope_jax.verify.minerva`), and no worker is asked;
    the device's verdicts, which know values, do not count. Slots are found as in mode "math".

    Args:
      tokenizer: decodes the rows.
      eos_ids: a row without any of them was cut by the length limit.
      open_verifier: gives the verifier, asked for when a row first needs it; None leaves undecided what is.
      mode: "math" or "minerva".
      box: which of several boxes counts in mode "math" and in slots.

    Raises:
      ValueError: there is no such mode.
    """
    if mode not in MODES:
        raise ValueError(f"verifier mode {mode!r}; it must be {' or '.join(MODES)}")

    def settle(rollout: Rollout, verdicts: Int8[np.ndarray, "B C"], problems: Sequence[Problem | None]):
        verdicts = np.array(verdicts)
        opened = (verdicts == UNDECIDED) | (mode == "minerva")
        rows = np.array([row for row in np.flatnonzero(opened.any(axis=1)) if problems[row] is not None], int)
        if not len(rows) or (mode == "math" and open_verifier is None):
            return lambda: (verdicts, count_results([]))
        tokens, mask = np.asarray(rollout.tokens[rows]), np.asarray(rollout.mask[rows])
        places, given, gold = [], [], []
        for i, row in enumerate(rows):
            completion = tokenizer.decode(tokens[i][mask[i]], skip_special_tokens=True)
            ended = bool(np.isin(tokens[i][mask[i]], eos_ids).any())
            for column, answer, expected in answers_of(completion, ended, problems[row], verdicts.shape[1]):
                if opened[row, column]:
                    places.append((row, column))
                    given.append(answer)
                    gold.append(expected)
                elif verdicts[row, column] == WRONG:
                    break
        if mode == "minerva":
            checks = Checks(list(map(minerva.compare, given, gold)))
        else:
            checks = open_verifier().submit(given, gold)

        def finish():
            results = checks.result()
            for place, result in zip(places, results, strict=True):
                verdicts[place] = VERDICTS.get(result, UNDECIDED)
            return verdicts, count_results(results)

        return finish

    def answers_of(completion: str, ended: bool, problem: Problem, columns: int):
        """(column, extracted answer, gold) of a row's answers, in order."""
        if columns == 1:
            find = minerva.find_answer if mode == "minerva" else functools.partial(extract_answer, ended=ended, box=box)
            return [(0, find(completion), problem.answer)]
        subs = len(problem.scaffold)
        golds = [*(sub.answer for sub in problem.scaffold), problem.answer]
        found = extract_slots(completion, subs, ended=ended, box=box)
        return zip((*range(subs), columns - 1), found, golds, strict=True)

    return settle


def count_results(results: Sequence[Result]) -> dict[str, np.int32]:
    """How many results of each kind there are, and how many in all (`checked`)."""
    counts = collections.Counter(result.name for result in results)
    return {"checked": np.int32(len(results))} | {kind.name: np.int32(counts[kind.name]) for kind in Result}
