"""What the layouts share: reading fields of a raw row, with errors that name them, and making the record."""

import re
from typing import Any

from scope_jax.data.records import Problem, RecordError, kind, parse_record, read_text


def as_object(row: Any, where: str) -> dict[str, Any]:
    """The row, if it is an object with named fields at all."""
    if not isinstance(row, dict):
        raise RecordError(where, "", f"is {kind(row)}; it must be an object with named fields")
    return row


def text(row: dict[str, Any], where: str, *names: str) -> str:
    """The text under the first of these names that the row has; names are spellings of one field.

    Raises:
      RecordError: none is there, it is no text or an empty one, or two of the names hold different values.
    """
    name = spelling(row, where, *names)
    return read_text(row, name, where, name).strip()


def spelling(row: dict[str, Any], where: str, *names: str) -> str:
    """Which of these names the row has; errors as for `text`."""
    present = [name for name in names if row.get(name) is not None]
    if not present:
        others = f"; {' or '.join(names[1:])} would do too" if names[1:] else ""
        raise RecordError(where, names[0], f"is missing{others}")
    for other in present[1:]:
        if row[other] != row[present[0]]:
            raise RecordError(where, other, f"differs from the field {present[0]!r}, which should mean the same")
    return present[0]


def whole_number(row: dict[str, Any], where: str, *names: str) -> int:
    """A whole number, given as one, as a float such as 27.0, or in digits that may start with zeros."""
    name = spelling(row, where, *names)
    value = row[name]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    digits = value.strip() if isinstance(value, str) else str(value)
    if isinstance(value, bool) or not re.fullmatch(r"[+-]?[0-9]{1,18}", digits):
        raise RecordError(where, name, f"is {value!r}, which is no whole number")
    return int(digits)


def identity(row: dict[str, Any], where: str, source: str, otherwise: str, *names: str) -> str:
    """An id from the row's own, where it has one: `source` goes before, as sets of one file may number alike."""
    present = any(row.get(name) not in (None, "") for name in names)
    return f"{source}-{text(row, where, *names)}" if present else otherwise


def record(where: str, **fields: Any) -> Problem:
    """Through the record parser, so that a converted problem passes what a loaded one must pass."""
    return parse_record(fields, where)


_FIGURE = re.compile(r"!\[[^\]]*\]\(|\\includegraphics|<image_\d+>")


def refuse_figures(problem: str, where: str, field: str) -> None:
    """Raises a RecordError for a problem that shows a picture, which a record cannot hold."""
    found = _FIGURE.search(problem)
    if found:
        raise RecordError(where, field, f"shows a picture ({found.group()}...), which a record cannot hold")


def shown(value: str) -> str:
    """A value in messages, cut to a readable length."""
    return repr(value if len(value) <= 80 else f"{value[:77]}...")


def only(values: Any, where: str, field: str) -> Any:
    """The only element of a list."""
    if not isinstance(values, list) or len(values) != 1:
        raise RecordError(where, field, f"is {shown(str(values))}; expected a list of one")
    return values[0]
