"""The embedded task: exact problems, exact scaffolds, worked solutions whose errors are the intended ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scope_jax.data import chains

CAREFUL = chains.Manner(carry_wrong=0.0, restate=0.0, revert=0.0, announce=0.0)
ALWAYS_WRONG = chains.Manner(carry_wrong=1.0, restate=0.0, revert=0.0, announce=0.0)


def solve(problem: str) -> dict[str, int]:
    """Every quantity of a problem text, worked out from the text alone."""
    values = {}
    for definition in problem.split(" What is")[0].split(". "):
        name, right = definition.rstrip(".").split("=")
        values[name] = eval(right, {"__builtins__": {}}, values)
    return values


@given(st.integers(0, 10_000), st.integers(1, 8), st.floats(0, 1))
@settings(max_examples=200, deadline=None)
def test_answer_and_scaffold_follow_from_the_text_alone(seed, steps, hard_share):
    rng = np.random.default_rng(seed)
    problem = chains.to_problem(chains.sample_chain(rng, steps=steps, hard_share=hard_share), "x")
    values = solve(problem.problem)
    asked = problem.problem.rsplit(" ", 1)[1].rstrip("?")
    assert str(values[asked]) == problem.answer
    assert len(problem.scaffold) == steps - 1
    for sub in problem.scaffold:
        assert str(values[sub.question.rsplit(" ", 1)[1].rstrip("?")]) == sub.answer
    assert all(chains.LOW <= value <= chains.HIGH for value in values.values())


@given(st.integers(0, 10_000), st.integers(1, 8), st.booleans())
@settings(max_examples=200, deadline=None)
def test_a_careful_solution_is_right_and_in_order(seed, steps, scaffolded):
    rng = np.random.default_rng(seed)
    chain = chains.sample_chain(rng, steps=steps, hard_share=0.5)
    solution = chains.worked_solution(chain, rng, CAREFUL, scaffolded=scaffolded)
    ending = "[MAIN ANSWER]" if scaffolded else "Answer:"
    assert solution.endswith(f"{ending} {chain[-1].value}")
    assert all(right for _, right in chains.read_equations(solution))
    assert chains.follows_format(chains.to_problem(chain, "x").problem, solution)
    if scaffolded:
        for i, step in enumerate(chain[:-1], start=1):
            assert f"[SUB-{i} ANSWER] {step.value}\n" in solution


@given(st.integers(0, 10_000))
@settings(max_examples=200, deadline=None)
def test_each_careless_hard_step_costs_ten_so_errors_never_cancel(seed):
    rng = np.random.default_rng(seed)
    chain = chains.sample_chain(rng, steps=6, hard_share=0.6)
    solution = chains.worked_solution(chain, rng, ALWAYS_WRONG, scaffolded=False)
    hard = sum(chains.step_kind(s.op, s.left, s.operand) in chains.HARD_KINDS for s in chain)
    assert int(solution.rsplit(" ", 1)[1]) == chain[-1].value - 10 * hard
    for kind, right in chains.read_equations(solution):
        assert right == (kind not in chains.HARD_KINDS)
    assert chains.follows_format(chains.to_problem(chain, "x").problem, solution)  # arithmetic is no matter of format


@given(st.integers(0, 10_000), st.booleans())
@settings(max_examples=200, deadline=None)
def test_wordiness_and_wrong_values_are_no_format_errors(seed, scaffolded):
    rng = np.random.default_rng(seed)
    chain = chains.sample_chain(rng, steps=5, hard_share=0.6)
    solution = chains.worked_solution(chain, rng, chains.Manner(), scaffolded=scaffolded)
    assert chains.follows_format(chains.to_problem(chain, "x").problem, solution)


PROBLEM = "a=54+7. b=a-5. c=b+8. What is c?"


@pytest.mark.parametrize(
    "completion",
    [
        "a=54+7=61.\n\nc=61+8=69.\nAnswer: 69",  # skips b
        "b=61-5=56.\n\na=54+7=61.\n\nc=61+8=69.",  # reorders
        "a=54+7=61.\n\nb=61-8=53.\n\nc=53+8=61.",  # another operand
        "a=54+7=61.\n\nb=61+5=66.\n\nc=66+8=74.",  # another operation
        "a=54+7=61.\n\nb=51-5=46.\n\nc=46+8=54.",  # drops the value just found
        "a=54+7=61.\n\nb=61-5=56.",  # stops early
        "a=54+7=61.\n\nb=61-5=56.\n\nc=56+8=64.\n\nd=64+1=65.",  # goes on
        "",
    ],
)
def test_a_step_skipped_swapped_or_fed_with_another_number_is_a_format_error(completion):
    assert not chains.follows_format(PROBLEM, completion)


def test_a_step_done_again_is_fine_and_its_last_value_counts():
    assert chains.follows_format(
        PROBLEM, "a=54+7=51.\n\nWait, let me redo that.\n\na=54+7=61.\n\nb=61-5=56.\n\nc=56+8=64.\nAnswer: 64"
    )


def test_kinds_of_steps():
    kinds = [chains.step_kind(*step) for step in (("+", 54, 5), ("+", 54, 6), ("-", 54, 4), ("-", 54, 5))]
    assert kinds == ["add", "add-carry", "sub", "sub-borrow"]


def test_generated_problems_are_distinct_repeatable_and_as_hard_as_asked():
    made = chains.generate_problems(300, seed=3, min_steps=4, max_steps=6, hard_share=0.6)
    assert made == chains.generate_problems(300, seed=3, min_steps=4, max_steps=6, hard_share=0.6)
    assert len({p.problem for p in made}) == len({p.id for p in made}) == 300
    assert {p.level for p in made} == {"4", "5", "6"}
    easy = chains.generate_problems(100, seed=3, min_steps=4, max_steps=4, hard_share=0.0)
    kinds = [k for p in easy for k, _ in chains.read_equations(_worked(p.problem))]
    assert kinds and set(kinds) <= {"add", "sub"}


def _worked(problem: str) -> str:
    """The problem's own steps with their values put in."""
    values, lines = solve(problem), []
    for definition in problem.split(" What is")[0].split(". "):
        name, right = definition.rstrip(".").split("=")
        op = "+" if "+" in right else "-"
        left, operand = right.split(op)
        lines.append(f"{name}={values.get(left, left)}{op}{operand}={values[name]}.")
    return "\n\n".join(lines)


@pytest.mark.parametrize("bounds", [(0, 3), (4, 3), (3, 99)])
def test_impossible_lengths_are_refused(bounds):
    with pytest.raises(ValueError, match="chain lengths"):
        chains.generate_problems(1, seed=0, min_steps=bounds[0], max_steps=bounds[1])


def test_the_answer_cannot_be_guessed():
    answers = [p.answer for p in chains.generate_problems(2000, seed=1)]
    assert max(answers.count(a) for a in set(answers)) / len(answers) < 0.05
