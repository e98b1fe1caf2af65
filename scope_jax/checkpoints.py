"""Checkpoints of a run: written by orbax in the background, read back only where they are whole.

A checkpoint is a pytree of arrays (parameters, optimizer state, step, PRNG keys; typed keys travel as their key data)
and a small JSON object (stage, data position, ...). Orbax writes into a temporary folder and renames it at the end.
"""

import dataclasses
import logging
import os
import pathlib
import shutil
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

log = logging.getLogger(__name__)

SAVE_TIMEOUT = 1800  # seconds after which a background save that hangs is reported


@dataclasses.dataclass(frozen=True)
class Restored:
    """What the newest whole checkpoint held."""

    step: int
    state: Any  # the same pytree as the target
    meta: dict[str, Any]


class Checkpoints:
    """The checkpoints in one folder: the `keep` most recent ones, and every `keep_every` steps for good (0: none)."""

    def __init__(self, folder: str | os.PathLike, *, keep: int = 2, keep_every: int = 0):
        if keep < 1:
            raise ValueError(f"keep={keep}: at least one checkpoint must be kept, or a run could not go on")
        _silence_orbax()
        self._folder = pathlib.Path(folder).resolve()
        self._folder.mkdir(parents=True, exist_ok=True)
        policies = [checkpoint_managers.LatestN(keep)]
        if keep_every:
            policies.append(checkpoint_managers.EveryNSteps(keep_every))
        self._manager = ocp.CheckpointManager(
            self._folder,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=checkpoint_managers.AnyPreservationPolicy(policies),
                async_options=ocp.AsyncOptions(timeout_secs=SAVE_TIMEOUT),
            ),
        )

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *unused) -> None:
        self.close()

    def steps(self) -> list[int]:
        """Steps of the finished checkpoints, in order."""
        return sorted(self._manager.all_steps())

    def save(self, step: int, state: Any, meta: dict[str, Any]) -> None:
        """Starts to save and returns when `state` may be changed or donated; waits for an earlier save first.

        Args:
          step: updates made; above that of every checkpoint in the folder.
          state: pytree of arrays, sharded or not.
          meta: JSON object.

        Raises:
          ValueError: there is a checkpoint of this step or a later one.
          Exception: an earlier save has failed in the background.
        """
        self.wait()
        self._remove_unfinished()
        arguments = ocp.args.Composite(
            state=ocp.args.StandardSave(_without_keys(state)),
            meta=ocp.args.JsonSave({"meta": meta, "arrays": describe(state)}),
        )
        # Orbax answers False, and nothing else, where it does not like a step.
        if not self._manager.save(step, args=arguments):
            raise ValueError(f"{self._folder}: step {step} is not above the latest checkpoint, {self.steps()[-1]}")

    def wait(self) -> None:
        """Returns when nothing is being saved; raises what went wrong in the background."""
        self._manager.wait_until_finished()
        self._manager.check_for_errors()

    def check(self) -> None:
        """Raises what went wrong in the background, without waiting: cheap enough for every step."""
        self._manager.check_for_errors()

    def close(self) -> None:
        """Waits for the last save."""
        self.wait()
        self._manager.close()

    def restore(self, target: Any) -> Restored | None:
        """Reads the newest whole checkpoint; None where there is none.

        A broken one (a file cut short or missing) is set aside as `broken-STEP` with a warning, and the one before it
        is read.

        Args:
          target: pytree of arrays or `jax.ShapeDtypeStruct`; its shardings say where the arrays go.

        Raises:
          ValueError: the checkpoint holds other arrays than the target, of another model or optimizer; names them.
          RuntimeError: there are checkpoints, and none can be read.
        """
        broken = {}
        for step in reversed(self.steps()):
            try:
                record = self._manager.restore(step, args=ocp.args.Composite(meta=ocp.args.JsonRestore()))["meta"]
                meta, arrays = record["meta"], record["arrays"]
            except Exception as error:  # orbax, tensorstore and json each raise types of their own
                broken[step] = error
                continue
            _require_same_arrays(arrays, describe(target), self._folder / str(step))
            try:
                wanted = ocp.args.StandardRestore(_without_keys(target, abstract=True))
                state = self._manager.restore(step, args=ocp.args.Composite(state=wanted))["state"]
            except Exception as error:
                broken[step] = error
                continue
            for other, error in broken.items():
                self._set_aside(other, error)
            return Restored(step, _with_keys(state, target), meta)
        if broken:  # not the same as a new run: a disk that fails to read must not make training start again
            reasons = "; ".join(f"{step}: {_first_line(error)}" for step, error in broken.items())
            raise RuntimeError(
                f"{self._folder}: no checkpoint can be read ({reasons}). "
                "Repair the disk, or remove the folder to start again"
            )
        return None

    def _set_aside(self, step: int, error: Exception) -> None:
        """Renames a broken checkpoint: its step will be saved again, and a person can look at what is left of it."""
        aside = self._folder / f"broken-{step}"
        reason = _first_line(error)
        log.warning("%s: checkpoint %d is broken (%s); it is set aside as %s", self._folder, step, reason, aside.name)
        if aside.exists():
            shutil.rmtree(aside)
        (self._folder / str(step)).rename(aside)
        self._manager.reload()

    def _remove_unfinished(self) -> None:
        """Temporary folders of a process that was killed while it saved: nothing reads them, and they fill the disk."""
        if jax.process_index() == 0:
            for path in self._folder.glob("*orbax-checkpoint-tmp*"):
                shutil.rmtree(path)


def describe(tree: Any) -> dict[str, str]:
    """Path -> "dtype[shape]" of each array of a pytree, in order: what must agree for a checkpoint to fit."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): f"{x.dtype}{list(x.shape)}" for path, x in leaves}


def state_bytes(tree: Any) -> int:
    """Size of one checkpoint of this pytree of arrays, before compression."""
    return sum(int(np.prod(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(_without_keys(tree, abstract=True)))


def check_workdir(workdir: str | os.PathLike, needed_bytes: int = 0) -> None:
    """Makes the folder and proves, before hours of training, that results can be written there.

    Raises:
      OSError: the folder cannot be made or written, or its disk has less than `needed_bytes` free.
    """
    path = pathlib.Path(workdir)
    probe = path / f".write-test-{os.getpid()}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        with open(probe, "wb") as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())  # a full disk or a quota may show only here
        probe.unlink()
    except OSError as error:
        if path.is_dir():
            probe.unlink(missing_ok=True)
        reason = error.strerror or error
        raise OSError(
            f"workdir {path} cannot be written: {reason}. Choose another --workdir or free its disk"
        ) from error
    free = shutil.disk_usage(path).free
    if free < needed_bytes:
        raise OSError(
            f"workdir {path} has {free / 2**30:.2f} GiB free; its checkpoints need {needed_bytes / 2**30:.2f} GiB. "
            "Free some, choose another --workdir, or keep fewer checkpoints (config.checkpoint.keep)"
        )


def _is_key(x: Any) -> bool:
    return jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)


def _key_impl(x: Any) -> Any:
    """The PRNG of a typed key, concrete or abstract."""
    found = []
    jax.eval_shape(lambda key: found.append(jax.random.key_impl(key)), x)  # key_impl refuses a ShapeDtypeStruct
    return found[0]


def _without_keys(tree: Any, *, abstract: bool = False) -> Any:
    """The tree with typed PRNG keys as their key data; `abstract`: shapes, dtypes and shardings in place of arrays."""

    def leaf(x):
        sharding = getattr(x, "sharding", None)
        if _is_key(x):
            x = jax.eval_shape(jax.random.key_data, x) if abstract else jax.random.key_data(x)
            sharding = None  # keys are small and whole on every device
        if not abstract:
            return x
        # Without a sharding of ours orbax would take the saved one, whose devices may be gone.
        sharding = sharding or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

    return jax.tree.map(leaf, tree)


def _with_keys(tree: Any, target: Any) -> Any:
    """Key data of `tree` as typed keys again, where `target` has them."""

    def leaf(x, wanted):
        if not _is_key(wanted):
            return x
        key = jax.random.wrap_key_data(x, impl=_key_impl(wanted))
        sharding = getattr(wanted, "sharding", None)
        return key if sharding is None else jax.device_put(key, sharding)

    return jax.tree.map(leaf, tree, target)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}".splitlines()[0]


def _require_same_arrays(saved: dict[str, str], wanted: dict[str, str], path: pathlib.Path) -> None:
    if saved == wanted:
        return
    different = [name for name in sorted(saved.keys() | wanted.keys()) if saved.get(name) != wanted.get(name)]
    shown = [f"{name}: saved {saved.get(name, 'absent')}, now {wanted.get(name, 'absent')}" for name in different[:5]]
    more = f"; and {len(different) - 5} more" if len(different) > 5 else ""
    raise ValueError(
        f"{path} was saved by a run with another model or optimizer ({'; '.join(shown)}{more}). "
        "Go on with the config of that run, or choose another --workdir"
    )


class _NotFromOrbax(logging.Filter):
    """Drops orbax's own records below an error: its failures reach us as exceptions."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR or f"{os.sep}orbax{os.sep}" not in record.pathname


def _silence_orbax() -> None:
    logger = logging.getLogger("absl")  # the logger that orbax writes to
    if not any(isinstance(f, _NotFromOrbax) for f in logger.filters):
        logger.addFilter(_NotFromOrbax())
