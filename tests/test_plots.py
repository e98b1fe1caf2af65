"""Curves of a report: where they lie, and what the band between seeds means."""

import numpy as np

from scope_jax.plots import band, curve, write_plots


def rows(values, tokens=10, name="reward"):
    return [{"step": i + 1, name: value, "generated_tokens": tokens} for i, value in enumerate(values)]


def test_a_curve_lies_over_updates_or_over_tokens_generated_so_far():
    run = rows([0.1, 0.2, 0.3])
    assert np.array_equal(curve(run, "reward", by_tokens=False)[0], [1, 2, 3])
    assert np.array_equal(curve(run, "reward", by_tokens=True)[0], [10, 20, 30])
    assert np.allclose(curve(run, "reward", by_tokens=True)[1], [0.1, 0.2, 0.3])


def test_tokens_of_updates_without_the_measure_still_count():
    run = rows([0.1, None, 0.3])
    x, y = curve(run, "reward", by_tokens=True)
    assert np.array_equal(x, [10, 30]) and np.allclose(y, [0.1, 0.3])


def test_smoothing_keeps_a_constant_and_averages_noise():
    assert np.allclose(curve(rows([0.5] * 100), "reward", by_tokens=False)[1], 0.5)
    noisy = curve(rows([0.0, 1.0] * 50), "reward", by_tokens=False)[1]
    assert noisy[5:-5].max() < 0.7 and noisy[5:-5].min() > 0.3


def test_the_band_goes_from_the_lowest_to_the_highest_seed():
    x = np.arange(3.0)
    grid, mean, low, high = band([(x, x), (x, x + 1), (x, x + 5)])
    assert np.array_equal(grid, x) and np.allclose(mean, x + 2)
    assert np.array_equal(low, x) and np.array_equal(high, x + 5)


def test_seeds_that_generate_different_numbers_of_tokens_share_the_part_that_all_reach():
    a, b = (np.float64([0, 10]), np.float64([0, 1])), (np.float64([5, 20]), np.float64([1, 1]))
    grid, mean, low, high = band([a, b])
    assert (grid[0], grid[-1]) == (5, 10)
    assert np.allclose(low, grid / 10) and np.allclose(high, 1) and np.allclose(mean, (grid / 10 + 1) / 2)


def test_a_measure_that_no_run_has_gives_no_plot(tmp_path):
    written = write_plots(tmp_path, {"GRPO": [rows([0.1, 0.2], name="length")], "base": []})
    assert [path.name for path in written] == ["length.png"]
