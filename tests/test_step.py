"""Where a step stands, what a new stage keeps, how wide an update is, and what the log says of a step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import FrozenConfigDict

from configs import base
from scope_jax.meshes import make_mesh
from scope_jax.policy.update import make_optimizer
from scope_jax.rollout import Rollout
from scope_jax.scope import Experience
from scope_jax.step import begin_stage, initial_state, place_of, summarise, trim
from scope_jax.verify import Result
from scope_jax.verify.settle import count_results

STAGES = (("asr", 2), ("qpr", 3))
MESH = make_mesh("data=1", jax.devices()[:1])


@pytest.mark.parametrize(
    ("step", "place"),
    [(0, ("asr", True)), (1, ("asr", False)), (2, ("qpr", True)), (3, ("qpr", False)), (4, ("qpr", False))],
)
def test_a_step_knows_its_stage_and_whether_the_stage_begins(step, place):
    assert place_of(step, STAGES) == place


def test_a_stage_of_no_updates_is_passed_over():
    assert place_of(0, (("asr", 0), ("qpr", 1))) == ("qpr", True)


def test_a_step_past_the_end_is_refused():
    with pytest.raises(ValueError, match="1 past the last stage"):
        place_of(5, STAGES)


def config_with(**fields):
    c = base.get_config()
    c.update_from_flattened_dict(fields)
    return FrozenConfigDict(c)


def test_a_stage_begins_with_the_parameters_before_it_and_a_fresh_optimizer():
    config = config_with(**{"loss.kl": 0.1})
    optimizer = make_optimizer(config.optimizer)
    params = {"w": jnp.ones((2, 2))}
    state = initial_state(params, config, optimizer, MESH)
    change, moments = optimizer.update({"w": jnp.full((2, 2), 3.0)}, state.optimizer_state, params)
    trained = state.replace(params={"w": params["w"] + 7.0}, optimizer_state=moments, step=state.step + 5)
    assert any(np.any(leaf) for leaf in jax.tree.leaves(moments))

    begun = begin_stage(trained, config, optimizer, MESH)
    np.testing.assert_array_equal(begun.params["w"], 8.0)
    np.testing.assert_array_equal(begun.ref_params["w"], 8.0)  # the stage's own first parameters are its reference
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(begun.optimizer_state))
    assert int(begun.step) == 5
    assert jnp.array_equal(jax.random.key_data(begun.key), jax.random.key_data(state.key))


def test_the_reference_is_a_copy_that_training_cannot_reach_and_absent_without_a_kl_term():
    params = {"w": jnp.ones(3)}
    with_kl = config_with(**{"loss.kl": 0.1})
    state = initial_state(params, with_kl, make_optimizer(with_kl.optimizer), MESH)
    assert state.ref_params["w"].unsafe_buffer_pointer() != params["w"].unsafe_buffer_pointer()
    without = config_with()
    assert initial_state(params, without, make_optimizer(without.optimizer), MESH).ref_params is None


def rollout_of(lengths, prompt=5, limit=16):
    mask = np.arange(limit) < np.asarray(lengths)[:, None]
    mask = np.concatenate([np.zeros((len(lengths), prompt), bool), mask], axis=1)
    rows = jnp.asarray(mask)
    return Rollout(tokens=jnp.where(rows, 7, 0), mask=rows, logprobs=jnp.where(rows, -1.0, 0.0), segment_ids=rows.astype(jnp.int32))


@pytest.mark.parametrize(("lengths", "width"), [([1, 3], 4), ([4, 1], 4), ([5, 1], 8), ([16, 2], 16), ([0, 0], 4)])
def test_an_update_is_as_wide_as_a_bucket_needs_and_loses_no_token(lengths, width):
    whole = rollout_of(lengths)
    cut = trim(whole, 5, 4)
    assert {x.shape for x in jax.tree.leaves(cut)} == {(2, 5 + width)}
    assert int(cut.mask.sum()) == int(whole.mask.sum())


@pytest.mark.parametrize("length", range(17))
def test_buckets_that_do_not_divide_the_limit_still_lose_no_token(length):
    cut = trim(rollout_of([length]), 5, 3)  # units of 6 columns, and a last one of 4
    assert int(cut.mask.sum()) == length and cut.tokens.shape[1] <= 5 + 16


def test_the_log_of_a_step_leaves_undecided_rows_out_of_the_mean_reward():
    rollout = rollout_of([4, 2, 16, 1])
    rollout = rollout.replace(tokens=rollout.tokens.at[0, 5 + 3].set(3).at[1, 5 + 1].set(3).at[3, 5].set(3))
    experience = Experience(
        rollout=rollout,
        rewards=jnp.array([[1.0, 0.5], [0.25, 0.25]]),
        valid=jnp.array([[True, False], [True, True]]),
        outcome=jnp.array([[1.0, 0.0], [0.0, 0.0]]),
        routed=jnp.array([False, True]),
        labels=None,
        sampled_tokens=jnp.int32(40),
        checks=count_results([Result.right, Result.timed_out, Result.timed_out]),
    )
    measured = {name: float(value) for name, value in summarise(experience, eos_ids=(3,)).items()}
    assert measured == pytest.approx(
        {
            "reward": 0.5,
            "outcome": 0.25,
            "eta_r": 0.0,  # the first group has one valid row, the second is constant
            "routed": 0.5,
            "length": 23 / 4,
            "truncated": 0.25,
            "undecided": 0.25,
            "generated_tokens": 40,
            "verify_checked": 3,
            "verify_right": 1,
            "verify_wrong": 0,
            "verify_no_answer": 0,
            "verify_unreadable_gold": 0,
            "verify_timed_out": 2,
        }
    )
