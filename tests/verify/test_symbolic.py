import pytest

from scope_jax.verify.plain import plain_check
from scope_jax.verify.result import Result
from scope_jax.verify.symbolic import symbolic_check

RIGHT = [("\\sqrt{4}", "2"), ("x+1", "1+x"), ("\\frac34", "0.75"), ("x=5", "5"), ("5 apples", "5"), ("50\\%", "50")]
RIGHT += [
    ("\\(7\\)", "7"),
    ("10^\\circ", "10"),
    ("\\{2,1\\}", "\\{1,2\\}"),
    ("\\sqrt{12}", "2\\sqrt{3}"),
    ("4^{1012}", "2^{2024}"),
]
WRONG = [("\\sqrt{4}", "3"), ("(2,1)", "(1,2)"), ("[0,1]", "(0,1)"), ("", "2")]
# False positives that checkers of this kind are known for.
FALSE_FRIENDS = [("6.283185", "2\\pi"), ("2\\pi", "6.283185"), ("1+1/e", "1-1/e"), ("y=3x+1", "y=2x+1")]


@pytest.mark.parametrize(("answer", "gold"), RIGHT)
def test_equal_expressions_are_right(answer, gold):
    assert symbolic_check(answer, gold) is Result.right


@pytest.mark.parametrize(("answer", "gold"), WRONG + FALSE_FRIENDS)
def test_different_expressions_are_wrong(answer, gold):
    assert symbolic_check(answer, gold) is Result.wrong


def test_a_gold_answer_that_cannot_be_read_is_no_verdict():
    assert symbolic_check("5", "\u2603\u2603") is Result.unreadable_gold


def test_a_gold_answer_that_is_a_whole_solution_is_read_by_its_box_or_not_at_all():
    """Compared as it stands, it would make every reward zero."""
    solution = "We add the numbers and get $2+3=5$. Hence the answer is $\\boxed{5}$. "
    assert [symbolic_check(answer, solution) for answer in ("5", "\\frac{10}{2}", "6")] == [
        Result.right,
        Result.right,
        Result.wrong,
    ]
    assert plain_check("5", solution * 12) is Result.unreadable_gold


def test_latex_without_dollars_or_box_is_read():
    for answer in ("\\frac{1}{2}", "$\\frac{1}{2}$", "\\(\\frac{1}{2}\\)", "\\frac12"):
        assert symbolic_check(answer, "0.5") is Result.right
