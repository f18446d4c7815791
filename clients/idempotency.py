"""What has been done before, in an SQLite file: so that a message that comes twice is done once."""

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

WINDOW_S: Final = 7 * 24 * 3600.0
PRUNE_EVERY: Final = 1000  # keys that are added
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS done (key TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS done_at ON done (at);
"""


class IdempotencyStore:
    """Keys of done work, for a window of time. Any thread may use it; several processes may share
    the file. What is added survives a crash of the process, and of the machine."""

    def __init__(
        self,
        path: str | Path,
        *,
        window_s: float = WINDOW_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._window_s = window_s
        self._now = now
        self._lock = threading.Lock()
        self._added = 0
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.executescript(_SCHEMA)

    def is_done(self, key: str) -> bool:
        oldest = self._now() - self._window_s
        query = "SELECT 1 FROM done WHERE key = ? AND at > ?"
        with self._lock:
            return self._database.execute(query, (key, oldest)).fetchone() is not None

    def add(self, key: str) -> None:
        """From now on it is done."""
        now = self._now()
        with self._lock:
            self._database.execute("INSERT OR REPLACE INTO done VALUES (?, ?)", (key, now))
            self._added += 1
            if self._added % PRUNE_EVERY == 0:
                self._database.execute("DELETE FROM done WHERE at <= ?", (now - self._window_s,))

    def close(self) -> None:
        with self._lock:
            self._database.close()
