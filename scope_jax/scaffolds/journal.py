"""Paid replies, kept in an append-only file, so that a stopped run pays for none of them again."""

import concurrent.futures
import fcntl
import hashlib
import json
import os
import pathlib
import threading
from collections.abc import Callable
from typing import Any

from scope_jax.data.records import RecordError, read_json_lines


class Journal:
    """Replies by what was asked: one JSON line each, on disk before anyone sees the reply. Threads may share it.

    A reply that was under way when the process was killed is not here, and is asked for again.
    """

    def __init__(self, path: pathlib.Path):
        """Opens a journal, and cuts off a last line that a kill has left unfinished.

        Raises:
          ValueError: the file is no journal, or another process is writing it.
        """
        self.path, self._lock = path, threading.Lock()
        self._replies: dict[str, concurrent.futures.Future[str]] = {}
        self.paid = 0  # replies that this process has paid for
        self._file = open(path, "ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read()
        except BlockingIOError as error:
            self._file.close()
            raise ValueError(f"{path}: another run is writing it; wait for that one, or choose another output") from error
        except ValueError:
            self._file.close()
            raise

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *unused) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._replies)

    def ask(self, request: Any, call: Callable[[], str]) -> str:
        """The reply to a request, from the file or else from `call()`; two threads with one request pay once.

        Args:
          request: what determines the reply, as JSON: conversation, schema, model, sampling, number of the try.
          call: pays for the reply. What it raises is passed on and not kept.
        """
        text = json.dumps(request, sort_keys=True, ensure_ascii=True)
        key = hashlib.sha256(text.encode("ascii")).hexdigest()
        with self._lock:
            reply = self._replies.get(key)
            ours = reply is None
            if ours:
                reply = self._replies[key] = concurrent.futures.Future()
        if ours:
            try:
                text = call()
                self._append(key, text)
            except BaseException as error:
                with self._lock:
                    del self._replies[key]
                reply.set_exception(error)
                raise
            reply.set_result(text)
        return reply.result()

    def _append(self, key: str, reply: str) -> None:
        line = json.dumps({"key": key, "reply": reply}) + "\n"
        with self._lock:
            self._file.write(line.encode("ascii"))
            self._file.flush()
            os.fsync(self._file.fileno())
            self.paid += 1

    def _read(self) -> None:
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(self.path, whole)
        for line, row in read_json_lines(self.path):
            if isinstance(row, RecordError) or not isinstance(row, dict) or set(row) != {"key", "reply"}:
                raise ValueError(f"{self.path}:{line}: is no line of a journal of replies; move the file away")
            reply: concurrent.futures.Future[str] = concurrent.futures.Future()
            reply.set_result(row["reply"])
            self._replies[row["key"]] = reply
