"""What an evaluation measures, and that it asks every problem as often as it says."""

import importlib.resources

import jax
import numpy as np
import pytest
from ml_collections import FrozenConfigDict

from configs import chains as chains_config
from scope_jax import assemble, evaluate, scope
from scope_jax.data import chains
from scope_jax.meshes import make_mesh
from scope_jax.rewards import RIGHT, UNDECIDED, WRONG
from scope_jax.verify import Result
from scope_jax.verify.settle import count_results, make_settle

MODEL = importlib.resources.files("scope_jax.data") / "chains_model"


def sample_of(verdict, labels, tokens=10, ended=True, name="p"):
    return {
        "id": name,
        "problem": "a=12+3. b=a-4. What is b?",
        "completion": "a=12+3=15.\n\nb=15-4=11.\nAnswer: 11",
        "verdict": verdict,
        "labels": labels,
        "tokens": tokens,
        "ended": ended,
    }


SAMPLES = [
    sample_of(RIGHT, ["useful", "useful", "redundant", "useful"], 10),
    sample_of(RIGHT, ["useful", "error"], 20),
    sample_of(WRONG, ["error"], 60, ended=False),
    sample_of(UNDECIDED, ["useful"], 30),
]


def test_the_protocol_is_over_correct_completions_and_lengths_over_all():
    measures = evaluate.measure(SAMPLES)
    assert measures["accuracy"] == 0.5
    assert measures["useful"] == pytest.approx((3 / 4 + 1 / 2) / 2)
    assert measures["first_error_pos"] == pytest.approx((1.0 + 1 / 2) / 2)
    assert (measures["tokens"], measures["tokens_correct"]) == (30.0, 15.0)
    assert measures["truncated"] == 0.25
    assert (measures["undecided"], measures["samples"]) == (1, 4)
    assert "op_accuracy" not in measures  # not the embedded task


def test_nothing_right_leaves_the_protocol_undefined_not_zero():
    measures = evaluate.measure([sample_of(WRONG, ["error"])])
    assert measures["accuracy"] == 0.0
    assert measures["useful"] is None and measures["first_error_pos"] is None and measures["tokens_correct"] is None


@pytest.mark.parametrize(
    ("labels", "position"), [(["useful"], 1.0), (["error", "useful"], 0.0), (["useful", "useful", "error", "error"], 0.5)]
)
def test_the_first_error_is_placed_relative_to_the_steps(labels, position):
    assert evaluate.first_error_position(labels) == position


def test_the_embedded_task_tells_arithmetic_from_format():
    wrong_value = "a=12+9=21.\n\nb=21-4=7.\nAnswer: 7"
    skipped = "b=12-4=8.\nAnswer: 8"
    samples = [
        sample_of(RIGHT, [], name="chain-1"),
        sample_of(WRONG, [], name="chain-2") | {"problem": "a=12+9. b=a-4. What is b?", "completion": wrong_value},
        sample_of(WRONG, [], name="chain-3") | {"problem": "a=12+9. b=a-4. What is b?", "completion": skipped},
    ]
    measures = evaluate.chain_measures(samples)
    assert measures["format_error_rate"] == pytest.approx(1 / 3)
    # 12+3 and 15-4 right; 12+9 carries and is right; 21-4 borrows and is wrong; 12-4 borrows and is right
    assert measures["op_accuracy"] == {"add": 1.0, "add-carry": 1.0, "sub": 1.0, "sub-borrow": 0.5}


@pytest.fixture(scope="module")
def setting():
    c = chains_config.get_config("scope")
    c.eval.samples, c.eval.max_new_tokens, c.eval.batch, c.eval.problems = 2, 8, 4, 0
    c.data.chains.train, c.data.chains.eval = 4, 6
    config = FrozenConfigDict(c)
    tokenizer = assemble.open_tokenizer(config)
    train, test = assemble.load_tables(config, tokenizer)
    policy = assemble.load_policy(config, make_mesh("data=1", jax.devices()[:1]), tokenizer, max_subs=train.sub_mask.shape[1])
    return config, tokenizer, policy, test


@pytest.mark.slow
def test_every_problem_is_asked_as_often_as_the_config_says(setting):
    config, tokenizer, policy, table = setting
    settle = make_settle(tokenizer, policy.model.eos_ids, None)
    measures, samples = evaluate.evaluate(policy, table, tokenizer, jax.random.key(0), config, settle)
    # 6 problems in batches of 4: the last batch wraps around, and its extra rows are dropped
    assert [s["id"] for s in samples] == [problem.id for problem in table.problems for _ in range(2)]
    assert measures["samples"] == 12 and 0 < measures["tokens"] <= 8
    assert set(measures["op_accuracy"]) == set(chains.KINDS)
    assert measures["host_checks"]["checked"] == 0  # nobody was asked


@pytest.mark.slow
def test_the_host_checks_a_batch_while_the_device_samples_the_next(setting, monkeypatch):
    config, tokenizer, policy, table = setting
    order = []

    def settle(rollout, verdicts, problems):
        order.append("submitted")
        assert [problem is None for problem in problems].count(True) == (4 if len(order) > 2 else 0)  # 6 = 4 + 2 problems
        checks = count_results([Result.right] * 3 + [Result.timed_out])
        return lambda: order.append("awaited") or (np.full((len(problems), 1), RIGHT), checks)

    monkeypatch.setattr(evaluate, "sample", lambda *args: order.append("sampled") or scope.sample(*args))
    measures, samples = evaluate.evaluate(policy, table, tokenizer, jax.random.key(0), config, settle)
    assert order == ["sampled", "submitted", "sampled", "awaited", "submitted", "awaited"]
    assert measures["accuracy"] == 1.0 and len(samples) == 12
    assert (measures["host_checks"]["checked"], measures["host_checks"]["timed_out"]) == (8, 2)


@pytest.mark.slow
def test_a_completion_and_its_length_are_those_of_the_same_row(setting, monkeypatch):
    config, tokenizer, policy, table = setting
    rollouts = []
    monkeypatch.setattr(evaluate, "sample", lambda *args: rollouts.append(scope.sample(*args)) or rollouts[-1])
    settle = make_settle(tokenizer, policy.model.eos_ids, None)
    _, samples = evaluate.evaluate(policy, table, tokenizer, jax.random.key(1), config, settle)
    tokens, mask = (np.concatenate([getattr(r, name) for r in rollouts]) for name in ("tokens", "mask"))
    for i, row in enumerate(samples):
        assert row["tokens"] == mask[i].sum()
        assert row["completion"] == tokenizer.decode(tokens[i][mask[i]], skip_special_tokens=True)
        prompt = tokenizer.decode(tokens[i][~mask[i]], skip_special_tokens=True)
        assert row["problem"] in prompt
