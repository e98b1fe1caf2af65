"""The prefix-consistent reward against a loop that reads the paper's equation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scope_jax.rewards.asr import asr_reward

REWARD = jax.jit(asr_reward)
M = 5


def by_the_equation(subs, main, beta):
    """R_ASR of one row from the list of its sub-verdicts."""
    if not subs:
        return float(main)
    products = []
    for i in range(1, len(subs) + 1):
        product = 1
        for j in range(i):
            product *= int(subs[j])
        products.append(product)
    return beta * sum(products) / len(subs) + (1 - beta) * products[-1] * int(main)


rows = st.lists(st.tuples(st.lists(st.booleans(), max_size=M), st.booleans(), st.booleans()), min_size=4, max_size=4)


@settings(max_examples=100, deadline=None)
@given(rows, st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_reward_equals_the_equation_whatever_stands_in_the_padding(batch, beta):
    mask = np.array([[i < len(subs) for i in range(M)] for subs, _, _ in batch])
    subs = np.array([subs + [junk] * (M - len(subs)) for subs, _, junk in batch])
    main = np.array([main for _, main, _ in batch])
    got = REWARD(subs, mask, main, beta=beta)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, [by_the_equation(s, r, beta) for s, r, _ in batch], atol=1e-6)
    assert np.all((got >= 0) & (got <= 1))
    np.testing.assert_array_equal(REWARD(subs, mask & False, main, beta=beta), main)


def test_padding_before_or_between_slots_never_changes_the_reward():
    mask = jnp.array([[True, True, True, False, False], [False, True, False, True, True]])
    subs = jnp.array([[True, False, True, False, False], [False, True, False, False, True]])
    reward = REWARD(subs, mask, jnp.array([True, True]))
    assert reward[0] == reward[1] == pytest.approx(0.5 / 3)


@pytest.mark.parametrize("first_wrong", range(M))
def test_a_later_sub_answer_never_pays_unless_all_earlier_ones_are_right(first_wrong):
    tails = np.array([[bool(n >> i & 1) for i in range(M)] for n in range(32)])
    subs = np.where(np.arange(M) < first_wrong, True, np.where(np.arange(M) == first_wrong, False, tails))
    for main in (True, False):
        reward = REWARD(subs, np.ones_like(subs), np.full(32, main))
        np.testing.assert_allclose(reward, np.full(32, 0.5 * first_wrong / M), atol=1e-7)


def test_a_longer_right_prefix_and_a_right_main_answer_pay_more():
    subs = np.arange(M)[None] < np.arange(M + 1)[:, None]
    subs = np.concatenate([subs, subs[-1:]])
    reward = np.asarray(REWARD(subs, np.ones_like(subs), np.array([False] * (M + 1) + [True])))
    assert np.all(np.diff(reward) > 0) and reward[0] == 0.0 and reward[-2] == 0.5 and reward[-1] == 1.0


def test_without_a_scaffold_the_main_answer_is_all():
    main = jnp.array([True, False])
    np.testing.assert_array_equal(REWARD(jnp.zeros((2, M), bool), jnp.zeros((2, M), bool), main), [1.0, 0.0])
    np.testing.assert_array_equal(asr_reward(jnp.zeros((2, 0), bool), jnp.zeros((2, 0), bool), main), [1.0, 0.0])


def test_reward_maps_over_a_leading_axis():
    rng = np.random.default_rng(0)
    subs, mask, main = rng.random((3, 4, M)) < 0.7, rng.random((3, 4, M)) < 0.7, rng.random((3, 4)) < 0.5
    stacked = np.stack([REWARD(*row) for row in zip(subs, mask, main, strict=True)])
    np.testing.assert_array_equal(jax.vmap(asr_reward)(subs, mask, main), stacked)


def test_bad_arguments_are_refused():
    subs, main = jnp.ones((1, 2), bool), jnp.ones(1, bool)
    with pytest.raises(ValueError, match="beta is 1.5"):
        asr_reward(subs, subs, main, beta=1.5)
    with pytest.raises(TypeError, match="sub_correct"):
        asr_reward(2 * subs.astype(jnp.int8), subs, main)
