r"""Canonical spelling of answers on the device: one byte for each thing that LaTeX spells out, nothing that only spaces out.

The same spelling as `scope_jax.verify.forms.canonical` on the host, in bytes: commands become control characters,
spaces, `$`, `\left` and their like go away, and a digit that stood apart from the digit before it is marked.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, UInt8, UInt32

from scope_jax.rewards.scans import at, last_true, next_true, shift
from scope_jax.verify import forms

FRAC, SQRT, PI, INFINITY, PERCENT = map(ord, (forms.FRAC, forms.SQRT, forms.PI, forms.INFINITY, forms.PERCENT))
SET_OPEN, SET_CLOSE, TEXT, TEXT_END = map(ord, (forms.SET_OPEN, forms.SET_CLOSE, forms.TEXT, forms.TEXT_END))
GROUP = ord(forms.GROUP)
APART = 0x10  # the digit d behind a gap is APART + d; see `canonical_codes`
DROP = 0

BLANKS = " \t\r\n\f\v~$"
_TEXT_COMMANDS = ("text", "textbf", "textit", "textrm", "mathrm", "mathbf", "mbox")
# Command words, which end where no letter follows; then the spellings that stand as they are.
WORDS = {
    **{f"\\{kind}frac": FRAC for kind in ("", "d", "t", "c")},
    "\\sqrt": SQRT,
    "\\pi": PI,
    "\\infty": INFINITY,
    "^\\circ": DROP,
    **{f"\\{word}": DROP for word in ("left", "right", "displaystyle", "quad")},
}
SPELLINGS = {
    "\\{": SET_OPEN,
    "\\}": SET_CLOSE,
    "\\%": PERCENT,
    "^{\\circ}": DROP,
    **{f"\\{mark}": DROP for mark in "$!,;: ()"},
    "√": SQRT,
    "π": PI,
    "∞": INFINITY,
    "°": DROP,
    "\u2212": ord("-"),
}


def is_digit(x: UInt8[Array, "..."]) -> Bool[Array, "..."]:
    return (x >= ord("0")) & (x <= ord("9"))


def is_letter(x: UInt8[Array, "..."]) -> Bool[Array, "..."]:
    return ((x >= ord("a")) & (x <= ord("z"))) | ((x >= ord("A")) & (x <= ord("Z")))


def is_any(x: UInt8[Array, "..."], characters: str) -> Bool[Array, "..."]:
    return jnp.isin(x, jnp.array(list(characters.encode()), jnp.uint8))


def canonical_codes(
    text: UInt8[Array, "R N"], start: Int[Array, "R"], stop: Int[Array, "R"]
) -> tuple[UInt8[Array, "R N"], Int[Array, "R"]]:
    """The canonical spelling of text[start:stop], left aligned, and its length; 0 past it."""
    place = jnp.arange(text.shape[1])
    inside = (place >= start[:, None]) & (place < stop[:, None])
    text = jnp.where(inside, jnp.where(text == 0, jnp.uint8(0x7F), text), 0)  # 0 is no text here
    codes, keep = _spell(text)
    codes, source = _compact(codes, keep)
    # A digit that something dropped parts from the digit before it, or three digits from the comma before them.
    parted = is_digit(codes) & (source - shift(source, -1) > 1) & (place > 0)
    joined = is_digit(codes) & ~(parted & is_digit(shift(codes, -1)))
    three = joined & shift(joined, 1) & shift(joined, 2) & ~shift(joined, 3)
    apart = parted & (is_digit(shift(codes, -1)) | (three & (shift(codes, -1) == ord(","))))
    codes = jnp.where(apart, codes - ord("0") + APART, codes).astype(jnp.uint8)
    return trim(codes, ".,;*", left="*")


def trim(codes: UInt8[Array, "R N"], right: str, *, left: str) -> tuple[UInt8[Array, "R N"], Int[Array, "R"]]:
    """Rows without these characters at their ends, left aligned, and their lengths."""
    place = jnp.arange(codes.shape[1])
    first = jnp.min(jnp.where((codes > 0) & ~is_any(codes, left), place, codes.shape[1]), axis=1)
    last = jnp.max(jnp.where((codes > 0) & ~is_any(codes, right), place, -1), axis=1)
    return cut(codes, first, last + 1)


def cut(
    codes: UInt8[Array, "R N"], start: Int[Array, "R"], stop: Int[Array, "R"]
) -> tuple[UInt8[Array, "R N"], Int[Array, "R"]]:
    """codes[start:stop], left aligned, and its length."""
    length = jnp.maximum(stop - start, 0)
    place = jnp.arange(codes.shape[1])
    return jnp.where(place < length[:, None], at(codes, start[:, None] + place), 0), length


def _spell(text) -> tuple[UInt8[Array, "R N"], Bool[Array, "R N"]]:
    """The code that begins at each place, and where one does; places inside a spelling have none."""
    place = jnp.arange(text.shape[1])
    letter, digit = is_letter(text), is_digit(text)
    windows = byte_windows(text)
    codes, spans = text, jnp.zeros(text.shape, jnp.int32)  # a span is the length of the spelling that begins here
    dropped = jnp.zeros(text.shape, bool)

    for word, code in WORDS.items():
        found = starts_with(windows, word) & ~shift(letter, len(word))
        codes, spans = jnp.where(found, jnp.uint8(code), codes), jnp.where(found, len(word), spans)
    for spelling, code in SPELLINGS.items():
        found = starts_with(windows, spelling)
        codes, spans = jnp.where(found, jnp.uint8(code), codes), jnp.where(found, len(spelling.encode()), spans)
    dropped = (spans > 0) & (codes == DROP)
    group = starts_with(windows, "\\,") & shift(digit, -1) & shift(digit, 2)
    thin = starts_with(windows, ",\\!") & shift(digit, 3)  # `1,\!234`
    codes, spans = jnp.where(group | thin, jnp.uint8(GROUP), codes), jnp.where(thin, 3, spans)
    dropped &= ~group

    brace = (text == ord("{")) | (text == ord("}"))
    following, before = next_true(brace), last_true(brace)
    commands = jnp.zeros(text.shape, jnp.int32)
    for command in _TEXT_COMMANDS:
        commands = jnp.where(starts_with(windows, f"\\{command}{{"), len(command) + 2, commands)
    closing = at(following, place + commands, text.shape[1])
    opens = (commands > 0) & (at(text, closing) == ord("}")) & (at(text, closing - 1) != ord("\\"))
    codes, spans = jnp.where(opens, jnp.uint8(TEXT), codes), jnp.where(opens, commands, spans)

    # What may stand inside a longer spelling counts only outside of one.
    covered = _covered(spans)
    opener = at(jnp.where(opens, place + spans - 1, -1), last_true(opens), -1)  # brace of the text command before
    closes = (text == ord("}")) & (shift(before, -1).at[:, 0].set(-1) == opener) & (opener >= 0)
    codes = jnp.where(closes, jnp.uint8(TEXT_END), codes)
    braced = starts_with(windows, "{,}") & ~covered
    percent = (text == ord("%")) & ~covered
    codes = jnp.where(braced, jnp.uint8(GROUP), jnp.where(percent, jnp.uint8(PERCENT), codes))
    covered |= _covered(jnp.where(braced, 3, 0))
    blank = is_any(text, BLANKS)
    codes = jnp.where((text > 0) & (text < 32) & ~blank & (codes == text), jnp.uint8(0x7F), codes)
    return codes, (text > 0) & ~covered & ~dropped & ~(blank & (spans == 0))


def byte_windows(text) -> list[UInt32[Array, "R N"]]:
    """The bytes from each place on, four in a word: to compare words is a third of the program of comparing bytes."""
    byte = [shift(text, k).astype(jnp.uint32) for k in range(16)]
    return [byte[k] | byte[k + 1] << 8 | byte[k + 2] << 16 | byte[k + 3] << 24 for k in range(0, 16, 4)]


def starts_with(windows, pattern: str) -> Bool[Array, "R N"]:
    """True where the pattern, of at most 16 bytes, begins."""
    found, data = True, pattern.encode()
    for word, k in zip(windows, range(0, len(data), 4), strict=False):
        piece = data[k : k + 4]
        found &= word & jnp.uint32(2 ** (8 * len(piece)) - 1) == jnp.uint32(int.from_bytes(piece, "little"))
    return found


def _covered(spans) -> Bool[Array, "R N"]:
    """True inside a span, its first place apart."""
    place = jnp.arange(spans.shape[1])
    reach = jax.lax.cummax(jnp.where(spans > 0, place + spans, 0), axis=1)
    return (reach > place) & (spans == 0) | (shift(reach, -1) > place)


def _compact(codes, keep) -> tuple[UInt8[Array, "R N"], Int[Array, "R N"]]:
    """The kept codes, left aligned, and where each stood."""
    place = jnp.arange(codes.shape[1], dtype=jnp.int32)
    # One sort moves both: on a TPU it costs less than a scatter, on a CPU less than a search in each row.
    packed = jax.lax.sort(jnp.where(keep, place, codes.shape[1]) << 8 | jnp.where(keep, codes, 0), dimension=1)
    return (packed & 255).astype(jnp.uint8), packed >> 8
