"""What an answer says, on the device: the forms of `scope_jax.verify.forms`, as arrays that compare at once.

Elements, words and units become pairs of 32-bit hashes, of values in lowest terms: two that differ agree once in 2^64.
"""

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt8, UInt32

from scope_jax.rewards.canonical import (
    APART,
    PERCENT,
    SET_CLOSE,
    SET_OPEN,
    TEXT,
    TEXT_END,
    byte_windows,
    canonical_codes,
    cut,
    is_any,
    is_digit,
    is_letter,
    starts_with,
)
from scope_jax.rewards.reader import LIMIT, SQUARE_FREE, SQUARE_ROOTS, WEIGHTS, read_terms
from scope_jax.rewards.scans import at, last_true, next_true, shift
from scope_jax.verify.forms import ELEMENTS, NUMERALS, SHORT_UNITS

MOST_TERMS = 12  # of all elements together
ROUND, SET = 5, 9  # bracket kinds: 4 * opening + closing, each 1 round, 2 square, or 9 for a set; 0 none


@flax.struct.dataclass
class Form:
    """One answer a row, read (`...` is the rows)."""

    codes: UInt8[Array, "... N"]  # canonical spelling; equal spellings mean the same
    length: Int[Array, "..."]
    read: Bool[Array, "..."]  # as mathematics: the fields up to `name` say something
    elements: UInt32[Array, "... E 2"]
    hundredths: UInt32[Array, "... 2"]  # of the first element divided by 100; 0 where that is out of range
    count: Int[Array, "..."]  # number of elements
    brackets: Int[Array, "..."]
    grouped: Bool[Array, "..."]  # a comma was read as a thousands separator
    percent: Bool[Array, "..."]
    unit: UInt32[Array, "... 2"]  # 0 where there is none
    name: Int[Array, "..."]  # letter before `=`; 0 where there is none
    letters: UInt32[Array, "... 2"]  # the variables in it, one bit each
    word: UInt32[Array, "... 2"]  # its letters in lower case, where there is nothing else
    word_letters: UInt32[Array, "..."]  # the same, in any order
    word_length: Int[Array, "..."]  # 0 where there is something else


@jax.jit
def read_forms(text: UInt8[Array, "R N"], start: Int[Array, "R"], stop: Int[Array, "R"]) -> Form:
    """Reads the answers text[start:stop]."""
    codes, length = canonical_codes(text, start, stop)
    word, word_letters, word_length = _words(codes)

    named = is_letter(codes[:, 0]) & (codes[:, 1] == ord("=")) & (jnp.sum(codes == ord("="), axis=1) == 1)
    name = jnp.where(named, codes[:, 0], 0).astype(jnp.int32)
    body, size = cut(codes, jnp.where(named, 2, 0), length)
    closing = jnp.sum(jnp.cumsum(body == TEXT_END, axis=1) == 0, axis=1)  # place of the first, if there is one
    wrapped = (body[:, 0] == TEXT) & (closing == size - 1)
    body, size = cut(body, jnp.where(wrapped, 1, 0), jnp.where(wrapped, size - 1, size))
    percent = (size > 0) & (_at(body, size - 1) == PERCENT)
    size = size - percent
    body, size, unit = _cut_unit(*cut(body, jnp.zeros_like(size), size))
    body, size, brackets, balanced = _cut_brackets(body, size)

    room = jnp.pad(body, ((0, 0), (0, 1)))  # the reader ends on a place of its own
    terms, count, grouped, read = read_terms(room, size, brackets > 0)
    elements, hundredths, whole = _elements(terms)
    return Form(
        codes=codes,
        length=length,
        read=read & whole & balanced,
        elements=elements,
        hundredths=hundredths,
        count=count,
        brackets=jnp.where((brackets == ROUND) & (count == 1), 0, brackets),
        grouped=grouped,
        percent=percent,
        unit=unit,
        name=name,
        letters=_letter_bits(body),
        word=word,
        word_letters=word_letters,
        word_length=word_length,
    )


def _at(codes, place):
    return at(codes, place[:, None])[:, 0]


def _lower(codes):
    return jnp.where((codes >= ord("A")) & (codes <= ord("Z")), codes + 32, codes)


def _letter_bits(codes) -> UInt32[Array, "R 2"]:
    """One bit for each letter that occurs: small ones first."""
    bits = []
    for first in ("a", "A"):
        index = codes.astype(jnp.int32) - ord(first)
        bit = jnp.where((index >= 0) & (index < 26), jnp.uint32(1) << jnp.clip(index, 0, 25).astype(jnp.uint32), 0)
        bits.append(jax.lax.reduce(bit.astype(jnp.uint32), np.uint32(0), jax.lax.bitwise_or, (1,)))
    return jnp.stack(bits, axis=1)


def _text_hash(codes, keep) -> UInt32[Array, "R 2"]:
    """Hash of the kept bytes in order; 0 for none."""
    rank = jnp.cumsum(keep, axis=1).astype(jnp.uint32)
    parts = []
    for weights, multiplier in zip(WEIGHTS, (0x9E3779B1, 0x85EBCA6B), strict=True):
        value = (jnp.asarray(weights)[codes.astype(jnp.int32)] ^ (rank * jnp.uint32(multiplier))) * jnp.uint32(0xC2B2AE35)
        parts.append(jnp.sum(jnp.where(keep, value ^ (value >> 15), 0), axis=1, dtype=jnp.uint32))
    return jnp.stack(parts, axis=1)


def _words(codes) -> tuple[UInt32[Array, "R 2"], UInt32[Array, "R"], Int[Array, "R"]]:
    """The letters of a row of letters, in order and in any order, and how many; 0 where other things stand there."""
    real = (codes > 0) & (codes != TEXT) & (codes != TEXT_END)
    place = jnp.arange(codes.shape[1])
    first = jnp.min(jnp.where(real, place, codes.shape[1]), axis=1)
    last = jnp.max(jnp.where(real, place, -1), axis=1)
    round_ones = (_at(codes, first) == ord("(")) & (_at(codes, last) == ord(")")) & (first < last)
    outer = round_ones[:, None] & ((place == first[:, None]) | (place == last[:, None]))
    letter = is_letter(codes)
    only = jnp.all(~real | outer | letter | is_any(codes, "'-"), axis=1)
    lower = _lower(codes)
    count = jnp.where(only, jnp.sum(letter, axis=1), 0)
    bag = jnp.sum(jnp.where(letter, jnp.asarray(WEIGHTS[0])[lower.astype(jnp.int32)], 0), axis=1, dtype=jnp.uint32)
    return _text_hash(lower, letter), bag, count


def _cut_unit(codes, length) -> tuple[UInt8[Array, "R N"], Int[Array, "R"], UInt32[Array, "R 2"]]:
    """Takes a unit off the end: a text command of letters, or letters behind a digit, perhaps with a power."""
    place = jnp.arange(codes.shape[1])
    letter = is_letter(codes)

    def before_end(k):
        return _at(codes, length - k)

    squared = (before_end(2) == ord("^")) & is_any(before_end(1), "23")
    braced = (before_end(4) == ord("^")) & (before_end(3) == ord("{")) & is_any(before_end(2), "23")
    braced &= before_end(1) == ord("}")
    end = length - jnp.where(squared, 2, jnp.where(braced, 4, 0))

    opening = _at(last_true(codes == TEXT), end - 1)
    inside = (place > opening[:, None]) & (place < end[:, None] - 1)
    wrapped = (_at(codes, end - 1) == TEXT_END) & (opening > 0)
    wrapped &= jnp.all(~inside | letter | is_any(codes, "./"), axis=1)

    run = _at(last_true(~letter), end - 1) + 1
    size = end - run
    known = jnp.zeros(length.shape, bool)
    for unit in SHORT_UNITS:
        known |= (size == 2) & (_at(codes, run) == ord(unit[0])) & (_at(codes, run + 1) == ord(unit[1]))
    previous = _at(codes, run - 1)
    # A digit that something parts from the digit before it is a digit too.
    bare = (((size >= 3) & (end == length)) | known) & (run > 0) & (is_digit(previous) | ((previous >= APART) & (previous < APART + 10)) | (previous == ord("}")))

    start = jnp.where(wrapped, opening, jnp.where(bare, run, length))
    kept = (place >= start[:, None]) & (letter | is_digit(codes)) & (place < length[:, None])
    lower = jnp.where(kept, _lower(codes), 0)
    numeral = jnp.zeros(length.shape, bool)
    windows = byte_windows(lower)
    for word in NUMERALS:
        numeral |= jnp.any(starts_with(windows, word), axis=1)
    body, body_length = cut(codes, jnp.zeros_like(start), jnp.where(numeral, 0, start))  # `3 million` is not read
    return body, body_length, _text_hash(lower, kept)


def _cut_brackets(codes, length):
    """Takes brackets off both ends; their kind, and whether the two ends fit."""
    first, last = codes[:, 0], _at(codes, length - 1)

    def kind(code, round_one, square, curly):
        return jnp.select([code == ord(round_one), code == ord(square), code == curly], [1, 2, SET], 0)

    opening, closing = kind(first, "(", "[", SET_OPEN), kind(last, ")", "]", SET_CLOSE)
    both = (opening > 0) & (closing > 0) & (length > 1)
    fit = ~both | ((opening == SET) == (closing == SET))
    brackets = jnp.where(both, jnp.where(opening == SET, SET, 4 * opening + closing), 0)
    body, size = cut(codes, jnp.where(both, 1, 0), jnp.where(both, length - 1, length))
    return body, size, brackets, fit


def _elements(terms) -> tuple[UInt32[Array, "R E 2"], UInt32[Array, "R 2"], Bool[Array, "R"]]:
    """Hashes of the elements, of the hundredth of the first, and whether all terms are in range and distinct."""
    wanted = jnp.arange(1, MOST_TERMS + 1)
    source = jax.vmap(lambda row: jnp.searchsorted(row, wanted, side="left"))(jnp.cumsum(terms.ends, axis=1))
    there = source < terms.ends.shape[1]
    whole = jnp.sum(terms.ends, axis=1) <= MOST_TERMS
    closing = at(next_true(terms.closes), source)
    shared = at(terms.shared, source)

    def pick(x, outside=1):
        return jnp.where(there, at(x, source), outside)

    top, bottom, radicand, element = pick(terms.top, 0), pick(terms.bottom), pick(terms.radicand), pick(terms.element, -1)
    key = [pick(k, 0) for k in terms.key]
    under = jnp.where(shared & there, at(terms.under, closing, 1), 1)
    under_root = jnp.where(shared & there, at(terms.under_root, closing, 1), 1)

    # 1 / sqrt(q) is sqrt(q) / q; then the squares leave the root.
    whole &= jnp.all(radicand * under_root < len(SQUARE_FREE), axis=1)
    radicand = jnp.clip(radicand * under_root, 0, len(SQUARE_FREE) - 1)
    factor = jnp.asarray(SQUARE_ROOTS)[radicand]
    radicand = jnp.asarray(SQUARE_FREE)[radicand]
    under, good = _times(under, under_root)
    bottom, better = _times(bottom, under)
    size, best = _times(jnp.abs(top), factor)
    whole &= jnp.all(good & better & best, axis=1)
    divisor = jnp.maximum(jnp.gcd(size, bottom), 1)
    size, bottom = size // divisor, bottom // divisor

    same = (element[:, :, None] == element[:, None, :]) & (radicand[:, :, None] == radicand[:, None, :])
    same &= (key[0][:, :, None] == key[0][:, None, :]) & (key[1][:, :, None] == key[1][:, None, :])
    same &= there[:, :, None] & there[:, None, :]
    whole &= jnp.all(jnp.sum(same, axis=2) <= 1, axis=1)  # x + x is not added up

    negative = top < 0
    hashes = _term_hash(negative, size, bottom, radicand, key)
    chosen = (element[:, :, None] == jnp.arange(ELEMENTS)) & (there & (size > 0))[:, :, None]
    elements = jnp.sum(jnp.where(chosen[..., None], hashes[:, :, None, :], 0), axis=1, dtype=jnp.uint32)

    hundred = jnp.gcd(size, 100)
    fits = bottom < LIMIT // 100
    smaller = _term_hash(negative, size // hundred, bottom * (100 // hundred), radicand, key)
    first = (there & (element == 0) & (size > 0))[..., None]
    hundredths = jnp.sum(jnp.where(first, smaller, 0), axis=1, dtype=jnp.uint32)
    return elements, jnp.where(jnp.all(fits, axis=1)[:, None], hundredths, 0), whole


def _times(a, b):
    """The product of non-negative numbers, and whether it stays below LIMIT."""
    fits = a <= (LIMIT - 1) // jnp.maximum(b, 1)
    return jnp.where(fits, a * b, 1), fits


def _term_hash(negative, top, bottom, radicand, key) -> UInt32[Array, "R T 2"]:
    """Two hashes of sign, reduced coefficient, radicand and symbols; sums of them tell sums of terms apart."""
    parts = []
    for seed, symbols in zip((0x27D4EB2F, 0x165667B1), key, strict=True):
        value = symbols + jnp.uint32(seed)
        for number in (top, bottom, radicand, negative):
            value = (value ^ (value >> 16)) * jnp.uint32(0x85EBCA6B)
            value = (value ^ (value >> 13)) * jnp.uint32(0xC2B2AE35) + number.astype(jnp.uint32) * jnp.uint32(seed | 1)
        value = (value ^ (value >> 16)) * jnp.uint32(0x7FEB352D)
        parts.append(value ^ (value >> 15))
    return jnp.stack(parts, axis=-1)


def compare_forms(a: Form, b: Form) -> tuple[Bool[Array, "R"], Bool[Array, "R"]]:
    """(same, different) for each row; neither where that is not certain. As `scope_jax.verify.forms.compare`."""

    def equal(x, y):
        return jnp.all(x == y, axis=-1)

    same_text = (a.length == b.length) & equal(a.codes, b.codes) & (a.length > 0)
    same_word, options = equal(a.word, b.word), (a.word_length == 1) & (b.word_length == 1)
    worded = (a.word_length > 0) & (b.word_length > 0) & (jnp.maximum(a.word_length, b.word_length) >= 3)
    anagrams = (a.word_length == b.word_length) & (a.word_letters == b.word_letters)

    mathematics = a.read & b.read & equal(a.letters, b.letters)
    unit_a, unit_b = jnp.any(a.unit > 0, axis=-1), jnp.any(b.unit > 0, axis=-1)
    mathematics &= ~(unit_a & unit_b) | equal(a.unit, b.unit)
    mathematics &= (a.name == 0) | (b.name == 0) | (a.name == b.name)

    # Percent on one side: the number itself, or a hundredth of it.
    one = (a.count == 1) & (b.count == 1) & (a.brackets == 0) & (b.brackets == 0)
    one_percent = mathematics & (a.percent != b.percent) & one
    first_a, first_b = a.elements[..., 0, :], b.elements[..., 0, :]
    zero = equal(first_a, jnp.zeros_like(first_a)) & equal(first_b, jnp.zeros_like(first_b))
    hundredths = jnp.where(a.percent[..., None], a.hundredths, b.hundredths)
    other = jnp.where(a.percent[..., None], first_b, first_a)
    known = jnp.any(hundredths > 0, axis=-1) | zero
    same_percent = one_percent & (equal(first_a, first_b) | (known & equal(hundredths, other)))
    different_percent = one_percent & ~same_percent & known

    lists = mathematics & (a.percent == b.percent)
    ordered = (a.brackets > 0) & (b.brackets > 0) & (a.brackets != SET) & (b.brackets != SET)
    in_order = (a.count == b.count) & equal(a.elements.reshape(*a.count.shape, -1), b.elements.reshape(*b.count.shape, -1))
    same_ordered = lists & ordered & in_order & (a.brackets == b.brackets)
    different_ordered = lists & ordered & ~same_ordered

    loose = lists & ~ordered & (a.brackets == b.brackets)
    single = (a.count == 1) & (b.count == 1)
    same_single, different_single = loose & single & in_order, loose & single & ~in_order
    several = loose & ~single & ~a.grouped & ~b.grouped
    match = jnp.all(a.elements[..., :, None, :] == b.elements[..., None, :, :], axis=-1)
    place = jnp.arange(ELEMENTS)
    in_a, in_b = place < a.count[..., None], place < b.count[..., None]
    covered = jnp.all(~in_a | jnp.any(match & in_b[..., None, :], axis=-1), axis=-1)
    covered &= jnp.all(~in_b | jnp.any(match & in_a[..., :, None], axis=-2), axis=-1)
    distinct = _distinct(a) & _distinct(b)
    same_several = several & jnp.where(distinct, covered, in_order)
    different_several = several & distinct & ~covered

    worded &= ~options
    settled = same_text | options | worded
    same = same_text | (options & same_word) | (worded & same_word)
    different = ~same_text & ((options & ~same_word) | (worded & ~same_word & ~anagrams))
    same |= ~settled & (same_percent | same_ordered | same_single | same_several)
    different |= ~settled & (different_percent | different_ordered | different_single | different_several)
    return same, different


def _distinct(form: Form) -> Bool[Array, "R"]:
    match = jnp.all(form.elements[..., :, None, :] == form.elements[..., None, :, :], axis=-1)
    real = jnp.arange(ELEMENTS) < form.count[..., None]
    return jnp.all(jnp.sum(match & real[..., None, :] & real[..., :, None], axis=-1) <= 1, axis=-1)
