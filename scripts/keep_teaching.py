"""Keeps the problems that a policy learns from at once: those whose scaffold it is paid for sometimes, and not always.

    python scripts/keep_teaching.py --config=configs/smollm2.py --config.model.path=models/smollm2 \
        --config.data.train=gsm8k.jsonl --output=gsm8k.teaching.jsonl --problems=256

Samples `config.rollout.group` completions of each problem's scaffold, as training would, and writes the records of those
problems whose R_ASR differs within the group: from all others a group advantage of zero comes. A weak model earns nothing
on most problems, and a short run on all of them mostly waits.
"""

import pathlib

import jax
import numpy as np
from absl import flags
from ml_collections import FrozenConfigDict

from scope_jax import assemble, overrides, scope
from scope_jax.checks import check_config
from scope_jax.data.batches import take
from scope_jax.data.records import write_jsonl
from scope_jax.meshes import make_mesh

_CONFIG = overrides.config_flag()
_OUTPUT = flags.DEFINE_string("output", None, "JSON lines file of the kept problems.", required=True)
_PROBLEMS = flags.DEFINE_integer("problems", 0, "Problems tried, the first that have a scaffold; 0: all.", lower_bound=0)
_BATCH = flags.DEFINE_integer("batch", 16, "Problems sampled together.", lower_bound=1)


def main(_):
    config = FrozenConfigDict(_CONFIG.value)
    with overrides.setting_up():
        mesh = make_mesh(config.mesh)
        check_config(config, mesh)
        tokenizer = assemble.open_tokenizer(config)
        table = assemble.load_table(config, tokenizer, "train")
        policy = assemble.load_policy(config, mesh, tokenizer, max_subs=table.sub_mask.shape[1])
    rows = np.flatnonzero(table.routable)[: _PROBLEMS.value or None]
    group, kept, rewards = config.rollout.group, [], []
    for first in range(0, len(rows), _BATCH.value):
        mine = rows[first : first + _BATCH.value]
        batch = take(table, np.resize(mine, _BATCH.value), policy.place)  # one shape: the last batch wraps around
        prompts, prompt_mask, slot_key = policy.place((batch.scaffolded, batch.scaffolded_mask, batch.slot_key))
        key = jax.random.fold_in(jax.random.key(config.seed), first)
        rollout = scope.sample(policy, prompts, prompt_mask, key, scope.Sampling.of(config.rollout))
        verdicts = scope.slot_verdicts(rollout, policy, slot_key, group, box=config.verifier.box)
        paid, _ = scope.asr_rewards(verdicts, np.repeat(batch.sub_mask, group, axis=0), beta=config.asr.beta)
        paid = np.asarray(paid).reshape(-1, group)[: len(mine)]
        rewards.append(paid)
        kept += [batch.problems[i] for i in np.flatnonzero(paid.max(axis=1) > paid.min(axis=1))]
        print(f"{first + len(mine)} of {len(rows)} tried, {len(kept)} kept, mean reward {np.concatenate(rewards).mean():.4f}", flush=True)
    write_jsonl(pathlib.Path(_OUTPUT.value), kept)


if __name__ == "__main__":
    overrides.run(main)
