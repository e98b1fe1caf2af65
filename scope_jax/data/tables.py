"""Rows of the files that data sets are published in: JSONL, JSON, CSV and parquet."""

import csv
import io
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from scope_jax.data.records import RecordError, decode_json, kind, read_json_lines

SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
LONGEST_CELL = 2**31 - 1  # characters; the csv module's own limit is 131,072


class Row(NamedTuple):
    """One row of a file."""

    number: int  # the line it starts on (JSONL, CSV), or its place from 1 (a JSON array, parquet)
    where: str  # the same for messages
    value: Any  # a `RecordError` stands for a row that cannot be read


def read_rows(path: pathlib.Path) -> Iterator[Row]:
    """Yields the rows of a file, whose name tells the format.

    A JSON file holds one array of rows or, like JSONL, a row a line. A CSV file has a line of column names, and all its
    values are texts.

    Raises:
      FileNotFoundError: there is no such file.
      RecordError: the name has none of `SUFFIXES`, or the file as a whole cannot be read.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected rows in {', '.join(SUFFIXES)}")
    suffix = path.suffix.lower()
    if suffix == ".csv":
        yield from _csv_rows(path)
    elif suffix == ".parquet":
        yield from _parquet_rows(path)
    elif suffix == ".json" and _starts_an_array(path):
        yield from _array_rows(path)
    elif suffix in (".json", ".jsonl"):
        for line, value in read_json_lines(path):
            yield Row(line, f"{path}:{line}", value)
    else:
        raise RecordError(str(path), "", f"has a name in none of {', '.join(SUFFIXES)}; unpack or rename it")


def _starts_an_array(path: pathlib.Path) -> bool:
    with open(path, "rb") as file:
        return file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def _array_rows(path: pathlib.Path) -> Iterator[Row]:
    rows = decode_json(path.read_bytes().removeprefix(b"\xef\xbb\xbf"), str(path))
    if isinstance(rows, RecordError):
        raise rows
    if not isinstance(rows, list):
        raise RecordError(str(path), "", f"holds {kind(rows)}; expected one array of rows")
    for number, value in enumerate(rows, start=1):
        yield Row(number, f"{path}: row {number}", value)


def _csv_rows(path: pathlib.Path) -> Iterator[Row]:
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise RecordError(f"{path}:{line}", "", f"is not UTF-8 ({error.reason}); save the file as UTF-8") from error
    csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    names, start = None, 1
    try:
        for cells in reader:
            where, line, start = f"{path}:{start}", start, reader.line_num + 1
            if not cells:
                continue
            if names is None:
                names = cells
                if len(set(names)) < len(names):
                    raise RecordError(where, "", "names a column twice; every column needs its own name")
            elif len(cells) != len(names):
                yield Row(line, where, RecordError(where, "", f"has {len(cells)} values for {len(names)} columns"))
            else:
                yield Row(line, where, dict(zip(names, cells, strict=True)))
    except csv.Error as error:  # what follows a broken quote cannot be told apart into rows
        raise RecordError(f"{path}:{start}", "", f"is no CSV row ({error}); repair its quotes") from error


def _parquet_rows(path: pathlib.Path) -> Iterator[Row]:
    import pyarrow  # an import that only this format needs
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                for value in batch.to_pylist():
                    number += 1
                    yield Row(number, f"{path}: row {number}", value)
    except (pyarrow.ArrowException, OSError) as error:
        raise RecordError(str(path), "", f"cannot be read as parquet after row {number} ({error})") from error
