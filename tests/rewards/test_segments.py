"""Where completions are cut: each rule on examples, and the device's cuts against the host's."""

import random

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scope_jax.rewards import ByteView, segment_bytes, segment_steps, segment_text
from scope_jax.rewards.segments import LONG_BLOCK


def steps_of(text, max_steps=64):
    data = text.encode()
    return [data[start:end].decode() for start, end in segment_text(text, max_steps=max_steps)]


BLOCKS = [
    "$$\nx = 1\n\ny = 2\n$$",
    "$$ x = 1\n\ny = 2 $$",
    "\\[\nx = 1\n\ny = 2\n\\]",
    "\\begin{align*}\nx &= 1 \\\\[2pt]\n\ny &= 2\n\\end{align*}",
    "\\[ \\begin{cases} a \\\\ b \\end{cases}\n\n\\begin{pmatrix} 1 \\end{pmatrix} \n\n = c \\]",
    "```python\nx = 1\n\ny = 2\n```",
    "```\nx = 1\n\n\n\ny = 2\n```",
    "~~~\nx\n\n```\n\ny\n~~~",
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_blank_line_inside_a_block_does_not_cut(block):
    assert steps_of(f"So\n\n{block}\n\nand\n\nthus") == ["So", block, "and", "thus"]
    assert steps_of(f"So\n{block}\nand\n\nthus") == [f"So\n{block}\nand", "thus"]
    crlf = block.replace("\n", "\r\n")
    assert steps_of(f"So\r\n\r\n{crlf}\r\n\r\nthus") == ["So", crlf, "thus"]


def test_a_blank_line_may_follow_an_opener_where_one_follows_its_closer():
    assert steps_of("So\n\n$$\n\nx\n\n$$\n\n```\n\ny\n\n```") == ["So", "$$\n\nx\n\n$$", "```\n\ny\n\n```"]


@pytest.mark.parametrize(
    "text",
    [
        "$$ x",
        "\\[ x",
        "\\begin{align} x",
        "```python",
        "~~~",
        "y \\] x",
        "\\end{align}",
        "\\\\[2pt] x \\]",
        "\\$$ x $$",
        "\\begin{itemize} x \\end{itemize}",
        "cost: $$$",
        "a ```b``` c",
    ],
)
def test_what_is_no_whole_block_is_ordinary_text(text):
    assert steps_of(f"{text}\n\nb\n\nc") == [text, "b", "c"]


@pytest.mark.parametrize("opener", ["$$", "\\[", "\\begin{align}", "```", "~~~"])
def test_an_unclosed_block_swallows_nothing_of_a_long_rest(opener):
    rest = [f"Step {i} says something of its own that is not short." for i in range(60)]
    text = "\n\n".join([f"{opener}\nx", *rest, "$$y$$", "\\[y\\]", "```\ny\n```", "~~~\ny\n~~~", "end"])
    assert steps_of(text, 100)[:61] == [f"{opener}\nx", *rest]


def test_a_stray_dollar_pair_costs_no_more_than_the_step_up_to_the_next():
    text = "Stray $$ here.\n\nProse.\n\n$$x$$\n\nMore.\n\n$$y$$\n\nEnd."
    assert steps_of(text) == ["Stray $$ here.\n\nProse.\n\n$$x$$", "More.", "$$y$$", "End."]


# The device against the host.

PIECES = [
    "$$", "$", "$$$", "\\$$", "\\[", "\\]", "\\\\[", "\\\\\\[", "\\\\", "\\", "[", "]", "\\begin{align}", "\\end{align}",
    "\\begin{cases*}", "\\end{cases*}", "\\begin{itemize}", "\\end{proof}", "\\Begin{Bmatrix}", "\\end{align", "align}",
    "\\\\begin{align}", "\\\\end{align}", "```", "````", "```python", "``` `x`", "~~~", "~~~ ", "``", "`", "~", "```\r",
    "\n", "\n\n", "\r\n", "\r\n\r\n", "\n \t\n", " ", "\t", "\r", "x", "The end. ", "3.5 ", "1. ", "\n2. ", "\n* 3.\t", "3) ", "?",
    "Is it? ", "Wow!\n", "\u00e9\u6f22\U0001f600", "\x00", "\x0b", "word " * 30, "x" * 800,
]  # fmt: skip
PIECE = st.sampled_from(PIECES)
BLOCK = st.sampled_from(["$$", "```\n", "~~~\n", "\\[", "\\begin{align}"]).flatmap(
    lambda opener: st.lists(PIECE, max_size=4).map(
        lambda inner: opener + "".join(inner) + {"\\[": "\\]", "\\begin{align}": "\\end{align}"}.get(opener, "\n" * (opener != "$$") + opener)
    )
)
COMPLETIONS = st.lists(st.one_of(PIECE, PIECE, BLOCK), max_size=40).map("".join)
SIZE, ROWS = 3072, 8  # one shape for all calls: one compilation
SEGMENTS = jax.jit(segment_steps, static_argnames="max_steps")


def device_cuts(rows, max_steps):
    """Where steps begin and end on the device, and how many there are, for each row of bytes."""
    mask = np.arange(SIZE) < np.array([len(row) for row in rows] + [0] * (ROWS - len(rows)))[:, None]
    table = np.array([np.frombuffer(row.ljust(SIZE, b"$"), np.uint8) for row in rows + [b""] * (ROWS - len(rows))])
    ids, count = jax.device_get(SEGMENTS(ByteView(table, mask, np.zeros_like(mask)), max_steps=max_steps))
    solid = mask & ~np.isin(table, list(b" \t\r\n"))
    cuts = []
    for row, places in zip(ids[: len(rows)], solid, strict=False):
        at = np.flatnonzero(places)
        breaks = np.flatnonzero(np.diff(row[at], prepend=-1))
        assert np.all(np.diff(row[at]) >= 0) and row[at].tolist()[:1] in ([], [0])
        cuts.append([(int(at[a]), int(at[b]) + 1) for a, b in zip(breaks, [*(breaks[1:] - 1), -1], strict=False)])
    assert [len(c) for c in cuts] == count[: len(rows)].tolist()
    return cuts


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(COMPLETIONS, min_size=1, max_size=ROWS), st.sampled_from([2, 64]))
def test_the_device_cuts_where_the_host_does(texts, max_steps):
    rows = [text.encode()[:SIZE] for text in texts]  # a character cut in two is no reason to differ
    for row, cuts in zip(rows, device_cuts(rows, max_steps), strict=True):
        assert cuts == segment_bytes(row, max_steps=max_steps), row


def test_the_device_cuts_where_the_host_does_on_texts_of_few_kinds_of_pieces():
    draw = random.Random(0)
    texts = ["\\] and\n\n\\[ a\n\n b \\] c", "\\[ xalign}\n\nb \\]", "```\na\n\nb\n```\n\nc"]
    texts += ["$$" + "x" * (LONG_BLOCK - 6 + extra) + "\n\ny$$\n\nz" for extra in (0, 1, 2)]  # the longest block, and longer
    texts += ["".join(draw.choices(draw.sample(PIECES, draw.randint(2, 9)), k=draw.randint(0, 60))) for _ in range(506)]
    rows = [text.encode()[:SIZE] for text in texts]
    for i in range(0, len(rows), ROWS):
        for row, cuts in zip(rows[i : i + ROWS], device_cuts(rows[i : i + ROWS], 64), strict=True):
            assert cuts == segment_bytes(row, max_steps=64), row


@given(COMPLETIONS, st.sampled_from([1, 2, 64]))
def test_steps_hold_every_solid_byte_in_order_and_whole_characters(text, max_steps):
    data, steps = text.encode(), segment_text(text, max_steps=max_steps)
    assert len(steps) <= max_steps
    edges = [0, *(place for step in steps for place in step), len(data)]
    assert edges == sorted(edges)
    assert not b"".join(data[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)).strip(b" \t\r\n")
    assert all(data[a:b].decode() == data[a:b].decode().strip(" \t\r\n") != "" for a, b in steps)
