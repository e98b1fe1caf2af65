"""The package's own word problems: every number in them is proven by the arithmetic written here."""

import re

import pytest

from scope_jax.data import sources
from scope_jax.scaffolds.quantities import stated
from scope_jax.verify.arithmetic import exact_value

# One expression for each sub-question and the main question last; s1, s2, ... are the sub-answers before it.
ARITHMETIC = {
    "word-ferry": ("6*45", "s1+38"),
    "word-bakery": ("14*12", "s1-98", "s2/7", "s3*4"),
    "word-orchard": ("18*25", "s1-66", "s2/16"),
    "word-train": ("213-57+33", "s1/3", "s1-s2"),
    "word-library": ("24*36", "s1-114", "s2/25"),
    "word-garden": ("18*11", "s1-30", "s2*3"),
    "word-cyclist": ("3*16", "2*13", "s1+s2", "112-s3"),
    "word-tank": ("480/4", "480-s1", "s2/24"),
    "word-printer": ("154*4", "s1/22", "s2+5"),
    "word-concert": ("32*28", "s1*7/8", "s2*9"),
    "word-cheese": ("35*18", "s1*4", "s2/10"),
    "word-tower": ("(9-1)*22", "3*22", "s1+s2"),
    "word-bus": ("34/2", "34*5", "s1*3", "s2+s3"),
    "word-honey": ("12*19", "s1/6", "s1-s2", "s3/2"),
    "word-fence": ("4*54", "s1/6", "s2*7"),
    "word-savings": ("35*8", "s1-120", "s2/2"),
    "word-novel": ("24*9", "396-s1", "s2/36", "9+s3"),
    "word-barn": ("4*35", "s1*2", "s2/14"),
    "word-potatoes": ("27*40", "s1-135", "s2/5", "s3*4"),
    "word-choir": ("96*3/8", "96-s1", "s2/3"),
    "word-frost": ("3*8", "14-s1", "2*3", "s2+s3"),
    "word-van": ("15*8", "9*14", "s1+s2", "300-s3"),
    "word-marbles": ("45*3-18", "45+s1", "s2/6"),
    "word-trip": ("132+12", "s1/48", "s2*260"),
    "word-cinema": ("110*4", "(4-1)*25", "s1+s2"),
    "word-tiles": ("360/30", "240/30", "s1*s2", "s3/16"),
    "word-soup": ("450/6", "s1*16", "s2/300"),
    "word-chairs": ("4*6", "s1*5", "s2*15", "s3/90"),
    "word-barrel": ("200/2", "3*12", "s2*2", "s1-s3", "s4+45"),
}

PROBLEMS, _ = sources.load_problems("word_problems")


def test_there_are_enough_problems_and_each_has_its_arithmetic():
    assert len(PROBLEMS) >= 24
    assert {problem.id for problem in PROBLEMS} == set(ARITHMETIC)
    assert {problem.source for problem in PROBLEMS} == {"scope-word-problems"}


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
class TestEveryProblem:
    def test_every_answer_follows_from_the_text_and_the_answers_before_it(self, problem):
        answers = [step.answer for step in problem.scaffold] + [problem.answer]
        for i, (expression, answer) in enumerate(zip(ARITHMETIC[problem.id], answers, strict=True)):
            known = {f"s{j + 1}": f"({answers[j]})" for j in range(i)}
            filled = re.sub(r"s\d+", lambda name: known[name.group()], expression)
            assert exact_value(filled) == int(answer), expression

    def test_every_sub_question_is_needed_later_and_some_step_depends_on_another(self, problem):
        expressions = ARITHMETIC[problem.id]
        for i in range(len(problem.scaffold)):
            assert any(re.search(rf"s{i + 1}\b", later) for later in expressions[i + 1 :])
        assert "s" in expressions[-1]

    def test_operands_stand_in_the_text(self, problem):
        # Parts such as a sixth or seven eighths, the sides of a square, "twice", the gaps between n things.
        implied = {1, 2, 3, 4, 6, 7, 8}
        known = stated(problem.problem) | implied
        for expression in ARITHMETIC[problem.id]:
            assert {int(n) for n in re.findall(r"(?<!s)\b\d+", expression)} <= known

    def test_no_text_states_an_answer(self, problem):
        answers = {abs(int(step.answer)) for step in problem.scaffold} | {abs(int(problem.answer))}
        shown = [problem.problem] + [step.question for step in problem.scaffold]
        assert not answers & set().union(*map(stated, shown))

    def test_texts_are_short_and_have_two_to_five_steps(self, problem):
        assert len(problem.problem.split()) < 60
        assert 2 <= len(problem.scaffold) + 1 <= 5
        assert problem.level == str(len(problem.scaffold) + 1)
