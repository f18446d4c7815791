"""A database by its URL: SQLite or PostgreSQL, with what several processes need to share it.

SQLite: a write-ahead log, so that readers and a writer do not wait for each other; a writer takes
its lock when its transaction begins, for one that has read first could not wait for it any more.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from psycopg.conninfo import make_conninfo
from sqlalchemy import Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from spark.etl.store_errors import StoreError

BUSY_TIMEOUT_MS: Final = 30_000  # that SQLite waits for another process's transaction
CONNECT_TIMEOUT_S: Final = 10
_WRITES: Final = "etl_writes"
_KNOWN: Final = ("sqlite", "postgresql")


def read_url(text: str) -> URL:
    """Raises StoreError, which never says the password."""
    try:
        url = make_url(text)
    except ArgumentError:
        raise StoreError(
            "the URL of a store is sqlite:///FILE or postgresql+psycopg://user:password@host/name"
        ) from None
    kind = url.get_backend_name()
    if kind == "postgres":  # as libpq allows it
        kind = "postgresql"
    if kind not in _KNOWN:
        raise StoreError(f"{kind}: a store is in SQLite or in PostgreSQL")
    return url.set(drivername="postgresql+psycopg") if kind == "postgresql" else url


def libpq_address(url: URL) -> str:
    """The same PostgreSQL database, as psycopg takes it by itself."""
    parts = url.translate_connect_args(username="user", database="dbname")
    return make_conninfo("", **{**parts, **{name: str(text) for name, text in url.query.items()}})


def open_engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        return _sqlite(url)
    return create_engine(
        url,
        pool_pre_ping=True,
        pool_size=2,
        connect_args={"connect_timeout": CONNECT_TIMEOUT_S},
        hide_parameters=True,
    )


def _sqlite(url: URL) -> Engine:
    engine = create_engine(url, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def connected(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # transactions begin as said below
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction: all of it or nothing."""
    with engine.connect() as connection:
        chosen = connection.execution_options(**{_WRITES: True})
        with chosen.begin():
            yield chosen


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as connection, connection.begin():
        yield connection


def insert_into(connection: Connection, table: Table) -> Any:
    """An INSERT that may be told what to do about a conflict; each database has its own."""
    kind = sqlite if connection.dialect.name == "sqlite" else postgresql
    return kind.insert(table)
