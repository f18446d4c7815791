"""A batch read gives what was published: everything, or what the options choose."""

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark import StreamQueueSource
from spark.batch_reader import BatchReader
from spark.columns import full_schema
from spark.errors import OptionError
from spark.options import batch_options
from tests.spark.streams import Streams
from tests.support.streams import Publishing

KEYS = st.none() | st.binary(max_size=8)
VALUES = st.none() | st.binary(max_size=40)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1)
HEADERS = st.dictionaries(NAMES, SCALARS | st.text(max_size=8) | st.binary(max_size=8), max_size=3)
RECORDS = st.lists(st.tuples(KEYS, VALUES, HEADERS, st.integers(0, 1)), max_size=30)


def as_kafka_has_them(headers: dict[str, Any]) -> list[tuple[str, bytes | None]] | None:
    def raw(value: Any) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        return value.encode() if isinstance(value, str) else json.dumps(value).encode()

    return [(name, raw(value)) for name, value in headers.items()] or None


@pytest.fixture
def numbered(streams: Streams) -> str:
    """Two partitions, with b"0:0" … b"0:9" and b"1:0" … b"1:9"."""
    name = streams.declare(partitions=2)
    for partition in range(2):
        streams.fill(name, [b"%d:%d" % (partition, n) for n in range(10)], partition)
    return name


def test_a_batch_read_equals_what_was_published(streams: Streams) -> None:
    name = streams.declare(partitions=2)

    @settings(max_examples=10)
    @given(records=RECORDS)
    def check(records: list[tuple[bytes | None, bytes | None, dict[str, Any], int]]) -> None:
        before = streams.next_offsets(name)
        with streams.client.producer(name) as producer:
            for key, value, headers, partition in records:
                producer.send(value, key=key, headers=headers or None, partition=partition)
        start = json.dumps({name: before})
        frame = streams.read(subscribe=name, includeHeaders=True, startingOffsets=start)
        rows = sorted(frame.collect(), key=lambda row: (row.partition, row.offset))
        got = [
            (
                row.key and bytes(row.key),
                row.value and bytes(row.value),
                row.headers
                and [(each.key, each.value and bytes(each.value)) for each in row.headers],
                row.partition,
            )
            for row in rows
        ]
        expected = [
            (key, value, as_kafka_has_them(headers), partition)
            for partition in range(2)
            for key, value, headers, at in records
            if at == partition
        ]
        assert got == expected
        for partition in range(2):
            offsets = [row.offset for row in rows if row.partition == partition]
            first = before[str(partition)]
            assert offsets == list(range(first, first + len(offsets)))

    check()


def test_columns_tell_where_and_when_a_record_was_published(streams: Streams) -> None:
    name = streams.declare(partitions=3)
    streams.append(name, [b"a", b"b"], at_ms=1_700_000_000_123, partition=2)
    frame = streams.read(subscribe=name)
    assert frame.schema == full_schema(headers=False)
    rows = frame.selectExpr("*", "unix_millis(timestamp) AS ms").orderBy("offset").collect()
    found = [
        (each.topic, each.partition, each.offset, each.ms, each.timestampType) for each in rows
    ]
    assert found == [
        (name, 2, 0, 1_700_000_000_123, 0),
        (name, 2, 1, 1_700_000_000_123, 0),
    ]


def test_what_amqp_clients_published_is_read_with_their_headers(streams: Streams) -> None:
    name = streams.declare()
    channel = streams.scene.channel()
    publishing = Publishing(channel)
    for number in range(5):  # each in a chunk of its own
        headers = {"x-partition-key": "k", "number": number}
        publishing.publish("", name, b"body %d" % number, headers=headers)
    publishing.publish("", name, b"")
    rows = streams.read(subscribe=name, includeHeaders="true").orderBy("offset").collect()
    assert [bytes(row.value) for row in rows] == [b"body %d" % n for n in range(5)] + [b""]
    assert [row.key and bytes(row.key) for row in rows] == [b"k"] * 5 + [None]
    numbers = [dict(row.headers)["number"] for row in rows[:5]]
    assert [bytes(number) for number in numbers] == [b"%d" % n for n in range(5)]
    assert rows[5].headers is None


def test_an_empty_stream_has_no_rows(streams: Streams) -> None:
    assert streams.values(subscribe=streams.declare()) == []


def test_a_pattern_that_nothing_matches_has_no_rows(streams: Streams) -> None:
    assert streams.values(subscribePattern="no such stream") == []


def test_streams_are_read_by_name_by_pattern_and_by_partition(
    streams: Streams, numbered: str
) -> None:
    other = streams.declare_as(f"{numbered}-other")
    try:
        streams.fill(other, [b"x"])
        assert streams.values(subscribe=f"{numbered}, {other}")[-1] == b"x"
        assert len(streams.values(subscribePattern=f"{numbered}.*")) == 21
        assert len(streams.values(subscribePattern=numbered)) == 20  # the whole name
        assert streams.values(assign=json.dumps({numbered: [1], other: [0]})) == [
            *[b"1:%d" % n for n in range(10)],
            b"x",
        ]
    finally:
        streams.delete(other)


def test_offsets_choose_what_is_read(streams: Streams, numbered: str) -> None:
    start = json.dumps({numbered: {"0": 8, "1": -2}})
    end = json.dumps({numbered: {"0": -1, "1": 1}})
    got = streams.values(subscribe=numbered, startingOffsets=start, endingOffsets=end)
    assert got == [b"0:8", b"0:9", b"1:0"]


def test_times_choose_what_is_read(streams: Streams) -> None:
    name = streams.declare(partitions=2)
    for partition in range(2):
        for hour in range(4):
            streams.append(name, [b"%d" % hour], at_ms=hour * 3_600_000, partition=partition)
    one, both = 3_600_000, {"0": 3_600_000, "1": 3 * 3_600_000}
    got = streams.values(subscribe=name, startingOffsetsByTimestamp=one)
    assert got == [b"1", b"2", b"3"] * 2
    got = streams.values(subscribe=name, startingOffsetsByTimestamp=json.dumps({name: both}))
    assert got == [b"1", b"2", b"3", b"3"]
    got = streams.values(
        subscribe=name, startingOffsetsByTimestamp=one, endingOffsetsByTimestamp=2 * one
    )
    assert got == [b"1", b"1"]


def test_a_start_may_be_some_time_ago(streams: Streams) -> None:
    name = streams.declare()
    now_ms = time.time_ns() // 1_000_000
    streams.append(name, [b"an hour ago"], at_ms=now_ms - 3_600_000)
    streams.append(name, [b"now"], at_ms=now_ms)
    assert streams.values(subscribe=name, startingOffsets="-10 minutes") == [b"now"]
    assert len(streams.values(subscribe=name, startingOffsets="-3 hours")) == 2
    assert streams.values(subscribe=name, endingOffsets="-10 m") == [b"an hour ago"]


def test_large_partitions_are_split_among_tasks(streams: Streams, numbered: str) -> None:
    frame = streams.read(subscribe=numbered, minPartitions=7)
    assert frame.rdd.getNumPartitions() == 7
    assert len({(row.partition, row.offset) for row in frame.collect()}) == 20


@pytest.mark.parametrize(
    "schema",
    [
        "value binary",
        "offset bigint, key binary",
        "timestampType int",
        "headers array<struct<key: string, value: binary>>, partition int",
        "topic string, timestamp timestamp",
    ],
)
def test_a_schema_chooses_columns(streams: Streams, numbered: str, schema: str) -> None:
    frame = streams.read(schema, subscribe=numbered)
    chosen = frame.schema.fieldNames()
    whole = streams.read(subscribe=numbered, includeHeaders=True).select(*chosen)
    assert sorted(map(repr, frame.collect())) == sorted(map(repr, whole.collect()))
    assert frame.count() == 20


def test_records_of_transactions_are_read_once_they_are_committed(streams: Streams) -> None:
    name = streams.declare(partitions=2)
    transactions = streams.client.transactions(f"for {name}")
    dropped = transactions.key(0)
    writer = transactions.writer(dropped, name)
    writer.send(name, b"dropped", partition=0)
    transactions.abort(dropped, writer.finish())
    kept = transactions.key(1)
    writer = transactions.writer(kept, name)
    writer.send(name, b"a", partition=0)
    writer.send(name, b"b", partition=1)
    parts = writer.finish()
    assert streams.values(subscribe=name) == []
    transactions.commit(kept, parts)
    streams.fill(name, [b"c"])
    assert streams.values(subscribe=name) == [b"a", b"c", b"b"]


def test_a_class_that_was_registered_reads_too(streams: Streams, numbered: str) -> None:
    session = streams.spark.newSession()
    session.dataSource.register(StreamQueueSource)
    other = Streams(streams.url, session)
    assert len(other.values(subscribe=numbered)) == 20
    other.clean_up()


def test_a_wrong_option_is_told_when_the_frame_is_made(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"no option 'subscrib'; is it subscribe\?"):
        spark.read.format("leveret").option("subscrib", "orders").load()


def test_a_stream_that_is_not_there_is_told(streams: Streams) -> None:
    with pytest.raises(PySparkException, match="there is no stream 'nowhere'"):
        streams.values(subscribe="nowhere")


def test_a_wrong_password_is_told(streams: Streams) -> None:
    address = streams.url.replace("guest:guest@", "")
    frame = streams.spark.read.format("leveret").option("subscribe", "orders")
    frame = frame.options(url=address, user="guest", password="wrong")
    with pytest.raises(PySparkException, match="LOGIN_REFUSED"):
        frame.load().count()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": '{"%s": {"0": 11, "1": 0}}'}, "'%s' 0 has records up to offset 10"),
        ({"startingOffsets": '{"%s": {"0": 0}}'}, "startingOffsets: '%s' 1 is not said"),
        (
            {"endingOffsets": '{"%s": {"0": 0, "1": 0, "2": 0}}'},
            "endingOffsets: '%s' 2 is no partition that is read",
        ),
        (
            {
                "startingOffsets": '{"%s": {"0": 5, "1": 0}}',
                "endingOffsets": '{"%s": {"0": 4, "1": 0}}',
            },
            "startingOffsets are behind endingOffsets: '%s' 0",
        ),
    ],
)
def test_offsets_that_do_not_fit_the_stream_are_told(
    streams: Streams, numbered: str, options: dict[str, str], text: str
) -> None:
    given = {name: value.replace("%s", numbered) for name, value in options.items()}
    schema = full_schema(headers=False)
    reader = BatchReader(
        schema, batch_options({"url": streams.url, "subscribe": numbered, **given})
    )
    with pytest.raises(OptionError) as error:
        reader.partitions()
    assert text.replace("%s", numbered) in str(error.value)
