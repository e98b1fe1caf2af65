r"""V, P, D and H on good and bad scaffolds: GSM8K-like ones, LaTeX, the embedded chains, the package's word problems."""

import dataclasses

import pytest

from scope_jax.data import chains
from scope_jax.data.records import Problem, SubQuestion
from scope_jax.data.sources import load_problems
from scope_jax.scaffolds import checks
from scope_jax.scaffolds.build import make_checks
from scope_jax.scaffolds.derivations import Derivation, derivations
from scope_jax.verify import Verifier

WORD_PROBLEMS, _ = load_problems("word_problems")


def problem(text, *steps, answer="18"):
    return Problem("p", text, answer, scaffold=tuple(SubQuestion(*step) for step in steps))


def hidden(p, works=None):
    return checks.check_hidden(p, derivations(p, works))


def prerequisites(p, works=None):
    return checks.check_prerequisites(p, derivations(p, works))


def dependence(p, works=None):
    return checks.check_dependence(p, derivations(p, works))


def no_verifier():
    raise AssertionError("a plain answer needs no worker process")


@pytest.fixture(scope="module")
def open_verifier():
    with Verifier(workers=1) as verifier:
        yield lambda: verifier


EGGS = problem(
    "Janet's ducks lay 16 eggs per day. She eats three and bakes with four. She sells the rest for $2 each. How much?",
    ("How many eggs are left?", "9"),
)
CIRCLE = problem(
    r"A square of side $4\sqrt{3}$ is inscribed in a circle. What is the area of the circle in terms of $\pi$?",
    ("What is the diagonal of the square?", r"4\sqrt{6}"),
    ("What is the radius of the circle?", r"2\sqrt{6}"),
    answer=r"24\pi",
)
CIRCLE_WORKS = [
    r"d = 4\sqrt{3} \cdot \sqrt{2} = 4\sqrt{6}",
    r"r = \frac{4\sqrt{6}}{2} = 2\sqrt{6}",
    r"A = \pi (2\sqrt{6})^2 = 24\pi",
]


@pytest.mark.parametrize("p", WORD_PROBLEMS, ids=lambda p: p.id)
def test_the_word_problems_of_the_package_pass_every_test(p):
    assert {name: test(p, None) for name, test in make_checks("offline", no_verifier).items()} == dict.fromkeys("VHPD")


def test_every_exact_scaffold_of_the_embedded_task_passes_every_test():
    tests = make_checks("offline", no_verifier)
    for p in chains.generate_problems(400, seed=3, min_steps=2, max_steps=9):
        assert {name: test(p, None) for name, test in tests.items()} == dict.fromkeys("VHPD"), p


def test_a_socratic_and_a_latex_scaffold_pass_every_test(open_verifier):
    tests = make_checks("offline", open_verifier)
    for p, works in [(EGGS, None), (EGGS, ["16 - 3 - 4 = 9", "9 * 2 = 18"]), (CIRCLE, CIRCLE_WORKS)]:
        assert {name: test(p, works) for name, test in tests.items()} == dict.fromkeys("VHPD")


class TestV:
    @pytest.mark.parametrize(
        "answer",
        ["7", "-3/4", "1,234", "\\frac{3}{4}", "0.5", "even", "isosceles triangle", "\\text{Tuesday}", "$12$", "B"],
    )
    def test_plain_answers_pass_without_a_worker(self, answer):
        assert checks.unverifiable(answer, no_verifier) is None

    @pytest.mark.parametrize(
        "answer", ["2\\sqrt{3}", "x^2 + 1", "24\\pi", "(3, 5)", "[0, 1)", "\\sin x", "x \\in \\{1, 2\\}", "2^{10}"]
    )
    def test_what_the_verifier_reads_passes(self, answer, open_verifier):
        assert checks.unverifiable(answer, open_verifier) is None

    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            ("the three sides are equal", "phrase of 5 words"),
            ("12 apples", "words or units"),
            ("5 \\text{ cm}", "words or units"),
            ("about 12", "words or units"),
            ("12\n13", "slot"),
            ("[MAIN ANSWER] 5", "slot"),
            ("...", "slot"),
            ("\\boxed{5", "slot"),
            ("9^{9^{9^9}}", "cannot be read"),
            ("\\frac{", "cannot be read"),
        ],
    )
    def test_what_no_rule_can_check_fails_with_the_reason(self, answer, reason, open_verifier):
        assert reason in checks.unverifiable(answer, open_verifier)

    def test_an_answer_that_the_verifier_does_not_finish_fails(self):
        class Slow:
            def check_answers(self, given, answers):
                return [checks.Result.timed_out]

        assert "too long" in checks.unverifiable("x^2+y", lambda: Slow())

    def test_the_reason_names_the_sub_question(self):
        p = problem("text", ("One?", "5"), ("Two?", "5 apples and pears"))
        assert checks.check_verifiable(p, no_verifier).startswith("the answer '5 apples and pears' of sub-question 2 ")
        assert checks.check_verifiable(EGGS, no_verifier) is None


class TestH:
    @pytest.mark.parametrize(
        ("question", "reason"),
        [
            ("How many of the 40 are left?", "sub-question 2 shows '40', the answer of sub-question 1"),
            ("How many of the forty are left?", "shows '40'"),
            ("Are 25 left?", "shows '25', the answer of sub-question 2"),
            ("Are $\\frac{50}{2}$ left?", "shows '25'"),
            ("Are 175 in all?", "shows '175', the answer of the problem"),
            ("How many of the 15 are left?", None),
            ("How many of the 400 are left?", None),  # other numbers are other values
            ("How many of x_{25} are left?", None),
        ],
    )
    def test_a_sub_question_shows_no_answer_that_the_problem_does_not_state(self, question, reason):
        p = problem("8 rows of 5; 15 go, and each brings 7.", ("How many?", "40"), (question, "25"), answer="175")
        assert (hidden(p) is None) if reason is None else (reason in hidden(p))

    def test_an_earlier_sub_question_may_not_show_a_later_answer(self):
        p = problem("8 rows of 5; 15 go.", ("How many, before 25 are left?", "40"), ("How many are left?", "25"))
        assert "sub-question 1 shows '25', the answer of sub-question 2" in hidden(p)

    def test_what_the_problem_states_is_public(self):
        p = problem("Of 3 boxes with 4 pens each, she sells 3.", ("What is in the 3 boxes?", "12"), ("Less 3?", "9"))
        assert hidden(p) is None

    def test_zero_and_one_may_be_shown_but_not_as_the_own_answer(self):
        p = problem("f(x) = 7x - 6.", ("What is f(1)?", "1"), ("What is f(f(2)) - 2?", "48"))
        assert "sub-question 1 shows '1'" in hidden(p)
        p = problem("f(x) = 7x - 6.", ("What is f(7) - 42?", "1"), ("What is f(1) + 8?", "9"), answer="50")
        assert hidden(p) is None

    def test_a_large_value_that_the_problem_states_must_be_computed(self):
        p = problem("She has 160 pens and sells 40.", ("How many pens does she have?", "160"), answer="120")
        assert "the problem states '160'" in hidden(p, ["160", "160 - 40 = 120"])
        assert hidden(p, ["4 * 40 = 160", "160 - 40 = 120"]) is None
        small = problem("She has 12 pens and sells 4.", ("How many pens does she have?", "12"), answer="8")
        assert hidden(small, ["12", "12 - 4 = 8"]) is None  # P refuses it
        assert "only read off" in prerequisites(small, ["12", "12 - 4 = 8"])

    @pytest.mark.parametrize(
        "ending", ["Answer: 18", "The answer is 18.", "the answer is $18$; show why", "Show that it is \\boxed{18}."]
    )
    def test_a_problem_that_gives_its_answer_fails(self, ending):
        p = dataclasses.replace(EGGS, problem=f"{EGGS.problem} {ending}")
        assert hidden(p) == "the problem gives its own answer, '18'"

    def test_a_final_answer_that_is_also_a_quantity_of_the_problem_is_no_leak(self):
        p = problem("Of 18 hens 6 go, and half as many as are left come.", ("How many are left?", "12"), answer="18")
        assert hidden(p, ["18 - 6 = 12", "12 + 12/2 = 18"]) is None

    @pytest.mark.parametrize(
        ("question", "leaks"),
        [
            ("Given the diagonal $4 \\sqrt{6}$, what is the radius?", True),
            ("With r = 2\\sqrt{6}, what is it?", True),
            ("What is the radius, half of $14\\sqrt{6}$?", False),
            ("What is the area $24\\pi$ made of?", True),
            ("What is the radius, given the side $4\\sqrt{3}$?", False),
        ],
    )
    def test_expressions_compare_as_text_by_whole_numbers(self, question, leaks):
        steps = (CIRCLE.scaffold[0], SubQuestion(question, CIRCLE.scaffold[1].answer))
        assert (hidden(dataclasses.replace(CIRCLE, scaffold=steps), CIRCLE_WORKS) is not None) == leaks

    def test_words_leak_and_letters_do_not(self):
        text = "Which day comes 100 days after Monday? (A) Friday (B) Wednesday"
        p = problem(text, ("Which day is it, not a Tuesday?", "Tuesday"), answer="B")
        assert "shows 'Tuesday'" in hidden(p)
        p = problem(text, ("Is it a Friday or option B?", "Friday"), answer="B")
        assert hidden(p, ["100 mod 7 = 2", "x + 1"]) is None


class TestP:
    def test_an_answer_that_nothing_uses_is_filler(self):
        p = problem(
            "14 trays of 12 rolls. 98 are sold. How many are left?",
            ("How many rolls are baked?", "168"),
            ("How many trays are two dozen trays?", "24"),
            answer="70",
        )
        works = ["14 * 12 = 168", "2 * 12 = 24", "168 - 98 = 70"]
        assert prerequisites(p, works) == "no step to the final answer is seen to use '24', sub-answer 2"
        assert "'24'" in prerequisites(p)  # by search as well
        assert prerequisites(dataclasses.replace(p, scaffold=p.scaffold[:1]), [works[0], works[2]]) is None

    def test_a_dead_branch_is_filler_all_along(self):
        p = problem("text", ("a?", "168"), ("b?", "24"), ("c?", "48"), answer="70")
        assert "'24'" in prerequisites(p, ["14*12 = 168", "2*12 = 24", "24*2 = 48", "168-98 = 70"])

    def test_use_by_way_of_a_later_answer_counts(self):
        p = problem("text", ("a?", "168"), ("b?", "70"), ("c?", "10"), answer="40")
        assert prerequisites(p, ["14*12 = 168", "168-98 = 70", "70/7 = 10", "10*4 = 40"]) is None

    def test_the_problems_own_question_is_no_sub_question(self):
        p = problem("14 trays of 12 rolls, less 98?", ("Rolls?", "168"), ("Left?", "70"), answer="70")
        assert "the problem's own question" in prerequisites(p, ["14*12 = 168", "168-98 = 70", "= 70"])

    def test_a_latex_scaffold_without_use_fails(self):
        assert prerequisites(CIRCLE, CIRCLE_WORKS) is None
        other = [*CIRCLE_WORKS[:2], r"A = \pi \cdot 24 = 24\pi"]
        assert "sub-answer 1" in prerequisites(CIRCLE, other)


class TestD:
    @pytest.mark.parametrize(
        ("uses", "passes"),
        [
            ([[], [0], [1]], True),
            ([[], [], [0, 1]], True),  # two branches that meet
            ([[], [], [], [0, 1, 2]], False),  # a bag with one sum at its end
            ([[], [], [0], [1, 2]], True),
            ([[], [0]], True),
            ([[], []], False),
        ],
    )
    def test_half_of_the_later_questions_must_build_on_earlier_ones(self, uses, passes):
        steps = [Derivation(frozenset(u), True, "work") for u in uses]
        p = problem("text", *[("q?", "5")] * (len(uses) - 1))
        assert (checks.check_dependence(p, steps) is None) == passes

    def test_unrelated_questions_fail_and_the_reason_counts_them(self):
        p = problem(
            "Tea costs 4, milk 3, bread 5. She buys 17 teas, 19 milks and 23 breads. What does it cost?",
            ("What does the tea cost?", "68"),
            ("What does the milk cost?", "57"),
            ("What does the bread cost?", "115"),
            answer="240",
        )
        assert "only 1 of the 3 questions" in dependence(p)
        assert "only 1 of the 3 questions" in dependence(p, ["4*17 = 68", "3*19 = 57", "5*23 = 115", "68+57+115 = 240"])
        steps = (*p.scaffold[:2], SubQuestion("What do tea and milk cost?", "125"), p.scaffold[2])
        assert dependence(dataclasses.replace(p, scaffold=steps)) is None
