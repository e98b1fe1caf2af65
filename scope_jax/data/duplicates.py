r"""Problems that are the same but for their writing, within a set and between a training and an evaluation set.

Two problems are the same when their normal forms are equal. A normal form has no case, no white space, no punctuation
between words, no dollar signs and no LaTeX that only spaces, sizes or sets type; `\dfrac` and `\tfrac` are `\frac`.
Everything with a meaning stays: digits, decimal points, operators, brackets, factorials, primes.
"""

import collections
import re
import unicodedata
from collections.abc import Iterable, Sequence

from scope_jax.data.records import Problem
from scope_jax.verify.plain import plain_check
from scope_jax.verify.result import Result

_RAISED = {ord(raised): f"^{plain}" for raised, plain in zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True)}
_WRITTEN = {  # Unicode signs as LaTeX writes them
    **{ord(dash): "-" for dash in "\u2010\u2011\u2012\u2013\u2014\u2212"},
    **{ord(sign): f" {command} " for sign, command in zip("≤≥≠×÷·π∞°√", (
        "\\le", "\\ge", "\\ne", "\\times", "\\div", "\\cdot", "\\pi", "\\infty", "\\circ", "\\sqrt"
    ), strict=True)},
}  # fmt: skip
_SAME = {"\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\cfrac": "\\frac", "\\leq": "\\le", "\\leqslant": "\\le"}
_SAME |= {"\\geq": "\\ge", "\\geqslant": "\\ge", "\\neq": "\\ne", "\\lbrace": "\\{", "\\rbrace": "\\}", "\\%": "%"}
_EMPTY = frozenset(
    "\\left \\right \\big \\bigg \\displaystyle \\textstyle \\quad \\qquad \\text \\textbf \\textit \\textrm \\mathrm "
    '\\mathbf \\mathit \\operatorname \\mbox \\limits \\, \\; \\: \\! \\( \\) \\[ \\] \\$ \\\\ $ ~ * " “ ” '
    "` , . ; : ? ‘ ’".split()
) | {"\\ ", "\\\n"}  # a star is Markdown's; LaTeX multiplies otherwise
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]*\.[0-9]+|[0-9]+|[^\W\d_]+|\S", re.DOTALL)
_SINGLE = re.compile(r"\{ (\S+) \}")


def normal_form(problem: str) -> str:
    r"""The text by which problems are compared; tokens are divided by single spaces.

    >>> normal_form("Find $x^{2} + 1$, please!") == normal_form("find x^2+1 please")
    True
    """
    text = unicodedata.normalize("NFKC", problem.translate(_RAISED).translate(_WRITTEN)).casefold()
    found = [_SAME.get(token, token) for token in _TOKEN.findall(text) if token not in _EMPTY]
    kept = [
        token.replace(",", "") if token[0].isdigit() else token
        for before, token, after in zip(["", *found], found, [*found[1:], ""])
        if not _is_punctuation(token, before, after)
    ]
    return _SINGLE.sub(r"\1", " ".join(kept))


def _is_punctuation(token: str, before: str, after: str) -> bool:
    """For signs that are punctuation in words and operators in formulas."""
    if token == "!":  # of a number, a letter or a bracket it is a factorial
        return not (before.isdigit() or before == ")" or (len(before) == 1 and before.isalpha()))
    if token == "'":  # of a letter or another prime it is a prime
        return not (before == "'" or (len(before) == 1 and before.isalpha()))
    if token == "-":  # between words it is a hyphen or a dash
        return len(before) > 1 and before.isalpha() and len(after) > 1 and after.isalpha()
    return False


def duplicate_groups(problems: Sequence[Problem]) -> list[list[int]]:
    """Positions of problems that are the same, a list for each problem that stands there more than once."""
    places = collections.defaultdict(list)
    for i, problem in enumerate(problems):
        places[normal_form(problem.problem)].append(i)
    return [group for group in places.values() if len(group) > 1]


def answers_agree(first: str, second: str) -> bool:
    """Whether two answers are the same text or the same value (`verify.forms`); what takes algebra to tell counts as different."""
    return normal_form(first) == normal_form(second) or plain_check(first, second) is Result.right


def index_problems(problems: Iterable[Problem], name: str) -> dict[str, str]:
    """The normal forms of a set of problems, each with the words that name its place: the set and the id."""
    return {normal_form(problem.problem): f"{name} ({problem.id})" for problem in problems}
