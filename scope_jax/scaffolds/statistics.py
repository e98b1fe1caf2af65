"""The paper's scaffold statistics: how many problems got a scaffold, and how long the scaffolds are."""

from collections.abc import Iterable, Sequence

from scope_jax.data.records import Problem

HEADER = ("data set", "problems", "built %", "mean", "max", "min")


def scaffold_statistics(problems: Iterable[Problem]) -> list[tuple]:
    """A row for each data set (`Problem.source`), in order of appearance, as `HEADER` names its columns.

    Mean, max and min are of the number of sub-questions over problems with a scaffold; None where there are none.
    """
    lengths: dict[str, list[int]] = {}
    for problem in problems:
        lengths.setdefault(problem.source or "-", []).append(len(problem.scaffold))
    rows = []
    for source, counts in lengths.items():
        built = [count for count in counts if count]
        mean = sum(built) / len(built) if built else None
        extremes = (max(built), min(built)) if built else (None, None)
        rows.append((source, len(counts), 100 * len(built) / len(counts), mean, *extremes))
    return rows


def statistics_table(rows: Sequence[tuple]) -> str:
    """The rows as a table to read, in Markdown."""
    cells = [
        (source, str(count), f"{built:.1f}", *(("-",) * 3 if mean is None else (f"{mean:.2f}", str(most), str(least))))
        for source, count, built, mean, most, least in rows
    ]
    widths = [max(map(len, column)) for column in zip(HEADER, *cells, strict=True)]
    lines = [HEADER, tuple("-" * width for width in widths), *cells]
    return "\n".join("| " + " | ".join(x.ljust(w) for x, w in zip(line, widths, strict=True)) + " |" for line in lines)
