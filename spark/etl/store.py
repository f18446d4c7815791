"""The ETL store: how far jobs got, what failed, and how they do. SQLite, or PostgreSQL by its URL.

    store = Store.open("sqlite:///etl.db")
    store.record_metric(JobMetric("orders", batch_id=7, processed=1000, errors=2, …))

Any thread and any process may use it. What is saved twice is there once.
"""

import time
import uuid
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypedDict

from sqlalchemy import Connection, Engine, delete, func, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from spark.etl import database, letters_table
from spark.etl.letters_table import DeadLetter
from spark.etl.store_errors import StoreError
from spark.etl.store_tables import NO_TOPIC, VERSION, checkpoints, metadata, metrics, schema, totals
from spark.etl.store_upgrade import upgrade

DEFAULT_URL: Final = "sqlite:///etl.db"
METRICS_KEPT: Final = 10_000  # of each job: hours, at a few micro-batches a second
PRUNE_EVERY: Final = 500  # micro-batches of a job
_MAKING_TABLES: Final = 0x6C65_7665_7265_74  # an advisory lock of PostgreSQL
Offsets = dict[str, dict[int, int]]  # of the next record to read, by topic and partition


class Checkpoint(TypedDict):
    batch_id: int
    offsets: Offsets
    updated_ms: int
    query_id: str | None  # of the Spark checkpoint whose batch it is, if that was said


@dataclass(frozen=True, slots=True)
class JobMetric:
    """One micro-batch."""

    job: str
    batch_id: int
    processed: int
    errors: int
    lag_seconds: float
    batch_ms: int
    recorded_ms: int


@dataclass(frozen=True, slots=True)
class JobTotal:
    """All micro-batches of a job, and its last one."""

    job: str
    processed: int
    errors: int
    batches: int
    last: JobMetric | None


class Store:
    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.id = name  # this store's own, for ever

    @classmethod
    def open(cls, url: str = DEFAULT_URL) -> "Store":
        """Makes the tables if they are missing. Raises StoreError."""
        place = database.read_url(url)
        engine = database.open_engine(place)
        try:
            return cls.of_engine(engine)
        except DBAPIError as error:
            engine.dispose()
            where = place.render_as_string(hide_password=True)
            raise StoreError(f"{where}: {_first_line(error.orig)}") from error
        except BaseException:
            engine.dispose()
            raise

    @classmethod
    def of_engine(cls, engine: Engine) -> "Store":
        """In a database that is open already. Raises StoreError, DBAPIError."""
        return cls(engine, _prepare(engine))

    def close(self) -> None:
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def writing(self) -> AbstractContextManager[Connection]:
        """A transaction, for those who save several things together."""
        return database.writing(self.engine)

    def reading(self) -> AbstractContextManager[Connection]:
        return database.reading(self.engine)

    # Checkpoints

    def checkpoint(self, job: str, connection: Connection | None = None) -> Checkpoint | None:
        """The last that was saved; with a connection, as its transaction sees it."""
        if connection is None:
            with self.reading() as own:
                return self.checkpoint(job, own)
        rows = connection.execute(select(checkpoints).where(checkpoints.c.job_name == job)).all()
        if not rows:
            return None
        offsets: Offsets = {}
        for row in rows:
            if row.topic != NO_TOPIC:
                offsets.setdefault(row.topic, {})[row.partition] = row.offset
        return {
            "batch_id": max(row.batch_id for row in rows),
            "offsets": offsets,
            "updated_ms": max(row.updated_at for row in rows),
            "query_id": max(rows, key=lambda row: row.batch_id).query_id,
        }

    def save_checkpoint(
        self,
        connection: Connection | None,
        job: str,
        batch_id: int,
        offsets: Offsets,
        query_id: str | None = None,
    ) -> bool:
        """In the caller's transaction, or in one of its own. False, and nothing saved, if a batch
        as new as this one was saved before."""
        if connection is None:
            with self.writing() as own:
                return self.save_checkpoint(own, job, batch_id, offsets, query_id)
        newest = select(func.max(checkpoints.c.batch_id)).where(checkpoints.c.job_name == job)
        saved = connection.execute(newest).scalar()
        if saved is not None and saved >= batch_id:
            return False
        common = {
            "job_name": job,
            "batch_id": batch_id,
            "updated_at": _now_ms(),
            "query_id": query_id,
        }
        _save_offsets(connection, common, offsets)
        return True

    def forget_checkpoint(self, job: str) -> bool:
        """So that a job may begin anew. Whether there was one."""
        with self.writing() as connection:
            gone = connection.execute(delete(checkpoints).where(checkpoints.c.job_name == job))
            return gone.rowcount > 0

    # Dead letters

    def add_dead_letters(
        self, rows: Iterable[DeadLetter], connection: Connection | None = None
    ) -> int:
        """How many of them are new: each is there once, by its place in its stream."""
        if connection is None:
            with self.writing() as own:
                return self.add_dead_letters(rows, own)
        return letters_table.add(connection, rows)

    # Metrics

    def record_metric(self, metric: JobMetric) -> None:
        with self.writing() as connection:
            adding = database.insert_into(connection, metrics).on_conflict_do_nothing()
            added = connection.execute(
                adding.returning(metrics.c.id),
                {
                    "job_name": metric.job,
                    "batch_id": metric.batch_id,
                    "records_processed": metric.processed,
                    "error_count": metric.errors,
                    "lag_seconds": metric.lag_seconds,
                    "batch_ms": metric.batch_ms,
                    "recorded_at": metric.recorded_ms,
                },
            )
            if added.first() is not None:
                batches = _add_to_totals(connection, metric)
                if batches % PRUNE_EVERY == 0:
                    _prune_metrics(connection, metric.job)

    def register_job(self, job: str, now_ms: int) -> None:
        """One that has no micro-batch yet is among the totals, with none."""
        row = {
            "job_name": job,
            "records_processed": 0,
            "error_count": 0,
            "batches": 0,
            "updated_at": now_ms,
        }
        with self.writing() as connection:
            adding = database.insert_into(connection, totals).on_conflict_do_nothing()
            connection.execute(adding, row)

    def metrics(self, job: str, limit: int = 100) -> list[JobMetric]:
        """The newest first."""
        newest = (
            select(metrics)
            .where(metrics.c.job_name == job)
            .order_by(metrics.c.id.desc())
            .limit(limit)
        )
        with self.reading() as connection:
            return [_metric(row) for row in connection.execute(newest)]

    def totals(self) -> list[JobTotal]:
        """Of all jobs, by name."""
        last = select(func.max(metrics.c.id)).group_by(metrics.c.job_name)
        with self.reading() as connection:
            newest = {
                row.job_name: _metric(row)
                for row in connection.execute(select(metrics).where(metrics.c.id.in_(last)))
            }
            return [
                JobTotal(
                    row.job_name,
                    row.records_processed,
                    row.error_count,
                    row.batches,
                    newest.get(row.job_name),
                )
                for row in connection.execute(select(totals).order_by(totals.c.job_name))
            ]


# Tables


def _prepare(engine: Engine) -> str:
    """The tables, made once whoever comes at the same time; the store's own name."""
    with database.writing(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MAKING_TABLES})
        schema.create(connection, checkfirst=True)
        said = {row.name: row.value for row in connection.execute(select(schema))}
        _check_version(said.get("version"))
        if "id" not in said:
            said = {"version": str(VERSION), "id": uuid.uuid4().hex}
            metadata.create_all(connection)
            rows = [{"name": name, "value": value} for name, value in said.items()]
            connection.execute(insert(schema), rows)
        elif int(said["version"]) < VERSION:
            upgrade(connection, int(said["version"]))
            noting = update(schema).where(schema.c.name == "version")
            connection.execute(noting.values(value=str(VERSION)))
        return str(said["id"])


def _check_version(said: str | None) -> None:
    if said is not None and int(said) > VERSION:
        raise StoreError(
            f"the store has tables of version {said}, and this program knows up to {VERSION}: "
            "it was used by a newer one"
        )


# Checkpoints


def _save_offsets(connection: Connection, common: dict[str, Any], offsets: Offsets) -> None:
    places = {
        (topic, partition): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    } or {(NO_TOPIC, -1): 0}
    rows = [
        {**common, "topic": topic, "partition": partition, "offset": offset}
        for (topic, partition), offset in places.items()
    ]
    adding = database.insert_into(connection, checkpoints)
    keys = [column.name for column in checkpoints.primary_key]
    changed = {
        column.name: adding.excluded[column.name]
        for column in checkpoints.columns
        if column.name not in keys
    }
    connection.execute(adding.on_conflict_do_update(index_elements=keys, set_=changed), rows)


# Metrics


def _add_to_totals(connection: Connection, metric: JobMetric) -> int:
    """How many batches it has now."""
    adding = database.insert_into(connection, totals)
    changed = {
        name: totals.c[name] + adding.excluded[name]
        for name in ("records_processed", "error_count", "batches")
    } | {"updated_at": adding.excluded.updated_at}
    row = {
        "job_name": metric.job,
        "records_processed": metric.processed,
        "error_count": metric.errors,
        "batches": 1,
        "updated_at": metric.recorded_ms,
    }
    summing = adding.on_conflict_do_update(index_elements=["job_name"], set_=changed)
    found: int = connection.execute(summing.returning(totals.c.batches), row).scalar_one()
    return found


def _prune_metrics(connection: Connection, job: str) -> None:
    oldest = (
        select(metrics.c.id)
        .where(metrics.c.job_name == job)
        .order_by(metrics.c.id.desc())
        .offset(METRICS_KEPT)
        .limit(1)
    )
    bound = connection.execute(oldest).scalar()
    if bound is not None:
        mine = (metrics.c.job_name == job) & (metrics.c.id <= bound)
        connection.execute(delete(metrics).where(mine))


def _metric(row: Any) -> JobMetric:
    return JobMetric(
        row.job_name,
        row.batch_id,
        row.records_processed,
        row.error_count,
        row.lag_seconds,
        row.batch_ms,
        row.recorded_at,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _first_line(error: BaseException | None) -> str:
    return (str(error).splitlines() or ["unknown error"])[0]
