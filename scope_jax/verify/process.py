"""One worker process, seen from the verifier: killed when it hangs, started anew when it dies."""

import multiprocessing
import os
import subprocess
import sys
import threading

from scope_jax.verify.result import Result

WORKER = ["-m", "scope_jax.verify.worker"]  # what the interpreter is told to run
STARTUP = 120.0  # seconds that a worker may take to import its libraries; no row waits on this clock
STARTS = 20  # deaths while starting, one after another, after which it is given up
ATTEMPTS = 2  # a row whose worker dies is tried once more: another row's memory may have killed it


class Closed(Exception):
    """The worker was closed while it was used."""


class WorkerProcess:
    """A process that checks one row at a time. One thread uses it; any thread may close it."""

    def __init__(self, memory: int):
        """Starts the process and does not wait for it.

        Args:
          memory: bytes of address space that it may use.
        """
        self.restarts = 0  # processes that were killed or died
        self._memory = memory
        self._lock = threading.Lock()  # between a restart and `close`
        self._closed = False
        self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self, answer: str, gold: str, timeout: float) -> Result:
        """The result of one row; `timed_out` if it takes longer, or if its process dies every time.

        Args:
          answer: the extracted answer.
          gold: the gold answer.
          timeout: seconds, counted from the moment that the process takes the row.

        Raises:
          Closed: the worker was closed.
          RuntimeError: the process does not start.
        """
        deaths = 0
        while deaths < ATTEMPTS:
            self._wait_until_ready()
            try:
                self._connection.send((answer, gold, timeout))
            except OSError:  # it died while it was idle: not this row's doing
                self._restart()
                continue
            try:
                if self._connection.poll(timeout):
                    return self._connection.recv()
            except Exception:  # no message, or half of one
                deaths += 1
                self._restart()
                continue
            self._restart()
            return Result.timed_out
        return Result.timed_out

    def close(self):
        """Ends the process. Its user gets `Closed`."""
        with self._lock:
            self._closed = True
            self._process.kill()

    def reap(self):
        """Forgets the process after `close`, once its user is done."""
        self._process.wait()
        self._connection.close()

    def _start(self):
        self._connection, theirs = multiprocessing.Pipe()
        command = [sys.executable, *WORKER, str(theirs.fileno()), str(self._memory)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        theirs.close()
        self._ready = False

    def _restart(self):
        """Another process in the place of this one."""
        with self._lock:
            self._process.kill()
            if self._closed:
                raise Closed
            self._process.wait()
            self._connection.close()
            self._start()
            self.restarts += 1

    def _wait_until_ready(self):
        """Waits until the process has its libraries; one that is killed meanwhile is started again."""
        for _ in range(STARTS):
            if self._ready:
                return
            try:
                if not self._connection.poll(STARTUP):
                    raise RuntimeError(f"A verifier worker did not start within {STARTUP:.0f} s.")
                self._connection.recv()
                self._ready = True
            except (EOFError, OSError):
                if self._process.wait() > 0 and not self._closed:  # it ended by itself: another would do the same
                    break
                self._restart()
        if not self._ready:
            raise RuntimeError(
                "A verifier worker died while starting; its error is above. Check that "
                f"`python -m scope_jax.verify.worker` can import math_verify within {self._memory >> 20} MiB."
            )
