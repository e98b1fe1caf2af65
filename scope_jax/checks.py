"""What a config must satisfy before anything is loaded: a mistake stops a run in its first second, not in its last."""

from typing import Any

from jax.sharding import Mesh

from scope_jax import endpoint, judges
from scope_jax.data.prompts import STYLES
from scope_jax.meshes import batch_shards
from scope_jax.policy.losses import AGGREGATIONS, ALGORITHMS, KL_ESTIMATORS
from scope_jax.rewards import STEP_LABELS
from scope_jax.scope import STAGES
from scope_jax.verify.settle import MODES

CHOICES = {
    "model.dtype": ("float32", "bfloat16"),
    "model.param_dtype": ("float32", "bfloat16"),
    "data.style": tuple(STYLES),
    "qpr.reward": ("process", "holistic", "overlong"),
    "judge.kind": judges.KINDS,
    "eval.second_judge": ("", *judges.KINDS),
    "verifier.mode": MODES,
    "verifier.box": ("last", "first"),
    "loss.algorithm": tuple(ALGORITHMS),
    "loss.aggregation": ("", *AGGREGATIONS),
    "loss.advantage_scale": ("std", "none"),
    "loss.kl_estimator": KL_ESTIMATORS,
}
RANGES = {  # lowest and highest value; None: no bound
    "seed": (0, None),
    "data.chains.train": (0, None),
    "data.chains.eval": (0, None),
    "data.chains.hard_share": (0.0, 1.0),
    "data.chains.seed": (0, None),
    "rollout.top_k": (0, None),
    "rollout.top_p": (0.0, 1.0),
    "rollout.max_new_tokens": (1, None),
    "rollout.length_buckets": (1, None),
    "rollout.route_buckets": (1, None),
    "asr.tau": (0.0, 1.0),
    "asr.beta": (0.0, 1.0),
    "qpr.alpha": (0.0, None),
    "qpr.overlong_share": (0.0, 1.0),
    "judge.max_bytes": (1, None),
    "judge.max_steps": (1, None),
    "judge.concurrency": (1, None),
    "judge.retries": (0, None),
    "judge.max_tokens": (1, None),
    "judge.prm_error_below": (0.0, 1.0),
    "judge.prm_useful_from": (0.0, 1.0),
    "judge.prm_batch_tokens": (1, None),
    "verifier.workers": (0, None),
    "verifier.timeout": (0.01, None),
    "loss.clip_low": (0.0, 1.0),
    "loss.clip_high": (0.0, None),
    "loss.kl": (0.0, None),
    "loss.head_chunk": (1, None),
    "optimizer.learning_rate": (0.0, None),
    "optimizer.warmup": (0, None),
    "optimizer.eps": (0.0, None),
    "optimizer.weight_decay": (0.0, None),
    "optimizer.max_grad_norm": (0.0, None),
    "eval.problems": (0, None),
    "eval.samples": (1, None),
    "eval.temperature": (0.0, None),
    "eval.max_new_tokens": (1, None),
    "eval.resamples": (0, None),
    "checkpoint.every": (1, None),
    "checkpoint.keep": (1, None),
    "checkpoint.keep_every": (0, None),
    "log.rollouts_every": (1, None),
    "log.rollouts": (0, None),
}


def check_config(config, mesh: Mesh) -> None:
    """Refuses values that a run could not use, each by its field.

    Raises:
      ValueError: names the field, its value and what it may be.
    """
    for field, choices in CHOICES.items():
        value = _get(config, field)
        if value not in choices:
            raise ValueError(f"config.{field}={value!r} must be one of {', '.join(map(repr, choices))}")
    for field, (low, high) in RANGES.items():
        value = _get(config, field)
        if not (low <= value and (high is None or value <= high)):  # so that nan is refused too
            bounds = f"at least {low}" if high is None else f"from {low} to {high}"
            raise ValueError(f"config.{field}={value} must be {bounds}")
    _check_stages(config.stages)
    penalties, kinds = config.qpr.penalties, STEP_LABELS[1:]
    if len(penalties) != len(kinds) or not all(0 <= x < 1 for x in penalties):
        raise ValueError(f"config.qpr.penalties={penalties} must be {len(kinds)} numbers in [0, 1): {', '.join(kinds)}")
    if config.stages and not config.rollout.temperature > 0:
        raise ValueError(
            f"config.rollout.temperature={config.rollout.temperature}: greedy rollouts of a group are alike and teach nothing"
        )
    if config.judge.prm_error_below > config.judge.prm_useful_from:
        raise ValueError(
            f"config.judge.prm_error_below={config.judge.prm_error_below} must be at most "
            f"config.judge.prm_useful_from={config.judge.prm_useful_from}"
        )
    _check_sizes(config, mesh)
    _check_judges(config.judge, config.eval.second_judge)


def _check_stages(stages) -> None:
    for entry in stages:
        if not isinstance(entry, tuple | list) or len(entry) != 2:
            raise ValueError(f"config.stages: {entry!r} is no (stage, updates) pair; write (('asr', 100), ('qpr', 100))")
        name, updates = entry
        if name not in STAGES:
            raise ValueError(f"config.stages names {name!r}; stages are {', '.join(STAGES)}")
        if not isinstance(updates, int) or isinstance(updates, bool) or updates < 1:
            raise ValueError(f"config.stages: {name} has {updates!r} updates; give a whole number of at least 1")


def _check_sizes(config, mesh: Mesh) -> None:
    c, shards = config.rollout, batch_shards(mesh)
    for field, value in (("rollout.prompts", c.prompts), ("eval.batch", config.eval.batch)):
        if value < 1 or value % shards:
            raise ValueError(f"config.{field}={value} must be a multiple of {shards}, the size of mesh axes data x fsdp")
    parts = config.loss.micro_batches
    if parts < 1 or c.prompts * c.group % parts:
        raise ValueError(
            f"config.loss.micro_batches={parts} must divide the {c.prompts * c.group} rollouts of a step "
            "(rollout.prompts x rollout.group)"
        )
    if c.group < 2 and config.stages:
        raise ValueError(f"config.rollout.group={c.group}: a group of one has no advantage; sample at least 2")


def _check_judges(judge, second: str) -> None:
    kinds = {judge.kind, second}
    if second == judge.kind:
        raise ValueError(f"config.eval.second_judge={second!r} is judge.kind already; name another judge, or none")
    if kinds == {"llm", "prm"}:  # each of them would read judge.model
        raise ValueError(
            f"config.eval.second_judge={second!r} and judge.kind={judge.kind!r} share judge.model; one must be 'rules'"
        )
    if "llm" in kinds:
        endpoint.check_settings(judges.settings_of(judge), where="config.judge.")
    if "prm" in kinds and not judge.model:
        raise ValueError(
            "config.judge.model is empty; for judge.kind='prm' or eval.second_judge='prm' give the model's Hugging Face folder"
        )


def _get(config, field: str) -> Any:
    for name in field.split("."):
        config = config[name]
    return config
