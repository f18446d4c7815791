"""Results, and the dead letters that go with them, as rows of the connector: one write for both."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import BinaryType

from spark.etl.errors import SpecError
from spark.etl.formats import json_value
from spark.etl.frames import ENCODED, ERROR, RECORD, Flow, error, failing, is_sound
from spark.etl.letters import letter_headers, letter_topic
from spark.etl.spec import StreamSink
from spark.etl.spec_queries import stage_of

COLUMNS: Final = ("topic", "key", "value", "headers")
HEADERS_TYPE: Final = "array<struct<key: string, value: binary>>"
METRICS: Final = "etl"  # the name under which Spark tells what it counted
ENCODE_ERROR: Final = "EncodeError"


def result_rows(sink: StreamSink, frame: DataFrame, value: Column | None = None) -> DataFrame:
    """Of rows that are sound. The value, if it is not made here, is a struct that has it."""
    return frame.select(
        sql.lit(sink.topic).alias("topic"),
        _key(sink, frame).alias("key"),
        _value(sink, frame, value).alias("value"),
        no_headers().alias("headers"),
    )


def no_headers() -> Column:
    """None, but not null: Spark's writer to Arrow walks over all nulls of a batch again at each
    row, which for lists takes more time than everything else in a pipeline."""
    return sql.array().cast(HEADERS_TYPE)


def fused_rows(
    sink: StreamSink, flow: Flow, job: str, stages: tuple[str, ...], value: Column | None = None
) -> DataFrame:
    """Of all rows, in one pass: what failed at these stages is a dead letter, at others nothing.
    The value, if it is not made here, is a struct that has it or a message of why there is none."""
    frame = flow.frame.where(is_sound() | sql.col(ERROR)["stage"].isin(*stages))
    if value is not None:
        frame = _encoded(sink, frame, value)
        value = sql.col(ENCODED)
    shown = frame.select(*flow.columns)

    def either(sound: Column, failed: Column) -> Column:
        return sql.when(is_sound(), sound).otherwise(failed)

    return frame.select(
        either(sql.lit(sink.topic), letter_topic()).alias("topic"),
        either(_key(sink, shown), sql.col(f"{RECORD}.key")).alias("key"),
        either(_value(sink, shown, value), sql.col(f"{RECORD}.value")).alias("value"),
        either(no_headers(), letter_headers(frame, job)).alias("headers"),
    )


def _encoded(sink: StreamSink, frame: DataFrame, value: Column) -> DataFrame:
    frame = frame.withColumn(ENCODED, value)
    message = sql.col(ENCODED)["message"]
    failure = error(stage_of(sink), ENCODE_ERROR, message)
    return failing(frame, [(message.isNotNull(), failure)])


def counted(rows: DataFrame, *, of_letters: bool = False) -> DataFrame:
    """Rows and dead letters among them; Spark tells them with the progress of each batch."""
    is_letter = sql.lit(1) if of_letters else (sql.size("headers") > 0).cast("int")
    return rows.observe(
        METRICS, sql.count(sql.lit(1)).alias("rows"), sql.sum(is_letter).alias("letters")
    )


def _key(sink: StreamSink, frame: DataFrame) -> Column:
    if sink.key is None:
        return sql.lit(None).cast("binary")
    key = sql.expr(sink.key)
    kind = frame.select(key).schema[0].dataType
    return key if isinstance(kind, BinaryType) else key.cast("string").cast("binary")


def _value(sink: StreamSink, frame: DataFrame, value: Column | None) -> Column:
    if value is not None:
        return value["value"]
    if sink.format == "json":
        return json_value(frame.columns).cast("binary")
    if "value" not in frame.columns:
        raise SpecError(f"[[sinks]] {sink.name!r} format: raw needs a column with the name value")
    return sql.col("value").cast("binary")
