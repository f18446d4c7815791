"""Rows of records that failed, as they go to `<topic>.dlq`: the record as it was, and why."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from spark.etl import dead_letters
from spark.etl.frames import ERROR, RECORD


def letters(failed: DataFrame, job: str) -> DataFrame:
    """Columns topic, key, value and headers."""
    return failed.select(
        letter_topic().alias("topic"),
        sql.col(f"{RECORD}.key").alias("key"),
        sql.col(f"{RECORD}.value").alias("value"),
        letter_headers(failed, job).alias("headers"),
    )


def letter_topic() -> Column:
    return sql.concat(sql.col(f"{RECORD}.topic"), sql.lit(dead_letters.SUFFIX))


def letter_headers(frame: DataFrame, job: str) -> Column:
    """The record's own, then ours. Of ours that it has already, the count of its replays goes on;
    one that is a dead letter itself has another for that."""
    record, failure = sql.col(RECORD), sql.col(ERROR)
    millis = sql.unix_millis(record["timestamp"])
    ours = {
        dead_letters.JOB: sql.lit(job),
        dead_letters.TOPIC: record["topic"],
        dead_letters.PARTITION: record["partition"],
        dead_letters.OFFSET: record["offset"],
        dead_letters.TIMESTAMP: millis,
        dead_letters.ERROR_TYPE: failure["type"],
        dead_letters.ERROR: failure["message"],
    }
    has_headers = "headers" in frame.select(f"{RECORD}.*").columns
    own = record["headers"] if has_headers else None
    if own is None:
        ours[dead_letters.REPLAYS] = sql.lit(0)
        return sql.array(*[_header(name, value) for name, value in ours.items()])
    is_letter = sql.exists(own, lambda each: each["key"] == dead_letters.JOB)
    counted = sql.when(is_letter, dead_letters.COPIES).otherwise(dead_letters.REPLAYS)
    replays = sql.filter(own, lambda each: each["key"] == counted)
    ours[dead_letters.REPLAYS] = sql.coalesce(
        sql.get(replays, sql.lit(0))["value"].cast("string"), sql.lit("0")
    )
    others = sql.filter(own, lambda each: ~each["key"].isin(*dead_letters.OURS))
    news = sql.array(*[_header(name, value) for name, value in ours.items()])
    return sql.when(own.isNull(), news).otherwise(sql.concat(others, news))


def _header(name: str, value: Column) -> Column:
    text = sql.coalesce(value.cast("string"), sql.lit(""))
    return sql.struct(sql.lit(name).alias("key"), text.cast("binary").alias("value"))
