"""A reward of one's own: what the function sees, what its values do, and what a wrong name or value says."""

import importlib.resources

import jax.numpy as jnp
import numpy as np
import pytest

from scope_jax.data.batches import encode_problems, take
from scope_jax.data.prompts import BARE
from scope_jax.data.records import Problem
from scope_jax.own_reward import load_reward, make_own_reward
from scope_jax.qwen3.tokenizer import load_tokenizer
from scope_jax.rollout import Rollout
from scope_jax.scope import Experience

MODEL = importlib.resources.files("scope_jax.data") / "chains_model"
PROBLEMS = [Problem("p", "a=1+2. What is a?", "3"), Problem("q", "a=2+2. What is a?", "4")]
TEXTS = ["Answer: 3", "Answer: 5", "a=2+2=4.", "Answer: 4"]
seen = []


def by_length(rollouts):
    seen.append(rollouts)
    return [None if r["reward"] is None else r["reward"] - 0.125 * r["ended"] for r in rollouts]


def rescue(rollouts):
    return [None if r["id"] == "q" else 7 for r in rollouts]


def too_few(rollouts):
    return [1.0]


def not_a_number(rollouts):
    return [1.0, float("nan"), 1.0, 1.0]


NOT_A_FUNCTION = 3


@pytest.fixture
def setting():
    tokenizer = load_tokenizer(MODEL)
    tokens, mask = np.zeros((4, 40), np.int32), np.zeros((4, 40), bool)
    for row, text in enumerate(TEXTS):
        ids = tokenizer.encode(text, add_special_tokens=False) + [tokenizer.eos_token_id] * (row != 2)  # row 2 is cut
        tokens[row, : len(ids) + 2] = [9, 9, *ids]  # two columns of prompt
        mask[row, 2 : len(ids) + 2] = True
    experience = Experience(
        Rollout(jnp.asarray(tokens), jnp.asarray(mask), None, None),
        rewards=jnp.array([[1.0, 0.0], [0.0, 1.0]]),
        valid=jnp.array([[True, True], [False, True]]),
        outcome=jnp.array([[1.0, 0.0], [0.0, 1.0]]),
        routed=np.array([False, True]),
        labels=None,
        sampled_tokens=jnp.int32(0),
    )
    table = encode_problems(PROBLEMS, tokenizer, BARE, max_prompt_tokens=64, max_scaffold_tokens=64)
    return tokenizer, experience, take(table, np.arange(2))


def pay(setting, function):
    tokenizer, experience, batch = setting
    return make_own_reward(f"{__name__}:{function}", tokenizer, (tokenizer.eos_token_id,))(experience, batch, "asr")


def test_the_function_sees_each_rollout_with_its_own_problem_and_the_stages_reward(setting):
    seen.clear()
    pay(setting, "by_length")
    (rollouts,) = seen
    assert [r["completion"] for r in rollouts] == TEXTS
    assert [(r["id"], r["answer"], r["routed"]) for r in rollouts] == [("p", "3", False)] * 2 + [("q", "4", True)] * 2
    assert [r["reward"] for r in rollouts] == [1.0, 0.0, None, 1.0]
    assert [r["ended"] for r in rollouts] == [True, True, False, True]
    assert all(r["stage"] == "asr" and r["problem"].startswith("a=") for r in rollouts)
    assert rollouts[0]["length"] == int(setting[1].rollout.mask[0].sum())


def test_its_values_are_paid_and_none_leaves_a_rollout_out(setting):
    paid = pay(setting, "by_length")
    np.testing.assert_allclose(paid.rewards, [[0.875, -0.125], [0.0, 0.875]])
    np.testing.assert_array_equal(paid.valid, [[True, True], [False, True]])
    np.testing.assert_array_equal(paid.outcome, setting[1].outcome)  # routing and logs keep what is right
    paid = pay(setting, "rescue")  # a value for an undecided row counts, None for a decided one does not
    np.testing.assert_array_equal(paid.valid, [[True, True], [False, False]])
    assert paid.rewards.dtype == jnp.float32


def test_wrong_values_name_the_function_and_the_problem(setting):
    with pytest.raises(ValueError, match="too_few' gave 1 rewards for 4 rollouts"):
        pay(setting, "too_few")
    with pytest.raises(ValueError, match="not_a_number' gave nan for rollout 1 of problem p"):
        pay(setting, "not_a_number")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_module:f", "No module named 'no_such_module'; the module must be importable"),
        (f"{__name__}:f", "has no attribute 'f'"),
        (f"{__name__}:NOT_A_FUNCTION", "must name a function as package.module:function"),
        ("math", "must name a function as package.module:function"),
        (":sqrt", "must name a function as package.module:function"),
    ],
)
def test_a_wrong_name_is_refused_before_anything_runs(name, reason):
    with pytest.raises(ValueError, match=reason):
        load_reward(name)


def test_a_missing_import_inside_the_module_keeps_its_traceback(tmp_path, monkeypatch):
    (tmp_path / "needs_more.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        load_reward("needs_more:f")


def test_without_a_name_nothing_is_decoded():
    assert make_own_reward("", None, ()) is None
