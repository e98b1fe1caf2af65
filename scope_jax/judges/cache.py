"""Judgements on disk: what was paid for once is there for every later run, and after a kill.

An SQLite file: whole entries only, whatever process dies when, and many processes may share it. The folder's file
system must support locks, as local disks and most network disks do.
"""

import json
import logging
import pathlib
import sqlite3
import threading

log = logging.getLogger(__name__)


class LabelCache:
    """Step labels by key. Threads and processes share it. It never fails a run: without a disk it forgets."""

    def __init__(self, folder: str | pathlib.Path):
        """Opens or begins the cache in a folder, which is made if need be.

        Raises:
          ValueError: the folder cannot be written, or its file is no cache.
        """
        self.path = pathlib.Path(folder) / "labels.sqlite"
        self._lock, self._warned = threading.Lock(), False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(self.path, timeout=30.0, isolation_level=None, check_same_thread=False)
            self._file.execute("CREATE TABLE IF NOT EXISTS labels (key TEXT PRIMARY KEY, labels TEXT NOT NULL)")
        except (OSError, sqlite3.Error) as error:
            raise ValueError(
                f"{self.path}: cannot be used as a cache of judgements ({error}); "
                "set config.judge.cache to a folder that can be written, or remove the file"
            ) from error

    def get(self, key: str) -> list[str] | None:
        """The labels kept under a key, or None."""
        try:
            with self._lock:
                row = self._file.execute("SELECT labels FROM labels WHERE key = ?", (key,)).fetchone()
            return json.loads(row[0]) if row else None
        except (sqlite3.Error, ValueError) as error:
            self._warn(error)
            return None

    def put(self, key: str, labels: list[str]) -> None:
        """Keeps labels; they are on disk when this returns."""
        try:
            with self._lock:
                self._file.execute("INSERT OR REPLACE INTO labels VALUES (?, ?)", (key, json.dumps(labels)))
        except sqlite3.Error as error:
            self._warn(error)

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._file.close()

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            log.warning("%s: %s; judgements may be paid for again", self.path, error)
            self._warned = True
