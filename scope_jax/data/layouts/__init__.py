"""One small function for each published layout, which turns a raw row into a record."""

from collections.abc import Callable
from typing import Any, NamedTuple

from scope_jax.data import gsm8k
from scope_jax.data.layouts import evaluation, outputs, textbook, training
from scope_jax.data.records import PROBLEM_FIELDS, Problem, parse_record


class Layout(NamedTuple):
    """How rows of a layout become records."""

    read: Callable[..., Any]  # (row, where, *, id, source) -> Problem, or raises a RecordError
    source: str  # the data set that the records name, and the start of ids that are made, unless the caller says
    scaffolds: bool = False  # `read` returns (problem, why it has no scaffold or "") instead
    shuffles: bool = False  # `read` takes a seed for the order of choices


def record_problem(row: Any, where: str, *, id: str, source: str) -> Problem:
    """A record as it is; fields outside the schema are left out, id and source filled in where there are none."""
    if not isinstance(row, dict):
        return parse_record(row, where)  # raises with the reason
    known = {name: row[name] for name in PROBLEM_FIELDS if row.get(name) is not None}
    return parse_record({"id": id, "source": source} | known, where)


LAYOUTS: dict[str, Layout] = {
    "aime24": Layout(evaluation.aime_problem, "aime24"),
    "aime25": Layout(evaluation.aime_problem, "aime25"),
    "amc23": Layout(evaluation.amc_problem, "amc23"),
    "big_math": Layout(training.big_math_problem, "big_math"),
    "college_math": Layout(textbook.college_math_problem, "college_math"),
    "dapo": Layout(training.dapo_problem, "dapo"),
    "gaokao2023en": Layout(textbook.gaokao_problem, "gaokao2023en"),
    "gpqa": Layout(evaluation.gpqa_problem, "gpqa_diamond", shuffles=True),
    "gsm8k": Layout(gsm8k.plain_problem, "gsm8k"),
    "gsm8k_model_solutions": Layout(outputs.gsm8k_outputs_problem, "gsm8k"),
    "gsm8k_socratic": Layout(gsm8k.socratic_problem, "gsm8k", scaffolds=True),
    "math500": Layout(evaluation.math500_problem, "math500"),
    "math_model_outputs": Layout(outputs.math_outputs_problem, "math"),
    "minerva_math": Layout(textbook.minerva_problem, "minerva_math"),
    "olympiadbench": Layout(textbook.olympiadbench_problem, "olympiadbench"),
    "records": Layout(record_problem, "records"),
}
