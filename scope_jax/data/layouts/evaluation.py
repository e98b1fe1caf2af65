"""Layouts of published evaluation sets: MATH500, AIME 2024 and 2025, AMC 2023, GPQA-diamond."""

import hashlib
from typing import Any

from scope_jax.data.layouts import fields
from scope_jax.data.records import Problem, RecordError

LETTERS = "ABCD"
GPQA_CHOICES = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def math500_problem(row: Any, where: str, *, id: str, source: str = "math500") -> Problem:
    """A row of MATH500 (`HuggingFaceH4/MATH-500`): `problem`, `answer`, `level`, `unique_id`.

    `solution` and `subject` are left out.

    Raises:
      RecordError: a field is missing or odd.
    """
    row = fields.as_object(row, where)
    return fields.record(
        where,
        id=fields.identity(row, where, source, id, "unique_id"),
        problem=fields.text(row, where, "problem"),
        answer=fields.text(row, where, "answer"),
        source=source,
        level=row.get("level"),
    )


def aime_problem(row: Any, where: str, *, id: str, source: str) -> Problem:
    r"""A row of AIME 2024 or 2025 in any of the published spellings.

    `problem`, `Problem` (`Maxwell-Jia/AIME_2024`) or `question` (`opencompass/AIME2025`); `answer` or `Answer`; `id` or
    `ID` where there is one. An answer is a whole number from 0 to 999, perhaps with zeros before it (`025`) or a degree
    sign after it (`336^\circ`).

    Raises:
      RecordError: a field is missing or odd, or the answer is no such number.
    """
    row = fields.as_object(row, where)
    name = fields.spelling(row, where, "answer", "Answer")
    if isinstance(row[name], str):
        bare = row[name].strip()
        for degree in ("^\\circ", "^{\\circ}", "\u00b0"):
            bare = bare.removesuffix(degree)
        row = {key: value for key, value in row.items() if key not in ("answer", "Answer")} | {name: bare.strip()}
    answer = fields.whole_number(row, where, "answer", "Answer")
    if not 0 <= answer <= 999:
        raise RecordError(where, name, f"is {answer}; answers of the AIME are whole numbers from 0 to 999")
    return fields.record(
        where,
        id=fields.identity(row, where, source, id, "id", "ID"),
        problem=fields.text(row, where, "problem", "Problem", "question"),
        answer=str(answer),
        source=source,
    )


def amc_problem(row: Any, where: str, *, id: str, source: str = "amc23") -> Problem:
    """A row of AMC 2023 as Qwen2.5-Math's evaluation publishes it: `problem`, `question` or both, `answer`, `id`.

    Answers are floats with whole values (27.0 becomes "27").

    Raises:
      RecordError: a field is missing or odd, or the answer is no whole number.
    """
    row = fields.as_object(row, where)
    return fields.record(
        where,
        id=fields.identity(row, where, source, id, "id"),
        problem=fields.text(row, where, "problem", "question"),
        answer=str(fields.whole_number(row, where, "answer")),
        source=source,
    )


def gpqa_problem(row: Any, where: str, *, id: str, source: str = "gpqa_diamond", seed: int = 0) -> Problem:
    """A row of GPQA-diamond (arXiv:2311.12022), a CSV file with the columns `Question`, `Correct Answer`, `Incorrect
    Answer 1` to `3` and `Record ID`; all other columns are left out.

    The problem's text ends with the choices, one a line as `(A) ...`; the answer is the letter of the right one. Their
    order depends on the seed and the row's id alone, so it stays when rows come and go. The id ends in the seed.

    Raises:
      RecordError: a field is missing or empty, or two choices are the same.
    """
    row = fields.as_object(row, where)
    own = row.get("Record ID") or id
    id = fields.identity(row, where, source, id, "Record ID")
    choices = [fields.text(row, where, name) for name in GPQA_CHOICES]
    for i, name in enumerate(GPQA_CHOICES):
        if choices[i] in choices[:i]:
            raise RecordError(where, name, f"is the same as {GPQA_CHOICES[choices.index(choices[i])]!r}")
    # Digests, not a random generator: the order is the same in every version of everything.
    order = sorted(range(len(choices)), key=lambda i: hashlib.sha256(f"{seed}\n{own}\n{i}".encode()).digest())
    lines = [f"({letter}) {choices[i]}" for letter, i in zip(LETTERS, order, strict=True)]
    return fields.record(
        where,
        id=f"{id}-seed{seed}",
        problem="\n".join([fields.text(row, where, "Question"), "", *lines]),
        answer=LETTERS[order.index(0)],
        source=source,
    )
