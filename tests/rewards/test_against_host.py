"""The device's verdicts against the host's, which go through other code and, here, through math-verify."""

import numpy as np
import reference
from completions import PLAIN, TEXTS, completion

from scope_jax.rewards import RIGHT, UNDECIDED, AnswerKey, slots, verify_main
from scope_jax.verify import Result, extract, extract_answer, extract_slots
from scope_jax.verify.numbers import parse_number
from scope_jax.verify.symbolic import symbolic_check

ROWS, LENGTH = 512, 160  # the shape that test_slots.py compiles for


def is_known_false_positive(answer, gold):
    """math-verify rounds decimals to six places, so it equates numbers whose exact values differ."""
    a, b = parse_number(answer), parse_number(gold)
    return a is not None and b is not None and a != b and abs(a - b) < 1e-5


def test_decided_rows_agree_with_math_verify(table, writer):
    rng = np.random.default_rng(0)
    golds = [str(rng.choice(PLAIN if rng.random() < 0.8 else TEXTS)) for _ in range(ROWS)]
    ids, mask, kept = writer.rows(rng, [completion(rng, gold) for gold in golds], LENGTH)
    verdicts = np.asarray(verify_main(ids, mask, table, AnswerKey.from_strings(golds), np.ones(ROWS, bool))).tolist()
    compared = 0
    for verdict, text, gold in zip(verdicts, kept, golds, strict=True):
        answer = extract_answer(text)
        if verdict == UNDECIDED or (verdict == RIGHT and answer == gold):
            continue
        if answer is None:
            assert verdict != RIGHT, text
        elif not is_known_false_positive(answer, gold):
            read = symbolic_check(answer.removeprefix("+"), gold)  # math-verify reads no `+1,234`
            assert (read is Result.right) == (verdict == RIGHT), (answer, gold)
            compared += 1
    assert compared > 100


def test_the_host_extracts_what_the_reference_reads():
    rng = np.random.default_rng(1)
    for _ in range(2000):
        text = completion(rng, "12", slots=True).decode(errors="replace")
        ended = bool(rng.random() < 0.7)
        box = str(rng.choice(["last", "first"]))
        expected = [reference.main_text(text, ended, box)]
        markers = ("[SUB-1 ANSWER]", "[SUB-2 ANSWER]", "[MAIN ANSWER]")
        expected += [reference.slot_text(text, marker, ended, box) for marker in markers]
        given = [extract_answer(text, ended=ended, box=box), *extract_slots(text, 2, ended=ended, box=box)]
        for answer, raw in zip(given, expected, strict=True):
            assert reference.bare(answer or "") == reference.bare(raw or ""), text


def test_the_host_reads_the_numbers_that_the_reference_reads():
    rng = np.random.default_rng(2)
    alphabet = list("0123456789,./-+{}") + ["\\frac{", "}{", "$", "\u2212", " "]
    for _ in range(5000):
        text = "".join(rng.choice(alphabet, rng.integers(1, 7)))
        assert parse_number(text) == reference.number(reference.bare(text)), text


def test_device_and_host_document_one_table_of_rules():
    tables = [[line for line in module.__doc__.splitlines() if line.startswith("|")] for module in (slots, extract)]
    assert tables[0] == tables[1] and len(tables[0]) > 10
