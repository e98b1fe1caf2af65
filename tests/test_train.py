"""Whole runs in small: every method, other data, more devices, and what stops a run."""

import importlib.resources
import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from configs import chains
from scope_jax import qwen3, train
from scope_jax.data import convert
from scope_jax.metrics import NonFiniteError, read_jsonl

ROOT = pathlib.Path(__file__).parent.parent
MODEL = importlib.resources.files("scope_jax.data") / "chains_model"
SMALL = {
    "mesh": "data=-1",
    "stages": (("asr", 1), ("qpr", 1)),
    "rollout.group": 2,
    "rollout.max_new_tokens": 64,
    "data.chains.train": 16,
    "data.chains.eval": 8,
    "data.chains.min_steps": 2,
    "data.chains.max_steps": 2,
    "loss.micro_batches": 1,
    "eval.problems": 8,
    "eval.samples": 1,
    "eval.batch": 8,
    "eval.max_new_tokens": 64,
    "verifier.workers": 0,
    "log.tensorboard": False,
    "log.rollouts_every": 1,
}
SOCRATIC = {
    "question": "A box holds 4 rows of 6 eggs. 5 eggs are broken. How many eggs are whole?",
    "answer": "How many eggs does the box hold? ** The box holds 4*6=<<4*6=24>>24 eggs.\n"
    "How many eggs are whole? ** There are 24-5=<<24-5=19>>19 whole eggs.\n#### 19",
}


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory):
    """Methods differ in a few numbers that are paid: their updates are one program, kept on disk between the runs."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = [getattr(jax.config, name) for name in names]
    for name, value in zip(names, (str(tmp_path_factory.mktemp("compiled")), 0.0), strict=True):
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in zip(names, before, strict=True):
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def small(method="scope", **fields):
    """A config of a few seconds; the eight devices of the tests cut its batch."""
    c = chains.get_config(method)
    stages = tuple((name, 1) for name, _ in c.stages)
    c.update_from_flattened_dict(SMALL | {"stages": stages} | fields)
    return c


def run(workdir, config, open_verifier=None):
    train.run(config, workdir, open_verifier)
    return read_jsonl(workdir / "metrics.jsonl"), json.loads((workdir / "eval.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in chains.METHODS if name != "base"])
def test_every_method_is_a_config_of_the_same_run(tmp_path, method):
    rows, measures = run(tmp_path, small(method))
    assert [row["stage"] for row in rows] == [name for name, _ in chains.METHODS[method]["stages"]]
    assert all(np.isfinite(row["loss"]) and row["sampler_gap"] < 1e-4 for row in rows)
    assert measures["method"] == method and measures["samples"] == 8
    config, params = qwen3.load(tmp_path / "model")
    assert config.vocab_size == params["embed"].shape[0]


@pytest.mark.slow
def test_the_base_model_is_evaluated_without_an_update(tmp_path):
    rows, measures = run(tmp_path, small("base"))
    assert rows == [] and measures["updates"] == 0 and measures["generated_tokens"] == 0


@pytest.mark.slow
def test_word_problems_with_their_scaffolds_train_end_to_end(tmp_path):
    rows, measures = run(tmp_path, small(**{"data.train": "word_problems"}))
    assert [row["stage"] for row in rows] == ["asr", "qpr"]
    assert rows[0]["routed"] == 1.0  # the tiny model solves none of them: all go to their scaffold
    assert {"verify_checked", "verify_timed_out", "verify_unreadable_gold"} <= rows[0].keys()
    assert "op_accuracy" not in measures
    logged = read_jsonl(tmp_path / "rollouts.jsonl")
    assert any(row["routed"] and "\n1. " in row["prompt"] for row in logged)


@pytest.mark.slow
def test_rows_in_the_socratic_layout_train_end_to_end(tmp_path):
    source = tmp_path / "socratic.jsonl"
    source.write_text("".join(json.dumps(SOCRATIC | {"question": f"Box {i}. {SOCRATIC['question']}"}) + "\n" for i in range(9)))
    written = tmp_path / "problems.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "scope_jax.data.convert", "--layout=gsm8k_socratic", f"--input={source}", f"--output={written}"],
        cwd=ROOT, env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows, _ = run(tmp_path / "run", small(**{"data.train": str(written)}))
    assert rows[0]["routed"] == 1.0


@pytest.mark.slow
def test_a_sharded_batch_gives_the_losses_of_one_device(tmp_path):
    """The same command with one flag changed, on eight virtual devices."""
    fields = SMALL | {"stages": '(("asr",2),("qpr",1))', "verifier.workers": 0}
    flags = [f"--config.{name}={value}" for name, value in fields.items() if name != "mesh"]
    rows = {}
    for devices, mesh in ((1, "data=1"), (8, "data=8")):
        command = [sys.executable, "-m", "scope_jax.train", "--config=configs/chains.py:scope", *flags]
        command += [f"--config.mesh={mesh}", f"--workdir={tmp_path / mesh}"]
        variables = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        rows[devices] = read_jsonl(tmp_path / mesh / "metrics.jsonl")
    assert len(rows[1]) == 3 and any(row["grad_norm"] > 0 for row in rows[1])
    for one, eight in zip(rows[1], rows[8], strict=True):
        for name in ("loss", "reward", "entropy", "grad_norm", "eta_r", "routed", "length"):
            assert eight[name] == pytest.approx(one[name], abs=1e-5, rel=1e-4), name


@pytest.mark.slow
def test_a_learning_rate_that_destroys_the_policy_stops_the_run_at_its_step_and_array(tmp_path):
    # The decay moves every parameter, whether or not a group of the first step has signal.
    fields = {"optimizer.learning_rate": 1e38, "optimizer.weight_decay": 1.0, "stages": (("outcome", 3),)}
    with pytest.raises(NonFiniteError, match=r"step [123]: not finite: .*gradient\['embed'\]"):
        run(tmp_path, small("grpo", **fields))
    assert not (tmp_path / "eval.json").exists()


@pytest.mark.slow
def test_a_gap_between_sampler_and_trainer_is_said_as_it_happens(tmp_path, capsys):
    rows, _ = run(tmp_path, small("grpo", **{"log.max_sampler_gap": 0.0}))
    assert f"step 1: sampler and trainer differ by {rows[0]['sampler_gap']:.3g}" in capsys.readouterr().out


@pytest.mark.slow
def test_the_saved_policy_evaluates_as_the_run_did(tmp_path):
    """Out through the Hugging Face folder and in again: nothing about the policy is lost."""
    _, measures = run(tmp_path / "run", small("grpo", mesh="data=-1"))
    fields = {name: value for name, value in SMALL.items() if name not in ("mesh", "stages")}
    command = [sys.executable, "-m", "scope_jax.evaluate", "--config=configs/chains.py:base", "--config.mesh=data=-1"]
    command += [f"--config.{name}={value}" for name, value in fields.items()]
    command += [f"--config.model.path={tmp_path / 'run' / 'model'}", f"--workdir={tmp_path / 'again'}"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    again = json.loads((tmp_path / "again" / "eval.json").read_text())
    assert again == {name: measures[name] for name in again}
    into_the_run = [word if not word.startswith("--workdir") else f"--workdir={tmp_path / 'run'}" for word in command]
    done = subprocess.run(into_the_run, cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert done.returncode != 0 and "holds a training run" in done.stderr.splitlines()[-1]
