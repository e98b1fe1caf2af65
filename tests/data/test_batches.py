"""Rows of a batch: prompts, scaffolds and answers of one problem stand in one row, whatever is dropped before it."""

import importlib.resources

import jax
import numpy as np
import pytest

from scope_jax.data.batches import encode_problems, take
from scope_jax.data.prompts import BARE, plain_prompt, prompt_ids, scaffolded_prompt
from scope_jax.data.records import Problem, SubQuestion
from scope_jax.qwen3.tokenizer import load_tokenizer
from scope_jax.rewards import AnswerKey

MODEL = importlib.resources.files("scope_jax.data") / "chains_model"
TWO = Problem("two", "a=12+3. b=a-4. c=b+1. What is c?", "12", scaffold=(SubQuestion("What is a?", "15"), SubQuestion("What is b?", "11")))
NONE = Problem("none", "a=12+3. What is a?", "15")
LONG = Problem("long", "a=12+3. " * 30 + "What is a?", "15")
WIDE = Problem("wide", "a=12+3. What is a?", "16", scaffold=(SubQuestion("What is the value of a? " * 20, "15"),))


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(MODEL)


@pytest.fixture(scope="module")
def table(tokenizer):
    return encode_problems([LONG, TWO, NONE, WIDE], tokenizer, BARE, max_prompt_tokens=64, max_scaffold_tokens=96)


def test_long_prompts_are_dropped_and_long_scaffolds_only_unroutable(table):
    assert [p.id for p in table.problems] == ["two", "none", "wide"]
    assert [p.id for p in table.dropped] == ["long"]
    np.testing.assert_array_equal(table.routable, [True, False, False])
    np.testing.assert_array_equal(table.sub_mask, [[True, True], [False, False], [True, False]])


def test_arrays_are_no_wider_than_the_longest_prompt_needs(table):
    longest = table.prompt_mask.sum(axis=1).max()
    assert table.prompts.shape[1] - longest < 16 and table.prompts.shape[1] % 16 == 0
    assert table.scaffolded.shape[1] >= table.prompts.shape[1]


def test_rounding_the_width_cuts_no_prompt(table, tokenizer):
    for i, problem in enumerate(table.problems):
        assert table.prompts[i][table.prompt_mask[i]].tolist() == prompt_ids(tokenizer, plain_prompt(problem, BARE))
    scaffold = table.scaffolded[0][table.scaffolded_mask[0]].tolist()
    assert scaffold == prompt_ids(tokenizer, scaffolded_prompt(TWO, BARE))


def assert_rows_equal(key, expected):
    jax.tree.map(np.testing.assert_array_equal, key, expected)


def test_a_scaffold_is_answered_in_its_order_with_the_main_answer_last(table):
    assert_rows_equal(jax.tree.map(lambda x: x[0], table.slot_key), AnswerKey.from_strings(["15", "11", "12"]))
    assert_rows_equal(table.main_key, AnswerKey.from_strings(["12", "15", "16"]))


def test_tables_without_a_scaffold_that_fits_keep_the_shapes_of_others(tokenizer):
    """Rollouts on a scaffold are padded by the difference of the widths, which is never negative."""
    bare = encode_problems([NONE], tokenizer, BARE, max_prompt_tokens=64, max_scaffold_tokens=64)
    wide = encode_problems([WIDE], tokenizer, BARE, max_prompt_tokens=64, max_scaffold_tokens=64)
    assert bare.sub_mask.tolist() == [[False]] and not bare.routable.any() and not wide.routable.any()
    assert bare.scaffolded.shape == bare.prompts.shape and wide.scaffolded.shape == wide.prompts.shape


def test_a_batch_has_each_problem_in_one_row_of_every_array(table, tokenizer):
    batch = take(table, np.array([2, 0, 2]))
    assert [p.id for p in batch.problems] == ["wide", "two", "wide"]
    for i, problem in enumerate(batch.problems):
        text = tokenizer.decode(np.asarray(batch.prompts)[i][np.asarray(batch.prompt_mask)[i]])
        assert problem.problem in text
        scaffold = tokenizer.decode(batch.scaffolded[i][batch.scaffolded_mask[i]])
        assert problem.problem in scaffold if problem is TWO else not batch.scaffolded_mask[i].any()
    np.testing.assert_array_equal(batch.routable, [False, True, False])
    np.testing.assert_array_equal(batch.sub_mask, [[True, False], [True, True], [True, False]])
    assert_rows_equal(jax.tree.map(lambda x: x[1], batch.slot_key), AnswerKey.from_strings(["15", "11", "12"]))
    same = jax.tree.map(lambda x: np.array_equal(np.asarray(x)[0], np.asarray(x)[2]), (batch.main_key, batch.slot_key))
    assert all(jax.tree.leaves(same))
    differs = jax.tree.map(lambda x: np.array_equal(np.asarray(x)[0], np.asarray(x)[1]), batch.main_key)
    assert not all(jax.tree.leaves(differs))


def test_a_batch_goes_where_it_is_placed(table):
    placed = []
    take(table, np.array([0]), lambda tree: placed.append(tree) or tree)
    assert placed and isinstance(jax.tree.leaves(placed)[0], np.ndarray)


def test_no_prompt_that_fits_and_a_narrow_scaffold_are_refused(tokenizer):
    with pytest.raises(ValueError, match="none of the 1 prompts fits rollout.max_prompt_tokens=64; the shortest takes [0-9]+$"):
        encode_problems([LONG], tokenizer, BARE, max_prompt_tokens=64, max_scaffold_tokens=96)
    with pytest.raises(ValueError, match="max_scaffold_tokens=32 is below"):
        encode_problems([TWO], tokenizer, BARE, max_prompt_tokens=64, max_scaffold_tokens=32)
