import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from scope_jax.verify import Result, Verifier, verify

HANG = "\\int_0^1 e^{-x^{x^{x}}} dx"  # algebra never comes back from it


@pytest.fixture(scope="module")
def verifier():
    with Verifier(workers=2, timeout=2.0) as verifier:
        verifier.check_answers(["x+1"], ["1+x"])  # the workers have started
        yield verifier


def test_each_row_gets_its_own_result(verifier):
    completions = ["\\boxed{\\sqrt{4}}", "Answer: 3", "none", "\\boxed{x+y}", "\\boxed{2}", "Answer: 2"]
    golds = ["2", "2", "2", "y+x", "\u2603\u2603", "2"]
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


def test_a_hung_row_costs_its_limit_and_spoils_no_other_row(verifier):
    begin = time.monotonic()
    results = verifier.check_answers(["x+1", HANG, "\\sqrt{9}", "x+1"], ["1+x", "7", "3", "x+2"])
    assert results == [Result.right, Result.timed_out, Result.right, Result.wrong]
    assert time.monotonic() - begin < 30


def test_waiting_for_a_worker_is_not_on_the_rows_clock():
    """Queueing and start-up must not count: here they take longer than the limit of a row."""
    with Verifier(workers=1, timeout=1.5) as verifier:
        answers = [f"x+{i}" for i in range(120)]
        assert verifier.check_answers(answers, [f"{i}+x" for i in range(120)]).count(Result.timed_out) <= 1


def test_a_dead_worker_is_replaced_and_its_row_served(verifier):
    for worker in verifier._workers:
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
    assert verifier.check_answers(["x+1"] * 3, ["1+x"] * 3) == [Result.right] * 3


def test_a_row_that_kills_its_workers_has_no_verdict(verifier, tmp_path):
    def kill_when_busy():
        for _ in range(2):
            while not (busy := [w for w in list(verifier._workers) if w.row is not None]):
                time.sleep(0.01)
            os.kill(busy[0].process.pid, signal.SIGKILL)
            while busy[0] in verifier._workers:
                time.sleep(0.01)

    killer = threading.Thread(target=kill_when_busy)
    killer.start()
    results = verifier.check_answers([HANG], ["7"], timeout=60.0)
    killer.join()
    assert results == [Result.timed_out]


def test_it_works_in_threads_and_without_signals(verifier):
    results = {}

    def check(name):
        results[name] = verifier.verify_batch([f"\\boxed{{x+{name}}}"] * 3, [f"{name}+x"] * 3)

    threads = [threading.Thread(target=check, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: [True] * 3 for n in range(4)}


def test_one_completion_can_be_checked_alone():
    assert verify("so \\boxed{\\sqrt{16}}", "4")
    assert not verify("so \\boxed{\\sqrt{16}}", "5")
    assert not verify(f"\\boxed{{{HANG}}}", "7", timeout=0.5)


def test_a_closed_verifier_says_so():
    verifier = Verifier(workers=1)
    verifier.close()
    with pytest.raises(RuntimeError, match="closed"):
        verifier.check_answers(["x"], ["y+z"])


def test_bad_arguments_are_refused(verifier):
    with pytest.raises(ValueError, match="workers"):
        Verifier(workers=0)
    with pytest.raises(ValueError, match="2 completions, 1 answers"):
        verifier.check_batch(["a", "b"], ["1"])
    with pytest.raises(ValueError, match="1 answers to check against 0"):
        verifier.check_answers(["1"], [])


def test_workers_load_neither_jax_nor_the_callers_main_module(tmp_path):
    """A child that runs the caller's script again would start JAX, or more workers, once more."""
    script = tmp_path / "script.py"
    script.write_text(
        "from scope_jax.verify import Verifier\nimport sys\nprint('started')\n"
        "print(Verifier(workers=1).verify_batch(['Answer: x+1'], ['1+x']), 'jax' in sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "started\n[True] False\n"
