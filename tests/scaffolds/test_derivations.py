"""Which earlier answers each answer of a scaffold is seen to use, from work, definitions and search."""

from fractions import Fraction as F

import pytest

from scope_jax.data.records import Problem, SubQuestion
from scope_jax.scaffolds.derivations import contradiction, derivations, from_search, from_work


def problem(text, *steps, answer):
    return Problem("p", text, answer, scaffold=tuple(SubQuestion(*step) for step in steps))


EGGS = problem(
    "Janet's ducks lay 16 eggs per day. She eats three and bakes with four. She sells the rest for $2 each. How much?",
    ("How many eggs are left?", "9"),
    answer="18",
)


@pytest.mark.parametrize(
    ("work", "earlier", "uses"),
    [
        ("9 * 2 = 18", ["9"], {0}),
        ("She makes 9 * 2 = $<<9*2=18>>18 a day.", ["9"], {0}),
        ("16 + 2 = 18", ["9"], set()),
        ("3 * 6 = 18", ["18"], set()),  # its own result, not a use
        ("9 + 9 = 18 = 2 * 9", ["18"], {0}),  # unless it is worked with
        ("1,200 / 4 = 300", ["1200"], {0}),
        ("-5 + 8 = 3", ["-5"], {0}),
        ("\\frac{1}{2} \\cdot 6", ["0.5"], {0}),
        ("2\\sqrt{3} \\cdot 4 = 8\\sqrt{3}", ["2\\sqrt{3}"], {0}),
        ("12\\sqrt{3} \\cdot 4", ["2\\sqrt{3}"], set()),  # inside a number
        ("(x + 1)^2", ["x+1"], {0}),
        ("max(10)", ["x"], set()),  # inside a word
        ("270 + 38 + 12 = 320", ["270", "38", "5"], {0, 1}),
    ],
)
def test_work_uses_what_it_shows_but_its_own_result(work, earlier, uses):
    assert from_work(work, earlier).uses == uses


@pytest.mark.parametrize(
    ("work", "computed"),
    [("16 - 3 = 13", True), ("= 16", False), ("16", False), ("-16", False), ("\\sqrt{16} = 4", True), ("x = -3", False)],
)
def test_a_copied_value_is_not_computed(work, computed):
    assert from_work(work, []).computed is computed


def test_without_work_the_shortest_arithmetic_is_searched():
    left, made = derivations(EGGS)
    assert left == (frozenset(), True, "search")  # 16 - 3 - 4
    assert made == (frozenset([0]), True, "search")  # 9 * 2


@pytest.mark.parametrize(
    ("answer", "earlier", "given", "uses"),
    [
        ("12", ["10"], {2}, {0}),
        ("12", ["10"], {2, 6}, set()),  # 2 * 6 and 2 + 10: see below
        ("221", ["17", "170", "51"], {34, 5, 3}, {1, 2}),
        ("50", ["15", "10", "12", "13"], {7}, {0, 1, 2, 3}),  # a sum of many
        ("45", ["15", "10", "12", "13"], {95}, {0, 1, 2, 3}),
        ("997", ["10"], {2}, None),
        ("x+1", ["10"], {2}, None),
    ],
)
def test_a_search_takes_all_shortest_ways_and_sums(answer, earlier, given, uses):
    found = from_search(answer, earlier, {F(x) for x in given})
    if (answer, given) == ("12", {2, 6}):
        uses = {0}  # both ways have one operation, and both count
    assert (found.source, found.computed) == (("unseen", False) if uses is None else ("search", True))
    assert found.uses == (uses or set())


def test_times_one_and_plus_nothing_are_no_steps():
    assert from_search("10", ["10"], {F(1), F(0)}).source == "unseen"


def test_definitions_in_the_problem_are_followed_by_name():
    chain = problem(
        "a=34+7. b=a-7. c=34+b. What is c?", ("What is a?", "41"), ("What is b?", "34"), answer="68"
    )
    found = derivations(chain)
    assert [d.source for d in found] == ["definition"] * 3
    assert [set(d.uses) for d in found] == [set(), {0}, {1}]


def test_given_work_goes_before_definition_and_search_and_must_be_complete():
    found = derivations(EGGS, ["16 - 3 - 4 = 9", "20 - 2 = 18"])
    assert [d.source for d in found] == ["work", "work"]
    assert found[1].uses == set()
    assert [d.source for d in derivations(EGGS, ["16 - 3 - 4 = 9", " "])] == ["work", "search"]
    with pytest.raises(ValueError, match="1 works for 2 answers"):
        derivations(EGGS, ["16 - 3 - 4 = 9"])


@pytest.mark.parametrize(
    ("work", "answer", "reason"),
    [
        ("16 - 3 - 4 = 9", "9", None),
        ("16-3-4", "9", None),
        ("r = \\frac{14}{2} = 7", "7", None),
        ("by symmetry, x = y", "7", None),
        ("2x + 1 = 15", "7", None),  # an equation to solve, not a result
        ("16 - 3 = 12", "12", "16 - 3 is not 12"),
        ("16 - 3 = 13", "12", "the work ends in 13, the answer is 12"),
        ("100/3 = 33.33", "33.33", "100/3 is not 33.33"),
        ("<<2+2=4>> and <<4*3=13>>13", "13", "4*3 is not 13"),
        ("2 + 2 = 4; 4 * 3 = 13", "13", "4 * 3 is not 13"),
        ("2 + 2 = 4; 4 * 3 = 12", "12", None),
        ("(a, b) = (3,5)", "(3,5)", None),
    ],
)
def test_work_that_contradicts_itself_or_its_answer_is_seen(work, answer, reason):
    found = contradiction(work, answer)
    assert found == reason if reason is None else reason in found
