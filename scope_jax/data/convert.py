"""Converts problems of published layouts into records.

    python -m scope_jax.data.convert --layout=dapo --input=dapo-math-17k.parquet --output=train.jsonl \
        --against=aime24.jsonl,math500.jsonl --drop_overlap --drop_duplicates

Reads JSONL, JSON, CSV and parquet. Rows and scaffolds that cannot be used, problems that stand there twice, and
problems that an evaluation set holds too are listed with the reason in OUTPUT.rejects.jsonl. `--tfds_dir` writes the
same records as a TFDS data set besides.
"""

import collections
import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from absl import app, flags, logging

from scope_jax.data.duplicates import answers_agree, duplicate_groups, index_problems, normal_form
from scope_jax.data.layouts import LAYOUTS
from scope_jax.data.layouts.fields import shown
from scope_jax.data.records import Problem, RecordError, load_jsonl, write_jsonl, write_text
from scope_jax.data.tables import read_rows

_INPUT = flags.DEFINE_string("input", None, "JSONL, JSON, CSV or parquet file to read.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "JSONL file of records to write.", required=True)
_LAYOUT = flags.DEFINE_enum("layout", None, sorted(LAYOUTS), "Layout of the input.", required=True)
_SOURCE = flags.DEFINE_string(
    "source", None, "Data set named in the records, and the start of ids that are made; by default the layout's."
)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the order of choices, in layouts that have them; the ids end in it.")
_AGAINST = flags.DEFINE_list("against", [], "Files of evaluation records: problems that they hold too are reported.")
_DROP_OVERLAP = flags.DEFINE_bool("drop_overlap", False, "Leave these problems out.")
_DROP_DUPLICATES = flags.DEFINE_bool(
    "drop_duplicates", False, "Of problems that stand there twice, keep the first; none where their answers differ."
)
_TFDS_DIR = flags.DEFINE_string("tfds_dir", "", "Folder for a TFDS data set of the same records; none when empty.")
_SPLIT = flags.DEFINE_enum(
    "split", "train", ["train", "test"], "Its split: data.train reads train, data.eval reads test."
)


@dataclasses.dataclass(frozen=True)
class Reject:
    """Something that was left out of a conversion, or that its user should know.

    `what` is "row" (it cannot be converted), "copy" (later rows are its exact copies), "scaffold" (only this is left
    out), "duplicate" (the same problem stands earlier), "conflict" (the same problem has different answers) or
    "overlap" (an evaluation set holds the problem).
    """

    line: int  # or the row's number, see `tables.Row`
    what: str
    reason: str
    rows: int = 1  # how many rows it speaks of
    kept: bool = False  # the problem is in the output all the same


SIFTED = {
    "duplicate": "duplicates",
    "conflict": "duplicates with different answers",
    "overlap": "problems of evaluation sets",
}


class Conversion(NamedTuple):
    """The problems in the file's order, the line of each, and what was left out."""

    problems: list[Problem]
    lines: list[int]
    rejects: list[Reject]


def convert(path: pathlib.Path, layout: str, source: str | None = None, *, seed: int = 0) -> Conversion:
    """Problems of a file in one of `LAYOUTS`.

    Ids that the layout lacks are made from the source and the line number, so that they stay when other rows go. A row
    that is the exact copy of an earlier one, its id included, is left out: ids are unique.

    Args:
      path: a file that `read_rows` reads.
      layout: one of `LAYOUTS`.
      source: the data set that records name; by default the layout's.
      seed: for the order of choices, where the layout has them.

    Raises:
      FileNotFoundError: there is no such file.
      RecordError: the file as a whole cannot be read.
    """
    rule = LAYOUTS[layout]
    source = rule.source if source is None else source
    read = functools.partial(rule.read, seed=seed) if rule.shuffles else rule.read
    found: dict[str, tuple[int, Problem]] = {}
    rejects: list[Reject] = []
    copies: collections.Counter[str] = collections.Counter()
    for line, where, row in read_rows(path):
        missing = ""
        try:
            if isinstance(row, RecordError):
                raise row
            problem = read(row, where, id=f"{source}-{line}", source=source)
            if rule.scaffolds:
                problem, missing = problem
            first = found.setdefault(problem.id, (line, problem))
            if first[0] != line and first[1] != problem:
                reason = f"is {problem.id!r}, which line {first[0]} has for another problem; ids must be unique"
                raise RecordError(where, "id", reason)
        except RecordError as error:
            rejects.append(Reject(line, "row", str(error)))
            continue
        if first[0] != line:
            copies[problem.id] += 1
        elif missing:
            rejects.append(Reject(line, "scaffold", missing, kept=True))
    rejects += [Reject(found[id][0], "copy", f"{n} later rows are copies of it", n) for id, n in copies.items()]
    lines, problems = (list(column) for column in zip(*found.values(), strict=True)) if found else ([], [])
    return Conversion(problems, lines, rejects)


def drop_duplicates(found: Conversion, *, drop: bool) -> Conversion:
    """Lists problems that are the same but for their writing, and leaves them out where `drop` says so.

    Of a group whose answers agree, the first stays; of one whose answers differ, none, as none can be trusted.
    """
    out: set[int] = set()
    rejects = []
    for group in duplicate_groups(found.problems):
        answers = [found.problems[i].answer for i in group]
        if all(answers_agree(answers[0], answer) for answer in answers[1:]):
            first, *later = group
            reason = f"is the same problem as line {found.lines[first]} ({found.problems[first].id})"
            rejects += [Reject(found.lines[i], "duplicate", reason, kept=not drop) for i in later]
            out.update(later)
        else:
            each = ", ".join(f"line {found.lines[i]}: {shown(found.problems[i].answer)}" for i in group)
            reason = f"the same problem has different answers: {each}"
            rejects += [Reject(found.lines[i], "conflict", reason, kept=not drop) for i in group]
            out.update(group)
    return _without(found, out if drop else set(), rejects)


def drop_overlap(found: Conversion, evaluation: Mapping[str, str], *, drop: bool) -> Conversion:
    """Lists problems that `evaluation` (of `index_problems`) holds too, and leaves them out where `drop` says so."""
    places = {i: evaluation.get(normal_form(problem.problem)) for i, problem in enumerate(found.problems)}
    held = {i: place for i, place in places.items() if place}
    rejects = [Reject(found.lines[i], "overlap", f"is in {place} too", kept=not drop) for i, place in held.items()]
    return _without(found, set(held) if drop else set(), rejects)


def _without(found: Conversion, out: set[int], rejects: list[Reject]) -> Conversion:
    stay = [i for i in range(len(found.problems)) if i not in out]
    return Conversion([found.problems[i] for i in stay], [found.lines[i] for i in stay], found.rejects + rejects)


def summary(problems: list[Problem], rejects: list[Reject]) -> str:
    """How many rows became problems, what came of the others, and how long the scaffolds are."""
    counts: collections.Counter[tuple[str, bool]] = collections.Counter()
    for reject in rejects:
        counts[reject.what, reject.kept] += reject.rows
    total = len(problems) + sum(n for (_, kept), n in counts.items() if not kept)
    parts = [f"{len(problems)} of {total} rows converted, {counts['row', False]} rejected"]
    if counts["copy", False]:
        parts.append(f"exact copies left out: {counts['copy', False]}")
    for (what, kept), n in counts.items():
        if what in SIFTED:
            parts.append(f"{SIFTED[what]} {'kept' if kept else 'left out'}: {n}")
    lengths = [len(problem.scaffold) for problem in problems if problem.scaffold]
    if not lengths:
        return "; ".join([*parts, "no scaffolds"])
    built, mean = 100 * len(lengths) / len(problems), sum(lengths) / len(lengths)
    spread = f"{mean:.2f} sub-questions on average ({min(lengths)} to {max(lengths)})"
    return "; ".join([*parts, f"scaffolds built: {built:.1f}%, {spread}"])


def _run() -> None:
    source, output = pathlib.Path(_INPUT.value), pathlib.Path(_OUTPUT.value)
    if output.resolve() == source.resolve():
        raise ValueError(f"{output}: is both --input and --output; the output would replace the input")
    if _DROP_OVERLAP.value and not _AGAINST.value:
        raise ValueError("--drop_overlap leaves out what other files hold; name them with --against")
    evaluation: dict[str, str] = {}
    for name in _AGAINST.value:
        evaluation |= index_problems(load_jsonl(name)[0], name)
    found = convert(source, _LAYOUT.value, _SOURCE.value, seed=_SEED.value)
    found = drop_duplicates(found, drop=_DROP_DUPLICATES.value)
    found = drop_overlap(found, evaluation, drop=_DROP_OVERLAP.value)
    output.parent.mkdir(parents=True, exist_ok=True)
    rejects = output.with_name(f"{output.name}.rejects.jsonl")
    ordered = sorted(found.rejects, key=lambda reject: reject.line)
    write_text(rejects, "".join(json.dumps(dataclasses.asdict(one), ensure_ascii=False) + "\n" for one in ordered))
    if not found.problems:
        first = f"; the first of {len(ordered)} reasons: {ordered[0].reason}" if ordered else ", as there is none"
        raise ValueError(f"{source}: no row became a problem by the layout {_LAYOUT.value}{first}")
    write_jsonl(output, found.problems)
    print(summary(found.problems, found.rejects))
    if evaluation and not any(reject.what == "overlap" for reject in found.rejects):
        print(f"none of the problems is among the {len(evaluation)} of {', '.join(_AGAINST.value)}")
    if LAYOUTS[_LAYOUT.value].shuffles:
        print(f"choices shuffled with seed {_SEED.value}")
    print(f"records: {output}\nrejects: {rejects}")
    if _TFDS_DIR.value:
        import tensorflow_datasets  # an import of seconds that only this flag needs

        from scope_jax.data import tfds_problems

        tensorflow_datasets.disable_progress_bar()
        print(f"TFDS: {tfds_problems.prepare(found.problems, _TFDS_DIR.value, split=_SPLIT.value)}")


def main(_):
    if logging.get_verbosity() == logging.INFO:  # absl's default, which shows every library's chatter
        logging.set_verbosity(logging.WARNING)
    try:
        _run()
    except (OSError, ValueError) as error:
        raise SystemExit(f"convert: {error}") from error


if __name__ == "__main__":
    app.run(main)
