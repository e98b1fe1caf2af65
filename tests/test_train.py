"""Whole runs in small: every method, other data, more devices, and what stops a run."""

import importlib.resources
import json
import os
import pathlib
import re
import subprocess
import sys
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from endpoint_server import serve
from jax.experimental.compilation_cache import compilation_cache

from configs import chains
from scope_jax import qwen3, train
from scope_jax.checkpoints import Checkpoints
from scope_jax.data import convert
from scope_jax.data.batches import take
from scope_jax.metrics import NonFiniteError, read_jsonl
from scope_jax.overrides import SetupError
from scope_jax.rewards import RIGHT, UNDECIDED, WRONG
from scope_jax.rollout import Rollout
from scope_jax.scope import Experience

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


def experience_of(tokens, mask, segment_ids, **fields):
    """Two problems with two completions each: the first rollouts that two columns of prompt and three more hold."""
    rollout = Rollout(jnp.asarray(tokens), jnp.asarray(mask, bool), jnp.zeros(np.shape(mask)), jnp.asarray(segment_ids))
    return Experience(
        rollout,
        rewards=jnp.array([[0.5, 0.25], [1.0, 0.0]]),
        valid=jnp.array([[True, True], [False, True]]),
        outcome=jnp.zeros((2, 2)),
        routed=np.array([False, True]),
        labels=(jnp.arange(8).reshape(4, 2) % 4, jnp.array([[1, 1], [1, 0], [0, 0], [1, 1]], bool)),
        sampled_tokens=jnp.int32(8),
    ).replace(**fields)


class Words:
    """Stands where the tokenizer stands: tokens as their numbers."""

    def decode(self, ids, skip_special_tokens=False):
        return " ".join(str(i) for i in np.asarray(ids) if not (skip_special_tokens and i == 3))


def test_the_rollout_log_shows_each_rollout_with_its_own_problem_text_and_pay():
    tokens = [[9, 11, 12, 13, 3], [10, 11, 14, 3, 9], [21, 22, 23, 24, 25], [21, 22, 3, 9, 9]]
    mask = [[0, 0, 1, 1, 1], [0, 0, 1, 1, 0], [0, 0, 1, 1, 1], [0, 0, 1, 0, 0]]
    segment_ids = [[0, 1, 1, 1, 1], [0, 1, 1, 1, 0], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]

    class Batch:
        problems = tuple(type("Problem", (), {"id": name}) for name in ("one", "two"))

    advantages = jnp.array([[1.0, -1.0], [0.0, 2.0]])
    rows = train.rollout_rows(experience_of(tokens, mask, segment_ids), Batch, advantages, Words(), 10, "asr")
    assert [row["id"] for row in rows] == ["one", "one", "two", "two"]
    assert [row["routed"] for row in rows] == [False, False, True, True] and {row["stage"] for row in rows} == {"asr"}
    assert [row["prompt"] for row in rows] == ["11", "11", "21 22", "21 22"]
    assert [row["completion"] for row in rows] == ["12 13", "14", "23 24 25", ""]
    assert [row["length"] for row in rows] == [3, 2, 3, 1]
    assert [list(row["labels"]) for row in rows] == [[0, 1], [2], [], [2, 3]]
    assert [row["reward"] for row in rows] == [0.5, 0.25, None, 0.0]  # an undecided row was paid nothing, not 0
    assert [row["verdicts"] for row in rows] == [[WRONG], [WRONG], None, None]
    plain = experience_of(tokens, mask, segment_ids, routed=np.zeros(2, bool), outcome=jnp.array([[1.0, 0.0], [0.0, 1.0]]))
    logged = train.rollout_rows(plain, Batch, advantages, Words(), 10, "outcome")
    assert [row["verdicts"] for row in logged] == [[RIGHT], [WRONG], [UNDECIDED], [RIGHT]]
    assert [row["advantage"] for row in rows] == [1.0, -1.0, 0.0, 2.0]
    few = train.rollout_rows(experience_of(tokens, mask, segment_ids, labels=None), Batch, advantages, Words(), 2, "asr")
    assert [row["completion"] for row in few] == ["12 13", ""] and few[0]["labels"] is None  # spread over the problems
    assert (few[1]["id"], few[1]["reward"], few[1]["advantage"]) == ("two", 0.0, 2.0)


class Stopped(Exception):
    """A run that is stopped from outside."""


@pytest.fixture
def loop(monkeypatch):
    """`train.run` around an update that adds 1 to all that is trained: the order of things, without a compiled program.

    Returns what was called: (step, whether the optimizer was fresh, its problems) and (parameters, problems, key).
    """
    steps, evaluations = [], []

    class Waiting(Checkpoints):
        def save(self, *arguments):
            super().save(*arguments)
            self.wait()  # so that the tests know which checkpoint there is

    def train_step(state, policy, table, step, config, optimizer, settle, judge, own_reward):
        if step == steps_until:
            raise Stopped
        fresh = not any(np.any(leaf) for leaf in jax.tree.leaves(state.optimizer_state))
        steps.append((step, fresh, table.problems))
        params, moments = jax.tree.map(lambda x: x + 1, (state.params, state.optimizer_state))
        state = state.replace(params=params, optimizer_state=moments, step=state.step + 1)
        experience = experience_of(np.full((4, 5), 20), [[0, 0, 1, 1, 1]] * 4, np.ones((4, 5), int), labels=None)
        measured = {"finite": {"embed": jnp.bool_(True)}, "sampler_gap": jnp.float32(0.0), "loss": jnp.float32(0.5)}
        measured["generated_tokens"] = jnp.int32(10 + step)
        return state, (experience, take(table, np.arange(2)), jnp.zeros((2, 2))), measured

    def evaluate(policy, table, tokenizer, key, config, settle, judge, second):
        evaluations.append((policy.params, table.problems, jax.random.key_data(key).tolist()))
        return {"accuracy": 0.5, "n": 1, "problems": 1, "undecided": 0, "intervals": {}}, []

    for name, stub in (("train_step", train_step), ("evaluate", evaluate), ("Checkpoints", Waiting)):
        monkeypatch.setattr(train, name, stub)

    def run_until(workdir, config, stop=None):
        nonlocal steps_until
        steps_until = stop
        steps.clear(), evaluations.clear()
        train.run(config, workdir, None)

    steps_until = None
    return run_until, steps, evaluations


@pytest.mark.slow
def test_a_run_stops_anywhere_and_goes_on_with_its_stages_counts_and_parameters(tmp_path, loop):
    run_until, steps, evaluations = loop
    fields = {"stages": (("asr", 2), ("qpr", 3)), "checkpoint.every": 2, "log.rollouts_every": 2, "log.rollouts": 3}
    config = small("scope", **fields, **{"seed": 4, "eval.seed": 9})
    with pytest.raises(Stopped):
        run_until(tmp_path, config, stop=3)
    assert [row[:2] for row in steps] == [(0, True), (1, False), (2, True)]  # each stage has a fresh optimizer
    with pytest.raises(Stopped):
        run_until(tmp_path, config, stop=4)
    assert [row[:2] for row in steps] == [(2, True), (3, False)]  # from the checkpoint at the border of the stages
    assert not evaluations and not (tmp_path / "eval.json").exists()
    with pytest.raises(SetupError, match="began with asr.tau = 0.5, and now it is 0.6"):
        run_until(tmp_path, small("scope", **fields, **{"seed": 4, "eval.seed": 9, "asr.tau": 0.6}))
    run_until(tmp_path, config)
    assert [row[:2] for row in steps] == [(4, False)]  # from the checkpoint inside the second stage
    [(params, problems, key)] = evaluations

    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert [(row["step"], row["stage"]) for row in rows] == [(1, "asr"), (2, "asr"), (3, "qpr"), (4, "qpr"), (5, "qpr")]
    assert [row["total_generated_tokens"] for row in rows] == [10, 21, 33, 46, 60]
    logged = read_jsonl(tmp_path / "rollouts.jsonl")
    assert [(row["step"], row["stage"]) for row in logged] == [(2, "asr")] * 3 + [(4, "qpr")] * 3 + [(5, "qpr")] * 3

    measures = json.loads((tmp_path / "eval.json").read_text())
    assert measures.pop("train_seconds") > 0
    stubbed = {"accuracy": 0.5, "n": 1, "problems": 1, "undecided": 0, "intervals": {}}
    assert measures == stubbed | {"method": "scope", "seed": 4, "updates": 5, "generated_tokens": 60}
    assert key == jax.random.key_data(jax.random.key(9)).tolist()  # the same completions for every seed of training
    assert (len(steps[0][2]), len(problems)) == (16, 8) and not {p.id for p in steps[0][2]} & {p.id for p in problems}
    _, saved = qwen3.load(tmp_path / "model")
    _, first = qwen3.load(MODEL)
    for leaf, evaluated, before in zip(*map(jax.tree.leaves, (saved, params, first)), strict=True):
        np.testing.assert_array_equal(leaf, evaluated)
        np.testing.assert_allclose(leaf, before + 5, rtol=0, atol=1e-5)

    with Checkpoints(tmp_path / "checkpoints") as checkpoints:
        assert checkpoints.steps()[-1] == 5  # the last update is kept, though 2 does not divide it

    run_until(tmp_path, config)
    assert not steps and not evaluations  # a finished run is not repeated


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
def test_a_run_with_a_failing_llm_judge_finishes_and_counts_its_failures(tmp_path):
    """Every reply about a third of the problems is broken, in one of three ways."""

    def broken(problem):
        return ("500", "malformed", "unusable")[len(problem) % 3] if zlib.crc32(problem.encode()) % 3 == 0 else None

    def problem_of(messages):
        return json.loads(messages[1]["content"].split("\n\n", 1)[1])["problem"]

    def answer(messages, schema):
        steps = range(1, schema["properties"]["labels"]["minItems"] + 1)
        label = "brilliant" if broken(problem_of(messages)) else "useful"
        return json.dumps({"labels": [{"step": step, "label": label} for step in steps]})

    def fault(body):
        kind = broken(problem_of(body["messages"]))
        return None if kind == "unusable" else kind

    fields = {"judge.kind": "llm", "judge.model": "judge", "judge.retries": 0, "stages": (("qpr", 2),)}
    fields |= {"data.chains.hard_share": 0.0, "log.rollouts": 16}
    with serve(answer, fault) as server:
        rows, measures = run(tmp_path / "run", small(**fields, **{"judge.url": server.url}))
        asked = len(server.requests)
        # The same run again: every judgement that was paid for is in the cache.
        again = fields | {"judge.cache": str(tmp_path / "run" / "judge_cache"), "judge.url": server.url}
        rows_again, measures_again = run(tmp_path / "again", small(**again))
        assert all(broken(problem_of(body["messages"])) for body in server.requests[asked:])
    assert len(rows) == 2
    for row, row_again in zip(rows, rows_again, strict=True):
        logged = [x for x in read_jsonl(tmp_path / "run" / "rollouts.jsonl") if x["step"] == row["step"]]
        assert len(logged) == 16  # all of the step
        right = [x for x in logged if x["reward"] > 0]
        failed = [x for x in right if broken(re.search(r"a=.*\?", x["prompt"])[0])]
        assert 0 < len(failed) == row["judge_failed"] < len(right)
        assert all(x["reward"] == 1.0 and x["labels"] == [] for x in failed)
        assert all(x["reward"] < 1.0 and set(x["labels"]) == {"useful"} for x in right if x not in failed)
        assert {name: row[name] for name in row if "second" not in name} == {
            name: row_again[name] for name in row_again if "second" not in name
        }
    assert measures["useful"] == 1.0 and measures["accuracy"] == measures_again["accuracy"] > 0


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
