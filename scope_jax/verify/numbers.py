r"""Plain numbers in answers, by exact value: the forms that the device reads too.

| form                               | examples                                             |
|------------------------------------|------------------------------------------------------|
| integer, thousands commas allowed  | `7` `007` `+5` `-0` `1,234`                          |
| decimal                            | `3.50` `.5` `-1,234.5`                               |
| fraction of two integers           | `-3/4` `\frac{3}{4}` `\dfrac{-3}{4}` `-\tfrac{3}{4}` |

Around it, spaces, line breaks and `$` are dropped on both sides, and periods on the right. The sign is `+`, `-` or the
Unicode minus.
"""

import re
from fractions import Fraction

OUTSIDE = " \t\r\n$"  # dropped around an answer; periods too, on the right
LONGEST = 1000  # characters; longer digit strings are no plain numbers

_SIGN = r"(?P<sign>[+\-\u2212]?)"
_DECIMAL = re.compile(_SIGN + r"(?P<whole>[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]*)(?P<places>\.[0-9]+)?")
_FRACTIONS = (
    re.compile(_SIGN + r"(?P<minus>)(?P<top>[0-9]+)/(?P<bottom>[0-9]+)"),
    re.compile(_SIGN + r"\\[dt]?frac\{(?P<minus>-?)(?P<top>[0-9]+)\}\{(?P<bottom>[0-9]+)\}"),
)


def trim_answer(text: str) -> str:
    """The answer without what stands around it."""
    return text.strip(OUTSIDE).rstrip(OUTSIDE + ".")


def parse_number(text: str) -> Fraction | None:
    """The exact value of a plain number of any size; None for every other text, a zero denominator included."""
    text = trim_answer(text)
    if len(text) > LONGEST:
        return None
    match = _DECIMAL.fullmatch(text)
    if match and (match["whole"] or match["places"]):
        value = Fraction((match["whole"].replace(",", "") or "0") + (match["places"] or ""))
        return value if match["sign"] in ("", "+") else -value
    for pattern in _FRACTIONS:
        match = pattern.fullmatch(text)
        if match and int(match["bottom"]):
            value = Fraction(int(match["top"]), int(match["bottom"]))
            return value if (match["sign"] in ("", "+")) != bool(match["minus"]) else -value
    return None
