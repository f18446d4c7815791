"""The driver's connection to PostgreSQL: it holds the job's lock, and commits its batches.

The lock is the session's, so it is gone with the connection, and whoever writes must hold it: the
transaction runs on the very connection that has it. Locks are of the whole database, and jobs of a
schema: its name is part of the lock.
"""

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import psycopg
from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from spark.etl.postgres_refusals import is_refusal
from spark.etl.store import Store
from spark.etl.store_errors import DisconnectedError, FencedError, SinkError

# A driver that was killed has its lock until the server has noticed.
LOCK_WAIT_S: Final = 20.0
PAUSE_S: Final = 0.2
NOTICE_MS: Final = 2000  # in which the server sees that the client of a running statement is gone
_KEEPALIVE: Final = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
_SAFE_COMMIT: Final = text(
    "SELECT set_config('synchronous_commit', 'on', true)"
    " WHERE current_setting('synchronous_commit') = 'off'"
)


class Link:
    """Of one job and one table. Opened when it is needed, and again when it was lost."""

    def __init__(
        self, url: URL, name: str, stop: threading.Event, *, lock_wait_s: float = LOCK_WAIT_S
    ) -> None:
        self.name = name
        self._stop = stop  # nobody waits for the lock any more
        self._lock_wait_s = lock_wait_s
        self._engine = create_engine(
            url,
            poolclass=NullPool,
            connect_args={
                "connect_timeout": 10,
                "application_name": f"leveret etl {name}"[:63],
                **_KEEPALIVE,
            },
            hide_parameters=True,
        )
        self._connection: Connection | None = None
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        """The checkpoints' tables in the same database; there after the first transaction."""
        assert self._store is not None
        return self._store

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """With the job's lock. Raises DisconnectedError, SinkError, FencedError."""
        try:
            connection = self._opened()
            with connection.begin():
                connection.execute(_SAFE_COMMIT)
                yield connection
        except DBAPIError as error:
            problem = told(error)
            if isinstance(problem, DisconnectedError):
                self.close()
            raise problem from error

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(DBAPIError, psycopg.Error):
                connection.invalidate()
                connection.close()

    def _opened(self) -> Connection:
        if self._connection is None:
            if self._store is None:
                self._store = Store.of_engine(self._engine)
            connection = self._engine.connect()
            try:
                self._lock(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _lock(self, connection: Connection) -> None:
        deadline = time.monotonic() + self._lock_wait_s
        asking = text("SELECT pg_try_advisory_lock(:key)")
        with connection.begin():
            schema = connection.execute(text("SELECT current_schema()")).scalar()
            key = {"key": lock_key(f"{schema}/{self.name}")}
            if (connection.dialect.server_version_info or (0,)) >= (14,):
                connection.exec_driver_sql(f"SET client_connection_check_interval = {NOTICE_MS}")
        while True:
            with connection.begin():
                if connection.execute(asking, key).scalar():
                    return
            if time.monotonic() > deadline:
                raise FencedError(
                    f"another driver runs job {self.name!r}, and has the lock in PostgreSQL: "
                    "stop that one first, or give this one another name"
                )
            if self._stop.wait(PAUSE_S):
                raise DisconnectedError("it was told to stop while another driver had the lock")


def told(error: DBAPIError) -> DisconnectedError | SinkError:
    """What it means for a batch: to be tried again, or not."""
    cause = error.orig
    line = " ".join(str(cause).split()) or type(cause).__name__
    lost = error.connection_invalidated or isinstance(cause, psycopg.OperationalError)
    return DisconnectedError(line) if lost and not is_refusal(cause) else SinkError(line)


def lock_key(name: str) -> int:
    """PostgreSQL has numbers of 64 bits for locks."""
    digest = hashlib.sha256(f"leveret etl {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
