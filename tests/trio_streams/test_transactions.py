"""Transactions in Trio: visible whole or not at all, once, with offsets."""

import pytest
import trio

from broker.protocol.stream_wire import Status
from clients.stream_errors import FencedError, RefusedError
from clients.trio_streams import connect_streams
from tests.support.waiting import soon
from tests.trio_streams.conftest import QUICK, at, through

pytestmark = pytest.mark.leveret_only


def numbers(count):
    return [b"%d" % number for number in range(count)]


async def values(streams, stream, partitions=1):
    return [
        record.value
        for partition in range(partitions)
        async for record in streams.reader(stream, partition)
    ]


async def fill(streams, stream, values):
    async with streams.producer(stream) as producer:
        for value in values:
            await producer.send(value)


async def test_rows_are_visible_together_when_the_block_ends(amqp_url, declare):
    one, two = declare(), declare(partitions=2)
    async with connect_streams(amqp_url) as streams:
        producer = await streams.transactions(one)
        async with producer.transaction(one, two) as out:
            for value in numbers(20):
                await out.send(one, value)
                await out.send(two, value, key=value)
            assert await values(streams, one) == []
        assert producer.last == 0
        assert await values(streams, one) == numbers(20)
        assert sorted(await values(streams, two, 2)) == sorted(numbers(20))


async def test_a_block_that_raises_leaves_nothing(amqp_url, stream):
    async with connect_streams(amqp_url) as streams:
        producer = await streams.transactions(stream)
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with producer.transaction(stream) as out:
                await out.send(stream, bytes(2_000_000))  # is staged at once
                raise ZeroDivisionError
        with trio.CancelScope() as scope:
            async with producer.transaction(stream) as out:
                await out.send(stream, b"cancelled")
                scope.cancel()
                await trio.lowlevel.checkpoint()
        assert await values(streams, stream) == []
        async with producer.transaction(stream) as out:
            await out.send(stream, b"kept")
        assert await values(streams, stream) == [b"kept"]


async def test_a_stream_that_was_not_named_cannot_be_written_to(amqp_url, stream):
    async with connect_streams(amqp_url) as streams:
        producer = await streams.transactions(stream)
        with pytest.raises(ValueError, match="was not named"):
            async with producer.transaction() as out:
                await out.send(stream, b"")
        with pytest.raises(RefusedError, match="STREAM_NOT_FOUND"):
            async with producer.transaction("no such stream"):
                pytest.fail("there is none")


async def test_offsets_are_committed_with_the_rows(amqp_url, declare):
    source, target = declare(), declare()
    async with connect_streams(amqp_url) as streams:
        await fill(streams, source, numbers(5))
        producer = await streams.transactions(target)
        async with streams.group(target, [source]) as consumer:
            batch = await anext(consumer)
            with pytest.raises(ZeroDivisionError):  # noqa: PT012
                async with producer.transaction(target, offsets_of=consumer) as out:
                    await out.send(target, b"never")
                    raise ZeroDivisionError
            assert await streams.committed(target) == {}
            await consumer.rewind()
            batch = await anext(consumer)
            async with producer.transaction(target, offsets_of=consumer) as out:
                for record in batch.records():
                    await out.send(target, record.value)
            [offset] = (await streams.committed(target)).values()
            assert offset.offset == 5
        assert await values(streams, target) == numbers(5)


async def test_a_member_that_was_replaced_cannot_commit_rows(amqp_url, declare):
    source, target = declare(), declare()
    async with connect_streams(amqp_url) as streams:
        await fill(streams, source, numbers(5))
        producer = await streams.transactions(target)
        async with streams.group(target, [source], instance="i", heartbeat_s=3600) as zombie:
            await anext(zombie)
            async with streams.group(target, [source], instance="i") as consumer:
                await anext(consumer)
                with pytest.raises(RefusedError) as caught:
                    async with producer.transaction(target, offsets_of=zombie) as out:
                        await out.send(target, b"of the dead")
                assert caught.value.status == Status.TRANSACTION_ABORTED
                async with producer.transaction(target, offsets_of=consumer) as out:
                    await out.send(target, b"of the living")
        assert await values(streams, target) == [b"of the living"]


async def test_a_producer_that_starts_anew_fences_its_former_self(amqp_url, stream):
    async with connect_streams(amqp_url) as streams:
        former = await streams.transactions(stream)
        with pytest.raises(FencedError, match="TRANSACTION_FENCED"):  # noqa: PT012
            async with former.transaction(stream) as out:
                await out.send(stream, b"former")
                await streams.transactions(stream)
        assert await values(streams, stream) == []


async def test_a_commit_that_was_cancelled_is_not_taken_for_the_next(door):
    """The broker did commit; its answer never came."""
    await at(door, door.streams.declare, "s")
    commit, kept = door.streams.commit, []

    def commit_and_keep_the_first_answer(caller, request, then):
        commit(caller, request, then if kept else kept.append)

    door.streams.commit = commit_and_keep_the_first_answer
    async with connect_streams(door.url) as streams:
        producer = await streams.transactions("p")
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def write():
                    async with producer.transaction("s") as out:
                        await out.send("s", b"one")

                nursery.start_soon(write)
                await soon(lambda: kept, "the commit")
                scope.cancel()
        assert producer.last == -1, "nobody knows"
        async with producer.transaction("s") as out:
            assert producer.last == 0, "now it is known"
            await out.send("s", b"two")
        assert await values(streams, "s") == [b"one", b"two"]


async def test_transactions_go_on_though_the_connection_is_cut(proxy, amqp_url, declare):
    stream = declare(partitions=2)
    async with connect_streams(through(proxy), reconnect=QUICK) as streams:
        producer = await streams.transactions(stream)
        for value in numbers(30):
            async with producer.transaction(stream) as out:
                for partition in range(2):
                    await out.send(stream, value, partition=partition)
                proxy.cut()
        assert producer.last == 29
    async with connect_streams(amqp_url) as streams:
        assert await values(streams, stream, 2) == 2 * numbers(30)
