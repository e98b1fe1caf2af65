"""The benchmark's reader of published model outputs; rows written for these tests."""

import json
import pathlib
import sys

import pytest

from scope_jax.data.records import RecordError

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "benchmarks"))
from model_outputs import GSM8K_MODELS, ModelOutput, read_model_outputs  # noqa: E402

GSM8K = {"question": "How many?", "ground_truth": "2+2=<<2+2=4>>4\nA: 4"} | {
    name: {"is_correct": i == 1, "solution": f"It is {i}\nA: {i + 3}"} for i, name in enumerate(GSM8K_MODELS)
}
MATH = {"idx": 0, "question": "What?", "gt": "x", "answer": "\\frac{1}{2}", "level": "Level 1"}
MATH |= {"code": ["So \\boxed{0.5}", "None"], "pred": ["0.5", ""], "score": [True, False]}


def read(tmp_path, *rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path, read_model_outputs(path)


def test_each_of_four_models_gives_a_completion_with_its_verdict(tmp_path):
    cut = GSM8K | {"175b_verification": {"is_correct": False, "solution": "and so on and A: on"}}
    path, outputs = read(tmp_path, GSM8K, cut)
    assert len(outputs) == 8
    assert outputs[1] == ModelOutput(f"{path}:1 6b_verification", "How many?", "4", "It is 1\nA: 4", "4", True)
    assert [one.published for one in outputs[:4]] == [False, True, False, False]
    assert outputs[7].predicted is None and outputs[7].where == f"{path}:2 175b_verification"


def test_each_of_several_completions_has_its_own_prediction_and_score(tmp_path):
    path, outputs = read(tmp_path, MATH)
    assert outputs == [
        ModelOutput(f"{path}:1 completion 0", "What?", "\\frac{1}{2}", "So \\boxed{0.5}", "0.5", True),
        ModelOutput(f"{path}:1 completion 1", "What?", "\\frac{1}{2}", "None", None, False),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (GSM8K | {"6b_finetuning": None}, "field '6b_finetuning' must be an object"),
        (
            GSM8K | {"6b_finetuning": {"solution": "A: 3", "is_correct": "no"}},
            "field '6b_finetuning.is_correct' must be true",
        ),
        (GSM8K | {"ground_truth": "4"}, "field 'ground_truth' has no"),
        (MATH | {"pred": ["0.5"]}, "field 'pred' must be a list as long as code"),
        (MATH | {"score": [True, None]}, "field 'score' must be true or false"),
        (MATH | {"code": None}, "field 'code' must be a list"),
        (MATH | {"code": ["x", 1]}, r"field 'code\[1\]' must be a text"),
        ({"question": "q"}, "field 'answer' is missing"),
        ([], "is a list"),
    ],
)
def test_an_odd_row_is_named(tmp_path, row, message):
    with pytest.raises(RecordError, match=f"rows.jsonl:2: {message}"):
        read(tmp_path, MATH, row)
