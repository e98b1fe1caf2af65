"""What a run writes while it goes: metrics.jsonl, rollouts.jsonl, TensorBoard events and a progress line.

Step n is the n-th update of the run, over all stages. Each update's lines reach the operating system before the next
update starts, so that a checkpoint of step n never knows more than the files do.
"""

import collections
import json
import logging
import math
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Iterable
from typing import Any, TextIO

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from scope_jax.rewards import STEP_LABELS

log = logging.getLogger(__name__)

ROLLOUT_FIELDS = (
    "step", "stage", "id", "routed", "prompt", "completion", "verdicts", "labels", "reward", "advantage", "length",
)  # fmt: skip
VERDICTS = ("wrong", "right", "undecided")  # in the order of the constants WRONG, RIGHT, UNDECIDED


class MetricsWriter:
    """Writes the records of one run into its workdir; on resume, lines after the restored step are dropped first.

    Args:
      workdir: folder of the run.
      total_steps: updates that the whole run makes, for the progress line.
      resume_step: updates that the restored checkpoint holds; 0 for a new run.
      tensorboard: also write TensorBoard events.
      progress_seconds: least time between two progress lines where the stream is no terminal; there it is one line.
      stream: where the progress goes.
    """

    def __init__(
        self,
        workdir: str | os.PathLike,
        *,
        total_steps: int,
        resume_step: int = 0,
        tensorboard: bool = True,
        progress_seconds: float = 10.0,
        stream: TextIO | None = None,
    ):
        folder = pathlib.Path(workdir)
        self._metrics = _reopen(folder / "metrics.jsonl", resume_step)
        self._rollouts = _reopen(folder / "rollouts.jsonl", resume_step)
        self._events = None
        if tensorboard:
            import tensorboardX  # late: it imports torch where torch is installed, which takes seconds

            # TensorBoard hides the events of a killed process that lie at or after the purge step.
            self._events = tensorboardX.SummaryWriter(str(folder), purge_step=resume_step + 1)
        self._progress = Progress(total_steps, progress_seconds, stream or sys.stderr)
        self._last = time.perf_counter()

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *unused) -> None:
        self.close()

    def write(self, step: int, metrics: dict[str, Any]) -> None:
        """Records one update.

        Args:
          step: the update, counted from 1.
          metrics: names and numbers or strings. The progress line reads reward, eta_r, routed, length and
            generated_tokens; `seconds` (since the last call) and `tokens_per_second` are added.
        """
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        row = {"step": step} | {name: _plain(value) for name, value in metrics.items()} | {"seconds": round(seconds, 4)}
        if row.get("generated_tokens") is not None:
            row["tokens_per_second"] = round(row["generated_tokens"] / max(seconds, 1e-9), 1)
        _append(self._metrics, [row])
        if self._events:
            for name, value in row.items():
                if name != "step" and isinstance(value, int | float):
                    self._events.add_scalar(name, value, step)
            self._events.flush()
        self._progress.show(row)

    def write_rollouts(self, step: int, rows: Iterable[dict[str, Any]]) -> None:
        """Appends completions to the rollout log.

        Args:
          step: the update that they were sampled for.
          rows: fields of `ROLLOUT_FIELDS`; those absent are null. Verdicts and labels may be ids: they are written as
            words.

        Raises:
          ValueError: a row has a field that the log does not know.
        """
        records = []
        for row in rows:
            unknown = row.keys() - set(ROLLOUT_FIELDS)
            if unknown:
                raise ValueError(
                    f"rollout log: unknown field {sorted(unknown)[0]!r}; it has {', '.join(ROLLOUT_FIELDS)}"
                )
            row = row | {"step": step}
            row |= {"verdicts": _words(row.get("verdicts"), VERDICTS), "labels": _words(row.get("labels"), STEP_LABELS)}
            records.append({name: _plain(row.get(name)) for name in ROLLOUT_FIELDS})
        _append(self._rollouts, records)

    def close(self) -> None:
        """Ends the progress line and closes the files."""
        self._progress.end()
        self._metrics.close()
        self._rollouts.close()
        if self._events:
            self._events.close()


class Progress:
    """One line about the last update: rewritten in place on a terminal, else printed now and then."""

    def __init__(self, total_steps: int, seconds: float, stream: TextIO):
        self._total, self._seconds, self._stream = total_steps, seconds, stream
        self._in_place = stream.isatty()
        self._last = -math.inf
        self._recent = collections.deque(maxlen=20)  # seconds of the last updates

    def show(self, row: dict[str, Any]) -> None:
        """Shows the metrics of one update, unless a line was printed just before."""
        self._recent.append(row["seconds"])
        text = progress_line(row, self._total, statistics.median(self._recent))
        if self._in_place:
            self._stream.write(f"\r{text}\x1b[K")
        elif time.monotonic() - self._last >= self._seconds or row["step"] >= self._total:
            self._last = time.monotonic()
            self._stream.write(text + "\n")
        self._stream.flush()

    def end(self) -> None:
        """Leaves the last line standing."""
        if self._in_place and self._recent:
            self._stream.write("\n")
            self._stream.flush()


def progress_line(row: dict[str, Any], total_steps: int, step_seconds: float) -> str:
    """The text about one update: what is absent from `row` is left out.

    Args:
      row: as written to metrics.jsonl.
      total_steps: updates of the run.
      step_seconds: typical time of an update, for the time that is left.
    """
    parts = [f"step {row['step']}/{total_steps}"]
    if row.get("stage") is not None:
        parts.append(str(row["stage"]))
    for name, label, form in (
        ("tokens_per_second", "tok/s", ",.0f"),
        ("reward", "reward", ".3f"),
        ("eta_r", "eta_R", ".2f"),
        ("routed", "routed", ".0%"),
        ("length", "length", ".1f"),
    ):
        if row.get(name) is not None:
            parts.append(f"{label} {row[name]:{form}}")
    left = int(max(total_steps - row["step"], 0) * step_seconds)
    clock = f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}"
    return " | ".join([*parts, f"ETA {clock}"])


class NonFiniteError(FloatingPointError):
    """A number of an update is infinite or not a number."""


def all_finite(tree: PyTree) -> PyTree:
    """For each array of a tree, whether all its elements are finite: small enough to come out of every update."""
    return jax.tree.map(lambda x: jnp.all(jnp.isfinite(x)), tree)


def require_finite(step: int, **trees: PyTree) -> None:
    """Stops the run where a number is not finite.

    Args:
      step: the update, for the message.
      trees: numbers, arrays or pytrees of them, by name. A boolean array tells whether something is finite, as made by
        `all_finite`.

    Raises:
      NonFiniteError: names the step and the first arrays that are not finite.
    """
    bad = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(jax.device_get(trees)):
        value = np.asarray(leaf)
        if np.all(value if value.dtype == bool else np.isfinite(value)):
            continue
        name = path[0].key + jax.tree_util.keystr(path[1:])
        bad.append(f"{name} = {value}" if value.ndim == 0 and value.dtype != bool else name)
    if bad:
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise NonFiniteError(
            f"step {step}: not finite: {', '.join(bad[:5])}{more}. The run stops here and its last checkpoint stays; "
            "try a lower config.optimizer.learning_rate, and look at the last lines of metrics.jsonl and rollouts.jsonl"
        )


def read_jsonl(path: str | os.PathLike) -> list[dict[str, Any]]:
    """The objects of a file written by `MetricsWriter`; a last line that was cut by a kill is left out.

    Raises:
      ValueError: another line is malformed; names file and line.
    """
    return [row for row, _ in _complete_lines(pathlib.Path(path))]


def _complete_lines(path: pathlib.Path) -> Iterable[tuple[dict[str, Any], str]]:
    """The objects and texts of the finished lines of a file."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith("\n"):
                return  # the process was killed while it wrote this line
            try:
                yield json.loads(line), line
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}:{number}: not a JSON object ({error}); mend or remove this line") from error


def _reopen(path: pathlib.Path, resume_step: int) -> TextIO:
    """Opens a file for appending, without its lines after `resume_step` and without one that was cut short."""
    if path.exists():
        shorter = path.with_suffix(".tmp")
        with open(shorter, "w", encoding="utf-8") as file:
            file.writelines(line for row, line in _complete_lines(path) if row["step"] <= resume_step)
            file.flush()
            os.fsync(file.fileno())
        os.replace(shorter, path)  # at no moment is there a file with fewer lines than the checkpoint knows
    return open(path, "a", encoding="utf-8")


def _append(file: TextIO, rows: list[dict[str, Any]]) -> None:
    file.writelines(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
    file.flush()


def _plain(value: Any) -> Any:
    """A value as JSON holds it: arrays as numbers or lists, infinite numbers as null."""
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        value = np.asarray(value).tolist()
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _words(ids: Any, words: tuple[str, ...]) -> Any:
    """Ids as words; words stay what they are."""
    return None if ids is None else [x if isinstance(x, str) else words[int(x)] for x in _plain(ids)]
