"""Paid replies survive kills, and are paid for once."""

import json
import threading

import pytest

from scope_jax.scaffolds.journal import Journal


def test_a_reply_is_paid_for_once_and_kept_across_processes(tmp_path):
    calls = []

    def call():
        calls.append(1)
        return "r\u00e9ply\n2"

    with Journal(tmp_path / "j.jsonl") as journal:
        assert journal.ask({"a": 1, "b": 2}, call) == "r\u00e9ply\n2"
        assert journal.ask({"b": 2, "a": 1}, call) == "r\u00e9ply\n2"
        assert (journal.paid, len(journal)) == (1, 1)
    with Journal(tmp_path / "j.jsonl") as journal:
        assert journal.ask({"a": 1, "b": 2}, call) == "r\u00e9ply\n2"
        assert journal.ask({"a": 1, "b": 3}, call) == "r\u00e9ply\n2"
        assert (journal.paid, len(journal)) == (1, 2)
    assert len(calls) == 2


def test_the_reply_is_on_disk_before_it_is_used(tmp_path):
    with Journal(tmp_path / "j.jsonl") as journal:
        journal.ask("q", lambda: "a")
        assert [json.loads(line)["reply"] for line in (tmp_path / "j.jsonl").read_text().splitlines()] == ["a"]


@pytest.mark.parametrize("torn", [b'{"key": "x", "rep', b"{", b'{"key": "x", "reply": "\xc3'])
def test_a_line_that_a_kill_has_cut_is_dropped_and_the_rest_goes_on(tmp_path, torn):
    path = tmp_path / "j.jsonl"
    with Journal(path) as journal:
        journal.ask("q", lambda: "a")
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    with Journal(path) as journal:
        assert len(journal) == 1
        journal.ask("p", lambda: "b")
    with Journal(path) as journal:
        assert journal.ask("q", lambda: "new") == "a"
        assert journal.ask("p", lambda: "new") == "b"
    assert path.read_bytes().startswith(whole)


def test_what_is_no_journal_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "j.jsonl"
    path.write_text('{"id": "a problem"}\n')
    with pytest.raises(ValueError, match=r"j\.jsonl:1: is no line of a journal"):
        Journal(path)
    assert path.read_text() == '{"id": "a problem"}\n'


def test_two_runs_do_not_write_one_journal(tmp_path):
    with Journal(tmp_path / "j.jsonl"):
        with pytest.raises(ValueError, match="another run is writing it"):
            Journal(tmp_path / "j.jsonl")
    Journal(tmp_path / "j.jsonl").close()


def test_a_failure_is_not_kept(tmp_path):
    def fail():
        raise OSError("down")

    with Journal(tmp_path / "j.jsonl") as journal:
        with pytest.raises(OSError, match="down"):
            journal.ask("q", fail)
        assert journal.ask("q", lambda: "a") == "a"
    assert len((tmp_path / "j.jsonl").read_text().splitlines()) == 1


def test_threads_with_one_request_pay_once(tmp_path):
    go, calls, replies = threading.Event(), [], []

    def call():
        calls.append(1)
        go.wait(10)
        return "a"

    with Journal(tmp_path / "j.jsonl") as journal:
        threads = [threading.Thread(target=lambda: replies.append(journal.ask("q", call))) for _ in range(8)]
        for thread in threads:
            thread.start()
        go.set()
        for thread in threads:
            thread.join()
    assert (len(calls), replies) == (1, ["a"] * 8)
