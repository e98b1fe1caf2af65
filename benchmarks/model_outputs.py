"""Reads published completions of real models with the verdicts that were published with them.

    from model_outputs import read_model_outputs
    for one in read_model_outputs("gsm8k_model_solutions.jsonl"):
        ...  # one.completion, one.gold, one.published

Two layouts are known by their fields: grade-school-math's `example_model_solutions` (four models a row, each with
`solution` and `is_correct`) and Qwen2.5-Math's evaluation outputs (lists `code`, `pred` and `score` a row).
"""

import dataclasses
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from scope_jax.data.layouts import fields
from scope_jax.data.layouts.outputs import gsm8k_outputs_problem, math_outputs_problem
from scope_jax.data.records import Problem, RecordError
from scope_jax.data.tables import read_rows

GSM8K_MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
GSM8K_MARK = "\nA: "  # before the answer, in the last line; extraction knows no such marker


@dataclasses.dataclass(frozen=True)
class ModelOutput:
    """One completion with its published verdict."""

    where: str  # file, line and the model's name or the completion's place in its list
    question: str
    gold: str  # the published right answer
    completion: str
    predicted: str | None  # the answer that the publisher found in the completion; None where it found none
    published: bool  # the publisher's verdict


def read_model_outputs(path: str | os.PathLike) -> list[ModelOutput]:
    """All completions of a file, in its order.

    Raises:
      FileNotFoundError: there is no such file.
      RecordError: a row has neither layout, or one of its fields is missing or odd.
    """
    return [output for _, where, row in read_rows(pathlib.Path(path)) for output in _outputs(row, where)]


def _outputs(row: Any, where: str) -> Iterator[ModelOutput]:
    if isinstance(row, RecordError):
        raise row
    row = fields.as_object(row, where)
    if "ground_truth" in row:
        yield from _gsm8k(row, where, gsm8k_outputs_problem(row, where, id="-"))
    else:
        yield from _math(row, where, math_outputs_problem(row, where, id="-"))


def _gsm8k(row: dict[str, Any], where: str, problem: Problem) -> Iterator[ModelOutput]:
    for model in GSM8K_MODELS:
        output = row.get(model)
        if not isinstance(output, dict) or not isinstance(output.get("solution"), str):
            raise RecordError(where, model, "must be an object with the text solution")
        _check_verdicts([output.get("is_correct")], where, f"{model}.is_correct")
        mark, predicted = output["solution"].rpartition(GSM8K_MARK)[1:]
        yield ModelOutput(
            where=f"{where} {model}",
            question=problem.problem,
            gold=problem.answer,
            completion=output["solution"],
            predicted=predicted.strip() if mark else None,
            published=output["is_correct"],
        )


def _math(row: dict[str, Any], where: str, problem: Problem) -> Iterator[ModelOutput]:
    lists = {name: row.get(name) for name in ("code", "pred", "score")}
    for name, values in lists.items():
        if not isinstance(values, list) or len(values) != len(row.get("code") or ()):
            raise RecordError(where, name, "must be a list as long as code")
    _check_verdicts(lists["score"], where, "score")
    for i, (completion, predicted, published) in enumerate(zip(*lists.values(), strict=True)):
        if not isinstance(completion, str):
            raise RecordError(where, f"code[{i}]", "must be a text")
        yield ModelOutput(
            where=f"{where} completion {i}",
            question=problem.problem,
            gold=problem.answer,
            completion=completion,
            predicted=predicted or None,
            published=published,
        )


def _check_verdicts(values: list[Any], where: str, field: str) -> None:
    if not all(isinstance(value, bool) for value in values):
        raise RecordError(where, field, "must be true or false")
