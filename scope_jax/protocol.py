r"""The measures of an evaluation, with intervals over problems, and the agreement of two judges.

| measure         | over                | what                                                                         |
|-----------------|---------------------|------------------------------------------------------------------------------|
| accuracy        | completions         | share that is right; a verdict that nobody could settle counts as not right  |
| avg@n           | problems            | share of a problem's n completions that is right; pass@1 is the same number  |
| pass@k          | problems            | chance that one of k completions is right, estimated from n without bias     |
| maj@k           | problems            | share of votes among k completions that a right answer wins                  |
| useful          | right completions   | Useful%: share of useful steps                                               |
| first_error_pos | right completions   | 1st-Err-Pos: index of the first error step / number of steps, 1 where none   |
| tokens          | completions         | mean length; `tokens_correct` is over right completions                      |
| truncated       | completions         | share that the length limit cut                                              |

k is 1, 2, 4, ... and n, the number of completions of a problem. Right completions without labels (no step, or a judge
that failed) are left out of Useful% and 1st-Err-Pos and counted as `unlabelled`.

Intervals hold 95% (percentile bootstrap, Efron and Tibshirani 1993, chapter 13). Problems are drawn, not completions,
because completions of one problem are alike. Useful% and 1st-Err-Pos are the step-quality protocol of SCOPE-RL (arXiv
2607.11506); the estimator of pass@k is that of Chen et al. 2021 (arXiv 2107.03374).
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from scope_jax.rewards import RIGHT, STEP_LABELS, UNDECIDED
from scope_jax.verify.plain import plain_check
from scope_jax.verify.result import Result

LEVEL = 0.95  # of the intervals
ENTRIES = 10_000_000  # drawn at a time: memory stays below 100 MB
SUMMED = ("samples", "problems", "undecided", "unlabelled")  # measures that add up over benchmarks


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Chance that at least one of k completions is right: 1 - C(n - c, k) / C(n, k), without bias.

    Args:
      samples: completions n of the problem, at least k.
      right: c of them that are right.
      k: completions that are drawn without replacement, at least 1.

    Raises:
      ValueError: k or `right` is out of range.

    Source: Chen et al. 2021, arXiv 2107.03374, equation 1; here in whole numbers, so exact before the division.
    """
    if not (1 <= k <= samples and 0 <= right <= samples):
        raise ValueError(f"pass@{k} of {samples} completions with {right} right: k must be 1 to n, right 0 to n")
    return 1.0 - math.comb(samples - right, k) / math.comb(samples, k)


def majority(answers: Sequence[str | None]) -> list[int]:
    """Indices of the completions that vote for the winner.

    Answers are one if the verifier calls them equal without algebra (`plain_check`): `1/2` and `\\frac{1}{2}` are. Each
    is compared with the first of every group. The largest group wins, of equal ones that which was opened first. No
    answer is no vote: the list is empty only where nobody gives an answer.
    """
    groups: list[list[int]] = []
    for i, answer in enumerate(answers):
        if answer is None:
            continue
        same = (group for group in groups if plain_check(answer, answers[group[0]]) is Result.right)
        if (group := next(same, None)) is None:
            groups.append([i])
        else:
            group.append(i)
    return max(groups, key=len, default=[])  # the first of the largest


def maj_at_k(answers: Sequence[str | None], right: Sequence[bool], k: int) -> float:
    """Share of the votes of k completions each that a right answer wins: the first k, the next k, ...

    The parts share no completion, so that the mean is without bias. A last part of fewer than k is left out.
    """
    votes = [range(start, start + k) for start in range(0, len(answers) - k + 1, k)]
    won = [any(right[part[i]] for i in majority([answers[j] for j in part])) for part in votes]
    return sum(won) / len(won)


def first_error_position(labels: Sequence[str]) -> float:
    """Relative position of the first error step: (its index) / N, and 1 where no step is wrong."""
    return labels.index("error") / len(labels) if "error" in labels else 1.0


def measure_rows(
    samples: Sequence[dict], *, resamples: int, seed: int
) -> tuple[dict, dict[str, Float[np.ndarray, "R"]]]:
    """The measures of the module's table, and the bootstrap's draws of each that has an interval.

    Args:
      samples: records of `evaluate.evaluate`; those of a problem share source and id. At least one.
      resamples: draws R of the bootstrap; 0: no intervals.
      seed: of the draws. Equal samples and seed give equal intervals.

    Returns:
      The measures, None where nothing is right or labelled; `intervals` has [low, high] by measure, None where there
      are fewer than two problems or no draw is defined.
    """
    problems = _by_problem(samples)
    correct = [[s for s in rows if s["verdict"] == RIGHT] for rows in problems]
    labelled = [[s["labels"] for s in rows if s["labels"]] for rows in correct]
    least = min(map(len, problems))
    one = [1.0] * len(problems)
    ratios = {  # numerator and denominator of each problem
        "accuracy": (_counts(correct), _counts(problems)),
        "useful": (_sums(labelled, lambda labels: labels.count("useful") / len(labels)), _counts(labelled)),
        "first_error_pos": (_sums(labelled, first_error_position), _counts(labelled)),
        "tokens": (_sums(problems, lambda s: s["tokens"]), _counts(problems)),
        "tokens_correct": (_sums(correct, lambda s: s["tokens"]), _counts(correct)),
        "truncated": (_sums(problems, lambda s: not s["ended"]), _counts(problems)),
        f"avg@{least}": ([len(c) / len(p) for c, p in zip(correct, problems, strict=True)], one),
    }
    for k in _powers_up_to(least):
        passed = [pass_at_k(len(p), len(c), k) for c, p in zip(correct, problems, strict=True)]
        voted = [maj_at_k([s["given"] for s in p], [s["verdict"] == RIGHT for s in p], k) for p in problems]
        ratios |= {f"pass@{k}": (passed, one), f"maj@{k}": (voted, one)}
    top, bottom = (np.array([ratio[part] for ratio in ratios.values()], np.float64) for part in (0, 1))
    draws = dict(zip(ratios, bootstrap(top, bottom, resamples=resamples, seed=seed).T, strict=True))
    measures = {name: sum(a) / sum(b) if sum(b) else None for name, (a, b) in ratios.items()}
    measures |= {
        "undecided": sum(s["verdict"] == UNDECIDED for s in samples),
        "unlabelled": sum(map(len, correct)) - sum(map(len, labelled)),
        "samples": len(samples),
        "problems": len(problems),
        "n": least,
        "intervals": {name: interval(values) if len(problems) > 1 else None for name, values in draws.items()},
    }
    return measures, draws


def benchmark_rows(samples: Sequence[dict], *, resamples: int, seed: int) -> list[dict]:
    """The measures of each source, by name, and behind several of them their mean, in which each source counts alike.

    The mean has no counts of its own: `SUMMED` are sums there. Measures that a source does not have (a k above its n, a
    share of no completion) are left out of it. Its intervals come from draws within each source.
    """
    names = sorted({s["source"] for s in samples})
    measured = [  # by seeds of their own: draws of different sources must be independent
        measure_rows([s for s in samples if s["source"] == name], resamples=resamples, seed=seed + i)
        for i, name in enumerate(names)
    ]
    rows = [{"source": name} | measures for name, (measures, _) in zip(names, measured, strict=True)]
    if len(rows) < 2:
        return rows
    shared = [name for name in measured[0][1] if all(row.get(name) is not None for row in rows)]
    mean = {name: sum(row[name] for row in rows) / len(rows) for name in shared}
    mean |= {name: sum(row[name] for row in rows) for name in SUMMED} | {"n": min(row["n"] for row in rows)}
    draws = {name: np.mean([found[name] for _, found in measured], axis=0) for name in shared}
    several = all(row["problems"] > 1 for row in rows)
    mean["intervals"] = {name: interval(values) if several else None for name, values in draws.items()}
    return [*rows, {"source": "mean"} | mean]


def bootstrap(
    numerators: Float[np.ndarray, "M P"], denominators: Float[np.ndarray, "M P"], *, resamples: int, seed: int
) -> Float[np.ndarray, "R M"]:
    """Draws of M ratios of sums over P problems, each time over P problems drawn with replacement.

    All ratios share the drawn problems. NaN where the drawn denominators sum to 0.
    """
    rng, count = np.random.default_rng(seed), numerators.shape[1]
    draws = np.empty((resamples, len(numerators)))
    part = max(1, ENTRIES // count)
    for start in range(0, resamples, part):
        weights = rng.multinomial(count, np.full(count, 1 / count), size=min(part, resamples - start))
        with np.errstate(invalid="ignore"):
            draws[start : start + part] = (weights @ numerators.T) / (weights @ denominators.T)
    return draws


def interval(draws: Float[np.ndarray, "R"]) -> list[float] | None:
    """[low, high] that holds the middle `LEVEL` of the draws which are defined; None where none is."""
    known = draws[~np.isnan(draws)]
    return np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist() if len(known) else None


def agreement(samples: Sequence[dict], *, resamples: int, seed: int) -> dict:
    """How far two judges give the same steps the same label: `labels` and `second_labels` of right completions.

    Completions that one of them could not label, or cut into another number of steps, are left out and counted.

    Returns:
      Cohen's kappa with its interval over problems, the share of steps with equal labels, the table of counts (rows:
      the first judge's label; columns: the second's; in the order of `labels`), and how much was compared.
    """
    correct = [s for s in samples if s["verdict"] == RIGHT]
    compared = [s for s in correct if s["labels"] and len(s["labels"]) == len(s["second_labels"])]
    tables = [sum(confusion(s["labels"], s["second_labels"]) for s in rows) for rows in _by_problem(compared)]
    table = sum(tables, np.zeros((len(STEP_LABELS),) * 2, int))
    draws = np.array([])
    if len(tables) > 1:
        rng, count = np.random.default_rng(seed), len(tables)
        weights = rng.multinomial(count, np.full(count, 1 / count), size=resamples)
        draws = cohens_kappa(np.tensordot(weights, np.array(tables), axes=1))
    kappa = float(cohens_kappa(table))
    return {
        "kappa": None if math.isnan(kappa) else kappa,
        "interval": interval(draws),
        "equal": float(np.trace(table) / table.sum()) if compared else None,
        "labels": list(STEP_LABELS),
        "table": table.tolist(),
        "steps": int(table.sum()),
        "completions": len(compared),
        "left_out": len(correct) - len(compared),
    }


def confusion(first: Sequence[str], second: Sequence[str]) -> Int[np.ndarray, "5 5"]:
    """How often the two judges gave each pair of labels to one step."""
    table = np.zeros((len(STEP_LABELS),) * 2, int)
    for a, b in zip(first, second, strict=True):
        table[STEP_LABELS.index(a), STEP_LABELS.index(b)] += 1
    return table


def cohens_kappa(table: Int[np.ndarray, "*R K K"]) -> Float[np.ndarray, "*R"]:
    """(p_o - p_e) / (1 - p_e): agreement beyond what the two judges' habits alone would give.

        p_o = share of equal labels        p_e = sum_k (share of k by the first) * (share of k by the second)

    1 is perfect agreement and 0 that of chance. NaN where there is no step, or where both judges only ever give one and
    the same label.

    Source: Cohen 1960, "A coefficient of agreement for nominal scales".
    """
    total = table.sum((-2, -1))
    with np.errstate(invalid="ignore", divide="ignore"):
        observed = np.trace(table, axis1=-2, axis2=-1) / total
        chance = (table.sum(-1) * table.sum(-2)).sum(-1) / total.astype(float) ** 2
        return (observed - chance) / (1 - chance)


def _by_problem(samples: Sequence[dict]) -> list[list[dict]]:
    groups: dict[tuple[str, str], list[dict]] = {}
    for s in samples:
        groups.setdefault((s["source"], s["id"]), []).append(s)
    return list(groups.values())


def _powers_up_to(most: int) -> list[int]:
    """1, 2, 4, ... and `most`."""
    return [*itertools.takewhile(lambda k: k < most, (2**i for i in itertools.count())), most]


def _counts(groups: list[list]) -> list[int]:
    return [len(group) for group in groups]


def _sums(groups: list[list], value) -> list[float]:
    return [float(sum(map(value, group))) for group in groups]
