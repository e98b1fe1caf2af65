from fractions import Fraction

import jax
import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from scope_jax.rewards import RIGHT, UNDECIDED, WRONG, AnswerKey
from scope_jax.rewards.answers import LIMIT, WINDOW, compare, read_numbers, trim

ROWS = 64
_trim, _read, _compare = jax.jit(trim), jax.jit(read_numbers), jax.jit(compare)


def windows(texts):
    """Texts as byte windows of one fixed shape, each between three bytes of something else on both sides."""
    rows = np.full((ROWS, WINDOW), ord("5"), np.uint8)
    stop = np.full(ROWS, 3)
    for row, text in enumerate(texts):
        text = text.encode()
        rows[row, 3 : 3 + len(text)] = np.frombuffer(text, np.uint8)
        stop[row] = 3 + len(text)
    return rows, np.full(ROWS, 3), stop


def read(texts):
    """The device's reading of each text: its value, or None."""
    top, bottom = (np.asarray(x).tolist() for x in _read(*_trim(*windows(texts))))
    return [Fraction(t, b) if b else None for t, b in zip(top, bottom, strict=True)][: len(texts)]


def verdicts(texts, golds):
    key = AnswerKey.from_strings([*golds, *["1"] * (ROWS - len(golds))])
    return np.asarray(_compare(*windows(texts), key)).tolist()[: len(texts)]


def test_each_plain_form_is_read_by_its_exact_value():
    forms = {"7": 7, "007": 7, "+5": 5, "-0": 0, "1,234": 1234, "12,345,678": 12345678, "3.50": Fraction(7, 2)}
    forms |= {".5": Fraction(1, 2), "-1,234.5": Fraction(-2469, 2), "\u22123": -3, "6/4": Fraction(3, 2), "-0/5": 0}
    forms |= {"\\frac{6}{4}": Fraction(3, 2), "-\\dfrac{-6}{4}": Fraction(3, 2), "\\tfrac{-1}{2}": Fraction(-1, 2)}
    forms |= {" $7$. ": 7, "7.": 7, "\t\u22120.10$.\r\n": Fraction(-1, 10), "999999999": LIMIT - 1}
    assert read(list(forms)) == list(forms.values())


def test_everything_else_is_no_number():
    texts = ["", "-", "+-5", "--5", "1,23", "1234,567", "0,123", "1,2345", "1.2.3", "1..2", "5-", "3/", "/3", "1/2/3"]
    texts += [
        "1/0",
        "1,000/2",
        "1.5/2",
        "\\frac{1}{0}",
        "\\frac{1}{2",
        "\\frac12",
        "\\frac{}{2}",
        "\\frac{1}{-2}",
        "{5}",
    ]
    texts += [
        "\\frac{1}{2}3",
        "\\frac{1,000}{2}",
        "1e3",
        "5%",
        "50\\%",
        "x",
        "5x",
        "\\$5",
        "5 6",
        "- 5",
        "\u2212-5",
        "1}",
    ]
    texts += [
        "\\cfrac{1}{2}",
        "\\frac{+1}{2}",
        "\\frac{1} {2}",
        "1,234,",
        ",123",
        "\\frac{--1}{2}",
        "-.",
        "\\frac{1/2}{3}",
    ]
    assert read(texts) == [None] * len(texts)


def test_numbers_beyond_the_int32_safe_range_are_not_read():
    texts = [
        "1000000000",
        "99999999999999999999",
        "0.123456789",
        "1/1000000000",
        "2147483648",
        "4294967297",
        "0.0000000001",
    ]
    assert read(texts) == [None] * len(texts)
    assert read(["000000000000999999999", "-999999999/999999998", "0.12345678"]) == [
        Fraction(999999999),
        Fraction(-999999999, 999999998),
        Fraction(12345678, 10**8),
    ]
    # 2^32 + 1 would read as 1 if it wrapped.
    assert verdicts(["4294967297", "1000000000"], ["1", "1000000000"]) == [UNDECIDED, RIGHT]


def test_verdicts_compare_numbers_by_value_and_texts_by_bytes():
    cases = [("1/2", "0.5", RIGHT), ("0.333333", "1/3", WRONG), ("x", "x", RIGHT), ("x", "y", UNDECIDED)]
    cases += [("5", "x", UNDECIDED), ("x", "5", UNDECIDED), ("", "x", WRONG), (" $.", "5", WRONG), ("", "", WRONG)]
    cases += [("$x$.", "x", RIGHT), ("x", "$x$", RIGHT), ("7" * 58, "7" * 58, RIGHT), ("1/0", "2/0", UNDECIDED)]
    cases += [("x", "x" * 99, UNDECIDED), ("-5", "5", WRONG), ("1,234", "1234.0", RIGHT)]
    texts, golds, expected = zip(*cases, strict=True)
    assert verdicts(texts, golds) == list(expected)


NUMBERS = st.one_of(
    st.integers(-(LIMIT - 1), LIMIT - 1).map(str),
    st.integers(-(LIMIT - 1), LIMIT - 1).map("{:,}".format),
    st.decimals(-999, 999, places=4, allow_nan=False).map(str),
    st.tuples(st.integers(-999, 999), st.integers(1, 999)).map("{0[0]}/{0[1]}".format),
    st.tuples(st.integers(-999, 999), st.integers(1, 999)).map("\\frac{{{0[0]}}}{{{0[1]}}}".format),
)
NOISE = st.text(st.sampled_from("0123456789,./-+{}\\frac $\u2212x%"), max_size=16)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(NUMBERS, NOISE), min_size=20, max_size=ROWS))
def test_the_device_reads_the_numbers_that_the_reference_reads(texts):
    for text, value in zip(texts, read(texts), strict=True):
        expected = reference.number(reference.bare(text))
        too_large = value is None and sum(c.isdigit() for c in text) > 8
        assert value == expected or too_large, text


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.one_of(NUMBERS, NOISE), st.one_of(NUMBERS, NOISE)), min_size=20, max_size=ROWS))
def test_the_device_decides_as_the_reference_or_not_at_all(pairs):
    names = {WRONG: reference.WRONG, RIGHT: reference.RIGHT}
    texts, golds = zip(*pairs, strict=True)
    for text, gold, verdict in zip(texts, golds, verdicts(texts, golds), strict=True):
        assert verdict == UNDECIDED or names[verdict] == reference.verdict(text, gold), (text, gold)


def test_slot_keys_put_the_main_answer_last_and_mask_what_is_missing():
    key = AnswerKey.from_strings([["1", "2", "3"], ["9"]], max_subs=3)
    assert key.mask.tolist() == [[True, True, False, True], [False, False, False, True]]
    assert key.numerator[:, -1].tolist() == [3, 9] and key.numerator[0, :2].tolist() == [1, 2]
    assert AnswerKey.from_strings([["1", "2"], ["3"]]).mask.shape == (2, 2)


@pytest.mark.parametrize("answers", [[], [["1"], "2"], [[]], [["1", "2", "3"]], [["1", 2]], [3]])
def test_malformed_answers_are_refused(answers):
    with pytest.raises(ValueError, match="answers"):
        AnswerKey.from_strings(answers, max_subs=1)
