"""Rows of a batch: prompts, scaffolds and answers of one problem stand in one row, whatever is dropped before it."""

import importlib.resources

import jax
import numpy as np
import pytest

from scope_jax.data.batches import encode_problems, take
from scope_jax.data.prompts import BARE
from scope_jax.data.records import Problem, SubQuestion
from scope_jax.qwen3.tokenizer import load_tokenizer

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


def test_a_batch_has_each_problem_in_one_row_of_every_array(table, tokenizer):
    batch = take(table, np.array([2, 0, 2]))
    assert [p.id for p in batch.problems] == ["wide", "two", "wide"]
    for i, problem in enumerate(batch.problems):
        text = tokenizer.decode(np.asarray(batch.prompts)[i][np.asarray(batch.prompt_mask)[i]])
        assert problem.problem in text
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
