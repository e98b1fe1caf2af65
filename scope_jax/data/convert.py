"""Converts problems of other layouts into records.

    python -m scope_jax.data.convert --input=train_socratic.jsonl --output=gsm8k.jsonl --layout=gsm8k_socratic

Rows that cannot be converted, and scaffolds that cannot be used, are listed with the reason in OUTPUT.rejects.jsonl.
`--tfds_dir` writes the same records as a TFDS data set besides.
"""

import dataclasses
import json
import pathlib
from collections.abc import Callable
from typing import Any

from absl import app, flags

from scope_jax.data import gsm8k
from scope_jax.data.records import (
    PROBLEM_FIELDS,
    Problem,
    RecordError,
    parse_record,
    read_json_lines,
    write_jsonl,
    write_text,
)

_INPUT = flags.DEFINE_string("input", None, "JSONL file to read.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "JSONL file of records to write.", required=True)
_SOURCE = flags.DEFINE_string("source", "gsm8k", "Data set named in the records, and the start of ids that are made.")
_TFDS_DIR = flags.DEFINE_string("tfds_dir", "", "Folder for a TFDS data set of the same records; none when empty.")
_SPLIT = flags.DEFINE_enum("split", "train", ["train", "test"], "Its split: data.train reads train, data.eval reads test.")


def _record(row: Any, where: str, *, id: str, source: str) -> tuple[Problem, str]:
    """A record as it is; fields outside the schema are left out, id and source filled in where there are none."""
    if not isinstance(row, dict):
        return parse_record(row, where), ""  # raises with the reason
    known = {name: row[name] for name in PROBLEM_FIELDS if row.get(name) is not None}
    problem = parse_record({"id": id, "source": source} | known, where)
    return problem, "" if problem.scaffold else "the record has none"


LAYOUTS: dict[str, Callable[..., tuple[Problem, str]]] = {
    "gsm8k_socratic": gsm8k.socratic_problem,
    "gsm8k": gsm8k.plain_problem,
    "records": _record,
}
_LAYOUT = flags.DEFINE_enum("layout", None, sorted(LAYOUTS), "Layout of the input.", required=True)


@dataclasses.dataclass(frozen=True)
class Reject:
    """What was left out of a conversion: a whole row, or only its scaffold."""

    line: int
    what: str  # "row" or "scaffold"
    reason: str


def convert(path: pathlib.Path, layout: str, source: str) -> tuple[list[Problem], list[Reject]]:
    """Problems of a JSONL file in one of `LAYOUTS`, and what was left out.

    Ids that the layout lacks are made from `source` and the line number, so that they stay when other rows go.

    Raises:
      FileNotFoundError: there is no such file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected {layout} rows in JSONL")
    problems: dict[str, Problem] = {}
    rejects: list[Reject] = []
    for line, row in read_json_lines(path):
        where = f"{path}:{line}"
        try:
            if isinstance(row, RecordError):
                raise row
            problem, missing = LAYOUTS[layout](row, where, id=f"{source}-{line}", source=source)
            if problem.id in problems:
                raise RecordError(where, "id", f"is {problem.id!r}, which an earlier row has; ids must be unique")
        except RecordError as error:
            rejects.append(Reject(line, "row", str(error)))
            continue
        problems[problem.id] = problem
        if missing:
            rejects.append(Reject(line, "scaffold", missing))
    return list(problems.values()), rejects


def summary(problems: list[Problem], rejects: list[Reject]) -> str:
    """How many rows became problems, how many of these have a scaffold, and how long the scaffolds are."""
    lost = sum(reject.what == "row" for reject in rejects)
    lengths = [len(problem.scaffold) for problem in problems if problem.scaffold]
    text = f"{len(problems)} of {len(problems) + lost} rows converted, {lost} rejected"
    if not lengths:
        return f"{text}; no scaffolds"
    built = 100 * len(lengths) / len(problems)
    mean = sum(lengths) / len(lengths)
    return (
        f"{text}; scaffolds built: {built:.1f}%, {mean:.2f} sub-questions on average ({min(lengths)} to {max(lengths)})"
    )


def main(_):
    output = pathlib.Path(_OUTPUT.value)
    try:
        problems, rejects = convert(pathlib.Path(_INPUT.value), _LAYOUT.value, _SOURCE.value)
    except FileNotFoundError as error:
        raise SystemExit(f"convert: {error}") from error
    output.parent.mkdir(parents=True, exist_ok=True)
    write_jsonl(output, problems)
    rejects_path = output.with_name(f"{output.name}.rejects.jsonl")
    write_text(rejects_path, "".join(json.dumps(dataclasses.asdict(reject)) + "\n" for reject in rejects))
    print(summary(problems, rejects))
    print(f"records: {output}\nrejects: {rejects_path}")
    if _TFDS_DIR.value:
        from scope_jax.data import tfds_problems  # an import of seconds that only this flag needs

        print(f"TFDS: {tfds_problems.prepare(problems, _TFDS_DIR.value, split=_SPLIT.value)}")


if __name__ == "__main__":
    app.run(main)
