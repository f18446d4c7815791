"""Read for a group, transform, write: each record has its output once, whoever dies in between."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from broker.protocol.stream_wire import Status
from clients import streams as blocking
from clients.backoff import Backoff
from clients.stream_errors import FencedError, RefusedError
from clients.trio_streams import connect_streams
from tests.support.process import ROOT, clean_environment
from tests.support.waiting import soon
from tests.trio_streams.conftest import QUICK, through

pytestmark = pytest.mark.leveret_only

BEAT_S = 0.02


def numbers(*bounds):
    return [b"%d" % number for number in range(*bounds)]


async def fill(streams, stream, partition, values, *, chunk=5):
    async with streams.producer(stream) as producer:
        for start in range(0, len(values), chunk):
            for value in values[start : start + chunk]:
                await producer.send(value, partition=partition)
            await producer.flush()


async def values(streams, stream, partition=0):
    return [record.value async for record in streams.reader(stream, partition)]


async def committed(streams, group):
    found = await streams.committed(group)
    return {partition.number: each.offset for partition, each in found.items()}


async def until_committed(streams, group, offsets):
    while await committed(streams, group) != offsets:
        await trio.lowlevel.checkpoint()


def copier(target, *, stop_after, stop):
    """A handler that copies every record, and says when it has seen so many."""
    seen = []

    async def copy(batch, out):
        for record in batch.records():
            await out.send(target, record.value, partition=batch.partition.number)
            seen.append(record.value)
        if len(seen) >= stop_after:
            stop.set()

    return copy


async def test_what_is_made_of_the_records_and_their_offsets_are_committed_together(
    amqp_url, declare
):
    source, target = declare(partitions=2), declare(partitions=2)
    stop = trio.Event()
    async with connect_streams(amqp_url) as streams:
        for partition in range(2):
            await fill(streams, source, partition, numbers(50))
        copy = copier(target, stop_after=100, stop=stop)
        await streams.process(source, [source], [target], copy, stop=stop, fetch_bytes=1)
        for partition in range(2):
            assert await values(streams, target, partition) == numbers(50)
        assert await committed(streams, source) == {0: 50, 1: 50}
        assert (await streams.describe_group(source)).members == ()


async def test_the_blocking_client_does_the_same(amqp_url, declare):
    source, target = declare(), declare()
    stop = threading.Event()
    with blocking.connect(amqp_url) as client:
        with client.producer(source, batch_bytes=1) as producer:
            for value in numbers(20):
                producer.send(value)

        def fail(batch, out):
            out.send(target, b"never")
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            client.process(source, [source], [target], fail)
        assert client.committed(source) == {}

        def copy(batch, out):
            for record in batch.records():
                out.send(target, record.value)
                if record.value == b"19":
                    stop.set()

        client.process(source, [source], [target], copy, stop=stop, fetch_bytes=1)
        assert [record.value for record in client.reader(target, 0, 0)] == numbers(20)
        [offset] = client.committed(source).values()
        assert offset.offset == 20


async def test_a_batch_whose_handler_raises_leaves_nothing_and_comes_again(amqp_url, declare):
    source, target = declare(), declare()
    stop = trio.Event()
    async with connect_streams(amqp_url) as streams:
        await fill(streams, source, 0, numbers(10))

        async def fail(batch, out):
            for record in batch.records():
                await out.send(target, record.value)
            await out.send(target, bytes(2_000_000))  # is staged at once
            if batch.next_offset > 5:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await streams.process(source, [source], [target], fail, name=source, fetch_bytes=1)
        assert (await values(streams, target))[:-1] == numbers(5)
        assert await committed(streams, source) == {0: 5}
        copy = copier(target, stop_after=5, stop=stop)
        await streams.process(source, [source], [target], copy, name=source, stop=stop)
        found = [value for value in await values(streams, target) if len(value) < 10]
        assert found == numbers(10)


async def test_nothing_may_come_of_a_record_but_its_offset(amqp_url, stream):
    stop = trio.Event()
    async with connect_streams(amqp_url) as streams:
        await fill(streams, stream, 0, numbers(10))

        async def look(batch, out):
            if batch.next_offset == 10:
                stop.set()

        await streams.process(stream, [stream], [], look, stop=stop)
        assert await committed(streams, stream) == {0: 10}


async def test_a_rebalance_in_the_middle_of_a_transaction_doubles_and_loses_nothing(
    amqp_url, declare
):
    source, target, count = declare(partitions=2), declare(partitions=2), 60
    seen, stop = [], trio.Event()
    in_the_middle, may_go_on = trio.Event(), trio.Event()
    async with connect_streams(amqp_url) as streams:
        for partition in range(2):
            await fill(streams, source, partition, numbers(count))

        async def copy(batch, out):
            for place, record in enumerate(batch.records()):
                await out.send(target, record.value, partition=batch.partition.number)
                if place == 2 and not in_the_middle.is_set():
                    in_the_middle.set()
                    await may_go_on.wait()
            seen.append(batch)

        async def member():
            await streams.process(
                source, [source], [target], copy, stop=stop, heartbeat_s=BEAT_S, fetch_bytes=1
            )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(member)
            await in_the_middle.wait()
            described = await streams.describe_group(source)
            generation = described.generation
            nursery.start_soon(member)
            while len(described.members) < 2:
                described = await streams.describe_group(source)
            assert described.generation > generation
            assert any(each.leaving for each in described.members), "it holds on to its batch"
            may_go_on.set()
            await until_committed(streams, source, {0: count, 1: count})
            stop.set()
        for partition in range(2):
            assert await values(streams, target, partition) == numbers(count)


async def test_a_member_that_was_replaced_in_the_middle_of_a_transaction_is_fenced(
    amqp_url, declare
):
    source, target = declare(), declare()
    stop, in_the_middle, may_go_on = trio.Event(), trio.Event(), trio.Event()
    async with connect_streams(amqp_url) as streams:
        await fill(streams, source, 0, numbers(20))

        async def hang(batch, out):
            await out.send(target, b"of the dead")
            in_the_middle.set()
            await may_go_on.wait()

        async def zombie():
            with pytest.raises(FencedError):
                await streams.process(source, [source], [target], hang, instance="i")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(zombie)
            await in_the_middle.wait()
            copy = copier(target, stop_after=20, stop=stop)
            await streams.process(source, [source], [target], copy, instance="i", stop=stop)
            may_go_on.set()
        assert await values(streams, target) == numbers(20)


async def test_a_member_without_a_name_of_its_own_that_was_replaced_writes_nothing(
    amqp_url, declare
):
    """Its transactions are not fenced, but the group refuses its offsets."""
    source, target = declare(), declare()
    stop, in_the_middle, may_go_on = trio.Event(), trio.Event(), trio.Event()
    async with connect_streams(amqp_url) as streams:
        await fill(streams, source, 0, numbers(20))

        async def hang(batch, out):
            await out.send(target, b"of the dead")
            in_the_middle.set()
            await may_go_on.wait()

        async def zombie():
            options = {"instance": "i", "heartbeat_s": 3600, "name": f"zombie of {source}"}
            with pytest.raises(FencedError, match="MEMBER_FENCED"):
                await streams.process(source, [source], [target], hang, **options)
            stop.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(zombie)
            await in_the_middle.wait()
            copy = copier(target, stop_after=20, stop=may_go_on)
            await streams.process(source, [source], [target], copy, instance="i", stop=stop)
        assert await values(streams, target) == numbers(20)


async def test_it_goes_on_though_its_connections_are_cut(proxy, amqp_url, declare):
    source, target, count = declare(partitions=2), declare(partitions=2), 60
    stop, batches = trio.Event(), []
    async with connect_streams(amqp_url) as streams:
        for partition in range(2):
            await fill(streams, source, partition, numbers(count))

        async def copy(batch, out):
            batches.append(batch)
            for record in batch.records():
                await out.send(target, record.value, partition=batch.partition.number)
            if len(batches) % 3 == 0:
                proxy.cut()

        async with trio.open_nursery() as nursery:

            async def member():
                async with connect_streams(through(proxy), reconnect=QUICK) as others:
                    await others.process(source, [source], [target], copy, stop=stop, fetch_bytes=1)

            nursery.start_soon(member)
            await until_committed(streams, source, {0: count, 1: count})
            stop.set()
        for partition in range(2):
            assert await values(streams, target, partition) == numbers(count)


async def test_a_transaction_that_cannot_be_is_told_after_some_attempts(amqp_url, declare):
    source, target = declare(), declare()
    attempts = []
    few = Backoff(first_s=0.001, most_s=0.001, attempts=3)
    async with connect_streams(amqp_url, reconnect=few) as streams:
        await fill(streams, source, 0, numbers(5))

        async def claim_too_much(batch, out):
            attempts.append(batch.next_offset)
            staging = out._staging
            await out.send(target, b"one")
            staging.parts = lambda parts=staging.parts: [
                part._replace(writers=tuple(each._replace(rows=7) for each in part.writers))
                for part in parts()
            ]

        with pytest.raises(RefusedError) as caught:
            await streams.process(source, [source], [target], claim_too_much)
        assert caught.value.status == Status.TRANSACTION_ABORTED
        assert attempts == [5] * 4, "the same batch each time"
        assert await values(streams, target) == []


@contextmanager
def member_process(url: str, *arguments: str) -> Iterator["MemberProcess"]:
    process = MemberProcess(url, *arguments)
    try:
        yield process
    finally:
        process.kill()


class MemberProcess:
    """See processor.py."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self.begun = 0
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.trio_streams.processor", *self._arguments],
            cwd=ROOT,
            env=clean_environment({}),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        threading.Thread(target=self._listen, args=(self.process,), daemon=True).start()

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for _ in process.stdout:
            self.begun += 1

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    async def begins(self, more: int) -> None:
        """Wait until it has begun with so many batches more."""
        enough = self.begun + more
        await soon(
            lambda: self.begun >= enough or self.process.poll() is not None,
            "a batch",
            within_s=60,
        )
        assert self.process.poll() is None, "it ended by itself"


class Feeder:
    """Keeps members busy: there is always something to do, and never much."""

    PARTITIONS = 3
    BEHIND = 90

    def __init__(self, streams):
        self.counts = dict.fromkeys(range(self.PARTITIONS), 0)
        self._streams = streams
        self._enough = trio.Event()

    async def run(self):
        async with self._streams.producer("source") as producer:
            while not self._enough.is_set():
                done = await committed(self._streams, "g")
                for partition, count in self.counts.items():
                    if count < done.get(partition, 0) + self.BEHIND:
                        for number in range(count, count + 3):
                            await producer.send(b"%d" % number, partition=partition)
                        await producer.flush()
                        self.counts[partition] += 3

    async def drained(self):
        self._enough.set()
        await until_committed(self._streams, "g", self.counts)


@pytest.mark.timeout(400)
async def test_kills_of_members_and_of_the_broker_double_and_lose_nothing(killable):
    killable.declare("source", Feeder.PARTITIONS)
    killable.declare("target", Feeder.PARTITIONS)
    arguments = (killable.url, "g", "source", "target")
    async with connect_streams(killable.url, reconnect=QUICK) as streams:
        feeder = Feeder(streams)
        with member_process(*arguments, "a") as one, member_process(*arguments, "b") as two:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(feeder.run)
                await one.begins(2)
                await two.begins(2)  # so each has a share
                one.kill()
                await two.begins(3)
                one.start()
                await one.begins(2)
                await killable.kill_and_start()
                await two.begins(3)
                two.kill()
                await killable.kill_and_start()
                two.start()
                await two.begins(2)
                await feeder.drained()
        for partition, count in feeder.counts.items():
            assert await values(streams, "target", partition) == numbers(count)
