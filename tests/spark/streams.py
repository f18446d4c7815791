"""Words for what tests do with streams and Spark."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import encode_chunk
from clients.streams import connect
from tests.support.frames import Queue
from tests.support.scene import Scene
from tests.support.streams import declare_stream

WITHIN_S = 120.0  # for what another process does in its own time


class Streams:
    """The streams of one test, and Spark's readers of them."""

    def __init__(self, url: str, spark: SparkSession) -> None:
        self.url = url
        self.spark = spark
        self.scene = Scene(url)
        self.client = connect(url)
        self._channel = self.scene.channel()
        self._queries: list[Any] = []

    def clean_up(self) -> None:
        self.leave()
        self.scene.clean_up()

    def leave(self) -> None:
        """The broker is gone, or soon will be."""
        for query in self._queries:
            query.stop()
        self.client.close()

    # Records

    def declare(self, **arguments: Any) -> str:
        return declare_stream(self.scene, self._channel, **arguments)

    def declare_as(self, name: str, **arguments: Any) -> str:
        given = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        self.scene.channel().declare_queue(
            name, durable=True, arguments={"x-queue-type": "stream", **given}
        )
        return name

    def delete(self, name: str) -> None:
        self.scene.channel().rpc(Queue.Delete(queue=name))

    def fill(self, name: str, values: Iterable[bytes], partition: int = 0) -> None:
        with self.client.producer(name) as producer:
            for value in values:
                producer.send(value, partition=partition)

    def append(self, name: str, values: list[bytes], *, at_ms: int, partition: int = 0) -> None:
        """A chunk of these, all of that time."""
        count = len(values)
        chunk = encode_chunk([None] * count, values, [b""] * count, at_ms)
        self.client.connection.ask(wire.Append(name, partition, chunk), wire.Appended)

    def next_offsets(self, name: str) -> dict[str, int]:
        found = self.client.offsets(name, "next")
        return {str(number): offset for number, offset in sorted(found.items())}

    # Spark

    def read(self, schema: str = "", **options: Any) -> DataFrame:
        reader = self.spark.read.format("leveret").option("url", self.url)
        if schema:
            reader = reader.schema(schema)
        return reader.options(**texts(options)).load()

    def values(self, **options: Any) -> list[bytes]:
        """All that a batch read gives, by partition and offset."""
        return in_order(self.read(**options).collect())

    def follow(self, **options: Any) -> DataFrame:
        reader = self.spark.readStream.format("leveret").option("url", self.url)
        return reader.options(**texts(options)).load()

    def start(self, frame: DataFrame, checkpoint: Path, sink: "Batches", **trigger: Any) -> Any:
        """A query that hands its batches to the sink; it ends with the test."""
        writer = frame.writeStream.foreachBatch(sink.take)
        writer = writer.option("checkpointLocation", str(checkpoint))
        query = writer.trigger(**trigger or {"processingTime": "0 seconds"}).start()
        self._queries.append(query)
        return query

    def run(self, checkpoint: Path, sink: "Batches", **options: Any) -> None:
        """A query over what is available now, to its end. Raises what it failed of."""
        query = self.start(self.follow(**options), checkpoint, sink, availableNow=True)
        query.awaitTermination()


class Batches:
    """What a query gave, by the number of its micro-batch: one that is run again counts once."""

    def __init__(self, before: Callable[[int], None] = lambda _: None) -> None:
        self.rows: dict[int, list[Row]] = {}
        self._before = before
        self._lock = threading.Lock()

    def take(self, frame: DataFrame, number: int) -> None:
        self._before(number)
        found = frame.collect()
        with self._lock:
            self.rows[number] = found

    def all(self) -> list[Row]:
        with self._lock:
            return [row for _, rows in sorted(self.rows.items()) for row in rows]

    def values(self) -> list[bytes]:
        return in_order(self.all())

    def sizes(self) -> list[int]:
        """Of the batches that had anything, in order."""
        return [len(rows) for _, rows in sorted(self.rows.items()) if rows]


def in_order(rows: Iterable[Row]) -> list[bytes]:
    ordered = sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))
    places = Counter((row.topic, row.partition, row.offset) for row in ordered)
    assert not [place for place, count in places.items() if count > 1], "records came twice"
    return [None if row.value is None else bytes(row.value) for row in ordered]


def texts(options: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items()}
