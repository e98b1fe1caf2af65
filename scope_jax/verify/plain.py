"""What can be checked without algebra: the canonical forms; and what algebra must not be let loose on."""

import re

from scope_jax.verify import forms
from scope_jax.verify.numbers import trim_answer
from scope_jax.verify.result import Result

LONGEST = 500  # characters of an answer that algebra is tried on

# Numbers that would fill the memory before any limit of time: long exponents, towers, factorials of large numbers.
_HOSTILE = re.compile(
    r"\^\s*\{?\s*[-+(]*[0-9]{5,}|\*\*\s*\(?[0-9]{5,}"
    r"|[0-9)}]\s*(?:\^|\*\*)\s*[{(]?\s*[0-9.]+\s*[})]?\s*(?:\^|\*\*)"
    r"|[0-9]{4,}\s*[)}]*\s*!|!\s*[)}]*\s*!"
)
_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_SAME = (
    ("\\dfrac", "\\frac"),
    ("\\tfrac", "\\frac"),
    ("\\left", ""),
    ("\\right", ""),
    ("\\!", ""),
    ("\\,", " "),
    ("\\$", ""),
)


def clean(answer: str) -> str:
    r"""The answer in its plainest spelling: no bold, no `\text{}`, one way to write each thing, single spaces."""
    answer = _TEXT.sub(r"\1", answer.strip(" \t\r\n*"))
    for written, plain in _SAME:
        answer = answer.replace(written, plain)
    answer = " ".join(answer.split())
    trimmed = trim_answer(answer).strip("*")
    return answer if "$" in trimmed else trimmed


def plain_check(answer: str, gold: str) -> Result | None:
    """The verdict, or None where it takes algebra.

    Answers of the forms of `scope_jax.verify.forms` compare by exact value, so `0.333333` is not `1/3`; words compare
    as text, whatever their case.
    """
    given, expected = forms.read(answer), forms.read(gold)
    if not trim_answer(expected.text):
        return Result.unreadable_gold
    same = forms.compare(given, expected)
    if same is not None:
        return Result.right if same else Result.wrong
    if len(given.words) >= 3 and sorted(given.words) == sorted(expected.words):  # equal only as products of letters
        return Result.wrong
    answer, gold = clean(answer), clean(gold)
    if answer == gold:
        return Result.right
    if (":" in answer) != (":" in gold):  # a time or a ratio is no number
        return Result.wrong
    if len(answer) > LONGEST or _HOSTILE.search(answer):
        return Result.timed_out
    if len(gold) > LONGEST or _HOSTILE.search(gold):
        return Result.unreadable_gold
    return None
