import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scope_jax.data.duplicates import answers_agree, duplicate_groups, index_problems, normal_form
from scope_jax.data.records import Problem

SAME = [
    ("What is $1 + 1$?", "what is 1+1"),
    ("Let  $x=2$.\nFind $x^{2}$!", "Let \\(x = 2\\), find x^2"),
    ("Find $\\dfrac{1}{2}\\,x$.", "Find \\[\\frac{1}{2} x\\]"),
    ("A point $(1,\\, 5)$", "a point $\\left( 1, 5 \\right)$"),
    ("It costs \\$1,200.", "It costs $1200"),
    ("It is \\text{ten} km", "It is ten\\ \\mathrm{km}"),
    ("x \u2264 3 \u2212 y\u00b2", "$x \\leq 3 - y^2$"),
    ("Janet\u2019s well-known \u201cshop\u201d", 'Janet\'s well known "shop"'),
    ("Caf\u00e9", "CAFE\u0301"),
    ("Say **how many**, please:", "say how many please"),
]
DIFFERENT = [
    ("Find 1.5", "Find 15"),
    ("Find 3+4", "Find 3-4"),
    ("Find $x<2$", "Find $x>2$"),
    ("Find (1,5)", "Find 15"),
    ("Find 5!", "Find 5"),
    ("Find $f'(x)$", "Find $f(x)$"),
    ("Find $f''(x)$", "Find $f'(x)$"),
    ("Find $2^{x+1}$", "Find $2^{x}+1$"),
    ("Find $x^{12}$", "Find $x^{1}2$"),
    ("Find 3 - 4", "Find 3 4"),
    ("Find $\\sin x$", "Find $\\cos x$"),
    ("Find 50%", "Find 50"),
    ("Find 1,000,001", "Find 1000000"),
    ("Find |x|", "Find x"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_another_writing_is_the_same_problem(one, other):
    assert normal_form(one) == normal_form(other) != ""


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_another_meaning_is_another_problem(one, other):
    assert normal_form(one) != normal_form(other)


@given(
    st.lists(
        st.sampled_from(["x", "ab", "12", "3.5", "+", "-", "(", ")", "\\frac", "{", "}", "=", "!", "'"]), max_size=12
    ),
    st.data(),
)
@settings(max_examples=200, deadline=None)
def test_space_dollars_and_latex_spacing_between_tokens_never_matter(tokens, data):
    gap = st.sampled_from([" ", "  ", "\n", "\\,", " \\; ", "$ ", "\\quad "])
    spaced = "".join(token + data.draw(gap) for token in tokens)
    assert normal_form(" ".join(tokens)) == normal_form(spaced)


@given(st.text(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_has_a_normal_form_that_space_does_not_change(text):
    assert normal_form(f" {text}") == normal_form(text)


def test_groups_hold_every_place_of_a_problem():
    problems = [Problem(str(i), text, "1") for i, text in enumerate(["a b", "c", "A  b.", "d", "C", "$a$ b"])]
    assert duplicate_groups(problems) == [[0, 2, 5], [1, 4]]
    assert duplicate_groups(problems[:2]) == []


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        ("5", " 5.0", True),
        ("\\frac{1}{2}", "\\dfrac12", True),
        ("2(x+1)", "2x+2", False),
        ("1/2", "0.5", True),
        ("5", "6", False),
        ("$x+1$", "x + 1", True),
        ("(A)", "A", True),
    ],
)
def test_answers_agree_where_no_algebra_is_needed(one, other, agree):
    assert answers_agree(one, other) == agree


def test_an_index_names_the_set_and_the_id():
    assert index_problems([Problem("p7", "What is $1+1$?", "2")], "eval.jsonl") == {"what is 1 + 1": "eval.jsonl (p7)"}
