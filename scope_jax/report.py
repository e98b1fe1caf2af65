"""Lays the runs of a folder side by side, in the shape of the paper's Table 1, with costs and plots.

    python -m scope_jax.report --runs=runs/quickstart

Reads RUNS/METHOD/seed-N/eval.json and metrics.jsonl, prints the tables, and writes table.md, table.json (a list of
rows, shares between 0 and 1) and PNG plots into RUNS or --output. A run that is not finished is named and left out.
"""

import dataclasses
import json
import pathlib
import re
import statistics
from typing import Any

from absl import flags

from scope_jax import overrides, plots
from scope_jax.data.records import write_text
from scope_jax.metrics import read_jsonl
from scope_jax.tables import markdown_table, number, percent

LABELS = {"base": "base", "grpo": "GRPO", "asr": "ASR only", "scope": "SCOPE-RL"}  # the paper's order and names
MEASURES = ("useful", "first_error_pos", "tokens", "format_error_rate", "truncated")  # of eval.json, besides accuracy


@dataclasses.dataclass(frozen=True)
class Run:
    """One finished run: what eval.json and metrics.jsonl say."""

    method: str
    seed: int
    measures: dict[str, Any]
    updates: list[dict[str, Any]]  # one row an update; empty for the base model


def find_runs(folder: str | pathlib.Path) -> tuple[list[Run], list[str]]:
    """The finished runs under FOLDER/METHOD/seed-N, and a sentence about each run that is not finished.

    Raises:
      FileNotFoundError: there is no such folder, or no finished run in it.
      ValueError: an eval.json or a line of metrics.jsonl is malformed; names the file.
    """
    runs, unfinished = [], []
    places = sorted(pathlib.Path(folder).glob("*/seed-*"), key=lambda path: (path.parent.name, _seed(path)))
    for place in places:
        rows = read_jsonl(place / "metrics.jsonl") if (place / "metrics.jsonl").exists() else []
        if not (place / "eval.json").exists():
            made = f"stopped after update {rows[-1]['step']}" if rows else "has made no update"
            unfinished.append(f"{place.parent.name}/{place.name} is not finished: it {made} and has no eval.json")
            continue
        runs.append(Run(place.parent.name, _seed(place), _read_measures(place / "eval.json"), rows))
    if not places:
        raise FileNotFoundError(
            f"{folder}: no runs; expected folders such as {folder}/scope/seed-0, made by launch/quickstart"
        )
    if not runs:
        raise FileNotFoundError(f"{folder}: no finished run; " + "; ".join(unfinished))
    return runs, unfinished


def table_rows(runs: list[Run]) -> list[dict[str, Any]]:
    """One row a method, in the paper's order: means over its seeds, the spread of accuracy, and the costs.

    `accuracy_std` is the sample standard deviation over seeds, null for one seed, where `accuracy_interval` is that of
    its evaluation instead. `eta_r_mean` is the mean over the
    updates of the run's first stage; `eta_r_by_stage` has all of them. Tokens generated include the rollouts that the
    scaffolded ones replaced.
    """
    rows = []
    for method in sort_methods({run.method for run in runs}):
        mine = [run for run in runs if run.method == method]
        accuracy = [run.measures["accuracy"] for run in mine]
        row = {
            "method": method,
            "label": LABELS.get(method, method),
            "seeds": len(mine),
            "seed_list": [run.seed for run in mine],
            "accuracy_by_seed": accuracy,
            "accuracy_mean": statistics.mean(accuracy),
            "accuracy_std": statistics.stdev(accuracy) if len(accuracy) > 1 else None,
            "accuracy_interval": (mine[0].measures.get("intervals") or {}).get("accuracy") if len(mine) == 1 else None,
        }
        row |= {f"{name}_mean": _mean(run.measures.get(name) for run in mine) for name in MEASURES}
        by_stage = [_by_stage(run) for run in mine]
        stages = list(dict.fromkeys(stage for found in by_stage for stage in found))
        row["eta_r_by_stage"] = {stage: _mean(found.get(stage) for found in by_stage) for stage in stages}
        row["eta_r_mean"] = row["eta_r_by_stage"][stages[0]] if stages else None
        kinds = dict.fromkeys(kind for run in mine for kind in run.measures.get("op_accuracy") or {})
        row["op_accuracy"] = {
            kind: _mean((run.measures.get("op_accuracy") or {}).get(kind) for run in mine) for kind in kinds
        }
        rows.append(row | _costs(mine))
    return rows


def _costs(runs: list[Run]) -> dict[str, float | None]:
    """What training took: means over the seeds."""
    updates = _mean(len(run.updates) for run in runs)
    generated = _mean(sum(row.get("generated_tokens") or 0 for row in run.updates) for run in runs)
    seconds = _mean(run.measures.get("train_seconds") for run in runs)
    return {
        "updates": updates,
        "generated_tokens": generated,
        "tokens_per_update": generated / updates if updates else None,
        "train_seconds": seconds,
        "seconds_per_update": seconds / updates if updates and seconds is not None else None,
    }


def format_tables(rows: list[dict[str, Any]], notes: list[str]) -> str:
    """The rows as Markdown: results in the columns of the paper's Table 1, costs, and errors by kind."""
    results = [
        [
            row["label"],
            str(row["seeds"]),
            percent(row["accuracy_mean"]) + _spread(row),
            percent(row["useful_mean"]),
            number(row["first_error_pos_mean"], 3),
            number(row["tokens_mean"], 1),
            number(row["eta_r_mean"], 3),
        ]
        for row in rows
    ]
    costs = [
        [
            row["label"],
            number(row["updates"], 0),
            number(row["generated_tokens"], 0),
            number(row["tokens_per_update"], 0),
            number(row["train_seconds"], 0),
            number(row["seconds_per_update"], 2),
            _gain_per_tokens(row, rows),
        ]
        for row in rows
    ]
    kinds = list(dict.fromkeys(kind for row in rows for kind in row["op_accuracy"]))
    errors = [
        [
            row["label"],
            *(percent(row["op_accuracy"].get(kind)) for kind in kinds),
            percent(row["format_error_rate_mean"]),
            percent(row["truncated_mean"]),
        ]
        for row in rows
    ]
    parts = [
        markdown_table(["method", "seeds", "accuracy %", "Useful %", "1st-Err-Pos", "tokens", "eta_R"], results),
        "Accuracy is mean ± sample standard deviation over seeds; of one seed, with its 95% interval over problems. "
        "Useful % and 1st-Err-Pos are over correct completions, tokens over all. "
        "eta_R is the mean over the updates of the first stage.",
        markdown_table(
            [
                "method",
                "updates",
                "tokens generated",
                "tokens / update",
                "seconds",
                "seconds / update",
                "points / 1M tokens",
            ],
            costs,
        ),
        "Tokens generated in training count both rollouts of a routed prompt. "
        "The last column is accuracy points over base.",
        markdown_table(["method", *(f"{kind} right %" for kind in kinds), "format errors %", "cut off %"], errors),
    ]
    if notes:
        parts.append("Left out or uneven:\n\n" + "\n".join(f"- {note}" for note in notes))
    return "\n\n".join(parts) + "\n"


def _spread(row: dict[str, Any]) -> str:
    """What stands behind an accuracy: deviation over seeds, or the interval of the one seed."""
    if row["seeds"] > 1:
        return f" ± {percent(row['accuracy_std'])}"
    return f" [{', '.join(map(percent, row['accuracy_interval']))}]" if row["accuracy_interval"] else ""


def uneven_seeds(runs: list[Run]) -> list[str]:
    """A sentence about each method that lacks a seed which another method has."""
    every = sorted({run.seed for run in runs})
    notes = []
    for method in sort_methods({run.method for run in runs}):
        lacking = [str(seed) for seed in every if seed not in {run.seed for run in runs if run.method == method}]
        if lacking:
            notes.append(f"{method} has no finished run of seed {', '.join(lacking)}; other methods have")
    return notes


def sort_methods(methods: set[str]) -> list[str]:
    """The paper's methods in the paper's order, then the others by name."""
    order = list(LABELS)
    return sorted(methods, key=lambda name: (order.index(name) if name in order else len(order), name))


def write_report(folder: str | pathlib.Path, output: str | pathlib.Path | None = None) -> str:
    """Writes table.md, table.json and the plots; returns the text of table.md."""
    runs, notes = find_runs(folder)
    output = pathlib.Path(output or folder)
    output.mkdir(parents=True, exist_ok=True)
    rows = table_rows(runs)
    text = format_tables(rows, notes + uneven_seeds(runs))
    write_text(output / "table.md", text)
    write_text(output / "table.json", json.dumps(rows, indent=2) + "\n")
    curves = {
        LABELS.get(method, method): [run.updates for run in runs if run.method == method and run.updates]
        for method in sort_methods({run.method for run in runs if run.updates})
    }
    plots.write_plots(output, curves)
    return text


def _seed(place: pathlib.Path) -> int:
    found = re.fullmatch(r"seed-(\d+)", place.name)
    if not found:
        raise ValueError(f"{place}: a run's folder is named seed-N with a number N")
    return int(found[1])


def _read_measures(path: pathlib.Path) -> dict[str, Any]:
    try:
        measures = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not JSON ({error}); evaluate this run again") from error
    if not isinstance(measures, dict) or not isinstance(measures.get("accuracy"), int | float):
        raise ValueError(f"{path}: field accuracy is missing; evaluate this run again")
    return measures


def _by_stage(run: Run) -> dict[str, float]:
    """Mean eta_R over the updates of each stage, in the order of the stages."""
    found: dict[str, list[float]] = {}
    for row in run.updates:
        if row.get("eta_r") is not None:
            found.setdefault(row.get("stage", ""), []).append(row["eta_r"])
    return {stage: statistics.mean(values) for stage, values in found.items()}


def _mean(values) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known else None


def _gain_per_tokens(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    base = next((other["accuracy_mean"] for other in rows if other["method"] == "base"), None)
    if base is None or not row["generated_tokens"]:
        return "-"
    return f"{100 * (row['accuracy_mean'] - base) / (row['generated_tokens'] / 1e6):+.2f}"


def main(_) -> None:
    try:
        print(write_report(_RUNS.value, _OUTPUT.value))
    except (OSError, ValueError) as error:
        raise SystemExit(f"report: {error}") from error


if __name__ == "__main__":
    _RUNS = flags.DEFINE_string("runs", None, "Folder with METHOD/seed-N run folders.", required=True)
    _OUTPUT = flags.DEFINE_string("output", None, "Folder that the report is written to; default: --runs.")
    overrides.run(main)
