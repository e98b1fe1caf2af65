import dataclasses
import subprocess
import sys

import pytest
import tensorflow_datasets as tfds

from scope_jax.data import tfds_problems
from scope_jax.data.records import Problem, RecordError, SubQuestion, load_jsonl, write_jsonl
from scope_jax.data.sources import load_problems

PROBLEMS = [
    Problem("z", "Caf\u00e9 \u2212 \U0001f986\u2028 2?\n\nSecond\x00line", "\u00bd", "", None, ()),
    Problem("a", "What is 1 + 1?", "2", "mine", "7", (SubQuestion("One?", "1"),)),
    Problem("m", "Longer", "3", "mine", None, (SubQuestion("O\u0301ne?", "-1"), SubQuestion("Two?", "\u22122"))),
    *(Problem(str(i), "p", "1", "", None, ()) for i in range(20)),
]

# Everything about TFDS that training needs, in a process where TensorFlow looks like it is not installed.
WITHOUT_TENSORFLOW = """
import sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] == "tensorflow" else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
try:
    import tensorflow
    raise SystemExit("tensorflow is not hidden")
except ModuleNotFoundError:
    pass

from scope_jax.data.convert import app, main
from scope_jax.data.records import load_jsonl
from scope_jax.data.sources import load_problems

try:
    app.run(main, [sys.argv[0], *sys.argv[1:]])
except SystemExit as stop:
    assert not stop.code, stop.code
output, folder = (flag.split("=")[1] for flag in sys.argv[2:4])
assert load_problems("tfds", folder) == load_jsonl(output)
assert "tensorflow" not in sys.modules
print("identical")
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return tfds_problems.prepare(PROBLEMS, tmp_path_factory.mktemp("tfds"))


def test_jsonl_to_tfds_and_back_gives_identical_problems_in_order(prepared, tmp_path):
    """Scaffolds, null levels, empty sources and any Unicode survive; TFDS's own shuffling is off."""
    write_jsonl(tmp_path / "problems.jsonl", PROBLEMS)
    assert load_problems("jsonl", tmp_path / "problems.jsonl") == load_problems("tfds", prepared) == (PROBLEMS, [])


def test_a_folder_above_the_data_set_is_enough(prepared):
    assert load_problems("tfds", prepared.parent.parent)[0] == PROBLEMS


def test_everything_works_without_tensorflow_installed(tmp_path):
    source = tmp_path / "in.jsonl"
    write_jsonl(source, PROBLEMS)
    flags = [f"--input={source}", f"--output={tmp_path / 'out.jsonl'}", f"--tfds_dir={tmp_path / 'tfds'}"]
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, *flags, "--layout=records", "--source="]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "identical"
    assert load_jsonl(tmp_path / "out.jsonl")[0] == PROBLEMS


def test_no_data_set_and_more_than_one_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds 0 prepared"):
        tfds_problems.load(tmp_path)
    for name in ("one", "two"):
        tfds_problems.prepare(PROBLEMS[:1], tmp_path / name)
    with pytest.raises(FileNotFoundError, match="holds 2 .*name one of them"):
        tfds_problems.load(tmp_path)


def test_bad_examples_stop_the_load_or_are_listed(tmp_path):
    bad = dataclasses.replace(PROBLEMS[1], id="bad", answer=" ")
    prepared = tfds_problems.prepare([*PROBLEMS[:2], bad, PROBLEMS[0]], tmp_path)
    with pytest.raises(RecordError, match=r"\[train\]:2: field 'answer' is empty"):
        tfds_problems.load(prepared)
    problems, listed = tfds_problems.load(prepared, skip_bad=True)
    assert problems == PROBLEMS[:2]
    assert [(one.line, one.field) for one in listed] == [(2, "answer"), (3, "id")]


def test_files_that_need_tensorflow_are_refused_with_the_cure(prepared, monkeypatch):
    monkeypatch.setattr(tfds.core.DatasetInfo, "file_format", tfds.core.FileFormat.TFRECORD)
    with pytest.raises(ValueError, match="tfrecord, which need TensorFlow; .*array_record"):
        tfds_problems.load(prepared)


def test_a_second_split_is_added_and_a_split_of_the_same_name_replaced(tmp_path):
    tfds_problems.prepare(PROBLEMS, tmp_path, split="train")
    tfds_problems.prepare(PROBLEMS[:2], tmp_path, split="test")
    assert tfds_problems.load(tmp_path, split="train") == (PROBLEMS, [])
    assert tfds_problems.load(tmp_path, split="test") == (PROBLEMS[:2], [])
    tfds_problems.prepare(PROBLEMS[2:], tmp_path, split="test")
    assert tfds_problems.load(tmp_path, split="train") == (PROBLEMS, [])
    assert tfds_problems.load(tmp_path, split="test") == (PROBLEMS[2:], [])
    with pytest.raises(ValueError, match="no split 'validation'; it has"):
        tfds_problems.load(tmp_path, split="validation")
