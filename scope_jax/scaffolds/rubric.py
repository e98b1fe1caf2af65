"""Tests P and D by a chat endpoint with a fixed rubric; the replies are validated, never believed in another form.

The rubric's words are part of a data set's provenance: whoever changes them counts `RUBRIC_VERSION` up.
"""

import json
from collections.abc import Callable
from typing import Any

from scope_jax.data.records import Problem
from scope_jax.scaffolds.checks import too_independent
from scope_jax.scaffolds.replies import ReplyError, check_object, read_object

RUBRIC_VERSION = 1
TRIES = 3  # for one verdict: a malformed reply is asked for again

Ask = Callable[[list[dict[str, str]], dict[str, Any], int], str]  # (messages, schema, try) -> reply

_COMMON = """You check how a mathematics problem was split into sub-questions. You see the problem and its numbered
sub-questions with their answers; the problem's own question is the last one. Do not solve the problem again and do not
correct answers. Judge every numbered question that you are asked about by the rubric, strictly and on its own. Rubric,
version {version}:

{rubric}

Reply with one JSON object and nothing else:
{{"verdicts": [{{"number": 1, "holds": true, "reason": "a few words"}}, ...]}}, one verdict for each question you are
asked about, in order."""
PREREQUISITE = """A sub-question HOLDS if its answer is an intermediate result that a normal solution of the problem
computes and uses later. It FAILS if
- the final answer can be reached by the remaining sub-questions just as well without it;
- its answer is read off the problem's text without any step;
- it only restates, checks or explains something;
- it is the problem's own question in other words."""
DEPENDENCE = """A question HOLDS if answering it takes the answer of at least one question with a smaller number. It
FAILS if it can be answered from the problem's text alone just as directly, without the earlier questions."""
_VERDICTS = {
    "type": "object",
    "properties": {
        "verdicts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "number": {"type": "integer"},
                    "holds": {"type": "boolean"},
                    "reason": {"type": "string"},
                },
                "required": ["number", "holds", "reason"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["verdicts"],
    "additionalProperties": False,
}


def judge_prerequisites(problem: Problem, ask: Ask) -> str | None:
    """P by endpoint: the reason why a sub-question is no prerequisite, None where all are.

    Raises:
      ReplyError: the endpoint gave no valid verdict in `TRIES` tries.
    """
    numbers = range(1, len(problem.scaffold) + 1)
    for number, (holds, reason) in zip(numbers, _verdicts(problem, PREREQUISITE, numbers, ask), strict=True):
        if not holds:
            return f"sub-question {number} is judged to be no prerequisite: {reason}"
    return None


def judge_dependence(problem: Problem, ask: Ask) -> str | None:
    """D by endpoint, over all questions from the second on, the main one included; errors as above."""
    numbers = range(2, len(problem.scaffold) + 2)
    return too_independent([holds for holds, _ in _verdicts(problem, DEPENDENCE, numbers, ask)])


def _verdicts(problem: Problem, rubric: str, numbers: range, ask: Ask) -> list[tuple[bool, str]]:
    main = len(problem.scaffold) + 1
    lines = [f"{i}. {step.question} (answer: {step.answer})" for i, step in enumerate(problem.scaffold, start=1)]
    lines.append(f"{main}. the problem's own question (answer: {problem.answer})")
    wanted = ", ".join(map(str, numbers))
    questions = "\n".join(lines)
    messages = [
        {"role": "system", "content": _COMMON.format(version=RUBRIC_VERSION, rubric=rubric)},
        {"role": "user", "content": f"Problem:\n{problem.problem}\n\nQuestions:\n{questions}\n\nJudge: {wanted}"},
    ]
    for number in range(TRIES):
        reply = ask(messages, _VERDICTS, number)
        try:
            return read_verdicts(reply, numbers)
        except ReplyError as error:
            last = error
    raise ReplyError(f"no valid verdict in {TRIES} tries; the last: {last}") from last


def read_verdicts(reply: str, numbers: range) -> list[tuple[bool, str]]:
    """(holds, reason) of every question in `numbers`, in order.

    Raises:
      ReplyError: the reply is not exactly one verdict for each.
    """
    verdicts = read_object(reply, ("verdicts",))["verdicts"]
    if not isinstance(verdicts, list) or len(verdicts) != len(numbers):
        raise ReplyError(f"'verdicts' must be a list of {len(numbers)}, one for each question asked about")
    found = []
    for number, verdict in zip(numbers, verdicts, strict=True):
        what = f"the verdict on question {number}"
        check_object(verdict, ("number", "holds", "reason"), what, texts=("reason",))
        if type(verdict["number"]) is not int or verdict["number"] != number or type(verdict["holds"]) is not bool:
            raise ReplyError(f"{what} must have this number, and 'holds' true or false: {json.dumps(verdict)[:100]}")
        found.append((verdict["holds"], verdict["reason"]))
    return found
