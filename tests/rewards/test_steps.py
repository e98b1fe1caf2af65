"""Step segmentation and the rule judge: known examples, and a reading of the rules with regular expressions."""

import random
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scope_jax.rewards import STEP_LABELS, ByteView, TokenBytes, completion_bytes, rule_labels, segment_steps
from scope_jax.rewards.segments import LONG_STEP
from scope_jax.rewards.steps import (
    MARKERS,
    NGRAM,
    OVERLAP,
    RETRACTIONS,
    RETRACTIONS_AT_CLAUSE_START,
    STATEMENT,
)

SIZE, STEPS, ROWS = 640, 12, 128  # one shape for all calls: one compilation
LABELS = jax.jit(rule_labels, static_argnames="max_steps")
SEGMENTS = jax.jit(segment_steps, static_argnames="max_steps")


def view_of(texts, junk=0):
    data = [text.encode()[:SIZE] for text in texts] + [b""] * (ROWS - len(texts))
    mask = np.arange(SIZE)[None] < np.array([len(d) for d in data])[:, None]
    table = np.array([np.frombuffer(d.ljust(SIZE, bytes([junk])), np.uint8) for d in data])
    return ByteView(jnp.asarray(table), jnp.asarray(mask), jnp.zeros_like(jnp.asarray(mask)))


def named(labels, mask):
    labels, mask = np.asarray(labels), np.asarray(mask)
    return [[STEP_LABELS[label] for label in row[real]] for row, real in zip(labels, mask, strict=True)]


def labels_of(*texts, **options):
    return named(*LABELS(view_of(texts, **options), max_steps=STEPS))[: len(texts)]


def chunks(texts):
    return [texts[i : i + ROWS] for i in range(0, len(texts), ROWS)]


# The rules once more, on strings.


def steps_by_reading(text, max_steps):
    starts = [m.end() for m in re.finditer(r"(?:\A\s*|\n[ \t\r]*\n\s*)(?=\S)", text)]
    cuts = list(starts)
    for start, end in zip(starts, [*starts[1:], len(text)][: len(starts)], strict=True):
        if end - start > LONG_STEP:
            for m in re.finditer(r"[.!?]\s+(?=\S)", text[start:end]):
                if not re.search(r"(?:\A|\n)[ \t*#]*\d+\.$", text[: start + m.start() + 1]):
                    cuts.append(start + m.end())
    cuts = sorted(cuts)[:max_steps]
    return [text[a:b] for a, b in zip(cuts, [*cuts[1:], len(text)][: len(cuts)], strict=True)]


def numbers_by_reading(step):
    for m in re.finditer(r"\d+(?:\.\d+)*", step):
        head, tail = step[: m.start()], step[m.end() :]
        counts_lines = re.search(r"(?:\A|\n)[ \t*#]*\Z", head) and re.match(r"[.):](?:[ \t\n]|\Z)", tail)
        if not counts_lines and not re.search(r"\bsub-\Z|\bstep[ \t]*\Z", head):
            yield m


def facts_by_reading(step):
    """Normalised text, n-grams, quantities and wrong equations of a step."""
    step = step.lower()
    lines = [line for line in step.split("\n") if not line.lstrip(" \t").startswith(MARKERS)]
    said = re.sub(r"[^a-z0-9+\-*/=<>^]", "", "".join(lines))
    grams = [said[i : i + NGRAM] for i in range(len(said) - NGRAM + 1)]
    found = list(numbers_by_reading(step))
    facts = {m.group() for m in found}
    for a, b in zip(found, found[1:]):
        between = step[a.end() : b.start()].strip(" \t")
        if re.fullmatch(r"[-+*/]", between):
            facts.add((a.group(), between, b.group()))
    wrong = False
    for a, op, b, c in re.findall(r"(\d+) ?([-+*/]) ?(\d+) ?= ?(-?\d+)", step):
        a, b, c = int(a), int(b), int(c)
        wrong |= a != b * c if op == "/" else {"+": a + b, "-": a - b, "*": a * b}[op] != c
    return said, grams, facts, wrong


def takes_back(step):
    step = step.lower()
    anywhere = any(re.search(rf"(?<![a-z]){re.escape(p)}(?![a-z])", step) for p in RETRACTIONS)
    starting = (re.finditer(rf"(?<![a-z]){p}(?![a-z])", step) for p in RETRACTIONS_AT_CLAUSE_START)
    return anywhere or any(not re.search(r"[a-z0-9][ \t]*\Z", step[: m.start()]) for ms in starting for m in ms)


def labels_by_reading(text, max_steps):
    labels, texts, grams_before, facts_before = [], set(), set(), set()
    for step in steps_by_reading(text, max_steps):
        said, grams, facts, wrong = facts_by_reading(step)
        new = bool(facts - facts_before)
        overlap = grams and sum(g in grams_before for g in grams) >= np.float32(OVERLAP) * np.float32(len(grams))
        states = bool(re.search(r"\d", said)) or len(said) >= STATEMENT
        if wrong:
            labels.append("error")
        elif takes_back(step):
            labels.append("reversion")
        elif states and ((said and said in texts) or (overlap and not new)):
            labels.append("redundant")
        else:
            labels.append("useful" if new else "mechanical")
        texts.add(said)
        grams_before |= set(grams)
        facts_before |= facts
    return labels


# Generated completions.

WORDS = [
    "Now the next one.", "So a is 61.", "So the sum is 61 as found.", "We add the two numbers to get the sum of both.",
    "Wait, let me redo that.", "Hmm.", "He had to wait 5 minutes.", "Actually, b is 46.", "It is actually fine.",
    "No, scratch that.", "Let us move on to what is asked in the question.", "1. First we look at the sum",
    "2. First we look at the sum", "Step 3: go on", "The price is 3.50 and the tax 0.5 of it.", "That's wrong.",
    "awaiting", "(so 7 - 3 = 4).", "7-3.", "Therefore we add the two numbers to get the sum of both!",
]  # fmt: skip


def equation(draw):
    a, b, op = draw.randint(1, 12), draw.randint(1, 12), draw.choice("+-*")
    value = {"+": a + b, "-": a - b, "*": a * b}[op] + draw.choice([0, 0, 0, 1])
    gap = draw.choice(["", " "])
    return f"{draw.choice(['a=', 'b=', '', 'So c = '])}{a}{gap}{op}{gap}{b}{gap}={gap}{value}."


def paragraph(draw, earlier):
    parts = []
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        pick = draw.random()
        if pick < 0.25 and earlier:
            parts.append(draw.choice(earlier))
        else:
            parts.append(equation(draw) if pick < 0.6 else draw.choice(WORDS))
    text = ("\n" if any(part[-1].isdigit() for part in parts) else draw.choice([" ", "\n"])).join(parts)
    text += draw.choice([""] * 6 + [f"\n[SUB-{draw.randint(1, 4)} ANSWER] {draw.randint(1, 99)}", "\nAnswer: 94"])
    earlier.append(text)
    return text


def completion(draw):
    earlier, text = [], draw.choice(["", "", "\n", " \n\n"])
    for _ in range(draw.randint(1, 9)):
        text += paragraph(draw, earlier) + draw.choice(["\n\n"] * 4 + ["\n \n", "\n\n\n", " \n\n  "])
    return text[: draw.choice([SIZE, SIZE, draw.randint(1, SIZE)])]


def test_labels_equal_a_reading_of_the_rules_on_thousands_of_completions():
    draw = random.Random(0)
    texts = [completion(draw) for _ in range(2048)]
    got = [labels for chunk in chunks(texts) for labels in labels_of(*chunk)]
    seen = set()
    for text, labels in zip(texts, got, strict=True):
        want = labels_by_reading(text, STEPS)
        assert labels == want, f"{text!r}\n{steps_by_reading(text, STEPS)}"
        seen |= set(want)
    assert seen == set(STEP_LABELS)


def test_steps_of_a_chain_get_their_labels():
    text = (
        "a=34+27=61.\n\nWait, let me redo that.\n\na=34+27=61.\n\nSo a is 61.\n\nb=61-15=56.\n\nNow the next one.\n\n"
        "b=61-15=46.\n[SUB-2 ANSWER] 46\n\nNow the next one.\n\nc=46+48=94.\nAnswer: 94"
    )
    expected = [
        "useful",
        "reversion",
        "redundant",
        "mechanical",
        "error",
        "mechanical",
        "useful",
        "mechanical",
        "useful",
    ]
    assert labels_of(text) == [expected]


def test_a_slot_after_a_repeated_step_does_not_make_it_new():
    assert labels_of("a=34+27=61.\n\na=34+27=61.\n[SUB-1 ANSWER] 61") == [["useful", "redundant"]]


@pytest.mark.parametrize(
    ("second", "label"),
    [
        ("a=34+27=61.", "redundant"),
        ("A = 34 + 27 = 61", "redundant"),
        ("a=34+27=62.", "error"),
        ("Wait, a=34+27=62.", "error"),
        ("Wait, a=34+27=61.", "reversion"),
        ("61=34+27", "mechanical"),
        ("So a is 61.", "mechanical"),
        ("b=61-27=34.", "useful"),
        ("b=61-15=46.", "useful"),
        ("Tom had to wait for 61 days.", "mechanical"),
        ("But wait", "reversion"),
        ("Step 2: go on", "mechanical"),
    ],
)
def test_rules_apply_in_the_order_of_precedence(second, label):
    assert labels_of(f"a=34+27=61.\n\n{second}") == [["useful", label]]


def test_only_a_statement_can_be_redundant():
    short, long = "Now the next one.", "The two angles at the base of the triangle are equal."
    assert labels_of("\n\n".join([short, short, long, long])) == [
        ["mechanical", "mechanical", "mechanical", "redundant"]
    ]


def test_padding_and_leading_blank_lines_never_change_the_labels():
    text = "a=34+27=61.\n\nSo a is 61.\n\nb=61-15=56."
    expected = [["useful", "mechanical", "error"]]
    assert labels_of(text) == expected
    assert labels_of(text, junk=ord("7")) == expected
    assert labels_of("\n\n  " + text + "\n\n\n") == expected
    assert labels_of("\n" * (SIZE - len(text)) + text) == expected  # no padding at all


def test_a_completion_without_text_has_no_steps():
    assert labels_of("", " \n\n \n") == [[], []]


def test_an_unsure_byte_never_makes_an_error():
    view = view_of(["b=61-15=56.\n\nb=61-15=56.", "b=61-15=56."])
    unsure = view.unsure.at[0, 3].set(True)
    assert named(*LABELS(view.replace(unsure=unsure), max_steps=STEPS))[:2] == [["useful", "error"], ["error"]]


def test_steps_past_the_limit_are_merged_into_the_last_and_not_dropped():
    text = "\n\n".join(f"{n}+1={n + 1}." for n in range(20)) + "\n\n1+1=3."
    assert labels_of(text) == [["useful"] * 11 + ["error"]]
    ids, count = SEGMENTS(view_of([text]), max_steps=STEPS)
    assert count[0] == 12 and ids[0, len(text) - 1] == 11 and ids[0, len(text)] == -1


def test_only_long_paragraphs_are_cut_at_sentence_ends():
    sentence = "We know that the first number is small. "
    short, long = (sentence * 3).strip(), (sentence * 10).strip()
    texts = [short, long, "1. " + long, long[:-1] + " 3.5 e.g.so", short + "\n\n" + long]
    _, count = SEGMENTS(view_of(texts), max_steps=STEPS)
    np.testing.assert_array_equal(count[:5], [1, 10, 10, 10, 11])


def test_segments_equal_a_reading_of_the_rule():
    draw = random.Random(2)
    pieces = ["a b.", "Is it? ", "x", ". ", "\n", "\n\n", " \n\t\n", "1. ", "\n2. ", "word " * 20, "end! ", "3.5 "]
    texts = ["".join(draw.choices(pieces, k=draw.randint(1, 30)))[:SIZE] for _ in range(2048)]
    parts = [SEGMENTS(view_of(chunk), max_steps=STEPS) for chunk in chunks(texts)]
    ids, count = (np.concatenate(part) for part in zip(*parts, strict=True))
    for text, row, n in zip(texts, ids, count, strict=True):
        steps = steps_by_reading(text, STEPS)
        lead = len(text) - sum(map(len, steps))
        want = [-1] * lead + [i for i, step in enumerate(steps) for _ in step]
        assert n == len(steps) and row[: len(text)].tolist() == want, repr(text)
        assert np.all(row[len(text) :] == -1)


def test_ordinary_solutions_get_sane_labels():
    english = (
        "To find the total cost, we first add the prices: 12 + 7 = 19 dollars.\n\n"
        "Next, the tax is 10% of 19, which is 1.90.\n\nHmm, wait. I forgot the discount.\n\n"
        "The discount is 4, so 19 - 4 = 15.\n\nSo we have the total cost before tax.\n\nTherefore 15 + 1 = 17."
    )
    latex = (
        "We have \\(x^2 - 5x + 6 = 0\\).\n\nFactoring, \\[(x-2)(x-3)=0,\\] so $x=2$ or $3$, and $2 \\times 3 = 6$.\n\n"
        "\\begin{align*} \\frac{1}{2} + \\frac{1}{3} &= \\frac{5}{6} \\end{align*}\n\n"
        "The answer is $\\boxed{6}$. \u2713"
    )
    assert labels_of(english, latex) == [
        ["useful", "useful", "reversion", "useful", "mechanical", "error"],
        ["useful", "useful", "useful", "mechanical"],
    ]


def test_labels_from_tokens_are_those_of_the_text():
    text = "a=34+27=61.\n\nSo a is 61.\n\nb=61-15=56."
    table = TokenBytes(jnp.arange(256, dtype=jnp.uint8)[:, None], jnp.ones(256, jnp.int32), markers=None)
    tokens = np.frombuffer(("1+1=3.\n\n" + text).encode(), np.uint8).astype(np.int32)[None].repeat(ROWS, axis=0)
    mask = jnp.broadcast_to(
        jnp.arange(tokens.shape[1]) >= 8, tokens.shape
    )  # the prompt's wrong equation does not count
    view = completion_bytes(jnp.asarray(tokens), mask, table, size=SIZE)
    assert named(*LABELS(view, max_steps=STEPS)) == [["useful", "mechanical", "error"]] * ROWS
