"""The mode "minerva": each rule of the published normalisation, and where an answer is looked for."""

import pytest

from scope_jax.verify import Result
from scope_jax.verify.minerva import LONGEST, compare, find_answer, normalise


@pytest.mark.parametrize(
    ("answer", "plain"),
    [
        ("x = 5", "5"),  # the right side of an equation
        ("f(x) = y = 5", "5"),
        ("an apple", "apple"),  # articles
        ("a 5", "5"),
        ("\\$ 18", "18"),  # dollars
        ("$5.$", "5"),  # a period before the closing dollar
        ("1\\ 000 000", "1000000"),  # spaces
        ("\\mbox{Friday}", "Friday"),
        ("x,\\text{and} y", "x,y"),  # "and" in lists
        ("x\\text{and}y", "x,y"),
        ("5 km", "5"),  # units
        ("12 square inches", "12"),
        ("3 hours", "3"),
        ("7\\text{ points}", "7"),
        ("5\\text{m}", "5"),
        ("5\\text{m}^2", "5"),
        ("90^\\circ", "90"),
        ("90^{\\circ}", "90"),
        ("4\\mathrm{th}", "4"),
        ("1{,}000", "1000"),
        ("1,\\!000", "1000"),
        ("1\\;000", "1000"),
        ('"5"', "5"),
        ("x,2,\\ldots", "x,2,"),
        ("so $5$ then", "5"),  # only what is in dollars
        ("$5$ or $6$", "5"),
        ("\\text{Friday}", "Friday"),  # wrappers
        ("\\textbf{A}", "A"),
        ("\\overline{AB}", "AB"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\frac12", "\\frac{1}{2}"),  # braces of fractions and roots
        ("\\frac123", "\\frac{1}{2}3"),
        ("\\frac{3}{4}", "\\frac{3}{4}"),
        ("\\sqrt2", "\\sqrt{2}"),
        ("\\sqrt23", "\\sqrt{2}3"),
        ("\\sqrt{23}", "\\sqrt{23}"),
        ("1,234,567", "1234567"),  # thousands commas, and nothing else that has commas
        ("(1,2)", "(1,2)"),
        ("\\left(1,2\\right)", "\\left(1,2\\right)"),  # `ft` is no unit here
        ("1,2,3", "123"),  # the reference's own crudeness
        ("7" * (LONGEST + 1), "7" * (LONGEST + 1)),
    ],
)
def test_answers_are_normalised_by_the_published_rules(answer, plain):
    assert normalise(answer) == plain


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("so\nAnswer: 5", "5"),
        ("Answer: 5\nAnswer: 6\nend", "6"),
        ("FINAL ANSWER : 5", "5"),
        ("Answer:\n\n5\n6", "5"),
        ("Answer: \\boxed{5}", "\\boxed{5}"),
        ("Answer: 5\n\\boxed{6}", "5"),
        ("<think>Answer: 5", "5"),
        ("\\boxed{5}", None),
        ("Answer: 5" + "x" * 292, None),  # its first letter is character 301 from the end
        ("Answer: 5" + "x" * 291, "5" + "x" * 291),
        ("", None),
    ],
)
def test_the_last_answer_line_of_the_last_300_characters_counts(completion, answer):
    assert find_answer(completion) == answer


def test_equal_texts_are_right_and_equal_values_are_not():
    assert compare("\\dfrac{1}{2}", "\\frac{1}{2}") is Result.wrong
    assert compare("0.5", "1/2") is Result.wrong
    assert compare("x = 1,000 dollars", "1000") is Result.right
    assert compare(None, "5") is Result.no_answer
    assert compare("5", " $ $ ") is Result.unreadable_gold
