"""Numbers and Markdown tables, for people."""


def percent(share: float | None) -> str:
    """A share as a percentage; `-` where there is none."""
    return "-" if share is None else f"{100 * share:.1f}"


def number(value: float | None, digits: int) -> str:
    """A number with so many decimals; `-` where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table whose columns line up."""
    widths = [max(len(line[i]) for line in [head, *rows]) for i in range(len(head))]
    lines = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in [head, *rows]]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
