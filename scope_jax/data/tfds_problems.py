"""Problems as a TFDS data set, written and read without TensorFlow.

TFDS's default `tfrecord` files need TensorFlow; `array_record` files and `as_data_source` do not.
"""

import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow_datasets as tfds

from scope_jax.data.records import PROBLEM_FIELDS, BadLine, Problem, RecordError, parse_record, to_record


class ScopeProblems(tfds.core.GeneratorBasedBuilder):
    """Problems with their scaffolds, one example each."""

    VERSION = tfds.core.Version("1.0.0")

    def __init__(self, *, splits: dict[str, tuple[Problem, ...]] | None = None, **kwargs: Any):
        self._splits = splits or {"train": ()}
        super().__init__(**kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        text = tfds.features.Text()
        features = {name: text for name in PROBLEM_FIELDS if name != "scaffold"}
        features["scaffold"] = tfds.features.Sequence({"question": text, "answer": text})
        # Order is part of the data: a resumed run finds its place by position.
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features), disable_shuffling=True
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Iterator]:
        del dl_manager  # nothing is downloaded
        return {split: self._generate_examples(problems) for split, problems in self._splits.items()}

    def _log_download_bytes(self) -> None:
        """Nothing is downloaded, and the base class prints that it is."""

    def _log_download_done(self) -> None:
        """Callers say it in their own words."""

    def _generate_examples(self, problems: Iterable[Problem]) -> Iterator[tuple[int, dict[str, Any]]]:
        for position, problem in enumerate(problems):
            yield position, to_record(problem) | {"level": problem.level or ""}


def prepare(problems: Iterable[Problem], data_dir: str | os.PathLike, *, split: str = "train") -> pathlib.Path:
    """Writes problems as one split of a TFDS data set under `data_dir`; returns its folder.

    A split of that name is replaced; others that are there stay, written anew, for TFDS replaces data sets as a whole.
    """
    splits = {split: tuple(problems)}
    place = pathlib.Path(ScopeProblems(data_dir=os.fspath(data_dir), file_format="array_record").data_path)
    if (place / "dataset_info.json").is_file():
        for other in tfds.builder_from_directory(os.fspath(place)).info.splits:
            if other != split:
                splits[other] = tuple(load(place, split=other)[0])
    builder = ScopeProblems(splits=splits, data_dir=os.fspath(data_dir), file_format="array_record")
    # By default TFDS keeps what it finds, and the caller would train on yesterday's problems.
    fresh = tfds.download.DownloadConfig(
        download_mode=tfds.download.GenerateMode.REUSE_CACHE_IF_EXISTS, try_download_gcs=False
    )
    builder.download_and_prepare(download_config=fresh)
    return pathlib.Path(builder.data_path)


def load(
    folder: str | os.PathLike, *, split: str = "train", skip_bad: bool = False
) -> tuple[list[Problem], list[BadLine]]:
    """Problems of a prepared TFDS data set in stored order; any data set with the records' features will do.

    Args:
      folder: the data set's own folder, or one above it that holds no other data set.
      split: the split to read.
      skip_bad: leave out examples that are no records and list them (their `line` is the position), not stop.

    Raises:
      FileNotFoundError: no prepared data set is there, or more than one.
      ValueError: it has no such split, or its files need TensorFlow.
      RecordError: an example is no record, or repeats an id.
    """
    folder = pathlib.Path(folder)
    found = sorted(path.parent for path in folder.rglob("dataset_info.json"))
    if len(found) != 1:
        listed = f": {', '.join(map(str, found))}; name one of them" if found else ""
        raise FileNotFoundError(f"{folder}: holds {len(found)} prepared TFDS data sets instead of one{listed}")
    builder = tfds.builder_from_directory(os.fspath(found[0]))
    if split not in builder.info.splits:
        raise ValueError(f"{found[0]}: has no split {split!r}; it has {', '.join(builder.info.splits)}")
    if builder.info.file_format.value not in ("array_record", "parquet"):
        raise ValueError(
            f"{found[0]}: its files are {builder.info.file_format.value}, which need TensorFlow; "
            "prepare it again with file_format='array_record'"
        )
    problems: dict[str, Problem] = {}
    bad: list[BadLine] = []
    for position, example in enumerate(builder.as_data_source(split=split)):
        where = f"{found[0]}[{split}]:{position}"
        try:
            problem = parse_record(_decode(example), where)
            if problem.id in problems:
                raise RecordError(where, "id", f"is {problem.id!r}, which an earlier example has; ids must be unique")
        except RecordError as error:
            if not skip_bad:
                raise
            bad.append(BadLine(f"{found[0]}[{split}]", position, error.field, error.reason))
            continue
        problems[problem.id] = problem
    return list(problems.values()), bad


def _decode(example: dict[str, Any]) -> dict[str, Any]:
    """An example as a record: text from bytes, pairs from a pair of sequences, other features left out."""
    record = {name: _text(example[name]) for name in PROBLEM_FIELDS if name in example and name != "scaffold"}
    steps = example.get("scaffold") or {"question": (), "answer": ()}
    pairs = zip(steps["question"], steps["answer"], strict=True)
    return record | {"scaffold": [{"question": _text(q), "answer": _text(a)} for q, a in pairs]}


def _text(value: Any) -> Any:
    """TFDS gives text as bytes and numbers as NumPy scalars."""
    return value.decode("utf-8") if isinstance(value, bytes) else value.item() if hasattr(value, "item") else value
