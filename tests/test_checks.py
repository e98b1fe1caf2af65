"""Mistakes in a config stop a run before anything is loaded, by the field's name and with what to do."""

import pytest

from configs import base, chains
from scope_jax import train
from scope_jax.checks import CHOICES, RANGES, check_config
from scope_jax.meshes import make_mesh
from scope_jax.overrides import SetupError, flatten


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
        ({"loss.aggregation": "token-mena"}, "config.loss.aggregation='token-mena'"),
        ({"loss.kl_estimator": "k1"}, "config.loss.kl_estimator='k1' must be one of 'k2', 'k3'"),
        ({"model.dtype": "bf16"}, "config.model.dtype='bf16' must be one of 'float32', 'bfloat16'"),
        ({"data.style": "maths"}, "config.data.style='maths' must be one of 'math', 'bare'"),
        ({"verifier.mode": "strict"}, "config.verifier.mode='strict' must be one of 'math', 'minerva'"),
        ({"verifier.box": "all"}, "config.verifier.box='all' must be one of 'last', 'first'"),
        ({"verifier.timeout": 0.0}, "config.verifier.timeout=0.0 must be at least 0.1"),
        ({"asr.beta": 2.5}, "config.asr.beta=2.5 must be from 0.0 to 1.0"),
        ({"eval.problems": -1}, "config.eval.problems=-1 must be at least 0"),
        ({"eval.samples": 0}, "config.eval.samples=0 must be at least 1"),
        ({"checkpoint.every": 0}, "config.checkpoint.every=0 must be at least 1"),
        ({"rollout.temperature": 0.0}, "greedy rollouts of a group are alike"),
        ({"rollout.prompts": 12}, "config.rollout.prompts=12 must be a multiple of 8"),
        ({"eval.batch": 3}, "config.eval.batch=3 must be a multiple of 8"),
        ({"loss.micro_batches": 3}, "config.loss.micro_batches=3 must divide the 64 rollouts"),
        ({"rollout.group": 1}, "config.rollout.group=1: a group of one"),
    ],
)
def test_a_mistake_is_refused_by_its_field_before_anything_is_loaded(tmp_path, fields, message):
    with pytest.raises(SetupError, match=message):
        train.run(config_with(**fields, **{"model.path": "nowhere"}), tmp_path, None)


@pytest.mark.parametrize("method", chains.METHODS)
def test_every_method_of_the_embedded_job_passes(method):
    c = chains.get_config(method)
    c.mesh = "data=-1"
    check_config(c, make_mesh(c.mesh))


def test_every_field_that_is_checked_exists():
    known = {name for name, _ in flatten(base.get_config())}
    assert {*CHOICES, *RANGES} <= known
