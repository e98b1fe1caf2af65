"""The whole pipeline against a local server: raw problems in, scaffolds out, through kills, bad replies and silence."""

import collections
import dataclasses
import importlib.resources
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import NamedTuple

import pytest
from endpoint_server import serve
from scaffold_replies import exact_reply, problem_of, verdicts

from scope_jax import decompose
from scope_jax.data import chains
from scope_jax.data.records import Problem, SubQuestion, load_jsonl, write_jsonl
from scope_jax.endpoint import Endpoint, EndpointSettings
from scope_jax.overrides import SetupError
from scope_jax.scaffolds import build

EXACT = chains.generate_problems(24, seed=11, min_steps=2, max_steps=6)
RAW = [dataclasses.replace(problem, scaffold=()) for problem in EXACT]


def command(tmp_path, *arguments):
    files = [f"--input={tmp_path / 'in.jsonl'}", f"--output={tmp_path / 'out.jsonl'}"]
    return [sys.executable, "-m", "scope_jax.decompose", *files, *map(str, arguments)]


def run_command(tmp_path, *arguments, problems=RAW):
    """The command as a process, as a user runs it."""
    write_jsonl(tmp_path / "in.jsonl", problems)
    return subprocess.run(command(tmp_path, *arguments), capture_output=True, text=True, timeout=120, check=False)


class Result(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(tmp_path, capsys):
    """Runs a job in this process, and tells what the command would: status, output, errors."""

    def start(server, *, problems=RAW, retries=0, attempts=3, **job):
        if problems is not None:
            write_jsonl(tmp_path / "in.jsonl", problems)
        capsys.readouterr()
        settings = build.Settings("exact", attempts=attempts)
        job = decompose.Job(tmp_path / "in.jsonl", tmp_path / "out.jsonl", settings, concurrency=4, **job)
        endpoint = EndpointSettings(url=server and server.url, model="exact", retries=retries, concurrency=4)
        error = ""
        try:
            decompose.run(job, lambda: Endpoint(endpoint))
        except (SystemExit, SetupError) as stop:
            error = str(stop)
        stdout, stderr = capsys.readouterr()
        return Result(int(bool(error)), stdout, stderr + error)

    return start


def at(server, *more):
    return [f"--url={server.url}", "--model=exact", "--concurrency=4", *more]


def rejects(tmp_path):
    return [json.loads(line) for line in (tmp_path / "out.jsonl.rejects.jsonl").read_text().splitlines()]


def test_raw_problems_become_exactly_the_embedded_scaffolds_in_order(tmp_path, run):
    def answer(messages, schema):
        time.sleep(0.05 * (len(problem_of(messages)) % 3))  # done out of order
        return exact_reply(messages, schema)

    with serve(answer) as server:
        result = run(server)
        assert result.returncode == 0, result.stderr
        assert load_jsonl(tmp_path / "out.jsonl") == (EXACT, [])
        assert len(server.requests) == len(RAW) and 2 <= server.most_at_once <= 4
        assert rejects(tmp_path) == []
        lengths = [len(problem.scaffold) for problem in EXACT]
        row = ["chains", "24", "100.0", f"{sum(lengths) / 24:.2f}", str(max(lengths)), str(min(lengths))]
        assert row in [[cell.strip() for cell in line.strip("|").split("|")] for line in result.stdout.splitlines()]
        assert "24 paid for in this run" in result.stdout and "24/24" in result.stderr  # the progress bar

        again = run(server)  # everything is in the journal
        assert again.returncode == 0 and "0 paid for in this run, 24 in" in again.stdout
        assert len(server.requests) == len(RAW)
        assert load_jsonl(tmp_path / "out.jsonl")[0] == EXACT


def test_the_endpoint_checks_p_and_d_where_it_is_asked_to(tmp_path, run):
    filler = RAW[1].problem

    def answer(messages, schema):
        if "verdicts" in schema["properties"] and problem_of(messages) == filler:
            return verdicts(messages, lambda number: number > 1)
        return exact_reply(messages, schema)

    with serve(answer) as server:
        result = run(server, checks="endpoint", attempts=1, problems=RAW[:4])
    assert result.returncode == 0, result.stderr
    assert load_jsonl(tmp_path / "out.jsonl")[0] == [EXACT[0], EXACT[2], EXACT[3]]
    (row,) = rejects(tmp_path)
    assert row["id"] == RAW[1].id and row["reason"].startswith("test P: sub-question 1 is judged to be no prerequisite")
    assert len(server.requests) == 3 * 3 + 2  # draft, P, D; for the filler no D


def test_a_killed_run_goes_on_with_the_same_output_and_pays_for_nothing_twice(tmp_path):
    paid, hold = [], threading.Event()
    gate = threading.Lock()

    def answer(messages, schema):
        with gate:
            held = len(paid) >= 9 and not hold.is_set()
            if not held:
                paid.append(problem_of(messages))
        if held:
            hold.wait(60)  # under way when the kill comes, and never answered
            raise BrokenPipeError
        return exact_reply(messages, schema)

    journal = tmp_path / "out.jsonl.journal.jsonl"
    write_jsonl(tmp_path / "in.jsonl", RAW)
    with serve(answer) as server:
        process = subprocess.Popen(command(tmp_path, *at(server)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60
        while not (journal.exists() and journal.read_bytes().count(b"\n") == 9 and len(server.requests) == 13):
            assert time.monotonic() < deadline and process.poll() is None, process.communicate()
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert not (tmp_path / "out.jsonl").exists()
        with open(journal, "ab") as file:
            file.write(b'{"key": "cut by the ki')
        hold.set()

        result = run_command(tmp_path, *at(server))
    assert result.returncode == 0, result.stderr
    assert load_jsonl(tmp_path / "out.jsonl")[0] == EXACT
    assert collections.Counter(paid) == collections.Counter(problem.problem for problem in RAW)
    assert "15 paid for in this run, 24 in" in result.stdout


def test_broken_replies_end_among_the_rejects_with_their_reasons(tmp_path, run):
    bad = {RAW[i].problem: kind for i, kind in enumerate(["no json", "leak", "unverifiable", "unused", "mends"])}
    seen = collections.Counter()

    def answer(messages, schema):
        kind = bad.get(problem_of(messages))
        seen[kind] += 1
        reply = exact_reply(messages, schema)
        if kind is None or (kind == "mends" and "This was refused" in messages[-1]["content"]):
            return reply
        fields = json.loads(reply)
        first = fields["sub_questions"][0]
        if kind in ("no json", "mends"):
            return reply[:-5]
        if kind == "leak":
            first["question"] += f" It is not {int(first['answer']) + 1} but {first['answer']}."
        if kind == "unverifiable":
            first |= {"answer": "somewhere between the two of them", "work": "by looking at it"}
        if kind == "unused":
            fields["sub_questions"].insert(0, {"question": "What is 500 + 1?", "work": "500 + 1 = 501", "answer": "501"})
        return json.dumps(fields)

    with serve(answer) as server:
        result = run(server, attempts=2, problems=RAW[:7])
    assert result.returncode == 0, result.stderr
    assert load_jsonl(tmp_path / "out.jsonl")[0] == EXACT[4:7]
    reasons = {row["id"]: row for row in rejects(tmp_path)}
    assert list(reasons) == [problem.id for problem in RAW[:4]]
    for problem, text in zip(
        RAW, ["not one JSON object", "test H: sub-question 1 shows", "test V: the answer 'somewhere", "use '501', sub-answer 1"]
    ):
        assert text in reasons[problem.id]["reason"]
        assert len(reasons[problem.id]["reasons"]) == 2
    assert seen == {"no json": 2, "leak": 2, "unverifiable": 2, "unused": 2, "mends": 2, None: 2}


def test_rejected_problems_stay_without_scaffold_where_they_are_kept(tmp_path, run):
    old = dataclasses.replace(RAW[1], scaffold=(SubQuestion("old?", "1"),))

    def answer(messages, schema):
        return "no" if problem_of(messages) == old.problem else exact_reply(messages, schema)

    with serve(answer) as server:
        result = run(server, keep_unscaffolded=True, problems=[RAW[0], old, RAW[2]])
    assert result.returncode == 0, result.stderr
    assert load_jsonl(tmp_path / "out.jsonl")[0] == [EXACT[0], RAW[1], EXACT[2]]
    assert "| 66.7 " in result.stdout.replace("66.7   ", "66.7 ")


def test_a_server_that_goes_down_is_named_and_loses_nothing(tmp_path, run):
    asked = []

    def faults(body):
        asked.append(body)
        return "503" if len(asked) > 6 else None

    with serve(exact_reply, faults) as server:
        result = run(server)
        assert result.returncode == 1
        assert "status 503" in result.stderr and server.url in result.stderr
        assert "6 of 24 problems were done" in result.stderr and "Start the same command again" in result.stderr
        assert not (tmp_path / "out.jsonl").exists()
        server.faults, before = [], len(server.requests)
        result = run(server)
        assert result.returncode == 0, result.stderr
        assert len(server.requests) - before == 18
    assert load_jsonl(tmp_path / "out.jsonl")[0] == EXACT


def test_no_server_at_all_is_one_line(tmp_path, run):
    with serve(exact_reply) as server:
        pass  # a port where nobody listens any more
    result = run(server, problems=RAW[:1])
    assert result.returncode == 1
    assert f"decompose: {server.url}: connection failed" in result.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_a_problem_that_the_endpoint_refuses_is_a_reject_and_asked_for_again_next_time(tmp_path, run):
    def faults(body):
        return "400" if problem_of(body["messages"]) == RAW[2].problem else None

    with serve(exact_reply, faults) as server:
        result = run(server, problems=RAW[:6])
        assert result.returncode == 1 and "1 problems had no reply" in result.stderr
        assert load_jsonl(tmp_path / "out.jsonl")[0] == [*EXACT[:2], *EXACT[3:6]]
        (row,) = rejects(tmp_path)
        assert row["id"] == RAW[2].id and row["reason"].startswith("no reply: ") and "status 400" in row["reason"]
        server.faults, before = [], len(server.requests)
        assert run(server, problems=RAW[:6]).returncode == 0
        assert len(server.requests) == before + 1
    assert load_jsonl(tmp_path / "out.jsonl")[0] == EXACT[:6]


def test_check_only_tests_the_scaffolds_that_are_there(tmp_path, run):
    leak = Problem("leak", "8 rows of 5; 15 go.", "25", scaffold=(SubQuestion("How many of the 40?", "40"),))
    filler = Problem("filler", "8 rows of 5; 15 go.", "25", scaffold=(SubQuestion("q?", "40"), SubQuestion("r?", "997")))
    result = run(None, check_only=True, problems=[EXACT[0], leak, RAW[1], filler])
    assert result.returncode == 0, result.stderr
    assert load_jsonl(tmp_path / "out.jsonl")[0] == [EXACT[0]]
    assert "of 3 scaffolds passed: V 3, P 2, D 3, H 2, all four 1" in result.stdout
    assert [(row["id"], row["reason"][:8]) for row in rejects(tmp_path)] == [
        ("leak", "test H: "),
        (RAW[1].id, "the inpu"),
        ("filler", "test P: "),
    ]
    assert not (tmp_path / "out.jsonl.journal.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--check_only", "--checks=endpoint"], "give either --url=ADDRESS with --model=NAME, or --policy=FOLDER"),
        (["--url=http://127.0.0.1:1/v1"], "model is empty"),
        (["--urll=x"], "did you mean --url?"),
        (["--attempts=0"], "--attempts"),
        (["--policy=nowhere"], "nowhere: no such folder"),
    ],
)
def test_a_wrong_command_line_is_one_line(tmp_path, arguments, message):
    result = run_command(tmp_path, *arguments, problems=RAW[:1])
    assert result.returncode != 0
    assert message in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_bad_input_is_named_by_line_or_listed(tmp_path, run):
    write_jsonl(tmp_path / "in.jsonl", RAW[:1])
    with open(tmp_path / "in.jsonl", "a") as file:
        file.write('{"id": "x", "problem": "p"}\n')
    with serve(exact_reply) as server:
        stopped = run(server, problems=None)
        assert stopped.returncode == 1 and "in.jsonl:2: field 'answer' is missing" in stopped.stderr
        assert not server.requests
        result = run(server, problems=None, skip_bad=True)
    assert result.returncode == 0, result.stderr
    assert [row["line"] for row in rejects(tmp_path)] == [2]
    assert load_jsonl(tmp_path / "out.jsonl")[0] == EXACT[:1]


@pytest.mark.slow
def test_a_policy_in_this_process_goes_the_same_way(tmp_path):
    model = importlib.resources.files("scope_jax.data") / "chains_model"
    arguments = [f"--policy={model}", "--concurrency=2", "--max_tokens=24", "--attempts=2", "--max_prompt_tokens=8192"]
    result = run_command(tmp_path, *arguments, problems=RAW[:2])
    # A tiny model that writes arithmetic, no JSON: it is refused, asked again, and refused.
    assert result.returncode == 0, result.stderr
    assert [row["id"] for row in rejects(tmp_path)] == [problem.id for problem in RAW[:2]]
    assert all(len(row["reasons"]) == 2 and "not one JSON object" in row["reason"] for row in rejects(tmp_path))
    assert "replies: 4 paid for in this run" in result.stdout
