"""What tests of the sink share: frames to write, and what a stream then holds."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from clients.streams import StreamClient


def numbers(spark: SparkSession, count: int, *, tasks: int = 2) -> DataFrame:
    """Rows with the same number as key and as value."""
    frame = spark.range(count, numPartitions=tasks)
    return frame.selectExpr("cast(id as string) key", "cast(id as string) value")


def write(frame: DataFrame, url: str, **options: Any) -> None:
    given = {"url": url, **options}
    frame.write.format("leveret").options(**given).mode("append").save()


def run_copy(*arguments: Any, **options: Any) -> None:
    """The same, until all that there is now is copied."""
    copying(*arguments, **options).trigger(availableNow=True).start().awaitTermination()


def copying(
    spark: SparkSession,
    url: str,
    streams: tuple[str, str],
    checkpoint: Path,
    *,
    form: str = "leveret",
    **options: Any,
) -> DataStreamWriter:
    source, target = streams
    frame = spark.readStream.format("leveret").options(
        url=url, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=500
    )
    rows = frame.load().select("key", "value").repartition(3)
    writer = rows.writeStream.format(form).options(url=url, topic=target, **options)
    return writer.option("checkpointLocation", checkpoint)


def forget_commit(checkpoint: Path) -> int:
    """As if the driver had been killed before it noted its last batch, whose number this is."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    return last


def fill(client: StreamClient, stream: str, count: int, *, first: int = 0) -> None:
    with client.producer(stream) as producer:
        for number in range(first, first + count):
            producer.send(b"%d" % number, key=b"%d" % number)


def records(client: StreamClient, stream: str) -> list[tuple[int, Any]]:
    """All there are, with their partitions."""
    partitions = range(len(client.metadata(stream)[stream]))
    return [(each, record) for each in partitions for record in client.reader(stream, each, 0)]


def values(client: StreamClient, stream: str) -> list[int]:
    """As numbers, sorted."""
    return sorted(int(record.value) for _, record in records(client, stream))


def count(client: StreamClient, stream: str) -> int:
    return sum(each.next_offset for each in client.metadata(stream)[stream])


def batch(*some_values: bytes, **columns: Any) -> Any:
    """As Arrow brings it to a task."""
    return pa.record_batch({"value": pa.array(some_values, pa.binary()), **columns})
