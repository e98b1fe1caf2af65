import jax
import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from scope_jax.rewards import RIGHT, UNDECIDED, WRONG, AnswerKey
from scope_jax.rewards.answers import LEAST_ROWS, WINDOW, compare, read_rows
from scope_jax.rewards.reading import read_forms
from scope_jax.verify import forms

ROWS = LEAST_ROWS  # one compiled shape
_compare = jax.jit(compare)


def windows(texts):
    """Texts as byte windows of one fixed shape, each between three bytes of something else on both sides."""
    rows = np.full((ROWS, WINDOW), ord("5"), np.uint8)
    stop = np.full(ROWS, 3)
    for row, text in enumerate(texts):
        text = text.encode()
        rows[row, 3 : 3 + len(text)] = np.frombuffer(text, np.uint8)
        stop[row] = 3 + len(text)
    return rows, np.full(ROWS, 3), stop


def verdicts(texts, golds):
    key = AnswerKey.from_strings([*golds, *["1"] * (ROWS - len(golds))])
    text, start, stop = windows(texts)
    return np.asarray(_compare(text, start, stop, read_forms(text, start, stop), key)).tolist()[: len(texts)]


def test_verdicts_compare_what_answers_mean():
    cases = [("1/2", "0.5", RIGHT), ("0.333333", "1/3", WRONG), ("x", "x", RIGHT), ("2x", "2y", UNDECIDED)]
    cases += [("5", "x", UNDECIDED), ("x", "5", UNDECIDED), ("", "x", WRONG), (" $.", "5", WRONG), ("", "", WRONG)]
    cases += [("$x$.", "x", RIGHT), ("x", "$x$", RIGHT), ("7" * 58, "7" * 58, RIGHT), ("1/0", "2/0", UNDECIDED)]
    cases += [("x", "x" * 99, UNDECIDED), ("-5", "5", WRONG), ("1,234", "1234.0", RIGHT), ("B", "A", WRONG)]
    cases += [("\\sqrt{8}", "2\\sqrt{2}", RIGHT), ("2, 1", "1,2", RIGHT), ("5 cm", "5", RIGHT), ("6 cm", "5", WRONG)]
    cases += [("5", " ", UNDECIDED), ("\\left", "5", UNDECIDED), ("Friday", "\\text{Friday}", RIGHT)]
    texts, golds, expected = zip(*cases, strict=True)
    assert verdicts(texts, golds) == list(expected)


def test_numbers_beyond_the_int32_safe_range_are_never_guessed():
    large = ["1000000000", "99999999999999999999", "0.1234567891", "1/1000000000", "2147483648", "4294967297"]
    assert verdicts(large, ["1"] * len(large)) == [UNDECIDED] * len(large)
    assert verdicts(large, large) == [RIGHT] * len(large)
    # 2^32 + 1 would read as 1 if it wrapped; products that leave the range on the way are not read either.
    products = ["999999999\\sqrt{8}", "1000\\frac{1}{999999999}", "\\frac{1}{99999999\\sqrt{999}}", "x^{2147483649}"]
    assert verdicts(products, ["1"] * len(products)) == [UNDECIDED] * len(products)
    assert verdicts(["999999999", "999999998/999999999"], ["999999998", "1"]) == [WRONG, WRONG]


def test_a_percent_on_one_side_counts_only_where_a_hundredth_can_be_told():
    cases = [("50\\%", "0.5", RIGHT), ("0.5", "50%", RIGHT), ("50\\%", "50", RIGHT), ("50\\%", "5", WRONG)]
    cases += [("0\\%", "0", RIGHT), ("1/99999999\\%", "2", UNDECIDED), ("50\\%", "(0.5,1)", UNDECIDED)]
    texts, golds, expected = zip(*cases, strict=True)
    assert verdicts(texts, golds) == list(expected)


NUMBERS = st.one_of(
    st.integers(-999999999, 999999999).map(str),
    st.integers(-999999999, 999999999).map("{:,}".format),
    st.decimals(-999, 999, places=4, allow_nan=False).map(str),
    st.tuples(st.integers(-999, 999), st.integers(1, 999)).map("{0[0]}/{0[1]}".format),
    st.tuples(st.integers(-999, 999), st.integers(1, 999)).map("\\frac{{{0[0]}}}{{{0[1]}}}".format),
)
NOISE = st.text(st.sampled_from("0123456789,./-+{}\\frac $\u2212x%"), max_size=16)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.one_of(NUMBERS, NOISE), st.one_of(NUMBERS, NOISE)), min_size=20, max_size=64))
def test_the_device_decides_as_the_reference_or_not_at_all(pairs):
    names = {WRONG: reference.WRONG, RIGHT: reference.RIGHT}
    texts, golds = zip(*pairs, strict=True)
    for text, gold, verdict in zip(texts, golds, verdicts(texts, golds), strict=True):
        expected = reference.verdict(text, gold)
        if expected == reference.OPEN:  # beyond plain numbers the forms decide
            same = forms.compare(forms.read(text), forms.read(gold))
            assert verdict in (UNDECIDED, {True: RIGHT, False: WRONG, None: UNDECIDED}[same]), (text, gold)
        else:
            assert verdict == UNDECIDED or names[verdict] == expected, (text, gold)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=20, max_size=64))
def test_plain_numbers_are_always_decided(pairs):
    texts, golds = zip(*pairs, strict=True)
    assert UNDECIDED not in verdicts(texts, golds)


def test_slot_keys_put_the_main_answer_last_and_mask_what_is_missing():
    key = AnswerKey.from_strings([["1", "2", "3"], ["9"]], max_subs=3)
    assert key.mask.tolist() == [[True, True, False, True], [False, False, False, True]]
    assert key.form.codes[:, -1, 0].tolist() == list(b"39") and key.form.codes[0, :2, 0].tolist() == list(b"12")
    assert key.form.read.tolist() == key.mask.tolist()
    assert AnswerKey.from_strings([["1", "2"], ["3"]]).mask.shape == (2, 2)


def test_a_key_of_many_answers_is_the_key_of_each():
    golds = [str(n) for n in range(LEAST_ROWS + 3)]
    many, last = AnswerKey.from_strings(golds), AnswerKey.from_strings(golds[-1:])
    assert many.mask.shape == (LEAST_ROWS + 3,)
    for whole, alone in zip(jax.tree.leaves(many), jax.tree.leaves(last), strict=True):
        np.testing.assert_array_equal(whole[-1:], alone)


@pytest.mark.parametrize("answers", [[], [["1"], "2"], [[]], [["1", "2", "3"]], [["1", 2]], [3]])
def test_malformed_answers_are_refused(answers):
    with pytest.raises(ValueError, match="answers"):
        AnswerKey.from_strings(answers, max_subs=1)


def test_answers_are_read_in_few_sizes():
    assert [read_rows(rows) for rows in (1, 512, 513, 1024, 1025, 3840)] == [512, 512, 1024, 1024, 2048, 4096]
