"""What an evaluation measures, and that it asks every problem as often as it says."""

import importlib.resources
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict, FrozenConfigDict

from configs import chains as chains_config
from scope_jax import assemble, evaluate, scope
from scope_jax.data import chains
from scope_jax.judges import on_host
from scope_jax.judges.rules import make_rule_judge
from scope_jax.meshes import make_mesh
from scope_jax.rewards import RIGHT, UNDECIDED, WRONG, segment_text
from scope_jax.verify import Result
from scope_jax.verify.settle import count_results, make_settle

MODEL = importlib.resources.files("scope_jax.data") / "chains_model"


def sample_of(verdict, labels, tokens=10, ended=True, name="p", source=""):
    return {
        "id": name,
        "source": source,
        "given": "11",
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
    measures = evaluate.measure(SAMPLES, resamples=0, seed=0)
    assert measures["accuracy"] == 0.5
    assert measures["useful"] == pytest.approx((3 / 4 + 1 / 2) / 2)
    assert measures["first_error_pos"] == pytest.approx((1.0 + 1 / 2) / 2)
    assert (measures["tokens"], measures["tokens_correct"]) == (30.0, 15.0)
    assert measures["truncated"] == 0.25
    assert (measures["undecided"], measures["samples"]) == (1, 4)
    assert "op_accuracy" not in measures  # not the embedded task


def test_nothing_right_leaves_the_protocol_undefined_not_zero():
    measures = evaluate.measure([sample_of(WRONG, ["error"])], resamples=9, seed=0)
    assert measures["accuracy"] == 0.0
    assert measures["useful"] is None and measures["first_error_pos"] is None and measures["tokens_correct"] is None


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


def test_problems_of_other_files_are_not_read_as_chains_for_the_name_of_one_of_them():
    assert "op_accuracy" not in evaluate.measure([sample_of(RIGHT, [], name="chain-1"), sample_of(RIGHT, [], name="p")], resamples=0, seed=0)


def test_a_folder_has_its_measures_last(tmp_path):
    """Where eval.json stands, the evaluation is whole: a run that stops in between is evaluated again."""
    measures = evaluate.measure(SAMPLES, resamples=0, seed=0)
    (tmp_path / "eval_samples.jsonl").mkdir()
    with pytest.raises(OSError):
        evaluate.write_evaluation(tmp_path, measures, SAMPLES)
    assert not (tmp_path / "eval.json").exists()
    (tmp_path / "eval_samples.jsonl").rmdir()
    evaluate.write_evaluation(tmp_path, measures, SAMPLES)
    assert json.loads((tmp_path / "eval.json").read_text()) == measures


def test_benchmarks_and_agreement_are_measured_where_there_are_several_sources_and_two_judges():
    plain = evaluate.measure(SAMPLES, resamples=0, seed=0)
    assert "benchmarks" not in plain and "agreement" not in plain
    samples = [
        sample_of(verdict, ["useful"], name=f"{source}-{i}", source=source) | {"second_labels": ["useful"]}
        for source, verdicts in (("aime", [RIGHT, WRONG, WRONG]), ("math", [RIGHT, UNDECIDED, RIGHT]))
        for i, verdict in enumerate(verdicts)
    ]
    measures = evaluate.measure(samples, resamples=100, seed=0)
    assert [row["source"] for row in measures["benchmarks"]] == ["aime", "math", "mean"]
    assert measures["agreement"]["equal"] == 1.0 and measures["agreement"]["steps"] == 3
    text = evaluate.format_measures(measures)
    rows = {cells[1].strip(): cells for cells in (line.split("|") for line in text.splitlines()) if len(cells) == 12}
    low, high = measures["intervals"]["accuracy"]
    assert rows["all"][2].strip() == "6" and rows["all"][4].strip() == f"50.0 [{100 * low:.1f}, {100 * high:.1f}]"
    assert rows["aime"][4].strip().startswith("33.3 [0.0, 100.0]") and rows["math"][10].strip() == "1"
    assert "Cohen's kappa -, equal labels 100.0%" in text and "| useful     | 3 " in text


def test_an_evaluation_is_written_as_json_and_as_a_table(tmp_path):
    measures = evaluate.measure(SAMPLES, resamples=10, seed=0)
    evaluate.write_evaluation(tmp_path, measures, SAMPLES)
    assert json.loads((tmp_path / "eval.json").read_text()) == measures
    assert (tmp_path / "eval.md").read_text() == evaluate.format_measures(measures)
    assert [json.loads(line) for line in (tmp_path / "eval_samples.jsonl").read_text().splitlines()] == SAMPLES


@pytest.fixture(scope="module")
def setting():
    c = chains_config.get_config("scope")
    c.eval.samples, c.eval.max_new_tokens, c.eval.batch, c.eval.problems = 2, 64, 4, 0
    c.data.chains.train, c.data.chains.eval = 4, 6
    config = FrozenConfigDict(c)
    tokenizer = assemble.open_tokenizer(config)
    train, test = assemble.load_tables(config, tokenizer)
    policy = assemble.load_policy(config, make_mesh("data=1", jax.devices()[:1]), tokenizer, max_subs=train.sub_mask.shape[1])
    return config, tokenizer, policy, test


@pytest.mark.slow
def test_every_problem_is_asked_as_often_as_the_config_says(setting, monkeypatch):
    config, tokenizer, policy, table = setting
    monkeypatch.setattr(evaluate, "extract_answer", lambda completion, *, ended, box: f"{ended} {completion}")
    settle = make_settle(tokenizer, policy.model.eos_ids, None)
    judge = make_rule_judge(policy.table, config.judge)
    measures, samples = evaluate.evaluate(policy, table, tokenizer, jax.random.key(0), config, settle, judge)
    # 6 problems in batches of 4: the last batch wraps around, and its extra rows are dropped
    assert [s["id"] for s in samples] == [problem.id for problem in table.problems for _ in range(2)]
    assert measures["samples"] == 12 and 0 < measures["tokens"] <= 64
    assert set(measures["op_accuracy"]) == set(chains.KINDS)
    assert all(s["given"] == f"{s['ended']} {s['completion']}" for s in samples)  # a cut completion is read as one
    assert {s["ended"] for s in samples} == {True, False}
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
    judge = make_rule_judge(policy.table, config.judge)
    measures, samples = evaluate.evaluate(policy, table, tokenizer, jax.random.key(0), config, settle, judge)
    assert order == ["sampled", "submitted", "sampled", "awaited", "submitted", "awaited"]
    assert measures["accuracy"] == 1.0 and len(samples) == 12
    assert (measures["host_checks"]["checked"], measures["host_checks"]["timed_out"]) == (8, 2)


@pytest.mark.slow
def test_a_completion_and_its_length_are_those_of_the_same_row(setting, monkeypatch):
    config, tokenizer, policy, table = setting
    rollouts = []
    monkeypatch.setattr(evaluate, "sample", lambda *args: rollouts.append(scope.sample(*args)) or rollouts[-1])
    settle = make_settle(tokenizer, policy.model.eos_ids, None)
    judge = make_rule_judge(policy.table, config.judge)
    _, samples = evaluate.evaluate(policy, table, tokenizer, jax.random.key(1), config, settle, judge)
    tokens, mask = (np.concatenate([getattr(r, name) for r in rollouts]) for name in ("tokens", "mask"))
    for i, row in enumerate(samples):
        assert row["tokens"] == mask[i].sum()
        assert row["completion"] == tokenizer.decode(tokens[i][mask[i]], skip_special_tokens=True)
        prompt = tokenizer.decode(tokens[i][~mask[i]], skip_special_tokens=True)
        assert row["problem"] in prompt


@pytest.mark.slow
def test_a_judge_on_the_host_labels_right_samples_and_no_row_that_only_fills_a_batch(setting, monkeypatch):
    config, tokenizer, policy, table = setting
    asked = []

    def label(prompts, completions, answers):
        asked.extend(prompts)
        mask = np.arange(config.judge.max_steps) < np.ones(len(prompts), int)[:, None]
        return np.full(mask.shape, 2, np.int32), mask, np.ones(len(prompts), bool)

    first = {problem.problem for problem in table.problems[::2]}  # every other problem is solved

    def settle(rollout, verdicts, problems):
        found = [[RIGHT if problem is None or problem.problem in first else WRONG] for problem in problems]
        return lambda: (np.array(found), {})

    judge = on_host(label, tokenizer, config.judge.max_steps)
    _, samples = evaluate.evaluate(policy, table, tokenizer, jax.random.key(0), config, settle, judge)
    assert [s["labels"] for s in samples] == [["redundant"] if s["problem"] in first else [] for s in samples]
    assert sorted(asked) == sorted(2 * [*first])


RIGHT_AT_ONCE = "x=20+3=23.\nAnswer: {}"
CUT_OFF = "x=20+3=23.\n\nx=20+3=23.\n\nx=20+3=23.\nAnswer: {}"  # says it again and again, and never ends


@pytest.mark.slow
def test_each_record_holds_what_was_found_of_its_own_completion(setting, monkeypatch):
    config, tokenizer, policy, table = setting
    c = ConfigDict(config)
    c.eval.problems, c.eval.temperature = 5, 0.5
    calls = []

    def sample(policy, prompts, prompt_mask, key, sampling):
        """Two completions a prompt: one right, one that repeats itself until it is cut."""
        calls.append((tuple(jax.random.key_data(key).tolist()), sampling))
        prompts, prompt_mask = np.repeat(prompts, 2, axis=0), np.repeat(prompt_mask, 2, axis=0)
        tokens, lengths = np.zeros((len(prompts), 64), np.int32), np.zeros(len(prompts), int)
        for i, row in enumerate(prompts):
            text = tokenizer.decode(row[prompt_mask[i]])
            [answer] = [problem.answer for problem in table.problems if problem.problem in text]
            ids = tokenizer.encode((CUT_OFF if i % 2 else RIGHT_AT_ONCE).format(answer))
            ids += [] if i % 2 else [tokenizer.eos_token_id]
            tokens[i, : len(ids)], lengths[i] = ids, len(ids)
        tokens, mask = jnp.asarray(np.concatenate([prompts, tokens], axis=1)), np.arange(64) < lengths[:, None]
        mask = jnp.asarray(np.concatenate([np.zeros_like(prompt_mask), mask], axis=1))
        return scope.Rollout(tokens, mask, jnp.where(mask, -1.0, 0.0), mask.astype(jnp.int32))

    def settle(rollout, verdicts, problems):
        unknown = np.array([problem is not None and problem.id == table.problems[3].id for problem in problems])
        return lambda: (np.where(unknown[:, None], UNDECIDED, verdicts), {})

    monkeypatch.setattr(evaluate, "sample", sample)
    measures, samples = evaluate.evaluate(policy, table, tokenizer, jax.random.key(0), FrozenConfigDict(c), settle, make_rule_judge(policy.table, config.judge))
    assert [s["id"] for s in samples] == [problem.id for problem in table.problems[:5] for _ in range(2)]
    assert [s["verdict"] for s in samples] == [RIGHT, WRONG] * 3 + [UNDECIDED, UNDECIDED] + [RIGHT, WRONG]
    assert [s["labels"] for s in samples] == [["useful"], ["useful", "redundant", "redundant"]] * 5
    assert [s["ended"] for s in samples] == [True, False] * 5
    texts = [text.format(table.problems[0].answer) for text in (RIGHT_AT_ONCE, CUT_OFF)]
    assert [s["completion"] for s in samples[:2]] == texts
    assert (measures["accuracy"], measures["undecided"], measures["useful"]) == (0.4, 2, 1.0)
    keys, samplings = zip(*calls, strict=True)
    assert set(samplings) == {scope.Sampling(2, 64, 0.5)}
    assert len(calls) == len(set(keys)) == 2  # each batch draws anew


@pytest.mark.slow
def test_a_second_judge_labels_the_same_right_completions(setting):
    config, tokenizer, policy, table = setting

    def label(prompts, completions, answers):  # the steps of the shared segmentation, every one an error
        steps = [segment_text(completion, max_steps=config.judge.max_steps) for completion in completions]
        mask = np.arange(config.judge.max_steps) < np.array([len(found) for found in steps])[:, None]
        return np.full(mask.shape, 4, np.int32), mask, np.ones(len(prompts), bool)

    settle = lambda rollout, verdicts, problems: lambda: (np.full((len(problems), 1), RIGHT), {})  # noqa: E731
    judge, second = make_rule_judge(policy.table, config.judge), on_host(label, tokenizer, config.judge.max_steps)
    measures, samples = evaluate.evaluate(policy, table, tokenizer, jax.random.key(0), config, settle, judge, second)
    for s in samples:
        steps = segment_text(s["completion"], max_steps=config.judge.max_steps)
        assert len(s["labels"]) == len(steps) and s["second_labels"] == ["error"] * len(steps)
    found = np.array(measures["agreement"]["table"])
    assert measures["agreement"]["left_out"] == 0 and found.sum() == found[:, 4].sum() == measures["agreement"]["steps"] > 0


def test_the_second_judge_is_that_of_its_field_with_the_settings_of_the_judge(monkeypatch):
    made = []
    monkeypatch.setattr(evaluate, "make_judge", lambda config, **parts: made.append((config.judge, parts)) or "judge")
    c = chains_config.get_config("scope")
    assert evaluate.second_judge(FrozenConfigDict(c), table=1) is None and not made
    c.eval.second_judge, c.judge.max_steps = "llm", 7
    assert evaluate.second_judge(FrozenConfigDict(c), table=1) == "judge"
    assert (made[0][0].kind, made[0][0].max_steps, made[0][1], c.judge.kind) == ("llm", 7, {"table": 1}, "rules")
