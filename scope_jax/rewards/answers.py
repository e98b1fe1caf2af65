r"""Answers on the device: their canonical form, and the comparison that decides only what is certain.

A number is text of the forms of `scope_jax.verify.numbers` whose numerator and denominator stay below LIMIT before they
are reduced (k decimal places count as a denominator of 10^k).

| verdict   | when                                                                                        |
|-----------|---------------------------------------------------------------------------------------------|
| RIGHT     | both are such numbers and equal, or both texts are the same bytes (then any reading agrees) |
| WRONG     | both are such numbers and differ, or there is no answer                                     |
| UNDECIDED | everything else: `\sqrt{4}`, `5 apples`, `50\%`, `1e3`, a zero denominator, large numbers   |
"""

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Int8, UInt8

from scope_jax.verify.numbers import OUTSIDE, parse_number, trim_answer

WRONG, RIGHT, UNDECIDED = 0, 1, 2
WINDOW = 64  # bytes of text in which an answer must begin and end to be decided
LIMIT = 10**9  # every step of the reader stays below it, hence within int32


@flax.struct.dataclass
class AnswerKey:
    """Canonical gold answers, one a row [B], or one a slot [B M+1] with the main answer last (written `...`)."""

    numerator: Int[Array, "..."]
    denominator: Int[Array, "..."]  # 0: not a number that the device reads
    text: UInt8[Array, "... N"]
    length: Int[Array, "..."]  # bytes of text; 0: too long to compare
    mask: Bool[Array, "..."]  # False on the slots that a shorter scaffold does not have

    @classmethod
    def from_strings(cls, answers: list[str] | list[list[str]], *, max_subs: int | None = None) -> "AnswerKey":
        """Canonical form of gold answers.

        Args:
          answers: one main answer a row, or `[sub_1, ..., sub_m, main]` a row; m may differ between rows.
          max_subs: M, at least the largest m, which it is when None. A fixed M keeps one compiled shape.

        Raises:
          ValueError: there is no row, or a row is empty, has more than M sub-answers, or is not text.
        """
        if not answers:
            raise ValueError("AnswerKey.from_strings got no answers; give one row for each completion.")
        if all(isinstance(row, str) for row in answers):
            parts = [_canonical(answer) for answer in answers]
            return cls(*(jnp.asarray(np.array(part)) for part in zip(*parts, strict=True)))
        for number, row in enumerate(answers):
            if not (isinstance(row, (list, tuple)) and row and all(isinstance(answer, str) for answer in row)):
                raise ValueError(f"Row {number} of answers is {row!r}; give every row as [sub_1, ..., sub_m, main].")
        subs = max(len(row) - 1 for row in answers) if max_subs is None else max_subs
        rows = []
        for number, row in enumerate(answers):
            if len(row) - 1 > subs:
                raise ValueError(f"Row {number} of answers has {len(row) - 1} sub-answers, over max_subs={subs}.")
            slots = [*row[:-1], *[None] * (subs + 1 - len(row)), row[-1]]
            parts = zip(*map(_canonical, slots), strict=True)
            rows.append([np.array(part) for part in parts])
        return cls(*(jnp.asarray(np.stack(part)) for part in zip(*rows, strict=True)))


def _canonical(answer: str | None) -> tuple[np.int32, np.int32, np.ndarray, np.int32, bool]:
    """The fields of one slot of an `AnswerKey`; None is a slot that does not exist."""
    text = trim_answer(answer or "").encode()
    value = parse_number(answer or "")
    if value is None or abs(value.numerator) >= LIMIT or value.denominator >= LIMIT:
        numerator, denominator = 0, 0
    else:
        numerator, denominator = value.numerator, value.denominator
    row = np.zeros(WINDOW, np.uint8)
    length = len(text) if len(text) <= WINDOW else 0
    row[:length] = np.frombuffer(text[:length], np.uint8)
    return np.int32(numerator), np.int32(denominator), row, np.int32(length), answer is not None


def _is_any(text: UInt8[Array, "..."], characters: str) -> Bool[Array, "..."]:
    return jnp.isin(text, jnp.array(list(characters.encode()), jnp.uint8))


def _shift(text: UInt8[Array, "R N"], by: Int[Array, "R"]) -> UInt8[Array, "R N"]:
    """Rows moved left by `by`; what comes in from the right is arbitrary, the caller knows the length."""
    index = jnp.arange(text.shape[1]) + by[:, None]
    return jnp.take_along_axis(text, jnp.clip(index, 0, text.shape[1] - 1), axis=1)


def trim(
    text: UInt8[Array, "R N"], start: Int[Array, "R"], stop: Int[Array, "R"]
) -> tuple[UInt8[Array, "R N"], Int[Array, "R"]]:
    """Drops what does not belong to an answer at both ends of text[start:stop]; left aligned rows and lengths."""
    place = jnp.arange(text.shape[1])
    inside = (place >= start[:, None]) & (place < stop[:, None])
    opens = inside & ~_is_any(text, OUTSIDE)
    closes = inside & ~_is_any(text, OUTSIDE + ".")
    first = jnp.argmax(opens, axis=1)
    last = jnp.max(jnp.where(closes, place, -1), axis=1)
    length = jnp.maximum(last - first + 1, 0)
    row = _shift(text, first)
    return jnp.where(place < length[:, None], row, 0), length


# Where the reader stands: before any of `. / }`; after the point; in the denominator; between `}` and `{`; past it all.
_WHOLE, _POINT, _BOTTOM, _BETWEEN, _PAST = range(5)


def _read_character(state, column, *, latex):
    """One step of the number reader: all rows take in the character of one column."""
    character, active = column
    phase, count, group, commas = state["phase"], state["count"], state["group"], state["commas"]
    digit = character.astype(jnp.int32) - ord("0")
    is_digit = (digit >= 0) & (digit <= 9) & (phase <= _BOTTOM)
    started = count > 0
    plain_whole = (phase == _WHOLE) & ~latex & started
    whole_groups = ~commas | (group == 3)
    leading = jnp.where(commas, group == 3, (group <= 3) & ~state["zero_first"])
    comma = (character == ord(",")) & plain_whole & leading
    point = (character == ord(".")) & (phase == _WHOLE) & ~latex & whole_groups
    slash = (character == ord("/")) & plain_whole & ~commas
    brace = (character == ord("}")) & latex & started & ((phase == _WHOLE) | (phase == _BOTTOM))
    opening = (character == ord("{")) & (phase == _BETWEEN)
    minus = (character == ord("-")) & latex & (phase == _WHOLE) & ~started & ~state["minus"]

    top, bottom = state["top"], state["bottom"]
    in_top, in_bottom = is_digit & (phase <= _POINT), is_digit & (phase == _BOTTOM)
    too_large = (in_top & (top >= LIMIT // 10)) | (in_bottom & (bottom >= LIMIT // 10))
    after_point = is_digit & (phase == _POINT)
    too_large |= after_point & (bottom >= LIMIT // 10)
    new = {
        "top": jnp.where(in_top & ~too_large, top * 10 + digit, top),
        "bottom": jnp.where(in_bottom & ~too_large, bottom * 10 + digit, bottom),
        "phase": jnp.select(
            [point, slash | opening, brace & (phase == _WHOLE), brace], [_POINT, _BOTTOM, _BETWEEN, _PAST], phase
        ),
        "count": jnp.where(point | slash | opening, 0, count + is_digit),
        "group": jnp.where(comma, 0, group + is_digit),
        "commas": commas | comma,
        "zero_first": jnp.where((phase == _WHOLE) & is_digit & ~started, digit == 0, state["zero_first"]),
        "minus": state["minus"] | minus,
        "bad": state["bad"] | too_large | ~(is_digit | comma | point | slash | brace | opening | minus),
    }
    # The denominator starts at 1 for the decimal places, at 0 for the digits of a fraction.
    new["bottom"] = jnp.where(after_point & ~too_large, bottom * 10, new["bottom"])
    new["bottom"] = jnp.where(slash | opening, 0, new["bottom"])
    return {name: jnp.where(active, new[name], state[name]) for name in state}, None


def read_numbers(text: UInt8[Array, "R N"], length: Int[Array, "R"]) -> tuple[Int[Array, "R"], Int[Array, "R"]]:
    """Exact values of left aligned, trimmed answers: reduced numerators, and denominators (0: not read as a number)."""
    dash = (text[:, 0] == ord("-")) | (text[:, 0] == ord("+"))
    unicode_minus = jnp.all(text[:, :3] == jnp.array([0xE2, 0x88, 0x92], jnp.uint8), axis=1)
    negative = (text[:, 0] == ord("-")) | unicode_minus
    signs = jnp.where(unicode_minus, 3, dash.astype(jnp.int32))
    text = _shift(text, signs)
    style = jnp.all(text[:, :6] == jnp.array(list(b"\\frac{"), jnp.uint8), axis=1)
    sized = (text[:, 0] == ord("\\")) & _is_any(text[:, 1], "dt")
    sized &= jnp.all(text[:, 2:7] == jnp.array(list(b"frac{"), jnp.uint8), axis=1)
    opening = jnp.where(sized, 7, jnp.where(style, 6, 0))
    text, length = _shift(text, opening), length - signs - opening

    rows = text.shape[0]
    zero, no = jnp.zeros(rows, jnp.int32), jnp.zeros(rows, bool)
    state = dict(top=zero, bottom=zero + 1, phase=zero, count=zero, group=zero)
    state |= dict(commas=no, zero_first=no, minus=no, bad=no)
    active = jnp.arange(text.shape[1])[:, None] < length
    latex = style | sized
    state, _ = jax.lax.scan(lambda s, c: _read_character(s, c, latex=latex), state, (text.T, active))

    phase = state["phase"]
    finished = jnp.where(latex, phase == _PAST, (phase <= _BOTTOM) & (state["count"] > 0))
    finished &= ~((phase == _WHOLE) & state["commas"] & (state["group"] != 3))
    read = finished & ~state["bad"]
    divisor = jnp.maximum(jnp.gcd(state["top"], state["bottom"]), 1)
    top = jnp.where(negative ^ state["minus"], -state["top"], state["top"])
    return jnp.where(read, jnp.sign(top) * (jnp.abs(top) // divisor), 0), jnp.where(read, state["bottom"] // divisor, 0)


def compare(
    text: UInt8[Array, "R N"], start: Int[Array, "R"], stop: Int[Array, "R"], key: AnswerKey
) -> Int8[Array, "R"]:
    """Verdicts on the answers text[start:stop], by the table at the top of this file.

    Args:
      text: windows of N = WINDOW bytes.
      start: first byte of each answer.
      stop: one past its last byte.
      key: gold answers, fields of shape [R].
    """
    text, length = trim(text, start, stop)
    numerator, denominator = read_numbers(text, length)
    numbers = (denominator > 0) & (key.denominator > 0)
    equal = (numerator == key.numerator) & (denominator == key.denominator)
    same_text = (length == key.length) & jnp.all(text == key.text, axis=1)
    verdict = jnp.where(numbers, jnp.where(equal, RIGHT, WRONG), jnp.where(same_text, RIGHT, UNDECIDED))
    return jnp.where(length == 0, WRONG, verdict).astype(jnp.int8)
