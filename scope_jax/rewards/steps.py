"""A rule judge on the device: it labels each reasoning step of a completion."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, UInt8, UInt32

from scope_jax.rewards.bytes import ByteView, lower_case
from scope_jax.rewards.equations import quantities, wrong_equations
from scope_jax.rewards.qpr import STEP_LABELS
from scope_jax.rewards.scans import (
    MULTIPLIER,
    at,
    is_any,
    is_digit,
    is_letter,
    last_true,
    phrase_starts,
    seen_earlier,
    shift,
    span_keys,
    step_edges,
    step_sums,
)
from scope_jax.rewards.segments import segment_steps

NGRAM = 8  # bytes of normalised text
OVERLAP = 0.8  # share of a step's n-grams that earlier steps hold, from which it says nothing else
STATEMENT = 24  # normalised bytes; a shorter step without a number states nothing that could be said again

RETRACTIONS = (
    "hmm", "scratch that", "start over", "starting over", "let me redo", "let me try again", "let me correct",
    "let me reconsider", "made a mistake", "made an error", "on second thought", "that is wrong", "that's wrong",
    "that is not right", "that's not right", "but wait", "oh wait", "no wait",
)  # fmt: skip
RETRACTIONS_AT_CLAUSE_START = ("wait", "actually", "oops")  # "he had to wait" takes nothing back
MARKERS = ("[sub-", "[main answer]", "answer:")  # lines that begin so hold answers, not reasoning


def rule_labels(view: ByteView, *, max_steps: int) -> tuple[Int[Array, "B N"], Bool[Array, "B N"]]:
    """Labels each step by rule; where several rules hold, the first counts.

        error       a simple equation of the step is wrong (`wrong_equations`)
        reversion   it has a phrase that takes back, such as `wait` or `let me redo`
        redundant   its normalised text is that of an earlier step, or it brings no new quantity and at least `OVERLAP`
                    of its n-grams stand in earlier steps
        mechanical  it brings no new quantity: no number and no operation on two numbers that earlier steps lack
        useful      otherwise

    A wrong step misleads whatever else it does, so error comes first; a reversion usually repeats what it takes back,
    so it comes before redundant. `So a is 61.` after `a=34+27=61.` is mechanical: it rewrites without adding.
    Normalised text is lower case without white space and punctuation; lines that hold only an answer (`MARKERS`) are
    left out of it. A short step without a number is never redundant. A step with an unsure byte is never an error.

    Args:
      view: the completion's bytes, left aligned.
      max_steps: width N of the result, see `segment_steps`.

    Returns:
      Indices into `STEP_LABELS` (0 where there is no step), and the mask of real steps.

    Source: the five labels are those of SCOPE-RL (arXiv 2607.11506), Stage 2; the rules are ours.
    """
    lower = lower_case(view)
    ids, count = segment_steps(view, max_steps=max_steps)
    edges = step_edges(jnp.where(view.mask, ids, max_steps), max_steps)
    mask = jnp.arange(max_steps) < count[:, None]

    error = (step_sums(wrong_equations(lower), edges) > 0) & (step_sums(view.unsure, edges) == 0)
    reversion = step_sums(_retractions(lower), edges) > 0

    text, text_ids = _normalised(lower, ids, max_steps)
    (number, is_number), (operation, is_operation) = quantities(lower)
    groups = [
        (_ngram_keys(text), _ngram_valid(text_ids, max_steps), text_ids),
        (_step_keys(text, text_ids), _is_last(text_ids, max_steps), text_ids),
        (number, is_number & (ids >= 0), ids),
        (operation, is_operation & (ids >= 0), ids),
    ]
    seen = _seen_by_group(groups)
    text_edges = step_edges(text_ids, max_steps)
    ngrams, ngrams_seen = step_sums(groups[0][1], text_edges), step_sums(seen[0], text_edges)
    repeats = step_sums(seen[1], text_edges) > 0
    new = step_sums(groups[2][1] & ~seen[2], edges) + step_sums(groups[3][1] & ~seen[3], edges) > 0
    states = (step_sums(is_digit(text), text_edges) > 0) | (jnp.diff(text_edges, axis=1) >= STATEMENT)
    overlaps = (ngrams > 0) & (ngrams_seen >= OVERLAP * ngrams)
    redundant = states & (repeats | (overlaps & ~new))

    rules = [(error, "error"), (reversion, "reversion"), (redundant, "redundant"), (~new, "mechanical")]
    labels = jnp.select([rule for rule, _ in rules], [jnp.int32(STEP_LABELS.index(name)) for _, name in rules], 0)
    return jnp.where(mask, labels, 0), mask


def _retractions(lower) -> Bool[Array, "B S"]:
    """True where a phrase that takes back begins."""
    back = shift(last_true(~is_any(lower, " \t")), -1).at[:, 0].set(-1)
    word_before = at(is_letter(lower) | is_digit(lower), back)
    return phrase_starts(lower, RETRACTIONS) | (phrase_starts(lower, RETRACTIONS_AT_CLAUSE_START) & ~word_before)


def _normalised(lower, ids, max_steps) -> tuple[UInt8[Array, "B S"], Int[Array, "B S"]]:
    """What a step says, left aligned: letters, digits, operators and non-ASCII bytes; and the step of each byte."""
    line_start = shift(last_true(~is_any(lower, " \t")), -1).at[:, 0].set(-1)
    marker = phrase_starts(lower, MARKERS) & (at(lower, line_start, ord("\n")) == ord("\n"))
    answers = last_true(marker) > last_true(lower == ord("\n"))
    said = is_letter(lower) | is_digit(lower) | (lower >= 128) | is_any(lower, "+-*/=<>^")
    keep = said & ~answers & (ids >= 0)
    wanted = jnp.arange(1, lower.shape[1] + 1)
    source = jax.vmap(lambda row: jnp.searchsorted(row, wanted, side="left"))(jnp.cumsum(keep, axis=1))
    return at(lower, source), at(ids, source, max_steps)


def _ngram_keys(text) -> UInt32[Array, "B S"]:
    """Key of the n-gram that ends at each place."""
    key = jnp.zeros(text.shape, jnp.uint32)
    for k in range(NGRAM - 1, -1, -1):
        key = key * jnp.uint32(MULTIPLIER) + shift(text, -k)
    return key


def _ngram_valid(text_ids, max_steps) -> Bool[Array, "B S"]:
    """Whether the n-gram that ends at each place lies in one step."""
    inside = jnp.arange(text_ids.shape[1]) >= NGRAM - 1
    return inside & (text_ids < max_steps) & (shift(text_ids, 1 - NGRAM) == text_ids)


def _step_keys(text, text_ids) -> UInt32[Array, "B S"]:
    """Key of the step's text up to each place."""
    changes = shift(text_ids, -1).at[:, 0].set(-1) != text_ids
    return span_keys(text, last_true(changes))


def _is_last(text_ids, max_steps) -> Bool[Array, "B S"]:
    """True on the last byte of each step's text."""
    return (text_ids < max_steps) & (shift(text_ids, 1).at[:, -1].set(max_steps) != text_ids)


def _seen_by_group(groups) -> list[Bool[Array, "B S"]]:
    """`seen_earlier` for several kinds of keys in one sort; the kind is mixed into the key."""
    keys = [
        (keys ^ jnp.uint32(salt)) * jnp.uint32(0x9E3779B1) + jnp.uint32(salt)
        for salt, (keys, _, _) in enumerate(groups)
    ]
    joined = [jnp.concatenate(part, axis=1) for part in (keys, [g[2] for g in groups], [g[1] for g in groups])]
    return jnp.split(seen_earlier(*joined), len(groups), axis=1)
