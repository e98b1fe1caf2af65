"""Layouts with answers in free LaTeX, as Qwen2.5-Math's evaluation publishes them.

Minerva-MATH, college_math, gaokao2023en and OlympiadBench. A row whose answer is not one value is refused.
"""

import re
from typing import Any

from scope_jax.data.layouts import fields
from scope_jax.data.layouts.single import single_answer
from scope_jax.data.records import Problem, RecordError
from scope_jax.verify import extract_answer


def minerva_problem(row: Any, where: str, *, id: str, source: str = "minerva_math") -> Problem:
    r"""A row of Minerva-MATH: `problem`, `solution`, whose last `\boxed{}` is the answer, and `idx`.

    `type`, the course, is left out. Published scores accept rounded numbers; a record has no tolerance.

    Raises:
      RecordError: a field is missing or odd, the problem shows a picture, or the solution has no box that closes.
    """
    row = fields.as_object(row, where)
    problem = fields.text(row, where, "problem")
    fields.refuse_figures(problem, where, "problem")
    solution = fields.text(row, where, "solution")
    answer = extract_answer(solution)
    if "\\boxed{" not in solution or answer is None:
        raise RecordError(where, "solution", "has no last \\boxed{...} that closes and holds something")
    answer = re.sub(r"\$\s*\$", " ", answer)  # a formula broken between two lines
    id = fields.identity(row, where, source, id, "idx")
    return fields.record(where, id=id, problem=problem, answer=answer, source=source)


def college_math_problem(row: Any, where: str, *, id: str, source: str = "college_math") -> Problem:
    """A row of college_math: `question`, `answer`, `data_source` (the book), `question_number`.

    Raises:
      RecordError: a field is missing or odd, or the answer is not one value, see `single.py`.
    """
    row = fields.as_object(row, where)
    if row.get("question_number"):
        book = fields.text(row, where, "data_source").removeprefix("college_math.")
        id = f"{source}-{book}-{fields.text(row, where, 'question_number')}"
    return _question(row, where, id=id, source=source)


def gaokao_problem(row: Any, where: str, *, id: str, source: str = "gaokao2023en") -> Problem:
    """A row of gaokao2023en: `question`, `answer`, and in its later part `id`.

    Raises:
      RecordError: a field is missing, empty or odd, or the answer is not one value, see `single.py`.
    """
    row = fields.as_object(row, where)
    if "solution:" in str(row.get("answer")):
        raise RecordError(where, "answer", f"runs on into a solution: {fields.shown(row['answer'])}")
    return _question(row, where, id=fields.identity(row, where, source, id, "id"), source=source)


def _question(row: dict[str, Any], where: str, *, id: str, source: str) -> Problem:
    problem = fields.text(row, where, "question")
    fields.refuse_figures(problem, where, "question")
    answer = single_answer(fields.text(row, where, "answer"), where, "answer")
    return fields.record(where, id=id, problem=problem, answer=answer, source=source)


def olympiadbench_problem(row: Any, where: str, *, id: str, source: str = "olympiadbench") -> Problem:
    """A row of OlympiadBench's open-ended text problems (arXiv:2402.14008).

    `context`, where there is one, goes before `question`; `final_answer` is a list of one. `unit` is left out, as the
    answer is without it; so is `subfield`.

    Raises:
      RecordError: a field is missing or odd; the problem shows a picture; the answer has several parts, a tolerance or
        is a proof, none of which a record can hold.
    """
    row = fields.as_object(row, where)
    question = fields.text(row, where, "question")
    problem = f"{fields.text(row, where, 'context')}\n\n{question}" if row.get("context") else question
    fields.refuse_figures(problem, where, "question")
    if row.get("error"):
        raise RecordError(where, "error", f"asks for a tolerance of {row['error']}, which a record cannot hold")
    answer = fields.only(row.get("final_answer"), where, "final_answer")
    if row.get("is_multiple_answer"):
        raise RecordError(where, "is_multiple_answer", f"is true; a record has one answer: {fields.shown(str(answer))}")
    answer = single_answer(fields.text({"final_answer": answer}, where, "final_answer"), where, "final_answer")
    return fields.record(
        where,
        id=fields.identity(row, where, source, id, "id"),
        problem=problem,
        answer=answer,
        source=source,
    )
