r"""Reads sums of terms from canonical answers on the device: one pass over the characters, all rows at once.

A term is a number, perhaps a fraction, times roots and symbols (`scope_jax.verify.forms` has the table). The pass is an
automaton without a stack: fractions do not nest, so a few modes say where it stands. It writes down each term where it
ends. What it does not know makes a row unread, never half read.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt8, UInt32

from scope_jax.rewards.canonical import APART, FRAC, GROUP, INFINITY, PI, SQRT, is_any, is_digit, is_letter
from scope_jax.rewards.scans import shift
from scope_jax.verify.forms import ELEMENTS, POWER, TERMS

LIMIT = 10**9  # numerators, denominators and every step on the way stay below it, hence within int32
RADICANDS = 101**2  # below it, the primes up to 97 find every square factor

# Where the automaton stands, besides the open text (0): after a root sign, in its braces, after `^`, in its braces, in
# the digits after `/`, after \frac, after its first bare digit, between `}` and `{`, and in the denominator: before a
# root, after the root sign, in its braces, past it.
_OPEN, _ROOT, _ROOT_IN, _HAT, _HAT_IN, _SLASH, _FRAC, _BARE, _BETWEEN, _BOTTOM, _BOTTOM_ROOT, _BOTTOM_IN, _BOTTOM_END = range(13)


class Terms(NamedTuple):
    """What the pass wrote down at each place of a row."""

    ends: Bool[Array, "R N"]  # a term ends here
    top: Int[Array, "R N"]
    bottom: Int[Array, "R N"]
    radicand: Int[Array, "R N"]
    key: tuple[UInt32[Array, "R N"], UInt32[Array, "R N"]]  # of its symbols and their powers
    shared: Bool[Array, "R N"]  # the denominator of the fraction that closes next belongs to it too
    closes: Bool[Array, "R N"]  # such a fraction closes here
    under: Int[Array, "R N"]  # its denominator
    under_root: Int[Array, "R N"]  # and the radicand in it
    element: Int[Array, "R N"]  # number of the element that the term belongs to


def _weights(seed: int) -> np.ndarray:
    """Random odd 32-bit numbers for the bytes: a monomial's key is the sum of its symbols' weights times their powers."""
    rng = np.random.Generator(np.random.Philox(seed))
    return rng.integers(0, 2**32, 256, dtype=np.uint32) | np.uint32(1)


def _square_factors() -> tuple[np.ndarray, np.ndarray]:
    """k and r with n = k^2 r, r square-free, for each n below RADICANDS; 0 and 1 for n = 0."""
    roots, rest = np.ones(RADICANDS, np.int32), np.arange(RADICANDS, dtype=np.int32)
    for k in range(2, 101):
        while (hit := (rest % (k * k) == 0) & (rest > 0)).any():
            rest[hit] //= k * k
            roots[hit] *= k
    roots[0], rest[0] = 0, 1
    return roots, rest


WEIGHTS = _weights(1), _weights(2)
SQUARE_ROOTS, SQUARE_FREE = _square_factors()


def read_terms(
    codes: UInt8[Array, "R N"], length: Int[Array, "R"], inside: Bool[Array, "R"]
) -> tuple[Terms, Int[Array, "R"], Bool[Array, "R"], Bool[Array, "R"]]:
    """The terms of canonical text, its number of elements, whether a comma grouped digits, and whether it was read.

    Args:
      codes: canonical text without brackets around, sign of percent, unit or name; shorter than N.
      length: its length.
      inside: it stood in brackets, where `1,234` may be a pair.
    """
    digit = is_digit(codes)
    lookahead = {
        "digit_next": shift(digit, 1),
        # Exactly three digits follow: what a thousands separator stands before.
        "three": shift(digit, 1) & shift(digit, 2) & shift(digit, 3) & ~shift(digit, 4),
        # The next character ends the term, or there is none.
        "closes_term": is_any(shift(codes, 1), "+-,") | (jnp.arange(codes.shape[1]) + 1 >= length[:, None]),
        "last": jnp.arange(codes.shape[1]) == length[:, None],
    }
    active = jnp.arange(codes.shape[1]) <= length[:, None]
    rows = codes.shape[0]
    zero, no = jnp.zeros(rows, jnp.int32), jnp.zeros(rows, bool)
    state = dict.fromkeys(_NUMBERS, zero) | dict.fromkeys(_FLAGS, no)
    state |= {"sign": zero + 1, "outer_sign": zero + 1, "under_root": zero + 1}
    state |= _fresh_term(zero) | {"inside": inside}
    columns = jax.tree.map(jnp.transpose, (codes.astype(jnp.int32), lookahead, active))
    state, written = jax.lax.scan(_step, state, columns)
    written = jax.tree.map(jnp.transpose, written)
    return written, state["element"] + 1, state["grouped_by_comma"], ~state["bad"]


_NUMBERS = ("mode", "argument", "argument_digits", "digits", "whole", "slash", "under", "element", "count", "in_fraction")
_FLAGS = (
    "bad", "number", "point", "grouped", "zero_first", "signed", "fraction", "closed", "lone_digit", "symbol_before",
    "has_whole", "by_gap", "grouped_by_comma", "imaginary", "last_imaginary",
)  # fmt: skip


def _fresh_term(zero) -> dict:
    """A term before its first factor."""
    none = zero.astype(jnp.uint32)
    return dict(
        top=zero + 1, bottom=zero + 1, radicand=zero + 1, factors=zero, symbols=zero,
        key1=none, key2=none, last1=none, last2=none,
    )  # fmt: skip


class _Row:
    """The state of a step under way: `put` changes fields where a condition holds."""

    def __init__(self, state: dict):
        self.state = dict(state)

    def __getattr__(self, name):
        return self.state[name]

    def put(self, where, **values):
        for name, value in values.items():
            self.state[name] = jnp.where(where, value, self.state[name])

    def fail(self, where):
        self.put(where, bad=True)

    def multiply(self, where, name, factor):
        """Multiplies a positive field, or fails where the product would reach LIMIT."""
        old = self.state[name]
        self.fail(where & (old > (LIMIT - 1) // jnp.maximum(factor, 1)))
        self.put(where & ~self.bad, **{name: old * factor})

    def append(self, where, name, value):
        """Appends a decimal digit."""
        old = self.state[name]
        self.fail(where & (old >= LIMIT // 10))
        self.put(where & ~self.bad, **{name: old * 10 + value})


def _step(state, column):
    """Takes in one character of every row."""
    c, ahead, active = column
    before, row = state, _Row(state)
    value = c - ord("0")
    digit = (value >= 0) & (value <= 9)
    zero = jnp.zeros_like(c)
    blank = dict(ends=zero > 0, shared=zero > 0, closes=zero > 0)

    # ------------------------------------------------------------------ the end of digits after a slash
    done = (row.mode == _SLASH) & ~digit
    row.fail(done & (row.slash == 0))
    mixed = done & row.by_gap
    _mix(row, mixed, row.slash)
    row.multiply(done & ~mixed, "bottom", row.slash)
    solid = done & ~((c == ord("+")) | (c == ord("-")) | (c == ord(",")) | ahead["last"])
    row.fail(solid)
    row.put(done, mode=_OPEN, by_gap=False)
    row.put(done, number=False)

    mode, was_open = row.mode, row.mode == _OPEN
    free = was_open & ~row.closed
    symbol_before, lone_digit = row.symbol_before, row.lone_digit
    row.put(True, symbol_before=False, lone_digit=False)
    row.fail(lone_digit & digit)

    # ------------------------------------------------------------------ digits and what may stand among them
    more = free & digit & row.number
    row.append(more, "top", value)
    row.append(more & row.point, "bottom", 0)
    behind_comma = free & (c >= APART) & (c < APART + 10) & (row.factors == 0)  # the 2 of `1, 234`
    digit, value = digit | behind_comma, jnp.where(behind_comma, c - APART, value)
    first = free & digit & ~row.number
    row.fail(was_open & digit & ~more & ~(first & (row.factors == 0)))
    row.put(first, top=value, number=True, factors=1, digits=0, zero_first=value == 0, point=False, grouped=False)
    row.put(more | first, digits=row.digits + 1)

    apart = was_open & (c >= APART) & (c < APART + 10) & ~behind_comma  # `2 1/3`
    row.fail(apart & ~(row.number & ~row.point & ~row.has_whole & ~row.fraction & (row.factors == 1)))
    row.put(apart, whole=row.top, has_whole=True, by_gap=True, top=c - APART)

    point = was_open & (c == ord("."))
    opens = point & ~row.number & (row.factors == 0) & ~row.closed
    row.fail(point & ~(ahead["digit_next"] & (opens | (row.number & ~row.point & ~row.by_gap))))
    row.put(opens, top=0, number=True, factors=1, digits=0, zero_first=True, grouped=False)
    row.put(point, point=True)

    comma, group = was_open & (c == ord(",")), was_open & (c == GROUP)
    groups = row.number & ~row.point & (row.grouped | ((row.digits <= 3) & ~row.zero_first)) & ~row.has_whole
    joins = (comma & row.number & ahead["three"]) | group
    row.fail(joins & ~(groups & ahead["three"]))
    row.fail(joins & comma & row.inside)
    row.fail(comma & ~joins & row.number & row.grouped & ahead["digit_next"])
    row.put(joins, grouped=True)
    row.put(joins & comma, grouped_by_comma=True)

    # ------------------------------------------------------------------ factors
    symbol = was_open & (is_letter(c) | (c == PI) | (c == INFINITY))
    root, fraction = was_open & (c == SQRT), was_open & (c == FRAC)
    row.fail((symbol | root | fraction) & (row.closed | row.by_gap))
    row.put(symbol | root | fraction, number=False)
    weight1, weight2 = (jnp.asarray(w)[c] for w in WEIGHTS)
    imaginary = c == ord("i")
    row.fail(symbol & ((row.symbols >= 3) | (imaginary & row.imaginary)))
    row.put(
        symbol, key1=row.key1 + weight1, key2=row.key2 + weight2, last1=weight1, last2=weight2, symbols=row.symbols + 1,
        factors=row.factors + 1, symbol_before=True, last_imaginary=imaginary, imaginary=row.imaginary | imaginary,
    )  # fmt: skip
    row.put(root, mode=_ROOT, factors=row.factors + 1)
    whole = fraction & before["number"] & (row.factors == 1) & ~before["point"]
    row.fail(fraction & (row.fraction | ((row.factors > 0) & ~whole)))
    row.put(whole, whole=row.top, has_whole=True, top=1, factors=0)
    row.put(fraction, mode=_FRAC)
    hat = was_open & (c == ord("^"))
    row.fail(hat & ~symbol_before)
    row.put(hat, mode=_HAT)
    slash = was_open & (c == ord("/"))
    row.fail(slash & (row.closed | row.fraction | (row.factors == 0)))
    row.put(slash, mode=_SLASH, slash=0)

    # ------------------------------------------------------------------ what ends a term
    plus = was_open & ((c == ord("+")) | (c == ord("-")))
    minus = jnp.where(c == ord("-"), -1, 1)
    filled = (row.factors > 0) | row.closed
    leading = plus & ~filled
    row.fail(leading & row.signed)
    brace = was_open & (c == ord("}"))
    row.fail(brace & ~(row.fraction & (row.factors > 0)))
    numerator_ends = brace & (row.in_fraction > 0)
    separator = was_open & ((comma & ~joins) | ahead["last"])
    row.fail(separator & (row.fraction | ~filled))
    row.fail((plus | separator | brace) & row.by_gap)  # digits apart that no slash followed
    written = (((plus & filled) | separator) & ~row.closed) | numerator_ends
    row.fail(written & (row.has_whole & row.fraction))
    row.put(written, count=row.count + 1)
    row.fail(written & (row.count > TERMS))
    blank["ends"] = written & active
    blank["shared"] = row.fraction
    record = dict(
        top=row.top * row.sign * jnp.where(row.fraction, row.outer_sign, 1),
        bottom=row.bottom, radicand=row.radicand, key=(row.key1, row.key2), element=row.element,
    )  # fmt: skip
    row.put(written & row.fraction, in_fraction=row.in_fraction + 1)
    ended = (plus & filled) | separator | numerator_ends
    row.put(ended, **_fresh_term(zero), imaginary=False, number=False, closed=False)
    row.put((plus & filled) | separator, has_whole=False)
    row.put(plus, sign=minus, signed=True)
    row.put(separator, sign=1, signed=False, count=0)
    row.put(separator & ~ahead["last"], element=row.element + 1)
    row.fail(separator & (row.element >= ELEMENTS))
    row.put(brace, mode=_BETWEEN, number=False)
    known = digit | (c >= APART) & (c < APART + 10) | point | comma | group | symbol | root | fraction | hat | slash
    row.fail(was_open & ~(known | plus | brace | ahead["last"]))

    # ------------------------------------------------------------------ arguments of roots and powers
    opening, closing = c == ord("{"), c == ord("}")
    in_braces = (mode == _ROOT_IN) | (mode == _HAT_IN) | (mode == _BOTTOM_IN)
    more = in_braces & digit
    row.put(more, argument=row.argument * 10 + value, argument_digits=row.argument_digits + 1)
    row.fail(more & (row.argument >= RADICANDS))
    row.fail(in_braces & ~digit & ~(closing & (row.argument_digits > 0)))
    starts = (mode == _ROOT) | (mode == _HAT) | (mode == _BOTTOM_ROOT)
    row.fail(starts & ~(opening | digit))
    row.put(starts & opening, mode=mode + 1, argument=0, argument_digits=0)
    given = (starts & digit) | (in_braces & closing)
    argument = jnp.where(starts, value, row.argument)
    row.put(given & starts, lone_digit=True)

    rooted = given & ((mode == _ROOT) | (mode == _ROOT_IN))
    row.put(rooted, radicand=row.radicand * argument, mode=_OPEN)
    row.fail(row.radicand >= RADICANDS)
    powered = given & ((mode == _HAT) | (mode == _HAT_IN))
    row.fail(powered & ((argument < 1) | (argument > POWER) | (row.last_imaginary & (argument > 1))))
    extra = (argument - 1).astype(jnp.uint32)
    row.put(powered, key1=row.key1 + extra * row.last1, key2=row.key2 + extra * row.last2, mode=_OPEN)
    under_root = given & ((mode == _BOTTOM_ROOT) | (mode == _BOTTOM_IN))
    row.fail(under_root & (argument == 0))
    row.put(under_root, under_root=argument, mode=_BOTTOM_END, lone_digit=False)

    # ------------------------------------------------------------------ fractions
    in_slash = (mode == _SLASH) & digit
    row.append(in_slash, "slash", value)
    begins = mode == _FRAC
    row.fail(begins & ~(opening | digit))
    row.put(begins, outer_sign=row.sign, under_root=1, in_fraction=0)
    row.put(begins & opening, mode=_OPEN, fraction=True, sign=1, signed=False)
    row.put(begins & digit, mode=_BARE, top=value, sign=1)
    bare = mode == _BARE
    row.fail(bare & ~(digit & (value > 0)))
    row.put(bare, under=value)
    between = mode == _BETWEEN
    row.fail(between & ~opening)
    row.put(between, mode=_BOTTOM, under=0, argument_digits=0)
    bottom = mode == _BOTTOM
    row.append(bottom & digit, "under", value)
    row.put(bottom & digit, argument_digits=row.argument_digits + 1)
    rooted = bottom & (c == SQRT)  # \frac{1}{\sqrt{2}}, \frac{1}{3\sqrt{2}}
    row.fail(rooted & (row.argument_digits > 0) & (row.under == 0))
    row.put(rooted, mode=_BOTTOM_ROOT, under=jnp.where(row.argument_digits > 0, row.under, 1))
    row.fail(bottom & ~(digit | rooted | (closing & (row.argument_digits > 0))))
    row.fail((mode == _BOTTOM_END) & ~closing)
    closes = bare | (closing & (bottom | (mode == _BOTTOM_END)))
    under = row.under
    row.fail(closes & (under == 0))
    several = closes & (row.in_fraction > 0)
    blank["closes"] = several & active
    alone = closes & ~several
    mixed = alone & row.has_whole
    plain = (row.radicand == 1) & (row.key1 == 0) & (row.bottom == 1) & (row.under_root == 1) & (row.sign == 1)
    row.fail(mixed & ~plain)
    _mix(row, mixed, under)
    row.multiply(alone & ~mixed, "bottom", under)
    row.multiply(alone & ~mixed, "bottom", row.under_root)
    row.put(alone & ~mixed, radicand=row.radicand * row.under_root)
    row.fail(row.radicand >= RADICANDS)
    row.put(alone, sign=row.sign * row.outer_sign, factors=1)
    row.fail(mixed & ~ahead["closes_term"])
    row.put(several, closed=True)
    row.put(closes, mode=_OPEN, fraction=False, signed=True)
    shared = dict(under=jnp.where(several, under, 1), under_root=jnp.where(several, row.under_root, 1))

    row.fail(ahead["last"] & (mode != _OPEN))
    state = {name: jnp.where(active, row.state[name], before[name]) for name in state}
    return state, Terms(**blank, **record, **shared)


def _mix(row, where, bottom):
    """A whole number and a proper fraction: w t/b becomes (w b + t) / b."""
    row.fail(where & ~((row.whole > 0) & (row.top > 0) & (row.top < bottom)))
    row.fail(where & (row.whole >= LIMIT // jnp.maximum(bottom, 1)))
    row.put(where & ~row.bad, top=row.whole * bottom + row.top, bottom=bottom, has_whole=False)
