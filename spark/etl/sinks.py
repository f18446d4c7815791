"""Starts a query: its frame, its sink, its checkpoint and its trigger."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from spark.etl.checkpoints import batch_offsets
from spark.etl.job_names import job_of
from spark.etl.plan import Query
from spark.etl.postgres_sink import PostgresSink as PostgresTable
from spark.etl.spec import ParquetSink, PipelineSpec, PostgresSink, Sink, StreamSink, TestSink

GUARANTEES: Final = {
    "exactly_once": "exactly once: what a batch writes is one transaction of the broker",
    "at_least_once": "at least once: a batch that runs again writes again",
    "parquet": "exactly once for Spark, which reads _spark_metadata; for others at least once",
    "postgres": "exactly once: rows and offsets of a batch are one transaction of the database",
    "console": "at least once, to look at",
    "memory": "at least once, to look at; it is lost with the driver",
}


def _silent(text: str) -> None:
    del text


def guarantee_of(sink: Sink | None) -> str:
    if sink is None:
        return GUARANTEES["exactly_once"]
    if isinstance(sink, StreamSink):
        return GUARANTEES[sink.guarantee]
    if isinstance(sink, ParquetSink):
        return GUARANTEES["parquet"]
    return GUARANTEES["postgres" if isinstance(sink, PostgresSink) else sink.kind]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a query is started with."""

    once: bool
    closing: ExitStack  # closed behind it: what the query holds is let go
    stop: threading.Event = field(default_factory=threading.Event)
    waiting: Callable[[str], None] = _silent  # told when something is away, and why


def start(spec: PipelineSpec, query: Query, attempt: Attempt) -> StreamingQuery:
    sink = query.shape.sink
    writer = query.frame.writeStream.queryName(job_of(spec, query.name))
    writer = writer.option("checkpointLocation", str(spec.path / query.name))
    if attempt.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=spec.trigger)
    writer = writer.outputMode("append" if sink is None else sink.mode)
    if sink is None or isinstance(sink, StreamSink):
        guarantee = "exactly_once" if sink is None else sink.guarantee
        options = {
            "url": spec.broker,
            "reconnectTimeout": spec.broker_timeout,
            "deliveryGuarantee": guarantee,
        }
        return writer.format("leveret").options(**options).start()
    if isinstance(sink, ParquetSink):
        writer = writer.partitionBy(*sink.partition_by) if sink.partition_by else writer
        return writer.format("parquet").option("path", sink.path).start()
    if isinstance(sink, PostgresSink):
        return writer.foreachBatch(_into_postgres(spec, query.name, sink, attempt)).start()
    return _start_to_look_at(writer, sink)


def _into_postgres(
    spec: PipelineSpec, query: str, sink: PostgresSink, attempt: Attempt
) -> Callable[[DataFrame, int], None]:
    table = PostgresTable(
        sink.url,
        sink.table,
        "upsert" if sink.keys else "append",
        sink.keys,
        stop=attempt.stop,
        waiting=attempt.waiting,
    )
    attempt.closing.callback(table.close)  # it holds the job's lock, which the next attempt needs
    job = job_of(spec, query)

    def write(frame: DataFrame, batch: int) -> None:
        table.write(frame, batch, job, batch_offsets(spec.path / query, batch))

    return write


def _start_to_look_at(writer: Any, sink: TestSink) -> StreamingQuery:
    if sink.kind == "memory":
        found: StreamingQuery = writer.queryName(sink.name).format("memory").start()
        return found
    shown: StreamingQuery = writer.format("console").option("truncate", "false").start()
    return shown
