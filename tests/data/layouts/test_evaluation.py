"""MATH500, AIME, AMC and GPQA-diamond; all rows are written for these tests."""

import collections
import csv

import pytest

from scope_jax.data.convert import convert
from scope_jax.data.layouts.evaluation import LETTERS, aime_problem, amc_problem, gpqa_problem, math500_problem
from scope_jax.data.records import Problem, RecordError

MATH500 = {
    "problem": "What is $\\frac{1}{2}+1$?",
    "solution": "It is $\\boxed{\\frac{3}{2}}$.",
    "answer": "\\frac{3}{2}",
    "subject": "Prealgebra",
    "level": 2,
    "unique_id": "test/prealgebra/0.json",
}
GPQA = {
    "Record ID": "recZZ1",
    "Question": " Which gas do plants take in?\n",
    "Correct Answer": "Carbon dioxide\n",
    "Incorrect Answer 1": "Argon",
    "Incorrect Answer 2": 'Neon, "inert"',
    "Incorrect Answer 3": "Helium",
    "High-level domain": "Biology",
    "Pre-Revision Question": "an earlier text",
}


def test_math500_keeps_answer_level_and_id():
    assert math500_problem(MATH500, "f:1", id="x") == Problem(
        "math500-test/prealgebra/0.json", MATH500["problem"], "\\frac{3}{2}", "math500", "2"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"problem": ""}, "field 'problem' is empty"),
        ({"answer": None}, "field 'answer' is missing"),
        ({"answer": 1.5}, "field 'answer' is the number 1.5"),
        ({"level": ["2"]}, "field 'level' is a list"),
        ({"unique_id": {}}, "field 'unique_id' is an object"),
    ],
)
def test_an_odd_math500_row_is_refused_with_the_field(change, message):
    with pytest.raises(RecordError, match=f"^f:3: {message}"):
        math500_problem(MATH500 | change, "f:3", id="x")


@pytest.mark.parametrize(
    ("row", "identity", "answer"),
    [
        ({"id": 60, "problem": "p", "solution": "s", "answer": "025", "url": "u", "year": "2024"}, "s-60", "25"),
        ({"ID": "2024-I-4", "Problem": "p", "Solution": "s", "Answer": 116}, "s-2024-I-4", "116"),
        ({"question": "p", "answer": "70"}, "x", "70"),
        ({"id": "7", "problem": "p", "answer": "336^\\circ"}, "s-7", "336"),
        ({"id": "0", "problem": "p", "question": "p", "answer": "000"}, "s-0", "0"),
        ({"problem": "p", "answer": "999", "Answer": None}, "x", "999"),
    ],
)
def test_every_spelling_of_the_aime_gives_a_plain_integer(row, identity, answer):
    assert aime_problem(row, "f:1", id="x", source="s") == Problem(identity, "p", answer, "s")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"problem": "p", "answer": "1000"},
            "field 'answer' is 1000; answers of the AIME are whole numbers from 0 to 999",
        ),
        ({"problem": "p", "Answer": -1}, "field 'Answer' is -1; answers"),
        ({"problem": "p", "answer": "12.5"}, "field 'answer' is '12.5', which is no whole number"),
        ({"problem": "p", "answer": True}, "field 'answer' is True, which is no whole number"),
        ({"problem": "p", "answer": "x"}, "field 'answer' is 'x'"),
        ({"problem": "p"}, "field 'answer' is missing; Answer would do too"),
        ({"answer": "1"}, "field 'problem' is missing; Problem or question would do too"),
        ({"problem": "p", "question": "q", "answer": "1"}, "field 'question' differs from the field 'problem'"),
        ({"problem": "p", "answer": "1", "Answer": "2"}, "field 'Answer' differs"),
        ("p", "is a string; it must be an object"),
    ],
)
def test_an_odd_aime_row_is_refused_with_the_field(row, message):
    with pytest.raises(RecordError, match=f"^f:3: {message}"):
        aime_problem(row, "f:3", id="x", source="s")


def test_amc_answers_lose_their_point_and_must_be_whole():
    row = {"id": 0, "problem": "p", "answer": 27.0, "url": "u", "question": "p"}
    assert amc_problem(row, "f:1", id="x") == Problem("amc23-0", "p", "27", "amc23")
    assert amc_problem(row | {"answer": -1.0}, "f:1", id="x").answer == "-1"
    for bad in (27.5, float("inf"), float("nan"), "27.0"):
        with pytest.raises(RecordError, match="^f:3: field 'answer' is .*, which is no whole number"):
            amc_problem(row | {"answer": bad}, "f:3", id="x")


def test_gpqa_ends_in_lettered_choices_and_the_answer_is_the_letter_of_the_right_one():
    problem = gpqa_problem(GPQA, "f:1", id="x", seed=3)
    question, blank, *choices = problem.problem.split("\n")
    assert (question, blank) == ("Which gas do plants take in?", "")
    assert [line[:4] for line in choices] == ["(A) ", "(B) ", "(C) ", "(D) "]
    assert sorted(line[4:] for line in choices) == ["Argon", "Carbon dioxide", "Helium", 'Neon, "inert"']
    assert choices[LETTERS.index(problem.answer)] == f"({problem.answer}) Carbon dioxide"
    assert problem.id == "gpqa_diamond-recZZ1-seed3"


def test_gpqa_orders_depend_on_seed_and_record_alone_and_every_letter_comes_up():
    one = gpqa_problem(GPQA, "f:1", id="x", seed=3)
    assert one == gpqa_problem(dict(reversed(GPQA.items())), "f:9", id="y", seed=3)
    letters = collections.Counter(gpqa_problem(GPQA, "f:1", id="x", seed=seed).answer for seed in range(400))
    assert set(letters) == set(LETTERS) and min(letters.values()) > 70  # 100 expected, deviation 8.7
    rows = [GPQA | {"Record ID": f"rec{i}"} for i in range(400)]
    letters = collections.Counter(gpqa_problem(row, "f:1", id="x", seed=0).answer for row in rows)
    assert set(letters) == set(LETTERS) and min(letters.values()) > 70
    orders = {gpqa_problem(GPQA, "f:1", id="x", seed=seed).problem for seed in range(400)}
    assert len(orders) == 24


def test_the_order_of_seed_zero_never_changes():
    assert gpqa_problem(GPQA, "f:1", id="x").problem.split("\n")[2:] == [
        "(A) Helium",
        "(B) Argon",
        "(C) Carbon dioxide",
        '(D) Neon, "inert"',
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Question": "  "}, "field 'Question' is empty"),
        ({"Correct Answer": ""}, "field 'Correct Answer' is empty"),
        ({"Incorrect Answer 3": None}, "field 'Incorrect Answer 3' is missing"),
        ({"Incorrect Answer 2": "Argon "}, "field 'Incorrect Answer 2' is the same as 'Incorrect Answer 1'"),
        ({"Incorrect Answer 1": "Carbon dioxide"}, "field 'Incorrect Answer 1' is the same as 'Correct Answer'"),
    ],
)
def test_an_odd_gpqa_row_is_refused_with_the_field(change, message):
    with pytest.raises(RecordError, match=f"^f:3: {message}"):
        gpqa_problem(GPQA | change, "f:3", id="x")


def test_gpqa_converts_from_csv_with_quotes_commas_and_line_breaks(tmp_path):
    path = tmp_path / "gpqa_diamond.csv"
    rows = [GPQA, GPQA | {"Record ID": "recZZ2", "Incorrect Answer 1": ""}, GPQA | {"Record ID": "recZZ3"}]
    with open(path, "w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, list(GPQA))
        writer.writeheader()
        writer.writerows(rows)
    problems, lines, rejects = convert(path, "gpqa", seed=3)
    assert problems == [gpqa_problem(row, "", id="", seed=3) for row in (rows[0], rows[2])]
    assert lines == [2, 8]  # each row takes three lines, as two of its texts end in a line break
    assert [one.reason for one in rejects] == [f"{path}:5: field 'Incorrect Answer 1' is empty"]
