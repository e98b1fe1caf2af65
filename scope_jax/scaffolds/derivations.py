"""How each answer of a scaffold comes about: what of the earlier answers it takes in. No model, no judge.

Three sources, the first that is there:
- *work*: the equation that came with the sub-question (`<<16-3=13>>`, `\\frac{12}{2} = 6`). It uses an earlier answer
  if it shows its value, or its text where it is no plain number, anywhere but in its own result.
- *definition*: the problem itself defines what is asked, by name (`a=34+7. b=a-5. What is b?`).
- *search*: neither is there, so one operation + - * / or, where none will do, two, that lead from the values stated in
  the problem, the factors its words stand for and the earlier answers to this one; and sums of three or more earlier
  answers, alone or with one stated value. All such ways count.

What this sees and what not:
- Work is taken at its word. It shows that an answer was used, not that it had to be.
- Equal values are not told apart: 4 boxes and a sub-answer 4 look alike, in favour of the scaffold.
- A search finds ways that nobody went, and misses the one that was where a shorter one is there by chance: it proves
  little where a problem states many small numbers. It sees no algebra, no powers and no geometry: such answers are
  "unseen", and count as using nothing. On scaffolds of GSM8K it agrees with the notes of the solutions on 87% of the
  later questions; of foreign sub-questions put in by chance it sees seven of ten.
"""

import itertools
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from scope_jax.data.records import Problem
from scope_jax.scaffolds.quantities import arithmetic_value, operands
from scope_jax.verify.numbers import parse_number
from scope_jax.verify.plain import clean

MOST_TERMS = 8  # of the earlier answers, the latest ones, that a sum is tried over

_NOTE = re.compile(r"<<([^<>]*)>>")
_OPERATOR = re.compile(
    r"[+*/^\u00d7\u00b7\u00f7\u2212\u221a!]|\S\s*-|\\(?:[dt]?frac|times|cdot|div|sqrt|d?binom|pm)(?![a-z])|\bmod\b"
)
_SENTENCE_END = re.compile(r"(?<=[.?!;])\s+")
_DEFINITION = re.compile(r"(?<![A-Za-z_\\])([A-Za-z])\s*=\s*([^=.;,?$]+)")
_NAME = re.compile(r"(?<![A-Za-z_\\'])[A-Za-z](?![A-Za-z'])")


class Derivation(NamedTuple):
    """How one answer comes about."""

    uses: frozenset[int]  # earlier sub-questions, counted from 0, whose answers it takes in
    computed: bool  # something is done to the quantities; False where a value is only copied, or nothing is seen
    source: str  # "work", "definition", "search" or "unseen"


def derivations(problem: Problem, works: Sequence[str] | None = None) -> tuple[Derivation, ...]:
    """The derivation of every sub-answer and, last, of the final answer.

    Args:
      problem: with its scaffold.
      works: the work of every sub-question and, last, of the problem; empty texts and None where there is none.

    Raises:
      ValueError: there are not as many works as answers.
    """
    main_question = _SENTENCE_END.split(problem.problem.strip())[-1]
    questions = [*(step.question for step in problem.scaffold), main_question]
    answers = [*(step.answer for step in problem.scaffold), problem.answer]
    works = [""] * len(answers) if works is None else list(works)
    if len(works) != len(answers):
        raise ValueError(f"{len(works)} works for {len(answers)} answers, the final one included")
    defined = {name: text for name, text in _DEFINITION.findall(problem.problem) if _OPERATOR.search(text)}
    asked = [_asked(question, defined) for question in questions]
    given = operands(problem.problem)
    found = []
    for j, answer in enumerate(answers):
        if works[j].strip():
            found.append(from_work(works[j], answers[:j]))
        elif asked[j]:
            names = set(_NAME.findall(defined[asked[j]]))
            found.append(Derivation(frozenset(i for i in range(j) if asked[i] in names), True, "definition"))
        else:
            found.append(from_search(answer, answers[:j], given))
    return tuple(found)


def from_work(work: str, earlier: Sequence[str]) -> Derivation:
    """What an equation takes in of the earlier answers; its own result, behind the last `=`, does not count."""
    notes = _NOTE.findall(work)
    parts = [part.rpartition("=")[0] or part for part in notes or [work]]
    text = clean(" ; ".join(parts))
    values, squeezed = operands(text), squeeze(text)
    uses = frozenset(i for i, answer in enumerate(earlier) if _shows(values, squeezed, answer))
    return Derivation(uses, bool(_OPERATOR.search(text)), "work")


def contradiction(work: str, answer: str) -> str | None:
    """Why plain arithmetic in a work does not give the answer; None where it does, or is not plain arithmetic.

    Exactly: a rounded value depends on who rounds.
    """
    for equation in _NOTE.findall(work) or re.split(r";|\n", work):
        sides = [(side.strip(), arithmetic_value(side)) for side in equation.split("=")]
        plain = [(text, value) for text, value in sides if value is not None]
        for (left, a), (right, b) in zip(plain, plain[1:]):
            if a != b:
                return f"{left} is not {right}"
    number, (end, value) = parse_number(clean(answer)), sides[-1]
    # `2x + 1 = 15` is an equation to solve: its right side is not the answer.
    is_result = len(sides) == 1 or sides[-2][1] is not None or not re.search(r"\d", sides[-2][0])
    if is_result and None not in (number, value) and value != number:
        return f"the work ends in {end}, the answer is {answer}"
    return None


def from_search(answer: str, earlier: Sequence[str], given: set[Fraction]) -> Derivation:
    """What the shortest arithmetic ways to an answer take in of the earlier answers."""
    target = parse_number(clean(answer))
    known = [(i, parse_number(clean(text))) for i, text in enumerate(earlier)]
    leaves = [(value, frozenset()) for value in sorted(given)]
    leaves += [(value, frozenset([i])) for i, value in known if value is not None]
    if target is None:
        return Derivation(frozenset(), False, "unseen")
    pairs: dict[Fraction, list[tuple[int, int]]] = {}
    for a, b in itertools.combinations(range(len(leaves)), 2):
        for value in _results(leaves[a][0], leaves[b][0]):
            pairs.setdefault(value, []).append((a, b))
    ways = {leaves[a][1] | leaves[b][1] for a, b in pairs.get(target, ())}
    if not ways:
        ways = {
            uses | leaves[a][1] | leaves[b][1]
            for c, (x, uses) in enumerate(leaves)
            for need in _needs(target, x)
            for a, b in pairs.get(need, ())
            # A value may be used twice, 96 - 96 / 8, but not put in and taken out again, 10 + 2 - 2.
            if c not in (a, b) or leaves[a if c == b else b][0] != target
        }
    ways |= _sums(target, [(i, value) for i, value in known if value is not None][-MOST_TERMS:], given)
    if not ways:
        return Derivation(frozenset(), False, "unseen")
    return Derivation(frozenset().union(*ways), True, "search")


def _sums(target: Fraction, known: list[tuple[int, Fraction]], given: set[Fraction]) -> set[frozenset[int]]:
    """The earlier answers, three or more, whose sum is the target or differs from it by a stated value."""
    chosen = itertools.chain.from_iterable(itertools.combinations(known, n) for n in range(3, len(known) + 1))
    totals = ((frozenset(i for i, _ in terms), sum(value for _, value in terms)) for terms in chosen)
    return {uses for uses, t in totals if t == target or abs(t - target) in given or t + target in given}


def _results(x: Fraction, y: Fraction) -> set[Fraction]:
    """What one operation makes of two values. Nothing times, over or plus nothing new is no step."""
    values = {x + y, x - y, y - x} if x and y else set()
    if x not in (0, 1) and y not in (0, 1):
        values |= {x * y, x / y, y / x}
    return values


def _needs(target: Fraction, x: Fraction) -> set[Fraction]:
    """The values from which one operation with x leads to the target."""
    values = {target - x, target + x, x - target} if x else set()
    if x not in (0, 1):
        values |= {target / x, target * x}
        values |= {x / target} if target else set()
    return values


def _asked(question: str, defined: dict[str, str]) -> str:
    """The defined name that a question asks for: its last one; "" where it has none."""
    names = [name for name in _NAME.findall(question) if name in defined]
    return names[-1] if names else ""


def _shows(values: set[Fraction], squeezed: str, answer: str) -> bool:
    number = parse_number(clean(answer))
    return abs(number) in values if number is not None else contains(squeezed, squeeze(clean(answer)))


def contains(text: str, part: str) -> bool:
    """Whether a squeezed text holds another one that does not begin or end inside a word or a number."""
    if not part:
        return False
    before = r"(?<![A-Za-z0-9\\])" if part[0].isalnum() else ""
    after = r"(?![A-Za-z0-9])" if part[-1].isalnum() else ""
    return re.search(f"{before}{re.escape(part)}{after}", text) is not None


def squeeze(text: str) -> str:
    """The text in small letters, without dollars and without the spaces that mean nothing in a formula."""
    return " ".join(re.sub(r"\s*([^\w\s])\s*", r"\1", text.replace("$", " ").lower()).split())
