"""Evaluates a policy: accuracy, the step-quality protocol, lengths, and for the embedded task errors by kind.

    python -m scope_jax.evaluate --config=configs/chains.py:base --config.model.path=FOLDER --workdir=DIR

Writes DIR/eval.json, DIR/eval_samples.jsonl and DIR/config.json.
"""

import collections
import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from absl import flags

from scope_jax import assemble, overrides, rewards
from scope_jax.checkpoints import check_workdir
from scope_jax.checks import check_config
from scope_jax.data import chains
from scope_jax.data.batches import PromptTable, take
from scope_jax.data.records import write_text
from scope_jax.meshes import make_mesh
from scope_jax.scope import Policy, Sampling, Settle, by_row, ended, main_verdicts, sample, step_labels
from scope_jax.verify.settle import make_settle


def evaluate(policy: Policy, table: PromptTable, tokenizer, key, config, settle: Settle) -> tuple[dict, list[dict]]:
    """Samples `eval.samples` completions of `eval.problems` problems and measures them.

    Returns:
      The measures, and one record a completion. Accuracy counts a verdict that nobody could settle as not right, and
      says how many there were. Useful% and 1st-Err-Pos are means over correct completions (the paper's protocol):
      the share of useful steps, and the relative position of the first error step (1 where there is none). `tokens`
      is the mean over all completions, `tokens_correct` over correct ones. `host_checks` counts the answers that the
      host checked, by result.
    """
    c = config.eval
    count = min(c.problems or len(table.problems), len(table.problems))
    samples, checks = [], collections.Counter()
    collect = list  # the samples of the batch before: the host checks their answers while the device samples this batch
    for start in range(0, count, c.batch):
        rows = np.arange(start, start + c.batch) % count  # the last batch wraps, so that one program serves all
        batch = take(table, rows, policy.place)
        key, batch_key = jax.random.split(key)
        rollout = sample(policy, batch.prompts, batch.prompt_mask, batch_key, Sampling(c.samples, c.max_new_tokens, c.temperature))
        problems = by_row(batch.problems, c.samples)
        verdicts = main_verdicts(rollout, policy, batch.main_key, c.samples, box=config.verifier.box)
        samples += collect()
        problems = problems[: (count - start) * c.samples]
        settled = settle(rollout, verdicts, [*problems, *[None] * (len(verdicts) - len(problems))])
        collect = functools.partial(_records, policy, rollout, settled, problems, tokenizer, config, checks)
    samples += collect()
    return measure(samples) | {"host_checks": dict(checks)}, samples


def _records(policy: Policy, rollout, settled, problems, tokenizer, config, checks: collections.Counter) -> list[dict]:
    """What is known of each completion of one batch, once the host has checked it; adds its checks to the count."""
    labels, label_mask = jax.device_get(step_labels(rollout, policy.table, judge=config.judge))
    lengths, whole = jax.device_get((jnp.sum(rollout.mask, axis=1), ended(rollout, policy.model.eos_ids)))
    tokens, mask = jax.device_get((rollout.tokens, rollout.mask))
    verdicts, counts = settled()
    checks.update({kind: int(count) for kind, count in counts.items()})
    return [
        {
            "id": problem.id,
            "problem": problem.problem,
            "answer": problem.answer,
            "completion": tokenizer.decode(tokens[i][mask[i]], skip_special_tokens=True),
            "verdict": int(verdicts[i, 0]),
            "labels": [rewards.STEP_LABELS[k] for k in labels[i][label_mask[i]]],
            "tokens": int(lengths[i]),
            "ended": bool(whole[i]),
        }
        for i, problem in enumerate(problems)
    ]


def measure(samples: list[dict]) -> dict:
    """The measures of a list of evaluated completions."""
    correct = [s for s in samples if s["verdict"] == rewards.RIGHT]
    measures = {
        "accuracy": len(correct) / len(samples),
        "useful": _mean(s["labels"].count("useful") / len(s["labels"]) for s in correct if s["labels"]),
        "first_error_pos": _mean(first_error_position(s["labels"]) for s in correct if s["labels"]),
        "tokens": _mean(s["tokens"] for s in samples),
        "tokens_correct": _mean(s["tokens"] for s in correct),
        "truncated": _mean(not s["ended"] for s in samples),
        "undecided": sum(s["verdict"] == rewards.UNDECIDED for s in samples),
        "samples": len(samples),
    }
    if all(s["id"].startswith("chain") for s in samples):
        measures |= chain_measures(samples)
    return measures


def first_error_position(labels: list[str]) -> float:
    """Relative position of the first error step: (its index) / N, and 1 where no step is wrong."""
    return labels.index("error") / len(labels) if "error" in labels else 1.0


def chain_measures(samples: list[dict]) -> dict:
    """For the embedded task: accuracy of single equations by kind, and errors of format, not of arithmetic."""
    by_kind = {kind: [] for kind in chains.KINDS}
    for s in samples:
        for kind, right in chains.read_equations(s["completion"]):
            by_kind[kind].append(right)
    return {
        "op_accuracy": {kind: _mean(found) for kind, found in by_kind.items()},
        "format_error_rate": _mean(not chains.follows_format(s["problem"], s["completion"]) for s in samples),
    }


def write_evaluation(workdir: str | pathlib.Path, measures: dict, samples: list[dict]) -> None:
    """Writes the completions, then the measures: a folder with an eval.json has been evaluated to the end."""
    workdir = pathlib.Path(workdir)
    write_text(workdir / "eval_samples.jsonl", "".join(json.dumps(s, ensure_ascii=False) + "\n" for s in samples))
    write_text(workdir / "eval.json", json.dumps(measures, indent=2) + "\n")


def main(_):
    config = ml_collections.FrozenConfigDict(_CONFIG.value)
    workdir = pathlib.Path(_WORKDIR.value)
    with overrides.setting_up():
        check_workdir(workdir)
        if (workdir / "checkpoints").exists() or (workdir / "metrics.jsonl").exists():
            raise ValueError(f"{workdir}: holds a training run, whose eval.json this would replace; choose another --workdir")
        mesh = make_mesh(config.mesh)
        check_config(config, mesh)
        tokenizer = assemble.open_tokenizer(config)
        table = assemble.load_table(config, tokenizer, "eval")
        policy = assemble.load_policy(config, mesh, tokenizer, max_subs=table.sub_mask.shape[1])
        overrides.record_config(workdir, _CONFIG.value, resuming=False)
    with assemble.host_verifier(config) as verifier:
        c = config.verifier
        settle = make_settle(tokenizer, policy.model.eos_ids, verifier, mode=c.mode, box=c.box)
        measures, samples = evaluate(policy, table, tokenizer, jax.random.key(config.eval.seed), config, settle)
    write_evaluation(workdir, measures, samples)
    print(json.dumps(measures, indent=2))


def _mean(values) -> float | None:
    values = [float(v) for v in values]
    return sum(values) / len(values) if values else None


if __name__ == "__main__":
    _CONFIG = overrides.config_flag()
    _WORKDIR = flags.DEFINE_string("workdir", None, "Folder that eval.json is written to.", required=True)
    overrides.run(main)
