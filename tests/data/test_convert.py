import json
import pathlib
import subprocess
import sys

import pytest

from scope_jax.data.convert import Reject, convert, summary
from scope_jax.data.records import load_jsonl

SAMPLE = pathlib.Path(__file__).with_name("socratic_sample.jsonl")


def run(*arguments):
    command = [sys.executable, "-m", "scope_jax.data.convert", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_every_row_is_either_a_problem_or_rejected_with_its_line():
    problems, rejects = convert(SAMPLE, "gsm8k_socratic", "sample")
    assert [problem.id for problem in problems] == [f"sample-{line}" for line in range(1, 8)]
    assert [(reject.line, reject.what) for reject in rejects] == [(5, "scaffold"), (6, "scaffold"), (8, "row")]
    assert f"{SAMPLE}:8: field 'answer' has no '#### answer'" in rejects[-1].reason
    text = summary(problems, rejects)
    assert text == ("7 of 8 rows converted, 1 rejected; scaffolds built: 71.4%, 1.80 sub-questions on average (1 to 2)")
    assert summary([], [Reject(1, "row", "")]) == "0 of 1 rows converted, 1 rejected; no scaffolds"


def test_broken_lines_and_repeated_ids_are_rejected_and_the_rest_is_kept(tmp_path):
    path = tmp_path / "rows.jsonl"
    good = {"id": "a", "problem": "p", "answer": 1, "subject": "extra fields go", "source": None}
    path.write_text("{\n" + json.dumps(good) + "\n" + json.dumps(good) + "\n[]\n" + '{"problem": "p", "answer": "1"}\n')
    problems, rejects = convert(path, "records", "mine")
    assert [(problem.id, problem.source) for problem in problems] == [("a", "mine"), ("mine-5", "mine")]
    assert [(reject.line, reject.what) for reject in rejects if reject.what == "row"] == [
        (1, "row"),
        (3, "row"),
        (4, "row"),
    ]


def test_a_missing_input_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        convert(tmp_path / "nowhere", "gsm8k", "s")


def test_the_command_writes_records_rejects_and_a_summary(tmp_path):
    output = tmp_path / "new" / "out.jsonl"
    result = run(f"--input={SAMPLE}", f"--output={output}", "--layout=gsm8k_socratic", "--source=sample")
    assert result.returncode == 0, result.stderr
    assert "7 of 8 rows converted" in result.stdout
    assert load_jsonl(output) == (convert(SAMPLE, "gsm8k_socratic", "sample")[0], [])
    rejects = [json.loads(line) for line in (tmp_path / "new" / "out.jsonl.rejects.jsonl").read_text().splitlines()]
    assert [row["line"] for row in rejects] == [5, 6, 8]
