r"""Gold answers of the shapes of real data sets, with right and wrong ways to answer them.

Every row is made from a value, so that whether it is right is known by construction, not by any verifier. The shares of
`MATH` follow what MATH500's answers look like: three fifths whole numbers, a tenth fractions, the rest LaTeX of all
kinds, some of it beyond the device's forms (products, equations, matrices, logarithms).
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np


class Row(NamedTuple):
    gold: str
    answer: str
    right: bool
    shape: str


def pick(rng: np.random.Generator, *choices):
    return choices[rng.integers(len(choices))]


def integer(rng, value=None) -> tuple[str, list[str], list[str]]:
    """(gold, right answers, wrong answers) of a whole number."""
    value = int(pick(rng, rng.integers(-20, 100), rng.integers(0, 1000), rng.integers(1000, 10**6))) if value is None else value
    sign, size = ("-" if value < 0 else ""), abs(value)
    right = [f"{value}", f"{sign}{size:,}", f"{sign}{size:,}".replace(",", "{,}"), f"{sign}{size:,}".replace(",", "\\,")]
    right += [f"{value}.0", f"${value}$", f"{value}.", f"x = {value}", f"{value}\\text{{ cm}}", f"{value} apples", f"\\text{{{value}}}"]
    right += [f"\\left({value}\\right)", f"\\frac{{{2 * value}}}{{2}}", f"{sign}0{size}", f"\u2212{size}" if sign else f"+{size}"]
    wrong = [f"{value + 1}", f"{-value - 1}", f"{value}.5", f"{10 * value + 3}", f"\\frac{{{value or 4}}}{{7}}", f"{value + 10}\\%", f"{value + 2} apples"]
    return f"{value}", right, wrong


def fraction(rng) -> tuple[str, list[str], list[str]]:
    bottom = int(rng.integers(2, 40))
    top = int(rng.integers(-60, 60)) or 1
    value = Fraction(top, bottom)
    sign, n, d = ("-" if value < 0 else ""), abs(value.numerator), value.denominator
    if d == 1:
        return integer(rng, value.numerator)
    right = [f"{sign}\\frac{{{n}}}{{{d}}}", f"{sign}\\dfrac{{{n}}}{{{d}}}", f"\\tfrac{{{sign}{n}}}{{{d}}}", f"{sign}{n}/{d}", f"{sign}\\frac{{{3 * n}}}{{{3 * d}}}"]
    if n > d:
        right += [f"{sign}{n // d}\\frac{{{n % d}}}{{{d}}}", f"{sign}{n // d} {n % d}/{d}"]
    if 100 % d == 0:
        right += [f"{float(value)}", f"{float(100 * value):g}\\%"]
    if d < 10 and n < 10:
        right += [f"{sign}\\frac{n}{d}"]
    wrong = [f"{sign}\\frac{{{n + 1}}}{{{d}}}", f"\\frac{{{n}}}{{{d}}}" if sign else f"-\\frac{{{n}}}{{{d}}}", f"{n}", f"{n + 1}/{d + 1}", f"{float(value) + 0.25:.2f}"]
    return right[0], right, [*wrong, f"{sign}\\frac{{{d}}}{{{n}}}"]


def decimal(rng) -> tuple[str, list[str], list[str]]:
    value = Fraction(int(rng.integers(1, 10**5)), 100)
    text = f"{float(value):.2f}"
    right = [text, text.rstrip("0").rstrip("."), f"\\${text}", f"{text}0", f"\\frac{{{value.numerator}}}{{{value.denominator}}}", f"{text}\\text{{ m}}"]
    return text, right, [f"{float(value) + 0.1:.2f}", f"-{text}", f"{float(value) * 10:.2f}1", f"{int(value) + 1}"]


def root(rng) -> tuple[str, list[str], list[str]]:
    n = int(pick(rng, 2, 3, 5, 6, 7, 10, 13))
    k, c = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    k_text = "" if k == 1 else str(k)
    if rng.random() < 0.5:
        gold = f"{k_text}\\sqrt{{{n}}}"
        right = [gold, f"{k_text} \\sqrt {{{n}}}", f"\\sqrt{{{k * k * n}}}", f"\\frac{{{2 * k}\\sqrt{{{n}}}}}{{2}}", f"\\frac{{{k * n}}}{{\\sqrt{{{n}}}}}"]
        return gold, right, [f"{k + 1}\\sqrt{{{n}}}", f"{k_text}\\sqrt{{{n + 1}}}", f"{k * n}", f"-{gold}", f"\\frac{{{gold}}}{{2}}"]
    gold = f"{c}+{k_text}\\sqrt{{{n}}}"
    right = [gold, f"{c} + {k_text}\\sqrt{{{n}}}", f"{k_text}\\sqrt{{{n}}}+{c}", f"\\frac{{{2 * c}+{2 * k}\\sqrt{{{n}}}}}{{2}}"]
    return gold, right, [f"{c}-{k_text}\\sqrt{{{n}}}", f"{c + 1}+{k_text}\\sqrt{{{n}}}", f"{c}", f"{c}\\sqrt{{{n}}}+{k + 9}"]


def circle(rng) -> tuple[str, list[str], list[str]]:
    k, d = int(rng.integers(1, 60)), int(pick(rng, 1, 1, 2, 3, 4, 6))
    value = Fraction(k, d)
    n, m = value.numerator, value.denominator
    n_text = "" if n == 1 else str(n)
    gold = f"{n_text}\\pi" if m == 1 else f"\\frac{{{n_text}\\pi}}{{{m}}}"
    right = [gold, gold.replace("\\pi", "\u03c0"), f"\\frac{{{2 * n}\\pi}}{{{2 * m}}}", f"\\dfrac{{{n}}}{{{m}}}\\pi" if m > 1 else f"{n} \\pi"]
    return gold, right, [f"{n + 1}\\pi", f"{n}", f"\\frac{{{n_text}\\pi}}{{{m + 1}}}", f"-{gold}", f"{n_text}\\pi^2"]


def polynomial(rng) -> tuple[str, list[str], list[str]]:
    a, b, c = (int(x) for x in rng.integers(2, 12, 3))
    x = pick(rng, "x", "n", "t", "y")
    gold = f"{a}{x}^2-{b}{x}+{c}" if rng.random() < 0.5 else f"{a}{x}+{c}"
    terms = [f"+{a}{x}^{{2}}", f"-{b}{x}", f"+{c}"] if "^" in gold else [f"+{a}{x}", f"+{c}"]
    rng.shuffle(terms)
    right = [gold, gold.replace("^2", "^{2}"), " ".join(terms).lstrip("+").replace("+", "+ ").replace("-", "- "), f"y = {gold}" if x != "y" else gold]
    wrong = [gold.replace(f"+{c}", f"+{c + 1}"), gold.replace(f"+{c}", f"-{c}"), gold.replace(f"{a}{x}", f"{a + 1}{x}", 1), f"{a}{x}^3+{c}"]
    return gold, right, wrong


def complex_number(rng) -> tuple[str, list[str], list[str]]:
    a, b = (int(x) for x in rng.integers(2, 12, 2))
    return f"{a}+{b}i", [f"{a}+{b}i", f"{a} + {b} i", f"{b}i+{a}"], [f"{a}-{b}i", f"{b}+{a + b}i", f"-{a}+{b}i"]


def tuple_of(rng) -> tuple[str, list[str], list[str]]:
    parts = [pick(rng, lambda r: integer(r, int(r.integers(-20, 100))), fraction)(rng) for _ in range(int(rng.integers(2, 4)))]
    golds = [gold for gold, _, _ in parts]
    spelled = [pick(rng, gold, gold.replace("\\frac", "\\dfrac")) for gold in golds]
    right = [f"({','.join(golds)})", f"({', '.join(spelled)})", f"\\left({', '.join(golds)}\\right)"]
    wrong = [f"({', '.join([*golds[:-1], '777'])})", f"({', '.join(golds)}, 1)"]
    if golds != golds[::-1]:
        wrong.append(f"({', '.join(golds[::-1])})")
    return right[0], right, wrong


def interval(rng) -> tuple[str, list[str], list[str]]:
    a = int(rng.integers(-9, 9))
    b = a + int(rng.integers(1, 9))
    left, right_end = pick(rng, "(", "["), pick(rng, ")", "]")
    ends = pick(rng, (f"{a}", f"{b}"), ("-\\infty", f"{b}"), (f"{a}", "\\infty"))
    left, right_end = ("(" if "infty" in ends[0] else left), (")" if "infty" in ends[1] else right_end)
    gold = f"{left}{ends[0]},{ends[1]}{right_end}"
    right = [gold, f"\\left{left}{ends[0]}, {ends[1]}\\right{right_end}", f"{left}{ends[0]}, {ends[1]}{right_end}"]
    other = {"(": "[", "[": "(", ")": "]", "]": ")"}
    wrong = [f"{other[left]}{ends[0]}, {ends[1]}{right_end}", f"{left}{ends[0]}, {b + 20}{right_end}", f"{left}{a - 20}, {ends[1]}{right_end}"]
    return gold, right, wrong


def several(rng) -> tuple[str, list[str], list[str]]:
    values = [int(x) for x in rng.choice(np.arange(-9, 60), int(rng.integers(2, 5)), replace=False)]
    texts = [str(v) for v in values]
    mixed = [str(v) for v in rng.permutation(values)]
    open_, close = pick(rng, ("", ""), ("\\{", "\\}"))
    return (
        f"{open_}{','.join(texts)}{close}",
        [f"{open_}{','.join(texts)}{close}", f"{open_}{', '.join(mixed)}{close}"],
        [f"{open_}{', '.join([*texts[:-1], '99'])}{close}", f"{open_}{', '.join(texts[:-1])}{close}", f"{open_}{', '.join([*texts, '77'])}{close}"],
    )


def words(rng) -> tuple[str, list[str], list[str]]:
    choices = ["Monday", "even", "odd", "ellipse", "parabola", "Carla", "no solution", "blue", "east", "hyperbola"]
    gold, other = (str(x) for x in rng.choice(choices, 2, replace=False))
    return f"\\text{{{gold}}}", [gold, f"\\text{{{gold}}}", gold.lower(), f"\\textbf{{{gold}}}", f"\\text{{ {gold}}}."], [other, f"\\text{{{other}}}"]


def option(rng) -> tuple[str, list[str], list[str]]:
    gold, other = (str(x) for x in rng.choice(list("ABCD"), 2, replace=False))
    right = [gold, f"({gold})", f"\\text{{{gold}}}", f"\\textbf{{({gold})}}", f"{gold}.", f"\\mathrm{{{gold}}}"]
    return gold, right, [other, f"({other})", f"\\text{{{other}}}", f"\\textbf{{({other})}}"]


def measure(rng) -> tuple[str, list[str], list[str]]:
    n = int(rng.integers(2, 400))
    kind = pick(rng, "\\%", "^\\circ", "\\text{ cm}", "\\text{ inches}", "$")
    if kind == "$":
        return f"\\${n}", [f"\\${n}", f"{n}", f"\\${n}.00", f"{n}\\text{{ dollars}}"], [f"\\${n + 1}", f"{n}.50"]
    variants = {"\\%": ["%", ""], "^\\circ": ["^{\\circ}", "\u00b0", ""], "\\text{ cm}": [" cm", "\\mathrm{~cm}", ""]}
    right = [f"{n}{kind}", *(f"{n}{v}" for v in variants.get(kind, [" inches", ""]))]
    return f"{n}{kind}", right, [f"{n + 1}{kind}", f"{n + 3}", f"{n}.5{kind}"]


def beyond(rng) -> tuple[str, list[str], list[str]]:
    """Shapes that the device does not read; the host must say."""
    a, b = (int(x) for x in rng.choice(np.arange(2, 12), 2, replace=False))
    return pick(
        rng,
        (f"\\begin{{pmatrix}}{a}\\\\{b}\\end{{pmatrix}}", [f"\\begin{{pmatrix}} {a} \\\\ {b} \\end{{pmatrix}}"], [f"\\begin{{pmatrix}}{b}\\\\{a}\\end{{pmatrix}}"]),
        (f"(x+{a})(x-{b})", [f"(x-{b})(x+{a})", f"(x+{a})(x-{b})"], [f"(x-{a})(x+{b})", f"(x+{a})(x-{b + 1})"]),
        (f"\\frac{{x+{a}}}{{x-{b}}}", [f"\\dfrac{{x+{a}}}{{x-{b}}}", f"\\frac{{{a}+x}}{{x-{b}}}"], [f"\\frac{{x-{a}}}{{x-{b}}}"]),
        (f"{a}\\sqrt[3]{{{b}}}", [f"{a} \\sqrt[3]{{{b}}}"], [f"{a + 1}\\sqrt[3]{{{b}}}"]),
        (f"2^{{{a}}}", [f"{2**a}", f"2^{{{a}}}"], [f"{2**a + 1}", f"2^{{{a + 1}}}"]),
        (f"\\log_{{{a}}} {b}", [f"\\log_{{{a}}}{b}", f"\\log_{{{a}}} {{{b}}}"], [f"\\log_{{{b}}} {a}"]),
        (f"\\sqrt{{\\frac{{{a}}}{{{b}}}}}", [f"\\frac{{\\sqrt{{{a}}}}}{{\\sqrt{{{b}}}}}", f"\\sqrt{{\\frac{{{a}}}{{{b}}}}}"], [f"\\sqrt{{\\frac{{{b}}}{{{a}}}}}"]),
        (f"(-\\infty,{a})\\cup({a + b},\\infty)", [f"(-\\infty, {a}) \\cup ({a + b}, \\infty)"], [f"(-\\infty,{a}]\\cup({a + b},\\infty)"]),
    )


MATH = (
    (integer, 0.58), (fraction, 0.11), (decimal, 0.03), (root, 0.05), (circle, 0.03), (polynomial, 0.04), (complex_number, 0.01),
    (tuple_of, 0.03), (interval, 0.02), (several, 0.02), (words, 0.02), (option, 0.01), (measure, 0.03), (beyond, 0.02),
)  # fmt: skip
MIXTURES = {"integers": ((integer, 1.0),), "math": MATH, "hard": tuple((shape, 1 / len(MATH)) for shape, _ in MATH)}


def corpus(mixture: str, count: int, seed: int) -> list[Row]:
    """`count` rows of a mixture, half of them right."""
    rng = np.random.default_rng(seed)
    shapes, shares = zip(*MIXTURES[mixture], strict=True)
    rows = []
    for number in rng.choice(len(shapes), count, p=np.array(shares) / sum(shares)):
        gold, right, wrong = shapes[number](rng)
        is_right = bool(rng.random() < 0.5)
        answer = pick(rng, *(right if is_right else wrong))
        rows.append(Row(gold, answer, is_right, shapes[number].__name__))
    return rows
