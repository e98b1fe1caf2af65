"""Command lines of the entry points: a config file, overrides of its fields, and errors that say what was meant.

    CONFIG = overrides.config_flag()
    if __name__ == "__main__":
        overrides.run(main)

`--config=configs/chains.py:scope --config.asr.beta=0.3` sets one field. A name that does not exist, a value of another
type or an argument left over ends the program before anything is computed, in one line with the nearest name.
"""

import contextlib
import difflib
import json
import os
import pathlib
import re
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_collections
from absl import app, flags, logging
from ml_collections import config_flags

from scope_jax.data.records import write_text
from scope_jax.metrics import NonFiniteError

flags.disclaim_key_flags()  # --help lists the flags defined here as the entry point's own

FREE_FIELDS = (  # groups and fields that may change when a run goes on: training stays as it was
    "log", "checkpoint", "eval", "verifier.workers", "verifier.timeout",
    "judge.url", "judge.key_variable", "judge.timeout", "judge.concurrency", "judge.retries", "judge.cache",
)  # fmt: skip


def config_flag() -> flags.FlagHolder:
    """Defines `--config=FILE.py[:NAME]` and its overrides; the holder's value is a locked ConfigDict."""
    return config_flags.DEFINE_config_file(
        "config", help_string="config file, with the name of a variant after a colon"
    )


def refuse_empty(flag: str) -> None:
    """`--flag=`, such as from a shell variable that is not set, would mean the folder one stands in."""
    flags.register_validator(flag, lambda value: value != "", message="it is empty; name a folder")


def run(main: Callable[[Sequence[str]], Any]) -> None:
    """`absl.app.run`, but a wrong command line gives one line, and libraries log warnings only (see --verbosity)."""

    def parse(argv: Sequence[str]) -> list[str]:
        try:
            rest = parse_flags(argv)
        except CommandLineError as error:
            sys.exit(f"{pathlib.Path(argv[0]).name}: {error}")
        if flags.FLAGS["verbosity"].using_default_value:
            flags.FLAGS.verbosity = logging.WARNING  # absl would show every library's chatter
        return rest

    def guarded(argv: Sequence[str]) -> Any:
        try:
            return main(argv)
        except (SetupError, NonFiniteError) as error:
            sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {error}")

    app.run(guarded, flags_parser=parse)


class SetupError(ValueError):
    """A run cannot begin; the message says what to change, and the entry points print it alone."""


@contextlib.contextmanager
def setting_up() -> Iterator[None]:
    """Inside it, a wrong value or file raises `SetupError` with the same message."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise SetupError(str(error)) from error


class CommandLineError(ValueError):
    """A command line that cannot be obeyed; the message says what to change."""


def parse_flags(argv: Sequence[str]) -> list[str]:
    """Parses a command line into `absl.flags.FLAGS`.

    Args:
      argv: the whole command line, as in `sys.argv`; ml_collections reads the overrides from there.

    Returns:
      The program's name alone.

    Raises:
      CommandLineError: unknown flag or field, value of another type, missing config, argument that belongs to no flag.
    """
    config = _load_config(argv)
    if config is not None:
        names = _overridden(argv)
        for name in names:
            _require_field(name, config)
            if names.count(name) > 1 and isinstance(dict(flatten(config))[name], tuple):
                raise CommandLineError(f"--config.{name} is given twice; a second tuple would be appended to the first")
    try:
        rest = flags.FLAGS(argv)
    except flags.UnrecognizedFlagError as error:
        known = [name for name in flags.FLAGS if "." not in name]
        known += [f"config.{name}" for name, _ in flatten(config)] if config is not None else []
        raise CommandLineError(f"unknown flag --{error.flagname}{_nearest(error.flagname, known, '--')}") from error
    except flags.Error as error:
        missing = re.match(r"flag --(\w+)=None: ", str(error))
        message = f"give --{missing[1]}=..., see --help" if missing else str(error)
        raise CommandLineError(message) from error
    if len(rest) > 1:
        raise CommandLineError(f"argument {rest[1]!r} belongs to no flag; flags are written --name=value")
    if "config" in flags.FLAGS and config is None:
        raise CommandLineError("no config; give one, for example --config=configs/chains.py:scope")
    if config is not None:
        parsed = dict(flatten(flags.FLAGS["config"].value))
        for name, default in flatten(config):
            _require_same_kind(name, default, parsed[name])
    return rest


def flatten(config: ml_collections.ConfigDict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of a config as (dotted name, value), groups opened."""
    for name in config:
        value = config[name]
        if isinstance(value, ml_collections.ConfigDict):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def config_to_json(config: ml_collections.ConfigDict) -> str:
    """The config as a JSON object with sorted names, as kept in a run's workdir."""
    return json.dumps(config.to_dict(), sort_keys=True, indent=2) + "\n"


def record_config(workdir: str | os.PathLike, config: ml_collections.ConfigDict, *, resuming: bool) -> None:
    """Writes the config to `config.json`; when a run goes on, first makes sure that it is the same run.

    Args:
      workdir: folder of the run; exists.
      config: as given now.
      resuming: a checkpoint is being continued. Otherwise an earlier record is replaced.

    Raises:
      ValueError: a field outside `FREE_FIELDS` differs from the record; names it and both values.
    """
    path = pathlib.Path(workdir) / "config.json"
    if resuming and path.exists():
        before, now = (
            dict(flatten(ml_collections.ConfigDict(json.loads(text))))
            for text in (path.read_text(encoding="utf-8"), config_to_json(config))
        )
        for name in sorted(before.keys() | now.keys()):
            free = name in FREE_FIELDS or name.split(".")[0] in FREE_FIELDS
            if not free and before.get(name, "absent") != now.get(name, "absent"):
                raise ValueError(
                    f"{path}: this run began with {name} = {_shown(before, name)}, and now it is {_shown(now, name)}. "
                    "Go on with the same config, or choose another --workdir"
                )
    write_text(path, config_to_json(config))


def _shown(values: dict[str, Any], name: str) -> str:
    return repr(values[name]) if name in values else "absent"


def _load_config(argv: Sequence[str]) -> ml_collections.ConfigDict | None:
    """The config that the command line names, without its overrides; None where it names none."""
    given = [i for i, word in enumerate(argv) if word.split("=")[0] in ("--config", "-config")]
    if not given or "config" not in flags.FLAGS:
        return None
    word = argv[given[-1]]
    value = word.split("=", 1)[1] if "=" in word else "".join(argv[given[-1] + 1 : given[-1] + 2])
    path, _, variant = value.partition(":")
    if not os.path.isfile(path):
        raise CommandLineError(f"--config={value}: there is no file {path!r}")
    get_config = runpy.run_path(path).get("get_config")
    if get_config is None:
        raise CommandLineError(f"--config={value}: {path} defines no get_config()")
    try:
        return get_config(variant) if variant else get_config()
    except (ValueError, TypeError) as error:
        raise CommandLineError(f"--config={value}: {error}") from error


def _overridden(argv: Sequence[str]) -> list[str]:
    """Names of the fields that the command line sets."""
    words = (word.split("=", 1)[0].lstrip("-") for word in argv if word.startswith("-"))
    return [
        word.removeprefix("no").removeprefix("config.")
        for word in words
        if word.removeprefix("no").startswith("config.")
    ]


def _require_field(name: str, config: ml_collections.ConfigDict) -> None:
    fields = [field for field, _ in flatten(config)]
    if name in fields:
        return
    inside = [field for field in fields if field.startswith(f"{name}.")]
    if inside:
        raise CommandLineError(f"--config.{name} is a group; set its fields: {', '.join(inside)}")
    raise CommandLineError(f"the config has no field {name!r}{_nearest(name, fields, '--config.')}")


def _nearest(name: str, known: list[str], prefix: str) -> str:
    """A question after the nearest name, empty where none is near. The last part of a name counts most."""
    last = name.rsplit(".", 1)[-1]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    near = near or [
        full for full in known if difflib.SequenceMatcher(None, full.rsplit(".", 1)[-1], last).ratio() > 0.7
    ]
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def _require_same_kind(name: str, default: Any, value: Any) -> None:
    """Elements of tuples are checked here: ml_collections looks at the tuple alone."""
    if not isinstance(default, tuple) or not default:
        return
    kinds = {_kind(x) for x in default}
    wrong = [x for x in value if _kind(x) not in kinds]
    if wrong:
        raise CommandLineError(
            f"--config.{name}: {wrong[0]!r} is no {' or '.join(sorted(kinds))}; the default is {default}"
        )


def _kind(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return f"tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__
