"""P and D by a judge with a fixed rubric: what is asked, and what a reply must look like."""

import json

import pytest
from scaffold_replies import verdicts

from scope_jax.data.records import Problem, SubQuestion
from scope_jax.scaffolds import rubric
from scope_jax.scaffolds.replies import ReplyError

PROBLEM = Problem(
    "p", "PROBLEM TEXT", "70", scaffold=(SubQuestion("A?", "1"), SubQuestion("B?", "2"), SubQuestion("C?", "3"))
)


def ask_of(replies, seen=None):
    replies = iter(replies)

    def ask(messages, schema, tried):
        if seen is not None:
            seen.append((messages, schema, tried))
        reply = next(replies)
        return reply(messages) if callable(reply) else reply

    return ask


def test_all_verdicts_hold():
    yes = lambda messages: verdicts(messages, lambda n: True)  # noqa: E731
    assert rubric.judge_prerequisites(PROBLEM, ask_of([yes])) is None
    assert rubric.judge_dependence(PROBLEM, ask_of([yes])) is None


def test_one_sub_question_that_is_no_prerequisite_fails_p_with_the_judges_reason():
    reply = lambda messages: verdicts(messages, lambda n: n != 2)  # noqa: E731
    reason = rubric.judge_prerequisites(PROBLEM, ask_of([reply]))
    assert reason == "sub-question 2 is judged to be no prerequisite: scripted"


@pytest.mark.parametrize(("holding", "passes"), [({2, 3, 4}, True), ({3, 4}, True), ({4}, False), (set(), False)])
def test_d_asks_about_all_but_the_first_and_wants_half_of_them(holding, passes):
    reply = lambda messages: verdicts(messages, lambda n: n in holding)  # noqa: E731
    assert (rubric.judge_dependence(PROBLEM, ask_of([reply])) is None) == passes


def test_the_request_holds_rubric_version_problem_and_all_questions():
    seen = []
    rubric.judge_dependence(PROBLEM, ask_of([lambda m: verdicts(m, lambda n: True)], seen))
    (messages, schema, tried), = seen
    system, user = (m["content"] for m in messages)
    assert rubric.DEPENDENCE in system and f"version {rubric.RUBRIC_VERSION}" in system
    assert '{"verdicts": [{"number": 1' in system  # braces of the template are gone
    for text in ("PROBLEM TEXT", "1. A? (answer: 1)", "3. C? (answer: 3)", "4. the problem's own question (answer: 70)"):
        assert text in user
    assert user.endswith("Judge: 2, 3, 4")
    assert tried == 0 and set(schema["properties"]) == {"verdicts"}


def test_a_malformed_verdict_is_asked_for_again_and_then_given_up():
    good = lambda messages: verdicts(messages, lambda n: True)  # noqa: E731
    seen = []
    assert rubric.judge_prerequisites(PROBLEM, ask_of(["no", "{}", good], seen)) is None
    assert [tried for *_, tried in seen] == [0, 1, 2]  # the number of the try makes each a request of its own
    with pytest.raises(ReplyError, match="no valid verdict in 3 tries"):
        rubric.judge_prerequisites(PROBLEM, ask_of(["no"] * 3))


ONE = {"number": 1, "holds": True, "reason": ""}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([], "a list of 1"),
        ([ONE, ONE], "a list of 1"),
        ({"1": True}, "a list of 1"),
        ([ONE | {"number": 2}], "must have this number"),
        ([ONE | {"number": True}], "must have this number"),
        ([ONE | {"holds": "true"}], "'holds' true or false"),
        ([ONE | {"holds": 1}], "'holds' true or false"),
        ([ONE | {"reason": None}], "'reason' must be a string"),
        ([{"number": 1, "holds": True}], "'reason' is missing"),
        ([ONE | {"score": 5}], "'score' is unknown"),
    ],
)
def test_a_verdict_of_another_form_is_never_believed(value, reason):
    with pytest.raises(ReplyError, match=reason):
        rubric.read_verdicts(json.dumps({"verdicts": value}), range(1, 2))
    assert rubric.read_verdicts(json.dumps({"verdicts": [ONE]}), range(1, 2)) == [(True, "")]
