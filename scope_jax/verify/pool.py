"""The verifier: checks completions in worker processes that are killed when they hang and replaced when they die.

Workers are programs of their own, not forks: a fork under JAX can deadlock, and a child that imports the caller's main
module would start JAX a second time. There are no signals in it, so it works in any thread.
"""

import atexit
import collections
import functools
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from multiprocessing import connection

from scope_jax.verify.extract import extract_answer
from scope_jax.verify.plain import plain_check
from scope_jax.verify.result import Result

STARTUP = 120.0  # seconds that a worker may take to import its libraries; no row waits on this clock
ATTEMPTS = 2  # a row whose worker dies is tried once more: another row's memory may have killed it


class _Worker:
    """One process and the row that it works on."""

    def __init__(self):
        self.connection, theirs = multiprocessing.Pipe()
        command = [sys.executable, "-m", "scope_jax.verify.worker", str(theirs.fileno())]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        self.process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        theirs.close()
        self.ready, self.row, self.deadline = False, None, time.monotonic() + STARTUP

    def take(self, row: int, answer: str, gold: str, timeout: float):
        """Starts on a row; its clock starts here."""
        self.connection.send((answer, gold, timeout))
        self.row, self.deadline = row, time.monotonic() + timeout

    def kill(self):
        """Ends the process at once."""
        self.process.kill()
        self.process.wait()
        self.connection.close()


class Verifier:
    """Checks batches of completions; also a context manager. Threads may share one, and then take turns."""

    def __init__(self, workers: int | None = None, *, timeout: float = 5.0):
        """Starts the workers.

        Args:
          workers: number of processes; by default one for each processor, at most 8.
          timeout: seconds of wall time for one row, counted from the moment a worker takes it.

        Raises:
          ValueError: workers or timeout is not positive.
        """
        workers = min(8, os.cpu_count() or 1) if workers is None else workers
        if workers < 1 or timeout <= 0:
            raise ValueError(f"Verifier needs workers >= 1 and timeout > 0, got {workers} and {timeout}.")
        self.timeout = timeout
        self._lock = threading.Lock()
        self._workers = [_Worker() for _ in range(workers)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends all workers."""
        with self._lock:
            for worker in self._workers:
                worker.kill()
            self._workers = []

    def verify_batch(self, completions: list[str], answers: list[str]) -> list[bool]:
        """True where a completion's main answer is right. Use `check_batch` to tell wrong rows from unchecked ones."""
        return [result is Result.right for result in self.check_batch(completions, answers)]

    def check_batch(
        self, completions: list[str], answers: list[str], *, ended: list[bool] | None = None
    ) -> list[Result]:
        """Checks each completion's main answer.

        Args:
          completions: generated texts, without their prompts.
          answers: gold answers.
          ended: False where the length limit cut a completion; all True if None.

        Raises:
          ValueError: the lists differ in length.
        """
        ended = [True] * len(completions) if ended is None else ended
        if not len(completions) == len(answers) == len(ended):
            raise ValueError(f"{len(completions)} completions, {len(answers)} answers, {len(ended)} ended flags.")
        given = [extract_answer(text, ended=end) for text, end in zip(completions, ended, strict=True)]
        return self.check_answers(given, answers)

    def check_answers(
        self, given: list[str | None], answers: list[str], *, timeout: float | None = None
    ) -> list[Result]:
        """Checks answers that are already extracted, a slot's for instance; None is no answer.

        Args:
          given: extracted answers.
          answers: gold answers.
          timeout: seconds for one row, if other than the verifier's.

        Raises:
          ValueError: the lists differ in length.
          RuntimeError: the verifier is closed, or its workers do not start.
        """
        if len(given) != len(answers):
            raise ValueError(f"{len(given)} answers to check against {len(answers)} gold answers.")
        results: list[Result | None] = [
            Result.no_answer if answer is None else plain_check(answer, gold)
            for answer, gold in zip(given, answers, strict=True)
        ]
        pending = collections.deque(row for row, result in enumerate(results) if result is None)
        with self._lock:
            if not self._workers:
                raise RuntimeError("The verifier is closed; make a new one.")
            try:
                self._work(results, pending, given, answers, self.timeout if timeout is None else timeout)
            finally:  # an interrupted batch must not leave its replies to the next one
                for worker in [worker for worker in self._workers if worker.row is not None]:
                    self._replace(worker)
        return results

    def _work(self, results, pending, given, answers, timeout):
        """Feeds the pending rows to the workers until every result is there."""
        deaths = collections.Counter()
        while pending or any(worker.row is not None for worker in self._workers):
            for worker in list(self._workers):
                if pending and worker.ready and worker.row is None:
                    self._feed(worker, pending, given, answers, timeout)
            busy = [worker for worker in self._workers if worker.row is not None or not worker.ready]
            until = min((worker.deadline for worker in busy), default=time.monotonic())
            heard = connection.wait([worker.connection for worker in busy], max(0.0, until - time.monotonic()))
            for worker in busy:
                if worker.connection in heard:
                    self._hear(worker, results, pending, deaths)
                elif time.monotonic() >= worker.deadline:
                    if not worker.ready:
                        raise RuntimeError(f"A verifier worker did not start within {STARTUP:.0f} s.")
                    results[worker.row] = Result.timed_out
                    self._replace(worker)

    def _feed(self, worker, pending, given, answers, timeout):
        """Gives a worker the next row; one that died while idle is replaced."""
        row = pending.popleft()
        try:
            worker.take(row, given[row], answers[row], timeout)
        except OSError:
            pending.appendleft(row)
            self._replace(worker)

    def _hear(self, worker, results, pending, deaths):
        """Takes in a worker's message, or its death."""
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            if not worker.ready:
                raise RuntimeError(
                    "A verifier worker died while starting; its error is above. "
                    "Check that `python -m scope_jax.verify.worker` can import math_verify."
                ) from None
            deaths[worker.row] += 1
            if deaths[worker.row] < ATTEMPTS:
                pending.appendleft(worker.row)
            else:
                results[worker.row] = Result.timed_out
            self._replace(worker)
            return
        if worker.ready:
            results[worker.row], worker.row = message, None
        worker.ready = True

    def _replace(self, worker):
        worker.kill()
        self._workers[self._workers.index(worker)] = _Worker()


@functools.cache
def _shared() -> Verifier:
    """The one-worker verifier behind `verify`, started at its first use."""
    verifier = Verifier(workers=1)
    atexit.register(verifier.close)
    return verifier


def verify(completion: str, answer: str, *, timeout: float = 5.0) -> bool:
    """True if the completion's main answer is right; False also where no verdict was reached within `timeout` seconds.

    Args:
      completion: the generated text, without the prompt.
      answer: the gold answer.
      timeout: seconds of wall time for the comparison.
    """
    return _shared().check_answers([extract_answer(completion)], [answer], timeout=timeout) == [Result.right]
