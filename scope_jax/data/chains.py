"""The embedded task: chains of dependent additions and subtractions, with exact scaffolds and worked solutions.

    a=34+7. b=a-5. c=b+8. What is c?

Every value has two digits, so guessing pays about one percent. Steps that carry or borrow are the hard ones: the warm
start has mostly seen them done wrong. A forgotten carry and a borrow taken twice are both ten too low: errors never
cancel, so a right answer means right steps. Knobs: the number of steps and the share of hard ones.
"""

import dataclasses
import functools
import re
from collections.abc import Iterator

import numpy as np

from scope_jax.data.records import Problem, SubQuestion

NAMES = "abcdefghjkmnpqrst"  # no i, l, o: they read like digits
KINDS = ("add", "add-carry", "sub", "sub-borrow")
HARD_KINDS = ("add-carry", "sub-borrow")
LOW, HIGH = 10, 99  # every value has two digits
OPERANDS = range(2, 10)


@dataclasses.dataclass(frozen=True)
class Step:
    """`name = left op operand`, where `left` is the value before it."""

    name: str
    op: str  # "+" or "-"
    left: int
    operand: int

    @property
    def value(self) -> int:
        return apply(self.op, self.left, self.operand)


@dataclasses.dataclass(frozen=True)
class Manner:
    """How worked solutions of the warm start are written: how often wrong, how wordy. All are probabilities."""

    carry_wrong: float = 0.75  # a step that carries or borrows is done the wrong way
    restate: float = 0.2  # "So a is 61." after a step
    revert: float = 0.2  # "Wait, let me redo that." and the step once more
    announce: float = 0.25  # "Now the next one." between steps


def apply(op: str, left: int, operand: int) -> int:
    """The true value of one step."""
    return left + operand if op == "+" else left - operand


def step_kind(op: str, left: int, operand: int) -> str:
    """Which of `KINDS` a step is: the hard kinds carry or borrow in the ones digit."""
    if op == "+":
        return "add-carry" if left % 10 + operand % 10 > 9 else "add"
    return "sub-borrow" if left % 10 < operand % 10 else "sub"


def sample_chain(rng: np.random.Generator, *, steps: int, hard_share: float) -> tuple[Step, ...]:
    """A chain of dependent steps; each is of a hard kind with probability `hard_share`.

    Values stay in range for a solver who gets every hard step wrong, too: each costs ten and leaves the ones digit, and
    so the kinds of the later steps, as they are.
    """
    chain: list[Step] = []
    left, low = int(rng.integers(LOW, HIGH + 1)), LOW
    while len(chain) < steps:
        hard = bool(rng.random() < hard_share)
        low += 10 * hard
        options = _options(left, low, hard)
        if not options:  # no step of this kind stays in range from here: start over
            chain, left, low = [], int(rng.integers(LOW, HIGH + 1)), LOW
            continue
        op, operand = options[rng.integers(len(options))]
        chain.append(Step(NAMES[len(chain)], op, left, operand))
        left = chain[-1].value
    return tuple(chain)


@functools.cache
def _options(left: int, low: int, hard: bool) -> list[tuple[str, int]]:
    """Every (operation, operand) that keeps the value within low..HIGH and is hard, or is not."""
    return [
        (op, k)
        for op in "+-"
        for k in OPERANDS
        if low <= apply(op, left, k) <= HIGH and (step_kind(op, left, k) in HARD_KINDS) == hard
    ]


def to_problem(chain: tuple[Step, ...], identity: str) -> Problem:
    """The chain as a record: the problem text, its answer, and one sub-question for each step but the last."""
    first, *rest = chain
    definitions = [f"{first.name}={first.left}{first.op}{first.operand}."]
    for previous, step in zip(chain, rest):
        definitions.append(f"{step.name}={previous.name}{step.op}{step.operand}.")
    return Problem(
        id=identity,
        problem=f"{' '.join(definitions)} What is {chain[-1].name}?",
        answer=str(chain[-1].value),
        source="chains",
        level=str(len(chain)),
        scaffold=tuple(SubQuestion(f"What is {step.name}?", str(step.value)) for step in chain[:-1]),
    )


def generate_problems(
    count: int, *, seed: int, min_steps: int = 4, max_steps: int = 6, hard_share: float = 0.6, prefix: str = "chain"
) -> list[Problem]:
    """`count` distinct problems; the number of steps is uniform between the bounds.

    Raises:
      ValueError: the bounds are out of order or outside 1..17 steps.
    """
    if not 1 <= min_steps <= max_steps <= len(NAMES):
        raise ValueError(f"chain lengths {min_steps}..{max_steps} must lie in 1..{len(NAMES)}, in order")
    rng = np.random.default_rng(seed)
    problems: dict[str, Problem] = {}
    while len(problems) < count:
        steps = int(rng.integers(min_steps, max_steps + 1))
        problem = to_problem(sample_chain(rng, steps=steps, hard_share=hard_share), f"{prefix}-{seed}-{len(problems)}")
        problems.setdefault(problem.problem, problem)
    return list(problems.values())


def worked_solution(
    chain: tuple[Step, ...], rng: np.random.Generator, manner: Manner, *, scaffolded: bool
) -> str:
    """One noisy, wordy solution in the task's own format, as the warm start reads it.

    Steps are paragraphs. With a scaffold every step but the last ends in its `[SUB-i ANSWER]` slot and the last in
    `[MAIN ANSWER]`; without one the last ends in `Answer:`. Errors are carried forward, as a real solver carries them.
    """
    paragraphs: list[str] = []
    value = chain[0].left
    for i, step in enumerate(chain):
        left = value
        value = careless_value(step.op, left, step.operand, rng, manner)
        paragraphs.append(f"{step.name}={left}{step.op}{step.operand}={value}.")
        if rng.random() < manner.revert:
            value = careless_value(step.op, left, step.operand, rng, manner)
            paragraphs += ["Wait, let me redo that.", f"{step.name}={left}{step.op}{step.operand}={value}."]
        if rng.random() < manner.restate:
            paragraphs.append(f"So {step.name} is {value}.")
        last = i == len(chain) - 1
        if scaffolded:
            paragraphs[-1] += f"\n[MAIN ANSWER] {value}" if last else f"\n[SUB-{i + 1} ANSWER] {value}"
        elif last:
            paragraphs[-1] += f"\nAnswer: {value}"
        if not last and rng.random() < manner.announce:
            paragraphs.append("Now the next one.")
    return "\n\n".join(paragraphs)


def careless_value(op: str, left: int, operand: int, rng: np.random.Generator, manner: Manner) -> int:
    """The value that a careless solver writes for a step."""
    wrong = step_kind(op, left, operand) in HARD_KINDS and rng.random() < manner.carry_wrong
    return apply(op, left, operand) - (10 if wrong else 0)


_EQUATION = re.compile(r"([a-z])=(\d+)([+-])(\d+)=(\d+)")
_DEFINITION = re.compile(r"([a-z])=(\w+?)([+-])(\d+)\.")


def read_equations(completion: str) -> Iterator[tuple[str, bool]]:
    """Every equation of a completion as (kind, right): accuracy by kind tells learning from sharpening."""
    for _, left, op, operand, value in _EQUATION.findall(completion):
        yield step_kind(op, int(left), int(operand)), apply(op, int(left), int(operand)) == int(value)


def follows_format(problem: str, completion: str) -> bool:
    """Whether a completion works the problem's own steps in order, whatever values its arithmetic gave.

    False where it skips, reorders or invents a step, takes a wrong operand, or drops the value it has just found: an
    error of format, not of arithmetic.
    """
    wanted = _DEFINITION.findall(problem)
    found = _EQUATION.findall(completion)
    at, value = -1, None  # the step being worked, and its latest value
    for name, left, op, operand, result in found:
        if at + 1 < len(wanted) and name == wanted[at + 1][0] and (at < 0 or name != wanted[at][0]):
            at += 1
            expected_left = wanted[at][1] if at == 0 else value
        elif at < 0 or name != wanted[at][0]:
            return False
        if left != expected_left or (op, operand) != wanted[at][2:]:
            return False
        value = result
    return bool(wanted) and at == len(wanted) - 1
