"""The device's reading of answers against the host's, which shares no code with it."""

import jax
import numpy as np
import pytest
from benchmarks.answer_corpus import corpus, pick

from scope_jax.rewards.reading import compare_forms, read_forms
from scope_jax.verify import forms

ROWS, SIZE = 512, 64
_compare = jax.jit(compare_forms)


def read(texts):
    rows, stop = np.zeros((ROWS, SIZE), np.uint8), np.zeros(ROWS, np.int32)
    for row, text in enumerate(texts):
        data = text.encode()
        rows[row, : len(data)], stop[row] = np.frombuffer(data, np.uint8), len(data)
    return read_forms(rows, np.zeros(ROWS, np.int32), stop)


def check(answers, golds):
    """Asserts that the device never differs from the host; returns how many rows each decides, and how many it reads."""
    a = read(answers)
    same, different = (np.asarray(x) for x in _compare(a, read(golds)))
    assert not (same & different).any()
    decided = host_decided = 0
    for answer, gold, s, d, is_read in zip(answers, golds, same, different, np.asarray(a.read), strict=False):
        reading = forms.read(answer)
        expected = forms.compare(reading, forms.read(gold))
        assert expected is not False or not s, (answer, gold)
        assert expected is not True or not d, (answer, gold)
        assert expected is not None or not (s or d), (answer, gold)
        assert reading.elements or not is_read, answer
        decided += bool(s or d)
        host_decided += expected is not None
    return decided, host_decided


def numbers(rng):
    return pick(
        rng, "0", "1", "2", "3", "12", "007", "1.5", "0.25", ".5", "1,234", "1{,}234", "12,345,67", "1\\,234", "10", "100", "5",
        "8", "18", "999999999", "2000000000", "1,2345", "0,123",
    )  # fmt: skip


def roots(rng):
    return pick(rng, f"\\sqrt{{{rng.integers(0, 60)}}}", "\\sqrt3", "\\sqrt 2", "\u221a5", "\\sqrt{12}", "\\sqrt{20000}")


def symbols(rng):
    return pick(rng, "x", "y", "n", "\\pi", "\u03c0", "i", "e", "\\infty", "x^2", "x^{3}", "y^{10}", "a", "\\pi^2", "x^8")


def product(rng):
    factors = [pick(rng, roots, symbols)(rng) for _ in range(rng.integers(0, 3))]
    return pick(rng, numbers(rng), "") + "".join(factors) or numbers(rng)


def fraction(rng):
    top = pick(rng, numbers(rng), product(rng), product(rng) + pick(rng, "+", "-") + product(rng))
    bottom = pick(rng, numbers(rng), roots(rng), numbers(rng) + roots(rng), "2", "3", "4")
    whole = pick(rng, "\\frac{%s}{%s}", "\\dfrac{%s}{%s}", "\\frac{-%s}{%s}") % (top, bottom)
    return pick(rng, whole, whole, whole, "\\frac12", "\\frac34", "\\tfrac 5 6")


def term(rng):
    before, after = pick(rng, "", "", "2", "3 ", "x", "-"), pick(rng, "", "", "", "x", "\\pi", "\\sqrt{3}", "3")
    return pick(
        rng, numbers(rng), product(rng), before + fraction(rng) + after, pick(rng, product(rng), "5 1", "2 3") + "/" + numbers(rng)
    )  # fmt: skip


def total(rng):
    terms = [pick(rng, "", "", "-", "+") + term(rng)]
    terms += [pick(rng, "+", "-", " - ", " + ") + term(rng) for _ in range(pick(rng, 0, 0, 0, 1, 1, 2, 3))]
    return "".join(terms)


def answer(rng):
    open_, close = pick(rng, ("(", ")"), ("[", "]"), ("\\{", "\\}"), ("\\left(", "\\right]"), ("", ""), ("", ""))
    listed = open_ + pick(rng, ",", ", ").join(total(rng) for _ in range(pick(rng, 1, 2, 2, 3))) + close
    unit = pick(rng, "\\%", "%", " cm", " apples", "\\text{ cm}^2", "^\\circ", "\\text{cm}", "m", " meters", "pm")
    words = pick(rng, "A", "(B)", "\\text{C}", "\\textbf{(A)}", "Friday", "\\text{no solution}", "ab", "abc", "cab", "x=", "x")
    text = pick(rng, total(rng), total(rng), total(rng), listed, listed, numbers(rng) + unit, words)
    text = pick(rng, "", "", "", "", "", "x = ", "y=", "$", "*") + text
    if rng.random() < 0.05:
        place = rng.integers(len(text) + 1)
        text = text[:place] + pick(rng, *"{}()^/\\,.+-x1 ") + text[place:]
    return text


def other(rng, text):
    """A gold answer for this text: another one, the same in other words, or nearly the same."""
    place = rng.integers(len(text))
    parts, listed = text.replace(" ", "").split("+"), text.strip("()[]").split(",")
    rng.shuffle(parts)
    rng.shuffle(listed)
    return pick(
        rng, answer(rng), text.replace(" ", "").replace("\\frac", "\\dfrac"), "+".join(parts), ",".join(listed),
        text[:place] + pick(rng, *"0123456789xy") + text[place + 1 :],
    )  # fmt: skip


def test_the_device_never_differs_from_the_host_and_decides_most_of_what_the_host_does():
    rng = np.random.default_rng(3)
    counts = np.zeros(2, int)
    for _ in range(6):
        answers, golds = [], []
        while len(answers) < ROWS:
            text = answer(rng)
            gold = other(rng, text)
            if max(len(text.encode()), len(gold.encode())) <= SIZE and gold.strip():
                answers.append(text)
                golds.append(gold)
        counts += check(answers, golds)
    decided, host_decided = counts
    assert host_decided > 1000 and decided > 0.85 * host_decided


@pytest.mark.parametrize("mixture", ["integers", "math", "hard"])
def test_answers_of_real_shapes_are_decided(mixture):
    rows = [row for row in corpus(mixture, ROWS, 9) if max(len(row.answer), len(row.gold)) <= SIZE - 8]
    decided, _ = check([row.answer for row in rows], [row.gold for row in rows])
    assert decided >= {"integers": 0.995, "math": 0.95, "hard": 0.85}[mixture] * len(rows)
