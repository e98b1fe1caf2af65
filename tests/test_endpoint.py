"""The chat client against a real server on this machine that fails in every way that servers fail."""

import dataclasses
import json
import socket
import threading
import time

import pytest
from endpoint_server import RETRY_AFTER, serve

from scope_jax import endpoint as endpoint_module
from scope_jax.endpoint import Endpoint, EndpointError, EndpointSettings

QUESTION = [{"role": "user", "content": "6*7?"}]
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}


def answer(messages, schema):
    return "42" if schema is None else json.dumps({"x": 42})


@pytest.fixture
def server():
    with serve(answer) as server:
        yield server


def open_endpoint(server, **fields):
    fields = {"timeout": 5.0, "retries": 2, "backoff": 0.01, "concurrency": 4} | fields
    return Endpoint(EndpointSettings(**({"url": server.url, "model": "judge"} | fields)))


def test_a_request_has_the_protocols_form_and_the_reply_is_its_text(server):
    with open_endpoint(server, extra='{"top_k": 3}') as endpoint:
        assert endpoint.chat(QUESTION, temperature=0.5, max_tokens=7) == "42"
        assert endpoint.chat(QUESTION, schema=SCHEMA) == '{"x": 42}'
    plain, structured = server.requests
    assert plain == {"model": "judge", "messages": QUESTION, "temperature": 0.5, "max_tokens": 7, "top_k": 3}
    assert structured["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "reply", "strict": True, "schema": SCHEMA},
    }
    assert structured["temperature"] == 0.0
    assert "Authorization" not in server.headers[0]


def test_the_key_comes_from_the_variable_and_stays_out_of_messages(server, monkeypatch):
    monkeypatch.setenv("MY_KEY", " secret-key\n")
    with open_endpoint(server, key_variable="MY_KEY") as endpoint:
        endpoint.chat(QUESTION)
        server.faults = ["401"]
        with pytest.raises(EndpointError) as error:
            endpoint.chat(QUESTION)
    assert server.headers[0]["Authorization"] == "Bearer secret-key"
    assert "secret" not in f"{error.value!r} {endpoint.settings}"


@pytest.mark.parametrize(
    "fault", ["slow", "drip", "truncate", "malformed", "empty", "no_text", "429", "500", "503", "drop"]
)
def test_a_passing_failure_is_tried_again(server, fault):
    server.faults = [fault]
    with open_endpoint(server, timeout=0.5) as endpoint:
        assert endpoint.chat(QUESTION) == "42"
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("slow", "no reply within 0.3 s"),
        ("drip", "no whole reply within 0.3 s"),
        ("truncate", "connection failed"),
        ("malformed", "the reply is no chat completion: {"),
        ("429", "status 429: .*too many requests"),
        ("500", "status 500: .*scripted 500"),
        ("drop", "connection failed"),
    ],
)
def test_a_failure_that_stays_is_an_error_with_its_reason_after_all_tries(server, fault, reason):
    server.faults = [fault] * 9
    with open_endpoint(server, timeout=0.3, retries=1) as endpoint:
        with pytest.raises(EndpointError, match=rf"{server.url}: {reason}.*\(2 tries\)") as error:
            endpoint.chat(QUESTION)
    assert error.value.transient and len(server.requests) == 2


@pytest.mark.parametrize(
    ("fault", "advice"),
    [
        ("400", "prompt may be too long"),
        ("401", "environment variable"),
        ("404", "usually ends in /v1"),
        ("length", "max_tokens; allow more"),
        ("refusal", "refused: I cannot help"),
    ],
)
def test_what_no_retry_can_mend_is_said_at_once_with_what_to_do(server, fault, advice):
    server.faults = [fault]
    with open_endpoint(server) as endpoint, pytest.raises(EndpointError, match=advice) as error:
        endpoint.chat(QUESTION)
    assert len(server.requests) == 1 and not error.value.transient


def test_a_server_that_is_down_is_an_error():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with Endpoint(EndpointSettings(url=url, model="judge", retries=1, backoff=0.01)) as endpoint:
        with pytest.raises(EndpointError, match="connection failed.*is the server up"):
            endpoint.chat(QUESTION)


@pytest.mark.parametrize(("fault", "wait"), [("429", RETRY_AFTER), ("429_date", 1.0)])
def test_a_retry_waits_as_long_as_the_server_asks(server, fault, wait):
    server.faults = [fault]  # a date counts whole seconds: two seconds ahead is more than one
    with open_endpoint(server) as endpoint:
        endpoint.chat(QUESTION)
    assert server.times[1] - server.times[0] >= wait


def test_a_wait_of_a_day_ends_the_request(server):
    server.faults = ["429_long"]
    with open_endpoint(server) as endpoint, pytest.raises(EndpointError, match="asks to wait 86400 s"):
        endpoint.chat(QUESTION)


def test_waits_double_up_to_the_cap(server, monkeypatch):
    monkeypatch.setattr(endpoint_module.random, "uniform", lambda low, high: high)
    server.faults = ["500"] * 4
    with open_endpoint(server, retries=4, backoff=0.1, max_wait=0.25) as endpoint:
        endpoint.chat(QUESTION)
    waits = [later - earlier for earlier, later in zip(server.times, server.times[1:], strict=False)]
    for wait, least in zip(waits, (0.1, 0.2, 0.25, 0.25), strict=True):
        assert least <= wait < least + 0.1


def test_waiting_for_a_turn_is_not_on_the_requests_clock():
    def slowly(messages, schema):
        time.sleep(0.2)
        return "42"

    with serve(slowly) as server, open_endpoint(server, concurrency=1, timeout=0.5, retries=0) as endpoint:
        threads_results = []
        threads = [threading.Thread(target=lambda: threads_results.append(endpoint.chat(QUESTION))) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert threads_results == ["42"] * 5 and server.most_at_once == 1


def test_map_gives_every_result_with_its_index_and_failures_in_their_place():
    def echo(messages, schema):
        time.sleep(0.02)
        return messages[0]["content"]

    def bad_seventh(body):
        return "400" if body["messages"][0]["content"] == "7" else None

    with serve(echo, bad_seventh) as server, open_endpoint(server, concurrency=3) as endpoint:
        ask = lambda i: endpoint.chat([{"role": "user", "content": str(i)}])  # noqa: E731
        results = dict(endpoint.map(range(20), ask))
        assert sorted(results) == list(range(20))
        assert isinstance(results.pop(7), EndpointError)
        assert all(text == str(i) for i, text in results.items())
        assert 1 < server.most_at_once <= 3


def test_map_takes_requests_only_as_threads_become_free(server):
    taken = []

    def many():
        for i in range(1000):
            taken.append(i)
            yield i

    with open_endpoint(server, concurrency=2) as endpoint:
        results = endpoint.map(many(), lambda i: i)
        next(results)
        assert len(taken) <= 4
        results.close()


def test_a_bug_in_the_mapped_function_is_not_swallowed(server):
    with open_endpoint(server) as endpoint, pytest.raises(ZeroDivisionError):
        list(endpoint.map([1, 0], lambda x: 1 // x))


def test_closing_ends_the_wait_before_a_retry(server):
    server.faults = ["500"] * 9
    endpoint = open_endpoint(server, backoff=30.0)
    errors = []

    def ask():
        try:
            endpoint.chat(QUESTION)
        except EndpointError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while not server.requests:
        time.sleep(0.01)
    time.sleep(0.1)
    endpoint.close()
    thread.join(timeout=5.0)
    assert not thread.is_alive() and "closed" in str(errors[0])


def test_half_surrogate_pairs_pass_in_both_directions(server):
    server.answer = lambda messages, schema: "x \ud83d y"
    with open_endpoint(server) as endpoint:
        assert endpoint.chat([{"role": "user", "content": "\ud83d"}]) == "x ? y"
    assert server.requests[0]["messages"][0]["content"] == "\ud83d"


def test_a_proxy_of_the_outside_world_is_not_asked_for_this_machine(server, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with open_endpoint(server, retries=0) as endpoint:
        assert endpoint.chat(QUESTION) == "42"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"url": "localhost:8000/v1"}, "must begin with http"),
        ({"url": "http://h/v1/chat/completions"}, "without /chat/completions"),
        ({"model": ""}, "model is empty"),
        ({"timeout": 0.0}, "timeout=0.0 is too small"),
        ({"concurrency": 0}, "concurrency=0 is too small"),
        ({"retries": -1}, "retries=-1 is too small"),
        ({"extra": "{x"}, "is no JSON"),
        ({"extra": "[1]"}, "must be a JSON object"),
        ({"key_variable": "NO_SUCH_KEY"}, "key_variable='NO_SUCH_KEY': that environment variable is not set"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(fields, message):
    settings = EndpointSettings(url="http://localhost:8000/v1", model="judge")
    with pytest.raises(ValueError, match=message):
        Endpoint(dataclasses.replace(settings, **fields))
