"""A member of a consumer group in Trio: what it is given, commits, and lets go of."""

from collections import Counter

import pytest
import trio

from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Status
from clients.stream_errors import FencedError, RefusedError
from clients.trio_streams import connect_streams
from tests.support.waiting import soon
from tests.trio_streams.conftest import QUICK, at, through

pytestmark = pytest.mark.leveret_only

BEAT_S = 0.02  # so that a member hears of others soon


def numbers(*bounds):
    return [b"%d" % number for number in range(*bounds)]


async def fill(streams, stream, partition, values):
    async with streams.producer(stream) as producer:
        for value in values:
            await producer.send(value, partition=partition)


async def take(consumer, count):
    """The values of the next batches, until there are so many."""
    found = []
    while len(found) < count:
        found += [record.value for record in (await anext(consumer)).records()]
    return found


async def committed(streams, group):
    found = await streams.committed(group)
    return {partition.number: each.offset for partition, each in found.items()}


async def test_a_member_alone_gets_every_partition_and_commits(amqp_url, declare):
    stream = declare(partitions=2)
    async with connect_streams(amqp_url) as streams:
        await fill(streams, stream, 0, [b"a", b"b"])
        await fill(streams, stream, 1, [b"c"])
        async with streams.group(stream, [stream]) as consumer:
            assert sorted(await take(consumer, 3)) == [b"a", b"b", b"c"]
            assert await committed(streams, stream) == {}
            await consumer.commit()
            assert await committed(streams, stream) == {0: 2, 1: 1}
            assert consumer.positions == {
                wire.Partition(stream, 0): 2,
                wire.Partition(stream, 1): 1,
            }
            described = await streams.describe_group(stream)
            assert described.members[0].assigned == consumer.assigned
        assert (await streams.describe_group(stream)).members == ()


async def test_the_next_member_goes_on_where_the_last_committed(amqp_url, stream):
    async with connect_streams(amqp_url) as streams:
        await fill(streams, stream, 0, numbers(10))
        async with streams.group(stream, [stream]) as consumer:
            assert await take(consumer, 10) == numbers(10)
            await consumer.commit({wire.Partition(stream, 0): 4})
        async with streams.group(stream, [stream]) as consumer:
            assert await take(consumer, 6) == numbers(4, 10)


async def test_a_commit_is_of_the_records_that_were_given(amqp_url, stream):
    async with connect_streams(amqp_url) as streams:
        await fill(streams, stream, 0, numbers(10))  # one chunk
        async with streams.group(stream, [stream]) as consumer:
            found = []
            async for partition, record in consumer.records():
                found.append(record.value)
                assert partition == (stream, 0)
                if len(found) == 3:
                    break
            await consumer.commit()
            assert await committed(streams, stream) == {0: 3}
            async for _, record in consumer.records():  # another loop loses nothing
                found.append(record.value)
                if len(found) == 5:
                    break
            found += await take(consumer, 5)  # nor does going on in batches
        assert found == numbers(10)


async def test_without_a_commit_reading_starts_where_it_was_told_to(amqp_url, stream):
    async with connect_streams(amqp_url) as streams:
        await fill(streams, stream, 0, [b"old"])
        assigned = trio.Event()
        async with streams.group(
            stream, [stream], start="next", on_assigned=lambda _: assigned.set()
        ) as consumer:
            found = []
            async with trio.open_nursery() as nursery:

                async def read():
                    found.extend(await take(consumer, 1))

                nursery.start_soon(read)
                await assigned.wait()
                await fill(streams, stream, 0, [b"new"])
        assert found == [b"new"]


async def test_a_batch_that_was_given_and_not_committed_can_be_had_again(amqp_url, stream):
    async with connect_streams(amqp_url) as streams:
        await fill(streams, stream, 0, numbers(3))
        async with streams.group(stream, [stream]) as consumer:
            assert await take(consumer, 3) == numbers(3)
            await consumer.rewind()
            assert await take(consumer, 3) == numbers(3)
            await consumer.commit()
            await consumer.rewind()
            await fill(streams, stream, 0, [b"3"])
            assert await take(consumer, 1) == [b"3"]


async def test_partitions_move_when_their_owner_has_let_go_of_them(amqp_url, declare):
    stream = declare(partitions=2)
    events = []
    async with connect_streams(amqp_url) as streams:
        await fill(streams, stream, 0, [b"a"])
        await fill(streams, stream, 1, [b"b"])

        async def revoked(partitions):
            await first.commit()
            events.append(("revoked", partitions))

        async with streams.group(stream, [stream], heartbeat_s=BEAT_S, on_revoked=revoked) as first:
            assert sorted(await take(first, 2)) == [b"a", b"b"]
            async with streams.group(
                stream,
                [stream],
                heartbeat_s=BEAT_S,
                on_assigned=lambda partitions: events.append(("assigned", partitions)),
            ) as second:
                found = []
                async with trio.open_nursery() as nursery:

                    async def read(consumer):
                        async for _, record in consumer.records():
                            found.append(record.value)

                    nursery.start_soon(read, first)
                    nursery.start_soon(read, second)
                    await soon(lambda: len(second.assigned) == 1, "a share")
                    assert first.assigned + second.assigned in (
                        ((stream, 0), (stream, 1)),
                        ((stream, 1), (stream, 0)),
                    )
                    for partition in (0, 1):
                        await fill(streams, stream, partition, [b"%d" % partition])
                    await soon(lambda: len(found) >= 2, "what is new")
                    nursery.cancel_scope.cancel()
                assert sorted(found) == [b"0", b"1"]  # and nothing that was committed
                assert events == [("revoked", second.assigned), ("assigned", second.assigned)]


async def test_a_member_lets_go_of_nothing_while_its_batch_is_worked_on(amqp_url, declare):
    stream = declare(partitions=2)
    async with connect_streams(amqp_url) as streams:
        for partition in (0, 1):
            await fill(streams, stream, partition, numbers(5))
        async with streams.group(stream, [stream], heartbeat_s=BEAT_S) as first:
            await anext(first)
            await anext(first)
            async with streams.group(stream, [stream], heartbeat_s=BEAT_S) as second:
                await soon(lambda: first.core.has_news, "the first to hear of the second")
                with trio.move_on_after(5 * BEAT_S):
                    pytest.fail(f"it was given {await anext(second)}")
                assert second.assigned == ()
                await first.commit()  # of both: they are still its own
                assert await committed(streams, stream) == {0: 5, 1: 5}


async def test_records_of_a_partition_that_was_let_go_of_are_not_given(amqp_url, declare):
    stream = declare(partitions=2)
    async with connect_streams(amqp_url) as streams:
        for partition in (0, 1):
            await fill(streams, stream, partition, numbers(5))

        async def commit(_):
            await first.commit()

        async with streams.group(stream, [stream], heartbeat_s=BEAT_S, on_revoked=commit) as first:
            given = [await anext(first.records())]  # four are left of its chunk
            async with streams.group(stream, [stream], heartbeat_s=BEAT_S) as second:

                async def read(consumer):
                    async for found in consumer.records():
                        given.append(found)  # noqa: PERF401 - one by one

                await soon(lambda: first.core.has_news, "the first to hear of the second")
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(read, first)
                    nursery.start_soon(read, second)
                    await soon(lambda: len(given) >= 10, "all of it")
                    nursery.cancel_scope.cancel()
    found = sorted((partition.number, int(record.value)) for partition, record in given)
    assert found == [(partition, number) for partition in (0, 1) for number in range(5)]


async def test_a_member_that_was_given_up_loses_its_partitions_and_joins_anew(door):
    await at(door, door.streams.declare, "s", 2)
    lost = []
    async with connect_streams(door.url) as streams:
        await fill(streams, "s", 0, numbers(3))
        async with streams.group("g", ["s"], heartbeat_s=BEAT_S, on_lost=lost.append) as consumer:
            assert await take(consumer, 3) == numbers(3)
            name = consumer.core.membership.assignment.member
            await at(door, door.streams.groups["g"].leave, name, 0)
            with pytest.raises(RefusedError) as caught:
                await consumer.commit()
            assert caught.value.status == Status.UNKNOWN_MEMBER
            await soon(lambda: consumer.core.membership.lost, "a heartbeat")
            assert await take(consumer, 3) == numbers(3), "it was not committed"
            assert lost == [(("s", 0), ("s", 1))]
            await consumer.commit()
            assert await committed(streams, "g") == {0: 3, 1: 0}


async def test_a_member_that_another_process_replaced_is_fenced(amqp_url, stream):
    async with connect_streams(amqp_url) as streams:
        await fill(streams, stream, 0, numbers(3))
        async with streams.group(stream, [stream], instance="i", heartbeat_s=BEAT_S) as first:
            assert await take(first, 3) == numbers(3)
            async with streams.group(stream, [stream], instance="i") as second:
                with pytest.raises(FencedError, match="MEMBER_FENCED"):
                    await first.commit()
                with pytest.raises(FencedError, match="MEMBER_FENCED"):
                    await anext(first)
                assert await take(second, 3) == numbers(3)
                await second.commit()


async def test_an_offset_that_retention_took_is_put_where_reading_starts(door):
    (partition, _) = await at(door, door.streams.declare, "s", 2)
    async with connect_streams(door.url) as streams:
        await fill(streams, "s", 0, numbers(2))
        await streams.reset_offsets("g", {wire.Partition("s", 0): 0})
        partition.first_offset = 2
        await fill(streams, "s", 0, [b"2"])
        async with streams.group("g", ["s"]) as consumer:
            assert await take(consumer, 1) == [b"2"]


async def test_a_member_goes_on_when_its_connections_are_cut(proxy, amqp_url, declare):
    stream, found = declare(partitions=3), []
    async with connect_streams(amqp_url) as streams:
        for partition in range(3):
            for start in range(0, 40, 10):
                await fill(streams, stream, partition, numbers(start, start + 10))
    async with (
        connect_streams(through(proxy), reconnect=QUICK) as streams,
        streams.group(stream, [stream], heartbeat_s=BEAT_S, fetch_bytes=1) as consumer,
    ):
        async for batch in consumer:
            found += [(batch.partition.number, int(each.value)) for each in batch.records()]
            proxy.cut()
            await consumer.commit()
            if len(found) == 120:
                break
        assert await committed(streams, stream) == {0: 40, 1: 40, 2: 40}
    assert Counter(found) == Counter((part, number) for part in range(3) for number in range(40))
    for partition in range(3):
        ours = [number for part, number in found if part == partition]
        assert ours == sorted(ours)


async def test_waiting_for_a_batch_can_be_cancelled_and_loses_nothing(amqp_url, stream):
    async with connect_streams(amqp_url) as streams:
        async with streams.group(stream, [stream], heartbeat_s=BEAT_S) as consumer:
            found = []
            for number in range(5):
                with trio.move_on_after(0.03):
                    found += await take(consumer, 1)
                await fill(streams, stream, 0, [b"%d" % number])
            found += await take(consumer, 5 - len(found))
        assert found == numbers(5)


async def test_a_group_without_streams_to_read_is_refused(amqp_url):
    async with connect_streams(amqp_url) as streams:
        with pytest.raises(RefusedError, match="STREAM_NOT_FOUND"):
            async with streams.group("g", ["no such stream"]):
                pytest.fail("it joined")
