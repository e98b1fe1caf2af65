"""GSM8K's layouts as records; its Socratic layout gives real scaffolds.

A solution of the Socratic layout has one line a step and the answer last:

    How many eggs are left? ** There are 16 - 3 = <<16-3=13>>13 eggs left.
    What do they bring? ** They bring 13 * 2 = $<<13*2=26>>26.
    #### 26

How lines become a scaffold:
- The last line is the main question. Its slot is the main answer's, so it is left out.
- A sub-question's answer is the value of its last calculator note `<<expression=value>>`. It is checkable when the
  expression is plain arithmetic that gives exactly this value: a rounded value depends on who rounds (test V).
- A question that a later line asks again counts there only: two answers to one question cannot both be right.
- A sub-question without a checkable value merges into the next one: its text goes before the next question's, and the
  slot asks for the last. Where the next one is the main question, it is left out too.
- A scaffold in which a sub-question shows an answer that the problem does not state is not used (test H).
"""

import dataclasses
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from scope_jax.data.records import Problem, RecordError, SubQuestion, parse_record
from scope_jax.scaffolds.checks import shown_by_sub_questions
from scope_jax.verify.arithmetic import exact_value

_NOTE = re.compile(r"<<([^<>]*)>>")
_NUMBER = re.compile(r"[+-]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:/\d+)?", re.ASCII)


def socratic_problem(row: Any, where: str, *, id: str, source: str = "gsm8k") -> tuple[Problem, str]:
    """The problem of a row in the Socratic layout, with its scaffold.

    Args:
      row: a decoded row, `{"question": ..., "answer": ...}`.
      where: the place it comes from, for messages.
      id: the id that the problem gets.
      source: the data set that the problem names.

    Returns:
      The problem, and why it has no scaffold ("" when it has one).

    Raises:
      RecordError: the row has no such layout, or its final answer is no number.
    """
    question, lines, answer = _split_row(row, where)
    steps = []
    for number, line in enumerate(lines, start=1):
        text, separator, work = line.partition(" ** ")
        if not separator or not text.strip():
            raise RecordError(where, "answer", f"has no 'sub-question ** step' in its line {number}: {line[:60]!r}")
        steps.append((text.strip(), checkable_value(work)))
    scaffold = build_scaffold(steps)
    reason = "" if scaffold else "no step before the last has a checkable value"
    problem = _problem(where, id=id, problem=question, answer=answer, source=source, scaffold=scaffold)
    leak = shown_by_sub_questions(problem)
    if leak:
        problem, reason = dataclasses.replace(problem, scaffold=()), f"{leak}, which the problem does not state"
    return problem, reason


def plain_problem(row: Any, where: str, *, id: str, source: str = "gsm8k") -> Problem:
    """The problem of a row in GSM8K's main layout, which has no sub-questions; arguments and errors as above."""
    question, _, answer = _split_row(row, where)
    return _problem(where, id=id, problem=question, answer=answer, source=source, scaffold=())


def build_scaffold(steps: Sequence[tuple[str, str | None]]) -> tuple[SubQuestion, ...]:
    """A scaffold from the (question, checkable value or None) of every line, by the rules at the top of this file."""
    scaffold: list[SubQuestion] = []
    waiting: list[str] = []
    questions = [question for question, _ in steps]
    for i, (question, value) in enumerate(steps[:-1]):
        if question in questions[i + 1 :]:
            continue
        waiting.append(question if question[-1] in ".?!:" else f"{question}.")
        if value is not None:
            scaffold.append(SubQuestion(" ".join(waiting), value))
            waiting = []
    return tuple(scaffold)


def checkable_value(work: str) -> str | None:
    """The value of a step's last calculator note in plain digits, or None where it cannot be checked exactly."""
    notes = _NOTE.findall(work)
    if not notes:
        return None
    expression, _, value = notes[-1].rpartition("=")
    text = plain_number(value)
    if text is None or exact_value(expression) != Fraction(text):
        return None
    return text


def plain_number(text: str) -> str | None:
    """A number without thousands commas, `$`, padding zeros or plus sign; None where the text is no number.

    >>> plain_number("$1,234.50"), plain_number("16.00"), plain_number("-.5"), plain_number("3/4"), plain_number("x")
    ('1234.5', '16', '-0.5', '3/4', None)
    """
    text = text.strip().replace("\u2212", "-").replace("$", "").removesuffix(".")
    if not _NUMBER.fullmatch(text) or text.endswith("/0"):
        return None
    text = text.replace(",", "").removeprefix("+")
    if "/" in text:
        return text
    sign = "-" if text.startswith("-") else ""
    whole, _, decimals = text.removeprefix("-").partition(".")
    whole, decimals = whole.lstrip("0") or "0", decimals.rstrip("0")
    number = f"{whole}.{decimals}" if decimals else whole
    return number if number == "0" else sign + number


def _split_row(row: Any, where: str) -> tuple[str, list[str], str]:
    """Question, solution lines and final answer of a row in either layout."""
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in ("question", "answer")):
        raise RecordError(where, "", "is no GSM8K row: it must be an object with the texts question and answer")
    solution, separator, final = row["answer"].rpartition("####")
    if not separator:
        raise RecordError(where, "answer", "has no '#### answer' in its last line")
    answer = plain_number(final)
    if answer is None:
        raise RecordError(where, "answer", f"ends in {final.strip()[:60]!r}, which is no number")
    return row["question"].strip(), [line.strip() for line in solution.split("\n") if line.strip()], answer


def _problem(where: str, **fields: Any) -> Problem:
    """Through the record parser, so that a converted problem passes what a loaded one must pass."""
    scaffold = [{"question": step.question, "answer": step.answer} for step in fields.pop("scaffold")]
    return parse_record({**fields, "scaffold": scaffold}, where)
