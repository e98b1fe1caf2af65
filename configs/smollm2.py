"""A language model of 135 million parameters learns on grade-school problems, on two CPU cores.

    python scripts/make_smollm2.py --gguf=FILE.gguf --output=models/smollm2
    python -m scope_jax.data.convert --layout=gsm8k_socratic --input=train_socratic.jsonl --output=gsm8k.jsonl
    python scripts/keep_teaching.py --config=configs/smollm2.py --config.model.path=models/smollm2 \
        --config.data.train=gsm8k.jsonl --problems=208 --output=teaching.jsonl
    python -m scope_jax.train --config=configs/smollm2.py --workdir=runs/smollm2 \
        --config.model.path=models/smollm2 --config.data.train=teaching.jsonl

Stage 1 alone: SmolLM2 solves next to none of these problems, so nearly every prompt is routed to its scaffold. README has
the curve.
"""

from configs import base


def get_config():
    c = base.get_config()
    c.method = "asr"
    c.stages = (("asr", 20),)
    c.data.style = "examples"
    c.model.remat = False  # activations of four rollouts fit into 8 GB
    c.rollout.prompts = 4
    c.rollout.temperature = 0.6  # at 1.0 a model of this size writes no sentence to its end
    c.rollout.max_prompt_tokens = 240  # the shorter half of the problems
    c.rollout.max_scaffold_tokens = 352
    c.rollout.max_new_tokens = 72
    c.rollout.route_buckets = 1
    c.loss.micro_batches = 8
    c.optimizer.learning_rate = 3e-5
    c.optimizer.b2 = 0.95
    c.eval.problems = 16
    c.eval.samples = 2
    c.eval.temperature = 0.6
    c.eval.max_new_tokens = 72
    c.eval.batch = 16
    c.checkpoint.every = 2
    c.checkpoint.keep = 1
    c.log.rollouts_every = 1
    c.log.rollouts = 32
    return c
