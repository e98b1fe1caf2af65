"""Curves of training: the mean over seeds with a band from the lowest to the highest, over updates and over tokens."""

import pathlib
from typing import Any

import numpy as np
from jaxtyping import Float

PLOTS = {
    "reward": "reward that the update sees",
    "outcome": "share of right answers on the original prompts",
    "eta_r": "effective gradient ratio eta_R",
    "length": "tokens a completion",
    "routed": "share of prompts routed to their scaffold",
}
POINTS = 200  # of a curve over tokens, where the seeds' updates do not fall on the same places


def write_plots(output: str | pathlib.Path, curves: dict[str, list[list[dict[str, Any]]]]) -> list[pathlib.Path]:
    """Writes one PNG for each measure of `PLOTS` that any run has.

    Args:
      output: folder, which exists.
      curves: by the method's label, for each seed the rows of metrics.jsonl.

    Returns:
      The files written.
    """
    from matplotlib.figure import Figure  # the object interface draws without a display and without global state

    written = []
    for name, title in PLOTS.items():
        having = {label: [run for run in runs if _has(run, name)] for label, runs in curves.items()}
        if not any(having.values()):
            continue
        figure = Figure(figsize=(10, 3.6), layout="constrained")
        for axes, by_tokens in zip(figure.subplots(1, 2, sharey=True), (False, True), strict=True):
            for label, runs in having.items():
                if runs:
                    x, mean, low, high = band([curve(run, name, by_tokens=by_tokens) for run in runs])
                    [line] = axes.plot(x, mean, label=label)
                    axes.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
            axes.set_xlabel("tokens generated (both rollouts of a routed prompt)" if by_tokens else "updates")
            axes.grid(alpha=0.3)
        figure.axes[0].set_ylabel(f"{title}\n(running mean)")
        figure.axes[0].legend()
        path = pathlib.Path(output) / f"{name}.png"
        figure.savefig(path, dpi=120)
        written.append(path)
    return written


def curve(
    run: list[dict[str, Any]], name: str, *, by_tokens: bool
) -> tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """Places and smoothed values of one measure of one run: a running mean over a twentieth of the run, centred.

    Args:
      run: rows of metrics.jsonl.
      name: the measure; rows without it are left out.
      by_tokens: places are tokens generated so far, otherwise updates.
    """
    tokens = np.cumsum([row.get("generated_tokens") or 0 for row in run])
    known = [i for i, row in enumerate(run) if row.get(name) is not None]
    x = np.asarray([tokens[i] if by_tokens else run[i]["step"] for i in known], float)
    values = np.asarray([run[i][name] for i in known], float)
    half = len(values) // 40
    smooth = [values[max(i - half, 0) : i + half + 1].mean() for i in range(len(values))]
    return x, np.asarray(smooth)


def band(curves: list[tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]]) -> tuple[Float[np.ndarray, "K"], ...]:
    """Places, mean, lowest and highest of several curves, over the places that all of them reach."""
    start, end = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    first = curves[0][0]
    if all(np.array_equal(x, first) for x, _ in curves):
        grid = first
    else:
        grid = np.linspace(start, end, POINTS)
    values = np.stack([np.interp(grid, x, y) for x, y in curves])
    return grid, values.mean(axis=0), values.min(axis=0), values.max(axis=0)


def _has(run: list[dict[str, Any]], name: str) -> bool:
    return any(row.get(name) is not None for row in run)
