"""Reading a partition: what comes, from where, and after what."""

import pytest
import trio

from broker.protocol.chunk import encode_chunk
from broker.protocol.stream_errors import CorruptChunkError, OffsetOutOfRangeError
from clients.trio_streams import connect_streams
from tests.trio_streams.conftest import QUICK, at, through

pytestmark = pytest.mark.leveret_only


def numbers(*bounds):
    return [b"%d" % number for number in range(*bounds)]


async def fill(streams, stream, values, **options):
    """One chunk for each ten."""
    async with streams.producer(stream) as producer:
        for start in range(0, len(values), 10):
            for value in values[start : start + 10]:
                await producer.send(value, **options)
            await producer.flush()


async def test_records_come_in_order_with_all_that_they_have(amqp_url, stream):
    async with connect_streams(amqp_url) as streams:
        async with streams.producer(stream) as producer:
            await producer.send(b"one", key=b"k", headers={"a": 1, "b": "two"})
            await producer.send(None, key=b"k")
            await producer.send(b"three")
        first, second, third = [record async for record in streams.reader(stream)]
    assert (first.offset, first.key, first.value) == (0, b"k", b"one")
    assert first.headers == {"a": 1, "b": "two"}
    assert (second.key, second.value, second.headers) == (b"k", None, {})
    assert (third.offset, third.key, third.value) == (2, None, b"three")


@pytest.mark.parametrize("fetch_bytes", [1, 1000, 1 << 20])
async def test_a_reader_gives_the_records_of_its_range(amqp_url, stream, fetch_bytes):
    async with connect_streams(amqp_url) as streams:
        await fill(streams, stream, numbers(50))
        reader = streams.reader(stream, 0, 7, end=43, fetch_bytes=fetch_bytes)
        assert [record.value async for record in reader] == numbers(7, 43)
        assert reader.offset == 43


async def test_a_reader_starts_at_a_place(amqp_url, declare):
    stream = declare(partitions=2)
    async with connect_streams(amqp_url) as streams:
        await fill(streams, stream, numbers(25), partition=1)
        for place, expected in (("first", numbers(25)), ("last", [b"24"]), ("next", [])):
            reader = streams.reader(stream, 1, place)
            assert [record.value async for record in reader] == expected
            assert reader.offset == 25
        assert await streams.offsets(stream, "next") == {0: 0, 1: 25}
        assert await streams.offsets(stream, "last", [1]) == {1: 24}
        [record] = [each async for each in streams.reader(stream, 1, "last")]
        assert (await streams.offsets(stream, record.timestamp_ms + 60_000, [1])) == {1: 25}


async def test_chunks_come_as_they_are_stored(amqp_url, stream):
    async with connect_streams(amqp_url) as streams:
        await fill(streams, stream, numbers(20))
        reader = streams.reader(stream, 0, 5)
        found = []
        async for piece in reader.slices():
            found += [record.value for record in piece.records()]
            assert reader.offset == piece.chunk.header.end_offset
        assert found == numbers(5, 20)


async def test_a_reader_that_follows_gets_what_comes_later(amqp_url, stream):
    async with connect_streams(amqp_url) as streams:
        await fill(streams, stream, [b"a"])
        reader = streams.reader(stream, follow=True)
        assert (await anext(reader)).value == b"a"
        async with trio.open_nursery() as nursery:
            found = []

            async def read():
                found.append((await anext(reader)).value)

            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            await fill(streams, stream, [b"b"])
        assert found == [b"b"]


async def test_a_reader_goes_on_where_it_was_when_its_connection_is_lost(proxy, amqp_url, stream):
    async with connect_streams(amqp_url) as streams:
        await fill(streams, stream, numbers(200))
    found = []
    async with connect_streams(through(proxy), reconnect=QUICK) as streams:
        async for record in streams.reader(stream, fetch_bytes=1):
            found.append(record.value)
            if len(found) % 35 == 0:
                proxy.cut()
        assert streams.reconnects > 0
    assert found == numbers(200)


async def test_a_reader_that_was_cancelled_goes_on_with_the_same_record(door):
    await at(door, door.streams.declare, "s")
    async with connect_streams(door.url) as streams:
        await fill(streams, "s", numbers(30))
        reader = streams.reader("s", fetch_bytes=1)
        found = [(await anext(reader)).value for _ in range(15)]
        with trio.CancelScope() as scope:  # also between records that are there
            scope.cancel()
            while True:
                found.append((await anext(reader)).value)
        await at(door, door.streams.hold)
        with trio.move_on_after(0.05):  # and while it waits for more
            while True:
                found.append((await anext(reader)).value)
        await at(door, door.streams.release)
        found += [record.value async for record in reader]
    assert found == numbers(30)


async def test_an_offset_out_of_range_is_told_with_the_range(amqp_url, stream):
    async with connect_streams(amqp_url) as streams:
        await fill(streams, stream, numbers(3))
        with pytest.raises(OffsetOutOfRangeError) as caught:
            await anext(streams.reader(stream, 0, 4))
    assert (caught.value.first_offset, caught.value.next_offset) == (0, 3)


async def test_a_damaged_chunk_is_not_read(door):
    (partition,) = await at(door, door.streams.declare, "s")
    await trio.to_thread.run_sync(door.append, "s", encode_chunk([None], [b"a"], [b""], 1))
    header, data = partition.chunks[0]
    partition.chunks[0] = (header, data[:-1] + b"\1")
    async with connect_streams(door.url) as streams:
        with pytest.raises(CorruptChunkError):
            await anext(streams.reader("s"))


async def test_many_readers_share_a_connection(amqp_url, declare):
    stream = declare(partitions=8)
    async with connect_streams(amqp_url) as streams:
        for partition in range(8):
            await fill(streams, stream, numbers(partition, 20), partition=partition)
        found = {}

        async def read(partition):
            reader = streams.reader(stream, partition)
            found[partition] = [record.value async for record in reader]

        async with trio.open_nursery() as nursery:
            for partition in range(8):
                nursery.start_soon(read, partition)
    assert found == {partition: numbers(partition, 20) for partition in range(8)}
