"""A stream copied into a PostgreSQL table, for tests that kill whoever does it."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark.etl.postgres_sink import PostgresSink

JOB = "copying"
BATCH = 500


def copy_stream(
    spark: SparkSession, amqp_url: str, stream: str, sink: PostgresSink, checkpoint: Path
) -> None:
    """Until all that there is now is in the table."""

    def write(frame: DataFrame, batch: int) -> None:
        sink.write(frame, batch, JOB, {stream: {0: batch}})

    rows = (
        spark.readStream.format("leveret")
        .options(url=amqp_url, subscribe=stream, startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", BATCH)
        .load()
        .selectExpr("cast(cast(value as string) as int) number", "cast(key as string) key")
    )
    query = (
        rows.repartition(3)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def numbers(connection: Any, table: str = "copied") -> list[int]:
    return [row[0] for row in connection.execute(f"SELECT number FROM {table} ORDER BY 1")]


def staging_tables(connection: Any, schema: str = "") -> list[str]:
    """In a schema, or in the connection's own."""
    asked = (
        "SELECT relname FROM pg_class WHERE relname LIKE 'etl_stage_%%'"
        " AND relnamespace = coalesce(nullif(%s, ''), current_schema())::regnamespace"
    )
    return [row[0] for row in connection.execute(asked, (schema,))]
