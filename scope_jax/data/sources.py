"""Where problems come from, and the order in which batches take them."""

import functools
import os
import pathlib
from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from scope_jax.data.records import BadLine, Problem, load_jsonl

WORD_PROBLEMS = pathlib.Path(__file__).with_name("word_problems.jsonl")  # written for this project


def _jsonl(path: str | os.PathLike, *, split: str, skip_bad: bool) -> tuple[list[Problem], list[BadLine]]:
    del split  # a file is one split
    return load_jsonl(path, skip_bad=skip_bad)


def _tfds(path: str | os.PathLike, *, split: str, skip_bad: bool) -> tuple[list[Problem], list[BadLine]]:
    from scope_jax.data import tfds_problems  # an import of seconds that only this source needs

    return tfds_problems.load(path, split=split, skip_bad=skip_bad)


def _word_problems(path: str | os.PathLike, *, split: str, skip_bad: bool) -> tuple[list[Problem], list[BadLine]]:
    del path, split
    return load_jsonl(WORD_PROBLEMS, skip_bad=skip_bad)


SOURCES: dict[str, Callable[..., tuple[list[Problem], list[BadLine]]]] = {
    "jsonl": _jsonl,
    "tfds": _tfds,
    "word_problems": _word_problems,
}


def load_problems(
    source: str, path: str | os.PathLike = "", *, split: str = "train", skip_bad: bool = False
) -> tuple[list[Problem], list[BadLine]]:
    """Problems of one of `SOURCES`, at least one, and the records that were left out.

    Args:
      source: "jsonl" (a file), "tfds" (a prepared data set) or "word_problems" (the package's own; needs no path).
      path: the file or folder.
      split: the split of a TFDS data set; a file has but one.
      skip_bad: leave out bad records and list them, instead of stopping at the first.

    Raises:
      FileNotFoundError: nothing is there.
      ValueError: the source is unknown, a record is bad (names file, line, field and reason), or none is left.
    """
    if source not in SOURCES:
        raise ValueError(f"data source {source!r} is unknown; choose one of {', '.join(SOURCES)}")
    problems, bad = SOURCES[source](path, split=split, skip_bad=skip_bad)
    if not problems:
        first = f"; the first of {len(bad)} bad ones: {bad[0]}" if bad else ""
        raise ValueError(f"{path}: holds no problems{first}")
    return problems, bad


def batch_indices(num_problems: int, batch: int, step: int, seed: int) -> Int[np.ndarray, "batch"]:
    """Which problems step `step` takes: a pure function of its arguments, so a resumed run needs no data state.

    The steps read one endless stream: a permutation of all problems for each epoch, one after the other. No problem
    comes twice within an epoch. A batch may reach across a border of epochs, and with fewer problems than its size it
    spans several.

    Args:
      num_problems: size of the data set.
      batch: problems a step.
      step: steps before this one, from 0.
      seed: picks the permutations, with the epoch's number.

    Raises:
      ValueError: there are no problems, the batch is empty, or step or seed is negative.
    """
    if num_problems < 1 or batch < 1:
        raise ValueError(f"num_problems={num_problems} and batch={batch} must both be at least 1")
    if step < 0 or seed < 0:
        raise ValueError(f"step={step} and seed={seed} must not be negative")
    epochs, positions = np.divmod(step * batch + np.arange(batch), num_problems)
    return np.array(
        [_permutation(num_problems, int(e), seed)[p] for e, p in zip(epochs, positions, strict=True)], np.int64
    )


@functools.lru_cache(maxsize=4)
def _permutation(size: int, epoch: int, seed: int) -> Int[np.ndarray, "size"]:
    # Sorted raw bits: NumPy never changes a bit generator's stream, but may change `permutation` in any release.
    bits = np.random.Philox(np.random.SeedSequence([seed, epoch])).random_raw(size)
    return np.argsort(bits, kind="stable")
