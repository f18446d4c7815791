"""kill -9 of the broker in the middle of a query: the query goes on, and the result is exact."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker.protocol.stream_messages import Partition
from spark.losses import Losses
from spark.options import stream_options
from spark.planning import Range
from spark.reading import read_range
from tests.spark.streams import WITHIN_S, Batches, Streams
from tests.support.ports import free_ports
from tests.support.process import TRACEBACK, BrokerProcess
from tests.support.waiting import eventually

RECORDS = 4000


class Restarting:
    """A broker that comes back where it was."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_ports(1)[0]
        self.start()

    def start(self) -> None:
        self.process = BrokerProcess(self._directory, "--amqp-port", str(self._port))

    def kill_and_start(self) -> None:
        self.process.kill()
        self.start()


@pytest.fixture
def restarting(tmp_path: Path) -> Iterator[Restarting]:
    found = Restarting(tmp_path / "broker")
    yield found
    found.process.kill()
    assert TRACEBACK not in found.process.log_text(), found.process.log_text()


@pytest.fixture
def streams(restarting: Restarting, spark: SparkSession) -> Iterator[Streams]:
    found = Streams(restarting.process.amqp_url(), spark)
    yield found
    found.leave()


def values(count: int, start: int = 0) -> list[bytes]:
    return [b"%06d" % number for number in range(start, start + count)]


def once_before(numbers: set[int], act: Callable[[], None]) -> Callable[[int], None]:
    """Before these micro-batches are collected, once each."""
    left = set(numbers)

    def before(number: int) -> None:
        if number in left:
            left.remove(number)
            act()

    return before


def test_a_query_survives_its_broker_and_reads_everything_once(
    restarting: Restarting, streams: Streams, tmp_path: Path
) -> None:
    """Killed between planning and reading, twice, and while the query waits for more."""
    name = streams.declare_as("events", partitions=2)
    streams.fill(name, values(RECORDS // 2), 0)
    streams.fill(name, values(RECORDS // 2, RECORDS // 2), 1)
    frame = streams.follow(
        subscribe=name,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=RECORDS // 8,
        consumerGroup="spark",
    )
    sink = Batches(once_before({2, 4}, restarting.kill_and_start))
    query = streams.start(frame, tmp_path / "checkpoint", sink)
    eventually(lambda: len(sink.all()) == RECORDS, "all records", within_s=WITHIN_S)
    restarting.kill_and_start()
    streams.fill(name, values(100, RECORDS), 1)
    eventually(lambda: len(sink.all()) >= RECORDS + 100, "the rest", within_s=WITHIN_S)
    assert query.isActive, query.exception()
    assert sink.values() == values(RECORDS + 100)


def test_a_batch_read_survives_its_broker(restarting: Restarting, streams: Streams) -> None:
    """Killed after the read was planned, so that only the tasks can notice."""
    name = streams.declare_as("events")
    streams.fill(name, values(RECORDS))
    planned = streams.read(subscribe=name).rdd  # offsets are known from here on
    assert planned.getNumPartitions() == 1
    restarting.kill_and_start()
    streams.fill(name, values(10, RECORDS))
    assert sorted(bytes(row.value) for row in planned.collect()) == values(RECORDS)


def test_a_task_goes_on_where_it_was_when_its_broker_is_killed(
    restarting: Restarting, streams: Streams
) -> None:
    name = streams.declare_as("events")
    for _ in range(8):  # several fetches
        streams.append(name, [bytes(20_000)] * 100, at_ms=0)
    broker = stream_options({"url": streams.url, "subscribe": name}).broker
    part = Range(Partition(name, 0), 50, 750)
    found: list[int] = []
    for batch in read_range(broker, Losses(fail=True), ["offset"], part):
        if not found:
            restarting.kill_and_start()
        found += batch.column("offset").to_pylist()
    assert found == list(range(50, 750))
