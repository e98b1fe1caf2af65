"""The verifier: checks completions in worker processes that are killed when they hang and replaced when they die.

Workers are programs of their own, not forks: a fork under JAX can deadlock, and a child that imports the caller's main
module would start JAX a second time. A thread feeds each worker, so that checks go on while the caller does other work.
There are no signals in it, so it works in any thread, and in each process of a `jax.distributed` job.
"""

import atexit
import collections
import functools
import os
import threading
from concurrent.futures import Future
from typing import NamedTuple

from scope_jax.verify.extract import Box, extract_answer
from scope_jax.verify.plain import plain_check
from scope_jax.verify.process import Closed, WorkerProcess
from scope_jax.verify.result import Result

MEMORY = 4 << 30  # bytes of address space of a worker; an answer that needs more has no verdict
QUEUE = 4096  # rows that wait for a worker
CACHE = 16_384  # results that are remembered, each with an answer and a gold answer of at most 500 characters


class _Row(NamedTuple):
    """What a worker is asked. Equal rows are checked once."""

    answer: str
    gold: str
    timeout: float


class Checks:
    """Results of a batch, some of which may still be on their way."""

    def __init__(self, results: list[Result | Future]):
        self._results = results

    def done(self) -> bool:
        """True if `result` would not wait."""
        return all(isinstance(result, Result) or result.done() for result in self._results)

    def result(self) -> list[Result]:
        """The results in the order of the batch; waits for those that are not there yet.

        Raises:
          RuntimeError: the verifier was closed meanwhile, or its workers do not start.
        """
        return [result if isinstance(result, Result) else result.result() for result in self._results]


class Verifier:
    """Checks batches of completions; also a context manager. Threads may share one."""

    def __init__(
        self,
        workers: int | None = None,
        *,
        timeout: float = 5.0,
        memory: int = MEMORY,
        queue: int = QUEUE,
        cache: int = CACHE,
    ):
        """Starts the workers.

        Args:
          workers: number of processes; by default one for each processor, at most 8.
          timeout: seconds of wall time for one row, counted from the moment a worker takes it.
          memory: bytes of address space that a worker may use.
          queue: rows that may wait for a worker; `submit` waits for room.
          cache: latest results that are remembered by answer and gold answer; `timed_out` never is.

        Raises:
          ValueError: an argument is not positive; `cache` may be 0.
        """
        workers = min(8, os.cpu_count() or 1) if workers is None else workers
        if workers < 1 or timeout <= 0 or memory < 1 or queue < 1 or cache < 0:
            raise ValueError(
                "Verifier needs workers >= 1, timeout > 0, memory >= 1, queue >= 1 and cache >= 0, "
                f"got {workers}, {timeout}, {memory}, {queue} and {cache}."
            )
        self.timeout = timeout
        self._queue_size, self._cache_size = queue, cache
        self._changed = threading.Condition()  # guards the next four
        self._queue: collections.deque[_Row] = collections.deque()
        self._underway: dict[_Row, Future] = {}  # rows in the queue, and those that a worker has
        self._cache: collections.OrderedDict[tuple[str, str], Result] = collections.OrderedDict()
        self._error: Exception | None = None  # why nothing is checked any more
        self._workers = [WorkerProcess(memory) for _ in range(workers)]
        self._threads = [threading.Thread(target=self._feed, args=(w,), daemon=True) for w in self._workers]
        for thread in self._threads:
            thread.start()
        atexit.register(self.close)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.pid for worker in self._workers]

    @property
    def replaced(self) -> int:
        """How many workers have been killed or have died, and were replaced."""
        return sum(worker.restarts for worker in self._workers)

    def close(self):
        """Ends all workers. Whoever still waits for a result is told."""
        self._stop(RuntimeError("The verifier is closed; make a new one."))
        for thread, worker in zip(self._threads, self._workers, strict=True):
            thread.join()
            worker.reap()
        atexit.unregister(self.close)

    def verify_batch(self, completions: list[str], answers: list[str]) -> list[bool]:
        """True where a completion's main answer is right. Use `check_batch` to tell wrong rows from unchecked ones."""
        return [result is Result.right for result in self.check_batch(completions, answers)]

    def check_batch(
        self, completions: list[str], answers: list[str], *, ended: list[bool] | None = None, box: Box = "last"
    ) -> list[Result]:
        """Checks each completion's main answer.

        Args:
          completions: generated texts, without their prompts.
          answers: gold answers.
          ended: False where the length limit cut a completion; all True if None.
          box: which of several boxes counts.

        Raises:
          ValueError: the lists differ in length.
        """
        ended = [True] * len(completions) if ended is None else ended
        if not len(completions) == len(answers) == len(ended):
            raise ValueError(f"{len(completions)} completions, {len(answers)} answers, {len(ended)} ended flags.")
        given = [extract_answer(text, ended=end, box=box) for text, end in zip(completions, ended, strict=True)]
        return self.check_answers(given, answers)

    def check_answers(
        self, given: list[str | None], answers: list[str], *, timeout: float | None = None
    ) -> list[Result]:
        """Checks answers that are already extracted, a slot's for instance: `submit` and its results."""
        return self.submit(given, answers, timeout=timeout).result()

    def submit(self, given: list[str | None], answers: list[str], *, timeout: float | None = None) -> Checks:
        """Starts to check answers that are already extracted, and waits for nothing but room in the queue.

        Args:
          given: extracted answers; None is no answer.
          answers: gold answers.
          timeout: seconds for one row, if other than the verifier's.

        Raises:
          ValueError: the lists differ in length.
          RuntimeError: the verifier is closed, or its workers do not start.
        """
        if len(given) != len(answers):
            raise ValueError(f"{len(given)} answers to check against {len(answers)} gold answers.")
        if self._error:
            raise self._error
        timeout = self.timeout if timeout is None else timeout
        results: list[Result | Future] = []
        for answer, gold in zip(given, answers, strict=True):
            result = Result.no_answer if answer is None else plain_check(answer, gold)
            results.append(self._enqueue(_Row(answer, gold, timeout)) if result is None else result)
        return Checks(results)

    def _enqueue(self, row: _Row) -> Result | Future:
        """The row's result if it is known, else the future of the equal row that is under way, else a new one."""
        with self._changed:
            self._changed.wait_for(lambda: self._error or len(self._queue) < self._queue_size)
            if self._error:
                raise self._error
            if row[:2] in self._cache:
                self._cache.move_to_end(row[:2])
                return self._cache[row[:2]]
            if row not in self._underway:
                self._underway[row] = Future()
                self._queue.append(row)
                self._changed.notify_all()
            return self._underway[row]

    def _feed(self, worker: WorkerProcess):
        """The thread of a worker: rows in, results out, until the verifier is closed."""
        try:
            while row := self._take():
                self._finish(row, worker.check(*row))
        except Closed:
            pass
        except Exception as error:  # else the rows would wait for ever
            self._stop(error)

    def _take(self) -> _Row | None:
        """The next row; None once the verifier is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._error or self._queue)
            if self._error:
                return None
            self._changed.notify_all()  # there is room in the queue
            return self._queue.popleft()

    def _finish(self, row: _Row, result: Result):
        """Gives a result to those who wait for it, and remembers it."""
        with self._changed:
            future = self._underway.pop(row, None)  # None: the verifier was closed meanwhile
            if result is not Result.timed_out:
                self._cache[row[:2]] = result
                while len(self._cache) > self._cache_size:
                    self._cache.popitem(last=False)
        if future:
            future.set_result(result)

    def _stop(self, error: Exception):
        """Ends all work; rows that have no result get the error."""
        with self._changed:
            self._error = self._error or error
            futures = list(self._underway.values())
            self._underway.clear()
            self._queue.clear()
            self._changed.notify_all()
        for worker in self._workers:
            worker.close()
        for future in futures:
            future.set_exception(error)


@functools.cache
def _shared() -> Verifier:
    """The one-worker verifier behind `verify`, started at its first use and closed at exit."""
    return Verifier(workers=1)


def verify(completion: str, answer: str, *, timeout: float = 5.0) -> bool:
    """True if the completion's main answer is right; False also where no verdict was reached within `timeout` seconds.

    Args:
      completion: the generated text, without the prompt.
      answer: the gold answer.
      timeout: seconds of wall time for the comparison.
    """
    return _shared().check_answers([extract_answer(completion)], [answer], timeout=timeout) == [Result.right]
