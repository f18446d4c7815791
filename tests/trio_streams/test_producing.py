"""An idempotent producer: what is written, once and in order, whatever is lost on the way."""

from zlib import crc32

import pytest
import trio

from broker.protocol.chunk import Chunk
from broker.protocol.stream_wire import Refused, Status
from clients.stream_errors import ClientClosedError, FencedError, RefusedError
from clients.trio_streams import connect_streams
from tests.clients.tcp_proxy import CuttableProxy
from tests.support.frames import Queue
from tests.support.waiting import soon
from tests.trio_streams.conftest import QUICK, at, through

pytestmark = pytest.mark.leveret_only


def numbers(count):
    return [b"%d" % number for number in range(count)]


async def values(streams, stream, partition=0):
    return [record.value async for record in streams.reader(stream, partition)]


async def test_publish_returns_the_offset_when_the_record_is_durable(amqp_url, stream):
    async with connect_streams(amqp_url) as streams, streams.producer(stream) as producer:
        for number in range(5):
            assert await producer.publish(b"%d" % number) == number
            assert (producer.confirmed, producer.unconfirmed_bytes) == (number + 1, 0)
        assert await values(streams, stream) == numbers(5)


async def test_all_that_was_sent_is_durable_at_the_end_of_the_block(amqp_url, stream):
    async with connect_streams(amqp_url) as streams:
        async with streams.producer(stream, linger_s=3600) as producer:
            for value in numbers(1000):
                await producer.send(value)
            assert producer.confirmed == 0
        assert producer.confirmed == 1000
        assert producer.next_offsets == {0: 1000}
        assert await values(streams, stream) == numbers(1000)


async def test_a_flush_waits_for_what_was_sent_before(door):
    await at(door, door.streams.declare, "s")
    async with (
        connect_streams(door.url) as streams,
        streams.producer("s", linger_s=3600) as producer,
    ):
        await producer.send(b"a")
        await producer.flush()
        assert producer.confirmed == 1
        await at(door, door.streams.hold)
        await producer.send(b"b")
        with trio.move_on_after(0.05) as scope:
            await producer.flush()
        assert scope.cancelled_caught
        await at(door, door.streams.release)
        await producer.flush()
        assert producer.confirmed == 2


async def test_records_that_come_together_go_in_one_chunk(door):
    (partition,) = await at(door, door.streams.declare, "s")
    offsets = []
    async with (
        connect_streams(door.url) as streams,
        streams.producer("s") as producer,
        trio.open_nursery() as nursery,
    ):

        async def publish(number):
            offsets.append(await producer.publish(b"%d" % number))

        for number in range(50):
            nursery.start_soon(publish, number)
    assert sorted(offsets) == list(range(50))
    assert [header.records for header, _ in partition.chunks] == [50]


async def test_a_full_batch_goes_at_once(door):
    (partition,) = await at(door, door.streams.declare, "s")
    async with (
        connect_streams(door.url) as streams,
        streams.producer("s", batch_bytes=1000, linger_s=3600) as producer,
    ):
        for _ in range(10):
            await producer.send(bytes(500))
        await soon(lambda: producer.confirmed == 10, "all of it")
    assert [header.records for header, _ in partition.chunks] == [2] * 5


async def test_a_key_has_one_partition_and_the_rest_is_spread(amqp_url, declare):
    stream = declare(partitions=4)
    async with connect_streams(amqp_url) as streams:
        async with streams.producer(stream, batch_bytes=1000) as producer:
            for number in range(400):
                await producer.send(bytes(50), key=b"%d" % (number % 10))
            for _ in range(400):
                await producer.send(bytes(50))
            await producer.send(b"chosen", partition=2)
            with pytest.raises(ValueError, match="no partition 4"):
                await producer.send(b"", partition=4)
        owners, sizes = {}, []
        for number in range(4):
            found = [record async for record in streams.reader(stream, number)]
            sizes.append(len(found))
            for record in found:
                if record.key is not None:
                    owners.setdefault(record.key, set()).add(number)
                assert record.value != b"chosen" or number == 2
    assert owners == {key: {crc32(key) % 4} for key in owners}
    assert len(owners) == 10
    assert sum(sizes) == 801
    assert min(sizes) > 60


async def test_senders_wait_while_much_is_unconfirmed(door):
    await at(door, door.streams.declare, "s")
    await at(door, door.streams.hold)
    sent = []
    async with connect_streams(door.url) as streams:
        async with (
            streams.producer("s", window_bytes=10_000) as producer,
            trio.open_nursery() as nursery,
        ):

            async def send():
                for number in range(100):
                    await producer.send(bytes(1000))
                    sent.append(number)

            nursery.start_soon(send)
            await soon(lambda: len(sent) == 10, "a full window")
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert len(sent) == 10
            with trio.move_on_after(0.01) as scope:
                await producer.send(b"not sent")
            assert scope.cancelled_caught
            await at(door, door.streams.release)
        assert producer.confirmed == 100, "what was cancelled has not happened"


async def test_a_publish_that_was_cancelled_may_happen(door):
    await at(door, door.streams.declare, "s")
    await at(door, door.streams.hold)
    async with connect_streams(door.url) as streams:
        async with streams.producer("s") as producer:
            with trio.move_on_after(0.05) as scope:
                await producer.publish(b"a")
            assert scope.cancelled_caught
            await at(door, door.streams.release)
            assert await producer.publish(b"b") == 1
        assert await values(streams, "s") == [b"a", b"b"]


async def test_nothing_is_lost_or_doubled_though_the_connection_is_cut(proxy, amqp_url, declare):
    stream, count = declare(partitions=2), 4000
    async with connect_streams(through(proxy), reconnect=QUICK) as streams:
        async with streams.producer(stream, batch_bytes=500) as producer:
            for number in range(count):
                await producer.send(b"%d" % number, partition=number % 2)
                if number % 500 == 499:
                    proxy.cut()
        assert producer.confirmed == count
        assert streams.reconnects > 0
    async with connect_streams(amqp_url) as streams:
        for partition in range(2):
            assert await values(streams, stream, partition) == numbers(count)[partition::2]


async def test_answers_that_were_lost_are_asked_for_again(door):
    (partition,) = await at(door, door.streams.declare, "s")
    proxy = CuttableProxy(("127.0.0.1", door.port))
    offsets = []
    try:
        async with connect_streams(through(proxy), reconnect=QUICK) as streams:
            async with streams.producer("s", batch_bytes=1) as producer:
                await producer.publish(b"a")
                await at(door, door.streams.hold)

                async def publish(value):
                    offsets.append(await producer.publish(value))

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(publish, b"b")
                    await soon(lambda: len(door.streams.held) == 1, "a chunk")
                    nursery.start_soon(publish, b"c")
                    await soon(lambda: len(door.streams.held) == 2, "both chunks")
                    proxy.cut()
                    await at(door, door.streams.release)  # both are stored; the answers are lost
            assert await values(streams, "s") == [b"a", b"b", b"c"]
    finally:
        proxy.close()
    assert partition.next_offset == 3
    assert sorted(offsets) == [1, 2]


async def test_a_broker_that_is_killed_and_started_again_has_all_of_it_once(killable):
    killable.declare("s", 2)
    count = 6000
    async with connect_streams(killable.url, reconnect=QUICK) as streams:
        async with streams.producer("s", batch_bytes=500, name="p") as producer:
            for number in range(count):
                await producer.send(b"%d" % number, partition=number % 2)
                if number in (1000, 4000):
                    await soon(lambda half=number // 2: producer.confirmed >= half, "half of it")
                    await killable.kill_and_start()
        for partition in range(2):
            assert await values(streams, "s", partition) == numbers(count)[partition::2]
        assert streams.reconnects >= 2


async def test_a_producer_of_the_same_name_fences_the_older(amqp_url, stream):
    async with connect_streams(amqp_url) as streams:
        with pytest.raises(FencedError, match="PRODUCER_FENCED"):  # noqa: PT012
            async with streams.producer(stream, name=f"p of {stream}") as older:
                async with streams.producer(stream, name=f"p of {stream}") as newer:
                    await newer.send(b"newer")
                for _ in range(2):  # and it stays so
                    with pytest.raises(FencedError):
                        await older.publish(b"older")
        assert await values(streams, stream) == [b"newer"]


async def test_a_producer_of_a_stream_that_is_deleted_ends(amqp_url, stream, channel):
    async with connect_streams(amqp_url) as streams:
        with pytest.raises(RefusedError) as caught:  # noqa: PT012
            async with streams.producer(stream) as producer:
                await producer.publish(b"a")
                channel.rpc(Queue.Delete(queue=stream))
                await producer.publish(b"b")
    assert caught.value.status == Status.STREAM_NOT_FOUND


async def test_a_producer_whose_numbers_are_used_up_begins_an_epoch(door):
    (partition,) = await at(door, door.streams.declare, "s")
    async with connect_streams(door.url) as streams:
        async with streams.producer("s", name="p") as producer:
            await producer.publish(b"a")
            producer._outbox.sequences[0] = 2**32
            assert await producer.publish(b"b") == 1
        assert await values(streams, "s") == [b"a", b"b"]
    assert Chunk(partition.chunks[1][1]).header.producer == (1, 1, 0)


async def test_a_record_that_fits_no_request_is_refused_at_once(amqp_url, stream):
    async with connect_streams(amqp_url) as streams, streams.producer(stream) as producer:
        with pytest.raises(ValueError, match="bytes"):
            await producer.send(bytes(8 << 20))
        assert await producer.publish(b"fits") == 0


async def test_a_block_that_raises_does_not_wait_for_what_it_sent(door):
    await at(door, door.streams.declare, "s")
    await at(door, door.streams.hold)
    async with connect_streams(door.url) as streams:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with streams.producer("s") as producer:
                await producer.send(b"a")
                raise ZeroDivisionError
        with pytest.raises(ClientClosedError):
            await producer.send(b"b")
        await at(door, door.streams.release)


async def test_a_broker_that_cannot_answer_now_is_asked_again(door):
    """As in a cluster whose leader was lost."""
    (partition,) = await at(door, door.streams.declare, "s")
    append, refusals = door.streams.append, [3]

    def refuse_some(caller, request, then):
        if refusals[0]:
            refusals[0] -= 1
            then(Refused(Status.UNAVAILABLE, "no leader"))
        else:
            append(caller, request, then)

    door.streams.append = refuse_some
    async with connect_streams(door.url, reconnect=QUICK) as streams:
        async with streams.producer("s", batch_bytes=1) as producer:
            for value in numbers(20):
                await producer.send(value)
        assert await values(streams, "s") == numbers(20)
    assert partition.next_offset == 20
    assert refusals == [0]
