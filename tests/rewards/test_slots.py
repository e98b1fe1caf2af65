import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from completions import PLAIN, TEXTS, answer_text, completion, spellings

from scope_jax.rewards import RIGHT, UNDECIDED, WRONG, AnswerKey, TokenBytes, verify_main, verify_slots
from scope_jax.rewards.slots import WINDOW

NAMES = {WRONG: reference.WRONG, RIGHT: reference.RIGHT, UNDECIDED: reference.OPEN}
ROWS, LENGTH, SUBS = 512, 160, 12  # one shape for all tests: each kernel compiles once


@pytest.fixture(scope="module")
def narrow(tokenizer):
    return TokenBytes.from_tokenizer(tokenizer, max_bytes=1)


def full_shape(ids, mask=None):
    """One row of tokens as the first of a full batch."""
    tokens, real = np.zeros((ROWS, LENGTH), np.int32), np.zeros((ROWS, LENGTH), bool)
    tokens[0, : len(ids)], real[0, : len(ids)] = ids, True if mask is None else mask
    return tokens, real


def main_row(ids, gold, table, mask=None):
    """The main verdict on one row of tokens."""
    key = AnswerKey.from_strings([gold] * ROWS)
    return int(verify_main(*full_shape(ids, mask), table, key, np.ones(ROWS, bool))[0])


def golds_for(rng):
    return str(rng.choice(PLAIN if rng.random() < 0.8 else TEXTS))


def main_batch(rng, writer):
    golds = [golds_for(rng) for _ in range(ROWS)]
    ids, mask, kept = writer.rows(rng, [completion(rng, gold) for gold in golds], LENGTH)
    return golds, ids, mask, kept, rng.random(ROWS) < 0.7


def slot_batch(rng, writer):
    golds = [[golds_for(rng) for _ in range(rng.integers(1, 6))] for _ in range(ROWS)]
    texts = [completion(rng, str(rng.choice(row)), slots=True) for row in golds]
    ids, mask, kept = writer.rows(rng, texts, LENGTH)
    return golds, ids, mask, kept, rng.random(ROWS) < 0.7


def main_rows(writer, texts, golds, table, ended=(), box="last"):
    """Verdicts on a few texts, in the shape that everything else is compiled for."""
    rng = np.random.default_rng(0)
    texts, golds = [*texts, *[""] * (ROWS - len(texts))], [*golds, *["1"] * (ROWS - len(golds))]
    ids, mask, _ = writer.rows(rng, [text.encode() for text in texts], LENGTH)
    whole = np.ones(ROWS, bool)
    whole[: len(ended)] = ended
    verdicts = verify_main(ids, mask, table, AnswerKey.from_strings(golds), whole, box=box)
    return [NAMES[v] for v in np.asarray(verdicts).tolist()]


def slot_rows(writer, texts, golds, table, box="last"):
    rng = np.random.default_rng(0)
    texts, golds = [*texts, *[""] * (ROWS - len(texts))], [*golds, *[["1"]] * (ROWS - len(golds))]
    ids, mask, _ = writer.rows(rng, [text.encode() for text in texts], LENGTH)
    key = AnswerKey.from_strings(golds, max_subs=SUBS)
    verdicts = verify_slots(ids, mask, table, key, np.ones(ROWS, bool), box=box)
    return [[NAMES[v] for v in row] for row in np.asarray(verdicts).tolist()]


@pytest.mark.parametrize("box", ["last", "first"])
def test_main_verdicts_equal_the_reference_wherever_the_device_decides(table, writer, box):
    rng = np.random.default_rng(0)
    decided = {reference.RIGHT: 0, reference.WRONG: 0}
    open_rows = 0
    for _ in range(8):
        golds, ids, mask, kept, ended = main_batch(rng, writer)
        verdicts = np.asarray(verify_main(ids, mask, table, AnswerKey.from_strings(golds), ended, box=box)).tolist()
        for verdict, gold, text, end in zip(verdicts, golds, kept, ended, strict=True):
            expected = reference.main_verdict(text, gold, end, box)
            if expected == reference.OPEN:  # beyond plain numbers: `test_reading.py`
                open_rows += 1
            elif verdict != UNDECIDED:
                assert NAMES[verdict] == expected, (text, gold, end)
                decided[expected] += 1
    # The generator must exercise all three verdicts, or the comparison proves little.
    assert min(decided.values()) > 400 and open_rows > 200


@pytest.mark.parametrize("box", ["last", "first"])
def test_slot_verdicts_equal_the_reference_wherever_the_device_decides(table, writer, box):
    rng = np.random.default_rng(1)
    decided = {reference.RIGHT: 0, reference.WRONG: 0}
    for _ in range(8):
        golds, ids, mask, kept, ended = slot_batch(rng, writer)
        key = AnswerKey.from_strings(golds, max_subs=SUBS)
        verdicts = np.asarray(verify_slots(ids, mask, table, key, ended, box=box))
        for row, golds_of_row, text, end in zip(verdicts, golds, kept, ended, strict=True):
            m = len(golds_of_row) - 1
            assert (row[m:SUBS] == WRONG).all()
            given = [*row[:m], row[SUBS]]
            for verdict, expected in zip(given, reference.slot_verdicts(text, golds_of_row, end, box), strict=True):
                if verdict != UNDECIDED and expected != reference.OPEN:
                    assert NAMES[int(verdict)] == expected, (text, golds_of_row, end)
                    decided[expected] += 1
    assert min(decided.values()) > 400


def test_plain_numbers_are_always_decided(table, writer):
    rng = np.random.default_rng(2)
    golds = [str(rng.choice(PLAIN)) for _ in range(ROWS)]
    forms = [
        "so \\boxed{%s} it is",
        "Answer: %s\nDone.",
        "\\boxed{3} or Answer:%s",
        "[MAIN ANSWER] 3\n{ \\boxed{%s" + "}}",
    ]
    answers = [spellings(rng, gold if rng.random() < 0.5 else str(rng.choice(PLAIN))) for gold in golds]
    texts = [str(rng.choice(forms)).replace("%s", answer) for answer in answers]
    ids, mask, kept = writer.rows(rng, [text.encode() for text in texts], LENGTH)
    verdicts = np.asarray(verify_main(ids, mask, table, AnswerKey.from_strings(golds), np.ones(ROWS, bool))).tolist()
    expected = [reference.main_verdict(text, gold) for text, gold in zip(kept, golds, strict=True)]
    assert [NAMES[v] for v in verdicts] == expected
    assert expected.count(reference.RIGHT) > 200 and expected.count(reference.WRONG) > 150


def test_plain_numbers_in_slots_are_always_decided(table, writer):
    rng = np.random.default_rng(3)
    golds = [[str(rng.choice(PLAIN)) for _ in range(3)] for _ in range(ROWS)]
    texts = []
    for row in golds:
        a, b, c = (spellings(rng, gold if rng.random() < 0.7 else str(rng.choice(PLAIN))) for gold in row)
        texts.append(f"x\n[SUB-1 ANSWER] {a}\n\n[SUB-2 ANSWER]{b}[MAIN ANSWER] so \\boxed{{{c}}}\nend".encode())
    ids, mask, kept = writer.rows(rng, texts, LENGTH)
    key = AnswerKey.from_strings(golds, max_subs=SUBS)
    verdicts = np.asarray(verify_slots(ids, mask, table, key, np.ones(ROWS, bool)))[:, [0, 1, SUBS]].tolist()
    expected = [reference.slot_verdicts(text, row) for text, row in zip(kept, golds, strict=True)]
    assert [[NAMES[v] for v in row] for row in verdicts] == expected


def test_padding_never_changes_a_verdict(table, writer):
    rng = np.random.default_rng(4)
    golds = [golds_for(rng) for _ in range(ROWS)]
    texts = [completion(rng, gold) for gold in golds]
    key, verdicts = AnswerKey.from_strings(golds), []
    for seed in (5, 6):  # other tokens, other prompts, other holes, same text
        ids, mask, kept = writer.rows(np.random.default_rng(seed), texts, LENGTH)
        whole = np.array([text.decode(errors="replace") == left for text, left in zip(texts, kept, strict=True)])
        verdicts.append((whole, np.asarray(verify_main(ids, mask, table, key, np.ones(ROWS, bool)))))
    both = verdicts[0][0] & verdicts[1][0]
    assert both.sum() > ROWS * 0.8
    assert (verdicts[0][1][both] == verdicts[1][1][both]).all()


def test_a_narrow_table_leaves_rows_open_but_never_turns_a_verdict(narrow, table, writer):
    rng = np.random.default_rng(7)
    golds, ids, mask, _, ended = main_batch(rng, writer)
    key = AnswerKey.from_strings(golds)
    wide = np.asarray(verify_main(ids, mask, table, key, ended))
    little = np.asarray(verify_main(ids, mask, narrow, key, ended))
    assert ((little == wide) | (little == UNDECIDED)).all()
    assert (little != wide).any() and (little == RIGHT).any()


def test_a_brace_that_the_table_is_too_narrow_for_is_not_taken_as_missing(narrow, table, writer):
    ids = [*writer.tokens(np.random.default_rng(0), b"so \\boxed{"), writer.ids[b"5}.\n"]]
    assert main_row(ids, "5", table) == RIGHT
    assert main_row(ids, "5", narrow) == UNDECIDED


def test_the_last_marker_decides(table, writer):
    texts = ["\\boxed{1} then \\boxed{2}", "\\boxed{1}\nAnswer: 2", "Answer: 1\n\\boxed{2}", "Answer: 1\nAnswer: 2\n"]
    texts += ["Answer: \\boxed{2}", "\\boxed{\\boxed{2}}", "\\boxed{{2}} \\boxed{2}"]
    assert main_rows(writer, texts, ["2"] * 7, table)[:7] == ["right"] * 7
    assert main_rows(writer, texts[:4], ["1"] * 4, table)[:4] == ["wrong"] * 4


def test_an_unfinished_last_box_never_falls_back_to_an_earlier_one(table, writer):
    texts = ["\\boxed{5} so \\boxed{5", "Answer: 5\n\\boxed{", "\\boxed{5", "\\boxed{5} \\boxed{\\frac{1}{2}"]
    assert main_rows(writer, texts, ["5"] * 4, table)[:4] == ["wrong"] * 4


def test_a_last_line_cut_by_the_length_limit_is_no_answer(table, writer):
    texts = ["Answer: 5", "Answer: 5\n", "\\boxed{5}", "\\boxed{5} Answer: 5"]
    assert main_rows(writer, texts, ["5"] * 4, table)[:4] == ["right"] * 4
    cut = main_rows(writer, texts, ["5"] * 4, table, ended=[False] * 4)[:4]
    assert cut == ["wrong", "right", "right", "wrong"]


def test_a_completion_without_marker_is_wrong_and_the_prompts_markers_never_count(table, writer):
    # The writer puts `\boxed{7}`, `Answer: 7` and the beginning of a box into the masked prompt.
    assert main_rows(writer, ["7", "ed{7}", "7}", "wer: 7"], ["7"] * 4, table)[:4] == ["wrong"] * 4
    ids = [writer.ids[b"\\"], *writer.tokens(np.random.default_rng(0), b"boxed{7}")]
    assert main_row(ids, "7", table) == RIGHT
    assert main_row(ids, "7", table, mask=np.arange(len(ids)) > 0) == WRONG


def test_only_text_behind_the_thinking_counts(table, writer):
    texts = ["<think>\\boxed{1}</think>\n\\boxed{2}", "<think>\\boxed{2}</think> so two", "\\boxed{2}</think>", "</think>\\boxed{2}"]
    texts += ["<think>a</think> <think>\\boxed{1}</think> Answer: 2", "<think>\n\n</think>\n\n**Answer:** 2", "Answer: 1</think>Answer: 2"]
    right = [True, False, False, True, True, True, True]
    assert [v == "right" for v in main_rows(writer, texts, ["2"] * 7, table)[:7]] == right
    slots = ["<think>[SUB-1 ANSWER] 3\n</think>[MAIN ANSWER] 4", "[SUB-1 ANSWER] 3</think>\n[SUB-1 ANSWER] 3\n[MAIN ANSWER] 4"]
    got = slot_rows(writer, slots, [["3", "4"]] * 2, table)
    assert [(row[0], row[-1]) for row in got[:2]] == [("wrong", "right"), ("right", "right")]


def test_thinking_that_never_ends_leaves_no_answer(table, writer):
    texts = ["<think> so \\boxed{2}", "\\boxed{2} <think> wait", "</think><think>Answer: 2\n", "<think>a</think>\\boxed{2}<think>"]
    assert main_rows(writer, texts, ["2"] * 4, table)[:4] == ["wrong"] * 4
    got = slot_rows(writer, ["<think>[SUB-1 ANSWER] 3\n[MAIN ANSWER] 4\n"], [["3", "4"]], table)
    assert set(got[0]) == {"wrong"}


def test_the_prompts_think_block_never_counts_not_even_one_that_stays_open(table, writer):
    """Qwen3's template ends in `<think>\\n\\n</think>` with thinking off; other templates end in `<think>`."""
    rng = np.random.default_rng(0)
    for prompt in (b"<think>\n\n</think>\n\n", b"<think>\n", b"\\boxed{7} <thi"):
        before, after = writer.tokens(rng, prompt), writer.tokens(rng, b"\\boxed{2} so</think> \\boxed{3}")
        mask = np.arange(len(before) + len(after)) >= len(before)
        assert main_row([*before, *after], "3", table, mask=mask) == RIGHT
        before, after = writer.tokens(rng, prompt), writer.tokens(rng, b"nk>\\boxed{2} so")
        mask = np.arange(len(before) + len(after)) >= len(before)
        assert main_row([*before, *after], "2", table, mask=mask) == RIGHT


def test_bold_type_around_an_answer_is_no_part_of_it(table, writer):
    texts = ["**Answer:** 5", "**Answer: 5**", "**Answer**: 5", "Answer: **5**.\n", "**Final Answer:** **$5$.**", "*Answer: 5.* "]
    assert main_rows(writer, texts, ["5"] * 6, table)[:6] == ["right"] * 6
    assert main_rows(writer, texts, ["6"] * 6, table)[:6] == ["wrong"] * 6
    assert main_rows(writer, ["Answer: **", "Answer: **-**"], ["6"] * 2, table)[:2] == ["wrong", "open"]
    got = slot_rows(writer, ["**[SUB-1 ANSWER]** 3\n**[MAIN ANSWER] 4**"], [["3", "4"]], table)[0]
    assert (got[0], got[-1]) == ("right", "right")


def test_the_first_box_counts_where_the_config_says_so(table, writer):
    texts = ["\\boxed{1} or \\boxed{2}", "\\boxed{1}\nAnswer: 2", "Answer: 1\n", "\\boxed{2}</think>\\boxed{1} \\boxed{3}"]
    texts += ["\\boxed{ or \\boxed{1} so", "\\boxed{\\boxed{1}}"]  # unfinished; nested
    verdicts = main_rows(writer, texts, ["1"] * 6, table, box="first")[:6]
    assert verdicts[:4] == ["right"] * 4 and verdicts[4] in ("wrong", "open") and verdicts[5] == "open"
    assert main_rows(writer, texts[:2], ["2"] * 2, table, box="first")[:2] == ["wrong"] * 2
    assert main_rows(writer, texts[5:], ["\\boxed{1}"], table, box="first")[0] == "open"  # the host reads the inner box
    got = slot_rows(writer, ["[SUB-1 ANSWER] \\boxed{1} or \\boxed{2}\n[MAIN ANSWER] 3"], [["1", "3"]], table, box="first")[0]
    assert (got[0], got[-1]) == ("right", "right")


def test_two_equal_boxes_are_not_glued(table, writer):
    texts = ["\\boxed{840}\\boxed{840}", "$\\boxed{840}$, $\\boxed{840}$", "\\boxed{004} \\boxed{004}"]
    assert main_rows(writer, texts, ["840", "840", "4"], table)[:3] == ["right"] * 3
    assert main_rows(writer, texts, ["840840", "840840", "4.004"], table)[:3] == ["wrong"] * 3


def test_what_algebra_might_equate_is_undecided(table, writer):
    texts = [f"\\boxed{{{text}}}" for text in ["\\sqrt[2]{4}", "2 g", "2x", "2\\cdot 1", "\\{2\\}", "2^1", "two"]]
    texts += ["\\boxed{\\left\\{2\\right.}", "\\boxed{2\\}"]  # an escaped brace does not open or close a box
    assert main_rows(writer, texts, ["2"] * len(texts), table)[: len(texts)] == ["open"] * len(texts)
    assert main_rows(writer, ["\\boxed{friday}", "\\boxed{Friday}", "\\boxed{2}"], ["Friday"] * 3, table)[:3] == [
        "right",
        "right",
        "open",
    ]


def test_an_answer_longer_than_the_window_is_undecided(table, writer):
    fits = "\\boxed{" + " " * (WINDOW - 3) + "5} so"
    longer = "\\boxed{" + " " * WINDOW + "5} so"
    assert main_rows(writer, [fits, longer, longer[:-4]], ["5"] * 3, table)[:3] == ["right", "open", "open"]


def test_a_marker_for_a_later_slot_ends_a_slot_and_repeats_override(table, writer):
    texts = ["[SUB-1 ANSWER] 1 [SUB-2 ANSWER] 2 [SUB-1 ANSWER] 3\n[MAIN ANSWER] 4"]
    texts += ["[SUB-1 ANSWER] 3 [SUB-44 ANSWER] 9\n[SUB-2 ANSWER] \\boxed{1} or \\boxed{2}\n[MAIN ANSWER]\n4"]
    texts += ["[SUB-1 ANSWER] 3\n[SUB-1 ANSWER] \\boxed{3\n[SUB-2 ANSWER 2\n[MAIN ANSWER] x \\boxed{4} y"]
    got = slot_rows(writer, texts, [["3", "2", "4"]] * 3, table)[:3]
    none = ["wrong"] * (SUBS - 2)
    assert got[0] == ["right", "right", *none, "right"]
    assert got[1] == ["right", "right", *none, "wrong"]
    assert got[2] == ["wrong", "wrong", *none, "right"]


def test_two_digit_slots_are_told_apart(table, writer):
    text = "".join(f"[SUB-{i} ANSWER] {i * 10}\n" for i in (1, 2, 11, 12)) + "[MAIN ANSWER] 5"
    verdicts = slot_rows(writer, [text], [[*(str(i * 10) for i in range(1, SUBS + 1)), "5"]], table)[0]
    assert [i + 1 for i, verdict in enumerate(verdicts) if verdict == "right"] == [1, 2, 11, 12, SUBS + 1]


def test_more_slots_than_the_table_finds_are_refused(table):
    ids = np.zeros((1, 4), np.int32)
    with pytest.raises(ValueError, match="max_subs"):
        verify_slots(ids, ids > 0, table, AnswerKey.from_strings([["1"] * 18]))


def test_keys_of_the_wrong_shape_are_refused(table):
    ids = np.zeros((2, 4), np.int32)
    with pytest.raises(ValueError, match="one main answer a row"):
        verify_main(ids, ids > 0, table, AnswerKey.from_strings(["1"]))
    with pytest.raises(ValueError, match="2 rows"):
        verify_slots(ids, ids > 0, table, AnswerKey.from_strings(["1", "2"]))


def largest_array(jaxpr):
    """Most elements that any step of a program holds in one array."""
    inner = [p for eqn in jaxpr.eqns for p in jax.tree.leaves(list(eqn.params.values()), is_leaf=callable)]
    jaxprs = [getattr(p, "jaxpr", p) for p in inner if hasattr(p, "jaxpr") or hasattr(p, "eqns")]
    sizes = [v.aval.size for eqn in jaxpr.eqns for v in eqn.outvars]
    return max([*sizes, *map(largest_array, jaxprs)])


def test_no_array_grows_with_tokens_times_bytes(table):
    """The trap of expanding long completions: 384 rows of 8,192 tokens never need more than [B T]-sized arrays."""
    rows, length, subs = 384, 8192, 9
    ids, mask = jax.ShapeDtypeStruct((rows, length), jnp.int32), jax.ShapeDtypeStruct((rows, length), jnp.bool_)
    key = AnswerKey.from_strings([["1"] * (subs + 1)] * rows)
    program = jax.make_jaxpr(verify_slots)(ids, mask, table, key)
    assert rows * length <= largest_array(program.jaxpr) <= 2 * rows * length


def test_answers_of_every_kind_reach_the_device(table, writer):
    """The generator of this file covers what it says: every trap is met with a gold answer that it equals."""
    rng = np.random.default_rng(8)
    seen = "".join(answer_text(rng, "-3") for _ in range(3000))
    assert all(trap in seen for trap in ("007", "\u2212", "+", "1,234", "3.50", "-0", "\\frac{", "\\dfrac{", "$."))
