import json
import pathlib
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scope_jax.data import gsm8k
from scope_jax.data.records import RecordError, SubQuestion

SAMPLE = pathlib.Path(__file__).with_name("socratic_sample.jsonl")  # written by hand, one awkward case a row
ROWS = [json.loads(line) for line in SAMPLE.read_text(encoding="utf-8").splitlines()]


def scaffold_of(row):
    problem, reason = gsm8k.socratic_problem(ROWS[row], "sample", id="x")
    return [(step.question, step.answer) for step in problem.scaffold], problem.answer, reason


def test_the_last_line_is_the_main_question_and_no_sub_question():
    assert scaffold_of(0) == ([("How many jars does Petra fill?", "60")], "19", "")


def test_thousands_commas_dollars_and_padding_zeros_are_normalised():
    steps, answer, _ = scaffold_of(1)
    assert [value for _, value in steps] == ["9250", "27750"]
    assert answer == "1110"


def test_sub_questions_without_a_checkable_value_merge_into_the_next():
    steps, _, _ = scaffold_of(2)
    merged = "Define a variable. How old are they together? How old is Ben?"
    assert steps == [(merged, "9"), ("How old is Ana?", "36")]


def test_a_question_asked_twice_counts_the_last_time_with_its_last_note():
    steps, _, _ = scaffold_of(3)
    assert steps == [("How much water does the pump move?", "340"), ("How much leaks out?", "34")]


def test_a_scaffold_whose_question_shows_an_unstated_answer_is_not_used():
    steps, answer, reason = scaffold_of(4)
    assert (steps, answer) == ([], "20")
    assert "'41'" in reason


def test_one_step_gives_no_scaffold():
    steps, answer, reason = scaffold_of(5)
    assert (steps, answer) == ([], "3")
    assert "no step before the last" in reason


def test_rounded_values_are_not_checkable_and_a_unicode_minus_is():
    steps, answer, _ = scaffold_of(6)
    merged = "By how much does it fall at night? By how many whole degrees is that?"
    assert steps == [("How many degrees is it in the evening?", "-2"), (merged, "2")]
    assert answer == "-4"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (ROWS[7], "no '#### answer'"),
        ({"question": "q", "answer": "Why? ** 1\n#### many"}, "'many', which is no number"),
        ({"question": "q", "answer": "a step alone\n#### 1"}, "no 'sub-question \\*\\* step' in its line 1"),
        ({"question": "", "answer": "Why? ** 1\n#### 1"}, "'problem' is empty"),
        ({"question": "q"}, "no GSM8K row"),
        ({"question": "q", "answer": 3}, "no GSM8K row"),
        ("q", "no GSM8K row"),
    ],
)
def test_a_row_of_another_layout_is_refused_with_the_reason(row, reason):
    with pytest.raises(RecordError, match=f"file:9: .*{reason}"):
        gsm8k.socratic_problem(row, "file:9", id="x")


def test_the_plain_layout_gives_problems_without_scaffold():
    row = {"question": " How many? ", "answer": "There are 2+2=<<2+2=4>>4.\n#### 4"}
    problem = gsm8k.plain_problem(row, "here", id="x-1", source="s")
    assert (problem.problem, problem.answer, problem.id, problem.source) == ("How many?", "4", "x-1", "s")
    assert problem.scaffold == ()


def test_trailing_uncheckable_steps_go_with_the_main_question():
    steps = [("How many?", "4"), ("Simplify", None), ("And now?", None)]
    assert gsm8k.build_scaffold(steps) == (SubQuestion("How many?", "4"),)
    assert gsm8k.build_scaffold([]) == ()


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("1,450,000", "1450000"),
        ("$2.50", "2.5"),
        (" 16.00 ", "16"),
        (".05", "0.05"),
        ("-.5", "-0.5"),
        ("\u22127", "-7"),
        ("+5", "5"),
        ("-0", "0"),
        ("007", "7"),
        ("18.", "18"),
        ("3/4", "3/4"),
        ("3/0", None),
        ("", None),
        ("x", None),
        ("1 2", None),
        ("50%", None),
        ("1e3", None),
        ("\u0663", None),
    ],
)
def test_numbers_become_plain_digits(text, plain):
    assert gsm8k.plain_number(text) == plain


@settings(max_examples=200, deadline=None)
@given(st.decimals(min_value=-(10**9), max_value=10**9, places=4))
def test_a_plain_number_keeps_its_value_and_is_stable(number):
    plain = gsm8k.plain_number(f"{number:,}")
    assert Fraction(plain) == Fraction(number)
    assert gsm8k.plain_number(plain) == plain


@pytest.mark.parametrize(
    ("work", "value"),
    [
        ("no note: 2+2=4", None),
        ("<<2+2=4>>4 and <<4*3=12>>12", "12"),
        ("<<2+2=4>>4 and <<4*3=13>>13", None),
        ("<<100/3=33.33>>33.33", None),
        ("<<3/4=3/4>>", "3/4"),
        ("<<12>>", None),
        ("<<>>", None),
    ],
)
def test_only_a_note_that_is_exactly_right_is_checkable(work, value):
    assert gsm8k.checkable_value(work) == value
