"""The two stages, on scripted completions: who is routed, what is paid, what stays out of the loss."""

import importlib.resources

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import FrozenConfigDict

from configs import chains as chains_config
from scope_jax import assemble, rewards, scope
from scope_jax.data.batches import encode_problems, take
from scope_jax.data.prompts import BARE
from scope_jax.data.records import Problem, SubQuestion
from scope_jax.qwen3 import Config
from scope_jax.qwen3.tokenizer import load_tokenizer
from scope_jax.judges import on_host
from scope_jax.judges.rules import make_rule_judge
from scope_jax.rewards import RIGHT, UNDECIDED, WRONG, TokenBytes
from scope_jax.rollout import Rollout
from scope_jax.step import summarise
from scope_jax.verify import Result
from scope_jax.verify.pool import Checks
from scope_jax.verify.settle import make_settle

GROUP, NEW = 2, 96
MODEL = importlib.resources.files("scope_jax.data") / "chains_model"
SUBS = (SubQuestion("What is a?", "61"), SubQuestion("What is b?", "56"))
CHAIN = Problem("p0", "a=54+7. b=a-5. c=b+8. What is c?", "64", scaffold=SUBS)
PLAIN = Problem("p1", "a=11+2. What is a?", "13")  # no scaffold
EASY = Problem("p2", "a=20+3. b=a+4. What is b?", "27", scaffold=(SubQuestion("What is a?", "23"),))
PROOF = Problem("p3", "a=9+0. What is its root?", "\\sqrt[3]{27}")
GOOD = "a=54+7=61.\n[SUB-1 ANSWER] 61\n\nb=61-5=56.\n[SUB-2 ANSWER] 56\n\nc=56+8=64.\n[MAIN ANSWER] 64"
FIRST_ONLY = GOOD.replace("SUB-2 ANSWER] 56", "SUB-2 ANSWER] 46")  # the chain breaks at the second slot
WORDY = "a=20+3=23.\n\nSo a is 23.\n\nWait, let me redo that.\n\na=20+3=23.\n\nb=23+4=27.\nAnswer: 27"
SHORT = "a=20+3=23.\n\nb=23+4=27.\nAnswer: 27"


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(MODEL)


def config_with(**fields):
    c = chains_config.get_config("scope")
    c.rollout.group, c.rollout.max_new_tokens, c.rollout.route_buckets = GROUP, NEW, 4
    c.update_from_flattened_dict(fields)
    return FrozenConfigDict(c)


class Script:
    """Stands where sampling stands: the completions of each problem on its plain and on its scaffolded prompt."""

    def __init__(self, tokenizer, plain, scaffolded=None):
        self.tokenizer, self.plain, self.scaffolded, self.calls = tokenizer, plain, scaffolded or {}, []

    def __call__(self, policy, prompts, prompt_mask, key, sampling):
        prompts, prompt_mask = np.asarray(prompts), np.asarray(prompt_mask)
        texts = [self.tokenizer.decode(row[mask]) for row, mask in zip(prompts, prompt_mask, strict=True)]
        self.calls.append(texts)
        completions = []
        for text in texts:
            book = self.scaffolded if "1. What" in text else self.plain
            completions += next((done for problem, done in book.items() if problem.problem in text), [SHORT] * GROUP)
        tokens = np.zeros((len(completions), NEW), np.int32)
        mask = np.zeros((len(completions), NEW), bool)
        for i, completion in enumerate(completions):
            ids = self.tokenizer.encode(completion, add_special_tokens=False) + [self.tokenizer.eos_token_id]
            tokens[i, : len(ids)], mask[i, : len(ids)] = ids, True
        prompts, seen = np.repeat(prompts, GROUP, axis=0), np.repeat(prompt_mask, GROUP, axis=0)
        mask = np.concatenate([np.zeros_like(seen), mask], axis=1)
        return Rollout(
            tokens=jnp.asarray(np.concatenate([prompts, tokens], axis=1)),
            mask=jnp.asarray(mask),
            logprobs=jnp.where(mask, -1.0, 0.0),
            segment_ids=jnp.asarray(mask | np.pad(seen, ((0, 0), (0, NEW)))).astype(jnp.int32),
        )


@pytest.fixture
def run(tokenizer, monkeypatch):
    def run(stage, problems, plain, scaffolded=None, open_verifier=None, settle_options=None, label=None, watch=None, **fields):
        script = Script(tokenizer, plain, scaffolded)
        monkeypatch.setattr(scope, "sample", script)
        table = encode_problems(problems, tokenizer, BARE, max_prompt_tokens=64, max_scaffold_tokens=96)
        model = Config(384, 8, 1, 1, 1, 8, 8, eos_ids=(tokenizer.eos_token_id,))
        policy = scope.Policy(None, model, TokenBytes.from_tokenizer(tokenizer, max_subs=table.sub_mask.shape[1]))
        settle = make_settle(tokenizer, model.eos_ids, open_verifier, **(settle_options or {}))
        rows = np.resize(np.arange(len(problems)), max(2, len(problems)))  # one size for most tests: compiled once
        batch = take(table, rows)
        config = config_with(**fields)
        judge = make_rule_judge(policy.table, config.judge)
        if label is not None:
            judge = on_host(label, tokenizer, config.judge.max_steps)
        if watch is not None:
            judge = watch(judge)
        experience = scope.STAGES[stage](policy, batch, jax.random.key(0), config, settle, judge)
        first = {name: getattr(experience, name)[: len(problems)] for name in ("rewards", "valid", "outcome", "routed")}
        rollout = jax.tree.map(lambda x: x[: len(problems) * GROUP], experience.rollout)
        return experience.replace(rollout=rollout, **first), script

    return run


def completions_of(experience, tokenizer):
    tokens, mask = np.asarray(experience.rollout.tokens), np.asarray(experience.rollout.mask)
    return [tokenizer.decode(row[m], skip_special_tokens=True) for row, m in zip(tokens, mask, strict=True)]


def test_failed_problems_are_tried_again_on_their_scaffold_and_paid_by_prefix(run, tokenizer):
    plain = {CHAIN: ["Answer: 1", "Answer: 2"], PLAIN: ["Answer: 13", "Answer: 12"], EASY: [SHORT, SHORT]}
    experience, script = run("asr", [CHAIN, PLAIN, EASY], plain, {CHAIN: [GOOD, FIRST_ONLY]})
    np.testing.assert_array_equal(experience.routed, [True, False, False])
    np.testing.assert_allclose(experience.rewards, [[1.0, 0.25], [1.0, 0.0], [1.0, 1.0]])
    np.testing.assert_array_equal(experience.outcome, [[0, 0], [1, 0], [1, 1]])  # of the original prompts
    kept = completions_of(experience, tokenizer)
    assert kept[:2] == [GOOD, FIRST_ONLY] and kept[4:] == [SHORT, SHORT]
    assert [len(call) for call in script.calls] == [3, 3]  # 3 problems do not cut into quarters: one bucket


def test_the_replaced_rollouts_are_counted_as_cost(run):
    plain = {CHAIN: ["Answer: 1", "Answer: 2"], EASY: [SHORT, SHORT]}
    experience, _ = run("asr", [CHAIN, EASY], plain, {CHAIN: [GOOD, GOOD]})
    kept = int(experience.rollout.mask.sum())
    replaced = 2 * len("Answer: 1".split()) + 2  # at least a few tokens each
    assert int(experience.sampled_tokens) > kept + replaced


def test_a_problem_at_the_threshold_keeps_its_own_rollouts(run):
    plain = {CHAIN: ["Answer: 64", "Answer: 2"]}
    experience, script = run("asr", [CHAIN], plain)
    assert not np.any(experience.routed) and len(script.calls) == 1
    np.testing.assert_allclose(experience.rewards, [[1.0, 0.0]])


def test_a_problem_without_a_scaffold_is_never_routed(run):
    experience, script = run("asr", [PLAIN], {PLAIN: ["Answer: 1", "Answer: 2"]})
    assert not np.any(experience.routed) and len(script.calls) == 1
    np.testing.assert_allclose(experience.rewards, [[0.0, 0.0]])


def test_only_buckets_of_routed_problems_are_sampled_again(run):
    problems = [CHAIN, EASY, EASY, EASY]
    plain = {CHAIN: ["Answer: 1", "Answer: 2"], EASY: [SHORT, SHORT]}
    _, script = run("asr", problems, plain, {CHAIN: [GOOD, GOOD]})
    assert [len(call) for call in script.calls] == [4, 1]


@pytest.mark.parametrize("routed", [[], [0], [0, 3], [1, 2, 3], [0, 1, 2, 3, 4]])
def test_buckets_pad_with_rows_that_are_dropped(routed):
    rows = scope._bucket(np.array(routed, int), 8, 4)
    assert len(rows) % 2 == 0 and list(rows[: len(routed)]) == routed and all(rows[len(routed) :] == 8)


def test_routed_or_not_an_update_sees_one_shape(run):
    failed, _ = run("asr", [CHAIN], {CHAIN: ["Answer: 1", "Answer: 2"]}, {CHAIN: [GOOD, GOOD]})
    solved, _ = run("asr", [CHAIN], {CHAIN: ["Answer: 64", "Answer: 64"]})
    assert jax.tree.map(jnp.shape, failed.rollout) == jax.tree.map(jnp.shape, solved.rollout)


def test_an_undecided_answer_is_masked_out_never_paid_as_zero(run):
    plain = {PROOF: ["Answer: 3", "Answer: \\sqrt[3]{27}"], EASY: [SHORT, SHORT]}
    experience, _ = run("outcome", [PROOF, EASY], plain)
    assert not experience.valid[0, 0] and bool(experience.valid[1, 0])


def test_the_host_is_asked_about_undecided_rows_only(run):
    asked = []

    class Host:
        def submit(self, given, gold):
            asked.extend(zip(given, gold, strict=True))
            return Checks([Result.right] * len(given))

    plain = {PROOF: ["Answer: 3", "Answer: 4"], EASY: [SHORT, "Answer: 1"]}
    experience, _ = run("outcome", [PROOF, EASY], plain, open_verifier=lambda: Host())
    assert asked == [("3", "\\sqrt[3]{27}"), ("4", "\\sqrt[3]{27}")]
    np.testing.assert_allclose(experience.rewards, [[1, 1], [1, 0]])
    assert bool(experience.valid.all())


def test_a_row_that_the_host_gives_up_on_stays_undecided(run):
    class Host:
        def submit(self, given, gold):
            return Checks([Result.timed_out, Result.unreadable_gold] * (len(given) // 2))

    experience, _ = run("outcome", [PROOF], {PROOF: ["Answer: 3", "Answer: 4"]}, open_verifier=lambda: Host())
    assert not np.any(experience.valid)
    assert experience.checks["timed_out"] == experience.checks["unreadable_gold"] > 0
    assert experience.checks["checked"] == 2 * experience.checks["timed_out"]


def test_steps_are_labelled_while_the_host_checks_answers(run):
    order = []

    class Host:
        def submit(self, given, gold):
            order.append("submitted")
            return self

        def result(self):
            order.append("awaited")
            return [Result.right] * 4

    plain = {PROOF: ["Answer: 3", "Answer: 4"]}
    watch = lambda judge: lambda *args: (judge(*args), order.append("labelled"))[0]  # noqa: E731
    experience, _ = run("qpr", [PROOF], plain, open_verifier=lambda: Host(), watch=watch)
    assert order == ["submitted", "labelled", "awaited"]
    assert bool((experience.rewards > 0).all())


def test_only_real_rows_of_a_bucket_are_checked_and_both_rounds_are_counted(run):
    asked = []

    class Host:
        def submit(self, given, gold):
            asked.append(list(zip(given, gold, strict=True)))
            return Checks([Result.wrong] * len(given))

    proof = Problem("p4", PROOF.problem, PROOF.answer, scaffold=(SubQuestion("What is a?", "9"),))
    scaffolded = {proof: ["[SUB-1 ANSWER] 9\n[MAIN ANSWER] 3", "[SUB-1 ANSWER] 8\n[MAIN ANSWER] 3"]}
    experience, _ = run(
        "asr", [EASY, EASY, proof], {proof: ["Answer: 3"] * 2}, scaffolded, open_verifier=lambda: Host()
    )  # a bucket of three, of which one is routed
    assert asked == [[("3", "\\sqrt[3]{27}")] * 2, [("3", "\\sqrt[3]{27}")]]
    assert experience.checks["checked"] == experience.checks["wrong"] == 3


def test_mode_minerva_pays_by_text(run):
    half = Problem("p5", "a=1+0. What is half of it?", "1/2")
    plain = {half: ["Answer: 0.5", "Answer: a = 1/2"]}
    experience, _ = run("outcome", [half], plain, settle_options={"mode": "minerva"})
    np.testing.assert_array_equal(experience.rewards, [[0, 1]])
    assert experience.checks["checked"] == 4  # its second row repeats the problem


def test_the_first_box_is_paid_where_the_config_says_so(run):
    plain = {EASY: ["\\boxed{27} or \\boxed{1}", "\\boxed{1} or \\boxed{27}"]}
    for box, paid in (("first", [1, 0]), ("last", [0, 1])):
        experience, _ = run("outcome", [EASY], plain, **{"verifier.box": box})
        np.testing.assert_array_equal(experience.rewards, [paid])


def test_an_undecided_slot_behind_a_wrong_one_does_not_matter():
    verdicts = np.array([[WRONG, UNDECIDED, RIGHT], [RIGHT, UNDECIDED, RIGHT], [RIGHT, RIGHT, UNDECIDED]], np.int8)
    paid, valid = scope.asr_rewards(verdicts, np.ones((3, 2), bool), beta=0.5)
    np.testing.assert_array_equal(valid, [True, False, False])
    assert paid[0] == 0.0


def test_slots_that_a_problem_does_not_have_never_matter():
    verdicts = np.array([[RIGHT, WRONG, RIGHT], [RIGHT, UNDECIDED, RIGHT]], np.int8)
    paid, valid = scope.asr_rewards(verdicts, np.array([[True, False]] * 2), beta=0.5)
    np.testing.assert_array_equal(paid, [1.0, 1.0])
    assert bool(valid.all())


def test_process_rewards_pay_right_responses_by_their_shape_and_wrong_ones_nothing(run):
    experience, _ = run("qpr", [EASY, PLAIN], {EASY: [SHORT, WORDY], PLAIN: ["a=11+2=12.\nAnswer: 12", "Answer: 13"]})
    short, wordy = np.asarray(experience.rewards)[0]
    assert short > wordy > 0
    assert experience.rewards[1, 0] == 0.0
    labels, mask = experience.labels
    right = np.asarray(experience.outcome).reshape(-1) == 1
    expected = rewards.qpr_reward(labels, mask, jnp.asarray(right))
    np.testing.assert_allclose(experience.rewards.reshape(-1), expected)


@pytest.mark.parametrize("field", ["qpr.positive", "qpr.penalise", "qpr.length"])
def test_each_factor_of_the_process_reward_can_be_dropped(run, field):
    whole, _ = run("qpr", [EASY], {EASY: [WORDY, SHORT]})
    without, _ = run("qpr", [EASY], {EASY: [WORDY, SHORT]}, **{field: False})
    assert float(without.rewards[0, 0]) > float(whole.rewards[0, 0])


def test_holistic_and_overlong_rewards_are_configs_of_the_same_stage(run):
    holistic, _ = run("qpr", [EASY], {EASY: [WORDY, "Answer: 1"]}, **{"qpr.reward": "holistic"})
    assert 0 < float(holistic.rewards[0, 0]) < 1 and holistic.rewards[0, 1] == 0
    overlong, _ = run("qpr", [EASY], {EASY: [WORDY, "Answer: 1"]}, **{"qpr.reward": "overlong", "qpr.overlong_share": 1.0})
    lengths = overlong.rollout.mask.sum(axis=1)
    np.testing.assert_allclose(overlong.rewards[0], jnp.array([1.0, 0.0]) - lengths / NEW, rtol=1e-6)
    with pytest.raises(ValueError, match="config.qpr.reward"):
        run("qpr", [EASY], {EASY: [WORDY, SHORT]}, **{"qpr.reward": "holystic"})


def test_mixed_stages_pay_process_quality_where_stage_one_pays_the_outcome(run):
    plain = {CHAIN: ["Answer: 1", "Answer: 2"], EASY: [SHORT, WORDY]}
    experience, _ = run("mixed", [CHAIN, EASY], plain, {CHAIN: [GOOD, FIRST_ONLY]})
    np.testing.assert_allclose(experience.rewards[0], [1.0, 0.25])
    assert 0 < float(experience.rewards[1, 1]) < float(experience.rewards[1, 0]) < 1


class Label:
    """Stands where a judge of texts stands: everything is useful, but it fails on some completions."""

    def __init__(self, width, fails=()):
        self.width, self.fails, self.asked = width, fails, []

    def __call__(self, prompts, completions, answers):
        self.asked += zip(prompts, completions, answers, strict=True)
        valid = np.array([completion not in self.fails for completion in completions], bool)
        mask = np.arange(self.width) < 2 * valid[:, None]
        return np.zeros(mask.shape, np.int32), mask, valid


def test_a_judge_on_the_host_is_asked_about_right_rows_only(run):
    label = Label(32)
    plain = {EASY: [SHORT, "Answer: 1"], PLAIN: ["Answer: 12", "Answer: 13"]}
    experience, _ = run("qpr", [EASY, PLAIN], plain, label=label)
    assert label.asked == [(EASY.problem, SHORT, "27"), (PLAIN.problem, "Answer: 13", "13")]
    quality = 1 / (1 + 0.1 * np.log(3))  # two steps, both useful
    np.testing.assert_allclose(experience.rewards, [[quality, 0.0], [0.0, quality]], rtol=1e-6)
    labels, mask = experience.labels
    np.testing.assert_array_equal(np.sum(mask, axis=1)[:4], [2, 0, 0, 2])
    assert not np.any(experience.judge_failed)


def test_a_right_row_that_the_judge_cannot_label_is_paid_its_outcome_and_counted(run):
    label = Label(32, fails=(WORDY,))
    experience, _ = run("qpr", [EASY, PLAIN], {EASY: [WORDY, SHORT], PLAIN: ["Answer: 12", "Answer: 1"]}, label=label)
    np.testing.assert_array_equal(np.asarray(experience.judge_failed)[:4], [True, False, False, False])
    assert float(experience.rewards[0, 0]) == 1.0 and 0 < float(experience.rewards[0, 1]) < 1
    assert bool(experience.valid.all())  # the verdict is known: the row stays in its group
    assert int(summarise(experience, (0,))["judge_failed"]) == 1


def test_the_rule_judge_never_fails_and_counts_nothing(run):
    experience, _ = run("qpr", [EASY], {EASY: [WORDY, SHORT]})
    assert experience.judge_failed is None and "judge_failed" not in summarise(experience, (0,))


def test_rollouts_that_are_replaced_and_rewards_without_labels_ask_no_judge(run):
    label = Label(32)
    plain = {CHAIN: ["Answer: 64", "Answer: 2"], EASY: [SHORT, WORDY]}
    experience, _ = run("mixed", [CHAIN, EASY], plain, {CHAIN: [GOOD, GOOD]}, label=label, **{"asr.tau": 0.6})
    np.testing.assert_array_equal(experience.routed, [True, False])
    assert [completion for _, completion, _ in label.asked] == [SHORT, WORDY]
    label = Label(32)
    experience, _ = run("qpr", [EASY], {EASY: [SHORT, WORDY]}, label=label, **{"qpr.reward": "overlong"})
    assert label.asked == [] and not np.any(experience.judge_failed)


def test_without_a_right_row_no_judge_is_called(run):
    experience, _ = run("qpr", [EASY], {EASY: ["Answer: 1", "Answer: 2"]}, label=lambda *args: 1 / 0)
    np.testing.assert_array_equal(experience.rewards, [[0.0, 0.0]])


def test_a_completion_cut_by_the_length_limit_is_no_answer(run, tokenizer):
    long = "a=20+3=23.\n\n" * 40 + "Answer: 27"
    ids = tokenizer.encode(long, add_special_tokens=False)[: NEW - 1]
    cut = tokenizer.decode(ids)
    experience, _ = run("outcome", [EASY], {EASY: [cut, SHORT]})
    np.testing.assert_allclose(experience.rewards, [[0, 1]])


def test_end_tokens_are_those_of_model_and_tokenizer(tokenizer):
    assert assemble.end_ids(Config(384, 8, 1, 1, 1, 8, 8, eos_ids=(5,)), tokenizer) == (5, tokenizer.eos_token_id)
