"""What the planner of a streaming read decides, asked as Spark asks it, at a real broker."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from broker.protocol.stream_messages import Partition
from clients.stream_errors import ConnectionLostError
from clients.streams import connect
from spark.columns import full_schema
from spark.errors import DataLossError, OptionError
from spark.losses import Losses
from spark.options import stream_options
from spark.places import UID
from spark.planning import Range
from spark.reading import read_range
from spark.stream_reader import StreamReader
from tests.spark.streams import Streams
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually


def numbers_of(offsets: Any) -> Any:
    """Without the uids."""
    return {
        stream: {number: offset for number, offset in numbers.items() if number != UID}
        for stream, numbers in offsets.items()
    }


class Planner:
    """A StreamReader and where it is, as Spark has it."""

    def __init__(self, streams: Streams, **options: Any) -> None:
        given = {name: str(value) for name, value in options.items()}
        self.reader = StreamReader(
            full_schema(headers=False), stream_options({"url": streams.url, **given})
        )
        self.whole: Any = None  # with the uids of streams

    @property
    def at(self) -> Any:
        return None if self.whole is None else numbers_of(self.whole)

    def start(self) -> "Planner":
        self.whole = self.reader.initialOffset()
        return self

    def end(self, limit: ReadLimit | None = None) -> Any:
        return numbers_of(self.next(limit))

    def next(self, limit: ReadLimit | None = None) -> Any:
        return self.reader.latestOffset(self.whole, limit or self.reader.getDefaultReadLimit())

    def batch(self, limit: ReadLimit | None = None) -> list[bytes]:
        """The values of the next micro-batch."""
        start, self.whole = self.whole, self.next(limit)
        values = []
        for part in self.reader.partitions(start, self.whole):
            for batch in self.reader.read(part):
                values += batch.column("value").to_pylist()
        return values


@pytest.fixture
def streams(broker: BrokerProcess) -> Iterator[Streams]:
    """Without Spark itself."""
    found = Streams(broker.amqp_url(), None)
    yield found
    found.clean_up()


def values(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


# Starting


def test_the_first_offset_stays_what_it_was_when_it_is_asked_again(streams: Streams) -> None:
    name = streams.declare()
    planner = Planner(streams, subscribe=name)
    first = planner.reader.initialOffset()
    streams.fill(name, values(5))
    assert planner.reader.initialOffset() == first
    assert numbers_of(first) == {name: {"0": 0}}


def test_offsets_are_in_the_order_of_the_partitions(streams: Streams) -> None:
    name = streams.declare(partitions=12)
    planner = Planner(streams, subscribe=name, startingOffsets="earliest").start()
    assert list(planner.at[name]) == [str(number) for number in range(12)]
    assert json.dumps(planner.end()) == json.dumps(planner.at)


def test_a_query_that_crashed_in_its_first_batch_begins_where_it_began(streams: Streams) -> None:
    name = streams.declare()
    streams.fill(name, values(3))
    options = {"subscribe": name, "consumerGroup": f"group of {name}"}
    before = Planner(streams, **options).start()
    streams.fill(name, values(3, 3))
    assert before.end() == {name: {"0": 6}}  # and here it crashes
    again = Planner(streams, **options).start()
    assert again.at == {name: {"0": 3}}
    assert again.batch() == values(3, 3)


def test_a_query_that_finished_a_batch_begins_anew_without_its_checkpoint(streams: Streams) -> None:
    name = streams.declare()
    options = {"subscribe": name, "consumerGroup": f"group of {name}"}
    before = Planner(streams, **options).start()
    streams.fill(name, values(3))
    before.batch()
    before.end()  # which says that the batch is done
    streams.fill(name, values(3))
    assert Planner(streams, **options).start().at == {name: {"0": 6}}


def test_a_query_with_another_start_does_not_take_over_the_one_before(streams: Streams) -> None:
    name = streams.declare()
    streams.fill(name, values(3))
    group = f"group of {name}"
    Planner(streams, subscribe=name, consumerGroup=group).start()
    earliest = Planner(streams, subscribe=name, consumerGroup=group, startingOffsets="earliest")
    assert earliest.start().at == {name: {"0": 0}}


def test_a_group_with_members_is_not_for_queries(streams: Streams) -> None:
    name = streams.declare()
    member = streams.client.group(f"group of {name}", [name])
    try:
        planner = Planner(streams, subscribe=name, consumerGroup=f"group of {name}")
        with pytest.raises(OptionError, match="has members; a query needs a group of its own"):
            planner.start()
    finally:
        member.close()


# Limits


def test_limits_are_told_to_spark(streams: Streams) -> None:
    name = streams.declare()

    def limit(**options: int) -> ReadLimit:
        return Planner(streams, subscribe=name, **options).reader.getDefaultReadLimit()

    assert limit() == ReadAllAvailable()
    assert limit(maxOffsetsPerTrigger=5) == ReadMaxRows(5)
    assert limit(maxBytesPerTrigger=5) == ReadMaxBytes(5)
    assert limit(minOffsetsPerTrigger=5) == ReadMinRows(5)


def test_batches_are_no_larger_than_said_and_lose_nothing(streams: Streams) -> None:
    name = streams.declare(partitions=2)
    streams.fill(name, values(10), 0)
    streams.fill(name, values(30, 100), 1)
    planner = Planner(streams, subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger=7)
    planner.start()
    batches = []
    while found := planner.batch():
        batches.append(found)
    assert [len(each) for each in batches] == [7, 7, 7, 7, 7, 5]
    assert sorted(value for batch in batches for value in batch) == sorted(
        values(10) + values(30, 100)
    )
    assert any(value in batches[0] for value in values(10))  # the small one gets its share


def test_a_trigger_that_takes_all_heeds_no_limit(streams: Streams) -> None:
    name = streams.declare()
    streams.fill(name, values(30))
    planner = Planner(streams, subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger=7)
    assert len(planner.start().batch(ReadAllAvailable())) == 30


def test_bytes_limit_a_batch_by_the_size_of_records(streams: Streams) -> None:
    name = streams.declare()
    streams.fill(name, [bytes(1000)] * 100)
    planner = Planner(
        streams, subscribe=name, startingOffsets="earliest", maxBytesPerTrigger=20_000
    )
    assert 15 <= len(planner.start().batch()) <= 20
    tiny = Planner(streams, subscribe=name, startingOffsets="earliest", maxBytesPerTrigger=1)
    assert len(tiny.start().batch()) == 1  # it goes on, whatever the limit


def test_a_batch_waits_for_enough_records(streams: Streams) -> None:
    name = streams.declare()
    planner = Planner(
        streams,
        subscribe=name,
        startingOffsets="earliest",
        minOffsetsPerTrigger=10,
        maxOffsetsPerTrigger=15,
        maxTriggerDelay="1 day",
    )
    planner.start()
    streams.fill(name, values(1))
    assert len(planner.batch()) == 1  # nothing has been held back for so long as the first
    streams.fill(name, values(9))
    assert planner.batch() == []
    streams.fill(name, values(20))
    assert len(planner.batch()) == 15
    assert len(planner.batch()) == 14
    assert planner.batch() == []


def test_a_batch_waits_no_longer_than_said(streams: Streams) -> None:
    name = streams.declare()
    planner = Planner(
        streams,
        subscribe=name,
        startingOffsets="earliest",
        minOffsetsPerTrigger=10,
        maxTriggerDelay="50ms",
    )
    planner.start()
    for _ in range(2):
        streams.fill(name, values(1))
        eventually(planner.batch, "the delay to be over")


def test_what_comes_after_an_available_now_query_began_is_left(streams: Streams) -> None:
    name = streams.declare()
    streams.fill(name, values(12))
    planner = Planner(
        streams,
        subscribePattern=f"{name}.*",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=10,
        minOffsetsPerTrigger=5,
        maxTriggerDelay="1 day",
    )
    planner.start()
    planner.reader.prepareForTriggerAvailableNow()
    streams.fill(name, values(30))
    other = streams.declare_as(f"{name}-new")
    streams.fill(other, values(3))
    assert [len(planner.batch()) for _ in range(3)] == [10, 2, 0]  # less than the minimum, too
    assert numbers_of(planner.reader.reportLatestOffset()) == {name: {"0": 42}, other: {"0": 3}}
    streams.delete(other)


def test_large_ranges_are_split_among_tasks(streams: Streams) -> None:
    name = streams.declare(partitions=2)
    streams.fill(name, values(90), 0)
    streams.fill(name, values(10), 1)
    planner = Planner(streams, subscribe=name, startingOffsets="earliest", minPartitions=10).start()
    assert len(planner.reader.partitions(planner.at, planner.end())) == 10
    assert len(planner.batch()) == 100


# Streams that come and go


def test_new_streams_of_a_pattern_are_read_from_their_start(streams: Streams) -> None:
    name = streams.declare()
    planner = Planner(streams, subscribePattern=f"{name}.*").start()
    other = streams.declare_as(f"{name}-new", partitions=2)
    streams.fill(other, values(3), 1)
    assert planner.batch() == values(3)
    assert planner.batch() == []
    streams.delete(other)


def test_a_pattern_may_match_nothing_at_first(streams: Streams) -> None:
    name = streams.scene.queue_name()
    planner = Planner(streams, subscribePattern=name).start()
    assert planner.batch() == []
    streams.declare_as(name)
    streams.fill(name, values(3))
    assert planner.batch() == values(3)


def test_a_query_goes_on_with_other_options(streams: Streams) -> None:
    """The checkpoint has a stream that is not subscribed to now, and lacks one that is."""
    one, two, three = (streams.declare() for _ in range(3))
    for name in (one, two, three):
        streams.fill(name, [name.encode()])
    before = Planner(streams, subscribe=f"{one},{two}", startingOffsets="earliest").start()
    assert sorted(before.batch()) == sorted([one.encode(), two.encode()])
    after = Planner(streams, subscribePattern=f"{two}|{three}", maxOffsetsPerTrigger=5)
    after.whole = before.whole
    streams.fill(two, [b"more"])
    assert sorted(after.batch()) == sorted([b"more", three.encode()])
    assert set(after.at) == {two, three}


def test_a_stream_that_is_deleted_is_a_loss(streams: Streams) -> None:
    name, other = streams.declare(), streams.declare()
    options = {"subscribe": f"{name},{other}", "startingOffsets": "earliest"}
    failing, skipping = (Planner(streams, **options, failOnDataLoss=fail) for fail in (True, False))
    for planner in (failing.start(), skipping.start()):
        planner.batch()
    streams.delete(other)
    streams.fill(name, values(1))
    with pytest.raises(DataLossError, match=f"stream '{other}' partition 0 was deleted"):
        failing.batch()
    assert skipping.batch() == values(1)
    assert skipping.batch() == []


def test_a_stream_that_is_declared_again_is_a_loss(streams: Streams) -> None:
    name = streams.declare()
    streams.fill(name, values(5))
    options = {"subscribe": name, "startingOffsets": "earliest"}
    failing, skipping = (Planner(streams, **options, failOnDataLoss=fail) for fail in (True, False))
    for planner in (failing.start(), skipping.start()):
        assert len(planner.batch()) == 5
    streams.delete(name)
    streams.declare_as(name)
    streams.fill(name, values(2, 10))
    with pytest.raises(DataLossError, match="was deleted and declared again"):
        failing.batch()
    assert skipping.batch() == values(2, 10)
    streams.fill(name, values(1, 20))
    assert skipping.batch() == values(1, 20)


def test_a_stream_that_is_declared_again_is_a_loss_however_much_it_has(streams: Streams) -> None:
    name, other = streams.declare(), streams.declare()
    streams.fill(name, values(5))
    options = {"subscribe": f"{name},{other}", "startingOffsets": "earliest"}
    failing, skipping = (Planner(streams, **options, failOnDataLoss=fail) for fail in (True, False))
    for planner in (failing.start(), skipping.start()):
        assert len(planner.batch()) == 5
    streams.delete(name)
    streams.declare_as(name)
    streams.fill(name, values(25, 10))
    with pytest.raises(DataLossError, match=f"stream '{name}' was deleted and declared again"):
        failing.batch()
    assert skipping.batch() == values(25, 10)
    streams.fill(name, values(1, 40))
    assert skipping.batch() == values(1, 40)


def test_a_batch_of_a_stream_that_was_declared_again_since_is_a_loss(streams: Streams) -> None:
    name = streams.declare()
    streams.fill(name, values(5))
    options = {"subscribe": name, "startingOffsets": "earliest"}
    failing, skipping = (Planner(streams, **options, failOnDataLoss=fail) for fail in (True, False))
    ends = [planner.start().next() for planner in (failing, skipping)]
    streams.delete(name)
    streams.declare_as(name)
    streams.fill(name, values(9, 10))
    with pytest.raises(DataLossError, match="was deleted and declared again"):
        failing.reader.partitions(failing.whole, ends[0])
    assert skipping.reader.partitions(skipping.whole, ends[1]) == []
    skipping.whole = ends[1]
    assert skipping.batch() == values(9, 10)


def test_a_checkpoint_without_uids_goes_on(streams: Streams) -> None:
    name = streams.declare()
    streams.fill(name, values(5))
    planner = Planner(streams, subscribe=name, startingOffsets="earliest").start()
    planner.batch()
    planner.whole = {name: {"0": 5}}  # as earlier versions wrote it
    streams.fill(name, values(2, 5))
    assert planner.batch() == values(2, 5)
    assert UID in planner.whole[name]


def test_a_start_that_is_not_there_is_told(streams: Streams) -> None:
    with pytest.raises(OptionError, match="there is no stream 'nowhere'"):
        Planner(streams, subscribe="nowhere").start()
    name = streams.declare()
    with pytest.raises(OptionError, match=f"there is no stream '{name}' 7"):
        Planner(streams, assign=json.dumps({name: [0, 7]})).start()


# Retention


@pytest.fixture
def short(streams: Streams) -> str:
    """A stream that keeps little."""
    return streams.declare(max_length_bytes=4_000_000, stream_max_segment_size_bytes=500_000)


def overtake(streams: Streams, name: str) -> None:
    """Publish more than is kept, and wait until the first ten are gone."""
    for _ in range(8):
        streams.append(name, [bytes(100_000)] * 20, at_ms=0)
    eventually(lambda: streams.client.offsets(name, "first")[0] > 10, "retention")


def test_retention_that_overtakes_a_query_fails_it_or_is_skipped(
    streams: Streams, short: str
) -> None:
    streams.fill(short, values(5))
    options = {"subscribe": short, "startingOffsets": "earliest"}
    failing, skipping = (Planner(streams, **options, failOnDataLoss=fail) for fail in (True, False))
    for planner in (failing.start(), skipping.start()):
        planner.batch()
    overtake(streams, short)
    following = streams.client.offsets(short, "next")[0]
    with pytest.raises(DataLossError, match=r"offsets 5 to \d+ were deleted by retention"):
        failing.batch()
    assert 0 < len(skipping.batch()) < following - 10
    assert skipping.at == {short: {"0": following}}


def test_retention_that_overtakes_a_task_fails_it_or_is_skipped(
    streams: Streams, short: str
) -> None:
    streams.fill(short, values(5))
    overtake(streams, short)
    broker = stream_options({"url": streams.url, "subscribe": short}).broker
    following = streams.client.offsets(short, "next")[0]
    part = Range(Partition(short, 0), 3, following)
    with pytest.raises(DataLossError, match="offsets 3 to"):
        list(read_range(broker, Losses(fail=True), ["offset"], part))
    found = [
        offset
        for batch in read_range(broker, Losses(fail=False), ["offset"], part)
        for offset in batch.column("offset").to_pylist()
    ]
    assert found == sorted(set(found))  # retention may go on meanwhile
    assert found[0] > 10
    assert found[-1] == following - 1


def test_a_limit_is_spent_on_what_is_still_there(streams: Streams, short: str) -> None:
    planner = Planner(
        streams,
        subscribe=short,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=4,
        failOnDataLoss="false",
    ).start()
    overtake(streams, short)
    assert planner.end()[short]["0"] > 10 + 4


# A broker that is away


def test_a_broker_that_stays_away_is_told_when_its_time_is_over() -> None:
    given = {"url": "amqp://127.0.0.1:1", "subscribe": "orders", "reconnectTimeout": "0s"}
    reader = StreamReader(full_schema(headers=False), stream_options(given))
    with pytest.raises(ConnectionLostError, match=r"no connection to 127\.0\.0\.1:1"):
        reader.initialOffset()


def test_progress_and_lag_are_seen_at_the_broker(streams: Streams) -> None:
    name = streams.declare(partitions=2)
    group = f"group of {name}"
    planner = Planner(
        streams,
        subscribe=name,
        consumerGroup=group,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=4,
    ).start()

    def lags() -> dict[int, int]:
        with connect(streams.url) as client:
            told = client.describe_group(group).offsets
        return {
            each.committed.partition.number: each.next_offset - each.committed.offset
            for each in told
        }

    streams.fill(name, values(10), 0)
    assert lags() == {0: 10, 1: 0}
    planner.batch()
    assert lags() == {0: 10, 1: 0}  # it is being worked on
    planner.batch()
    assert lags() == {0: 6, 1: 0}
    planner.batch()
    planner.batch()
    assert lags() == {0: 0, 1: 0}
