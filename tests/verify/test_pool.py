import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from scope_jax.verify import Result, Verifier, process, verify

HANG = "\\int_0^1 e^{-x^{x^{x}}} dx"  # algebra never comes back from it


def ab(count):
    """Distinct rows that are right, of which plain comparison can tell nothing."""
    return [f"a!+{n}" for n in range(count)], [f"{n}+a!" for n in range(count)]


def test_each_row_gets_its_own_result(verifier):
    completions = ["\\boxed{\\sqrt{4}}", "Answer: 3", "none", "\\boxed{x!+y}", "\\boxed{2}", "Answer: 2"]
    golds = ["2", "2", "2", "y+x!", "\u2603\u2603", "2"]
    results = verifier.check_batch(completions, golds, ended=[True] * 5 + [False])
    assert results == [
        Result.right,
        Result.wrong,
        Result.no_answer,
        Result.right,
        Result.unreadable_gold,
        Result.no_answer,
    ]
    assert verifier.verify_batch(completions, golds) == [True, False, False, True, False, True]
    assert verifier.check_batch(["\\boxed{x!+1} or \\boxed{2}"], ["1+x!"], box="first") == [Result.right]


def test_a_hung_row_costs_its_limit_and_spoils_no_other_row(verifier):
    begin = time.monotonic()
    results = verifier.check_answers(["x!+1", HANG, "\\sqrt{9}", "x!+1"], ["1+x!", "7", "3", "x!+2"])
    assert results == [Result.right, Result.timed_out, Result.right, Result.wrong]
    assert time.monotonic() - begin < 60


def test_the_limit_of_a_row_is_wall_time_from_the_moment_a_worker_takes_it(quick):
    verifier = quick(workers=1)
    assert verifier.check_answers(["x!+1"], ["1+x!"]) == [Result.right]  # it is ready
    begin = time.monotonic()
    assert verifier.check_answers(["hang"], ["7"], timeout=0.6) == [Result.timed_out]
    assert 0.6 <= time.monotonic() - begin < 4.0


def test_more_hung_rows_than_workers_do_not_use_up_the_pool(quick):
    hung = ["7", "8", "9", "10", "11"]  # five rows: only their gold answers differ
    results = quick().check_answers(["hang"] * 5 + ["x!+5"], [*hung, "5+x!"])
    assert results == [Result.timed_out] * 5 + [Result.right]


def test_waiting_for_a_worker_is_not_on_the_rows_clock(quick):
    """Queueing and start-up must not count: here they take far longer than the limit of a row."""
    verifier = quick(workers=1, timeout=0.25)  # a start alone takes 0.3 s
    results = verifier.check_answers(["hang", *ab(50)[0]], ["7", *ab(50)[1]])
    assert results == [Result.timed_out] + [Result.right] * 50


def test_checks_go_on_while_the_caller_does_other_work(quick):
    checks = quick().submit(["hang", "x!+9", None, "7"], ["8", "9+x!", "1", "7"])
    assert not checks.done()
    begin = time.monotonic()
    while not checks.done() and time.monotonic() - begin < 60:
        time.sleep(0.01)  # nobody asks for results
    begin = time.monotonic()
    assert checks.result() == [Result.timed_out, Result.right, Result.no_answer, Result.right] == checks.result()
    assert time.monotonic() - begin < 0.25


def count_checks(monkeypatch):
    """The rows that reach workers from now on."""
    seen = []
    check = process.WorkerProcess.check
    monkeypatch.setattr(process.WorkerProcess, "check", lambda self, *row: (seen.append(row), check(self, *row))[1])
    return seen


def test_the_same_pair_is_checked_once_in_a_batch_and_remembered(quick, monkeypatch):
    seen, verifier = count_checks(monkeypatch), quick()
    answers, golds = ["y!+1", "y!+2", "y!+1"] * 700, ["1+y!"] * 2100  # as in the groups of one step
    assert verifier.check_answers(answers, golds) == [Result.right, Result.wrong, Result.right] * 700
    assert verifier.check_answers(answers[:3], golds[:3], timeout=9.0) == [Result.right, Result.wrong, Result.right]
    assert sorted(row[:2] for row in seen) == [("y!+1", "1+y!"), ("y!+2", "1+y!")]


def test_a_row_that_timed_out_is_tried_again_when_it_comes_again(quick, monkeypatch):
    seen, verifier = count_checks(monkeypatch), quick()
    for _ in range(2):
        assert verifier.check_answers(["hang"], ["5"]) == [Result.timed_out]
    assert len(seen) == 2


def test_the_least_recent_results_are_forgotten(quick, monkeypatch):
    seen, verifier = count_checks(monkeypatch), quick(workers=1, cache=2)
    for n in (1, 2, 1, 3, 1, 2):  # 1 is used again before 3 comes, so 2 is what is forgotten
        assert verifier.check_answers([f"z!+{n}"], [f"{n}+z!"]) == [Result.right]
    assert [row[0] for row in seen] == ["z!+1", "z!+2", "z!+3", "z!+2"]
    assert quick(cache=0).check_answers(["z!+1"] * 2, ["1+z!"] * 2) == [Result.right] * 2


def test_a_large_batch_waits_outside_a_bounded_queue(quick):
    verifier, depths = quick(queue=3), []
    enqueue = verifier._enqueue
    verifier._enqueue = lambda row: (enqueue(row), depths.append(len(verifier._queue)))[0]
    assert verifier.check_answers(*ab(300)) == [Result.right] * 300
    assert max(depths) == 3 and not verifier._queue and not verifier._underway


def test_dead_workers_are_replaced_and_their_rows_served(quick):
    verifier = quick()
    verifier.check_answers(*ab(4))
    for pid in verifier.pids:
        os.kill(pid, signal.SIGKILL)
    assert verifier.check_answers(["c!+1", "c!+2", "c!+3"], ["1+c!", "2+c!", "3+c!"]) == [Result.right] * 3
    assert 1 <= verifier.replaced <= 2


def test_workers_killed_while_they_start_are_started_again(quick):
    verifier = quick(workers=1)
    for n in (1, 2):
        os.kill(verifier.pids[0], signal.SIGKILL)
        checks = verifier.submit(["x!+1"], ["1+x!"])
        while verifier.replaced < n and not checks.done():
            time.sleep(0.01)
        assert verifier.replaced == n
    assert checks.result() == [Result.right]


def test_a_row_whose_worker_dies_every_time_has_no_verdict(quick):
    verifier = quick(workers=1)
    assert verifier.check_answers(["die", "x!+1"], ["7", "1+x!"]) == [Result.timed_out, Result.right]
    assert verifier.replaced == process.ATTEMPTS


def test_it_works_in_threads_and_without_signals(verifier):
    """Alarm-based limits raise off the main thread; a broad `except` then scores every row zero."""
    results, handlers = {}, [signal.getsignal(s) for s in (signal.SIGALRM, signal.SIGCHLD)]

    def check(name):
        results[name] = verifier.verify_batch([f"\\boxed{{x!+{name}}}"] * 3, [f"{name}+x!"] * 3)

    threads = [threading.Thread(target=check, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: [True] * 3 for n in range(4)}
    assert [signal.getsignal(s) for s in (signal.SIGALRM, signal.SIGCHLD)] == handlers


def test_a_worker_cannot_use_more_memory_than_its_limit():
    limit = 200 << 20
    worker = process.WorkerProcess(limit)  # not through the pool, whose filter would stop this answer
    try:
        # math-verify takes the lack of memory for an answer that it cannot evaluate, which is never a right one.
        assert worker.check("2^{2^{40}}", "5", 120.0) in (Result.timed_out, Result.wrong)
        assert f"Max address space         {limit} " in pathlib.Path(f"/proc/{worker.pid}/limits").read_text()
        status = pathlib.Path(f"/proc/{worker.pid}/status").read_text()
        assert 1024 * int(status.split("VmPeak:")[1].split()[0]) <= limit
        assert worker.check("x!+2", "2+x!", 60.0) is Result.right  # the same worker, or its successor
    finally:
        worker.close()
        worker.reap()


def test_workers_that_cannot_start_are_an_error_for_every_row_that_waits(monkeypatch, capfd):
    with Verifier(workers=2, memory=48 << 20) as verifier:  # too little for the libraries
        with pytest.raises(RuntimeError, match="within 48 MiB"):
            verifier.check_answers(*ab(3))
        with pytest.raises(RuntimeError, match="within 48 MiB"):
            verifier.submit(["x!+1"], ["1+x!"])


def test_one_completion_can_be_checked_alone():
    assert verify("so \\boxed{\\sqrt{16}}", "4")
    assert not verify("so \\boxed{\\sqrt{16}}", "5")
    assert not verify(f"\\boxed{{{HANG}}}", "7", timeout=0.5)


def test_a_closed_verifier_says_so_to_those_who_wait_and_leaves_no_process(quick):
    verifier = quick(timeout=60.0)
    checks = verifier.submit(["hang", "x!+1"], ["7", "1+x!"])
    pids = verifier.pids
    verifier.close()
    verifier.close()
    with pytest.raises(RuntimeError, match="closed"):
        checks.result()
    with pytest.raises(RuntimeError, match="closed"):
        verifier.check_answers(["1/2"], ["0.5"])  # not even what needs no worker
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_bad_arguments_are_refused(quick):
    for wrong in ({"workers": 0}, {"timeout": 0}, {"memory": 0}, {"queue": 0}, {"cache": -1}):
        with pytest.raises(ValueError, match="workers >= 1"):
            Verifier(**wrong)
    with pytest.raises(ValueError, match="2 completions, 1 answers"):
        quick().check_batch(["a", "b"], ["1"])
    with pytest.raises(ValueError, match="1 answers to check against 0"):
        quick().check_answers(["1"], [])


def test_workers_load_neither_jax_nor_the_callers_main_module_and_end_with_it(tmp_path):
    """A child that runs the caller's script again would start JAX, or more workers, once more."""
    script = tmp_path / "script.py"
    script.write_text(
        "from scope_jax.verify import Verifier\nimport sys\nprint('started')\nverifier = Verifier(workers=1)\n"
        "print(verifier.verify_batch(['Answer: x!+1'], ['1+x!']), 'jax' in sys.modules)\n"
        "maps = open(f'/proc/{verifier.pids[0]}/maps').read()\nprint('jaxlib' in maps, verifier.pids[0])\n"  # not closed
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[:2] == ["started", "[True] False"] and lines[2].split()[0] == "False"
    assert not os.path.exists(f"/proc/{lines[2].split()[1]}")


PROCESS = """
import sys, jax
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
from jax.experimental import multihost_utils
from scope_jax.verify import Verifier
with Verifier(workers=1) as verifier:
    checks = verifier.submit([f"x!+{sys.argv[2]}", "x"], [f"{sys.argv[2]}+x!", "y"])
    multihost_utils.sync_global_devices("while the hosts check")
    print([result.name for result in checks.result()])
"""


@pytest.mark.slow
def test_each_process_of_a_distributed_job_has_its_own_verifier():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    environment = {**os.environ, "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROCESS, address]
    jobs = [
        subprocess.Popen([*command, n], env=environment, stdout=subprocess.PIPE, text=True) for n in ("0", "1")
    ]
    try:
        printed = [job.communicate(timeout=240)[0].splitlines()[-1] for job in jobs]
        assert printed == ["['right', 'wrong']"] * 2
    finally:
        for job in jobs:
            job.kill()
