"""Drafting with retries, and many problems at once: order, limits, and what a failing endpoint costs."""

import json
import threading
import time

import pytest
from scaffold_replies import exact_reply

from scope_jax.data import chains
from scope_jax.data.records import Problem
from scope_jax.endpoint import EndpointError
from scope_jax.scaffolds import build
from scope_jax.scaffolds.journal import Journal

SETTINGS = build.Settings("m")
PROBLEM = Problem("c", "a=34+7. b=a-5. c=b+8. What is c?", "44", source="chains")
GOOD = json.loads(exact_reply([{}, {"content": f"Problem:\n{PROBLEM.problem}\n\n"}], {"properties": {}}))
OFFLINE = build.make_checks("offline", lambda: None)


def leaking():
    steps = [dict(GOOD["sub_questions"][0], question="What is a, which is 41?"), GOOD["sub_questions"][1]]
    return json.dumps(GOOD | {"sub_questions": steps})


def scripted(*replies):
    seen = []

    def ask(messages, schema, tried):
        seen.append((messages, tried))
        return replies[len(seen) - 1]

    return ask, seen


def test_a_good_draft_is_taken_at_once():
    ask, seen = scripted(json.dumps(GOOD))
    built = build.build_scaffold(PROBLEM, ask, OFFLINE, SETTINGS)
    assert [(s.question, s.answer) for s in built.problem.scaffold] == [("What is a?", "41"), ("What is b?", "36")]
    assert (built.reasons, built.unanswered, len(seen)) == ((), False, 1)


def test_a_refused_draft_is_asked_for_again_with_the_reason():
    ask, seen = scripted("no JSON", leaking(), json.dumps(GOOD))
    built = build.build_scaffold(PROBLEM, ask, OFFLINE, SETTINGS)
    assert len(built.problem.scaffold) == 2
    assert "not one JSON object" in built.reasons[0]
    assert built.reasons[1] == "test H: sub-question 1 shows '41', the answer of sub-question 1"
    assert [tried for _, tried in seen] == [0, 1, 2]
    assert seen[1][0][2]["content"] == "no JSON" and built.reasons[0] in seen[1][0][3]["content"]
    assert seen[2][0][2]["content"] == leaking() and built.reasons[1] in seen[2][0][3]["content"]
    assert len(seen[2][0]) == 4  # the last refusal only: conversations do not grow


def test_after_the_last_attempt_the_problem_is_bare_with_all_reasons():
    ask, seen = scripted("no", leaking())
    built = build.build_scaffold(PROBLEM, ask, OFFLINE, build.Settings("m", attempts=2))
    assert built.problem == PROBLEM
    assert len(built.reasons) == 2 and len(seen) == 2


def test_the_tests_are_made_in_order_and_the_first_failure_counts():
    made = []

    def test(name, reason):
        return lambda problem, works: made.append((name, works)) or reason

    tests = {"V": test("V", None), "H": test("H", "shown"), "P": test("P", "unused")}
    assert build.first_failure(PROBLEM, ["w"], tests) == "test H: shown"
    assert made == [("V", ["w"]), ("H", ["w"])]
    assert list(OFFLINE) == ["V", "H", "P", "D"]  # the free ones come before those that an endpoint is paid for


def test_the_endpoints_verdicts_decide_p_and_d_where_it_is_asked():
    def ask(messages, schema, tried):
        if "verdicts" not in schema["properties"]:
            return json.dumps(GOOD)
        numbers = [int(n) for n in messages[1]["content"].rpartition("Judge: ")[2].split(", ")]
        holds = "HOLDS if answering" in messages[0]["content"]  # D holds, P does not
        return json.dumps({"verdicts": [{"number": n, "holds": holds, "reason": "filler"} for n in numbers]})

    tests = build.make_checks("endpoint", lambda: None, ask)
    built = build.build_scaffold(PROBLEM, ask, tests, build.Settings("m", attempts=1))
    assert built.reasons == ("test P: sub-question 1 is judged to be no prerequisite: filler",)
    assert tests["D"](build.build_scaffold(PROBLEM, ask, OFFLINE, SETTINGS).problem, None) is None


def test_whatever_determines_a_reply_is_part_of_its_key(tmp_path):
    class Chat:
        asked = 0

        def chat(self, messages, *, schema, temperature, max_tokens):
            self.asked += 1
            return f"reply {self.asked}"

    chat = Chat()
    with Journal(tmp_path / "j") as journal:

        def reply(settings=SETTINGS, messages=({"role": "user", "content": "x"},), schema=None, tried=0):
            return build.make_ask(chat, journal, settings)(list(messages), schema, tried)

        assert reply() == reply() == "reply 1"
        others = [
            reply(build.Settings("n")),
            reply(build.Settings("m", temperature=1.0)),
            reply(build.Settings("m", max_tokens=9)),
            reply(messages=({"role": "user", "content": "y"},)),
            reply(schema={}),
            reply(tried=1),
        ]
        assert len({reply(), *others}) == 7
        # How often and how long to try does not change a reply that is there already.
        assert reply(build.Settings("m", attempts=9, max_subs=2)) == "reply 1"


def problems(count):
    return [Problem(str(i), "text", "1") for i in range(count)]


def test_many_are_built_at_once_but_no_more_than_the_limit():
    lock, now, most = threading.Lock(), 0, 0

    def one(problem):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.01)
        with lock:
            now -= 1
        return build.Built(problem, ())

    found = dict(build.build_all(problems(30), one, concurrency=4))
    assert [found[i].problem.id for i in range(30)] == [str(i) for i in range(30)]
    assert 2 <= most <= 4


@pytest.mark.parametrize("transient", [False, True])
def test_single_problems_without_a_reply_stop_nothing(transient):
    def one(problem):
        if int(problem.id) % 3 == 0:
            raise EndpointError("status 400: too long", transient=transient)
        return build.Built(problem, ())

    found = dict(build.build_all(problems(10), one, concurrency=1))
    assert [i for i in range(10) if found[i].unanswered] == [0, 3, 6, 9]
    assert found[3].reasons == ("no reply: status 400: too long",)


def test_an_endpoint_that_stays_silent_ends_the_run_soon():
    asked = []

    def one(problem):
        asked.append(problem)
        if len(asked) > 2:
            raise EndpointError("connection refused", transient=True)
        return build.Built(problem, ())

    done = {}
    with pytest.raises(build.EndpointDown, match=r"connection refused \(\d problems in a row"):
        for i, built in build.build_all(problems(100), one, concurrency=4):
            done[i] = built
    assert sum(not built.unanswered for built in done.values()) == 2  # none that was done is lost
    assert len(asked) < 12


def test_many_problems_that_are_refused_for_good_stop_nothing_once_one_was_answered():
    def one(problem):
        if problem.id != "0":
            raise EndpointError("the reply was cut at max_tokens")
        return build.Built(problem, ())

    found = dict(build.build_all(problems(20), one, concurrency=1))
    assert [found[i].unanswered for i in range(20)] == [False] + [True] * 19


def test_a_wrong_key_ends_the_run_soon():
    asked = []

    def one(problem):
        asked.append(problem)
        raise EndpointError("status 401")

    with pytest.raises(build.EndpointDown, match="status 401"):
        list(build.build_all(problems(100), one, concurrency=4))
    assert len(asked) < 12


@pytest.mark.parametrize("count", [1, 2])
def test_a_silent_endpoint_is_noticed_with_few_problems_too(count):
    def one(problem):
        raise EndpointError("down")

    with pytest.raises(build.EndpointDown):
        list(build.build_all(problems(count), one, concurrency=8))


def test_other_errors_are_passed_on():
    def one(problem):
        raise RuntimeError("a verifier worker did not start")

    with pytest.raises(RuntimeError, match="verifier"):
        list(build.build_all(problems(5), one, concurrency=2))


def test_the_exact_decomposer_gives_the_embedded_scaffolds():
    for problem in chains.generate_problems(50, seed=5, min_steps=2, max_steps=8):
        reply = exact_reply([{}, {"content": f"Problem:\n{problem.problem}\n\nFinal answer"}], {"properties": {}})
        ask, _ = scripted(reply)
        assert build.build_scaffold(problem, ask, OFFLINE, SETTINGS) == build.Built(problem, ())
