"""Where completions are cut: each rule on examples, and the device's cuts against the host's."""

import pytest

from scope_jax.rewards import segment_text


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
