"""The soft overlong penalty."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scope_jax.rewards.overlong import overlong_penalty


def test_the_penalty_grows_linearly_inside_the_cache():
    lengths = jnp.array([0, 15, 16, 17, 18, 19, 20, 21, 1000])
    got = jax.jit(overlong_penalty, static_argnames=("max_length", "cache"))(lengths, max_length=20, cache=4)
    np.testing.assert_array_equal(got, [0, 0, 0, -0.25, -0.5, -0.75, -1, -1, -1])


@pytest.mark.parametrize("cache", [0, 21])
def test_a_cache_outside_the_limit_is_refused(cache):
    with pytest.raises(ValueError, match="max_length, 20"):
        overlong_penalty(jnp.array([1]), max_length=20, cache=cache)
