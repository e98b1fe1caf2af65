"""Replies of models: what is read as a draft, and the reason for everything else."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scope_jax.data.records import Problem, SubQuestion
from scope_jax.scaffolds import draft, replies
from scope_jax.scaffolds.replies import ReplyError

PROBLEM = Problem("p", "14 trays of 12 rolls, less 98?", "70", source="s", level="2", scaffold=(SubQuestion("old", "1"),))
STEP = {"question": " How many\nrolls? ", "work": "14 * 12 = 168", "answer": " 168 "}
WHOLE = {"sub_questions": [STEP], "main_work": "168 - 98 = 70"}

NAMES = st.sampled_from(["sub_questions", "main_work", "question", "work", "answer", "a"])
JSON = st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(NAMES, x))


def read(value, max_subs=3):
    return draft.read_draft(value if isinstance(value, str) else json.dumps(value), PROBLEM, max_subs)


def with_step(**fields):
    return WHOLE | {"sub_questions": [{**STEP, **fields}]}


def test_a_draft_replaces_the_scaffold_and_keeps_the_record():
    got = read(WHOLE)
    assert got.problem == Problem(
        "p", PROBLEM.problem, "70", source="s", level="2", scaffold=(SubQuestion("How many rolls?", "168"),)
    )
    assert got.works == ("14 * 12 = 168", "168 - 98 = 70")


@pytest.mark.parametrize("around", ["{}", " {}\n", "<think>\n{{}} no\n</think>\n{}", "```json\n{}\n```", "```\n{}\n```"])
def test_thoughts_and_one_fence_are_taken_off(around):
    assert read(around.format(json.dumps(WHOLE))) == read(WHOLE)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "not one JSON object"),
        ("Sure! " + json.dumps(WHOLE), "not one JSON object"),
        (json.dumps(WHOLE) + " Done.", "not one JSON object"),
        (json.dumps(WHOLE)[:-1], "not one JSON object"),
        ("[" * 100_000, "not one JSON object"),
        ("[" * 100_001, "at most 100000"),
        ([WHOLE], "must be a JSON object"),
        ({"sub_questions": [STEP]}, "'main_work' is missing"),
        (WHOLE | {"notes": ""}, "'notes' is unknown"),
        ('{"main_work": "1", "main_work": "2", "sub_questions": []}', "'main_work' stands twice"),
        (WHOLE | {"main_work": 70}, "'main_work' must be a string"),
        (WHOLE | {"main_work": " "}, "the work of the final answer is empty"),
        (WHOLE | {"main_work": "168 - 98 = 71"}, "the work of the final answer is wrong: 168 - 98 is not 71"),
        (WHOLE | {"main_work": "168 - 97 = 71"}, "the work ends in 71, the answer is 70"),
        (WHOLE | {"sub_questions": []}, "a list of 1 to 3"),
        (WHOLE | {"sub_questions": [STEP] * 4}, "a list of 1 to 3"),
        (WHOLE | {"sub_questions": "none"}, "a list of 1 to 3"),
        (WHOLE | {"sub_questions": [STEP, 5]}, "sub-question 2 must be a JSON object"),
        (WHOLE | {"sub_questions": [STEP, {**STEP, "question": "how many ROLLS?"}]}, "asked twice"),
        (with_step(answer=168), "sub-question 1: 'answer' must be a string"),
        (with_step(answer=" "), "'scaffold[0].answer' is empty"),
        (with_step(question=""), "'scaffold[0].question' is empty"),
        (with_step(question="How \ud800?"), "surrogate"),
        (with_step(work=""), "the work of sub-question 1 is empty"),
        (with_step(work="14 * 12 = 158", answer="158"), "the work of sub-question 1 is wrong: 14 * 12 is not 158"),
    ],
)
def test_anything_else_is_refused_with_a_reason(reply, reason):
    with pytest.raises(ReplyError) as error:
        read(reply)
    assert reason in str(error.value)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80) | JSON.map(json.dumps))
def test_no_reply_raises_anything_but_a_reply_error(reply):
    try:
        read(reply)
    except ReplyError:
        pass


def test_the_conversation_shows_the_problem_and_what_was_refused():
    first = draft.draft_messages(PROBLEM, 5)
    assert [m["role"] for m in first] == ["system", "user"]
    assert "Between 1 and 5" in first[0]["content"] and PROBLEM.problem in first[1]["content"]
    assert "old" not in first[1]["content"]
    again = draft.draft_messages(PROBLEM, 5, ("{}", "it is empty"))
    assert again[:2] == first
    assert again[2] == {"role": "assistant", "content": "{}"} and "it is empty" in again[3]["content"]


def test_the_schema_asks_for_exactly_what_is_read():
    schema = draft.draft_schema()
    item = schema["properties"]["sub_questions"]["items"]
    assert set(schema["required"]) == set(schema["properties"]) == set(WHOLE)
    assert set(item["required"]) == set(item["properties"]) == set(STEP)
    assert schema["additionalProperties"] is item["additionalProperties"] is False


def test_fields_are_checked_by_name():
    assert replies.read_object('{"a": 1}', ("a",)) == {"a": 1}
    with pytest.raises(ReplyError, match="'a' must be a string"):
        replies.read_object('{"a": 1}', ("a",), texts=("a",))
