import collections
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scope_jax.data.records import RecordError, write_jsonl
from scope_jax.data.sources import WORD_PROBLEMS, batch_indices, load_problems

GOLDEN = ([0, 8, 9, 3, 7, 5, 1, 2, 6, 4], [6, 1, 4, 8])


def stream(num_problems, batch, steps, seed):
    return np.concatenate([batch_indices(num_problems, batch, step, seed) for step in range(steps)])


def test_files_and_the_packages_own_problems_load_by_name(tmp_path):
    own, bad = load_problems("word_problems")
    assert not bad
    write_jsonl(tmp_path / "copy.jsonl", own)
    assert load_problems("jsonl", tmp_path / "copy.jsonl") == load_problems("jsonl", WORD_PROBLEMS) == (own, [])


def test_an_unknown_source_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="'josnl' is unknown; choose one of .*jsonl"):
        load_problems("josnl", "x")


def test_bad_lines_stop_the_load_unless_they_are_skipped(tmp_path):
    path = tmp_path / "problems.jsonl"
    path.write_text(json.dumps({"id": "a", "problem": "p", "answer": "1"}) + "\n{}\n")
    with pytest.raises(RecordError, match="problems.jsonl:2: field 'id' is missing"):
        load_problems("jsonl", path)
    problems, bad = load_problems("jsonl", path, skip_bad=True)
    assert (len(problems), len(bad)) == (1, 1)


@pytest.mark.parametrize(
    ("content", "said"), [("", "holds no problems$"), ("{}\n", "holds no problems; the first of 1")]
)
def test_a_file_without_problems_is_refused(tmp_path, content, said):
    path = tmp_path / "empty.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match=said):
        load_problems("jsonl", path, skip_bad=True)


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 40), st.integers(1, 60), st.integers(0, 2**40))
def test_every_epoch_takes_every_problem_once_whatever_the_batch_size(num_problems, batch, seed):
    """Across epoch borders too, and with fewer problems than a batch holds: nothing is dropped or drawn twice."""
    steps = -(-3 * num_problems // batch)
    taken = stream(num_problems, batch, steps, seed)[: 3 * num_problems].reshape(3, num_problems)
    assert (np.sort(taken, axis=1) == np.arange(num_problems)).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 30), st.integers(0, 1000))
def test_the_order_does_not_depend_on_the_batch_size(num_problems, batch, other, seed):
    length = min(4 * batch, 4 * other)
    first, second = (stream(num_problems, size, 4, seed)[:length] for size in (batch, other))
    assert (first == second).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 10**12), st.integers(0, 1000))
def test_a_step_is_a_pure_function_so_a_resumed_run_replays_nothing(num_problems, batch, step, seed):
    """Asked alone, far into the run, or after other steps: the same batch, with no state to restore."""
    alone = batch_indices(num_problems, batch, step, seed)
    batch_indices(num_problems, batch, step + 17, seed + 1)
    again = batch_indices(num_problems, batch, step, seed)
    assert (alone == again).all()
    assert alone.shape == (batch,)
    assert ((alone >= 0) & (alone < num_problems)).all()


def test_changing_the_result_does_not_change_later_ones():
    first = batch_indices(5, 5, 0, 0)
    kept = first.copy()
    first[:] = 0
    assert (batch_indices(5, 5, 0, 0) == kept).all()


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {tuple(batch_indices(12, 12, step, seed)) for step in range(5) for seed in range(5)}
    assert len(orders) == 25


def test_orders_are_uniform():
    counts = collections.Counter(tuple(batch_indices(3, 3, step, 0)) for step in range(1200))
    assert len(counts) == 6
    assert all(140 < count < 265 for count in counts.values())  # 200 expected, standard deviation 13


def test_the_order_stays_the_same_for_ever():
    """Written down, so that no release of NumPy or of this code can change the data of a run that resumes."""
    assert batch_indices(10, 10, 0, 0).tolist() == GOLDEN[0]
    assert batch_indices(10, 4, 3, 7).tolist() == GOLDEN[1]


@pytest.mark.parametrize("arguments", [(0, 1, 0, 0), (1, 0, 0, 0), (1, 1, -1, 0), (1, 1, 0, -1)])
def test_impossible_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match="must"):
        batch_indices(*arguments)
