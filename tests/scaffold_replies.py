"""Chat replies for tests of decomposition: the exact decomposer of the embedded task, and a judge that agrees."""

import json
import re

_DEFINITION = re.compile(r"([a-z])=(\w+)([+-])(\d+)\.")


def chain_of(text: str) -> list[tuple[str, str, int]]:
    """(name, equation, value) of every step of the chain problem in a text."""
    values: dict[str, int] = {}
    steps = []
    for name, left, op, operand in _DEFINITION.findall(text):
        start = values.get(left) if left in values else int(left)
        values[name] = start + int(operand) if op == "+" else start - int(operand)
        steps.append((name, f"{start} {op} {operand} = {values[name]}", values[name]))
    return steps


def problem_of(messages: list[dict[str, str]]) -> str:
    """The problem that a request is about."""
    return messages[1]["content"].removeprefix("Problem:\n").partition("\n\n")[0]


def exact_reply(messages: list[dict[str, str]], schema: dict | None) -> str:
    """The exact scaffold of a chain problem, or, where verdicts are asked for, that everything holds."""
    if "verdicts" in schema["properties"]:
        return verdicts(messages, lambda number: True)
    *steps, (_, main_work, _) = chain_of(problem_of(messages))
    subs = [{"question": f"What is {name}?", "work": work, "answer": str(value)} for name, work, value in steps]
    return json.dumps({"sub_questions": subs, "main_work": main_work})


def verdicts(messages: list[dict[str, str]], holds) -> str:
    """A judge's reply to a request for verdicts; `holds(number)` for each question asked about."""
    numbers = [int(n) for n in messages[1]["content"].rpartition("Judge: ")[2].split(", ")]
    return json.dumps({"verdicts": [{"number": n, "holds": holds(n), "reason": "scripted"} for n in numbers]})
