"""Sets with answers in free LaTeX, and problems of model outputs; all rows are written for these tests."""

import pytest

from scope_jax.data.layouts.outputs import gsm8k_outputs_problem, math_outputs_problem
from scope_jax.data.layouts.single import single_answer
from scope_jax.data.layouts.textbook import (
    college_math_problem,
    gaokao_problem,
    minerva_problem,
    olympiadbench_problem,
)
from scope_jax.data.records import Problem, RecordError

MINERVA = {
    "problem": "How wide is it?",
    "solution": "So $\\boxed{1}$, no, \\[w=\\boxed{1.6}\\mathrm{~cm}\\]",
    "type": "A course",
    "idx": 4,
}
COLLEGE = {
    "data_source": "college_math.A_Book",
    "question_number": "exercise.1.2",
    "question": "Expand $2(n+1)$",
    "answer": "$2 n+2$",
    "license": "none",
    "data_topic": "college_math.algebra",
}
GAOKAO = {
    "source": "part1",
    "sourcename": "X1",
    "question": "What is $1+1$?",
    "id": "X1_1",
    "lang": "en",
    "answer": "$2$",
}
OLYMPIAD = {
    "id": 17,
    "subfield": "Algebra",
    "context": None,
    "question": "Find $n$.",
    "solution": ["It is 3."],
    "final_answer": ["$n=3$"],
    "is_multiple_answer": False,
    "unit": None,
    "answer_type": "Numerical",
    "error": None,
}


def test_the_answer_of_minerva_is_the_last_box_of_the_solution():
    assert minerva_problem(MINERVA, "f:1", id="x") == Problem(
        "minerva_math-4", "How wide is it?", "1.6", "minerva_math"
    )
    broken = MINERVA | {"solution": "$\\boxed{\\cos (t)+$\n$\\sin (t)}$"}
    assert minerva_problem(broken, "f:1", id="x").answer == "\\cos (t)+ \\sin (t)"
    assert minerva_problem(MINERVA | {"solution": "\\boxed{\\frac{1}{2}}"}, "f:1", id="x").answer == "\\frac{1}{2}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"solution": "It is 3."}, "field 'solution' has no last"),
        ({"solution": "Answer: 3"}, "field 'solution' has no last"),
        ({"solution": "$\\boxed{1}$ or $\\boxed{2"}, "field 'solution' has no last"),
        ({"solution": "\\boxed{ }"}, "field 'solution' has no last"),
        ({"solution": None}, "field 'solution' is missing"),
        ({"problem": "See \\includegraphics[scale=1]{a.png}"}, "field 'problem' shows a picture"),
    ],
)
def test_an_odd_minerva_row_is_refused_with_the_field(change, message):
    with pytest.raises(RecordError, match=f"^f:3: {message}"):
        minerva_problem(MINERVA | change, "f:3", id="x")


def test_college_math_is_known_by_book_and_exercise():
    assert college_math_problem(COLLEGE, "f:1", id="x") == Problem(
        "college_math-A_Book-exercise.1.2", "Expand $2(n+1)$", "2 n+2", "college_math"
    )
    with pytest.raises(RecordError, match="^f:3: field 'data_source' is missing"):
        college_math_problem(COLLEGE | {"data_source": None}, "f:3", id="x")
    with pytest.raises(RecordError, match="^f:3: field 'answer' has several parts"):
        college_math_problem(COLLEGE | {"answer": "$n=1$ or $n=2$"}, "f:3", id="x")


def test_gaokao_has_ids_in_its_later_part_only():
    assert gaokao_problem(GAOKAO, "f:1", id="x") == Problem("gaokao2023en-X1_1", "What is $1+1$?", "2", "gaokao2023en")
    early = {name: GAOKAO[name] for name in ("source", "question", "lang", "answer")}
    assert gaokao_problem(early, "f:1", id="x").id == "x"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": ""}, "field 'answer' is empty"),
        ({"answer": "$2$solution:"}, "field 'answer' runs on into a solution"),
        ({"answer": "$2$, $3$"}, "field 'answer' has several parts"),
        ({"question": "See ![](https://x/y.jpg)"}, "field 'question' shows a picture"),
    ],
)
def test_an_odd_gaokao_row_is_refused_with_the_field(change, message):
    with pytest.raises(RecordError, match=f"^f:3: {message}"):
        gaokao_problem(GAOKAO | change, "f:3", id="x")


def test_olympiadbench_puts_its_context_before_the_question():
    assert olympiadbench_problem(OLYMPIAD, "f:1", id="x") == Problem(
        "olympiadbench-17", "Find $n$.", "n=3", "olympiadbench"
    )
    assert (
        olympiadbench_problem(OLYMPIAD | {"context": "Let $n>2$."}, "f:1", id="x").problem == "Let $n>2$.\n\nFind $n$."
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"is_multiple_answer": True, "final_answer": ["1,3"]}, "field 'is_multiple_answer' is true; .*: '1,3'"),
        ({"error": "1e-1"}, "field 'error' asks for a tolerance of 1e-1"),
        ({"final_answer": None}, "field 'final_answer' is 'None'; expected a list of one"),
        ({"final_answer": []}, "field 'final_answer' is .*; expected a list of one"),
        ({"final_answer": ["1", "2"]}, "field 'final_answer' is .*; expected a list of one"),
        ({"final_answer": [""]}, "field 'final_answer' is empty"),
        ({"final_answer": ["$f(n)=n$, $g(n)=1$"]}, "field 'final_answer' has several parts"),
        ({"question": "See <image_1>."}, "field 'question' shows a picture"),
    ],
)
def test_what_a_record_cannot_hold_of_olympiadbench_is_refused(change, message):
    with pytest.raises(RecordError, match=f"^f:3: {message}"):
        olympiadbench_problem(OLYMPIAD | change, "f:3", id="x")


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (" $2 n+2$ ", "2 n+2"),
        ("$\\frac{1}{2}$.", "\\frac{1}{2}"),
        ("17", "17"),
        ("$1,250", "$1,250"),
        ("$\\$ 4$", "\\$ 4"),
        ("$-6,-8$", "-6,-8"),
        ("$x=-3,4$", "x=-3,4"),
        ("$(45,2),(-10,-9)$", "(45,2),(-10,-9)"),
        ("$\\left(-\\infty, 1\\right] \\cup[2, \\infty)$", "\\left(-\\infty, 1\\right] \\cup[2, \\infty)"),
        ("$\\{x|x=3k,k\\in Z\\}$", "\\{x|x=3k,k\\in Z\\}"),
        ("$576\\pi\\;m^{2}$", "576\\pi\\;m^{2}"),
        ("20 $cm^{2}$", "20 $cm^{2}$"),
        ("No solution", "No solution"),
        ("infinite number of solutions", "infinite number of solutions"),
        ("$\\text{a necessary but not a sufficient condition}$", "\\text{a necessary but not a sufficient condition}"),
        ("$\\{(x,y)|x=1,y=2\\}$", "\\{(x,y)|x=1,y=2\\}"),
        ("$3!$", "3!"),
        ("$50 \\%$", "50 \\%"),
        ("$\\cos (x+y)=1$", "\\cos (x+y)=1"),
        ("b > a > c", "b > a > c"),
    ],
)
def test_one_value_passes_without_its_dollar_signs(answer, found):
    assert single_answer(answer, "f:1", "answer") == found


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("$-317^{\\circ} 3^{\\prime} \\quad", "is cut off: a dollar sign"),
        ("221,$8$,$", "is cut off: a dollar sign"),
        ("$\\frac{1}{2$", "is cut off: a brace"),
        ("$-3 b^{4}+13 b^{3}-$", "is cut off: nothing follows"),
        ("x=", "is cut off: nothing follows"),
        ("The area is $4$ feet.", "is a sentence"),
        ("It was only about two hours", "is a sentence"),
        ("$2$ or $-2$", "has several parts"),
        ("15 and $22.5 \\mathrm{~min}$", "has several parts"),
        ("$x=1 \\text{ or } x=2$", "has several parts"),
        ("2 and 3", "has several parts"),
        ("$\\frac{1}{4} ;\\left(y-\\frac{1}{2}\\right)^{2}$", "has several parts"),
        ("$d=5, M=\\left(-1, \\frac{7}{2}\\right)$", "has several parts"),
        ("$E(t)=360 t, t \\geq 0$.", "has several parts"),
        ("$x<-7:(-\\infty,-7)$", "has several parts"),
        ("(-3, -4), 5 miles, $(4,-4)$", "has several parts"),
        ("$i^{6}=i^{4} \\cdot i^{2}=-1$", "is a derivation"),
    ],
)
def test_what_is_no_single_value_is_refused_with_the_reason(answer, fault):
    with pytest.raises(RecordError, match=f"^f:3: field 'answer' {fault}") as caught:
        single_answer(answer, "f:3", "answer")
    assert repr(answer) in str(caught.value)


def test_problems_of_model_outputs():
    row = {"question": "How many?", "ground_truth": "2+2=<<2+2=4>>4\nA: 1,004", "6b_finetuning": {}}
    assert gsm8k_outputs_problem(row, "f:1", id="x") == Problem("x", "How many?", "1004", "gsm8k")
    for bad in ("It is 4.", "4", "A: many", "", None):
        with pytest.raises(RecordError, match="^f:3: field 'ground_truth'"):
            gsm8k_outputs_problem(row | {"ground_truth": bad}, "f:3", id="x")
    row = {
        "idx": 3,
        "question": "When?",
        "gt": "4:30p..",
        "answer": "\\text{4:30 p.m.}",
        "level": "Level 2",
        "code": [],
    }
    assert math_outputs_problem(row, "f:1", id="x") == Problem(
        "math-3", "When?", "\\text{4:30 p.m.}", "math", "Level 2"
    )
    with pytest.raises(RecordError, match="^f:3: field 'answer' is missing"):
        math_outputs_problem(row | {"answer": None}, "f:3", id="x")
