"""The LLM judge against a real server on this machine: good replies, every bad one, outages, and kills."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import types

import numpy as np
import pytest
from endpoint_server import serve

from scope_jax.endpoint import Endpoint, EndpointSettings
from scope_jax.judges import rubric
from scope_jax.judges.cache import LabelCache
from scope_jax.judges.llm import make_llm_judge
from scope_jax.rewards import STEP_LABELS

ROOT = pathlib.Path(__file__).parent.parent.parent
JUDGE = types.SimpleNamespace(max_steps=5, max_tokens=300)


def split(text):
    return [part for part in text.split("|") if part]


def steps_of(messages):
    """The steps that a request shows."""
    return [step["text"] for step in json.loads(messages[1]["content"].split("\n\n", 1)[1])["steps"]]


def honest(messages, schema):
    """A step that begins with the name of a label has that label."""
    entries = [{"step": i, "label": text.split()[0]} for i, text in enumerate(steps_of(messages), start=1)]
    return json.dumps({"labels": entries})


@pytest.fixture
def server():
    with serve(honest) as server:
        yield server


@pytest.fixture
def judge_of(tmp_path):
    opened = []

    def judge_of(server, folder=None, judge=JUDGE, **fields):
        fields = {"timeout": 5.0, "retries": 1, "backoff": 0.01, "concurrency": 4, "model": "judge"} | fields
        endpoint = Endpoint(EndpointSettings(url=server if isinstance(server, str) else server.url, **fields))
        opened.append(endpoint)
        return make_llm_judge(endpoint, judge, split=split, cache=LabelCache(folder or tmp_path / "cache"))

    yield judge_of
    for endpoint in opened:
        endpoint.close()


def label_all(label, completions):
    return label(["q"] * len(completions), completions, ["7"] * len(completions))


def names(labels, mask, row):
    return [STEP_LABELS[i] for i in labels[row][mask[row]]]


def test_each_row_gets_the_labels_of_its_own_steps(server, judge_of):
    completions = ["useful a|error b|reversion c", "", "redundant a", "mechanical 1|useful 2|useful 3|useful 4|error 5"]
    labels, mask, valid = label_all(judge_of(server), completions)
    assert labels.shape == mask.shape == (4, 5) and labels.dtype == np.int32 and mask.dtype == valid.dtype == bool
    for row, completion in enumerate(completions):
        assert names(labels, mask, row) == [part.split()[0] for part in split(completion)]
    assert valid.all()  # a response without steps is labelled: it has none
    assert not labels[~mask].any()
    assert len(server.requests) == 3
    request = next(r for r in server.requests if "redundant a" in r["messages"][1]["content"])
    assert request["max_tokens"] == 300 and request["temperature"] == 0.0
    assert request["response_format"]["json_schema"]["schema"] == rubric.schema(1)


def test_the_problem_and_the_answer_of_the_row_are_shown(server, judge_of):
    judge_of(server)(["what is a?", "what is b?"], ["useful x", "useful y"], ["1", "2"])
    shown = [json.loads(r["messages"][1]["content"].split("\n\n", 1)[1]) for r in server.requests]
    assert {(s["problem"], s["steps"][0]["text"], s["reference_answer"]) for s in shown} == {
        ("what is a?", "useful x", "1"),
        ("what is b?", "useful y", "2"),
    }


def test_a_judgement_is_paid_for_once(server, judge_of):
    label = judge_of(server)
    first = label_all(label, ["useful a|error b"] * 5 + ["useful c"])
    assert len(server.requests) == 2  # equal responses of a group are one request
    again = label_all(judge_of(server), ["useful c"] + ["useful a|error b"] * 5)  # another process opens the cache
    assert len(server.requests) == 2
    np.testing.assert_array_equal(first[0][0], again[0][1])
    np.testing.assert_array_equal(first[1][5], again[1][0])


@pytest.mark.parametrize("change", ["prompt", "completion", "cut", "answer", "model", "extra", "rubric"])
def test_whatever_decides_a_judgement_is_part_of_its_key(server, judge_of, monkeypatch, change):
    judge_of(server)(["q"], ["useful a|error b"], ["7"])
    fields = {"model": {"model": "other"}, "extra": {"extra": '{"top_k": 1}'}}.get(change, {})
    if change == "rubric":
        monkeypatch.setattr(rubric, "VERSION", rubric.VERSION + 1)
    completion = {"completion": "useful a|useful b", "cut": "useful a||error b|useful"}.get(change, "useful a|error b")
    judge_of(server, **fields)(
        ["p" if change == "prompt" else "q"], [completion], ["8" if change == "answer" else "7"]
    )
    assert len(server.requests) == 2


def test_equal_steps_are_one_judgement_whatever_stands_between_them(server, judge_of):
    label_all(judge_of(server), ["useful a|error b"])
    label_all(judge_of(server), ["useful a||error b"])
    assert len(server.requests) == 1


BAD = {
    "wrong number": '{"labels": [{"step": 1, "label": "useful"}]}',
    "unknown label": '{"labels": [{"step": 1, "label": "useful"}, {"step": 2, "label": "brilliant"}]}',
    "no JSON": "Both steps are useful.",
    "twice": '{"labels": [{"step": 1, "label": "useful"}, {"step": 1, "label": "error"}]}',
}


@pytest.mark.parametrize("kind", BAD)
def test_a_reply_that_breaks_the_rules_is_asked_for_again_with_the_reason(server, judge_of, kind):
    server.answer = lambda messages, schema: honest(messages, schema) if len(messages) == 4 else BAD[kind]
    labels, mask, valid = label_all(judge_of(server), ["useful a|error b"])
    assert valid.all() and names(labels, mask, 0) == ["useful", "error"]
    first, second = (request["messages"] for request in server.requests)
    assert second[:2] == first and second[2] == {"role": "assistant", "content": BAD[kind]}
    with pytest.raises(ValueError) as reason:
        rubric.read_labels(BAD[kind], 2)
    assert str(reason.value) in second[3]["content"]


@pytest.mark.parametrize("kind", BAD)
def test_after_a_second_one_the_row_is_given_up_and_no_other(server, judge_of, caplog, kind):
    server.answer = lambda messages, schema: BAD[kind] if "bad" in str(messages) else honest(messages, schema)
    completions = ["useful a|error b", "useful bad|error b", "error c"]
    labels, mask, valid = label_all(judge_of(server), completions)
    np.testing.assert_array_equal(valid, [True, False, True])
    assert not mask[1].any() and not labels[1].any()
    assert names(labels, mask, 0) == ["useful", "error"] and names(labels, mask, 2) == ["error"]
    assert len(server.requests) == 4
    assert "1 of 3 responses have no labels" in caplog.text
    label_all(judge_of(server), completions)
    assert len(server.requests) == 6  # a failure is not kept, the rest is


@pytest.mark.parametrize("fault", ["slow", "truncate", "malformed", "429", "500", "drop"])
def test_failures_of_the_endpoint_that_pass_cost_no_row(server, judge_of, fault):
    server.faults = [fault, None, fault]
    _, _, valid = label_all(judge_of(server, timeout=0.4, retries=3), ["useful a", "useful b", "useful c"])
    assert valid.all() and len(server.requests) == 5


@pytest.mark.parametrize("fault", ["slow", "truncate", "malformed", "429", "500", "401", "length", "drop"])
def test_failures_of_the_endpoint_that_stay_cost_their_row_and_never_raise(server, judge_of, fault):
    server.faults = lambda body: fault if "bad" in str(body["messages"]) else None
    labels, mask, valid = label_all(judge_of(server, timeout=0.3), ["useful a", "error bad", "useful c"])
    np.testing.assert_array_equal(valid, [True, False, True])
    np.testing.assert_array_equal(mask.sum(axis=1), [1, 0, 1])


def test_a_server_that_is_down_costs_every_row_and_little_time(judge_of, caplog):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    begin = time.monotonic()
    label = judge_of(url, retries=2, backoff=0.1)
    _, mask, valid = label_all(label, [f"useful {i}" for i in range(400)])
    assert not valid.any() and not mask.any()
    assert time.monotonic() - begin < 5  # 400 rows, each with its retries, would take half a minute
    assert "400 of 400 responses" in caplog.text and "connection failed" in caplog.text


def test_after_an_outage_the_next_call_asks_again(server, judge_of):
    label = judge_of(server)
    server.faults = lambda body: "500"
    assert not label_all(label, [f"useful {i}" for i in range(30)])[2].any()
    asked = len(server.requests)
    assert asked <= 2 * (8 + 4)  # not 60
    server.faults = []
    assert label_all(label, [f"useful {i}" for i in range(30)])[2].all()
    assert len(server.requests) == asked + 30


def test_bad_replies_are_no_outage(server, judge_of):
    server.answer = lambda messages, schema: "?" if "bad" in str(messages) else honest(messages, schema)
    completions = [f"error bad {i}" for i in range(30)] + [f"useful {i}" for i in range(5)]
    np.testing.assert_array_equal(label_all(judge_of(server), completions)[2], [False] * 30 + [True] * 5)


def test_requests_at_once_are_bounded(server, judge_of):
    server.answer = lambda messages, schema: time.sleep(0.03) or honest(messages, schema)
    label_all(judge_of(server, concurrency=3), [f"useful {i}" for i in range(20)])
    assert server.most_at_once == 3


def test_damaged_entries_of_the_cache_are_asked_for_again(server, judge_of, tmp_path):
    label_all(judge_of(server), ["useful a|error b"])
    cache = LabelCache(tmp_path / "cache")
    cache._file.execute("""UPDATE labels SET labels = '["useful"]'""")
    labels, mask, _ = label_all(judge_of(server), ["useful a|error b"])
    assert len(server.requests) == 2 and names(labels, mask, 0) == ["useful", "error"]


def test_a_split_that_loses_the_limit_is_a_bug_that_is_said(server, judge_of):
    with pytest.raises(ValueError, match="6 steps, more than judge.max_steps=5"):
        label_all(judge_of(server), ["useful|" * 6])


def test_an_interrupt_closes_the_endpoint(server, judge_of, monkeypatch):
    label = judge_of(server)
    monkeypatch.setattr(rubric, "read_labels", lambda reply, count: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        label_all(label, ["useful a"])
    monkeypatch.undo()
    assert not label_all(label, ["useful a"])[2].any()  # closed: no requests any more


SCRIPT = """
import sys, types
from scope_jax.endpoint import Endpoint, EndpointSettings
from scope_jax.judges.cache import LabelCache
from scope_jax.judges.llm import make_llm_judge
url, folder = sys.argv[1:]
endpoint = Endpoint(EndpointSettings(url=url, model="judge", concurrency=3))
judge = types.SimpleNamespace(max_steps=5, max_tokens=300)
label = make_llm_judge(endpoint, judge, split=lambda text: text.split("|"), cache=LabelCache(folder))
completions = [f"useful {i}|error" for i in range(40)]
labels, mask, valid = label(["q"] * 40, completions, ["7"] * 40)
assert valid.all() and (labels[:, :2] == [0, 4]).all() and (mask.sum(axis=1) == 2).all()
print("done")
"""


@pytest.mark.slow
def test_a_killed_run_pays_again_for_nothing_that_had_arrived(server, tmp_path):
    server.answer = lambda messages, schema: time.sleep(0.05) or honest(messages, schema)
    command = [sys.executable, "-c", SCRIPT, server.url, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    while process.poll() is None and len(server.requests) < 15:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert "done" not in process.communicate()[0]
    time.sleep(0.1)  # requests on their way arrive
    before = len(server.requests)
    assert 15 <= before < 35
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr
    # Lost are at most the replies on their way and those not yet written: three threads hold one each.
    assert 40 - before <= len(server.requests) - before <= 40 - before + 3
