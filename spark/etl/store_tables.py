"""The tables of the ETL store, and the version of them that this code knows.

ETLSchema       name, value: "version" and "id", which names this store for ever
ETLCheckpoint   how far a job got: one row for each partition, written with its results
ETLDeadLetter   records that failed, as they were, and why
ETLReplay       the replay that is under way, if one is: see replaying
ETLJobMetric    one row for each micro-batch, the newest of each job
ETLJobTotal     sums over all micro-batches of a job, also those that are forgotten
"""

from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Dialect,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

VERSION: Final = 2
NO_TOPIC: Final = ""  # of the row that a checkpoint without any offset has

metadata: Final = MetaData()
# SQLite counts only a plain INTEGER up by itself.
_Number: Final = BigInteger().with_variant(Integer, "sqlite")


class Moment(TypeDecorator[int]):
    """Milliseconds since 1970; in the database a time with its zone, for people's queries."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> Any:
        del dialect
        return None if value is None else moment(value)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> int | None:
        del dialect
        if value is None:
            return None
        known = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return round(known.timestamp() * 1000)


def moment(ms: int) -> datetime:
    seconds, rest_ms = divmod(ms, 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest_ms * 1000)


schema: Final = Table(
    "ETLSchema",
    metadata,
    Column("name", String(50), primary_key=True),
    Column("value", Text, nullable=False),
)

checkpoints: Final = Table(
    "ETLCheckpoint",
    metadata,
    Column("job_name", Text, primary_key=True),
    Column("topic", Text, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("offset", BigInteger, nullable=False),  # of the next record to read
    Column("batch_id", BigInteger, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("query_id", Text),  # of Spark's checkpoint: batches are counted in one
)

letters: Final = Table(
    "ETLDeadLetter",
    metadata,
    Column("id", _Number, primary_key=True, autoincrement=True),
    Column("job_name", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("error_type", Text, nullable=False),
    Column("error_message", Text, nullable=False),
    Column("raw_message", LargeBinary),
    Column("key", LargeBinary),
    Column("headers", Text, nullable=False),  # JSON, see letters_table
    Column("message_timestamp", Moment),
    Column("failed_at", Moment, nullable=False),
    Column("replay_count", Integer, nullable=False),
    Column("replayed_at", Moment),
    # Where the letter itself is; null if version 1 has saved it.
    Column("dlq_topic", Text),
    Column("dlq_partition", Integer),
    Column("dlq_offset", BigInteger),
    # The time tells apart what is at one place of two streams that had the same name.
    UniqueConstraint(
        "dlq_topic", "dlq_partition", "dlq_offset", "failed_at", name="ETLDeadLetter_place"
    ),
    Index("ETLDeadLetter_newest", "dlq_topic", "dlq_partition", "id"),
    Index("ETLDeadLetter_job", "job_name", "id"),
    sqlite_autoincrement=True,  # an id is never given again
)

replays: Final = Table(
    "ETLReplay",
    metadata,
    Column("producer", Text, primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("letters", Text, nullable=False),  # their ids, JSON
    Column("started_at", Moment, nullable=False),
)

metrics: Final = Table(
    "ETLJobMetric",
    metadata,
    Column("id", _Number, primary_key=True, autoincrement=True),
    Column("job_name", Text, nullable=False),
    Column("batch_id", BigInteger, nullable=False),
    Column("records_processed", BigInteger, nullable=False),
    Column("error_count", BigInteger, nullable=False),
    Column("lag_seconds", Float, nullable=False),
    Column("batch_ms", BigInteger, nullable=False),
    Column("recorded_at", Moment, nullable=False),
    UniqueConstraint("job_name", "batch_id", "recorded_at"),
    Index("ETLJobMetric_newest", "job_name", "id"),
    sqlite_autoincrement=True,
)

totals: Final = Table(
    "ETLJobTotal",
    metadata,
    Column("job_name", Text, primary_key=True),
    Column("records_processed", BigInteger, nullable=False),
    Column("error_count", BigInteger, nullable=False),
    Column("batches", BigInteger, nullable=False),
    Column("updated_at", Moment, nullable=False),
)
