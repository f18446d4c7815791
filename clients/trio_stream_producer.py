"""Writes records to a stream in Trio: awaited one by one, or many with a window between.

Records gather in batches, one for each partition, which go when they are large or after a while. A
task of the producer's own sends them, and sends again what was lost on the way.
"""

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import trio

from broker.protocol import stream_messages as wire
from broker.protocol.stream_errors import StreamError
from clients.amqp_promise import Promise
from clients.stream_errors import ClientClosedError, ConnectionLostError, RefusedError
from clients.stream_outbox import Outbox, Sent
from clients.trio_background import in_background
from clients.trio_link import settled
from clients.trio_stream_connection import StreamLine
from clients.trio_stream_link import Came, when_done

LINGER_S: Final = 0.005  # as Kafka: longer than it takes to gather records, too short to be noticed
WINDOW_BYTES: Final = 16 * 1024 * 1024  # unconfirmed; then senders wait
CHECKPOINT_EVERY: Final = 64  # sends that found room; then others have their turn


class Producer:
    """Made by `Streams.producer`. Any number of tasks may share it."""

    def __init__(
        self, line: StreamLine, outbox: Outbox, *, name: str, linger_s: float, window_bytes: int
    ) -> None:
        self.stream = outbox.stream
        self._line = line
        self._outbox = outbox
        self._name = name
        self._linger_s = linger_s
        self._window_bytes = window_bytes
        self._close_at = math.inf  # then open batches are overdue
        self._overdue = False  # open batches are to be closed
        self._news = trio.Event()  # for the task that sends
        self._relief = trio.Event()  # for those who wait for room, or for all to be confirmed
        self._sends = 0

    @property
    def confirmed(self) -> int:
        """How many records."""
        return self._outbox.confirmed

    @property
    def next_offsets(self) -> Mapping[int, int]:
        """Behind the last confirmed record, by partition."""
        return self._outbox.next_offsets

    @property
    def unconfirmed_bytes(self) -> int:
        return self._outbox.unconfirmed_bytes

    # For everybody

    async def publish(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Mapping[str, object] | None = None,
        partition: int | None = None,
    ) -> int | None:
        """Returns when the record is durable: its offset, or None if it was sent again and the
        broker knows only that it has it.

        A value of None deletes its key. Raises RefusedError, and FencedError if another producer
        of this name took over. A publish that was cancelled may happen nevertheless.
        """
        receipt = Promise()
        await self._room()
        self._add(value, key, headers, partition, receipt)
        offset = await settled(receipt)
        return offset if isinstance(offset, int) else None

    async def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Mapping[str, object] | None = None,
        partition: int | None = None,
    ) -> None:
        """Waits for room only; `flush`, or the end of the block, for the rest. One that was
        cancelled has not happened."""
        self._sends += 1
        if self._outbox.unconfirmed_bytes >= self._window_bytes:
            await self._room()
        elif self._sends % CHECKPOINT_EVERY == 0:
            await trio.lowlevel.checkpoint()
        self._add(value, key, headers, partition, None)

    async def flush(self) -> None:
        """Until all that was sent before is durable. What the broker refuses ends the producer."""
        self._must_be_sound()
        receipts = []
        for batch in self._outbox.pending:
            receipts.append(Promise())
            batch.receipts.append((0, receipts[-1]))
        self._overdue = True
        self._news.set()
        for receipt in receipts:
            await settled(receipt)
        await trio.lowlevel.checkpoint()

    # Within

    async def _room(self) -> None:
        while self._outbox.failure is None and self.unconfirmed_bytes >= self._window_bytes:
            await self._relief.wait()
        await trio.lowlevel.checkpoint_if_cancelled()

    def _add(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Mapping[str, object] | None,
        partition: int | None,
        receipt: Promise | None,
    ) -> None:
        self._must_be_sound()
        outbox = self._outbox
        if partition is None:
            partition = outbox.partition_of(key)
        full = outbox.add(value, key, headers, partition)
        if receipt is not None:
            batch = outbox.batch(partition)
            batch.receipts.append((len(batch) - 1, receipt))
        if full is not None:
            outbox.close_batch(full)
            self._news.set()
        elif self._close_at == math.inf:
            self._close_at = trio.current_time() + self._linger_s
            self._news.set()

    def _must_be_sound(self) -> None:
        if self._outbox.failure is not None:
            raise self._outbox.failure

    # The task

    async def run(self) -> None:
        """Until it is cancelled, or the outbox has failed."""
        outbox = self._outbox
        try:
            while outbox.failure is None:
                self._news = trio.Event()
                await self._send_some()
                with trio.move_on_at(self._close_at):
                    await self._news.wait()
        except StreamError as error:
            outbox.give_up(error)
        finally:
            failure = outbox.give_up(ClientClosedError("the producer is closed"))
            for batch in outbox.pending:
                for _, receipt in batch.receipts:
                    receipt.fail(failure)
            self._relieve()

    async def _send_some(self) -> None:
        outbox = self._outbox
        if outbox.trouble is not None:
            await self._line.run(outbox.catch_breath())
        self._close_batches()
        if outbox.needs_number:
            await self._line.run(outbox.allocate(self._name))
        if not len(outbox):
            return
        try:
            link = await self._line.open()
        except ConnectionLostError as error:
            outbox.trouble = error
            self._news.set()
            return
        for sent in outbox.due():
            promise = link.send(outbox.request(sent))
            when_done(promise, partial(self._answered, sent, promise))
        if outbox.needs_number:
            self._news.set()  # that was found out just now

    def _close_batches(self) -> None:
        """Those that waited long enough, unless they would only have to wait elsewhere."""
        if trio.current_time() >= self._close_at:
            self._overdue = True
            self._close_at = math.inf
        if self._overdue:
            outbox = self._outbox
            for partition in outbox.open_partitions:
                if not outbox.is_busy(partition):
                    outbox.close_batch(partition)
            self._overdue = bool(outbox.open_partitions)

    def _answered(self, sent: Sent, promise: Promise) -> None:
        if self._outbox.failure is not None:
            return  # nobody waits any more
        try:
            came: Came = promise.result()
            first = self._outbox.confirm(sent, came.decode(wire.Appended))
        except (ConnectionLostError, RefusedError) as error:
            self._outbox.fail(sent, error)
        else:
            for place, receipt in sent.batch.receipts:
                receipt.resolve(None if first is None else first + place)
            self._relieve()
        self._news.set()

    def _relieve(self) -> None:
        self._relief.set()
        self._relief = trio.Event()


@asynccontextmanager
async def producing(
    line: StreamLine, outbox: Outbox, *, name: str, linger_s: float, window_bytes: int
) -> AsyncIterator[Producer]:
    """A producer whose task lives as long as the block, which ends when all is durable."""
    if window_bytes < 1:
        raise ValueError(f"a window of {window_bytes} bytes lets nothing through")
    if outbox.needs_number:
        await line.run(outbox.allocate(name))
    producer = Producer(line, outbox, name=name, linger_s=linger_s, window_bytes=window_bytes)
    async with in_background(producer.run):
        yield producer
        await producer.flush()
