r"""Quantities in texts: the values that a text states, in digits, LaTeX or words, and what plain arithmetic gives.

| form                  | examples                                | values                                        |
|-----------------------|-----------------------------------------|-----------------------------------------------|
| integer, decimal      | `7` `1,234` `1{,}234` `3.50` `2x` `$5`  | the number                                    |
| fraction              | `3/4` `\frac{3}{4}` `\dfrac34`          | 3/4; as operands also 3 and 4                 |
| percentage            | `50%` `50\%` `50 percent`               | 50; as operands also 1/2                      |
| words                 | `zero` `twenty-five` `three hundred`    | the number; `one` is mostly a pronoun         |
| words with a factor   | `half` `twice` `dozen` `per week`       | as operands only: 2 and 1/2, 2, 12, 7         |
| names, not quantities | `x_1` `x_{12}` `A4` `2nd` `the 10th`    | none                                          |

Signs are left out: `-5` states 5, as a text that shows the one shows the other.
"""

import re
from collections.abc import Iterator
from fractions import Fraction

from scope_jax.verify.arithmetic import exact_value

_DIGIT_WORDS = "zero one two three four five six seven eight nine ten"
_TEEN_WORDS = "eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TEN_WORDS = "twenty thirty forty fifty sixty seventy eighty ninety"
_UNITS = {word: n for n, word in enumerate(f"{_DIGIT_WORDS} {_TEEN_WORDS}".split())}
_TENS = {word: 10 * n for n, word in enumerate(_TEN_WORDS.split(), start=2)}
_MULTIPLIERS = {"hundred": 100, "thousand": 1000, "million": 10**6}
_HALF = Fraction(1, 2)
# Values that a word brings into a calculation without stating them in digits.
FACTORS: dict[str, tuple[Fraction | int, ...]] = {
    "one": (1,),
    "a": (1,),
    "half": (2, _HALF),
    "halves": (2, _HALF),
    "twice": (2,),
    "double": (2,),
    "doubles": (2,),
    "doubled": (2,),
    "both": (2,),
    "couple": (2,),
    "pair": (2,),
    "pairs": (2,),
    "triple": (3,),
    "triples": (3,),
    "tripled": (3,),
    "thrice": (3,),
    "third": (3, Fraction(1, 3)),
    "thirds": (3, Fraction(1, 3)),
    "quarter": (4, Fraction(1, 4)),
    "quarters": (4, Fraction(1, 4)),
    "fourth": (4, Fraction(1, 4)),
    "fifth": (5, Fraction(1, 5)),
    "sixth": (6, Fraction(1, 6)),
    "seventh": (7, Fraction(1, 7)),
    "eighth": (8, Fraction(1, 8)),
    "eighths": (8, Fraction(1, 8)),
    "tenth": (10, Fraction(1, 10)),
    "dozen": (12,),
    "dozens": (12,),
    "percent": (100, Fraction(1, 100)),
    "cents": (100, Fraction(1, 100)),
    "score": (20,),
    "square": (4, 2),
    "average": (2,),
    "minute": (60,),
    "minutes": (60,),
    "hour": (60, 24),
    "hours": (60, 24),
    "day": (24, 7),
    "daily": (7,),
    "days": (24, 7),
    "week": (7, 52),
    "weeks": (7, 52),
    "weekly": (52, 4),
    "month": (12, 30, 4),
    "months": (12, 30, 4),
    "monthly": (12,),
    "year": (12, 52, 365),
    "years": (12, 52, 365),
    "foot": (12, 3),
    "feet": (12, 3),
    "inches": (12,),
    "yard": (3,),
    "yards": (3,),
}

_TIMES = re.compile(r"(?<=\d)\s*[xX]\s*(?=\d)")  # `5 x 10`
_NAMES = re.compile(r"_\{[^{}]*\}|_[A-Za-z0-9]|\b\d+(?:st|nd|rd|th)\b")
_DIGITS = r"\d{1,3}(?:(?:,|\{,\}|\\,)\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    rf"\\[dt]?frac\s*(?:\{{\s*(?P<top>\d+)\s*\}}\s*\{{\s*(?P<bottom>\d+)\s*\}}|(?P<one>\d)(?P<two>\d))"
    rf"|(?<![\w.\\])(?P<number>{_DIGITS})(?:\s*/\s*(?P<under>\d+(?![\d.]))|(?P<percent>\s*\\?%|\s+percent\b))?",
    re.ASCII,
)
_SEPARATORS = re.compile(r",|\{,\}|\\,")
_WORD = re.compile(r"[a-z]+")
_LATEX_OPERATORS = (
    ("\\times", "*"),
    ("\\cdot", "*"),
    ("\\div", "/"),
    ("\u00d7", "*"),
    ("\u00b7", "*"),
    ("\u00f7", "/"),
    ("\\left", ""),
    ("\\right", ""),
    ("\\!", ""),
    ("\\$", ""),
    ("{,}", ""),
    ("\\,", ""),
)
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")


def stated(text: str) -> set[Fraction]:
    """The values that a reader of the text sees, by the table at the top of this file, without signs."""
    return {values[0] for values in _numbers(text)} | _word_values(text)


def operands(text: str) -> set[Fraction]:
    """`stated`, and what may enter a calculation besides: parts of fractions, factors that words stand for."""
    found = {value for values in _numbers(text) for value in values} | _word_values(text)
    words = set(_WORD.findall(text.lower()))
    return found | {Fraction(value) for word in words & FACTORS.keys() for value in FACTORS[word]}


def arithmetic_value(text: str) -> Fraction | None:
    r"""The exact value of plain arithmetic, LaTeX operators and fractions included; None for anything else.

    >>> arithmetic_value(r"\frac{3}{4} \times 8"), arithmetic_value("2x + 1")
    (Fraction(6, 1), None)
    """
    for latex, plain in _LATEX_OPERATORS:
        text = text.replace(latex, plain)
    for _ in range(4):  # fractions of fractions, from the inside
        text = _FRACTION.sub(r"((\1)/(\2))", text)
    listed = re.search(r",(?!\d{3}(?!\d))", text)  # (3,5) is a pair, not thirty-five
    return None if listed or len(text) > 500 else exact_value(text)


def _numbers(text: str) -> Iterator[tuple[Fraction, ...]]:
    """Of every number in digits: its value and then, where it has parts, those."""
    for match in _NUMBER.finditer(_NAMES.sub(" ", _TIMES.sub(" * ", text))):
        if match["number"] is None:
            top, bottom = int(match["top"] or match["one"]), int(match["bottom"] or match["two"])
        else:
            number = Fraction(_SEPARATORS.sub("", match["number"]))
            if match["percent"]:
                yield number, number / 100
                continue
            if match["under"] is None:
                yield (number,)
                continue
            top, bottom = number, int(match["under"])
        if bottom:
            yield Fraction(top, bottom), Fraction(top), Fraction(bottom)


def _word_values(text: str) -> set[Fraction]:
    """Numbers in words, but not a bare "one"."""
    values, words = set(), [*_WORD.findall(text.lower()), "", ""]
    for i, word in enumerate(words[:-2]):
        if word in _TENS:
            unit = _UNITS.get(words[i + 1], 0)
            unit = unit if 0 < unit < 10 else 0
            value, after = _TENS[word] + unit, words[i + 1 + bool(unit)]
        elif word in _UNITS and not (i and words[i - 1] in _TENS):
            value, after = _UNITS[word], words[i + 1]
        else:
            continue
        if after in _MULTIPLIERS or word != "one":
            values.add(Fraction(value * _MULTIPLIERS.get(after, 1)))
    return values
