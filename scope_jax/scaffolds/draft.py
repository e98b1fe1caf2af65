"""A draft of a scaffold: what a language model is asked for, and its reply as sub-questions with their work.

The work of each answer, one equation, is asked for besides: wrong arithmetic shows, and the offline tests P and D see
which earlier answers it takes in. It is not kept in the record.
"""

from typing import Any, NamedTuple

from scope_jax.data.records import Problem, RecordError, parse_record, to_record
from scope_jax.scaffolds.derivations import contradiction
from scope_jax.scaffolds.replies import ReplyError, check_object, read_object

_SYSTEM = """You split mathematics problems into chains of sub-questions that lead a student to the answer step by step.

Rules:
- Between 1 and {most} sub-questions, in the order in which they are solved. Each asks for one intermediate result that
  the solution needs; together they end one step before the problem's own question, which is not one of them.
- Later sub-questions build on the answers of earlier ones, and the last step, to the final answer, uses them.
- Every answer is one bare value that a program can check: an integer, a fraction, a decimal, or a short LaTeX
  expression. No units, no words, no sentences; name the unit in the question.
- No sub-question shows any answer, neither its own nor another one nor the final one. Refer to earlier results by what
  they are ("the number of boxes found above"), never by value. Do not ask for a number that the problem states.
- "work" is one equation that computes the answer exactly, from numbers of the problem and earlier answers written out as
  numbers, for example "16 - 3 - 4 = 9". "main_work" is such an equation for the final answer.

Reply with one JSON object and nothing else:
{{"sub_questions": [{{"question": "...", "work": "...", "answer": "..."}}, ...], "main_work": "..."}}"""


class Draft(NamedTuple):
    """A problem with its drafted scaffold, and the work of every sub-question and, last, of the problem."""

    problem: Problem
    works: tuple[str, ...]


def draft_messages(problem: Problem, max_subs: int, refused: tuple[str, str] | None = None) -> list[dict[str, str]]:
    """The conversation that asks for a draft.

    Args:
      problem: the problem; a scaffold that it has is not looked at.
      max_subs: most sub-questions.
      refused: the reply before this one, and why it was not taken.
    """
    asked = f"Problem:\n{problem.problem}\n\nFinal answer, which no sub-question may show:\n{problem.answer}"
    messages = [{"role": "system", "content": _SYSTEM.format(most=max_subs)}, {"role": "user", "content": asked}]
    if refused:
        reply, reason = refused
        again = f"This was refused: {reason}. Mend it and write the whole JSON object again."
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": again}]
    return messages


def draft_schema() -> dict[str, Any]:
    """JSON schema of a draft, within the subset that endpoints with strict schemas take (no limits of length)."""
    text = {"type": "string"}
    fields = {"question": text, "work": text, "answer": text}
    step = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    whole = {"sub_questions": {"type": "array", "items": step}, "main_work": text}
    return {"type": "object", "properties": whole, "required": list(whole), "additionalProperties": False}


def read_draft(reply: str, problem: Problem, max_subs: int) -> Draft:
    """The draft that a reply holds.

    Raises:
      ReplyError: it is not exactly what was asked for, or its arithmetic contradicts itself or the final answer.
    """
    fields = read_object(reply, ("sub_questions", "main_work"), texts=("main_work",))
    steps = fields["sub_questions"]
    if not isinstance(steps, list) or not 1 <= len(steps) <= max_subs:
        raise ReplyError(f"'sub_questions' must be a list of 1 to {max_subs}")
    for i, step in enumerate(steps, start=1):
        check_object(step, ("question", "work", "answer"), f"sub-question {i}", texts=("question", "work", "answer"))
    # One line each: the prompt numbers them by line.
    scaffold = [{"question": " ".join(step["question"].split()), "answer": step["answer"].strip()} for step in steps]
    try:
        drafted = parse_record(to_record(problem) | {"scaffold": scaffold}, "the reply")
    except RecordError as error:
        raise ReplyError(str(error)) from error
    if len({step.question.lower() for step in drafted.scaffold}) < len(steps):
        raise ReplyError("a sub-question is asked twice")
    works = (*(step["work"] for step in steps), fields["main_work"])
    answers = (*(step.answer for step in drafted.scaffold), problem.answer)
    for i, (work, answer) in enumerate(zip(works, answers, strict=True), start=1):
        name = f"sub-question {i}" if i < len(answers) else "the final answer"
        if not work.strip():
            raise ReplyError(f"the work of {name} is empty")
        wrong = contradiction(work, answer)
        if wrong:
            raise ReplyError(f"the work of {name} is wrong: {wrong}")
    return Draft(drafted, works)
