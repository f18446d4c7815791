"""Words for what tests do with pipelines: streams filled, a pipeline run, what came out."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from broker.protocol.chunk import Record
from clients.streams import connect
from spark.etl import Pipeline
from spark.etl.dead_letters import dlq_of
from spark.etl.events import Event
from tests.support.scene import Scene
from tests.support.streams import declare_stream
from tests.support.waiting import eventually

WITHIN_S = 240.0  # for what Spark does in its own time
Rows = list[dict[str, Any]]


class PipelineScene:
    def __init__(self, url: str, spark: SparkSession | None, directory: Path) -> None:
        self.url = url
        self.spark = spark
        self.directory = directory
        self.scene = Scene(url)
        self.client = connect(url)
        self.channel = self.scene.channel()
        self.events: list[Event] = []

    def clean_up(self) -> None:
        self.client.close()
        self.scene.clean_up()

    # Streams

    def declare(self, partitions: int = 2, **arguments: Any) -> str:
        """A source; the pipeline declares the stream of its dead letters, which goes with it."""
        name = declare_stream(self.scene, self.channel, partitions=partitions, **arguments)
        self.scene._queues.append(dlq_of(name))
        return name

    def target(self, partitions: int = 2) -> str:
        return declare_stream(self.scene, self.channel, partitions=partitions)

    def fill(self, stream: str, rows: Iterable[dict[str, Any]], key: str | None = None) -> None:
        encoded = ((json.dumps(row).encode(), row[key] if key else None) for row in rows)
        self.send(stream, encoded)

    def send(self, stream: str, records: Iterable[tuple[bytes | None, Any]]) -> None:
        """Values with their keys."""
        with self.client.producer(stream) as producer:
            for value, key in records:
                producer.send(value, key=None if key is None else str(key).encode())

    def records(self, stream: str) -> list[Record]:
        partitions = range(len(self.client.metadata(stream)[stream]))
        return [record for each in partitions for record in self.client.reader(stream, each, 0)]

    def rows(self, stream: str) -> Rows:
        return [json.loads(record.value) for record in self.records(stream)]

    def letters(self, stream: str) -> list[Record]:
        return self.records(dlq_of(stream))

    # Pipelines

    def pipeline(
        self,
        sources: dict[str, Any],
        sinks: list[dict[str, Any]],
        steps: Iterable[dict[str, Any]] = (),
        **head: Any,
    ) -> Pipeline:
        limits = head.pop("limits", {})
        settings = head.pop("spark", {})
        values = {
            "pipeline": {
                "name": "test",
                "broker": self.url,
                "checkpoint": "checkpoint",
                "store": f"sqlite:///{self.directory / 'etl.db'}",
                **head,
            },
            "limits": limits,
            "spark": settings,
            "sources": sources,
            "steps": list(steps),
            "sinks": sinks,
        }
        return Pipeline.from_dict(values, self.directory)

    def pipeline_of(self, values: dict[str, Any]) -> Pipeline:
        return Pipeline.from_dict(values, self.directory)

    def run(self, pipeline: Pipeline, listener: Callable[[Event], None] | None = None) -> None:
        """Over what there is now."""

        def listen(event: Event) -> None:
            self.events.append(event)
            if listener is not None:
                listener(event)

        pipeline.run(self.spark, once=True, listener=listen)


@contextmanager
def running(
    scene: PipelineScene, pipeline: Pipeline, listener: Callable[[Event], None] = lambda _: None
) -> Iterator[Callable[[Callable[[], object], str], None]]:
    """For the length of a block, without an end of its own. What it gives waits for something to
    become true, for as long as the pipeline is sound."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            pipeline.run(scene.spark, stop=stop, listener=listener)
        except BaseException as error:
            errors.append(error)

    def wait(condition: Callable[[], object], what: str) -> None:
        eventually(lambda: errors or condition(), what, within_s=WITHIN_S)
        if errors:
            raise errors[0]

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield wait
    finally:
        stop.set()
        thread.join()
    assert not errors, errors


def ordered(rows: Iterable[dict[str, Any]]) -> Rows:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
