"""Left-to-right scans over rows of bytes: the few moves from which text rules are built without a loop over bytes."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int, UInt8, UInt32

MULTIPLIER = 0x01000193  # of hashes; odd


def shift(x: Array, k: int) -> Array:
    """Row whose place p holds x[p + k]; 0 or False where that lies outside."""
    k = max(-x.shape[1], min(k, x.shape[1]))
    padded = jnp.pad(x, [(0, 0), (max(-k, 0), max(k, 0))])
    return lax.slice_in_dim(padded, max(k, 0), max(k, 0) + x.shape[1], axis=1)


def last_true(condition: Bool[Array, "B S"]) -> Int[Array, "B S"]:
    """Index of the last True at or before each place; -1 if there is none."""
    return lax.cummax(jnp.where(condition, jnp.arange(condition.shape[1]), -1), axis=1)


def next_true(condition: Bool[Array, "B S"]) -> Int[Array, "B S"]:
    """Index of the first True at or after each place; S if there is none."""
    size = condition.shape[1]
    return lax.cummin(jnp.where(condition, jnp.arange(size), size), axis=1, reverse=True)


def at(x: Array, index: Int[Array, "B K"], outside: int = 0) -> Array:
    """x[index] along the row; `outside` where the index is below 0 or past the end."""
    padded = jnp.pad(x, [(0, 0), (1, 1)], constant_values=outside)
    inside = jnp.clip(index, -1, x.shape[1]) + 1
    return jnp.take_along_axis(padded, inside, axis=1, mode="promise_in_bounds")  # else each read is checked twice


def span_keys(codes: UInt8[Array, "B S"], start: Int[Array, "B S"]) -> UInt32[Array, "B S"]:
    """Hash of codes[start[p]..p] for each p, the same wherever the span stands: a polynomial modulo 2^32.

    From one running sum: the multiplier is odd, so its powers can be divided out again.
    """
    size = codes.shape[1]
    powers, inverses = (jnp.asarray(_powers(base, size)) for base in (MULTIPLIER, pow(MULTIPLIER, -1, 2**32)))
    running = jnp.cumsum(codes * powers, axis=1, dtype=jnp.uint32)
    return (running - at(running, start - 1)) * inverses[jnp.clip(start, 0, size - 1)]


def window_keys(codes: UInt8[Array, "B S"], length: int) -> UInt32[Array, "B S"]:
    """Hash of the `length` bytes from each place on: `text_key` of that text. Past the end stand zeros."""
    size = codes.shape[1]
    powers, inverses = (jnp.asarray(_powers(base, size)) for base in (MULTIPLIER, pow(MULTIPLIER, -1, 2**32)))
    running = jnp.pad(jnp.cumsum(codes * powers, axis=1, dtype=jnp.uint32), [(0, 0), (1, 0)])
    ends = jnp.pad(running, [(0, 0), (0, length)], mode="edge")[:, length : length + size]
    return (ends - running[:, :-1]) * inverses


def text_key(text: str) -> int:
    """The hash of `window_keys` for a text of one byte a character."""
    return sum(ord(character) * pow(MULTIPLIER, k, 2**32) for k, character in enumerate(text)) % 2**32


def _powers(base: int, size: int) -> np.ndarray:
    """base^0 .. base^(size - 1) modulo 2^32."""
    return np.cumprod(np.full(size, base, np.uint32), dtype=np.uint32) * np.uint32(pow(base, -1, 2**32))


def is_letter(lower: UInt8[Array, "B S"]) -> Bool[Array, "B S"]:
    """ASCII letters of lower-case text."""
    return (lower >= ord("a")) & (lower <= ord("z"))


def is_digit(x: UInt8[Array, "B S"]) -> Bool[Array, "B S"]:
    return (x >= ord("0")) & (x <= ord("9"))


def is_any(x: UInt8[Array, "B S"], characters: str) -> Bool[Array, "B S"]:
    """True where the byte is one of the ASCII characters."""
    found = jnp.zeros(x.shape, bool)
    for character in characters:
        found |= x == ord(character)
    return found


def phrase_starts(lower: UInt8[Array, "B S"], phrases: Sequence[str]) -> Bool[Array, "B S"]:
    """True at the first byte of each phrase that stands as whole words."""
    return _phrases(lower, phrases, ends=False)


def phrase_ends(lower: UInt8[Array, "B S"], phrases: Sequence[str]) -> Bool[Array, "B S"]:
    """True at the last byte of each phrase that stands as whole words."""
    return _phrases(lower, phrases, ends=True)


def _phrases(lower, phrases, ends):
    # Hashes of windows, not characters one by one: a tenth of the program to compile.
    keys = {length: window_keys(lower, length) for length in sorted(set(map(len, phrases)))}
    letter = is_letter(lower)
    before = shift(letter, -1)
    found = jnp.zeros(lower.shape, bool)
    for phrase in phrases:
        match = (keys[len(phrase)] == jnp.uint32(text_key(phrase))) & ~before
        if phrase[-1].isalpha():
            match &= ~shift(letter, len(phrase))
        found |= shift(match, 1 - len(phrase)) if ends else match
    return found


def step_edges(order: Int[Array, "B S"], steps: int) -> Int[Array, "B N1"]:
    """First place of each step, and the end of the last, in rows whose step numbers never fall: step n is
    [edges[n], edges[n + 1])."""
    wanted = jnp.arange(steps + 1)
    return jax.vmap(lambda row: jnp.searchsorted(row, wanted, side="left"))(order)


def step_sums(values: Array, edges: Int[Array, "B N1"]) -> Int[Array, "B N"]:
    """Sum of integer or boolean values over each step, from one running sum."""
    running = jnp.pad(jnp.cumsum(values.astype(jnp.int32), axis=1), [(0, 0), (1, 0)])
    return jnp.diff(jnp.take_along_axis(running, edges, axis=1), axis=1)


def seen_earlier(keys: UInt32[Array, "B K"], steps: Int[Array, "B K"], valid: Bool[Array, "B K"]) -> Bool[Array, "B K"]:
    """Which valid entries have a key that a valid entry of an earlier step has too.

    Two sorts, so that the cost is K log K. Keys are hashes: two different ones agree once in 2^32.
    """
    last = jnp.iinfo(jnp.int32).max
    place = jnp.broadcast_to(jnp.arange(keys.shape[1], dtype=jnp.int32), keys.shape)
    steps = jnp.where(valid, steps.astype(jnp.int32), last)  # an invalid entry comes after all valid ones of its key
    key, step, place = lax.sort((keys, steps, place), dimension=1, num_keys=2)
    first = key != jnp.pad(key[:, :-1], [(0, 0), (1, 0)])
    first = first.at[:, 0].set(True)
    earliest = jnp.take_along_axis(step, last_true(first), axis=1)
    _, seen = lax.sort((place, (earliest < step) & (step < last)), dimension=1, num_keys=1)
    return seen
