"""Trains a policy through the stages of a config, and evaluates it at the end.

    python -m scope_jax.train --config=configs/chains.py:scope --config.asr.beta=0.3 --workdir=runs/scope

Start the same command again after a stop: it goes on from the last checkpoint and ends with the same parameters, bit for
bit. The workdir then holds config.json, checkpoints/, metrics.jsonl, rollouts.jsonl, TensorBoard events, model/ (the
policy as a Hugging Face folder), eval_samples.jsonl, eval.md and eval.json, which is written last.
"""

import pathlib
import time

import jax
import ml_collections
import numpy as np
from absl import flags

from scope_jax import assemble, overrides, qwen3
from scope_jax.checkpoints import Checkpoints, check_workdir, state_bytes
from scope_jax.checks import check_config
from scope_jax.evaluate import evaluate, format_measures, second_judge, write_evaluation
from scope_jax.judges import make_judge
from scope_jax.meshes import make_mesh
from scope_jax.metrics import MetricsWriter, require_finite
from scope_jax.own_reward import make_own_reward
from scope_jax.policy.update import make_optimizer
from scope_jax.rewards import RIGHT, UNDECIDED, WRONG
from scope_jax.step import begin_stage, initial_state, place_of, train_step
from scope_jax.verify.settle import make_settle


def rollout_rows(experience, batch, advantages, tokenizer, count: int, stage: str) -> list[dict]:
    """The first rollouts of a step, spread over its prompts, as the rollout log holds them."""
    group = experience.rewards.shape[1]
    rows = np.linspace(0, experience.rewards.size - 1, min(count, experience.rewards.size)).astype(int)
    picked = jax.tree.map(lambda x: x[rows], (experience.rollout, experience.labels))
    rollout, labels = jax.device_get(picked)
    rewards, outcome, advantages, valid = jax.device_get(
        [x.reshape(-1) for x in (experience.rewards, experience.outcome, advantages, experience.valid)]
    )
    routed = np.asarray(experience.routed)
    verdicts = np.where(valid, np.where(outcome == 1, RIGHT, WRONG), UNDECIDED)
    return [
        {
            "stage": stage,
            "id": batch.problems[row // group].id,
            "routed": bool(routed[row // group]),
            "prompt": tokenizer.decode(rollout.tokens[i][(rollout.segment_ids[i] > 0) & ~rollout.mask[i]]),
            "completion": tokenizer.decode(rollout.tokens[i][rollout.mask[i]], skip_special_tokens=True),
            # Of a routed row, `outcome` is that of the rollout it replaced.
            "verdicts": None if routed[row // group] else [verdicts[row]],
            "labels": None if labels is None else labels[0][i][labels[1][i]],
            "reward": rewards[row] if valid[row] else None,
            "advantage": advantages[row],
            "length": int(rollout.mask[i].sum()),
        }
        for i, row in enumerate(rows)
    ]


def main(_):
    with assemble.host_verifier(_CONFIG.value) as open_verifier:
        run(_CONFIG.value, pathlib.Path(_WORKDIR.value), open_verifier)


def run(given: ml_collections.ConfigDict, workdir: pathlib.Path, open_verifier) -> None:
    """The whole run: set up, go on or begin, update, save, evaluate."""
    with overrides.setting_up():
        # -------------------------------------------------------------- workdir, config, mesh
        check_workdir(workdir)
        config = ml_collections.FrozenConfigDict(given)
        mesh = make_mesh(config.mesh)
        check_config(config, mesh)
        total = sum(updates for _, updates in config.stages)
        optimizer = make_optimizer(config.optimizer)
        done = workdir / "eval.json"

        # -------------------------------------------------------------- problems and policy
        tokenizer = assemble.open_tokenizer(config)
        train_table, eval_table = assemble.load_tables(config, tokenizer)
        max_subs = max(table.sub_mask.shape[1] for table in (train_table, eval_table))
        policy = assemble.load_policy(config, mesh, tokenizer, max_subs=max_subs)
        parts = {"table": policy.table, "tokenizer": tokenizer, "mesh": mesh, "workdir": workdir}
        judge, second = make_judge(config, **parts), second_judge(config, **parts)
        own_reward = make_own_reward(config.reward, tokenizer, policy.model.eos_ids)
        state = initial_state(policy.params, config, optimizer, mesh)

        # -------------------------------------------------------------- resume, or begin
        check_workdir(workdir, (config.checkpoint.keep + 1) * state_bytes(state))
        c = config.checkpoint
        checkpoints = Checkpoints(workdir / "checkpoints", keep=c.keep, keep_every=c.keep_every)
        restored = checkpoints.restore(state)
        overrides.record_config(workdir, given, resuming=restored is not None or done.exists())
    if done.exists():
        print(f"{workdir}: this run is finished; its result is {done}")
        return
    step, generated, seconds = 0, 0, 0.0
    if restored:
        step, state = restored.step, restored.state
        generated, seconds = restored.meta["generated_tokens"], restored.meta["seconds"]
        print(f"{workdir}: going on after update {step} of {total}")

    c = config.verifier
    settle = make_settle(tokenizer, policy.model.eos_ids, open_verifier, mode=c.mode, box=c.box)
    writer = MetricsWriter(
        workdir, total_steps=total, resume_step=step, tensorboard=config.log.tensorboard, progress_seconds=config.log.seconds
    )

    # ------------------------------------------------------------------ updates
    while step < total:
        began = time.perf_counter()
        place = place_of(step, config.stages)
        if place.first:
            state = begin_stage(state, config, optimizer, mesh)
        state, step_data, measured = train_step(
            state, policy, train_table, step, config, optimizer, settle, judge, own_reward
        )
        step += 1
        finite = measured.pop("finite")
        measured = {name: value.item() for name, value in jax.device_get(measured).items()}
        require_finite(step, **measured, gradient=finite)
        if measured["sampler_gap"] > config.log.max_sampler_gap:
            print(f"step {step}: sampler and trainer differ by {measured['sampler_gap']:.3g} in a token's log-prob")
        generated += measured["generated_tokens"]
        seconds += time.perf_counter() - began
        writer.write(step, {"stage": place.stage, **measured, "total_generated_tokens": generated})
        if config.log.rollouts and (step % config.log.rollouts_every == 0 or step == total):
            writer.write_rollouts(step, rollout_rows(*step_data, tokenizer, config.log.rollouts, place.stage))
        if step % config.checkpoint.every == 0 or step == total:
            meta = {"stage": place.stage, "data_position": step * config.rollout.prompts}
            checkpoints.save(step, state, meta | {"generated_tokens": generated, "seconds": seconds})
        checkpoints.check()
    writer.close()
    checkpoints.close()

    # ------------------------------------------------------------------ the policy and its evaluation
    qwen3.save(workdir / "model", policy.model, state.params, tokenizer_from=config.model.path)
    policy = policy._replace(params=state.params)
    key = jax.random.key(config.eval.seed)
    measures, samples = evaluate(policy, eval_table, tokenizer, key, config, settle, judge, second)
    measures |= {"method": config.method, "seed": config.seed, "updates": total}
    measures |= {"generated_tokens": generated, "train_seconds": seconds}
    write_evaluation(workdir, measures, samples)
    print(format_measures(measures))


if __name__ == "__main__":
    _CONFIG = overrides.config_flag()
    _WORKDIR = flags.DEFINE_string("workdir", None, "Folder of this run; a stopped run goes on there.", required=True)
    overrides.refuse_empty("workdir")
    overrides.run(main)
