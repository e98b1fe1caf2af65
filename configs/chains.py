"""The embedded job: chains of additions and subtractions on a tiny Qwen3 that mostly forgets to carry.

Serves the paper's main claim in miniature: outcome-only GRPO starves on problems that the policy fails, prefix rewards
on the scaffold feed it (Stage 1), and process rewards then shorten what it writes (Stage 2).

    python -m scope_jax.train --config=configs/chains.py:scope --workdir=runs/scope

Methods: base (evaluation only), grpo, asr, scope; the ablations mixed, no_positive, no_penalty, no_length, holistic,
overlong. All of them make the same number of updates.
"""

import importlib.resources

from configs import base

UPDATES = 32  # of every method
STAGE_1 = 16  # of these, where there are two stages

_TWO_STAGES = (("asr", STAGE_1), ("qpr", UPDATES - STAGE_1))
METHODS = {
    "base": {"stages": ()},
    "grpo": {"stages": (("outcome", UPDATES),)},
    "asr": {"stages": (("asr", UPDATES),)},
    "scope": {"stages": _TWO_STAGES},
    "mixed": {"stages": (("mixed", UPDATES),)},
    "no_positive": {"stages": _TWO_STAGES, "qpr.positive": False},
    "no_penalty": {"stages": _TWO_STAGES, "qpr.penalise": False},
    "no_length": {"stages": _TWO_STAGES, "qpr.length": False},
    "holistic": {"stages": _TWO_STAGES, "qpr.reward": "holistic"},
    "overlong": {"stages": _TWO_STAGES, "qpr.reward": "overlong"},
}


def get_config(method: str = "scope"):
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; configs/chains.py has {', '.join(METHODS)}")
    c = base.get_config()
    c.method = method
    c.model.path = str(importlib.resources.files("scope_jax.data") / "chains_model")
    c.data.train = "chains"
    c.data.style = "bare"
    c.rollout.prompts = 8
    c.rollout.max_new_tokens = 128
    c.rollout.route_buckets = 2  # to sample a few dropped rows costs less than to compile two more programs
    c.judge.max_bytes = 512
    c.judge.max_steps = 32
    c.loss.micro_batches = 16  # of 4 rollouts: their attention scores stay in a CPU cache, and an update takes half as long
    c.optimizer.learning_rate = 2e-4  # of all methods: the highest that grpo bears on every seed (README: how it was tuned)
    c.optimizer.b2 = 0.95
    c.eval.max_new_tokens = 128
    c.eval.samples = 2
    c.eval.batch = 32  # 64 rows, as in training: the programs that read them are compiled once
    for field, value in METHODS[method].items():
        c.update_from_flattened_dict({field: value})
    return c
