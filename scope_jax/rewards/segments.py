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

    start: int
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
            fences[line["mark"]].append(_Mark(line.start("run"), bare, _parts(data, line.end("run"))))
    dollars, openers, escaped = [], [], -1
    for found in _LATEX.finditer(data):
        if found["dollars"]:
            if found["dollars"] == b"$$" and found.start() != escaped:
                dollars.append(_Mark(found.start(), True, _parts(data, found.end())))
        elif len(found["slashes"]) % 2:  # an even number stands for line breaks
            escaped = found.end()
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
        near = opener is not None and mark.start - opener.start <= LONG_BLOCK
        if near and mark.closes and (mark.parts or not opener.parts):
            yield opener.start, mark.start
            opener = None
        else:
            opener = mark


def _parts(data: bytes, end: int) -> bool:
    return _BLANK_LINE.match(data, end) is not None
