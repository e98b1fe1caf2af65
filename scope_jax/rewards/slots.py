r"""Verdicts on the device: finds the answer slots of a completion in its token ids and compares them with the key.

Where the answer stands (`scope_jax.verify.extract` follows the same table on the host):

| rule                | answer                                                                                         |
|---------------------|------------------------------------------------------------------------------------------------|
| main answer         | the last marker `\boxed{` or `Answer:` of the completion decides, whichever stands later       |
| `\boxed{...}`       | the text up to the brace that closes it; braces inside are counted, `\{` and `\}` are not; of  |
|                     | nested boxes, the inner one                                                                    |
| `Answer: ...`       | the text up to the end of the line                                                             |
| `[SUB-i ANSWER] ..` | the last such marker decides for slot i: text up to the end of the line or the next slot       |
|                     | marker                                                                                         |
| `[MAIN ANSWER] ...` | the same, for the main slot of a scaffolded completion                                         |
| a box inside a slot | the slot's answer is its last box                                                              |
| unfinished          | a deciding box that never closes, or a line cut by the length limit, is no answer: an earlier  |
|                     | marker never stands in for it                                                                  |
| no answer           | no marker, an unfinished one, or nothing but spaces, `$` and periods: WRONG                    |

The prompt never counts: tokens outside the mask are passed over, and a marker that begins in the prompt is none.
A slot is UNDECIDED when it does not end within WINDOW bytes, touches bytes that the token table is too narrow for, or
holds an escaped brace before its end.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Int8

from scope_jax.rewards.answers import UNDECIDED, WINDOW, WRONG, AnswerKey, compare
from scope_jax.rewards.bytes import ByteView, TokenBytes, bytes_at, token_lengths
from scope_jax.rewards.markers import ANSWER, BOX, BOX_TEXT, MAIN, MAIN_TEXT, last_markers


def _text_at(text: Array, pattern: bytes) -> Bool[Array, "R N"]:
    """True where the pattern begins."""
    padded = jnp.pad(text, ((0, 0), (0, len(pattern))))
    hits = [padded[:, i : i + text.shape[1]] == byte for i, byte in enumerate(pattern)]
    return jnp.all(jnp.stack(hits), axis=0)


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


def _windows(tokens, ends, table, places: Int[Array, "B K"]) -> ByteView:
    """The WINDOW bytes from each place on, as rows [B*K WINDOW]."""
    rows, slots = places.shape
    positions = (places[:, :, None] + jnp.arange(WINDOW)).reshape(rows, slots * WINDOW)
    view = bytes_at(tokens, ends, table, positions)
    return jax.tree.map(lambda x: x.reshape(rows * slots, WINDOW), view)


def _verdicts(view, start, stop, *, missing, unfinished, unknown, key) -> Int8[Array, "R"]:
    """Verdict of each window: WRONG without an answer, UNDECIDED where the text cannot be told, else the comparison."""
    touched = jnp.arange(WINDOW) <= stop[:, None]
    unknown |= jnp.any(view.unsure & touched, axis=1)
    verdict = jnp.where(unfinished, WRONG, compare(view.bytes, start, stop, key))
    verdict = jnp.where(unknown, UNDECIDED, verdict)
    return jnp.where(missing, WRONG, verdict).astype(jnp.int8)


@jax.jit
def verify_main(
    tokens: Int[Array, "B T"],
    mask: Bool[Array, "B T"],
    table: TokenBytes,
    key: AnswerKey,
    ended: Bool[Array, "B"] | None = None,
) -> Int8[Array, "B"]:
    """Verdict on each completion's main answer: WRONG, RIGHT or UNDECIDED.

    Args:
      tokens: token ids, prompt and padding included.
      mask: True on completion tokens.
      table: the bytes of each token.
      key: gold answers of shape [B], from `AnswerKey.from_strings(list of str)`.
      ended: False where the length limit cut the completion, so that its last line may be unfinished; all True if None.

    Raises:
      ValueError: the key is not one answer a row.
    """
    if key.mask.shape != tokens.shape[:1]:
        raise ValueError(f"Key of shape {key.mask.shape} for {tokens.shape[0]} rows: give one main answer a row.")
    ended = jnp.ones(tokens.shape[0], bool) if ended is None else ended
    lengths = token_lengths(tokens, mask, table)
    ends = jnp.cumsum(lengths, axis=1)
    last = last_markers(tokens, lengths, table.markers, BOX, 2)
    place = jnp.max(last, axis=1)
    boxed = last[:, BOX] >= last[:, ANSWER]
    view = _windows(tokens, ends, table, place[:, None])
    line_stop, line_cut, line_unknown = _line_end(view, view.bytes == ord("\n"), ended)
    text_stop = _first(~view.mask)
    start = jnp.zeros_like(place)
    box_stop, box_open, box_unknown = _box_end(view, start, text_stop)
    box_unknown |= box_open & (text_stop == WINDOW)
    return _verdicts(
        view,
        start,
        jnp.where(boxed, box_stop, line_stop),
        missing=place < 0,
        unfinished=jnp.where(boxed, box_open, line_cut),
        unknown=jnp.where(boxed, box_unknown, line_unknown),
        key=key,
    )


@jax.jit
def verify_slots(
    tokens: Int[Array, "B T"],
    mask: Bool[Array, "B T"],
    table: TokenBytes,
    key: AnswerKey,
    ended: Bool[Array, "B"] | None = None,
) -> Int8[Array, "B M1"]:
    """Verdict on each slot of scaffolded completions, the main answer last; WRONG on slots that a row does not have.

    Args:
      tokens: token ids, prompt and padding included.
      mask: True on completion tokens.
      table: the bytes of each token.
      key: gold answers of shape [B M+1], from `AnswerKey.from_strings(list of lists)`.
      ended: False where the length limit cut the completion, so that its last line may be unfinished; all True if None.

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
    lengths = token_lengths(tokens, mask, table)
    ends = jnp.cumsum(lengths, axis=1)
    last = jnp.roll(last_markers(tokens, lengths, table.markers, MAIN, slots), -1, axis=1)
    view = _windows(tokens, ends, table, last)
    stops = (view.bytes == ord("\n")) | _slot_marker_at(view.bytes)
    stop, cut, unknown = _line_end(view, stops, jnp.repeat(ended, slots))

    place = jnp.arange(WINDOW)
    boxes = _text_at(view.bytes, BOX_TEXT) & (place + len(BOX_TEXT) <= stop[:, None])
    boxed = jnp.any(boxes, axis=1)
    start = jnp.where(boxed, jnp.max(jnp.where(boxes, place, 0), axis=1) + len(BOX_TEXT), 0)
    box_stop, box_open, box_unknown = _box_end(view, start, stop)
    verdict = _verdicts(
        view,
        start,
        jnp.where(boxed & ~box_open, box_stop, stop),
        missing=last.reshape(-1) < 0,
        unfinished=jnp.where(boxed, box_open, cut),
        unknown=unknown | (boxed & box_unknown),
        key=jax.tree.map(lambda x: x.reshape(rows * slots, *x.shape[2:]), key),
    )
    return jnp.where(key.mask, verdict.reshape(rows, slots), WRONG).astype(jnp.int8)
