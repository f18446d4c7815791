"""Reads a partition of a stream in Trio: record by record, or chunk by chunk."""

from collections import deque
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

import trio

from broker.protocol.chunk import Record
from broker.protocol.stream_wire import Status
from clients.stream_conversation import Fetched
from clients.stream_errors import ConnectionLostError, RefusedError
from clients.stream_questions import identities, offsets
from clients.stream_reader import FETCH_BYTES, Slice, Span, slices
from clients.trio_stream_connection import StreamLine
from clients.trio_stream_link import came

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clients.amqp_promise import Promise

Place: TypeAlias = Literal["first", "last", "next"]
CHECKPOINT_EVERY: Final = 64  # records that were there; then others have their turn


class Reader:
    """From a place or an offset on, up to `end`; without one up to what is written now, or on for
    ever. For one task.

    It asks for more while what came is worked on. `offset` is where it reads on: behind the record
    or the chunk that was given out last; None before it has looked for its place. Cancelled, it has
    lost nothing and goes on there. A stream that is deleted and declared again meanwhile is another
    one: StreamReplacedError.
    """

    def __init__(
        self,
        line: StreamLine,
        stream: str,
        partition: int,
        offset: int | Place,
        *,
        end: int | None = None,
        follow: bool = False,
        fetch_bytes: int = FETCH_BYTES,
    ) -> None:
        self.stream = stream
        self.partition = partition
        self.offset = None if isinstance(offset, str) else offset
        self._line = line
        self._place = offset
        self._span = Span.of(stream, partition, end, fetch_bytes, follow=follow)
        self._resume = -1  # behind what was fetched; -1: nothing was
        self._ahead: Promise | None = None
        self._pieces: deque[Slice] = deque()
        self._records: Iterator[Record] = iter(())
        self._given = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        while True:
            for record in self._records:
                self._given += 1
                if self._given % CHECKPOINT_EVERY == 0:
                    await self._let_others(record)
                self.offset = record.offset + 1
                return record
            piece = await self._next_slice()
            if piece is None:
                raise StopAsyncIteration
            self._records = iter(piece.records())

    async def _let_others(self, record: Record) -> None:
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            self._records = iter((record, *self._records))
            raise

    def slices(self) -> "Slices":
        """Chunks as they are stored, and which of their records are meant."""
        return Slices(self)

    async def next_slice(self) -> Slice | None:
        """None: it is at its end."""
        piece = await self._next_slice()
        if piece is not None:
            self.offset = min(piece.chunk.header.end_offset, self._span.end)
        return piece

    async def _next_slice(self) -> Slice | None:
        while not self._pieces:
            if self._resume < 0:
                self._resume = self.offset = await self._start()
            start = self._resume
            if start >= self._span.end:
                return None
            fetched = await self._fetch(start)
            self._resume = min(fetched.head.resume_offset, self._span.end)
            if self._span.is_over(start, self._resume):
                return None
            if self._span.is_ahead(start, self._resume):
                self._ask_ahead()
            self._pieces.extend(slices(fetched, start, self._span.end))
            if not self._pieces:
                self.offset = self._resume
        return self._pieces.popleft()

    async def _start(self) -> int:
        uids = await self._line.run(identities((self.stream,)))
        self._span = self._span._replace(uid=uids.get(self.stream, ""))
        place = self._place
        if not isinstance(place, str):
            return place
        found = await self._line.run(offsets(self.stream, place, (self.partition,)))
        return found[self.partition]

    def _ask_ahead(self) -> None:
        """Of a connection that is lost the next fetch will hear."""
        link = self._line.link
        if link is not None:
            self._ahead = link.send(self._span.request(self._resume))

    async def _fetch(self, start: int) -> Fetched:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            try:
                return (await came(ahead)).decode(Fetched)
            except ConnectionLostError:
                pass  # asked again
            except RefusedError as error:
                if error.status != Status.UNAVAILABLE:
                    raise
        return await self._line.ask(self._span.request(start), Fetched)


class Slices:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Slice:
        piece = await self._reader.next_slice()
        if piece is None:
            raise StopAsyncIteration
        return piece
