"""Numbers and simple equations in rows of bytes: which are wrong, and by what key a quantity is known again."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, UInt8, UInt32

from scope_jax.rewards.scans import (
    at,
    is_any,
    is_digit,
    is_letter,
    last_true,
    next_true,
    phrase_ends,
    phrase_starts,
    shift,
    span_keys,
)

OPERATORS = "+-*/"
SPELLINGS = {"\\times": "*", "\\cdot": "*", "\\div": "/", "×": "*", "·": "*", "÷": "/", "−": "-"}
MAX_DIGITS = 10  # longer integers are not checked
# A number between such words is part of a longer expression, which is not checked.
WORDS_BEFORE = ("times", "plus", "minus", "of", "by", "over", "x")
WORDS_AFTER = (
    "times", "plus", "minus", "over", "x", "mod", "divided", "multiplied",
    "percent", "hundred", "thousand", "million", "billion", "dozen",
)  # fmt: skip


def plain_operators(lower: UInt8[Array, "B S"]) -> UInt8[Array, "B S"]:
    """The text with `SPELLINGS` of operators written as + - * /, blanks in the rest of their place."""
    plain = lower
    for spelling, operator in SPELLINGS.items():
        spelling = spelling.encode().decode("latin-1")  # one character a byte
        start = phrase_starts(lower, (spelling,))
        rest = jnp.zeros(lower.shape, bool)
        for k in range(1, len(spelling)):
            rest |= shift(start, -k)
        plain = jnp.where(start, jnp.uint8(ord(operator)), jnp.where(rest, jnp.uint8(ord(" ")), plain))
    return plain


def wrong_equations(lower: UInt8[Array, "B S"]) -> Bool[Array, "B S"]:
    """True at each `=` whose two sides are plainly different numbers.

    A side is an integer, or two integers joined by + - * or / (or `SPELLINGS`), perhaps negative, with spaces or none;
    one side at least must have an operator. `a=34+27=61` is read at its second `=`. Anything more (three operands,
    decimals, powers, variables, percent, units joined to the number, other LaTeX commands, more than `MAX_DIGITS`
    digits) is left alone.

    Values are taken modulo 2^32. What is equal stays equal, so that a right equation of any size is never called
    wrong; a wrong one passes if it is off by a multiple of 2^32. Division compares by cross-multiplication, and x / 0
    is left alone.

    Args:
      lower: lower-case bytes, 0 where there is none.
    """
    lower = plain_operators(lower)
    blank, digit = is_any(lower, " \t"), is_digit(lower)
    back, ahead = last_true(~blank), next_true(~blank)  # nearest byte that is no blank
    run_start, run_end = last_true(~digit) + 1, next_true(~digit) - 1
    value = _values(lower)
    plain = _plain_integers(lower)
    operator, closes_left = is_any(lower, OPERATORS), _continues_left(lower)

    def before(place):
        return at(back, place - 1, -1)

    def after(place):
        return at(ahead, place + 1, lower.shape[1])

    site = jnp.broadcast_to(jnp.arange(lower.shape[1]), lower.shape)

    # Left side, read backwards: [-] a op b, or [-] b.
    b = before(site)
    op = before(at(run_start, b))
    a = before(op)
    left_binary = at(operator, op) & at(digit, a)
    first = jnp.where(left_binary, a, b)
    sign = before(at(run_start, first))
    left_negative = (at(lower, sign) == ord("-")) & is_any(at(lower, before(sign)), "=(")
    left_ok = at(plain, b) & at(plain, first) & (left_negative | ~at(closes_left, sign))
    left = _value(at(value, first), left_negative, at(lower, op), at(value, b), left_binary)

    # Right side, read forwards: [-] c op d, or [-] c.
    c = after(site)
    right_negative = at(lower, c) == ord("-")
    c = at(run_end, jnp.where(right_negative, after(c), c), -1)
    op = after(c)
    d = at(run_end, after(op), -1)
    right_binary = at(operator, op) & at(digit, d)
    final = jnp.where(right_binary, d, c)
    right_ok = at(plain, c) & at(plain, final) & ~at(_continues_right(lower), after(final))
    right = _value(at(value, c), right_negative, at(lower, op), at(value, d), right_binary)

    checked = (lower == ord("=")) & left_ok & right_ok & (left_binary | right_binary)
    checked &= (left[1] != 0) & (right[1] != 0)
    return checked & (left[0] * right[1] != right[0] * left[1])


def _values(lower) -> UInt32[Array, "B S"]:
    """At each digit, the last `MAX_DIGITS` digits of its number up to there."""
    digit = is_digit(lower)
    value, inside = jnp.zeros(lower.shape, jnp.uint32), digit
    for k in range(MAX_DIGITS):
        value += jnp.where(inside, shift(lower, -k) - ord("0"), 0).astype(jnp.uint32) * jnp.uint32(10**k % 2**32)
        inside &= shift(digit, -k - 1)
    return value


def _value(first, negative, op, second, binary):
    """(numerator, denominator) modulo 2^32 of a side."""
    first = jnp.where(negative, jnp.uint32(0) - first, first)
    combined = jnp.where(op == ord("+"), first + second, jnp.where(op == ord("-"), first - second, first * second))
    divides = binary & (op == ord("/"))
    return jnp.where(binary & ~divides, combined, first), jnp.where(divides, second, jnp.uint32(1))


def _plain_integers(lower):
    """True on the digits of short integers that nothing is joined to (no decimals, identifiers, powers, thousands)."""
    digit = is_digit(lower)
    joined = is_letter(lower) | (lower >= 128) | is_any(lower, "_\\")
    tied_before = joined | is_any(lower, ".,!")
    tied_after = joined | is_any(lower, "^!%{([") | (is_any(lower, ".,:") & shift(digit, 1))
    before, after = last_true(~digit), next_true(~digit)
    return digit & ~at(tied_before, before) & ~at(tied_after, after) & (after - before - 1 <= MAX_DIGITS)


def _continues_left(lower):
    """Bytes that, standing before a number, make it part of something longer."""
    letter = is_letter(lower)
    in_command = letter & (at(lower, last_true(~letter)) == ord("\\"))  # \frac, \quad, ...
    tail = is_digit(lower) | (lower >= 128) | is_any(lower, OPERATORS + "^)]}%_\\")
    return tail | in_command | phrase_ends(lower, WORDS_BEFORE)


def _continues_right(lower):
    """Bytes that, standing after a number, make it part of something longer."""
    tail = is_digit(lower) | (lower >= 128) | is_any(lower, OPERATORS + "^!%({[\\_")
    return tail | phrase_starts(lower, WORDS_AFTER)


def enumerators(lower: UInt8[Array, "B S"]) -> Bool[Array, "B S"]:
    """True on the digits of numbers that only count lines: `2.`, `2)` or `2:` at the start of a line."""
    digit = is_digit(lower)
    starts = at(lower, at(last_true(~is_any(lower, " \t*#")), last_true(~digit), -1), ord("\n")) == ord("\n")
    end = next_true(~digit)
    return digit & starts & is_any(at(lower, end), ".):") & is_any(at(lower, end + 1, ord("\n")), " \t\n\0")


def quantities(lower: UInt8[Array, "B S"]) -> tuple[tuple[UInt32[Array, "B S"], Bool[Array, "B S"]], ...]:
    """Keys by which numbers, and operations on two numbers, are known again.

    A number is a run of digits with dots inside; numbers that count lines, steps (`step 2`) or slots (`[sub-2 answer]`)
    are none. An operation is two numbers joined by + - * or /.

    Returns:
      ((number keys, where), (operation keys, where)), each key at the last digit of its (second) number.
    """
    lower = plain_operators(lower)
    digit, blank = is_digit(lower), is_any(lower, " \t")
    inside = digit | ((lower == ord(".")) & shift(digit, -1) & shift(digit, 1))
    start, back = last_true(~inside) + 1, last_true(~blank)
    key = span_keys(lower, start)
    counts = enumerators(lower) | at(phrase_ends(lower, ("sub-",)), start - 1)
    counts |= at(phrase_ends(lower, ("step",)), at(back, start - 1, -1))
    number = inside & ~shift(inside, 1) & ~counts
    op = at(back, start - 1, -1)
    a = at(back, op - 1, -1)
    operation = number & is_any(at(lower, op), OPERATORS) & at(number, a)
    operation_key = (at(key, a) * jnp.uint32(0x85EBCA6B) + at(lower, op)) * jnp.uint32(0xC2B2AE35) + key
    return (key, number), (operation_key, operation)
