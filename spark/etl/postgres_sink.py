"""Rows of a micro-batch into a PostgreSQL table, each once: results and offsets together.

Tasks copy their rows into a staging table of this attempt. Then one transaction puts what those
tasks copied that Spark counts into the target, saves the checkpoint and drops the staging table. So
a batch whose rows are there is known to be there, and is not written again; one that was cut short
anywhere has left nothing but a staging table, which the next attempt drops.

Staging tables are unlogged: a crash of the server empties them. That is why rows are counted.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple

from psycopg.errors import LockNotAvailable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StructField
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from spark.etl.database import libpq_address, read_url
from spark.etl.postgres_copy import ANSWER, Copying
from spark.etl.postgres_link import LOCK_WAIT_S, Link, lock_key
from spark.etl.postgres_table import TableName, prepare
from spark.etl.postgres_types import ROW, WRITER, is_nested, quoted, statement
from spark.etl.store import Offsets
from spark.etl.store_errors import DisconnectedError, SinkError

Mode = Literal["append", "upsert"]

_LOG: Final = logging.getLogger("leveret.etl")
RETRY_S: Final = 120.0  # for a server that is away, before a batch fails
PAUSE_S: Final = 0.5
PAUSE_S_MAX: Final = 5.0
# A task that nobody waits for any more may still be copying into a staging table.
DROP_WAIT_MS: Final = 1000
PLACES_MAX: Final = 4  # that an error tells
QUERY_ID: Final = "sql.streaming.queryId"  # a local property that Spark sets for a batch
_OLD_STAGING: Final = text("""
    SELECT relname FROM pg_class
    WHERE relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass(:table))
          AND relkind = 'r' AND starts_with(relname, :prefix)
""")


class _Copied(NamedTuple):
    """What tasks answered."""

    staging: str  # quoted
    writers: list[int]
    rows: int


class PostgresSink:
    """To be called inside foreachBatch. One for each query; `close` it in the end."""

    def __init__(
        self,
        url: str,
        table: str,
        mode: Mode = "append",
        key: tuple[str, ...] = (),
        *,
        order_by: str = "",
        retry_s: float = RETRY_S,
        lock_wait_s: float = LOCK_WAIT_S,
        stop: threading.Event | None = None,
        waiting: Callable[[str], None] = _LOG.warning,
    ) -> None:
        """`key`: columns by which `upsert` finds the row to replace. Of several rows of a batch
        with the same key the one with the largest `order_by` counts, and among equals, or without
        that column, the last one of its task. When `stop` is set a server that is away is waited
        for no longer; `waiting` is told why there is a wait. Raises StoreError, SinkError."""
        self._url = read_url(url)
        if self._url.get_backend_name() != "postgresql":
            raise SinkError("this sink writes to PostgreSQL: postgresql+psycopg://…")
        if mode not in ("append", "upsert"):
            raise SinkError(f"mode {mode!r}: append or upsert")
        if (mode == "upsert") != bool(key):
            raise SinkError("a key is needed for upsert, and for nothing else")
        self._table = TableName.of(table)
        self._key = key
        self._order_by = order_by
        self._retry_s = retry_s
        self._lock_wait_s = lock_wait_s
        self._stop = stop or threading.Event()
        self._waiting = waiting
        self._links: dict[str, Link] = {}

    def checkpoint_name(self, job: str) -> str:
        """As which ETLCheckpoint has it: a job may write to several tables."""
        return f"{job}/{self._table}"

    def write(self, batch_df: DataFrame, batch_id: int, job: str, offsets: Offsets) -> bool:
        """False if the batch was there before. Waits for a server that is away. Raises SinkError
        (also if the server refuses the login, or has no such database), or DisconnectedError, after
        which the batch may be written again."""
        deadline, pause_s = time.monotonic() + self._retry_s, PAUSE_S
        said = ""
        while True:
            try:
                return self._attempt(batch_df, batch_id, job, offsets)
            except DisconnectedError as error:
                if time.monotonic() + pause_s > deadline or self._stop.is_set():
                    raise
                if str(error) != said:
                    said = str(error)
                    self._waiting(f"job {job} tries batch {batch_id} again: {said}")
            self._stop.wait(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def close(self) -> None:
        """Lets another driver run the job."""
        links, self._links = self._links, {}
        for link in links.values():
            link.close()

    # One attempt

    def _attempt(self, frame: DataFrame, batch_id: int, job: str, offsets: Offsets) -> bool:
        link = self._link(self.checkpoint_name(job))
        query_id = _query_id(frame)
        fields = frame.schema.fields
        with link.transaction() as connection:
            before = link.store.checkpoint(link.name, connection)
            if _is_done(before, link.name, batch_id, query_id):
                return False
            prepare(connection, self._table, fields, self._key)
            self._check_order(fields)
            self._drop_old(connection, link.name)
            staging = self._stage(connection, link.name, batch_id, fields)
        try:
            copied = self._copy(frame, staging)
            with link.transaction() as connection:
                saved = link.store.checkpoint(link.name, connection)
                if _is_done(saved, link.name, batch_id, query_id):
                    return False
                self._insert(connection, copied, [field.name for field in fields])
                link.store.save_checkpoint(connection, link.name, batch_id, offsets, query_id)
                _drop(connection, staging)
        except SinkError as error:  # for good: there may be no next attempt that drops it
            with suppress(SinkError, DisconnectedError), link.transaction() as connection:
                _drop(connection, staging)
            raise type(error)(f"{error} ({_rows_of(batch_id, before, offsets)})") from error
        return True

    def _link(self, name: str) -> Link:
        if name not in self._links:
            self._links[name] = Link(self._url, name, self._stop, lock_wait_s=self._lock_wait_s)
        return self._links[name]

    def _check_order(self, fields: Sequence[StructField]) -> None:
        if self._order_by and self._order_by not in [field.name for field in fields]:
            raise SinkError(f"order_by {self._order_by!r} is no column of the rows")

    # Staging

    def _stage(
        self, connection: Connection, name: str, batch_id: int, fields: Sequence[StructField]
    ) -> str:
        """A table with the target's types, so that what does not fit is told when it is copied."""
        staging = self._table.beside(f"{_prefix(name)}{batch_id}_{secrets.token_hex(4)}")
        columns = ", ".join(quoted(field.name) for field in fields)
        making = (
            f"CREATE UNLOGGED TABLE {staging} WITH (autovacuum_enabled = off) AS"  # noqa: S608 - quoted
            f" SELECT 0::bigint AS {WRITER}, 0::bigint AS {ROW}, {columns}"
            f" FROM {self._table.quoted} WITH NO DATA"
        )
        connection.execute(statement(making))
        return staging

    def _drop_old(self, connection: Connection, name: str) -> None:
        asked = {"table": self._table.quoted, "prefix": _prefix(name)}
        for old in connection.execute(_OLD_STAGING, asked).scalars().all():
            _drop(connection, self._table.beside(old))

    def _copy(self, frame: DataFrame, staging: str) -> _Copied:
        names = tuple(field.name for field in frame.schema.fields)
        flat = frame.select(*[_flat(field) for field in frame.schema.fields])
        copying = Copying(libpq_address(self._url), staging, names, self._key)
        answers = flat.mapInArrow(copying, ANSWER).collect()
        for answer in answers:
            if answer.problem is not None and not answer.lost:
                raise SinkError(f"table {self._table}: {answer.problem}")
        for answer in answers:
            if answer.lost:
                raise DisconnectedError(answer.problem)
        writers = [answer.writer for answer in answers if answer.rows]
        return _Copied(staging, writers, sum(answer.rows for answer in answers))

    # The target

    def _insert(self, connection: Connection, copied: _Copied, names: Sequence[str]) -> None:
        if not copied.rows:
            return
        given = {"writers": copied.writers}
        chosen = f"FROM {copied.staging} WHERE {WRITER} = ANY(@writers@)"
        there = connection.execute(statement(f"SELECT count(*) {chosen}"), given).scalar_one()
        if there != copied.rows:
            raise DisconnectedError(
                f"{copied.rows} rows were copied, and the staging table has {there}: "
                "the server has crashed since"
            )
        columns = ", ".join(map(quoted, names))
        target = f"INSERT INTO {self._table.quoted} ({columns})"
        if not self._key:
            connection.execute(statement(f"{target} SELECT {columns} {chosen}"), given)
            return
        key = ", ".join(map(quoted, self._key))
        order = f"{quoted(self._order_by)} DESC NULLS LAST, " if self._order_by else ""
        last = f"SELECT DISTINCT ON ({key}) {columns} {chosen} ORDER BY {key}, {order}{ROW} DESC"
        connection.execute(statement(f"{target} {last} {self._on_conflict(names)}"), given)

    def _on_conflict(self, names: Sequence[str]) -> str:
        key = ", ".join(map(quoted, self._key))
        others = [quoted(name) for name in names if name not in self._key]
        if not others:
            return f"ON CONFLICT ({key}) DO NOTHING"
        changed = ", ".join(f"{name} = excluded.{name}" for name in others)
        return f"ON CONFLICT ({key}) DO UPDATE SET {changed}"


def _is_done(
    saved: Mapping[str, Any] | None, name: str, batch_id: int, query_id: str | None
) -> bool:
    if saved is None:
        return False
    if query_id is not None and saved["query_id"] not in (None, query_id):
        raise SinkError(
            f"{name!r} was written up to batch {saved['batch_id']} with another checkpoint of "
            "Spark, and this one counts its batches anew: put the old checkpoint back, use another "
            f"name, or have it forgotten (leveret etl forget {name!r})"
        )
    return bool(batch_id <= saved["batch_id"])


def _rows_of(batch_id: int, before: Mapping[str, Any] | None, ends: Offsets) -> str:
    """Where to look for rows that are not taken."""
    starts: Offsets = {} if before is None else before["offsets"]
    places = [
        f"{topic} partition {number} from offset {starts.get(topic, {}).get(number, 0)} to {end}"
        for topic, partitions in ends.items()
        for number, end in partitions.items()
        if end > starts.get(topic, {}).get(number, 0)
    ]
    more = f" and {len(places) - PLACES_MAX} more" if len(places) > PLACES_MAX else ""
    return f"batch {batch_id}: {', '.join(places[:PLACES_MAX]) or 'no records'}{more}"


def _prefix(name: str) -> str:
    """Of the staging tables of a job."""
    return f"etl_stage_{lock_key(name) & (2**64 - 1):016x}_"


def _drop(connection: Connection, table: str) -> None:
    """Unless somebody is still at work there: then the next batch does it."""
    try:
        with connection.begin_nested():
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {DROP_WAIT_MS}")
            connection.execute(statement(f"DROP TABLE IF EXISTS {table}"))
            connection.exec_driver_sql("SET LOCAL lock_timeout = DEFAULT")
    except OperationalError as error:
        if not isinstance(error.orig, LockNotAvailable):
            raise


def _flat(field: StructField) -> Column:
    name = "`" + field.name.replace("`", "``") + "`"
    return sql.to_json(name).alias(field.name) if is_nested(field.dataType) else sql.col(name)


def _query_id(frame: DataFrame) -> str | None:
    """Of the checkpoint; None where the frame is no micro-batch."""
    found: str | None = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    return found
