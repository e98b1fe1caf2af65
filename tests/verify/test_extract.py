import pytest

from scope_jax.verify import extract_answer, extract_slots


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("so \\boxed{12}.", "12"),
        ("Answer: 12\nBye", "12"),
        ("Final Answer: $12$.", "12"),
        ("\\boxed{1} and \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{1}\nAnswer: 2", "2"),
        ("Answer: 1\n\\boxed{2}", "2"),
        ("Answer: $\\boxed{2}$", "2"),
        ("\\boxed{\\boxed{3}}", "3"),
        ("\\boxed{\\left\\{1\\right.}", "\\left\\{1\\right"),
        ("\\boxed{\\{1,2\\}} so", "\\{1,2\\}"),
        ("Answer: $x$ or $y$", "$x$ or $y$"),
        ("\\boxed{840}\\boxed{840}", "840"),  # boxed twice, never glued
        ("\\boxed {5}", "5"),
        ("**Answer:** 5", "5"),
        ("**Answer: 5**", "5"),
        ("**Answer**: **$\\frac12$**.", "\\frac12"),
        ("Answer: **", None),
        ("<think>\\boxed{1}</think>\\boxed{2}", "2"),
        ("\\boxed{2}</think>", None),
        ("<think>\n\n</think>\n\nAnswer: 2", "2"),
        ("<think> \\boxed{2}", None),
        ("Answer: 2 <think> but", None),
        ("[MAIN ANSWER] 4", None),
        ("answer: 4", None),
        ("Answer:\n4", None),
        ("\\boxed{ $ }", None),
        ("", None),
    ],
)
def test_the_last_marker_gives_the_answer(completion, answer):
    assert extract_answer(completion) == answer


def test_an_unfinished_last_box_never_falls_back_to_an_earlier_one():
    assert extract_answer("\\boxed{5} so \\boxed{5") is None
    assert extract_answer("Answer: 5\nso \\boxed{\\frac{1}{2}") is None


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("\\boxed{1} and \\boxed{2}", "1"),
        ("\\boxed {1} and \\boxed{2}", "1"),
        ("Answer: 3\n\\boxed{1}\nAnswer: 4", "1"),
        ("Answer: 3\nAnswer: 4", "4"),
        ("\\boxed{\\boxed{1}} \\boxed{2}", "1"),
        ("\\boxed{1 and \\boxed{2}", None),
        ("\\boxed{1}</think>\\boxed{2} \\boxed{3}", "2"),
    ],
)
def test_the_first_box_gives_the_answer_on_request(completion, answer):
    assert extract_answer(completion, box="first") == answer


def test_slots_follow_the_same_rules_for_thinking_bold_and_boxes():
    text = "<think>[SUB-1 ANSWER] 1</think>**[SUB-1 ANSWER]** 2\n[MAIN ANSWER] \\boxed{3} or \\boxed{4}"
    assert extract_slots(text, 1) == ["2", "4"]
    assert extract_slots(text, 1, box="first") == ["2", "3"]
    assert extract_slots(text + "<think>", 1) == [None, None]


def test_a_last_line_cut_by_the_length_limit_is_no_answer():
    assert extract_answer("\\boxed{1} Answer: 12", ended=False) is None
    assert extract_answer("Answer: 12\n", ended=False) == "12"
    assert extract_answer("\\boxed{12}", ended=False) == "12"


def test_slots_come_in_order_with_the_main_answer_last():
    text = "a\n[SUB-1 ANSWER] 61\n[SUB-2 ANSWER] 4 [SUB-2 ANSWER] \\boxed{46}\n[MAIN ANSWER] 94"
    assert extract_slots(text, 3) == ["61", "46", None, "94"]
    assert extract_slots(text, 1, ended=False) == ["61", None]


def test_extraction_is_linear_in_hostile_texts():
    assert extract_answer("\\boxed{" * 100_000) is None
    assert extract_answer("\\boxed{" + "{" * 500_000 + "}" * 500_001) is not None
    assert extract_answer("\\boxed{" * 100_000 + "1" + "}" * 100_000, box="first") == "1"
    assert extract_answer("<think>" * 100_000 + "</think>" * 100_000 + "Answer: 1" + " *" * 500_000) == "1"
