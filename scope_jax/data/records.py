"""Records: what a problem is, and its JSONL form, read strictly and written atomically.

    {"id": "...", "problem": "...", "answer": "...", "source": "...", "level": null,
     "scaffold": [{"question": "...", "answer": "..."}, ...]}

`source`, `level` and `scaffold` may be absent or null. One record a line, UTF-8.
"""

import dataclasses
import difflib
import json
import os
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")
PROBLEM_FIELDS = ("id", "problem", "answer", "source", "level", "scaffold")
SUB_QUESTION_FIELDS = ("question", "answer")


@dataclasses.dataclass(frozen=True)
class SubQuestion:
    """One step of a scaffold: the question is shown to the policy, its answer stays hidden."""

    question: str
    answer: str


@dataclasses.dataclass(frozen=True)
class Problem:
    """A problem with its answer and, where there is one, its scaffold (`()` when there is none)."""

    id: str
    problem: str
    answer: str
    source: str = ""
    level: str | None = None
    scaffold: tuple[SubQuestion, ...] = ()


@dataclasses.dataclass(frozen=True)
class BadLine:
    """A line that is no record: where it stands, which field is at fault ("" for the whole line), and why."""

    path: str
    line: int
    field: str
    reason: str

    def __str__(self) -> str:
        return str(RecordError(f"{self.path}:{self.line}", self.field, self.reason))


class RecordError(ValueError):
    """A record that cannot be used; the message names the place, the field and the reason."""

    def __init__(self, where: str, field: str, reason: str):
        self.where, self.field, self.reason = where, field, reason
        super().__init__(f"{where}: field {field!r} {reason}" if field else f"{where}: {reason}")


def parse_record(obj: Any, where: str) -> Problem:
    """The problem that one decoded JSON object stands for.

    Whole numbers given as id, answer or level are taken as text. An empty level is no level.

    Args:
      obj: a decoded JSON value.
      where: the place it comes from, for messages, such as `problems.jsonl:12`.

    Raises:
      RecordError: a field is missing, unknown, empty or of another type.
    """
    _check_fields(obj, PROBLEM_FIELDS, where, "")
    scaffold = obj.get("scaffold")
    if scaffold is None:
        scaffold = []
    if not isinstance(scaffold, list):
        raise RecordError(where, "scaffold", f"is {kind(scaffold)}; it must be a list of sub-questions, or absent")
    steps = []
    for i, step in enumerate(scaffold):
        at = f"scaffold[{i}]"
        _check_fields(step, SUB_QUESTION_FIELDS, where, at)
        question = read_text(step, "question", where, f"{at}.question", numbers=False)
        steps.append(SubQuestion(question, read_text(step, "answer", where, f"{at}.answer")))
    return Problem(
        id=read_text(obj, "id", where, "id"),
        problem=read_text(obj, "problem", where, "problem", numbers=False),
        answer=read_text(obj, "answer", where, "answer"),
        source=read_text(obj, "source", where, "source", numbers=False) if obj.get("source") not in (None, "") else "",
        level=read_text(obj, "level", where, "level") if obj.get("level") not in (None, "") else None,
        scaffold=tuple(steps),
    )


def to_record(problem: Problem) -> dict[str, Any]:
    """The JSON object of a problem; `parse_record` undoes it."""
    return dataclasses.asdict(problem) | {"scaffold": [dataclasses.asdict(step) for step in problem.scaffold]}


def load_jsonl(path: str | os.PathLike, *, skip_bad: bool = False) -> tuple[list[Problem], list[BadLine]]:
    """Reads problems, one a line. Blank lines, CRLF line ends and a byte-order mark do no harm.

    Args:
      path: a JSONL file.
      skip_bad: leave out lines that are no records (a repeated id among them) and list them, instead of stopping.

    Returns:
      The problems in file order, and the lines left out.

    Raises:
      FileNotFoundError: there is no such file.
      RecordError: a line is no record; names file, line number, field and reason.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected problems in JSONL, one record a line")
    problems: list[Problem] = []
    bad: list[BadLine] = []
    lines_of_ids: dict[str, int] = {}
    for line, obj in read_json_lines(path):
        where = f"{path}:{line}"
        try:
            if isinstance(obj, RecordError):
                raise obj
            problem = parse_record(obj, where)
            if problem.id in lines_of_ids:
                reason = f"is {problem.id!r}, which line {lines_of_ids[problem.id]} has already; ids must be unique"
                raise RecordError(where, "id", reason)
        except RecordError as error:
            if not skip_bad:
                raise
            bad.append(BadLine(str(path), line, error.field, error.reason))
            continue
        lines_of_ids[problem.id] = line
        problems.append(problem)
    return problems, bad


def write_jsonl(path: str | os.PathLike, problems: Iterable[Problem]) -> None:
    """Writes problems, one a line. A reader sees the old file or the whole new one, never a part.

    Raises:
      RecordError: a problem is one that `load_jsonl` would refuse; nothing is written.
    """
    path = pathlib.Path(path)
    lines, ids = [], set()
    for i, problem in enumerate(problems):
        where = f"{path}: problem {i}"
        parse_record(to_record(problem), where)
        if problem.id in ids:
            raise RecordError(where, "id", f"is {problem.id!r}, which an earlier problem has; ids must be unique")
        ids.add(problem.id)
        lines.append(json.dumps(to_record(problem), ensure_ascii=False) + "\n")
    write_text(path, "".join(lines))


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a text file by way of a temporary one beside it, so that no reader ever sees a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_json_lines(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    """Yields (line number, decoded value) of every line that is not blank; a `RecordError` stands for a broken line."""
    with open(path, "rb") as file:
        for number, raw in enumerate(file, start=1):  # bytes: only \n ends a line, and bad UTF-8 has a line number
            raw = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
            if raw.strip():
                yield number, decode_json(raw, f"{path}:{number}")


def decode_json(raw: bytes, where: str) -> Any:
    """The value of a JSON text; a `RecordError` stands for a broken one, or one that names a field twice."""
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=lambda pairs: _unique(pairs, where))
    except RecordError as error:
        return error
    except UnicodeDecodeError as error:
        return RecordError(where, "", f"is not UTF-8 (byte {error.start}: {error.reason}); save the file as UTF-8")
    except (ValueError, RecursionError) as error:  # broken JSON, a number of thousands of digits, or deep nesting
        return RecordError(where, "", f"is not JSON ({error}); every line must hold one whole object")


def _unique(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    """Python's reader keeps the last of two equal names without a word."""
    obj: dict[str, Any] = {}
    for name, value in pairs:
        if name in obj:
            raise RecordError(where, name, "stands twice in one object")
        obj[name] = value
    return obj


def _check_fields(obj: Any, known: tuple[str, ...], where: str, field: str) -> None:
    if not isinstance(obj, dict):
        raise RecordError(where, field, f"is {kind(obj)}; it must be an object with {', '.join(known)}")
    for name in obj:
        if name not in known:  # an unknown name is most often a misspelt one, and a lost scaffold trains something else
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known fields: {', '.join(known)}"
            raise RecordError(where, f"{field}.{name}" if field else name, f"is unknown; {hint}")


def read_text(obj: dict[str, Any], name: str, where: str, field: str, *, numbers: bool = True) -> str:
    """A text of an object, called `field` in messages; a whole number is taken as text where `numbers` allows it.

    Raises:
      RecordError: it is missing, empty or of another type.
    """
    if name not in obj:
        raise RecordError(where, field, "is missing")
    value = obj[name]
    if numbers and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        raise RecordError(where, field, f"is the number {value!r}; write it as a string, so that its digits stay")
    if not isinstance(value, str):
        raise RecordError(where, field, f"is {kind(value)}; it must be a string")
    if not value.strip():
        raise RecordError(where, field, "is empty")
    if _SURROGATE.search(value):
        raise RecordError(where, field, "holds half of a surrogate pair, which is not text; repair the escape \\ud8..")
    return value


def kind(value: Any) -> str:
    """A value's type in JSON's words, for messages."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
