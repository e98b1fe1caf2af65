import csv
import json
import pathlib
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import pytest

from scope_jax.data import tfds_problems
from scope_jax.data.convert import Conversion, Reject, convert, drop_duplicates, drop_overlap, summary
from scope_jax.data.duplicates import index_problems
from scope_jax.data.layouts import LAYOUTS
from scope_jax.data.records import Problem, RecordError, load_jsonl, write_jsonl

SAMPLE = pathlib.Path(__file__).with_name("socratic_sample.jsonl")


def run(*arguments):
    command = [sys.executable, "-m", "scope_jax.data.convert", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def write_rows(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_rejects(output):
    return [json.loads(line) for line in output.with_name(f"{output.name}.rejects.jsonl").read_text().splitlines()]


def test_every_row_is_either_a_problem_or_rejected_with_its_line():
    problems, lines, rejects = convert(SAMPLE, "gsm8k_socratic", "sample")
    assert [problem.id for problem in problems] == [f"sample-{line}" for line in range(1, 8)]
    assert lines == list(range(1, 8))
    assert [(one.line, one.what, one.kept) for one in rejects] == [
        (5, "scaffold", True),
        (6, "scaffold", True),
        (8, "row", False),
    ]
    assert f"{SAMPLE}:8: field 'answer' has no '#### answer'" in rejects[-1].reason
    text = summary(problems, rejects)
    assert text == "7 of 8 rows converted, 1 rejected; scaffolds built: 71.4%, 1.80 sub-questions on average (1 to 2)"
    assert summary([], [Reject(1, "row", "")]) == "0 of 1 rows converted, 1 rejected; no scaffolds"


def test_broken_lines_and_repeated_ids_are_rejected_and_the_rest_is_kept(tmp_path):
    path = tmp_path / "rows.jsonl"
    good = {"id": "a", "problem": "p", "answer": 1, "subject": "extra fields go", "source": None}
    rows = [
        "{",
        json.dumps(good),
        json.dumps(good | {"answer": 2}),
        "[]",
        '{"problem": "p", "answer": "1"}',
        json.dumps(good),
    ]
    path.write_text("\n".join(rows) + "\n")
    problems, _, rejects = convert(path, "records", "mine")
    assert [(problem.id, problem.source) for problem in problems] == [("a", "mine"), ("mine-5", "mine")]
    assert [(one.line, one.what) for one in rejects] == [(1, "row"), (3, "row"), (4, "row"), (2, "copy")]
    assert rejects[1].reason == f"{path}:3: field 'id' is 'a', which line 2 has for another problem; ids must be unique"


def test_the_source_is_the_layouts_unless_named(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", {"question": "How many?", "answer": "#### 4"})
    assert convert(path, "gsm8k").problems == [Problem("gsm8k-1", "How many?", "4", "gsm8k")]
    assert convert(path, "gsm8k", "mine").problems == [Problem("mine-1", "How many?", "4", "mine")]
    assert convert(path, "gsm8k").rejects == []  # a layout without scaffolds rejects none
    assert LAYOUTS["aime24"].source == "aime24" and LAYOUTS["aime25"].source == "aime25"


def test_a_missing_input_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        convert(tmp_path / "nowhere", "gsm8k")


def conversion(*pairs):
    """Problems on lines 11, 12, ... from (text, answer)."""
    problems = [Problem(f"p{i}", text, answer) for i, (text, answer) in enumerate(pairs)]
    return Conversion(problems, list(range(11, 11 + len(problems))), [])


def ids(found):
    return [problem.id for problem in found.problems]


def test_duplicates_are_listed_and_the_first_stays_when_they_are_dropped():
    found = conversion(("What is $1+1$?", "2"), ("Another", "3"), ("what is 1 + 1", "2.0"), ("WHAT IS 1+1", "$2$"))
    listed = [
        (13, "duplicate", "is the same problem as line 11 (p0)"),
        (14, "duplicate", "is the same problem as line 11 (p0)"),
    ]
    kept, dropped = drop_duplicates(found, drop=False), drop_duplicates(found, drop=True)
    assert [(one.line, one.what, one.reason) for one in kept.rejects] == listed
    assert [(one.line, one.what, one.reason) for one in dropped.rejects] == listed
    assert (ids(kept), {one.kept for one in kept.rejects}) == (["p0", "p1", "p2", "p3"], {True})
    assert (ids(dropped), dropped.lines, {one.kept for one in dropped.rejects}) == (["p0", "p1"], [11, 12], {False})
    assert summary(kept.problems, kept.rejects) == "4 of 4 rows converted, 0 rejected; duplicates kept: 2; no scaffolds"
    assert (
        summary(dropped.problems, dropped.rejects)
        == "2 of 4 rows converted, 0 rejected; duplicates left out: 2; no scaffolds"
    )


def test_duplicates_with_different_answers_are_listed_apart_and_none_of_them_stays():
    found = conversion(("p q", "2"), ("other", "1"), ("P q.", "3"), ("p, q", "2"))
    kept, dropped = drop_duplicates(found, drop=False), drop_duplicates(found, drop=True)
    reason = "the same problem has different answers: line 11: '2', line 13: '3', line 14: '2'"
    assert [(one.line, one.what, one.reason) for one in kept.rejects] == [(n, "conflict", reason) for n in (11, 13, 14)]
    assert (ids(kept), ids(dropped)) == (["p0", "p1", "p2", "p3"], ["p1"])
    assert "duplicates with different answers left out: 3" in summary(dropped.problems, dropped.rejects)


def test_problems_of_evaluation_sets_are_listed_and_left_out_when_asked():
    found = conversion(("What is $1+1$?", "2"), ("Mine alone", "3"))
    evaluation = index_problems([Problem("e1", "what is 1+1", "2"), Problem("e2", "Its own", "2")], "eval.jsonl")
    kept, dropped = drop_overlap(found, evaluation, drop=False), drop_overlap(found, evaluation, drop=True)
    assert kept.rejects == [Reject(11, "overlap", "is in eval.jsonl (e1) too", kept=True)]
    assert dropped.rejects == [Reject(11, "overlap", "is in eval.jsonl (e1) too", kept=False)]
    assert (ids(kept), ids(dropped), dropped.lines) == (["p0", "p1"], ["p1"], [12])
    assert summary(dropped.problems, dropped.rejects).startswith(
        "1 of 2 rows converted, 0 rejected; problems of evaluation sets left out: 1"
    )


def test_the_command_writes_records_rejects_and_a_summary(tmp_path):
    output = tmp_path / "new" / "out.jsonl"
    result = run(f"--input={SAMPLE}", f"--output={output}", "--layout=gsm8k_socratic", "--source=sample")
    assert result.returncode == 0, result.stderr
    assert "7 of 8 rows converted" in result.stdout
    assert load_jsonl(output) == (convert(SAMPLE, "gsm8k_socratic", "sample").problems, [])
    assert [row["line"] for row in read_rejects(output)] == [5, 6, 8]


def test_the_command_sifts_and_writes_a_quiet_tfds_data_set_of_the_named_split(tmp_path):
    rows = [{"id": i, "problem": text, "answer": "025"} for i, text in enumerate(["One", "Two", "two!", "Three"])]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "aime.parquet")
    for name, text in (("first", "THREE."), ("second", "Four")):
        write_jsonl(tmp_path / f"{name}.jsonl", [Problem("e", text, "1")])
    output, tfds = tmp_path / "out.jsonl", tmp_path / "tfds"
    result = run(
        "--layout=aime24", f"--input={tmp_path / 'aime.parquet'}", f"--output={output}", f"--tfds_dir={tfds}", "--split=test",
        f"--against={tmp_path / 'first.jsonl'},{tmp_path / 'second.jsonl'}", "--drop_overlap", "--drop_duplicates",
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    said = result.stdout.splitlines()
    assert said == [
        "2 of 4 rows converted, 0 rejected; duplicates left out: 1; problems of evaluation sets left out: 1; no scaffolds",
        f"records: {output}",
        f"rejects: {output}.rejects.jsonl",
        f"TFDS: {tfds / 'scope_problems' / '1.0.0'}",
    ]
    expected = [Problem("aime24-0", "One", "25", "aime24"), Problem("aime24-1", "Two", "25", "aime24")]
    assert load_jsonl(output)[0] == tfds_problems.load(tfds, split="test")[0] == expected
    assert [(row["line"], row["what"], row["kept"]) for row in read_rejects(output)] == [
        (3, "duplicate", False),
        (4, "overlap", False),
    ]


def test_the_command_says_when_no_problem_is_in_the_evaluation_sets(tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", {"problem": "One", "answer": "1"})
    write_jsonl(tmp_path / "eval.jsonl", [Problem("e", "Two", "1")])
    result = run(
        "--layout=big_math",
        f"--input={rows}",
        f"--output={tmp_path / 'out.jsonl'}",
        f"--against={tmp_path / 'eval.jsonl'}",
    )
    assert f"none of the problems is among the 1 of {tmp_path / 'eval.jsonl'}" in result.stdout


def test_the_command_shuffles_choices_by_its_seed_and_says_so(tmp_path):
    names = ["Record ID", "Question", "Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3))]
    with open(tmp_path / "gpqa.csv", "w", newline="") as file:
        csv.writer(file).writerows([names, *([f"rec{i}", f"Which of {i}?", "right", "x", "y", "z"] for i in range(20))])
    output = tmp_path / "out.jsonl"
    result = run(
        "--layout=gpqa",
        f"--input={tmp_path / 'gpqa.csv'}",
        f"--output={output}",
        "--seed=5",
        f"--tfds_dir={tmp_path / 'tfds'}",
    )
    assert result.returncode == 0, result.stderr
    assert "choices shuffled with seed 5" in result.stdout
    problems = load_jsonl(output)[0]
    assert (
        problems == convert(tmp_path / "gpqa.csv", "gpqa", seed=5).problems == tfds_problems.load(tmp_path / "tfds")[0]
    )
    assert [problem.id for problem in problems] == [f"gpqa_diamond-rec{i}-seed5" for i in range(20)]
    other = convert(tmp_path / "gpqa.csv", "gpqa", seed=6).problems
    assert [problem.answer for problem in problems] != [problem.answer for problem in other]


def test_mistakes_end_the_command_with_one_line_and_leave_an_earlier_output(tmp_path):
    rows, bad = write_rows(tmp_path / "rows.jsonl", {"x": 1}), tmp_path / "broken.csv"
    bad.write_text('a\n"1"x\n')
    output = tmp_path / "out.jsonl"
    output.write_text("earlier")
    cases = {
        (rows, ""): f"convert: {rows}: no row became a problem by the layout aime25; the first of 1 reasons: {rows}:1: field 'answer' is missing",
        (bad, ""): f"convert: {bad}:2: is no CSV row",
        (tmp_path / "none.jsonl", ""): f"convert: {tmp_path / 'none.jsonl'}: no such file",
        (rows, f"--against={tmp_path / 'none'}"): f"convert: {tmp_path / 'none'}: no such file",
        (rows, f"--against={rows}"): f"convert: {rows}:1: field 'x' is unknown",
        (rows, "--drop_overlap"): "convert: --drop_overlap leaves out what other files hold; name them with --against",
        (output, ""): f"convert: {output}: is both --input and --output",
    }  # fmt: skip
    for (source, flag), message in cases.items():
        result = run("--layout=aime25", f"--input={source}", f"--output={output}", *filter(None, [flag]))
        assert result.returncode == 1 and result.stderr.startswith(message), result.stderr
        assert len(result.stderr.splitlines()) == 1 and output.read_text() == "earlier"


def test_an_output_that_cannot_be_written_ends_the_command_with_one_line(tmp_path):
    rows, file = write_rows(tmp_path / "rows.jsonl", {"problem": "1+1?", "answer": "2"}), tmp_path / "file"
    file.write_text("no folder")
    result = run("--layout=records", f"--input={rows}", f"--output={file / 'out.jsonl'}")
    assert result.returncode == 1 and result.stderr.startswith("convert: ") and str(file) in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_no_layout_dies_of_a_foreign_row(layout, tmp_path):
    """Whatever a row is, it is rejected with its line, and never more than one reason."""
    strange = [
        None,
        3,
        "text",
        [],
        {},
        {"answer": {}},
        {"problem": 1, "question": 2, "prompt": [{}], "answer": [1], "solution": {}},
    ]
    strange += [
        {
            name: value
            for name in ("problem", "question", "prompt", "answer", "solution", "final_answer", "ground_truth")
        }
        for value in ("", [[]], {"a": 1}, True, 1e400, "\ud800")
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in strange))
    problems, _, rejects = convert(path, layout)
    assert problems == []
    assert [one.line for one in rejects] == list(range(1, len(strange) + 1))
    assert all(one.reason.startswith(f"{path}:{one.line}: ") for one in rejects)


def test_an_unreadable_file_is_no_reject(tmp_path):
    (tmp_path / "rows.json").write_text("[{]")
    with pytest.raises(RecordError, match="rows.json: is not JSON"):
        convert(tmp_path / "rows.json", "gsm8k")
