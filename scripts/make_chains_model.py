"""Trains the warm start of the embedded task: a tiny Qwen3 that knows the format, and mostly forgets to carry.

    python scripts/make_chains_model.py --output=scope_jax/data/chains_model

It reads noisy, wordy worked solutions (`chains.Manner`), half of them scaffolded, packed into rows. The tokenizer must
already be in the folder (scripts/make_chains_tokenizer.py).
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import app, flags

from scope_jax import qwen3
from scope_jax.data import chains, prompts
from scope_jax.policy.logprobs import token_logprobs
from scope_jax.qwen3.params import count
from scope_jax.qwen3.tokenizer import load_tokenizer

_OUTPUT = flags.DEFINE_string("output", "scope_jax/data/chains_model", "Folder of the tokenizer; the model goes there.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the parameters and of the solutions.")
_UPDATES = flags.DEFINE_integer("updates", 1200, "Gradient steps.")
_ROWS = flags.DEFINE_integer("rows", 24, "Packed rows a batch.")
_WIDTH = flags.DEFINE_integer("width", 256, "Tokens a row.")
_LEARNING_RATE = flags.DEFINE_float("learning_rate", 3e-3, "Peak learning rate of AdamW; cosine to a twentieth.")


def architecture(tokenizer) -> qwen3.Config:
    return qwen3.Config(
        vocab_size=len(tokenizer),
        d_model=96,
        num_layers=3,
        num_heads=4,
        num_kv_heads=2,
        head_dim=32,
        d_ff=256,
        rope_theta=10_000.0,
        tie_embeddings=True,
        max_positions=4096,
        eos_ids=(tokenizer.eos_token_id,),
        pad_id=tokenizer.pad_token_id,
        remat=False,
    )


def sample_example(tokenizer, frame: tuple[str, str], rng) -> tuple[list[int], int]:
    """Token ids of one conversation inside the chat template's `frame`, and how many of them are the prompt."""
    chain = chains.sample_chain(rng, steps=int(rng.integers(2, 9)), hard_share=rng.choice([0.3, 0.6]))
    problem = chains.to_problem(chain, "warm")
    scaffolded = bool(rng.random() < 0.5)
    text = (prompts.scaffolded_prompt if scaffolded else prompts.plain_prompt)(problem, prompts.BARE)
    completion = chains.worked_solution(chain, rng, chains.Manner(), scaffolded=scaffolded) + tokenizer.eos_token
    prompt_ids = tokenizer.encode(text.join(frame), add_special_tokens=False)
    return prompt_ids + tokenizer.encode(completion, add_special_tokens=False), len(prompt_ids)


def packed_batch(tokenizer, rng, rows: int, width: int) -> dict[str, np.ndarray]:
    """Rows filled with whole examples; loss on completion tokens only."""
    frame = tuple(prompts.render_chat(tokenizer, "\0").split("\0"))  # rendering every prompt would be the slowest part
    batch = {name: np.zeros((rows, width), np.int32) for name in ("tokens", "segment_ids", "mask")}
    for row in range(rows):
        filled = segment = 0
        while True:
            ids, prompt_length = sample_example(tokenizer, frame, rng)
            if filled + len(ids) > width:
                if segment:
                    break
                continue  # a lone example longer than the row: draw another
            segment += 1
            batch["tokens"][row, filled : filled + len(ids)] = ids
            batch["segment_ids"][row, filled : filled + len(ids)] = segment
            batch["mask"][row, filled + prompt_length : filled + len(ids)] = 1
            filled += len(ids)
    return batch


def main(_):
    tokenizer = load_tokenizer(_OUTPUT.value)
    config = architecture(tokenizer)
    params = qwen3.init(config, jax.random.key(_SEED.value))
    schedule = optax.warmup_cosine_decay_schedule(0.0, _LEARNING_RATE.value, 100, _UPDATES.value, _LEARNING_RATE.value / 20)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.98, weight_decay=0.01))
    optimizer_state = optimizer.init(params)
    print(f"{count(params):,} parameters, {config.vocab_size} tokens")

    @jax.jit
    def update(params, optimizer_state, batch):
        def loss(params):
            mask = batch["mask"].astype(bool)
            logprobs = token_logprobs(params, config, batch["tokens"], mask, segment_ids=batch["segment_ids"])
            return -jnp.sum(logprobs) / jnp.sum(mask)

        value, gradient = jax.value_and_grad(loss)(params)
        step, optimizer_state = optimizer.update(gradient, optimizer_state, params)
        return optax.apply_updates(params, step), optimizer_state, value

    rng, began = np.random.default_rng(_SEED.value), time.time()
    for i in range(_UPDATES.value):
        batch = packed_batch(tokenizer, rng, _ROWS.value, _WIDTH.value)
        params, optimizer_state, value = update(params, optimizer_state, batch)
        if i % 100 == 0 or i == _UPDATES.value - 1:
            print(f"update {i:5d}  loss {float(value):.4f}  {time.time() - began:6.0f} s", flush=True)
    qwen3.save(_OUTPUT.value, config, params)


if __name__ == "__main__":
    app.run(main)
