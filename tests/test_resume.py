"""`kill -9` at any moment, and the same command again: the run ends as one that was never stopped."""

import importlib.resources
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
from safetensors.numpy import load_file

from scope_jax.checkpoints import Checkpoints
from scope_jax.metrics import read_jsonl

ROOT = pathlib.Path(__file__).parent.parent
MODEL = importlib.resources.files("scope_jax.data") / "chains_model"
UPDATES = 6
SMALL = [
    "--config=configs/chains.py:scope",
    '--config.stages=(("asr",4),("qpr",2))',
    "--config.rollout.prompts=4",
    "--config.rollout.group=4",
    "--config.rollout.max_new_tokens=96",
    "--config.data.chains.min_steps=2",
    "--config.data.chains.max_steps=2",
    "--config.optimizer.learning_rate=1e-4",
    "--config.data.chains.train=32",
    "--config.data.chains.eval=4",
    "--config.eval.problems=4",
    "--config.eval.samples=1",
    "--config.eval.batch=4",
    "--config.eval.max_new_tokens=32",
    "--config.verifier.workers=0",
    "--config.checkpoint.every=1",
    "--config.log.rollouts_every=1",
    "--config.log.rollouts=2",
    "--config.log.tensorboard=False",
]
TIMES = ("seconds", "tokens_per_second", "train_seconds")  # what may differ between two runs


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """One device, and compiled programs kept between the processes, so that a restart takes seconds."""
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}
    cache |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
    return os.environ | cache | {"XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}


def start(workdir, environment, *more):
    command = [sys.executable, "-m", "scope_jax.train", *SMALL, f"--workdir={workdir}", *more]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(workdir, environment, *more):
    """Runs to the end; returns what it printed."""
    process = start(workdir, environment, *more)
    text, _ = process.communicate(timeout=600)
    assert process.returncode == 0, text
    return text


@pytest.fixture(scope="module")
def whole(tmp_path_factory, environment):
    """The workdir of a run that was never stopped."""
    workdir = tmp_path_factory.mktemp("whole")
    finish(workdir, environment)
    return workdir


def kill_after(step, workdir, environment, delay):
    """Starts the run, waits for the record of an update, and kills the process a moment later."""
    process = start(workdir, environment)
    metrics = workdir / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and last_step(metrics) >= step):
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    text, _ = process.communicate(timeout=60)
    assert process.returncode in (0, -signal.SIGKILL), text


def last_step(metrics):
    return max((row["step"] for row in read_jsonl(metrics)), default=0)


def without_times(row):
    return {name: value for name, value in row.items() if name not in TIMES}


def assert_same_run(one, other):
    """Parameters bit for bit, and every record but the times."""
    first, second = (load_file(next(folder.glob("model/*.safetensors"))) for folder in (one, other))
    assert first.keys() == second.keys()
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)
    for name in ("metrics.jsonl", "rollouts.jsonl", "eval_samples.jsonl"):
        assert [*map(without_times, read_jsonl(one / name))] == [*map(without_times, read_jsonl(other / name))]
    evaluations = [without_times(json.loads((folder / "eval.json").read_text())) for folder in (one, other)]
    assert evaluations[0] == evaluations[1]
    assert Checkpoints(one / "checkpoints").steps()[-1] == Checkpoints(other / "checkpoints").steps()[-1] == UPDATES


@pytest.mark.slow
def test_a_run_killed_at_any_moment_ends_with_the_same_parameters_bit_for_bit(whole, tmp_path, environment):
    moments = random.Random()
    for step in (0, 3, 5):  # before the first checkpoint, near the border of the stages, in Stage 2
        delay = moments.uniform(0.0, 0.5)
        print(f"killed {delay:.3f} s after the record of update {step}")
        kill_after(step, tmp_path, environment, delay)
    assert "going on after update" in finish(tmp_path, environment)
    assert_same_run(whole, tmp_path)


@pytest.mark.slow
def test_every_stage_has_changed_the_parameters(whole):
    """Without this the comparison above would prove nothing."""
    before, after = (load_file(next(pathlib.Path(folder).glob("*.safetensors"))) for folder in (MODEL, whole / "model"))
    assert any(before[name].tobytes() != after[name].tobytes() for name in before)
    moved = {row["stage"] for row in read_jsonl(whole / "metrics.jsonl") if row["grad_norm"] > 0}
    assert moved == {"asr", "qpr"}


@pytest.mark.slow
def test_a_finished_run_is_not_repeated(whole, environment):
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.name in ("eval.json", "metrics.jsonl")}
    assert "finished" in finish(whole, environment)
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.mark.slow
def test_a_finished_checkpoint_without_its_evaluation_is_evaluated_and_not_trained(whole, tmp_path, environment):
    """A run that was saved at its very last update does not end as if all were done, nor train on."""
    workdir = tmp_path / "copy"
    shutil.copytree(whole, workdir)
    shutil.rmtree(workdir / "model")
    (workdir / "eval.json").unlink()
    finish(workdir, environment)
    assert_same_run(whole, workdir)


@pytest.mark.slow
def test_a_run_does_not_go_on_with_another_config(whole, environment):
    process = start(whole, environment, "--config.asr.beta=0.3")
    text, _ = process.communicate(timeout=600)
    assert process.returncode != 0
    assert "began with asr.beta = 0.5, and now it is 0.3" in text


@pytest.mark.slow
def test_an_unwritable_workdir_is_reported_before_training_starts(tmp_path, environment):
    (tmp_path / "file").write_text("in the way")
    process = start(tmp_path / "file", environment)
    text, _ = process.communicate(timeout=600)
    assert process.returncode != 0 and "cannot be written" in text and "step 1/" not in text
