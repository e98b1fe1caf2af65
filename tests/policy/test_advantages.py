"""Group advantages against hand-worked numbers, and the cases where nothing is to be learnt."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scope_jax.policy import effective_gradient_ratio, group_advantages
from scope_jax.policy.advantages import has_signal

ADVANTAGES = jax.jit(lambda rewards, valid: group_advantages(rewards, valid=valid))


def test_advantages_match_numbers_worked_by_hand():
    # (1, 0, 0, 1): mean 1/2, population std 1/2. (3, 0, 0, 0): mean 3/4, std sqrt(27/16) = 1.299038.
    got = group_advantages(jnp.array([[1.0, 0, 0, 1], [3.0, 0, 0, 0]]))
    expected = [[1, -1, -1, 1], [1.7320508, -0.5773503, -0.5773503, -0.5773503]]
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_scale_none_only_centres():
    got = group_advantages(jnp.array([[3.0, 0, 0, 0]]), scale="none")
    np.testing.assert_allclose(got, [[2.25, -0.75, -0.75, -0.75]], rtol=1e-6)


def test_the_mean_is_the_groups_and_not_the_batchs():
    one = group_advantages(jnp.array([[1.0, 0, 0, 1]]))
    two = group_advantages(jnp.array([[1.0, 0, 0, 1], [90.0, 91, 92, 93]]))
    np.testing.assert_array_equal(one[0], two[0])


@pytest.mark.parametrize("eps", [1e-4, 1e-6, 1e-8, 0.0])
@pytest.mark.parametrize("reward", [1.1, 0.1, 1 / 3, 0.0, 1.0, -0.7, 123456.7])
def test_constant_fractional_rewards_have_advantage_exactly_zero(reward, eps):
    """Twelve equal fractions do not centre to 0 in float32; divided by their tiny std they would look like signal."""
    for scale in ("std", "none"):
        assert np.all(np.asarray(group_advantages(jnp.full((3, 12), reward), eps=eps, scale=scale)) == 0.0)
    assert effective_gradient_ratio(jnp.full((3, 12), reward)) == 0.0


def test_a_difference_of_one_unit_in_the_last_place_is_signal():
    rewards = jnp.full((1, 4), 0.5).at[0, 0].set(np.nextafter(np.float32(0.5), np.float32(1)))
    assert has_signal(rewards)[0]
    assert group_advantages(rewards)[0, 0] > 0


def test_a_group_of_one_is_refused():
    with pytest.raises(ValueError, match="group of one"):
        group_advantages(jnp.ones((4, 1)))


def test_an_unknown_scale_is_refused():
    with pytest.raises(ValueError, match="batch.*std"):
        group_advantages(jnp.ones((4, 2)), scale="batch")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.1]), st.booleans()), min_size=6, max_size=6))
def test_invalid_rows_are_as_if_they_were_not_sampled(pairs):
    rewards = np.array([[r for r, _ in pairs]], np.float32)
    valid = np.array([[v for _, v in pairs]])
    kept = rewards[valid].astype(np.float64)
    expected = np.zeros(6)
    if len(kept) and kept.max() > kept.min():
        expected[valid[0]] = (kept - kept.mean()) / (kept.std() + 1e-6)
    spoilt = np.where(valid, rewards, np.nan).astype(np.float32)
    np.testing.assert_allclose(ADVANTAGES(spoilt, valid)[0], expected, atol=2e-5)
    np.testing.assert_array_equal(ADVANTAGES(rewards, valid), ADVANTAGES(spoilt, valid))


def test_an_undecided_reward_is_neither_zero_nor_a_source_of_nan():
    """An unscored row must leave its group; summed as 0 it would push the others up."""
    valid = jnp.array([[True, True, False, True]])
    got = group_advantages(jnp.array([[1.0, 1.0, jnp.nan, 1.0]]), valid=valid)
    np.testing.assert_array_equal(got, np.zeros((1, 4)))
    gradient = jax.grad(lambda r: jnp.sum(group_advantages(r, valid=valid) * r.at[0, 2].set(0.0)))(
        jnp.array([[1.0, 0.0, jnp.nan, 1.0]])
    )
    assert np.all(np.isfinite(gradient))


def test_a_nan_in_a_valid_row_is_not_hidden():
    got = group_advantages(jnp.array([[1.0, jnp.nan, 0.0], [1.0, 0.0, 0.0]]))
    assert np.all(np.isnan(got[0])) and np.all(np.isfinite(got[1]))


def test_groups_without_valid_rows_have_no_signal():
    rewards = jnp.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    valid = jnp.array([[True, True], [True, False], [False, False], [True, True]])
    np.testing.assert_array_equal(has_signal(rewards, valid), [True, False, False, False])
    assert effective_gradient_ratio(rewards, valid) == 0.25
    assert effective_gradient_ratio(rewards) == 0.75


def test_advantages_carry_no_gradient_to_the_rewards():
    gradient = jax.grad(lambda r: jnp.sum(group_advantages(r) ** 2))(jnp.array([[1.0, 0.0, 0.5]]))
    np.testing.assert_array_equal(gradient, np.zeros((1, 3)))
