"""A member of a consumer group in Trio: reads the partitions it is assigned, and commits.

Assignments change while the next batch or record is asked for, and only then: partitions that are
to move are handed to `on_revoked`, where the last of their offsets may still be committed, and are
released behind it. So no other member has a partition before this one is done with it. A member
that was silent for too long has lost its partitions (`on_lost`) and joins anew.
"""

from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Self, TypeVar

import trio

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import Record
from broker.protocol.stream_errors import OffsetOutOfRangeError, StreamError
from broker.protocol.stream_wire import Status
from clients.amqp_promise import Promise
from clients.stream_conversation import Fetched
from clients.stream_errors import ConnectionLostError, RefusedError
from clients.stream_group_core import GroupCore, Partitions, Polled
from clients.stream_plans import Again, Alone, Plan, Step, run_async
from clients.stream_reader import WAIT_MS
from clients.trio_background import in_background
from clients.trio_stream_connection import StreamLine
from clients.trio_stream_link import Came, StreamLink, when_done

T = TypeVar("T")

LEAVE_S: Final = 5.0  # to say goodbye; then the session's time-out does it
CHECKPOINT_EVERY: Final = 64  # records that were there; then others have their turn


class _Arrived(NamedTuple):
    partition: wire.Partition
    asked: int  # the offset
    promise: Promise


@dataclass(slots=True)
class _Rest:
    """Of a batch that is given record by record."""

    polled: Polled
    records: Iterator[Record]
    position: int | None  # if it is another now, the partition was let go of, or put back


class GroupConsumer:
    """Made by `Streams.group`; for one task. `async for batch in consumer`, or over `records()`."""

    def __init__(self, control: StreamLine, data: StreamLine, core: GroupCore) -> None:
        self.core = core
        self._control = control
        self._data = data
        self._one_at_a_time = trio.Lock()
        self._under_way: dict[wire.Partition, int] = {}  # and from which offset on
        self._arrived: deque[_Arrived] = deque()
        self._news = trio.Event()
        self._trouble: Exception | None = None
        self._troubles = 0  # since something came
        self._rest: _Rest | None = None
        self._given = 0

    @property
    def group(self) -> str:
        return self.core.group

    @property
    def positions(self) -> Mapping[wire.Partition, int]:
        """How far the program got, by assigned partition: behind what it was given."""
        return self.core.positions

    @property
    def assigned(self) -> Partitions:
        return self.core.assigned

    # Offsets

    async def commit(self, positions: Mapping[wire.Partition, int] | None = None) -> None:
        """These offsets; without any, of everything that was given out.

        Raises RefusedError (NOT_ASSIGNED, UNKNOWN_MEMBER) if a partition is another member's now,
        FencedError if another process took this member's place. A commit that was cancelled may
        have happened or not.
        """
        await self.run(self.core.commit(positions))

    async def rewind(self) -> None:
        """Give again whatever was given and not committed, in a transaction that failed say."""
        self._rest = None
        await self.run(self.core.rewind())

    # Records

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Polled:
        """The next batch, of whichever partition has one. Cancelled, nothing was given."""
        rest, self._rest = self._rest, None
        if rest is not None:
            self.core.put_back(rest.polled.partition)
        polled = await self._next()
        self.core.given(polled.partition, polled.next_offset)
        return polled

    def records(self) -> "Records":
        """One by one, each with its partition; a commit is then of those that were given."""
        return Records(self)

    async def next_record(self) -> tuple[wire.Partition, Record]:
        self._given += 1
        if self._given % CHECKPOINT_EVERY == 0:
            await trio.lowlevel.checkpoint()
        while True:
            if self.core.has_news:
                await self.run(self.core.follow())
            rest = self._rest
            if rest is None:
                polled = await self._next()
                at = self.positions.get(polled.partition)
                rest = self._rest = _Rest(polled, iter(polled.records()), at)
            partition = rest.polled.partition
            if self.positions.get(partition, -1) != rest.position:
                self._rest = None
                continue
            record = next(rest.records, None)
            if record is None:
                self._rest = None
                self.core.given(partition, rest.polled.next_offset)
                continue
            rest.position = record.offset + 1
            self.core.given(partition, rest.position)
            return partition, record

    async def _next(self) -> Polled:
        await trio.lowlevel.checkpoint()
        while True:
            if self.core.has_news:
                await self.run(self.core.follow())
            self._news = trio.Event()
            self._ask(await self._open())
            if not self._arrived:
                await self._news.wait()
            while self._arrived:
                polled = await self._take(self._arrived.popleft())
                if polled is not None:
                    if self._data.link is not None:
                        self._ask(self._data.link)  # for more, while this is worked on
                    return polled

    async def _open(self) -> StreamLink:
        while True:
            if self._trouble is not None:
                error, self._trouble = self._trouble, None
                self._troubles += 1
                await self._data.carry_out(Again(self._troubles - 1, error))
            try:
                return await self._data.open()
            except ConnectionLostError as error:
                self._trouble = error

    def _ask(self, link: StreamLink) -> None:
        for partition, request in self.core.requests(self._under_way, WAIT_MS):
            self._under_way[partition] = request.start
            promise = link.send(request)
            arrived = _Arrived(partition, request.start, promise)
            when_done(promise, partial(self._came, arrived))

    def _came(self, arrived: _Arrived) -> None:
        self._arrived.append(arrived)
        self._news.set()

    async def _take(self, arrived: _Arrived) -> Polled | None:
        if self._under_way.get(arrived.partition) == arrived.asked:
            del self._under_way[arrived.partition]
        try:
            came: Came = arrived.promise.result()
            fetched = came.decode(Fetched)
        except OffsetOutOfRangeError:
            await self.run(self.core.overtaken(arrived.partition))
            return None
        except ConnectionLostError as error:
            self._trouble = error
            return None
        except RefusedError as error:
            if error.status != Status.UNAVAILABLE:
                raise
            self._trouble = error
            return None
        self._troubles = 0
        return self.core.came(arrived.partition, arrived.asked, fetched)

    # Plans

    async def run(self, plan: Plan[T]) -> T:
        return await run_async(plan, self._carry_out)

    async def _carry_out(self, step: Step) -> Any:
        if isinstance(step, Alone):
            async with self._one_at_a_time:
                return await self._control.run(step.plan)
        return await self._control.carry_out(step)

    async def beat_for_ever(self, interval_s: float) -> None:
        try:
            while True:
                await trio.sleep(interval_s)
                await self.run(self.core.beat())
                self._news.set()
        except StreamError:
            return  # the client is closed


class Records:
    def __init__(self, consumer: GroupConsumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[wire.Partition, Record]:
        """Cancelled, nothing was given."""
        return await self._consumer.next_record()


@asynccontextmanager
async def joined(
    line: StreamLine, core: GroupCore, label: str, heartbeat_s: float
) -> AsyncIterator[GroupConsumer]:
    """A member for the length of a block; at its end nothing is committed by itself."""
    data = line.another(f"{core.group} {label}")
    consumer = GroupConsumer(line, data, core)
    try:
        await consumer.run(core.join())
        async with in_background(partial(consumer.beat_for_ever, heartbeat_s)):
            yield consumer
    finally:
        data.close()
        with trio.move_on_after(LEAVE_S, shield=True):
            await consumer.run(core.leave())
