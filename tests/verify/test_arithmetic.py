from fractions import Fraction

import pytest

from scope_jax.verify.arithmetic import exact_value


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("(1/3)*3", 1),
        ("0.1+0.2", Fraction(3, 10)),  # exact, where floats give 0.30000000000000004
        ("-(2-5)*1,000", 3000),
        ("$4*.25", 1),
        ("05+007", 12),
        ("100-0.05", Fraction(9995, 100)),
        ("1/0", None),
        ("2**9**9**9", None),
        ("__import__('os')", None),
        ("x+1", None),
        ("2(3)", None),
        ("1_0", None),
        ("0x10", None),
        ("True+1", None),
        ("2 3", None),
        ("", None),
        ("(" * 500 + "1" + ")" * 500, None),
    ],
)
def test_expressions_are_exact_and_nothing_but_arithmetic(expression, value):
    assert exact_value(expression) == value
