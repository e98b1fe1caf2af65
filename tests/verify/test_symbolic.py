import pytest

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
