"""Algebraic comparison of two answers, by math-verify. It may hang: worker processes run it."""

import functools
import logging

import sympy
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

from scope_jax.verify.numbers import parse_number
from scope_jax.verify.plain import clean
from scope_jax.verify.result import Result

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own time limits are off: they need signals


@functools.lru_cache(maxsize=1024)  # one gold answer meets a whole group of completions
def read_expression(answer: str) -> tuple:
    """What math-verify makes of an answer; nothing but text, or empty, if it cannot be read."""
    delimited = any(mark in answer for mark in ("$", "\\(", "\\["))
    text = answer if delimited else f"${answer}$"
    return tuple(parse(text, [LatexExtractionConfig(), ExprExtractionConfig()], parsing_timeout=None))


def symbolic_check(answer: str, gold: str) -> Result:
    """Right, wrong or unreadable gold, for answers that `plain_check` leaves open."""
    answer, gold = clean(answer), clean(gold)
    expected = list(read_expression(gold))
    if all(isinstance(reading, str) for reading in expected):
        return Result.unreadable_gold
    given = list(read_expression(answer))
    if _rounded(answer, given, gold, expected):
        return Result.wrong
    return Result.right if given and verify(expected, given, timeout_seconds=None) else Result.wrong


def _rounded(answer: str, given: list, gold: str, expected: list) -> bool:
    r"""True if one side is a plain number and the other irrational, which math-verify compares to six places only.

    Without this, `6.283185` passes for `2\pi`.
    """
    for number, others in ((answer, expected), (gold, given)):
        irrational = any(isinstance(other, sympy.Expr) and other.is_rational is False for other in others)
        if irrational and parse_number(number) is not None:
            return True
    return False
