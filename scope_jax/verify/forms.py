r"""Answers in canonical form: what the common written forms mean, exactly. The device reads the same forms.

| form                        | read as                                    | examples                                       |
|-----------------------------|--------------------------------------------|------------------------------------------------|
| integer, decimal            | exact value                                | `7` `007` `+5` `-0` `3.50` `.5`                |
| thousands separators        | one number, if all groups have 3 digits    | `1,234` `1{,}234` `1\,234`                     |
| fraction                    | exact value                                | `3/4` `\frac{3}{4}` `-\dfrac34` `\frac{x}{2}`  |
| mixed number                | sum                                        | `2\frac{1}{3}` `2 1/3`                         |
| root of a whole number      | square-free radicand                       | `\sqrt{8}` `3\sqrt{2}` `\frac{1}{\sqrt{2}}`    |
| pi, infinity, variables     | symbols; powers up to 7                    | `2\pi` `\frac{\pi}{4}` `-\infty` `x^2` `3+4i`  |
| sum                         | up to 4 terms, in any order                | `1+\sqrt{5}` `10-4n`                           |
| percent                     | the number; `50\%` is `50` and also `0.5`  | `50\%` `50%`                                   |
| unit, degree, currency      | the number; two different units: not read  | `5 cm` `5\text{ cm}^2` `90^\circ` `\$5`        |
| tuple, interval             | elements in order                          | `(1,2)` `\left[0,\infty\right)`                |
| set, list without brackets  | elements in any order                      | `\{1,2\}` `1, 2`                               |
| equation with one letter    | its right side                             | `x = 5`                                        |
| words, option letters       | letters, whatever their case               | `\text{Friday}` `(A)` `\textbf{B}`             |

Around it, spaces, `$`, `\(`, `\)`, `*` and closing punctuation are dropped; inside it, spaces, `\left`, `\right`, `\!`
and the like. What is not of these forms is not read, and never guessed.
"""

import dataclasses
import re
from fractions import Fraction

FRAC, SQRT, PI, INFINITY, PERCENT, SET_OPEN, SET_CLOSE, TEXT, TEXT_END, GROUP = map(chr, range(1, 11))
LONGEST = 400  # characters; longer answers are not read
TERMS, ELEMENTS, POWER = 4, 8, 7  # most terms of a sum, elements of a list, and highest power

# (what is written, what it becomes), the first that fits; "" is dropped.
SPELLINGS = (
    (r"\\[dtc]?frac(?![a-zA-Z])", FRAC),
    (r"\\sqrt(?![a-zA-Z])|√", SQRT),
    (r"\\pi(?![a-zA-Z])|π", PI),
    (r"\\infty(?![a-zA-Z])|∞", INFINITY),
    (r"\\?%", PERCENT),
    (r"\\\{", SET_OPEN),
    (r"\\\}", SET_CLOSE),
    (r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\{([^{}]*)(?<!\\)\}", TEXT),
    (r"\{,\}|,\\!(?=[0-9])|(?<=[0-9])\\,(?=[0-9])", GROUP),
    (r"\u2212", "-"),
    (r"\^(?:\{\\circ\}|\\circ(?![a-zA-Z]))|°|\\\$", ""),
    (r"\\(?:left|right|displaystyle|quad)(?![a-zA-Z])|\\[!,;: ()]|[ \t\r\n\f\v~$]", ""),
    (r"[\x00-\x1f]", "\x7f"),  # control characters stand for nothing but the codes above
)
_SPELLING = re.compile("|".join(f"(?P<s{i}>{pattern})" for i, (pattern, _) in enumerate(SPELLINGS)))
_GAP = "\x0b"  # something was dropped between two digits, or before three digits that follow a comma
_THREE = re.compile(r"[0-9]{3}(?![0-9])")

SHORT_UNITS = ("cm", "mm", "km", "kg", "mg", "ml", "mL", "ft", "in", "lb", "oz", "hr", "mi", "yd", "pm", "am")
# Words behind a number that change it, and so are no unit.
NUMERALS = (
    "hundred", "thousand", "million", "billion", "trillion", "dozen", "percent", "half", "halves", "third", "quarter",
    "squared", "cubed", "factorial", "over", "times", "plus", "minus", "and",
)  # fmt: skip
_POWER = r"\^(?:[23]|\{[23]\})"
_UNIT = re.compile(
    rf"(?:(?:{TEXT}[a-zA-Z./]*{TEXT_END}|(?<=[0-9}}])(?:{'|'.join(SHORT_UNITS)}))(?:{_POWER})?|(?<=[0-9}}])[a-zA-Z]{{3,}})$"
)
_LETTERS = re.compile("[a-zA-Z'-]+")
_GROUPED = re.compile(r"[1-9][0-9]{0,2}(?:[,\x0a][0-9]{3})+(?![0-9])")

Key = tuple[int, tuple[tuple[str, int], ...]]  # radicand, (symbol, power) of each symbol
Element = frozenset[tuple[Key, Fraction]]  # coefficient of each term


class _Unread(Exception):
    """The text is not of the forms of this file."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """One answer, read."""

    text: str  # canonical spelling; equal spellings mean the same
    elements: tuple[Element, ...] = ()  # empty: not read as mathematics
    brackets: str = ""  # "()", "[)", ... or "{}"; of one element in round ones, none
    percent: bool = False
    unit: str = ""
    name: str = ""  # of the variable, in `x = 5`
    grouped: bool = False  # a comma was read as a thousands separator
    letters: frozenset[str] = frozenset()  # the variables in it
    words: str = ""  # letters in lower case, where there is nothing else


def read(answer: str) -> Reading:
    """The answer in canonical form, read as far as it is of the forms above."""
    if len(answer) > LONGEST:
        return Reading(answer)
    text = canonical(answer)
    body, unit, name, percent = text, "", "", False
    words = _words(body)
    named = re.match(r"([a-zA-Z])=(?!.*=)", body)
    if named:
        name, body = named[1], body[2:]
    if body.startswith(TEXT) and body.find(TEXT_END) == len(body) - 1:  # the whole answer is set as text
        body = body[1:-1]
    if body.endswith(PERCENT):
        percent, body = True, body[:-1]
    found = _UNIT.search(body)
    if found and found.start() > 0:
        unit = re.sub(r"[^a-z0-9]", "", found[0].lower())
        body = "" if any(word in unit for word in NUMERALS) else body[: found.start()]
    reading = Reading(text, percent=percent, unit=unit, name=name, words=words)
    try:
        brackets, elements, grouped = _read_list(body)
    except _Unread:
        return reading
    letters = frozenset(re.findall("[a-zA-Z]", body))
    return dataclasses.replace(reading, brackets=brackets, elements=elements, grouped=grouped, letters=letters)


def compare(answer: Reading, gold: Reading) -> bool | None:
    """Whether two readings mean the same; None where that is not certain."""
    if answer.text == gold.text and gold.text:
        return True
    if len(answer.words) == len(gold.words) == 1:  # option letters
        return answer.words == gold.words
    if answer.words and gold.words and max(len(answer.words), len(gold.words)) >= 3:
        if answer.words == gold.words:
            return True
        # As algebra, words are products of letters; letters in another order may be equal.
        return None if sorted(answer.words) == sorted(gold.words) else False
    if not answer.elements or not gold.elements:
        return None
    if answer.letters != gold.letters or (answer.unit and gold.unit and answer.unit != gold.unit):
        return None
    if answer.name and gold.name and answer.name != gold.name:
        return None
    if answer.percent != gold.percent:
        return _compare_percent(*((answer, gold) if answer.percent else (gold, answer)))
    return _compare_lists(answer, gold)


def _compare_percent(percent: Reading, plain: Reading) -> bool | None:
    if len(percent.elements) != 1 or len(plain.elements) != 1 or percent.brackets or plain.brackets:
        return None
    hundredth = frozenset((key, value / 100) for key, value in percent.elements[0])
    return plain.elements[0] in (percent.elements[0], hundredth)


def _compare_lists(answer: Reading, gold: Reading) -> bool | None:
    a, b = answer.elements, gold.elements
    if "{" in answer.brackets + gold.brackets or not (answer.brackets and gold.brackets):
        if answer.brackets != gold.brackets:
            return None
        if len(a) == len(b) == 1:
            return a == b
        if answer.grouped or gold.grouped:  # `1,234` may be a list of two
            return None
        if len(set(a)) != len(a) or len(set(b)) != len(b):
            return True if a == b else None
        return set(a) == set(b)
    return answer.brackets == gold.brackets and a == b


def canonical(answer: str) -> str:
    """The answer with one spelling for each thing: commands as single characters, nothing that only spaces out."""
    return _spell(answer).lstrip("*").rstrip(".,;*")


def _spell(answer: str) -> str:
    out: list[str] = []
    place, dropped = 0, False
    while place < len(answer):
        found = _SPELLING.match(answer, place)
        if found is None:
            plain = answer[place]
            place += 1
        else:
            number = int(found.lastgroup[1:]) if found.lastgroup else 0
            plain = SPELLINGS[number][1]
            if plain == TEXT:
                inner = next(group for group in found.groups()[number + 1 :] if group is not None)
                plain = TEXT + _spell(inner) + TEXT_END
            place = found.end()
        if not plain:
            dropped = True
            continue
        if dropped and out and plain.isdigit():
            if out[-1].isdigit() or (out[-1] == "," and _THREE.match(answer, place - 1)):
                out.append(_GAP)
        out.append(plain)
        dropped = False
    return "".join(out)


def _words(text: str) -> str:
    """Its letters in lower case, if there is nothing else but word marks and perhaps round brackets around."""
    text = text.replace(TEXT, "").replace(TEXT_END, "")
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    if not _LETTERS.fullmatch(text):
        return ""
    return re.sub(r"[^a-z]", "", text.lower())


def _read_list(text: str) -> tuple[str, tuple[Element, ...], bool]:
    brackets = ""
    if text and text[0] in f"([{SET_OPEN}" and text[-1] in f")]{SET_CLOSE}":
        brackets = text[0] + text[-1]
        if (SET_OPEN in brackets) != (SET_CLOSE in brackets):
            raise _Unread
        brackets = brackets.replace(SET_OPEN, "{").replace(SET_CLOSE, "}")
        text = text[1:-1]
    parser = _Parser(text, inside=bool(brackets))
    elements = [parser.element()]
    while parser.next == ",":
        parser.take()
        if parser.next == _GAP:  # `1, 234` is a list
            parser.take()
        elements.append(parser.element())
    if parser.next or len(elements) > ELEMENTS:
        raise _Unread
    if brackets == "()" and len(elements) == 1:
        brackets = ""
    return brackets, tuple(elements), parser.grouped


class _Parser:
    """Recursive descent over canonical text."""

    def __init__(self, text: str, *, inside: bool):
        self.text, self.place, self.inside, self.grouped = text, 0, inside, False

    @property
    def next(self) -> str:
        return self.text[self.place : self.place + 1]

    def take(self, wanted: str = "") -> str:
        found = self.next
        if not found or (wanted and found not in wanted):
            raise _Unread
        self.place += 1
        return found

    def element(self) -> Element:
        terms = self.sum()
        total: dict[Key, Fraction] = {}
        for key, value in terms:
            total[key] = total.get(key, Fraction(0)) + value
        return frozenset((key, value) for key, value in total.items() if value)

    def sum(self) -> list[tuple[Key, Fraction]]:
        terms: list[tuple[Key, Fraction]] = []
        sign = self.sign()
        while True:
            terms += [(key, sign * value) for key, value in self.term()]
            if not self.next or self.next not in "+-":
                break
            sign = 1 if self.take() == "+" else -1
        if len(terms) > TERMS:
            raise _Unread
        return terms

    def sign(self) -> int:
        if self.next and self.next in "+-":
            return 1 if self.take() == "+" else -1
        return 1

    def term(self) -> list[tuple[Key, Fraction]]:
        """A product of a number, fractions, roots and symbols; several terms for a fraction with a sum on top."""
        value, radicand, symbols = Fraction(1), 1, {}
        factors = 0
        while self.next:
            if self.next.isascii() and (self.next.isdigit() or self.next == "."):
                if factors:
                    raise _Unread
                number = self.number()
                if self.next == FRAC or self.next == _GAP:
                    return self.times(self.mixed(number), {}) if self.next == FRAC else self.times(self.gap(number), {})
                value *= number
            elif self.next == FRAC:
                if factors:
                    raise _Unread
                top, bottom, root = self.fraction()
                terms = [_divide(term, bottom, root) for term in top]
                if len(terms) > 1:
                    return terms
                ((radicand, found), value) = terms[0]
                symbols = dict(found)
            elif self.next == SQRT:
                self.take()
                value, radicand = _simplify(value, radicand * self.small_argument())
            elif self.next.isascii() and self.next.isalpha() or self.next in (PI, INFINITY):
                symbol = self.take()
                symbols[symbol] = symbols.get(symbol, 0) + self.power()
            elif self.next == "/":
                if not factors:
                    raise _Unread
                self.take()
                bottom = self.digits()
                if not bottom or (self.next and self.next not in "+-,"):
                    raise _Unread
                value /= bottom
                break
            else:
                break
            factors += 1
        if not factors:
            raise _Unread
        return [(_key(radicand, symbols), value)]

    def times(self, value: Fraction, symbols: dict) -> list[tuple[Key, Fraction]]:
        """A mixed number stands alone in its term."""
        if self.next and self.next not in "+-,":
            raise _Unread
        return [(_key(1, symbols), value)]

    def number(self) -> Fraction:
        """Digits, with decimals or thousands separators."""
        found = _GROUPED.match(self.text, self.place)
        if found:
            if "," in found[0] and self.inside:  # `(1,234)` may be a pair
                raise _Unread
            whole = re.sub(r"\D", "", found[0])
            self.place = found.end()
            self.grouped |= "," in found[0]
            if self.next == GROUP or re.match(r",[0-9]", self.text[self.place :]):
                raise _Unread
        else:
            whole = self.run()
            if self.next == GROUP or re.match(r",[0-9]{3}(?![0-9])", self.text[self.place :]):
                raise _Unread
        places = ""
        if self.next == ".":
            self.take()
            places = self.run()
            if not places or self.next == "." or re.match(r",[0-9]{3}(?![0-9])", self.text[self.place :]):
                raise _Unread
        if not whole and not places:
            raise _Unread
        return Fraction(f"{whole or 0}.{places or 0}")

    def run(self) -> str:
        start = self.place
        while self.next.isascii() and self.next.isdigit():
            self.place += 1
        return self.text[start : self.place]

    def digits(self) -> int:
        found = self.run()
        if not found:
            raise _Unread
        return int(found)

    def gap(self, whole: Fraction) -> Fraction:
        """`2 1/3`."""
        self.take(_GAP)
        top = self.digits()
        self.take("/")
        bottom = self.digits()
        return self.proper(whole, top, bottom)

    def mixed(self, whole: Fraction) -> Fraction:
        r"""`2\frac{1}{3}`."""
        top, bottom, root = self.fraction()
        if len(top) != 1 or root != 1 or top[0][0] != (1, ()) or top[0][1].denominator != 1:
            raise _Unread
        return self.proper(whole, top[0][1], bottom)

    def proper(self, whole: Fraction, top, bottom) -> Fraction:
        if whole.denominator != 1 or whole == 0 or not 0 < top < bottom:
            raise _Unread
        return whole + Fraction(top) / bottom

    def fraction(self) -> tuple[list, int, int]:
        """Terms on top, and a whole number and a radicand below."""
        self.take(FRAC)
        if self.next.isdigit() and self.next.isascii():
            top, bottom = int(self.take()), self.take()
            if not bottom.isdigit() or bottom == "0":
                raise _Unread
            return [((1, ()), Fraction(top))], int(bottom), 1
        self.take("{")
        if FRAC in self.text[self.place : self.text.find("}", self.place)]:
            raise _Unread
        top = self.sum()
        self.take("}")
        self.take("{")
        bottom, root = 1, 1
        if self.next.isdigit():
            bottom = self.digits()
        if self.next == SQRT:
            self.take()
            root = self.small_argument()
        elif self.text[self.place - 1] == "{":
            raise _Unread
        self.take("}")
        if not bottom or not root:
            raise _Unread
        return top, bottom, root

    def small_argument(self) -> int:
        r"""What stands under a root: `{12}`, or one digit."""
        if self.next == "{":
            self.take()
            found = self.digits()
            self.take("}")
            return found
        if not (self.next.isascii() and self.next.isdigit()):
            raise _Unread
        found = int(self.take())
        if self.next.isdigit():
            raise _Unread
        return found

    def power(self) -> int:
        if self.next != "^":
            return 1
        self.take()
        if self.next == "{":
            self.take()
            found = self.digits()
            self.take("}")
        else:
            found = int(self.take("0123456789"))
            if self.next.isdigit():
                raise _Unread
        if not found:
            raise _Unread
        return found


def _divide(term: tuple[Key, Fraction], bottom: int, root: int) -> tuple[Key, Fraction]:
    (radicand, symbols), value = term
    value, radicand = _simplify(value / (bottom * root), radicand * root)
    return (radicand, symbols), value


def _simplify(value: Fraction, radicand: int) -> tuple[Fraction, int]:
    """Squares taken out of the root."""
    if radicand == 0:
        return Fraction(0), 1
    if radicand > 10**8:
        raise _Unread
    divisor = 2
    while divisor * divisor <= radicand:
        while radicand % (divisor * divisor) == 0:
            radicand //= divisor * divisor
            value *= divisor
        divisor += 1
    return value, radicand


def _key(radicand: int, symbols: dict[str, int]) -> Key:
    if any(power > POWER for power in symbols.values()) or symbols.get("i", 1) > 1 or len(symbols) > 3:
        raise _Unread
    return radicand, tuple(sorted(symbols.items()))
