"""The outcome reward and on-policy routing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scope_jax.rewards.outcome import outcome_reward, route


def test_a_right_answer_pays_one_and_a_wrong_one_nothing():
    reward = jax.jit(outcome_reward)(jnp.array([True, False]))
    assert reward.dtype == jnp.float32
    np.testing.assert_array_equal(reward, [1.0, 0.0])


def test_a_verdict_with_a_third_value_is_refused():
    """Undecided is 2: taken for a number or a truth value it would be paid."""
    with pytest.raises(TypeError, match="verdict == RIGHT"):
        outcome_reward(jnp.array([0, 1, 2], jnp.int8))


@pytest.mark.parametrize("size", [2, 3, 5, 7, 8, 12])
def test_a_prompt_exactly_at_tau_is_not_routed(size):
    outcome = (np.arange(size)[None] < np.arange(size + 1)[:, None]).astype(np.float32)
    jitted = jax.jit(route)
    for right in range(size + 1):
        np.testing.assert_array_equal(jitted(outcome, tau=right / size), np.arange(size + 1) < right)
        np.testing.assert_array_equal(route(jnp.asarray(outcome), tau=right / size), np.arange(size + 1) < right)


def test_undecided_rollouts_neither_route_a_prompt_nor_keep_it():
    outcome = jnp.array([[1.0, 0, 0, jnp.nan], [1.0, 0, 0, 0], [0.0, 0, 0, 0]])
    valid = jnp.array([[True, True, False, False], [True, True, True, True], [False] * 4])
    np.testing.assert_array_equal(route(outcome, valid=valid), [False, True, False])
