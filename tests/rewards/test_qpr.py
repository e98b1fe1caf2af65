"""The process-shape reward against a loop that reads the paper's equations."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scope_jax.rewards.qpr import STEP_LABELS, holistic_quality, holistic_reward, process_quality, qpr_reward

N = 7
QUALITY, REWARD, HOLISTIC = jax.jit(process_quality), jax.jit(qpr_reward), jax.jit(holistic_quality)
LAMBDAS = {"mechanical": 0.3, "redundant": 0.5, "reversion": 0.5, "error": 0.8}

labels_of_rows = st.lists(st.lists(st.integers(0, 4), max_size=N), min_size=3, max_size=3)


def by_the_equation(labels, lambdas=LAMBDAS, alpha=0.1, positive=True, penalise=True, length=True):
    """Q_process of one row from the list of its labels."""
    n = len(labels)
    if n == 0:
        return 0.0
    names = [STEP_LABELS[label] for label in labels]
    quality = names.count("useful") / n if positive else 1.0
    if penalise:
        for kind, penalty in lambdas.items():
            quality *= 1 - penalty * names.count(kind) / n
    return quality / (1 + alpha * math.log(n + 1)) if length else quality


def padded(rows, junk=0, width=N):
    labels = np.array([row + [junk] * (width - len(row)) for row in rows], np.int32)
    return labels, np.array([[i < len(row) for i in range(width)] for row in rows])


@settings(max_examples=100, deadline=None)
@given(labels_of_rows, st.sampled_from([-1, 0, 4, 99]), st.lists(st.booleans(), min_size=3, max_size=3))
def test_quality_equals_the_equation_whatever_stands_in_the_padding(rows, junk, switches):
    options = dict(zip(("positive", "penalise", "length"), switches, strict=True))
    got = QUALITY(*padded(rows, junk), **options)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, [by_the_equation(row, **options) for row in rows], rtol=1e-5, atol=1e-7)
    assert np.all((got >= 0) & (got <= 1))


@settings(max_examples=30, deadline=None)
@given(labels_of_rows, st.lists(st.floats(0, 0.99), min_size=4, max_size=4), st.floats(0, 3))
def test_penalties_and_alpha_are_taken_in_the_order_of_the_labels(rows, penalties, alpha):
    lambdas = dict(zip(STEP_LABELS[1:], penalties, strict=True))
    got = QUALITY(*padded(rows), penalties=np.array(penalties, np.float32), alpha=alpha)
    np.testing.assert_allclose(got, [by_the_equation(row, lambdas, alpha) for row in rows], rtol=1e-4, atol=1e-6)


def test_quality_matches_a_number_worked_by_hand():
    # useful, useful, redundant, error: S_u 1/2; Phi (1 - 0.5/4)(1 - 0.8/4) = 0.7; kappa 1/(1 + 0.1 ln 5) = 0.861374
    labels, mask = padded([[0, 0, 2, 4]])
    assert QUALITY(labels, mask)[0] == pytest.approx(0.5 * 0.7 * 0.861374, rel=1e-5)


def test_padding_before_or_between_steps_never_changes_the_quality():
    labels, mask = padded([[0, 3, 0]])
    spread = np.array([[9, 0, -1, 3, 9, 9, 0]]), np.array([[False, True, False, True, False, False, True]])
    np.testing.assert_array_equal(QUALITY(*spread), QUALITY(labels, mask))
    np.testing.assert_array_equal(process_quality(labels[:, :3], mask[:, :3]), QUALITY(labels, mask))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=N - 1), st.integers(1, 4))
def test_a_flawed_step_more_never_pays(row, flaw):
    with_flaw, with_one_turned = row + [flaw], [flaw] + row[1:]
    quality = np.asarray(QUALITY(*padded([row, with_flaw, with_one_turned])))
    assert quality[1] <= quality[0] + 1e-7
    if row[0] == 0:
        assert quality[2] <= quality[0] + 1e-7


def test_a_clean_shorter_response_pays_more_and_the_length_factor_is_why():
    rows = padded([[0] * n for n in (1, 2, 3, 7)])
    assert np.all(np.diff(np.asarray(QUALITY(*rows))) < 0)
    np.testing.assert_array_equal(QUALITY(*rows, length=False), np.ones(4))


def test_without_steps_the_quality_is_zero_under_every_ablation():
    labels, mask = padded([[]], junk=-1)
    for options in ({}, {"positive": False}, {"penalise": False}, {"length": False}):
        assert QUALITY(labels, mask, **options)[0] == 0.0
    assert process_quality(jnp.zeros((1, 0), jnp.int32), jnp.zeros((1, 0), bool))[0] == 0.0
    assert HOLISTIC(labels, mask)[0] == 0.0


@settings(max_examples=30, deadline=None)
@given(labels_of_rows, st.lists(st.booleans(), min_size=3, max_size=3))
def test_a_wrong_answer_pays_nothing_whatever_its_shape(rows, right):
    quality, right = QUALITY(*padded(rows)), np.array(right)
    np.testing.assert_array_equal(REWARD(*padded(rows), right), np.where(right, quality, 0.0))
    np.testing.assert_array_equal(holistic_reward(*padded(rows), right), np.where(right, HOLISTIC(*padded(rows)), 0.0))


def test_the_holistic_score_sees_kinds_of_flaws_and_neither_number_nor_length():
    rows = padded([[0], [0] * 7, [0, 4], [4] * 7, [0, 1, 2], [0, 1, 2, 3, 4]], junk=3)
    np.testing.assert_array_equal(HOLISTIC(*rows), [1.0, 1.0, 0.75, 0.75, 0.5, 0.0])


def test_gradients_by_the_coefficients_are_finite_for_empty_and_padded_rows():
    labels, mask = padded([[], [0, 4]], junk=-1)
    gradient = jax.grad(lambda p, a: jnp.sum(process_quality(labels, mask, penalties=p, alpha=a)), (0, 1))(
        jnp.array([0.3, 0.5, 0.5, 0.8]), jnp.float32(0.1)
    )
    assert all(np.all(np.isfinite(leaf)) for leaf in gradient)


def test_quality_maps_over_a_leading_axis():
    rng = np.random.default_rng(0)
    labels, mask = rng.integers(0, 5, (3, 4, N)), rng.random((3, 4, N)) < 0.7
    stacked = np.stack([QUALITY(*row) for row in zip(labels, mask, strict=True)])
    np.testing.assert_allclose(jax.vmap(process_quality)(labels, mask), stacked, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalties": (0.3, 0.5, 0.5, 1.0)}, "penalty of error is 1.0"),
        ({"penalties": (0.3, 0.5)}, "mechanical, redundant, reversion, error"),
        ({"alpha": -0.1}, "alpha is -0.1"),
    ],
)
def test_coefficients_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        process_quality(*padded([[0]]), **options)
