"""Canonical forms of answers on the host: what they mean, and that math-verify means the same where it can tell."""

import pathlib
import re
import numpy as np
import pytest
from benchmarks.answer_corpus import corpus

from scope_jax.verify import forms
from scope_jax.verify.symbolic import symbolic_check

SAME = [
    ("5", "5.0"),
    ("007", "+7"),
    ("-0", "0"),
    ("\u22123", "-3"),
    ("1,234", "1234"),
    ("1{,}234", "1234"),
    ("1\\,234.5", "1234.5"),
    ("1,\\!234", "1234"),
    ("\\frac12", "0.5"),
    ("-\\dfrac{3}{4}", "-3/4"),
    ("2\\frac{1}{3}", "7/3"),
    ("2 1/3", "\\tfrac{7}{3}"),
    ("\\sqrt{8}", "2\\sqrt2"),
    ("\\sqrt{0}", "0"),
    ("\\frac{1}{\\sqrt{2}}", "\\frac{\\sqrt{2}}{2}"),
    ("\\frac{6}{5\\sqrt{3}}", "\\frac{2\\sqrt{3}}{5}"),
    ("\\frac{1+\\sqrt{5}}{2}", "\\frac{\\sqrt5}{2}+\\frac12"),
    ("-\\frac{1-x}{2}", "\\frac{x}{2}-0.5"),
    ("2\u03c0", "2 \\pi"),
    ("\\frac{3}{4}\\pi", "3\\pi/4"),
    ("10-4n", "-4n+10"),
    ("x^2+1", "1 + x^{2}"),
    ("xy", "yx"),
    ("3+4i", "4i+3"),
    ("\\left(1,\\,2\\right)", "(1, 2)"),
    ("(-\\infty,3]", "\\left(-\\infty, 3\\right]"),
    ("(5)", "5"),
    ("\\{2,1\\}", "\\left\\{1,2\\right\\}"),
    ("2, 1", "1,2"),
    ("12, 345", "345,  12"),
    ("(1, 234)", "(1,\\; 234)"),
    ("50\\%", "50%"),
    ("50\\%", "50"),
    ("50\\%", "0.5"),
    ("\\frac12", "50\\%"),
    ("5\\text{ cm}", "5"),
    ("5 cm^2", "5\\text{ cm}^{2}"),
    ("12 apples", "12"),
    ("90^\\circ", "90^{\\circ}"),
    ("90\u00b0", "90"),
    ("\\$5.00", "5"),
    ("x = 5", "5"),
    ("y=2x+1", "2x+1"),
    ("(A)", "A"),
    ("\\textbf{(B)}", "B"),
    ("\\text{c}", "C"),
    ("\\text{Friday}", "friday."),
    ("**no solution**", "\\text{no solution}"),
    ("\\text{5}", "5"),
    ("$5$;", "5"),
]
DIFFERENT = [
    ("0.333333", "1/3"),
    ("6.283185", "2\\pi"),
    ("840840", "840"),
    ("-5", "5"),
    ("0.00000001", "0.00000002"),
    ("\\sqrt{2}", "\\sqrt{3}"),
    ("\\sqrt{4}", "4"),
    ("1-\\sqrt{5}", "1+\\sqrt{5}"),
    ("2x", "2x^2"),
    ("3+4i", "4+3i"),
    ("(1,2)", "(2,1)"),
    ("(1,2)", "[1,2]"),
    ("(1,2)", "(1,2,3)"),
    ("\\{1,2\\}", "\\{1,3\\}"),
    ("1,2", "1,2,3"),
    ("50\\%", "5"),
    ("0.05", "50\\%"),
    ("6 cm", "5"),
    ("A", "B"),
    ("Friday", "Monday"),
    ("x=4", "5"),
]
OPEN = [
    ("1,234", "1, 234"),  # a number, or a list
    ("(1,234)", "(1, 234)"),
    ("5 cm", "5\\text{ m}"),
    ("x=5", "y=5"),
    ("5m", "5"),  # metres, or a variable
    ("2x", "2n"),
    ("\\{5\\}", "5"),
    ("(1,2)", "1,2"),
    ("1,1,2", "1,2"),
    ("2^{10}", "1024"),
    ("(x+1)(x-1)", "x^2-1"),
    ("1/2x", "x/2"),
    ("\\frac{1}{0}", "0"),
    ("1 2", "12"),
    ("eat", "tea"),  # words, or products of letters
    ("1\x002", "12"),
    ("12:00", "12"),
    ("i^2", "-1"),
    ("1011_2", "1011"),
    ("five", "5"),
    ("3 million", "3"),
    ("5 squared", "5"),
    ("7 we get $x^{2}$", "7"),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "(1,2)"),
]


def compare(answer, gold):
    return forms.compare(forms.read(answer), forms.read(gold))


@pytest.mark.parametrize(("answer", "gold"), SAME)
def test_one_thing_written_in_two_ways_is_the_same(answer, gold):
    assert compare(answer, gold) is True and compare(gold, answer) is True


@pytest.mark.parametrize(("answer", "gold"), DIFFERENT)
def test_two_things_are_different(answer, gold):
    assert compare(answer, gold) is False and compare(gold, answer) is False


@pytest.mark.parametrize(("answer", "gold"), OPEN)
def test_what_is_not_certain_is_left_open(answer, gold):
    assert compare(answer, gold) is None and compare(gold, answer) is None


@pytest.mark.parametrize("mixture", ["math", "hard"])
def test_verdicts_on_answers_of_real_shapes_are_the_truth(mixture):
    rows = corpus(mixture, 3000, 5)
    verdicts = [compare(row.answer, row.gold) for row in rows]
    wrong = [row for row, verdict in zip(rows, verdicts, strict=True) if verdict is not None and verdict != row.right]
    assert not wrong
    assert sum(verdict is not None for verdict in verdicts) > 0.9 * len(rows)


def test_math_verify_agrees_but_for_what_it_is_known_to_misread():
    rows = corpus("hard", 250, 6)
    for row in rows:
        verdict = compare(row.answer, row.gold)
        # It takes `7t` for a weight, `5 i` for two things, `2 1/3` for a product, `[-\infty` for `(-\infty`.
        misread = any(mark in row.answer + row.gold for mark in ("t", " i", "\\,", "\\infty", " 1/", " 2/", "/"))
        if verdict is not None and not misread and row.shape not in ("words", "option", "measure"):
            assert (symbolic_check(row.answer, row.gold).value == "right") == verdict, row


def test_no_text_breaks_the_reader():
    rng = np.random.default_rng(0)
    pieces = ["\\frac", "\\sqrt", "{", "}", "(", "[", "\\{", "\\}", ",", ".", "1", "23", "x", "^", "/", "+", "-", "\\%", " ", "\\text{", "=", "\x00", "\u03c0"]
    for _ in range(5000):
        text = "".join(rng.choice(pieces, rng.integers(0, 12)))
        assert compare(text, text) in (True, None)
        assert compare(text, "12345") in (False, None)
    assert forms.read("9" * 10_000).elements == ()
    assert forms.read("{" * 100_000).elements == () and forms.read("\\frac{" * 60).elements == ()


def readme_examples():
    """The examples of README's table of accepted forms."""
    text = (pathlib.Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    table = text.split("| form | examples |\n")[1].split("\n\n")[0]
    rows = [line.split(" | ", 1)[1] for line in table.splitlines()[1:]]
    return [example for row in rows for example in re.findall("`([^`]+)`", row)]


def test_every_example_of_the_readme_is_read():
    examples = readme_examples()
    assert len(examples) > 35
    for example in examples:
        reading = forms.read(example)
        assert reading.elements or reading.words, example
