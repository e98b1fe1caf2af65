import pytest

from scope_jax.verify.plain import plain_check
from scope_jax.verify.result import Result


@pytest.mark.parametrize(
    ("answer", "gold", "result"),
    [
        ("007", "7", Result.right),
        ("$1,234$.", "1234", Result.right),
        ("\\$18", "18", Result.right),
        ("**3.50**", "7/2", Result.right),  # set in markdown bold
        ("\\dfrac{1}{2}", "\\frac12", Result.right),
        ("0.333333", "1/3", Result.wrong),
        ("840840", "840", Result.wrong),  # an answer glued to itself
        ("0.00000001", "0.00000002", Result.wrong),  # tiny values are not all equal
        ("(c)", "C", Result.right),
        ("D", "(C)", Result.wrong),
        ("friday", "\\text{Friday}", Result.right),
        ("eat", "tea", Result.wrong),  # as products of letters they would be equal
        ("12:00", "12", Result.wrong),  # a time is no number
        ("x", " $ ", Result.unreadable_gold),
        ("\\sqrt{4}", "2", Result.right),
        ("9^{9^{9^9}}", "5", Result.timed_out),
        ("2^{99999999}", "5", Result.timed_out),
        ("1000000!", "5", Result.timed_out),
        ("((9!)!)!", "5", Result.timed_out),
        ("x+" * 400 + "1", "5", Result.timed_out),
        ("2^{10}", "1024", None),
    ],
)
def test_plain_answers_are_settled_without_algebra(answer, gold, result):
    assert plain_check(answer, gold) is result
