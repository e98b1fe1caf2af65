"""Decode speed of `rollout.generate` beside transformers' `generate`, same random tiny Qwen3, same machine.

    python benchmarks/rollout.py --prompts=16 --group=8 --new_tokens=128

Prints the median tokens/s of each and their ratio; without torch, only ours. Both sample at temperature 1 with no end
token, so that both decode the same number of tokens. Compilation is not counted.
"""

import statistics
import tempfile
import time

import jax
import numpy as np
from absl import app, flags

from scope_jax import qwen3
from scope_jax.rollout import generate

_PROMPTS = flags.DEFINE_integer("prompts", 16, "Prompts.")
_GROUP = flags.DEFINE_integer("group", 8, "Samples a prompt.")
_PROMPT_TOKENS = flags.DEFINE_integer("prompt_tokens", 64, "Tokens a prompt.")
_NEW_TOKENS = flags.DEFINE_integer("new_tokens", 128, "Tokens sampled in each row.")
_REPEATS = flags.DEFINE_integer("repeats", 5, "Timed runs; the median counts.")

CONFIG = qwen3.Config(
    vocab_size=2048, d_model=128, num_layers=4, num_heads=4, num_kv_heads=2, head_dim=32, d_ff=384, tie_embeddings=True
)


def time_ours(params, prompts) -> list[float]:
    """Seconds of each timed run."""
    run = jax.jit(
        lambda params, prompts, key: generate(
            params,
            CONFIG,
            prompts,
            np.ones(prompts.shape, bool),
            key,
            samples_per_prompt=_GROUP.value,
            max_new_tokens=_NEW_TOKENS.value,
            eos_ids=(),
        )
    )
    return [_seconds(lambda: jax.block_until_ready(run(params, prompts, jax.random.key(i)))) for i in _runs()][1:]


def time_transformers(params, prompts) -> list[float] | None:
    """The same by transformers, the prompt repeated G times by `num_return_sequences`; None where torch is missing."""
    try:
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils.logging import disable_progress_bar
    except ImportError:
        return None
    disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        qwen3.save(folder, CONFIG, params)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokens = torch.tensor(prompts, dtype=torch.int64)
    options = {
        "attention_mask": torch.ones_like(tokens),
        "do_sample": True,
        "temperature": 1.0,
        "top_k": 0,
        "max_new_tokens": _NEW_TOKENS.value,
        "num_return_sequences": _GROUP.value,
        "eos_token_id": None,
        "pad_token_id": 0,
    }
    return [_seconds(lambda: model.generate(input_ids=tokens, **options)) for _ in _runs()][1:]


def _runs():
    return range(_REPEATS.value + 1)  # the first one warms up


def _seconds(work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments: {' '.join(argv[1:])}")
    params = jax.jit(lambda key: qwen3.init(CONFIG, key))(jax.random.key(0))
    shape = (_PROMPTS.value, _PROMPT_TOKENS.value)
    prompts = np.random.default_rng(0).integers(1, CONFIG.vocab_size, size=shape).astype(np.int32)
    sampled = _PROMPTS.value * _GROUP.value * _NEW_TOKENS.value
    speeds = {}
    for name, work in (("scope_jax", time_ours), ("transformers", time_transformers)):
        seconds = work(params, prompts)
        if seconds is None:
            print(f"{name:14} not measured: torch is not installed")
            continue
        speeds[name] = sampled / statistics.median(seconds)
        low, high = sampled / max(seconds), sampled / min(seconds)
        print(f"{name:14} {speeds[name]:10,.0f} tokens/s (median; {low:,.0f} to {high:,.0f})")
    if len(speeds) == 2:
        print(f"{'ratio':14} {speeds['scope_jax'] / speeds['transformers']:10.2f}")


if __name__ == "__main__":
    app.run(main)
