r"""Completions written to hang, to fill the memory or to run code: each gets a result soon, and does nothing."""

import json
import time

import pytest

from scope_jax.verify import Result, extract_answer, extract_slots, minerva


def payloads(path):
    """Answers that would create `path` if anything ran them."""
    call = f"__import__('os').system('touch {path}')"
    return [
        call,
        f"eval({json.dumps(call)})",
        f"\\text{{{call}}}",
        f"\\operatorname{{{call}}}",
        f"x+{call}",
        f"().__class__.__base__.__subclasses__()+{call}",
        f"\\immediate\\write18{{touch {path}}}",
        f"lambda: {call}",
    ]


BOMBS = [
    "9**9**9",
    "10^{10^{10}}",
    "9^{9^{9^9}}",
    "9^{(9^9)}",
    "(9^9)^{(9^9)}",
    "2^{2^{40}}",
    "1000000!",
    "((9!)!)!",
    "\\binom{99999999}{4999999}",
    "\\sum_{n=1}^{10^{12}} \\sin n",
    "9" * 400 + "^{9999}",
]
HUGE = [
    "{" * 100_000 + "1" + "}" * 100_000,
    "{" * 100_000,
    "7" * 1_000_000,
    "\\frac{" * 50_000 + "1" + "}{2}" * 50_000,
    "\\frac" * 200_000,
    "\\text{" * 100_000,
    "(" * 400 + "1" + ")" * 400,
    "\\frac{1}{" * 40 + "2" + "}" * 40,
    "\\sqrt" * 99,
    "$" * 1_000_000,
    "*" * 1_000_000,
    "1," * 500_000,
    "x \\text{and} " * 100_000,
]
STRANGE = [
    "\x00",
    "1\x00+x",
    "\ud800",
    "x+\udfff",
    json.loads('"\\ud83d x"'),
    "\\input{/etc/passwd}",
    "\\input{/etc/passwd}+x",
    "\\def\\x{\\x\\x}\\x",
    "__import__",
    "\u202e5\u202c",
    "\uff15",
    "5\u0301",
    "\\",
    "\\\\",
    "}",
    "[(",
    "nan",
    "\\infty-\\infty",
    "1/0",
    "None",
    "__class__",
]


def forms(answer):
    """The ways in which a completion may give an answer."""
    return [f"so \\boxed{{{answer}}}", f"Answer: {answer}\n", f"**Answer:** {answer}"]


def test_the_payloads_would_do_harm_if_anything_ran_them(tmp_path):
    eval(payloads(tmp_path / "x")[0])
    assert (tmp_path / "x").exists()


def test_hostile_answers_get_a_result_soon_and_execute_nothing(verifier, tmp_path):
    path = tmp_path / "x"
    answers = [*payloads(path), *BOMBS, *HUGE, *STRANGE]
    replaced, begin = verifier.replaced, time.monotonic()
    checks = verifier.submit(answers, ["5"] * len(answers))
    parsed = time.monotonic() - begin
    results = checks.result()
    seconds = time.monotonic() - begin
    killed = verifier.replaced - replaced
    assert all(isinstance(result, Result) for result in results)
    assert Result.right not in [result for answer, result in zip(answers, results, strict=True) if "5" not in answer]
    assert parsed < 30 and seconds < 60 + 40 * killed, (parsed, seconds, killed)  # a start takes long on a busy machine
    assert not path.exists()
    assert verifier.check_answers(["x!+1"], ["1+x!"]) == [Result.right]


def test_hostile_gold_answers_are_unreadable_or_compared_but_never_stop_a_batch(verifier, tmp_path):
    path = tmp_path / "x"
    golds = [*payloads(path), *BOMBS[:8], *HUGE, *STRANGE]
    results = verifier.check_answers(["x"] * len(golds), golds)
    assert len(results) == len(golds) and Result.right not in results
    assert not path.exists()


@pytest.mark.parametrize("answer", [*payloads("x"), *BOMBS, *HUGE, *STRANGE], ids=lambda answer: ascii(answer[:12]))
def test_extraction_and_text_comparison_are_quick_on_hostile_completions(answer):
    begin = time.process_time()
    for completion in forms(answer):
        for box in ("last", "first"):
            extract_answer(completion, box=box)
            extract_slots(completion + "[SUB-1 ANSWER]" + completion, 2, box=box)
        assert isinstance(minerva.compare(minerva.find_answer(completion), answer), Result)
    assert time.process_time() - begin < 5.0


def test_a_completion_of_a_megabyte_is_checked_like_any_other(verifier):
    long = "we get $x^{2}$ and \\boxed{3}. " * 40_000
    completions = [long + "\\boxed{x!+1}", long, long + "Answer: " + "7" * 1_000_000]
    results = verifier.check_batch(completions, ["1+x!", "3", "5"])
    assert results == [Result.right, Result.right, Result.timed_out]
