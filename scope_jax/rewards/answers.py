r"""Answers on the device: the gold key, and the comparison that decides only what is certain.

| verdict   | when                                                                                              |
|-----------|---------------------------------------------------------------------------------------------------|
| RIGHT     | both are of the forms of `scope_jax.verify.forms` and mean the same, or have the same spelling    |
| WRONG     | both are of these forms and differ, or there is no answer                                         |
| UNDECIDED | everything else: products in brackets, equations, numbers of more than 9 digits, other variables  |

The host's verifier decides by the same forms first, so that where the device decides, the host agrees.
"""

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Int8, UInt8

from scope_jax.rewards.canonical import is_any
from scope_jax.rewards.reading import Form, compare_forms, read_forms
from scope_jax.verify.numbers import OUTSIDE

WRONG, RIGHT, UNDECIDED = 0, 1, 2
WINDOW = 64  # bytes of text in which an answer must begin and end to be decided
LEAST_ROWS = 512  # answers that are read at once, at least: few compiled shapes


@flax.struct.dataclass
class AnswerKey:
    """Gold answers, one a row [B], or one a slot [B M+1] with the main answer last (written `...`)."""

    form: Form  # fields of shape [...] and more
    mask: Bool[Array, "..."]  # False on the slots that a shorter scaffold does not have

    @classmethod
    def from_strings(cls, answers: list[str] | list[list[str]], *, max_subs: int | None = None) -> "AnswerKey":
        """Reads gold answers.

        Args:
          answers: one main answer a row, or `[sub_1, ..., sub_m, main]` a row; m may differ between rows.
          max_subs: M, at least the largest m, which it is when None. A fixed M keeps one compiled shape.

        Raises:
          ValueError: there is no row, or a row is empty, has more than M sub-answers, or is not text.
        """
        if not answers:
            raise ValueError("AnswerKey.from_strings got no answers; give one row for each completion.")
        if all(isinstance(row, str) for row in answers):
            return cls(form=_read(answers), mask=jnp.ones(len(answers), bool))
        for number, row in enumerate(answers):
            if not (isinstance(row, (list, tuple)) and row and all(isinstance(answer, str) for answer in row)):
                raise ValueError(f"Row {number} of answers is {row!r}; give every row as [sub_1, ..., sub_m, main].")
        subs = max(len(row) - 1 for row in answers) if max_subs is None else max_subs
        slots: list[str | None] = []
        for number, row in enumerate(answers):
            if len(row) - 1 > subs:
                raise ValueError(f"Row {number} of answers has {len(row) - 1} sub-answers, over max_subs={subs}.")
            slots += [*row[:-1], *[None] * (subs + 1 - len(row)), row[-1]]
        shape = (len(answers), subs + 1)
        form = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), _read([slot or "" for slot in slots]))
        return cls(form=form, mask=jnp.asarray(np.array([slot is not None for slot in slots]).reshape(shape)))


def read_rows(rows: int) -> int:
    """The rows that so many answers are padded to before they are read: LEAST_ROWS, or twice that, or four times, ..."""
    return LEAST_ROWS * 2 ** max(0, (rows - 1) // LEAST_ROWS).bit_length()


def _read(answers: list[str]) -> Form:
    """The forms of gold answers; one that is longer than the window is not read."""
    text, length = np.zeros((len(answers), WINDOW), np.uint8), np.zeros(len(answers), np.int32)
    for row, answer in enumerate(answers):
        data = answer.encode(errors="replace")
        if len(data) <= WINDOW:
            text[row, : len(data)], length[row] = np.frombuffer(data, np.uint8), len(data)
    parts = []
    for first in range(0, len(answers), LEAST_ROWS):
        part, stop = text[first : first + LEAST_ROWS], length[first : first + LEAST_ROWS]
        more = LEAST_ROWS - len(part)
        part, stop = np.pad(part, ((0, more), (0, 0))), np.pad(stop, (0, more))
        parts.append(jax.device_get(read_forms(part, np.zeros_like(stop), stop)))
    return jax.tree.map(lambda *x: jnp.asarray(np.concatenate(x)[: len(answers)]), *parts)


def compare(
    text: UInt8[Array, "R N"], start: Int[Array, "R"], stop: Int[Array, "R"], form: Form, key: AnswerKey
) -> Int8[Array, "R"]:
    """Verdicts on the answers text[start:stop], by the table at the top of this file.

    Args:
      text: windows of N = WINDOW bytes.
      start: first byte of each answer.
      stop: one past its last byte.
      form: what `read_forms` made of them.
      key: gold answers, fields of shape [R].
    """
    same, different = compare_forms(form, key.form)
    place = jnp.arange(text.shape[1])
    inside = (place >= start[:, None]) & (place < stop[:, None])
    empty = ~jnp.any(inside & ~is_any(text, OUTSIDE + "."), axis=1)
    verdict = jnp.where(same, RIGHT, jnp.where(different, WRONG, UNDECIDED))
    return jnp.where(empty, WRONG, verdict).astype(jnp.int8)
