"""Evaluates a policy by the measures of `scope_jax.protocol`, by benchmark, and for the embedded task errors by kind.

    python -m scope_jax.evaluate --config=configs/chains.py:base --config.model.path=FOLDER --workdir=DIR

Writes DIR/eval.json, DIR/eval.md (a table), DIR/eval_samples.jsonl and DIR/config.json.
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

from scope_jax import assemble, overrides, protocol, rewards
from scope_jax.checkpoints import check_workdir
from scope_jax.checks import check_config
from scope_jax.data import chains
from scope_jax.data.batches import PromptTable, take
from scope_jax.data.records import write_text
from scope_jax.judges import make_judge
from scope_jax.meshes import make_mesh
from scope_jax.scope import Judge, Policy, Sampling, Settle, by_row, ended, main_verdicts, sample
from scope_jax.tables import markdown_table, number, percent
from scope_jax.verify.extract import extract_answer
from scope_jax.verify.settle import make_settle


def evaluate(
    policy: Policy,
    table: PromptTable,
    tokenizer,
    key,
    config,
    settle: Settle,
    judge: Judge,
    second: Judge | None = None,
) -> tuple[dict, list[dict]]:
    """Samples `eval.samples` completions of `eval.problems` problems and measures them.

    Args:
      key: of the completions.
      config: the whole config; read is `eval`.
      judge: labels the steps of right completions.
      second: labels them too, to be compared with the first; see `second_judge`.

    Returns:
      The measures (`measure`; `host_checks` counts the answers that the host checked, by result), and one record a
      completion.
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
        judges = [given for given in (judge, second) if given]
        collect = functools.partial(_records, policy, rollout, settled, problems, tokenizer, config, judges, checks)
    samples += collect()
    return measure(samples, resamples=c.resamples, seed=c.seed) | {"host_checks": dict(checks)}, samples


def _records(
    policy: Policy, rollout, settled, problems, tokenizer, config, judges: list[Judge], checks: collections.Counter
) -> list[dict]:
    """What is known of each completion of one batch, once the host has checked it; adds its checks to the count."""
    settled = functools.cache(settled)

    def right():
        return [verdict == rewards.RIGHT and i < len(problems) for i, verdict in enumerate(settled()[0][:, 0])]

    rows = [*problems]
    rows += problems[:1] * (rollout.tokens.shape[0] - len(rows))  # rows that only fill the batch are never right
    labelled = [names_of(judge(rollout, right, rows)) for judge in judges]
    lengths, whole = jax.device_get((jnp.sum(rollout.mask, axis=1), ended(rollout, policy.model.eos_ids)))
    tokens, mask = jax.device_get((rollout.tokens, rollout.mask))
    verdicts, counts = settled()
    checks.update({kind: int(count) for kind, count in counts.items()})
    records = []
    for i, problem in enumerate(problems):
        completion = tokenizer.decode(tokens[i][mask[i]], skip_special_tokens=True)
        record = {
            "id": problem.id,
            "source": problem.source,
            "problem": problem.problem,
            "answer": problem.answer,
            "completion": completion,
            "given": extract_answer(completion, ended=bool(whole[i]), box=config.verifier.box),
            "verdict": int(verdicts[i, 0]),
            "labels": labelled[0][i],
            "tokens": int(lengths[i]),
            "ended": bool(whole[i]),
        }
        records.append(record | ({"second_labels": labelled[1][i]} if len(labelled) > 1 else {}))
    return records


def names_of(judged) -> list[list[str]]:
    """The label names of each row that a judge was given; none where it labelled none."""
    labels, label_mask, _ = jax.device_get(judged)
    return [[rewards.STEP_LABELS[k] for k in row[real]] for row, real in zip(labels, label_mask, strict=True)]


def second_judge(config, **parts) -> Judge | None:
    """The judge that `eval.second_judge` names, with the settings of `config.judge`; None where it names none.

    Args:
      parts: what `judges.make_judge` asks for.
    """
    if not config.eval.second_judge:
        return None
    changed = ml_collections.ConfigDict(config.to_dict())  # a copy; ConfigDict(config) shares what is nested
    changed.judge.kind = config.eval.second_judge
    return make_judge(ml_collections.FrozenConfigDict(changed), **parts)


def measure(samples: list[dict], *, resamples: int, seed: int) -> dict:
    """The measures of a list of evaluated completions: of all of them, by benchmark where there are several, the
    agreement of the judges where two have labelled, and errors by kind for the embedded task.

    Args:
      resamples: draws of the bootstrap behind each interval; 0: no intervals.
      seed: of the draws.
    """
    measures, _ = protocol.measure_rows(samples, resamples=resamples, seed=seed)
    rows = protocol.benchmark_rows(samples, resamples=resamples, seed=seed)
    if len(rows) > 1:
        measures["benchmarks"] = rows
    if "second_labels" in samples[0]:
        measures["agreement"] = protocol.agreement(samples, resamples=resamples, seed=seed)
    if all(s["id"].startswith("chain") for s in samples):
        measures |= chain_measures(samples)
    return measures


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


def format_measures(measures: dict) -> str:
    """The measures as Markdown: a row a benchmark, with intervals, and how far two judges agree."""
    rows = [*measures.get("benchmarks", ()), {"source": "all"} | measures]
    columns = [("avg@{n}", percent), ("maj@{n}", percent), ("pass@{n}", percent), ("useful", percent)]
    columns += [("first_error_pos", lambda x: number(x, 3)), ("tokens_correct", lambda x: number(x, 0))]

    def cell(row, name, show):
        name = name.format(n=row["n"])
        bounds = row["intervals"].get(name)
        return show(row.get(name)) + (f" [{', '.join(map(show, bounds))}]" if bounds else "")

    head = ["benchmark", "problems", "n", "avg@n %", "maj@n %", "pass@n %", "Useful %", "1st-Err-Pos", "tokens"]
    body = [
        [row["source"] or "(none)", str(row["problems"]), str(row["n"]), *(cell(row, *column) for column in columns)]
        + [str(row["undecided"])]
        for row in rows
    ]
    notes = (
        "n completions a problem. avg@n is pass@1. In brackets: 95% bootstrap intervals over problems. Useful %, "
        "1st-Err-Pos and tokens are over right completions. Undecided verdicts count as not right. In the row `mean` "
        "each benchmark counts alike, in the row `all` each completion."
    )
    parts = [markdown_table([*head, "undecided"], body), notes]
    if "agreement" in measures:
        parts.append(format_agreement(measures["agreement"]))
    return "\n\n".join(parts) + "\n"


def format_agreement(found: dict) -> str:
    """The agreement of two judges as Markdown."""
    kappa = number(found["kappa"], 3)
    if found["interval"]:
        kappa += f" [{number(found['interval'][0], 3)}, {number(found['interval'][1], 3)}]"
    table = [[name, *map(str, row)] for name, row in zip(found["labels"], found["table"], strict=True)]
    return (
        f"Agreement of the two judges on {found['steps']} steps of {found['completions']} right completions: "
        f"Cohen's kappa {kappa}, equal labels {percent(found['equal'])}%. Left out, as one judge gave no labels or "
        f"other steps: {found['left_out']}. Rows: the first judge; columns: the second.\n\n"
        + markdown_table(["", *found["labels"]], table)
    )


def write_evaluation(workdir: str | pathlib.Path, measures: dict, samples: list[dict]) -> None:
    """Writes the completions, then the measures: a folder with an eval.json has been evaluated to the end."""
    workdir = pathlib.Path(workdir)
    write_text(workdir / "eval_samples.jsonl", "".join(json.dumps(s, ensure_ascii=False) + "\n" for s in samples))
    write_text(workdir / "eval.md", format_measures(measures))
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
        parts = {"table": policy.table, "tokenizer": tokenizer, "mesh": mesh, "workdir": workdir}
        judge, second = make_judge(config, **parts), second_judge(config, **parts)
        overrides.record_config(workdir, _CONFIG.value, resuming=False)
    with assemble.host_verifier(config) as verifier:
        c = config.verifier
        settle = make_settle(tokenizer, policy.model.eos_ids, verifier, mode=c.mode, box=c.box)
        key = jax.random.key(config.eval.seed)
        measures, samples = evaluate(policy, table, tokenizer, key, config, settle, judge, second)
    write_evaluation(workdir, measures, samples)
    print(format_measures(measures))


def _mean(values) -> float | None:
    values = [float(v) for v in values]
    return sum(values) / len(values) if values else None


if __name__ == "__main__":
    _CONFIG = overrides.config_flag()
    _WORKDIR = flags.DEFINE_string("workdir", None, "Folder that eval.json is written to.", required=True)
    overrides.refuse_empty("workdir")
    overrides.run(main)
