from fractions import Fraction as F

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scope_jax.scaffolds.quantities import arithmetic_value, operands, stated


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("16 eggs and 3.", {16, 3}),
        ("costs $1,234.50, or .5", {F("1234.5"), F(1, 2)}),
        ("12{,}345 and 6\\,789", {12345, 6789}),
        ("\\frac{3}{4}, \\dfrac{10}{4}, \\tfrac12 and 7/8", {F(3, 4), F(5, 2), F(1, 2), F(7, 8)}),
        ("50% or 25\\% or 3 percent", {50, 25, 3}),
        ("minus -5", {5}),
        ("two, Twenty-five, zero, ninety", {2, 25, 0, 90}),
        ("three hundred, twenty thousand, one million", {300, 20000, 10**6}),
        ("one of them", set()),
        ("x_1 + x_{12} + A4, the 10th and 2nd", set()),
        ("3x + 2y^2", {3, 2}),
        ("5 x 10", {5, 10}),
        ("1/0", set()),
        ("a=34+7. b=a-5. What is b?", {34, 7, 5}),
        ("(1,2)", {1, 2}),
        ("in 2024, 100 cows", {2024, 100}),
        ("often someone weighs", set()),  # ten, one and eight are inside words
        ("", set()),
    ],
)
def test_a_text_states_these_values(text, values):
    assert stated(text) == values


def test_operands_are_parts_and_factors_besides():
    assert operands("3/4 of them") >= {F(3, 4), 3, 4}
    assert operands("half of 20%") == {2, F(1, 2), 20, F(1, 5)}
    assert operands("a dozen a week") >= {12, 7}
    assert 2 not in stated("twice a day") and 2 in operands("twice a day")


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 10**6), st.booleans())
def test_any_number_is_found_in_each_of_its_forms(top, bottom, words):
    around = "There are {} of them." if words else "$x = {}$"
    for form, value in [
        (str(top), top),
        (f"{top:,}", top),
        (f"{top:,}".replace(",", "{,}"), top),
        (f"{top}/{bottom}", F(top, bottom)),
        (f"\\frac{{{top}}}{{{bottom}}}", F(top, bottom)),
        (f"{top}.25", top + F(1, 4)),
    ]:
        assert stated(around.format(form)) == {F(value)}, form


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16 - 3 - 4", 9),
        ("\\frac{3}{4} \\times 8", 6),
        ("\\frac{1}{\\frac{1}{2}}", 2),
        ("2 \u00d7 3 \u00f7 4", F(3, 2)),
        ("$1,200 \\cdot 2$", 2400),
        ("\\left(1+2\\right) * 3", 9),
        ("(3,5)", None),
        ("2x", None),
        ("sqrt(4)", None),
        ("9**9**9", None),
        ("1+" * 400 + "1", None),
        ("", None),
    ],
)
def test_plain_arithmetic_has_an_exact_value_and_all_else_none(text, value):
    assert arithmetic_value(text) == value


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="0123456789.,/{}\\fracd%_ x-+=two hundred$", max_size=60))
def test_no_text_breaks_the_reading(text):
    assert all(value >= 0 for value in stated(text))
    assert stated(text) <= operands(text)
    arithmetic_value(text)
