r"""Where a completion is cut into reasoning steps, on the host and, by the same rules, on the device.

| rule           | what it says                                                                                      |
|----------------|---------------------------------------------------------------------------------------------------|
| paragraph      | blank lines part steps                                                                            |
| long paragraph | one of more than `LONG_STEP` bytes is cut at its sentence ends too: `.`, `!` or `?` and white     |
|                | space, but not after the number of a list item                                                    |
| block          | nothing is cut inside a block: a code fence (lines that begin with three or more backticks or     |
|                | tildes; the closing line holds nothing else), `$$ ... $$`, `\[ ... \]`, or an environment of      |
|                | `ENVIRONMENTS`, starred or not. `\\[` and `\$$` open nothing                                       |
| nested         | brackets and environments nest, without a look at their names                                     |
| unclosed       | an opener without its closer is ordinary text, whatever comes after it                            |
| pairs          | fences and `$$` pair in order, each kind for itself, and where they cannot, pairing starts anew at |
|                | the second: over more than `LONG_BLOCK` bytes; where the second fence has text behind it; where a |
|                | blank line follows the first and none the second, as between two blocks                           |
| limit          | steps past `max_steps` are merged into the last one, never dropped                                |

All rules are ours; the paper leaves the cutting to its judge.
"""

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int

from scope_jax.rewards.bytes import ByteView, lower_case
from scope_jax.rewards.equations import enumerators
from scope_jax.rewards.scans import at, is_any, last_true, next_true, shift, span_keys, text_key, window_keys

LONG_STEP = 320  # bytes; a longer paragraph is cut at its sentence ends
LONG_BLOCK = 2048  # bytes; fences and `$$` further apart are no pair, so that a stray one swallows no more
ENVIRONMENTS = (
    "equation", "align", "alignat", "flalign", "gather", "multline", "eqnarray", "displaymath", "aligned", "alignedat",
    "gathered", "split", "array", "cases", "matrix", "pmatrix", "bmatrix", "vmatrix", "smallmatrix", "tabular",
    "verbatim", "lstlisting",
)  # fmt: skip

_WORD = re.compile(rb"[^ \t\r\n]+")
_FENCE = re.compile(rb"^[ \t]*(?P<run>(?P<mark>[`~])(?P=mark){2,})(?P<rest>[^\n]*)", re.MULTILINE)
_NAMES = "|".join(ENVIRONMENTS).encode()
_LATEX = re.compile(
    rb"(?P<slashes>\\+)(?:(?P<open>\[|begin\{(?:%b)\*?\})|(?P<close>\]|end\{(?:%b)\*?\}))?|(?P<dollars>\$+)"
    % (_NAMES, _NAMES)
)
_BLANK_LINE = re.compile(rb"[ \t\r]*\n[ \t\r]*\n|[ \t\r\n]*\Z")  # or nothing more


class _Mark(NamedTuple):
    """A fence or `$$`."""

    end: int
    closes: bool  # it may end a block
    parts: bool  # a blank line follows, or nothing


def segment_text(text: str, *, max_steps: int) -> list[tuple[int, int]]:
    """Cuts a completion into steps by the rules above.

    Args:
      text: the completion, without its prompt.
      max_steps: most steps that it may have.

    Returns:
      (start, end) of each step, in bytes of `text.encode()`; a step begins and ends with a byte that is no white space,
      and no such byte lies between two steps. Cuts never part a character: a slice of the bytes decodes as it is.

    Raises:
      ValueError: `max_steps` is below 1.
    """
    return segment_bytes(text.encode(), max_steps=max_steps)


def segment_bytes(data: bytes, *, max_steps: int) -> list[tuple[int, int]]:
    """`segment_text` for bytes as tokens spell them, which need not be UTF-8."""
    if max_steps < 1:
        raise ValueError(f"max_steps is {max_steps}; it must be at least 1")
    words = [word.span() for word in _WORD.finditer(data)]
    blocks, reach = sorted(_blocks(data.lower()), reverse=True), -1
    paragraphs, sentences = [], []  # indices of the words that begin one
    for i, (start, _) in enumerate(words):
        while blocks and blocks[-1][0] < start:
            reach = max(reach, blocks.pop()[1])
        before = words[i - 1][1] if i else 0
        if i == 0 or (start > reach and data.count(b"\n", before, start) >= 2):
            paragraphs.append(i)
        elif start > reach and data[before - 1] in b".!?" and not _numbers_an_item(data, before - 1):
            sentences.append(i)
    cuts = sorted([*paragraphs, *_of_long_paragraphs(sentences, paragraphs, words, len(data))])[:max_steps]
    return [(words[a][0], words[b - 1][1]) for a, b in itertools.pairwise([*cuts, len(words)])]


def _of_long_paragraphs(sentences: list[int], paragraphs: list[int], words: list, size: int) -> Iterator[int]:
    """The sentences that stand in a paragraph of more than `LONG_STEP` bytes."""
    starts = [words[i][0] for i in paragraphs] + [size]
    at = 0
    for i in sentences:
        while at + 1 < len(paragraphs) and paragraphs[at + 1] < i:
            at += 1
        if starts[at + 1] - starts[at] > LONG_STEP:
            yield i


def _numbers_an_item(data: bytes, period: int) -> bool:
    """Whether the period ends the number of a list item, as in `2. `."""
    digits = period
    while digits > 0 and data[digits - 1] in b"0123456789":
        digits -= 1
    start = digits
    while start > 0 and data[start - 1] in b" \t*#":
        start -= 1
    at_line_start = start == 0 or data[start - 1] == ord("\n")
    return digits < period and data[period] == ord(".") and at_line_start and data[period + 1] in b" \t\n\0"


def _blocks(data: bytes) -> Iterator[tuple[int, int]]:
    """(opener, closer) of each block of lower-case text: no step begins behind the one and up to the other."""
    fences = {b"`": [], b"~": []}
    for line in _FENCE.finditer(data):
        if line["mark"] not in line["rest"]:
            bare = not line["rest"].strip(b" \t\r")
            fences[line["mark"]].append(_Mark(line.end("run"), bare, _parts(data, line.end("run"))))
    dollars, openers, escaped = [], [], -1
    for found in _LATEX.finditer(data):
        if found["dollars"]:
            if found["dollars"] == b"$$" and found.start() != escaped:
                dollars.append(_Mark(found.end(), True, _parts(data, found.end())))
        elif len(found["slashes"]) % 2:  # an even number stands for line breaks
            escaped = found.end("slashes")
            if found["open"]:
                openers.append(found.start())
            elif found["close"] and openers:
                yield openers.pop(), found.start()
    for marks in (fences[b"`"], fences[b"~"], dollars):
        yield from _pairs(marks)


def _pairs(marks: list[_Mark]) -> Iterator[tuple[int, int]]:
    """Marks of one kind, paired in order."""
    opener = None
    for mark in marks:
        near = opener is not None and mark.end - opener.end <= LONG_BLOCK
        if near and mark.closes and (mark.parts or not opener.parts):
            yield opener.end, mark.end
            opener = None
        else:
            opener = mark


def _parts(data: bytes, end: int) -> bool:
    return _BLANK_LINE.match(data, end) is not None


# The same on the device.


def segment_steps(view: ByteView, *, max_steps: int) -> tuple[Int[Array, "B S"], Int[Array, "B"]]:
    """Cuts each completion into steps by the rules above, without a loop over its bytes.

    Args:
      view: the completion's bytes, left aligned.
      max_steps: most steps a completion may have.

    Returns:
      Step of each byte, from 0, -1 on padding and on white space before the first step; and the number of steps. White
      space belongs to the step before it.
    """
    lower = lower_case(view)
    solid = view.mask & ~is_any(lower, " \t\r\n")
    previous = shift(last_true(solid), -1).at[:, 0].set(-1)  # the nearest solid byte before each place
    newlines = jnp.cumsum(lower == ord("\n"), axis=1)
    command = _commands(lower)
    inside = _inside_brackets(lower, command) | _inside_pairs(lower, view.mask, solid, newlines, command)
    paragraph = solid & ~inside & ((previous < 0) | (newlines - at(newlines, previous) >= 2))

    start = last_true(paragraph)
    size = jnp.sum(view.mask, axis=1, keepdims=True)
    following = jnp.minimum(shift(next_true(paragraph), 1).at[:, -1].set(view.mask.shape[1]), size)
    place = jnp.arange(view.mask.shape[1])
    ended = is_any(at(lower, previous), ".!?") & (place - previous > 1) & ~at(enumerators(lower), previous - 1)
    starts = paragraph | (solid & ~inside & ended & (following - start > LONG_STEP))

    ids = jnp.minimum(jnp.cumsum(starts, axis=1), max_steps) - 1
    return jnp.where(view.mask, ids, -1), jnp.minimum(jnp.sum(starts, axis=1), max_steps)


def _commands(lower) -> Bool[Array, "B S"]:
    """True on a backslash that is not itself behind one that escapes it: an even number stands for line breaks."""
    backslash = lower == ord("\\")
    return backslash & ((jnp.arange(lower.shape[1]) - last_true(~backslash)) % 2 == 1)


def _inside_brackets(lower, command) -> Bool[Array, "B S"]:
    r"""True behind a `\[` or `\begin{...}` that is closed, up to what closes it.

    With depth counted from left to right, a place lies inside a pair where the depth is less somewhere before it, which
    an opener has raised, and somewhere after it, to which that opener's own closer has brought it back.
    """
    opens, closes = (command & shift(lower == ord(bracket), 1) for bracket in "[]")

    begin, end = "\\begin{", "\\end{"
    keys = (window_keys(lower, len(text)) == jnp.uint32(text_key(text)) for text in (begin, end))
    is_begin, is_end = (command & key for key in keys)
    last, begins = _last_with(is_begin | is_end, is_begin)
    name_start = last + jnp.where(begins, len(begin), len(end))
    key = shift(span_keys(lower, name_start), -1)  # of the name that ends before each place
    key = jnp.where(shift(lower, -1) == ord("*"), shift(key, -1), key)
    display = jnp.zeros(lower.shape, bool)
    for name in ENVIRONMENTS:
        display |= key == jnp.uint32(text_key(name))
    display &= (lower == ord("}")) & (last >= 0)
    opens |= display & begins
    closes |= display & ~begins

    depth = jnp.cumsum(opens.astype(jnp.int32) - closes.astype(jnp.int32), axis=1)
    before = shift(depth, -1)
    lowest = lax.cummin(jnp.stack([before, depth[:, ::-1]]), axis=2)  # so far, and from here on
    return (lowest[0] < before) & (lowest[1, :, ::-1] < before)


def _inside_pairs(lower, mask, solid, newlines, command) -> Bool[Array, "B S"]:
    """True behind the first and up to the second of a pair of fences or `$$`."""
    size, kinds = lower.shape[1], np.frombuffer(b"`~$", np.uint8)
    character = lower == kinds[:, None, None]
    wanted = jnp.stack([(lower == ord("\n")) | ~mask, mask & ~is_any(lower, " \t\r"), solid])
    *next_character, line_end, next_word, next_solid = jax.vmap(next_true)(jnp.concatenate([character, wanted]))
    blank_before = shift(last_true(~is_any(lower, " \t")), -1).at[:, 0].set(-1)
    line_start = at(lower, blank_before, ord("\n")) == ord("\n")
    bare = _behind(next_word, size) >= line_end  # nothing more on this line
    parts = at(newlines, _behind(next_solid, size), 2 * size) - newlines >= 2  # a blank line follows, or nothing
    shared = (line_start, line_end, bare, parts, shift(command, -2))
    each = jax.vmap(_inside_pairs_of, in_axes=(0, 0, 0, None))
    return jnp.any(each(character, jnp.stack(next_character), kinds != ord("$"), shared), axis=0)


def _inside_pairs_of(character, next_character, is_fence, shared) -> Bool[Array, "B S"]:
    """`_inside_pairs` of one kind, made of a character. A mark stands for its last byte."""
    line_start, line_end, bare, parts, escaped = shared
    size = character.shape[1]
    place = jnp.arange(size)
    before, starts_line = _last_with(~character, _behind(line_start, False))  # the run of characters begins behind it
    length, last = place - before, character & ~shift(character, 1)
    more = _behind(next_character, size) < line_end  # of them on this line
    fence = (length >= 3) & (starts_line | (before < 0)) & ~more
    marks = last & jnp.where(is_fence, fence, (length == 2) & ~escaped)

    # The next mark, and whether it closes this one.
    code = jnp.where(~is_fence | bare, 1, 0) + jnp.where(parts, 2, 0)
    second = _behind(lax.cummin(jnp.where(marks, 4 * place + code, 4 * size), axis=1, reverse=True), 4 * size)
    closed = marks & (second % 2 == 1) & (second // 4 - place <= LONG_BLOCK) & ((second % 4 >= 2) | ~parts)

    # Marks are taken two by two. One that the next does not close is passed over, and counting starts anew there.
    number, last_closed = jnp.cumsum(marks, axis=1), _last_with(marks, closed)[1]
    anew = lax.cummax(jnp.where(marks & ~shift(last_closed, -1), number, 0), axis=1)
    return shift(last_closed & ((number - anew) % 2 == 0), -1)


def _behind(x, outside) -> Array:
    """What stands one place on; `outside` behind the last."""
    return shift(x, 1).at[:, -1].set(outside)


def _last_with(condition, fact) -> tuple[Int[Array, "B S"], Bool[Array, "B S"]]:
    """Index of the last True at or before each place, -1 if there is none; and the fact there, else False."""
    place = jnp.arange(condition.shape[1])
    packed = lax.cummax(jnp.where(condition, 2 * place + fact, -2), axis=1)  # one scan in place of a scan and a gather
    return packed // 2, packed % 2 == 1
