"""DAPO-Math-17k and Big-Math; all rows are written for these tests."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from scope_jax.data.convert import convert, summary
from scope_jax.data.layouts.training import big_math_problem, dapo_problem
from scope_jax.data.records import Problem, RecordError

BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: $Answer "
    "(without quotes) where $Answer is the answer to the problem.\n\n"
)
AFTER = '\n\nRemember to put your answer on its own line after "Answer:".'


def dapo_row(problem="What is $2+3$?", answer="5", index="0f-7a", **other):
    return {
        "data_source": "math_dapo",
        "prompt": [{"content": BEFORE + problem + AFTER, "role": "user"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": answer, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": index},
    } | other


def big_math_row(**other):
    row = {"problem": "Two plus two?", "answer": "4", "source": "cn_k12", "domain": ["Mathematics -> Algebra"]}
    return row | {"llama8b_solve_rate": 0.25} | other


def test_a_dapo_row_loses_the_fixed_wording_and_keeps_its_index():
    problem = dapo_problem(dapo_row("Line one.\n\nRemember: what is $2+3$?"), "f:1", id="x")
    assert problem == Problem("dapo-0f-7a", "Line one.\n\nRemember: what is $2+3$?", "5", "dapo")


def test_the_processed_dapo_row_has_a_bare_prompt_and_its_answer_as_solution():
    row = dapo_row(index="7") | {"prompt": " What is $2+3$? ", "solution": "6", "source_prompt": dapo_row()["prompt"]}
    assert dapo_problem(row, "f:1", id="x") == Problem("dapo-7", "What is $2+3$?", "6", "dapo")
    assert dapo_problem({"prompt": "p", "solution": "1"}, "f:1", id="x").id == "x"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([], "f:3: is a list; it must be an object"),
        (dapo_row(prompt=None), "field 'prompt' is 'None'; expected a list of one"),
        (dapo_row(prompt=dapo_row()["prompt"] * 2), "field 'prompt' is .*; expected a list of one"),
        (dapo_row(prompt=["text"]), r"field 'prompt\[0\]' is a string; it must be an object"),
        (dapo_row(prompt=[{"role": "user"}]), r"field 'prompt\[0\].content' is missing"),
        (dapo_row(prompt=[{"content": "What is 2+3?"}]), "field 'prompt' lacks DAPO's wording .*'What is 2"),
        (dapo_row(prompt=[{"content": BEFORE + "What is 2+3?"}]), "field 'prompt' lacks DAPO's wording"),
        (dapo_row(prompt=[{"content": BEFORE + AFTER}]), "field 'problem' is empty"),
        (dapo_row(reward_model=None), "field 'reward_model' is null; it must be an object"),
        (dapo_row(reward_model={"style": "rule"}), "field 'reward_model.ground_truth' is missing"),
        (dapo_row(" ", answer=" "), "field 'reward_model.ground_truth' is empty"),
        (dapo_row(extra_info="index 7"), "field 'extra_info' is a string; it must be an object"),
        ({"prompt": "What is 2+3?"}, "field 'solution' is missing"),
    ],
)
def test_an_odd_dapo_row_is_refused_with_the_field(row, message):
    with pytest.raises(RecordError, match=f"^f:3: .*{message}" if "f:3" not in message else message):
        dapo_problem(row, "f:3", id="x")


def test_big_math_keeps_its_own_source_and_the_solve_rate():
    assert big_math_problem(big_math_row(), "f:1", id="x") == Problem(
        "x", "Two plus two?", "4", "big_math/cn_k12", "solve_rate=0.25"
    )
    bare = {"problem": "Two plus two?", "answer": "4", "source": None, "llama8b_solve_rate": None}
    assert big_math_problem(bare, "f:1", id="x", source="s") == Problem("x", "Two plus two?", "4", "s")
    assert big_math_problem(big_math_row(llama8b_solve_rate="0.5"), "f:1", id="x").level == "solve_rate=0.5"  # CSV


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"problem": None}, "field 'problem' is missing"),
        ({"answer": ""}, "field 'answer' is empty"),
        ({"answer": ["4"]}, "field 'answer' is a list; it must be a string"),
        ({"source": 3.5}, "field 'source' is the number 3.5"),
        ({"llama8b_solve_rate": 1.5}, "field 'llama8b_solve_rate' is 1.5; it must be a share"),
        ({"llama8b_solve_rate": "easy"}, "field 'llama8b_solve_rate' is 'easy'"),
        ({"llama8b_solve_rate": float("nan")}, "field 'llama8b_solve_rate' is nan"),
    ],
)
def test_an_odd_big_math_row_is_refused_with_the_field(change, message):
    with pytest.raises(RecordError, match=f"^f:3: {message}"):
        big_math_problem(big_math_row(**change), "f:3", id="x")


def test_dapo_converts_from_parquet_and_its_copies_are_left_out(tmp_path):
    path = tmp_path / "dapo-math-17k.parquet"
    rows = [dapo_row(index="a"), dapo_row("And $2+4$?", "6", index="b"), dapo_row(answer="", index="c")]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([*rows, *rows[:2], rows[0]]), path)
    problems, lines, rejects = convert(path, "dapo")
    assert [(problem.id, problem.answer) for problem in problems] == [("dapo-a", "5"), ("dapo-b", "6")]
    assert lines == [1, 2]
    assert [(one.line, one.what, one.rows) for one in rejects] == [(3, "row", 1), (1, "copy", 2), (2, "copy", 1)]
    assert summary(problems, rejects) == "2 of 6 rows converted, 1 rejected; exact copies left out: 3; no scaffolds"
    assert rejects[0].reason == f"{path}: row 3: field 'reward_model.ground_truth' is empty"


def test_big_math_converts_from_parquet_and_from_jsonl_alike(tmp_path):
    rows = [big_math_row(), big_math_row(problem="Three plus one?", llama8b_solve_rate=None)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = convert(tmp_path / "rows.parquet", "big_math")
    assert found == convert(tmp_path / "rows.jsonl", "big_math")
    assert [(problem.id, problem.level) for problem in found.problems] == [
        ("big_math-1", "solve_rate=0.25"),
        ("big_math-2", None),
    ]
