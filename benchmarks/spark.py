"""What Spark does with stream queues on this machine, broker and Spark beside each other.

    python -m benchmarks.spark [--rows 2000000] [--rounds 5] [--only read,write,overhead]

Reading goes to Spark's noop sink, so that rows are made and dropped. The first round warms the JVM
and is not counted; the median of the others is told. Rows per CPU-second count everything that
Spark and the broker used.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks import brokers
from benchmarks.brokers import ProcessTree
from benchmarks.streams import IN_FLIGHT, MIB, declare
from broker.protocol import stream_messages as wire
from broker.protocol.chunk import encode_chunk
from clients.streams import connect
from spark import StreamQueueSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.brokers import Broker

RECORD_BYTES: Final = 1024
PARTITIONS: Final = 4
ROWS_STAGED: Final = 100_000  # of a micro-batch that is written: they must fit into the staging
BATCHES: Final = 30  # of one record each, for what a micro-batch costs by itself
WARM_BATCHES: Final = 10


@dataclass(frozen=True, slots=True)
class Figure:
    what: str
    value: float
    unit: str
    budget: str
    rows_per_cpu_s: float | None = None


class Bench:
    """A broker with a stream of records, and a SparkSession."""

    def __init__(self, broker: Broker, home: Path, rows: int) -> None:
        assert broker.processes is not None
        self._url = broker.url
        self._home = home
        self._runs = 0
        self._processes = (ProcessTree(os.getpid()), broker.processes)
        declare(self._url, "read", partitions=PARTITIONS)
        self.rows = fill(self._url, "read", rows)
        self._session = start_session(home)

    def stop(self) -> None:
        self._session.stop()

    def source(self, stream: str, **options: object) -> Any:
        reader = self._session.readStream.format("leveret").option("url", self._url)
        reader = reader.option("subscribe", stream).option("startingOffsets", "earliest")
        return reader.options(**{name: str(value) for name, value in options.items()}).load()

    def run(self, frame: Any, sink: str, **options: str) -> Any:
        """To its end, from the start: a checkpoint of its own."""
        self._runs += 1
        writer = frame.writeStream.format(sink).options(**options)
        writer = writer.option("checkpointLocation", str(self._home / f"checkpoint{self._runs}"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def timed(self, what: str, budget: str, rounds: int, work: Callable[[], None]) -> Figure:
        """Rows of the stream in a second; the first round only warms up."""
        rates, costs = [], []
        for _ in range(rounds + 1):
            used, started = self._cpu_s(), time.perf_counter()
            work()
            rates.append(self.rows / (time.perf_counter() - started))
            costs.append(self.rows / (self._cpu_s() - used))
        return Figure(
            what,
            statistics.median(rates[1:]),
            "rows/s",
            budget,
            statistics.median(costs[1:]),
        )

    def _cpu_s(self) -> float:
        return sum(each.cpu_s() for each in self._processes)

    # What is measured

    def read_batch(self, rounds: int) -> Figure:
        def work() -> None:
            reader = self._session.read.format("leveret").option("url", self._url)
            frame = reader.option("subscribe", "read").load()
            frame.write.format("noop").mode("append").save()

        return self.timed("batch read, 1 KB", "", rounds, work)

    def read_stream(self, rounds: int) -> Figure:
        def work() -> None:
            self.run(self.source("read"), "noop")

        return self.timed("streaming read, 1 KB", "300,000", rounds, work)

    def read_and_write(self, rounds: int) -> Figure:
        """Exactly once, which is the sink's default."""

        def work() -> None:
            name = f"written{self._runs}"
            declare(self._url, name, partitions=PARTITIONS)
            frame = self.source("read", maxOffsetsPerTrigger=ROWS_STAGED).select("key", "value")
            self.run(frame, "leveret", url=self._url, topic=name)

        return self.timed("read and write, exactly once, 1 KB", "80,000", rounds, work)

    def overhead(self) -> Figure:
        """Of micro-batches with a record each, once the JVM is warm."""
        declare(self._url, "small")
        fill(self._url, "small", BATCHES + WARM_BATCHES, partitions=1)
        query = self.run(self.source("small", maxOffsetsPerTrigger=1), "noop")
        took = [each["durationMs"]["triggerExecution"] for each in query.recentProgress]
        return Figure(
            "micro-batch of one record", statistics.median(took[WARM_BATCHES:]), "ms", "300"
        )


def start_session(home: Path) -> SparkSession:
    """Spark as it comes."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("benchmarks")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.local.dir": str(home / "local"),
    }
    for name, text in settings.items():
        builder = builder.config(name, text)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(StreamQueueSource)
    return session


def fill(url: str, stream: str, rows: int, *, partitions: int = PARTITIONS) -> int:
    """Chunks of a megabyte, to each partition in turn; how many rows these are."""
    count = min(rows, MIB // RECORD_BYTES)
    values = [bytes([number % 256]) * RECORD_BYTES for number in range(count)]
    keys = [b"key-%d" % number for number in range(count)]
    in_flight: deque[int] = deque()
    with connect(url) as client:
        for turn in range(rows // count):
            chunk = encode_chunk(keys, values, [b""] * count, time.time_ns() // 1_000_000)
            request = wire.Append(stream, turn % partitions, chunk)
            in_flight.append(client.connection.send(request))
            if len(in_flight) == IN_FLIGHT:
                client.connection.receive(in_flight.popleft(), wire.Appended)
        for correlation in in_flight:
            client.connection.receive(correlation, wire.Appended)
    return rows // count * count


def show(figures: list[Figure]) -> None:
    table = Table("work", "measured", "asked", "rows per CPU-second")
    for each in figures:
        cost = "" if each.rows_per_cpu_s is None else f"{each.rows_per_cpu_s:,.0f}"
        table.add_row(each.what, f"{each.value:,.0f} {each.unit}", each.budget, cost)
    console = Console()
    (console if console.is_terminal else Console(width=120)).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help="of 1 KB, in four partitions")
    parser.add_argument("--rounds", type=int, default=5, help="that count, after one that warms up")
    parser.add_argument("--only", default="read,write,overhead")
    options = parser.parse_args()
    chosen = options.only.split(",")
    figures: list[Figure] = []
    with (
        tempfile.TemporaryDirectory(prefix="leveret-bench-") as directory,
        brokers.leveret() as broker,
    ):
        bench = Bench(broker, Path(directory), options.rows)
        try:
            if "read" in chosen:
                figures += [bench.read_batch(options.rounds), bench.read_stream(options.rounds)]
            if "write" in chosen:
                figures.append(bench.read_and_write(options.rounds))
            if "overhead" in chosen:
                figures.append(bench.overhead())
        finally:
            bench.stop()
    show(figures)


if __name__ == "__main__":
    main()
