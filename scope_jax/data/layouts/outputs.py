"""Problems of published model outputs; the completions and their verdicts are left out."""

from typing import Any

from scope_jax.data.gsm8k import plain_number
from scope_jax.data.layouts import fields
from scope_jax.data.records import Problem, RecordError


def gsm8k_outputs_problem(row: Any, where: str, *, id: str, source: str = "gsm8k") -> Problem:
    """A row of grade-school-math's `example_model_solutions`: `question`, and `ground_truth`, which ends in `A: 18`.

    Raises:
      RecordError: a field is missing or odd, or the last line holds no number.
    """
    row = fields.as_object(row, where)
    mark, number = fields.text(row, where, "ground_truth").rpartition("A: ")[1:]
    answer = plain_number(number) if mark else None
    if answer is None:
        raise RecordError(where, "ground_truth", "has no 'A: number' in its last line")
    return fields.record(where, id=id, problem=fields.text(row, where, "question"), answer=answer, source=source)


def math_outputs_problem(row: Any, where: str, *, id: str, source: str = "math") -> Problem:
    """A row of Qwen2.5-Math's evaluation outputs on MATH: `question`, `answer`, `level`, `idx`.

    The answer is as MATH gives it; `gt` is the same in that evaluation's own normal form, which loses units and spaces.

    Raises:
      RecordError: a field is missing or odd.
    """
    row = fields.as_object(row, where)
    return fields.record(
        where,
        id=fields.identity(row, where, source, id, "idx"),
        problem=fields.text(row, where, "question"),
        answer=fields.text(row, where, "answer"),
        source=source,
        level=row.get("level"),
    )
