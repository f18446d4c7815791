"""Streams for Trio programs: read, write, consume in a group, and transactions.

    async with connect_streams("amqp://guest:guest@localhost:5672/") as streams:
        async with streams.producer("orders") as producer:
            await producer.send(b"value", key=b"key")
        async for record in streams.reader("orders"):
            print(record.offset, record.key, record.value, record.headers)

A connection that is lost is dialled again, at any of the addresses in the URL, and whatever was
under way and may be asked twice is asked again. Any number of tasks may share a client.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final, Literal, TypeAlias

import trio

from broker.protocol import stream_messages as wire
from broker.protocol.stream_errors import StreamError
from clients import stream_questions
from clients.backoff import Backoff
from clients.stream_address import Address
from clients.stream_batches import BATCH_BYTES
from clients.stream_group_core import HEARTBEAT_S, GroupCore, Listeners, Partitions, Polled, ignore
from clients.stream_outbox import Outbox
from clients.stream_processing import Processing, name_of_transactions
from clients.stream_reader import FETCH_BYTES
from clients.stream_transaction_core import Staging
from clients.trio_background import plain_nursery, until
from clients.trio_stream_connection import TIMEOUT_S, StreamLine
from clients.trio_stream_group import GroupConsumer, joined
from clients.trio_stream_producer import LINGER_S, WINDOW_BYTES, Producer, producing
from clients.trio_stream_reader import Place, Reader
from clients.trio_stream_transactions import ABORT_S, Output, TransactionalProducer

# A node that takes over is there within seconds: longer pauses would only be noticed.
RECONNECT: Final = Backoff(first_s=0.05, most_s=5.0)

Told: TypeAlias = Callable[[Partitions], Awaitable[None] | None]
Handler: TypeAlias = Callable[[Polled, Output], Awaitable[None]]


@asynccontextmanager
async def connect_streams(
    url: str, *, name: str = "", reconnect: Backoff = RECONNECT, timeout_s: float = TIMEOUT_S
) -> AsyncIterator["Streams"]:
    """A client for the length of a block.

    `name` is for the broker's log. `reconnect` says how often, and after which pauses, to ask
    again what got no answer. Raises RefusedError if it is not let in, and ConnectionLostError if no
    address answers.
    """
    address = Address.of_url(url)
    async with plain_nursery() as nursery:
        line = StreamLine(address, nursery, name=name, backoff=reconnect, timeout_s=timeout_s)
        try:
            await line.open()
            yield Streams(line)
        finally:
            line.close()
            nursery.cancel_scope.cancel()


class Streams:
    """Made by `connect_streams`."""

    def __init__(self, line: StreamLine) -> None:
        self._line = line

    @property
    def reconnects(self) -> int:
        """How often the connection was lost and had again."""
        return self._line.reconnects

    # What is there

    async def streams(self) -> dict[str, int]:
        """How many partitions each stream has that this user may read."""
        return await self._line.run(stream_questions.streams())

    async def metadata(self, *streams: str) -> dict[str, tuple[wire.PartitionMetadata, ...]]:
        """All partitions of these, in one request. Raises RefusedError if one is not there."""
        return await self._line.run(stream_questions.metadata(streams))

    async def offsets(
        self, stream: str, place: Place | int, partitions: Iterable[int] = ()
    ) -> dict[int, int]:
        """At "first", "last", "next", or at a time in ms; of all partitions or of these."""
        return await self._line.run(stream_questions.offsets(stream, place, partitions))

    # Records

    def reader(
        self,
        stream: str,
        partition: int = 0,
        offset: int | Place = "first",
        *,
        end: int | None = None,
        follow: bool = False,
        fetch_bytes: int = FETCH_BYTES,
    ) -> Reader:
        """Of one partition, from there up to `end`, or to what is written now, or (`follow`) on.

        It holds up to two times `fetch_bytes`. Raises OffsetOutOfRangeError.
        """
        return Reader(
            self._line,
            stream,
            partition,
            offset,
            end=end,
            follow=follow,
            fetch_bytes=fetch_bytes,
        )

    @asynccontextmanager
    async def producer(
        self,
        stream: str,
        *,
        name: str = "",
        batch_bytes: int = BATCH_BYTES,
        linger_s: float = LINGER_S,
        window_bytes: int = WINDOW_BYTES,
    ) -> AsyncIterator[Producer]:
        """An idempotent one: what is sent again is stored once. Another of that name fences it.

        What was sent is durable when the block ends without an error. If it raises, or is
        cancelled, what was not confirmed may be written or not.
        """
        counts = await self._line.run(stream_questions.partition_counts((stream,)))
        outbox = Outbox(stream, counts[stream], idempotent=True, batch_bytes=batch_bytes)
        async with producing(
            self._line, outbox, name=name, linger_s=linger_s, window_bytes=window_bytes
        ) as producer:
            yield producer

    async def transactions(self, name: str) -> TransactionalProducer:
        """Fences older ones of that name and aborts what they have not committed."""
        producer = TransactionalProducer(self._line, name)
        await producer.open()
        return producer

    # Groups

    def group(
        self,
        name: str,
        streams: Iterable[str],
        *,
        label: str = "consumer",
        instance: str = "",
        start: Literal["first", "next"] = "first",
        heartbeat_s: float = HEARTBEAT_S,
        fetch_bytes: int = FETCH_BYTES,
        on_assigned: Told = ignore,
        on_revoked: Told = ignore,
        on_lost: Told = ignore,
    ) -> AbstractAsyncContextManager[GroupConsumer]:
        """A member of a group, for the length of a block.

        `start`: where to read a partition from whose offset was never committed. With an `instance`
        a member that comes back is the same one, and an older process of that name is fenced.
        """
        core = GroupCore(
            name,
            streams,
            Listeners(on_assigned, on_revoked, on_lost),
            label=label,
            instance=instance,
            start=start,
            fetch_bytes=fetch_bytes,
        )
        return joined(self._line, core, label, heartbeat_s)

    async def process(
        self,
        group: str,
        sources: Iterable[str],
        targets: Iterable[str],
        handler: Handler,
        *,
        name: str = "",
        instance: str = "",
        stop: trio.Event | None = None,
        **options: Any,
    ) -> None:
        """Read `sources` for a group, and write what `handler` makes of it to `targets`, exactly
        once: `await handler(batch, output)`, for one batch after another, until `stop` is set.

        What it sends and the offset behind the batch are one transaction; a batch whose transaction
        fails comes again. If the handler raises, nothing of its batch is visible, and that is
        raised here. `name` is of the transactions: one for each member; a stable one, as an
        `instance` gives it, lets a new process end what its former self left. The other options are
        those of `group`.
        """
        end = stop if stop is not None else trio.Event()
        async with self.group(group, sources, instance=instance, **options) as consumer:

            async def poll() -> Polled | None:
                if not end.is_set():
                    async with until(end):
                        return await anext(consumer)
                return None

            async def handle(batch: Polled, staging: Staging) -> None:
                await handler(batch, Output(staging, consumer.run))

            processing = Processing(
                consumer.core,
                name or name_of_transactions(group, instance),
                targets,
                poll=poll,
                handle=handle,
            )
            try:
                await consumer.run(processing.run())
            except BaseException:
                with suppress(StreamError), trio.move_on_after(ABORT_S, shield=True):
                    await consumer.run(processing.abandon())
                raise

    async def groups(self) -> tuple[wire.GroupListed, ...]:
        return await self._line.run(stream_questions.groups())

    async def describe_group(self, name: str) -> wire.GroupDescription:
        return await self._line.run(stream_questions.described_group(name))

    async def committed(
        self, group: str, partitions: Iterable[wire.Partition] = ()
    ) -> dict[wire.Partition, wire.CommittedOffset]:
        """Of these partitions, or of all, as far as anything was committed."""
        return await self._line.run(stream_questions.committed(group, partitions))

    async def reset_offsets(self, group: str, offsets: Mapping[wire.Partition, int]) -> None:
        """Of a group without members; also how a reader that is in no group keeps its own."""
        await self._line.run(stream_questions.offsets_reset(group, offsets))
