"""Mistakes in a config stop a run before anything is loaded, by the field's name and with what to do."""

import pytest

from configs import base, chains
from scope_jax import train
from scope_jax.checks import CHOICES, RANGES, check_config
from scope_jax.meshes import make_mesh
from scope_jax.overrides import SetupError, flatten


LLM = {"judge.kind": "llm", "judge.url": "http://localhost:8000/v1", "judge.model": "m"}


def config_with(**fields):
    c = chains.get_config("scope")
    with c.unlocked():
        c.update_from_flattened_dict({"mesh": "data=-1", "loss.micro_batches": 1} | fields)
    return c


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stages": (("asr", 1), ("qqpr", 1))}, "config.stages names 'qqpr'; stages are outcome, asr, qpr, mixed"),
        ({"stages": (("asr", -2),)}, "asr has -2 updates"),
        ({"stages": (("asr", "2"),)}, "asr has '2' updates"),
        ({"stages": ("asr", 2)}, "'asr' is no .stage, updates. pair"),
        ({"qpr.reward": "holistc"}, "config.qpr.reward='holistc' must be one of 'process', 'holistic', 'overlong'"),
        ({"qpr.penalties": (0.3, 0.5)}, "must be 4 numbers in .0, 1.: mechanical, redundant, reversion, error"),
        ({"qpr.penalties": (0.3, 0.5, 0.5, 1.5)}, "must be 4 numbers"),
        ({"qpr.penalties": (0.3, 0.5, 0.5, 1.0)}, "must be 4 numbers"),
        ({"stages": (("asr", 0),)}, "asr has 0 updates"),
        ({"stages": (("asr", True),)}, "asr has True updates"),
        ({"loss.aggregation": "token-mena"}, "config.loss.aggregation='token-mena'"),
        ({"loss.kl_estimator": "k1"}, "config.loss.kl_estimator='k1' must be one of 'k2', 'k3'"),
        ({"model.dtype": "bf16"}, "config.model.dtype='bf16' must be one of 'float32', 'bfloat16'"),
        ({"data.style": "maths"}, "config.data.style='maths' must be one of 'math', 'bare', 'examples'"),
        ({"verifier.mode": "strict"}, "config.verifier.mode='strict' must be one of 'math', 'minerva'"),
        ({"verifier.box": "all"}, "config.verifier.box='all' must be one of 'last', 'first'"),
        ({"asr.beta": 2.5}, "config.asr.beta=2.5 must be from 0.0 to 1.0"),
        ({"judge.prm_error_below": 0.9}, "prm_error_below=0.9 must be at most config.judge.prm_useful_from=0.8"),
        ({"judge.prm_useful_from": 1.5}, "config.judge.prm_useful_from=1.5 must be from 0.0 to 1.0"),
        ({"eval.problems": -1}, "config.eval.problems=-1 must be at least 0"),
        ({"eval.samples": 0}, "config.eval.samples=0 must be at least 1"),
        ({"checkpoint.every": 0}, "config.checkpoint.every=0 must be at least 1"),
        ({"rollout.temperature": 0.0}, "greedy rollouts of a group are alike"),
        ({"rollout.prompts": 12}, "config.rollout.prompts=12 must be a multiple of 8"),
        ({"eval.batch": 3}, "config.eval.batch=3 must be a multiple of 8"),
        ({"loss.micro_batches": 3}, "config.loss.micro_batches=3 must divide the 64 rollouts"),
        ({"rollout.group": 1}, "config.rollout.group=1: a group of one"),
        ({"judge.kind": "lm"}, "config.judge.kind='lm' must be one of 'rules', 'llm', 'prm'"),
        ({"judge.kind": "prm"}, "config.judge.model is empty; for judge.kind='prm'"),
        ({"judge.kind": "llm", "judge.model": "m"}, "config.judge.url='' must begin with http"),
        ({"judge.kind": "llm", "judge.url": "http://h/v1"}, "config.judge.model is empty; name a model"),
        (LLM | {"judge.timeout": 0.0}, "config.judge.timeout=0.0 is too small"),
        (LLM | {"judge.extra": "x"}, "config.judge.extra='x' is no JSON"),
        (LLM | {"judge.key_variable": "NO_SUCH"}, "config.judge.key_variable='NO_SUCH': that environment variable is not"),
        ({"eval.resamples": -1}, "config.eval.resamples=-1 must be at least 0"),
        ({"eval.second_judge": "rules"}, "config.eval.second_judge='rules' is judge.kind already"),
        ({"eval.second_judge": "prm"}, "config.judge.model is empty; .* or eval.second_judge='prm'"),
        ({"eval.second_judge": "llm", "judge.model": "m"}, "config.judge.url='' must begin with http"),
        (LLM | {"eval.second_judge": "prm"}, "'prm' and judge.kind='llm' share judge.model; one must be 'rules'"),
        ({"judge.concurrency": 0}, "config.judge.concurrency=0 must be at least 1"),
        ({"rollout.prompts": 0}, "config.rollout.prompts=0 must be a multiple of 8"),
        ({"loss.micro_batches": 0}, "config.loss.micro_batches=0 must divide"),
        ({"asr.beta": float("nan")}, "config.asr.beta=nan must be from 0.0 to 1.0"),
        ({"rollout.temperature": float("nan")}, "config.rollout.temperature=nan: greedy"),
        ({"log.rollouts": -1}, "config.log.rollouts=-1 must be at least 0"),
        ({"checkpoint.keep_every": -1}, "config.checkpoint.keep_every=-1 must be at least 0"),
        ({"data.chains.seed": -1}, "config.data.chains.seed=-1 must be at least 0"),
        ({"data.chains.hard_share": 1.5}, "config.data.chains.hard_share=1.5 must be from 0.0 to 1.0"),
        ({"optimizer.learning_rate": -1e-4}, "config.optimizer.learning_rate=-0.0001 must be at least 0.0"),
        ({"verifier.timeout": 0.0}, "config.verifier.timeout=0.0 must be at least 0.01"),
    ],
)
def test_a_mistake_is_refused_by_its_field_before_anything_is_loaded(tmp_path, fields, message):
    with pytest.raises(SetupError, match=message):
        train.run(config_with(**fields, **{"model.path": "nowhere"}), tmp_path, None)


def test_the_bounds_themselves_are_allowed():
    for beta, prompts in ((0.0, 8), (1.0, 16)):
        config = config_with(**{"asr.beta": beta, "rollout.prompts": prompts, "qpr.penalties": (0, 0.0, 0.5, 0.9)})
        check_config(config, make_mesh("data=-1"))


def test_what_only_training_needs_is_not_asked_of_an_evaluation():
    check_config(config_with(**{"stages": (), "rollout.temperature": 0.0, "rollout.group": 1}), make_mesh("data=-1"))


@pytest.mark.parametrize("method", chains.METHODS)
def test_every_method_of_the_embedded_job_passes(method):
    c = chains.get_config(method)
    c.mesh = "data=-1"
    check_config(c, make_mesh(c.mesh))


def test_every_field_that_is_checked_exists():
    known = {name for name, _ in flatten(base.get_config())}
    assert {*CHOICES, *RANGES} <= known
