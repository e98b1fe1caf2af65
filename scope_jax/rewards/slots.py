r"""Verdicts on the device: finds the answer slots of a completion in its token ids and compares them with the key.

Where the answer stands (`scope_jax.verify.extract` follows the same table on the host):

| rule                | answer                                                                                         |
|---------------------|------------------------------------------------------------------------------------------------|
| thinking            | only text after the last `</think>` counts; a `<think>` behind it, so one that never closes,   |
|                     | leaves no answer                                                                               |
| main answer         | the last marker, `\boxed{` or `Answer:`, decides, whichever stands later; with `box="first"`   |
|                     | the first box, and an `Answer:` line only where there is no box                                |
| `\boxed{...}`       | the text up to the brace that closes it; braces inside are counted, `\{` and `\}` are not; of  |
|                     | nested boxes, the inner one; `\boxed {...}` is the same                                        |
| `Answer: ...`       | the text up to the end of the line, without the asterisks of bold type around it;              |
|                     | `**Answer**: ...` is the same                                                                  |
| `[SUB-i ANSWER] ..` | the last such marker decides for slot i: text up to the end of the line or the next slot       |
|                     | marker, without asterisks around it                                                            |
| `[MAIN ANSWER] ...` | the same, for the main slot of a scaffolded completion                                         |
| a box inside a slot | the slot's answer is its last box; with `box="first"` its first                                |
| unfinished          | a deciding box that never closes, or a line cut by the length limit, is no answer: an earlier  |
|                     | marker never stands in for it                                                                  |
| no answer           | no marker, an unfinished one, or nothing but spaces, `$` and periods: as bad as a wrong one    |

The prompt never counts: tokens outside the mask are passed over, and a marker that begins in the prompt is none.
A slot is UNDECIDED when it does not end within WINDOW bytes, touches bytes that the token table is too narrow for,
holds an escaped brace before its end, or, where the first box counts, a nested box.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Int8, UInt8

from scope_jax.rewards.answers import UNDECIDED, WINDOW, WRONG, AnswerKey, compare, read_rows
from scope_jax.rewards.bytes import ByteView, TokenBytes, bytes_at, token_lengths
from scope_jax.rewards.markers import ANSWER, BOX, BOX_TEXTS, MAIN, MAIN_TEXT, THINK, last_markers
from scope_jax.rewards.reading import Form, read_forms


def _text_at(text: Array, pattern: bytes) -> Bool[Array, "R N"]:
    """True where the pattern begins."""
    padded = jnp.pad(text, ((0, 0), (0, len(pattern))))
    hits = [padded[:, i : i + text.shape[1]] == byte for i, byte in enumerate(pattern)]
    return jnp.all(jnp.stack(hits), axis=0)


def _content_at(text: Array) -> Bool[Array, "R N"]:
    """True where the content of a box begins."""
    size = text.shape[1]
    starts = [jnp.pad(_text_at(text, box), ((0, 0), (len(box), 0)))[:, :size] for box in BOX_TEXTS]
    return functools.reduce(jnp.logical_or, starts)


def _slot_marker_at(text: Array) -> Bool[Array, "R N"]:
    """True where `[MAIN ANSWER]` or `[SUB-i ANSWER]` begins, with any i of one or two digits."""
    digit = jnp.pad((text >= ord("0")) & (text <= ord("9")), ((0, 0), (0, 7)))
    tail = jnp.pad(_text_at(text, b" ANSWER]"), ((0, 0), (0, 7)))
    size = text.shape[1]
    one = digit[:, 5 : 5 + size] & tail[:, 6 : 6 + size]
    two = digit[:, 5 : 5 + size] & digit[:, 6 : 6 + size] & tail[:, 7 : 7 + size]
    return _text_at(text, MAIN_TEXT) | (_text_at(text, b"[SUB-") & (one | two))


def _first(condition: Bool[Array, "R N"]) -> Int[Array, "R"]:
    """Index of the first True; N where there is none."""
    return jnp.where(jnp.any(condition, axis=1), jnp.argmax(condition, axis=1), condition.shape[1])


def _line_end(view: ByteView, stops: Bool[Array, "R N"], ended: Bool[Array, "R"]):
    """Where the slot that begins at column 0 stops, whether it is unfinished, and whether that cannot be told."""
    size = view.mask.shape[1]
    stop = _first(stops | ~view.mask)
    cut = (stop < size) & ~jnp.take_along_axis(view.mask, jnp.minimum(stop, size - 1)[:, None], axis=1)[:, 0] & ~ended
    return stop, cut, stop == size


def _without_bold(text: Array, stop: Int[Array, "R"]) -> tuple[Int[Array, "R"], Int[Array, "R"]]:
    """First column and one past the last of text[:stop] without the asterisks, spaces and periods around it."""
    place = jnp.arange(text.shape[1])
    inside, around = place < stop[:, None], jnp.isin(text, jnp.array(list(b" \t\r*"), jnp.uint8))
    last = jnp.max(jnp.where(inside & ~around & (text != ord(".")), place, -1), axis=1)
    return jnp.minimum(_first(inside & ~around), stop), last + 1


def _box_end(view: ByteView, start: Int[Array, "R"], limit: Int[Array, "R"]):
    """Where the box whose content begins at `start` closes, whether it is unfinished, and whether that cannot be told.

    Args:
      view: windows of text.
      start: first column of the content.
      limit: column at which the text, the slot or the window stops; a window that stops first leaves it open.
    """
    text, place = view.bytes, jnp.arange(view.bytes.shape[1])
    inside = (place >= start[:, None]) & (place < limit[:, None])
    opens, closes = inside & (text == ord("{")), inside & (text == ord("}"))
    depth = 1 + jnp.cumsum(opens.astype(jnp.int32) - closes, axis=1)
    stop = _first(closes & (depth == 0))
    # `\{` is no brace of the box and `\\}` is: the host tells them apart.
    escaped = _first((opens | closes) & (jnp.pad(text, ((0, 0), (1, 0)))[:, :-1] == ord("\\")))
    closed = stop < text.shape[1]
    return stop, ~closed, escaped < jnp.where(closed, stop + 1, text.shape[1])


def _after_thinking(last: Int[Array, "B K"], think: int) -> Int[Array, "B K"]:
    """The places of markers that count: -1 before the end of the thinking, and in a row whose thinking never ends.

    Args:
      last: byte places of all kinds, as `last_markers` gives them.
      think: column of the kind THINK; THOUGHT is the next.
    """
    opened, closed = last[:, think, None], last[:, think + 1, None]
    return jnp.where((last > closed) & (opened <= closed), last, -1)


def _windows(tokens, ends, table, places: Int[Array, "B K"]) -> ByteView:
    """The WINDOW bytes from each place on, as rows [B*K WINDOW]."""
    rows, slots = places.shape
    positions = (places[:, :, None] + jnp.arange(WINDOW)).reshape(rows, slots * WINDOW)
    view = bytes_at(tokens, ends, table, positions)
    return jax.tree.map(lambda x: x.reshape(rows * slots, WINDOW), view)


class Found(NamedTuple):
    """Answers found in windows, R of them, and what is known of each before it is read."""

    text: UInt8[Array, "R2 N"]  # padded to `read_rows(R)` rows, as are start and stop
    start: Int[Array, "R2"]
    stop: Int[Array, "R2"]
    missing: Bool[Array, "R"]  # no marker
    unfinished: Bool[Array, "R"]  # a marker, and no whole answer behind it
    unknown: Bool[Array, "R"]  # the text cannot be told


def _found(view, start, stop, *, touched, missing, unfinished, unknown) -> Found:
    """`touched` is the last column that start and stop depend on."""
    unknown |= jnp.any(view.unsure & (jnp.arange(WINDOW) <= touched[:, None]), axis=1)
    more = read_rows(len(start)) - len(start)
    text, start, stop = jnp.pad(view.bytes, ((0, more), (0, 0))), jnp.pad(start, (0, more)), jnp.pad(stop, (0, more))
    return Found(text, start, stop, missing, unfinished, unknown)


def _verdicts(found: Found, key: AnswerKey) -> Int8[Array, "R"]:
    """Verdict of each window: WRONG without an answer, UNDECIDED where the text cannot be told, else the comparison.

    The reader is a program of its own, for rows in steps: all callers of a size share it, and it takes long to compile.
    """
    return _judge(found, read_forms(found.text, found.start, found.stop), key)


@jax.jit
def _judge(found: Found, form: Form, key: AnswerKey) -> Int8[Array, "R"]:
    rows = len(found.missing)
    text, start, stop, form = jax.tree.map(lambda x: x[:rows], (found.text, found.start, found.stop, form))
    key = jax.tree.map(lambda x: x.reshape(rows, *x.shape[key.mask.ndim :]), key)
    verdict = jnp.where(found.unfinished, WRONG, compare(text, start, stop, form, key))
    verdict = jnp.where(found.unknown, UNDECIDED, verdict)
    return jnp.where(found.missing, WRONG, verdict).astype(jnp.int8)


def verify_main(
    tokens: Int[Array, "B T"],
    mask: Bool[Array, "B T"],
    table: TokenBytes,
    key: AnswerKey,
    ended: Bool[Array, "B"] | None = None,
    *,
    box: str = "last",
) -> Int8[Array, "B"]:
    """Verdict on each completion's main answer: WRONG, RIGHT or UNDECIDED.

    Args:
      tokens: token ids, prompt and padding included.
      mask: True on completion tokens.
      table: the bytes of each token.
      key: gold answers of shape [B], from `AnswerKey.from_strings(list of str)`.
      ended: False where the length limit cut the completion, so that its last line may be unfinished; all True if None.
      box: "last" or "first": which of several boxes counts.

    Raises:
      ValueError: the key is not one answer a row.
    """
    if key.mask.shape != tokens.shape[:1]:
        raise ValueError(f"Key of shape {key.mask.shape} for {tokens.shape[0]} rows: give one main answer a row.")
    ended = jnp.ones(tokens.shape[0], bool) if ended is None else ended
    return _verdicts(_find_main(tokens, mask, table, ended, box=box), key)


@functools.partial(jax.jit, static_argnames="box")
def _find_main(tokens, mask, table, ended, *, box) -> Found:
    """The text that the main answers are read from."""
    lengths = token_lengths(tokens, mask, table)
    ends = jnp.cumsum(lengths, axis=1)
    last = last_markers(tokens, lengths, table.markers, slice(BOX, MAIN), first_box=box == "first")
    last = _after_thinking(last, THINK)
    boxed = last[:, BOX] >= (0 if box == "first" else last[:, ANSWER])
    place = jnp.where(boxed, last[:, BOX], last[:, ANSWER])
    view = _windows(tokens, ends, table, place[:, None])
    line_stop, line_cut, line_unknown = _line_end(view, view.bytes == ord("\n"), ended)
    text_stop = _first(~view.mask)
    line_start, line_end = _without_bold(view.bytes, line_stop)
    box_stop, box_open, box_unknown = _box_end(view, jnp.zeros_like(place), text_stop)
    box_unknown |= box_open & (text_stop == WINDOW)
    if box == "first":
        box_unknown |= jnp.any(_content_at(view.bytes) & (jnp.arange(WINDOW) <= box_stop[:, None]), axis=1)
    return _found(
        view,
        jnp.where(boxed, 0, line_start),
        jnp.where(boxed, box_stop, line_end),
        touched=jnp.where(boxed, box_stop, line_stop),
        missing=place < 0,
        unfinished=jnp.where(boxed, box_open, line_cut),
        unknown=jnp.where(boxed, box_unknown, line_unknown),
    )


def verify_slots(
    tokens: Int[Array, "B T"],
    mask: Bool[Array, "B T"],
    table: TokenBytes,
    key: AnswerKey,
    ended: Bool[Array, "B"] | None = None,
    *,
    box: str = "last",
) -> Int8[Array, "B M1"]:
    """Verdict on each slot of scaffolded completions, the main answer last; WRONG on slots that a row does not have.

    Args:
      tokens: token ids, prompt and padding included.
      mask: True on completion tokens.
      table: the bytes of each token.
      key: gold answers of shape [B M+1], from `AnswerKey.from_strings(list of lists)`.
      ended: False where the length limit cut the completion, so that its last line may be unfinished; all True if None.
      box: "last" or "first": which of several boxes counts.

    Raises:
      ValueError: the key is not of shape [B M+1], or M is more than the table's `max_subs`.
    """
    if key.mask.ndim != 2 or key.mask.shape[0] != tokens.shape[0]:
        raise ValueError(f"Key of shape {key.mask.shape} for {tokens.shape[0]} rows: give [sub_1, ..., main] a row.")
    rows, slots = key.mask.shape
    if MAIN + slots > table.markers.marker_end.shape[2]:
        largest = table.markers.marker_end.shape[2] - MAIN - 1
        raise ValueError(f"{slots - 1} sub-answers, but the table finds {largest}: raise max_subs of from_tokenizer.")
    ended = jnp.ones(rows, bool) if ended is None else ended
    verdict = _verdicts(_find_slots(tokens, mask, table, ended, slots=slots, box=box), key)
    return jnp.where(key.mask, verdict.reshape(rows, slots), WRONG).astype(jnp.int8)


@functools.partial(jax.jit, static_argnames=("slots", "box"))
def _find_slots(tokens, mask, table, ended, *, slots, box) -> Found:
    """The text that the slots' answers are read from, row by row."""
    lengths = token_lengths(tokens, mask, table)
    ends = jnp.cumsum(lengths, axis=1)
    last = _after_thinking(last_markers(tokens, lengths, table.markers, slice(THINK, MAIN + slots)), 0)
    last = jnp.roll(last[:, MAIN - THINK :], -1, axis=1)
    view = _windows(tokens, ends, table, last)
    stops = (view.bytes == ord("\n")) | _slot_marker_at(view.bytes)
    stop, cut, unknown = _line_end(view, stops, jnp.repeat(ended, slots))

    place = jnp.arange(WINDOW)
    boxes = _content_at(view.bytes) & (place <= stop[:, None])
    boxed = jnp.any(boxes, axis=1)
    box_start = _first(boxes) if box == "first" else jnp.max(jnp.where(boxes, place, 0), axis=1)
    box_stop, box_open, box_unknown = _box_end(view, box_start, stop)
    if box == "first":
        box_unknown |= jnp.any(boxes & (place > box_start[:, None]) & (place <= box_stop[:, None]), axis=1)
    closed = boxed & ~box_open
    line_start, line_end = _without_bold(view.bytes, stop)
    return _found(
        view,
        jnp.where(boxed, box_start, line_start),
        jnp.where(closed, box_stop, line_end),
        touched=jnp.where(closed, box_stop, stop),
        missing=last.reshape(-1) < 0,
        unfinished=jnp.where(boxed, box_open, cut),
        unknown=unknown | (boxed & box_unknown),
    )
