"""Which equations are called wrong, against a plain reading of the text; and what counts as a quantity."""

import random
import re
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scope_jax.rewards.equations import quantities, wrong_equations

SIZE, ROWS = 64, 500  # one shape for all calls: one compilation
WRONG = jax.jit(wrong_equations)
QUANTITIES = jax.jit(quantities)
BEFORE = r"(?:^|[^a-z])(?:times|plus|minus|of|by|over|x)\Z"
AFTER = r"(?:times|plus|minus|over|x|mod|divided|multiplied|percent|hundred|thousand|million|billion|dozen)(?![a-z])"


def rows(texts):
    data = [text.lower().encode("utf-8") for text in texts] + [b""] * (ROWS - len(texts))
    assert max(map(len, data)) <= SIZE
    return jnp.asarray(np.array([np.frombuffer(d.ljust(SIZE, b"\0"), np.uint8) for d in data]))


def flagged(texts):
    """Places of the equal signs that the kernel calls wrong, row by row."""
    parts = [np.asarray(WRONG(rows(texts[i : i + ROWS]))) for i in range(0, len(texts), ROWS)]
    return [list(np.flatnonzero(row)) for row in np.concatenate(parts)[: len(texts)]]


def plain(text, start, end):
    """Nothing is joined to the digits text[start:end]."""
    if re.search(r"[a-z_\\.,!\x80-\xff]\Z", text[:start]):
        return False
    return not re.match(r"[a-z_\\\x80-\xff^!%{(\[]|[.,:]\d", text[end:])


def side_before(text):
    """Fraction and operator of `a op b` or `b` at the end of the text; None where it is more or less than that."""
    found = re.search(r"(?:(\d+)[ \t]*([-+*/])[ \t]*)?(?<!\d)(\d+)[ \t]*\Z", text)
    if not found or not plain(text, *found.span(3)):
        return None
    a, op, b = found.groups()
    first = found.start(1) if op else found.start(3)
    if op and not plain(text, *found.span(1)):
        return None
    rest = text[:first].rstrip(" \t")
    negative = bool(re.search(r"[=(][ \t]*-\Z", rest))
    if not negative and re.search(r"[-\d\x80-\xff+*/^)\]}%_\\]\Z|\\[a-z]+\Z|" + BEFORE, rest):
        return None
    return value(a or b, op, b, negative), op


def side_after(text):
    found = re.match(r"[ \t]*(-?)[ \t]*(\d+)(?:[ \t]*([-+*/])[ \t]*(\d+))?", text)
    if not found or not plain(text, *found.span(2)):
        return None
    sign, c, op, d = found.groups()
    if op and not plain(text, *found.span(4)):
        return None
    if re.match(r"[ \t]*(?:[-\d\x80-\xff+*/^!%({\[\\_]|" + AFTER + ")", text[found.end() :]):
        return None
    return value(c, op, d, bool(sign)), op


def value(a, op, b, negative):
    a = -int(a) if negative else int(a)
    if op is None:
        return Fraction(a)
    b = int(b)
    return {"+": a + b, "-": a - b, "*": a * b, "/": Fraction(a, b) if b else None}[op]


def wrong_by_reading(text):
    """The rule once more, on Latin-1 strings with regular expressions."""
    for spelling, operator in {r"\\times(?![a-z])": "*", r"\\cdot(?![a-z])": "*", "×": "*", "−": "-"}.items():
        pattern = rf"(?<![a-z]){spelling}"
        text = re.sub(pattern, lambda m, op=operator: op.ljust(len(m.group().encode())), text.lower())
    text, wrong = text.encode("utf-8").decode("latin-1"), []
    for place in (m.start() for m in re.finditer("=", text)):
        left, right = side_before(text[:place]), side_after(text[place + 1 :])
        if left and right and (left[1] or right[1]) and None not in (left[0], right[0]) and left[0] != right[0]:
            wrong.append(place)
    return wrong


FRAGMENTS = ["3", "4", "7", "12", "0", "1", "2"] * 3 + ["=", "=", "="] * 4 + ["+", "-", "*", "/"] * 2
FRAGMENTS += [" "] * 6 + ["(", ")", ".", ",", ":", "^", "%", "!", "{", "}", "$", "\n", "\t", "_", "\\", "é", "−", "×"]
FRAGMENTS += ["x", "b", " so ", " of ", " times ", "\\times ", " mod ", " percent", "3+4=7", "12-4=8", "3*4=11", "12/4"]


def test_wrong_equations_equal_a_reading_by_regular_expressions():
    draw = random.Random(0)
    texts = ["".join(draw.choices(FRAGMENTS, k=draw.randint(3, 13)))[:SIZE] for _ in range(6000)]
    texts = [text for text in texts if len(text.encode()) <= SIZE]
    expected = [wrong_by_reading(text) for text in texts]
    assert sum(map(bool, expected)) > 300
    for text, got, want in zip(texts, flagged(texts), expected, strict=True):
        assert got == want, repr(text)


def expression(draw, depth):
    """Text and exact value of a random expression, rendered with the parentheses that its value needs."""
    if depth == 0:
        number = draw.randint(0, 30)
        return (str(number), Fraction(number)) if draw.random() < 0.8 else (f"{number}.5", Fraction(2 * number + 1, 2))
    (left, a), (right, b) = expression(draw, draw.randint(0, depth - 1)), expression(draw, draw.randint(0, depth - 1))
    op = draw.choice(["+", "-", "*", "/", " + ", " - ", " * ", " / ", " \\times ", " \\cdot ", " times ", " x "])
    kind = {"\\times": "*", "\\cdot": "*", "times": "*", "x": "*"}.get(op.strip(), op.strip())
    if kind == "/" and b == 0:
        return left, a
    if not re.fullmatch(r"[\d.]+", right):
        right = f"({right})"
    if kind in "*/" and not re.fullmatch(r"[\d.]+", left):
        left = f"({left})"
    return left + op + right, {"+": a + b, "-": a - b, "*": a * b, "/": b and a / b}[kind]


def rendered(draw, value):
    if value.denominator == 1:
        return str(value.numerator)
    return f"{value.numerator}/{value.denominator}" if draw.random() < 0.7 else f"{float(value)}..."


def test_a_right_equation_is_never_called_wrong_whatever_its_shape():
    draw, texts = random.Random(1), []
    while len(texts) < 4000:
        (left, a), equals = expression(draw, draw.randint(1, 3)), draw.choice(["=", " = ", "= "])
        text = (
            draw.choice(["", "So ", "b=", "$", "- "])
            + left
            + equals
            + rendered(draw, a)
            + draw.choice(["", ".", ", so", "$"])
        )
        if len(text) <= SIZE:
            texts.append(text)
    for text, got in zip(texts, flagged(texts), strict=True):
        assert not got, repr(text)


@pytest.mark.parametrize(
    "text",
    ["b=61-15=56.", "34 + 27 = 62", "(34+27=62)", "x = 7*8 = 54 apples", "61 = 34+28", "12/4=2", "$34+27=62$", "5-8=3",
     "15-61=-45", "=-46+10=-35", "3+4=2*3", "1/2=2/5", "99999*99999=9999800002", "Sum! 3+4=8", "3 \\times 4 = 13",
     "3−4=1", "3\\cdot4=13", "12÷4=2", "<<3+4=8>>8"],
)  # fmt: skip
def test_plainly_wrong_equations_are_called_wrong(text):
    assert flagged([text])[0], text


@pytest.mark.parametrize(
    "text",
    ["a=34+27=61.", "a=34+27=61\n[SUB-1 ANSWER] 61", "12/4=3", "99999*99999=9999800001", "15-61=-46", "7/0=3", "0/0=1",
     "2*34+27=95", "(3+4)*2=14", "2^3+4=12", "x3+4=8", "2x+3=7", "5!+2=122", "3.5+2=5.5", "1,234+1=1,235", "3−4=-1",
     "5+5=1 mod 9", "3+5=1 (mod 7)", "2 \\times 3+4=10", "2 times 3+4=10", "half of 3+5=4", "1 1/2=3/2", "3×4=12",
     "5+9=7 \\times 2", "5+9=7 times 2", "10+10=20%", "3+4=7cm", "3+4=7x", "2+3=5.0", "2+3=5,000", "3+4<=8", "3+4>=8",
     "3+4!=8", "3+4==8", "3+4≠8", "10:30+5=10:35", "3+4=8!", "5!3+4=8", "3+4=\n8", "12345678901+1=5", "5 \\ast 3+4=19"],
)  # fmt: skip
def test_what_is_right_or_more_than_two_integers_is_left_alone(text):
    assert not flagged([text])[0], text


def test_padding_and_place_never_change_what_is_wrong():
    text = "b=61-15=56."
    for lead in ["", "ok. ", "a=34+27=61.\n\n", "\n" * (SIZE - len(text))]:
        assert flagged([lead + text]) == [[len(lead) + 7]]


def keys_of(text):
    (number, is_number), (operation, is_operation) = QUANTITIES(rows([text]))
    return np.asarray(number)[np.asarray(is_number)].tolist(), np.asarray(operation)[np.asarray(is_operation)].tolist()


def test_numbers_and_operations_are_known_again_by_their_text():
    numbers, operations = keys_of("a=34+27=61. Then 34 + 27, 34-27, 27+34, 3.5 and 35")
    assert [numbers.index(key) for key in numbers] == [0, 1, 2, 0, 1, 0, 1, 1, 0, 9, 10]
    assert [operations.index(key) for key in operations] == [0, 0, 2, 3]


def test_numbers_that_count_lines_steps_or_slots_are_no_quantities():
    assert keys_of("1. Go on.\n2) And on\nStep 3: on.\n**4:** [SUB-5 ANSWER] no")[0][1:] == []
    numbers, _ = keys_of("Step 3: 7\n[SUB-2 ANSWER] 7\n2.5 x-2")
    assert len(numbers) == 4 and numbers[0] == numbers[1]
