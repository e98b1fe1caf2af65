"""From raw problems to an evaluated policy without a network: one local endpoint decomposes and then judges steps."""

import dataclasses
import json

import pytest
from endpoint_server import serve
from scaffold_replies import exact_reply

from configs import chains as chains_config
from scope_jax import decompose, train
from scope_jax.data import chains
from scope_jax.data.records import load_jsonl, write_jsonl
from scope_jax.endpoint import Endpoint, EndpointSettings
from scope_jax.metrics import read_jsonl
from scope_jax.rewards import segment_text
from scope_jax.scaffolds import build

EXACT = chains.generate_problems(24, seed=5, min_steps=2, max_steps=3, hard_share=0.5)
HELD_OUT = chains.generate_problems(8, seed=6, min_steps=2, max_steps=2, hard_share=0.0)
SMALL = {
    "mesh": "data=-1",
    "stages": (("asr", 1), ("qpr", 1)),
    "rollout.group": 4,
    "rollout.max_new_tokens": 64,
    "loss.micro_batches": 1,
    "eval.problems": 8,
    "eval.samples": 2,
    "eval.batch": 8,
    "eval.max_new_tokens": 64,
    "eval.second_judge": "rules",
    "judge.kind": "llm",
    "judge.model": "exact",
    "verifier.workers": 0,
    "log.tensorboard": False,
    "log.rollouts_every": 1,
    "log.rollouts": 32,
    "data.eval": "",
}


def label_of(step):
    """Steps without a false equation are useful."""
    return "useful" if all(right for _, right in chains.read_equations(step)) else "error"


def answer(messages, schema):
    """The exact decomposer of the embedded task, or, where labels are asked for, an exact judge."""
    if "labels" not in schema["properties"]:
        return exact_reply(messages, schema)
    steps = json.loads(messages[1]["content"].split("\n\n", 1)[1])["steps"]
    return json.dumps({"labels": [{"step": s["step"], "label": label_of(s["text"])} for s in steps]})


@pytest.mark.slow
def test_raw_problems_become_scaffolds_two_stages_of_training_and_an_evaluation_with_its_protocol(tmp_path):
    raw, scaffolds, held_out, workdir = (tmp_path / name for name in ("raw.jsonl", "train.jsonl", "eval.jsonl", "run"))
    write_jsonl(raw, [dataclasses.replace(problem, scaffold=()) for problem in EXACT])
    write_jsonl(held_out, HELD_OUT)
    with serve(answer) as server:
        job = decompose.Job(raw, scaffolds, build.Settings("exact"), concurrency=4, checks="endpoint")
        decompose.run(job, lambda: Endpoint(EndpointSettings(url=server.url, model="exact", concurrency=4)))
        problems, _ = load_jsonl(scaffolds)
        assert [problem.scaffold for problem in problems] == [problem.scaffold for problem in EXACT]

        config = chains_config.get_config("scope")
        paths = {"data.train": str(scaffolds), "data.eval": str(held_out), "judge.url": server.url}
        config.update_from_flattened_dict(SMALL | paths)
        asked = len(server.requests)
        train.run(config, workdir, None)
        assert len(server.requests) > asked
        asr, qpr = read_jsonl(workdir / "metrics.jsonl")
        assert (asr["stage"], qpr["stage"]) == ("asr", "qpr") and asr["routed"] > 0 and asr["reward"] > asr["outcome"]
        assert qpr["judge_failed"] == 0 and 0 < qpr["reward"] < qpr["outcome"]

    logged = read_jsonl(workdir / "rollouts.jsonl")
    scaffolded = [row for row in logged if row["stage"] == "asr" and row["routed"]]
    assert scaffolded and all("\n1. What is" in row["prompt"] for row in scaffolded)
    judged = [row for row in logged if row["stage"] == "qpr" and row["reward"]]
    assert judged
    for row in judged:
        text = row["completion"].encode()
        steps = [text[start:stop].decode() for start, stop in segment_text(row["completion"], max_steps=config.judge.max_steps)]
        assert row["labels"] == [label_of(step) for step in steps]

    measures = json.loads((workdir / "eval.json").read_text())
    assert (measures["problems"], measures["n"], measures["undecided"]) == (8, 2, 0)
    assert 0 < measures["avg@2"] <= measures["pass@2"] <= 1 and "maj@2" in measures and measures["intervals"]["avg@2"]
    assert 0 < measures["useful"] <= 1 and 0 < measures["first_error_pos"] <= 1 and measures["tokens_correct"] > 0
    assert measures["agreement"]["steps"] > 0 and measures["agreement"]["left_out"] == 0
    assert "Cohen's kappa" in (workdir / "eval.md").read_text()
