"""Command lines that are wrong end at once, in one line, with what was meant."""

import json
import subprocess
import sys
import textwrap

import ml_collections
import pytest

from scope_jax.overrides import config_to_json, flatten, record_config

CONFIG = """
from ml_collections import ConfigDict

def get_config(variant="scope"):
    if variant not in ("scope", "grpo"):
        raise ValueError(f"unknown variant {variant!r}; there are scope, grpo")
    c = ConfigDict()
    c.seed = 0
    c.method = variant
    c.noise = 0.0  # begins like the prefix that switches a flag off
    c.stages = (("asr", 200), ("qpr", 100))
    c.asr = ConfigDict({"tau": 0.5, "beta": 0.5})
    c.qpr = ConfigDict({"penalties": (0.3, 0.5, 0.5, 0.8), "positive": True})
    c.log = ConfigDict({"every": 1})
    return c
"""
PROGRAM = """
import logging
from absl import flags
from scope_jax import overrides
from scope_jax.metrics import NonFiniteError

CONFIG = overrides.config_flag()
flags.DEFINE_string("workdir", None, "folder of the run")
overrides.refuse_empty("workdir")

def main(_):
    logging.info("chatter of a library")
    if flags.FLAGS.workdir == "setup":
        with overrides.setting_up():
            raise FileNotFoundError("no such model")
    if flags.FLAGS.workdir == "burst":
        raise NonFiniteError("no such model")
    if flags.FLAGS.workdir == "bug":
        raise ValueError("no such model")
    print(overrides.config_to_json(CONFIG.value), flush=True)

if __name__ == "__main__":
    overrides.run(main)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Calls a small entry point with arguments; returns exit status, config (or other output), and errors."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "train.py").write_text(textwrap.dedent(PROGRAM))
    (folder / "job.py").write_text(textwrap.dedent(CONFIG))
    (folder / "empty.py").write_text("x = 1\n")

    def call(*arguments):
        done = subprocess.run([sys.executable, "train.py", *arguments], cwd=folder, capture_output=True, text=True)
        return done.returncode, json.loads(done.stdout) if done.returncode == 0 else done.stdout, done.stderr

    return call


def test_overrides_of_every_type_reach_the_config(program):
    status, config, error = program(
        "--config=job.py:grpo", "--config.seed=7", "--config.asr.beta=0.3", "--config.asr.tau", "1",
        "--config.qpr.positive=false", "--config.qpr.penalties=(0,0.1,0.2,0.3)", '--config.stages=(("asr",3),)',
        "--config.method=mine", "--config.noise=0.5",
    )  # fmt: skip
    assert status == 0, error
    assert config["seed"] == 7 and config["asr"] == {"beta": 0.3, "tau": 1.0}
    assert config["method"] == "mine" and config["noise"] == 0.5
    assert config["qpr"] == {"positive": False, "penalties": [0, 0.1, 0.2, 0.3]} and config["stages"] == [["asr", 3]]


WRONG = {
    "--config.asr.btea=0.3": "the config has no field 'asr.btea'; did you mean --config.asr.beta?",
    "--config.asr.btea": "did you mean --config.asr.beta?",
    "--config.beta=0.3": "did you mean --config.asr.beta?",
    "--config.qpr.penaltys=(1,2,3,4)": "did you mean --config.qpr.penalties?",
    "--noconfig.qpr.positiv": "did you mean --config.qpr.positive?",
    "--config.seed.x=3": "the config has no field 'seed.x'",
    "--config.zzzzzz=3": "the config has no field 'zzzzzz'",
    "--config.asr={'btea': 1}": "--config.asr is a group; set its fields: asr.beta, asr.tau",
    "--config.asr.beta=abc": "--config.asr.beta=abc: could not convert string to float",
    "--config.seed=1.5": "--config.seed=1.5: invalid literal for int()",
    "--config.qpr.positive=maybe": "--config.qpr.positive=maybe",
    "--config.qpr.penalties=('a',)": "--config.qpr.penalties: 'a' is no number",
    "--config.qpr.penalties=(True,)": "--config.qpr.penalties: True is no number",
    "--config.stages=asr": "--config.stages: 'asr' is no tuple of 2",
    "--cofnig.asr.beta=1": "unknown flag --cofnig.asr.beta; did you mean --config.asr.beta?",
    "--wrokdir=x": "unknown flag --wrokdir; did you mean --workdir?",
    "leftover": "argument 'leftover' belongs to no flag",
}


@pytest.mark.parametrize("argument", WRONG)
def test_a_wrong_argument_ends_the_program_with_one_line_that_says_what_was_meant(program, argument):
    status, _, error = program("--config=job.py", argument)
    assert status == 1
    assert WRONG[argument] in error and "Traceback" not in error and len(error.splitlines()) == 1


@pytest.mark.parametrize(
    "argument, message",
    [
        ("--config=nowhere.py:scope", "there is no file 'nowhere.py'"),
        ("--config=empty.py", "empty.py defines no get_config()"),
        ("--config=job.py:scoep", "unknown variant 'scoep'; there are scope, grpo"),
        ("--workdir=x", "no config; give one"),
    ],
)
def test_a_config_that_cannot_be_loaded_is_named(program, argument, message):
    status, _, error = program(argument)
    assert status == 1 and message in error and "Traceback" not in error


def test_an_override_before_its_config_is_refused(program):
    status, _, error = program("--config.seed=3", "--config=job.py")
    assert status == 1 and "before a value for --config" in error and "Traceback" not in error


def test_libraries_log_nothing_below_a_warning_unless_asked(program):
    assert program("--config=job.py")[2] == ""
    assert "chatter" in program("--config=job.py", "--verbosity=0")[2]


def test_an_empty_workdir_is_not_the_folder_one_stands_in(program):
    status, _, error = program("--config=job.py", "--workdir=")
    assert status == 1 and "workdir" in error and "it is empty; name a folder" in error
    assert len(error.splitlines()) == 1


def test_help_lists_the_flags(program):
    _, text, error = program("--help")
    assert "--config" in text and "--workdir" in text and not error


def make_config(**changes):
    config = ml_collections.ConfigDict(
        {"seed": 0, "stages": (("asr", 2),), "asr": {"beta": 0.5}, "log": {"every": 1}, "checkpoint": {"every": 5},
         "eval": {"samples": 4}, "verifier": {"workers": 2}}
    )  # fmt: skip
    config.update_from_flattened_dict(changes)
    return config


def test_a_tuple_given_twice_is_refused_and_a_number_given_twice_counts_the_last_time(program):
    status, _, error = program("--config=job.py", '--config.stages=(("asr",1),)', '--config.stages=(("qpr",1),)')
    assert status != 0 and "--config.stages is given twice" in error and len(error.splitlines()) == 1
    status, config, _ = program("--config=job.py", "--config.seed=1", "--config.seed=2")
    assert status == 0 and config["seed"] == 2


def test_an_error_of_the_set_up_or_a_number_that_is_not_finite_is_one_line_and_a_bug_keeps_its_trace(program):
    for kind, lines in (("setup", 1), ("burst", 1), ("bug", 5)):
        status, _, error = program("--config=job.py", f"--workdir={kind}")
        assert status != 0 and error.splitlines()[-1].endswith("no such model")
        assert len(error.splitlines()) == 1 if lines == 1 else "Traceback" in error


def test_the_record_of_a_config_is_json_with_sorted_names(tmp_path):
    record_config(tmp_path, make_config(), resuming=False)
    text = (tmp_path / "config.json").read_text()
    assert json.loads(text)["stages"] == [["asr", 2]] and text == config_to_json(make_config())
    assert list(json.loads(text)) == sorted(json.loads(text))
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_run_goes_on_with_the_same_config_and_may_change_its_logs_checkpoints_evaluation_and_verifier(tmp_path):
    record_config(tmp_path, make_config(), resuming=False)
    changed = make_config(**{"log.every": 3, "checkpoint.every": 1, "eval.samples": 8, "verifier.workers": 0})
    record_config(tmp_path, changed, resuming=True)
    assert json.loads((tmp_path / "config.json").read_text())["log"]["every"] == 3


def test_a_run_may_go_on_with_its_judge_at_another_address_but_not_with_another_judge(tmp_path):
    record_config(tmp_path, make_config(judge=ml_collections.ConfigDict({"url": "http://a/v1", "model": "m"})), resuming=False)
    record_config(tmp_path, make_config(judge=ml_collections.ConfigDict({"url": "http://b/v1", "model": "m"})), resuming=True)
    with pytest.raises(ValueError, match="judge.model = 'm', and now it is 'n'"):
        record_config(tmp_path, make_config(judge=ml_collections.ConfigDict({"url": "http://b/v1", "model": "n"})), resuming=True)


def test_how_answers_are_judged_may_not_change_but_how_many_processes_judge_them_may(tmp_path):
    def judged(**fields):
        config = make_config()
        config.verifier = {"workers": 2, "mode": "math"} | fields
        return config

    record_config(tmp_path, judged(), resuming=False)
    record_config(tmp_path, judged(workers=4), resuming=True)
    with pytest.raises(ValueError, match="began with verifier.mode = 'math', and now it is 'minerva'"):
        record_config(tmp_path, judged(workers=4, mode="minerva"), resuming=True)


def test_a_run_that_goes_on_with_another_config_is_refused_with_the_field_and_both_values(tmp_path):
    record_config(tmp_path, make_config(), resuming=False)
    with pytest.raises(ValueError, match=r"began with asr.beta = 0.5, and now it is 0.3\. .*another --workdir"):
        record_config(tmp_path, make_config(**{"asr.beta": 0.3}), resuming=True)
    with pytest.raises(ValueError, match=r"stages = .*2.*, and now it is .*3"):
        record_config(tmp_path, make_config(stages=(("asr", 3),)), resuming=True)
    more = make_config()
    more.new_field = 1
    with pytest.raises(ValueError, match="began with new_field = absent, and now it is 1"):
        record_config(tmp_path, more, resuming=True)
    fewer = make_config()
    del fewer.seed
    with pytest.raises(ValueError, match="began with seed = 0, and now it is absent"):
        record_config(tmp_path, fewer, resuming=True)
    assert json.loads((tmp_path / "config.json").read_text())["asr"]["beta"] == 0.5


def test_a_new_run_replaces_the_record_of_one_that_left_no_checkpoint(tmp_path):
    record_config(tmp_path, make_config(), resuming=False)
    record_config(tmp_path, make_config(seed=4), resuming=False)
    assert json.loads((tmp_path / "config.json").read_text())["seed"] == 4


def test_fields_are_listed_with_dotted_names():
    assert dict(flatten(make_config()))["asr.beta"] == 0.5
