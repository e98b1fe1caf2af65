r"""Is an answer that was copied from a textbook one value to compare with?

| refused       | because                                                              | example                 |
|---------------|----------------------------------------------------------------------|-------------------------|
| cut off       | a dollar sign or a brace has no partner, or an operator stands last  | `-3 b^{4}-`             |
| a sentence    | four or more words around formulas, five or more without one         | `The area is $4$ feet.` |
| several parts | several formulas or relations, parts divided by `;`, "or", "and", a  | `$x=1$ or $x=2$`        |
|               | relation and its interval                                            | `x<7:(-\infty, 7)`      |
| a derivation  | a chain of two or more equals signs                                  | `i^4=(i^2)^2=1`         |

A plain list such as `$-6,-8$` passes, as do words such as "no solution": the verifier compares them.
"""

import re

from scope_jax.data.layouts.fields import shown
from scope_jax.data.records import RecordError

_AMOUNT = re.compile(r"\$[0-9][0-9,]*(?:\.[0-9]+)?")
_FORMULA = re.compile(r"(?<!\\)\$((?:[^$\\]|\\.)*)\$", re.DOTALL)
_SPACES = re.compile(r"\\[,;:!\s]|\\q?quad(?![a-zA-Z])")
_WORD = re.compile(r"\\(?:text|mathrm|mbox)\s*\{\s*(or|and)[\s,]*\}")
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_DIVIDER = re.compile(r";|:(?=\s*(?:\\left)?\s*[\[(])|\b(?:or|and)\b")
_RELATION = re.compile(r"=|<|>|\\(?:leq?|geq?|leqslant|geqslant|approx|neq?)(?![a-zA-Z])")
_BRACKETS = {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}


def single_answer(answer: str, where: str, field: str) -> str:
    """The answer without the dollar signs around it.

    Raises:
      RecordError: it is none, by the table above.
    """
    found = answer.strip()
    if _AMOUNT.fullmatch(found):
        return found
    found = found.removesuffix(".").rstrip() if found.endswith("$.") else found
    formulas = list(_FORMULA.finditer(found))
    outside = _FORMULA.sub(" ", found)
    fault = _fault(found, outside, len(formulas))
    if fault:
        raise RecordError(where, field, f"{fault}: {shown(answer)}")
    return formulas[0][1].strip() if formulas and formulas[0].span() == (0, len(found)) else found


def _fault(answer: str, outside: str, formulas: int) -> str:
    """What is wrong with an answer, or ""."""
    bare = re.sub(r"\\[^a-zA-Z]", "  ", answer)
    if "$" in re.sub(r"\\\$", "", outside):
        return "is cut off: a dollar sign has no partner"
    if bare.count("{") != bare.count("}"):
        return "is cut off: a brace has no partner"
    if re.search(r"(?:[-+*/=^_]|\\)[\s$]*$", answer) and not re.search(r"\\[-+*/=^_]$", answer):
        return "is cut off: nothing follows its last sign"
    words = re.findall(r"[A-Za-z]{2,}", _COMMAND.sub(" ", outside))
    if len(words) >= (4 if formulas else 5):
        return "is a sentence, not one value"
    if formulas > 1 or (formulas and "," in outside):
        return "has several parts, and a record has one value"
    top = _outside_brackets(_WORD.sub(r" \1 ", _SPACES.sub(" ", answer)))
    parts = top.split(",")
    if _DIVIDER.search(top) or sum(bool(_RELATION.search(part)) for part in parts) > 1:
        return "has several parts, and a record has one value"
    if any(part.count("=") > 1 for part in parts):
        return "is a derivation, not one value"
    return ""


def _outside_brackets(answer: str) -> str:
    """The answer with a space in place of every sign inside brackets. Half-open intervals close as any bracket does."""
    depth, kept = 0, []
    for sign in answer.replace("\\{", "{ ").replace("\\}", "} "):
        depth = max(0, depth - (_BRACKETS.get(sign) == -1))
        kept.append(sign if depth == 0 else " ")
        depth += _BRACKETS.get(sign) == 1
    return "".join(kept)
