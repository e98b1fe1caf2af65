"""The device's canonical spelling against the host's."""

import jax
import numpy as np

from scope_jax.rewards.canonical import APART, canonical_codes
from scope_jax.verify import forms

ROWS, SIZE = 1024, 64
PIECES = [
    *("\\frac", "\\dfrac", "\\sqrt", "\\pi", "\\left", "\\right", "\\!", "\\,", "{,}", "\\text{", "\\mathrm{", "}", "{"),
    *("\\%", "%", "\\{", "\\}", "^\\circ", "^{\\circ}", "\u00b0", "\u221a", "\u03c0", "\u2212", "$", "\\$", " ", "~", "1"),
    *("23", "x", "ab", "+", "-", "/", ",", ".", "*", "(", ")", "\\", "\x01", "\x00", "\n", "\u00e9", "\\quad", "\\ ", "="),
    *(",\\!", ", 123", "123", "\\infty", "^", "A", "t", "\\displaystyle", "\\textbf{", "\u221e", "\x08"),
]
_codes = jax.jit(canonical_codes)


def on_device(texts):
    """The codes of each text, which stands between bytes of something else."""
    rows = np.full((ROWS, SIZE), ord("5"), np.uint8)
    stop = np.full(ROWS, 2)
    for row, text in enumerate(texts):
        data = text.encode()
        rows[row, 2 : 2 + len(data)] = np.frombuffer(data, np.uint8)
        stop[row] = 2 + len(data)
    codes, lengths = _codes(rows, np.full(ROWS, 2), stop)
    return [bytes(row[:length]) for row, length in zip(np.asarray(codes), np.asarray(lengths), strict=True)]


def on_host(text):
    """The host's canonical text with a digit behind a gap as one code."""
    out, gap = b"", False
    for character in forms.canonical(text):
        if character == "\x0b":
            gap = True
            continue
        out += bytes([int(character) + APART]) if gap else character.encode()
        gap = False
    return out


def test_device_and_host_spell_alike():
    rng = np.random.default_rng(0)
    for _ in range(12):
        texts = []
        while len(texts) < ROWS:
            text = "".join(rng.choice(PIECES, rng.integers(0, 10)))
            if len(text.encode()) <= SIZE - 4:
                texts.append(text)
        for text, codes in zip(texts, on_device(texts), strict=True):
            assert codes == on_host(text), text


def test_commands_end_where_a_letter_follows():
    assert on_host("\\pix") == b"\\pix" and on_host("\\pi x") == b"\x03x" and on_host("\\leftarrow") == b"\\leftarrow"
    assert on_device(["\\pix", "\\pi x", "\\leftarrow", "\\left("])[:4] == [b"\\pix", b"\x03x", b"\\leftarrow", b"("]
