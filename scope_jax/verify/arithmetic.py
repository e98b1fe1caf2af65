"""Plain arithmetic, exactly: what an expression of written numbers gives."""

import ast
import operator
import re
from fractions import Fraction

_ARITHMETIC = re.compile(r"[\d.+\-*/()\s]+", re.ASCII)
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def exact_value(expression: str) -> Fraction | None:
    """The exact value of an arithmetic expression in + - * / and brackets; None for anything else."""
    text = expression.replace("\u2212", "-").replace(",", "").replace("$", "").strip()
    if not _ARITHMETIC.fullmatch(text):
        return None
    try:
        # Leading zeros are no Python numbers, but people write them.
        tree = ast.parse(re.sub(r"(?<![\d.])0+(?=\d)", "", text), mode="eval")
        return _evaluate(tree.body, text)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _evaluate(node: ast.AST, text: str) -> Fraction:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.left, text), _evaluate(node.right, text))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _evaluate(node.operand, text)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return Fraction(str(node.value))  # the decimal digits as written, not the binary float
    raise ValueError(f"{text!r} is not plain arithmetic")
