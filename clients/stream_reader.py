"""Reads a partition of a stream: chunk by chunk, record by record, or as Arrow batches."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import Chunk, Record, split_chunks
from broker.protocol.stream_wire import END
from clients.stream_connection import StreamConnection
from clients.stream_conversation import Fetched
from clients.stream_errors import ConnectionLostError
from clients.stream_questions import identities

if TYPE_CHECKING:
    import pyarrow as pa

# Large enough that a round trip does not show, small enough to hold two of them.
FETCH_BYTES: Final = 4 * 1024 * 1024
WAIT_MS: Final = 10_000  # of one long poll; well within a connection's time-out


class Slice(NamedTuple):
    """The records of a chunk that were asked for: its places from `start` to `stop`."""

    chunk: Chunk
    start: int
    stop: int

    def records(self) -> list[Record]:
        return self.chunk.records(self.start, self.stop)

    def __bool__(self) -> bool:
        return self.start < self.stop


def slices(fetched: Fetched, start: int, end: int) -> list[Slice]:
    """What of a fetch was asked for. Raises CorruptChunkError: checksums are looked at."""
    found = []
    for chunk in split_chunks(fetched.data):
        piece = Slice(chunk, chunk.place_of(start), chunk.place_of(end))
        if piece:
            found.append(piece)
    return found


class Span(NamedTuple):
    """What is to be read, and how: up to `end`, without one up to what is written, or for ever."""

    stream: str
    partition: int
    end: int
    wait_ms: int  # 0: it ends where the stream does
    fetch_bytes: int
    uid: str = ""  # of the stream; empty: not known

    @classmethod
    def of(
        cls,
        stream: str,
        partition: int,
        end: int | None,
        fetch_bytes: int,
        wait_ms: int | None = None,
        *,
        follow: bool,
    ) -> "Span":
        if wait_ms is None:
            wait_ms = WAIT_MS if follow or end is not None else 0
        return cls(stream, partition, END if end is None else end, wait_ms, fetch_bytes)

    def request(self, offset: int) -> wire.Fetch:
        min_bytes = 1 if self.wait_ms else 0
        return wire.Fetch(
            self.stream,
            self.partition,
            offset,
            self.end,
            self.fetch_bytes,
            min_bytes,
            self.wait_ms,
            self.uid,
        )

    def is_over(self, offset: int, resume: int) -> bool:
        """What was fetched at this offset says that there is no more."""
        return resume == offset and not self.wait_ms

    def is_ahead(self, offset: int, resume: int) -> bool:
        """It makes sense to ask for what is behind while this is worked on."""
        return offset < resume < self.end


class Reader:
    """From an offset on, up to `end`; without one up to what is written now, or on for ever.

    It asks for more while what came is worked on. `offset` is where it reads on: after a record or
    a chunk was given out, behind it. A stream that is deleted and declared again meanwhile is
    another one: StreamReplacedError.
    """

    def __init__(
        self,
        connection: StreamConnection,
        stream: str,
        partition: int,
        offset: int,
        *,
        end: int | None = None,
        follow: bool = False,
        wait_ms: int | None = None,
        fetch_bytes: int = FETCH_BYTES,
        uid: str | None = None,
    ) -> None:
        """With `wait_ms` 0 it gives up before an `end` that is not there yet.

        `uid`: which stream of that name is meant; None: the one that is there when reading begins.
        """
        self.stream = stream
        self.partition = partition
        self.offset = offset
        self._connection = connection
        self._uid = uid
        self._span = Span.of(stream, partition, end, fetch_bytes, wait_ms, follow=follow)

    def slices(self) -> Iterator[Slice]:
        """Chunks as they are stored, and which of their records are meant."""
        if self._uid is None:
            self._uid = self._connection.run(identities((self.stream,))).get(self.stream, "")
        self._span = self._span._replace(uid=self._uid)
        span, asked = self._span, None
        try:
            while self.offset < span.end:
                fetched = self._fetch(asked)
                start, resume = self.offset, fetched.head.resume_offset
                if span.is_over(start, resume):
                    return
                asked = self._ask(resume) if span.is_ahead(start, resume) else None
                for piece in slices(fetched, start, span.end):
                    self.offset = piece.chunk.header.end_offset
                    yield piece
                self.offset = min(resume, span.end)
        finally:
            if asked is not None:
                self._connection.forget(asked)

    def __iter__(self) -> Iterator[Record]:
        for piece in self.slices():
            for record in piece.records():
                self.offset = record.offset + 1
                yield record

    def arrow_batches(self) -> "Iterator[pa.RecordBatch]":
        """One batch for each chunk; see clients.stream_arrow for the columns. Needs pyarrow."""
        from clients.stream_arrow import ArrowBatches  # noqa: PLC0415 - only those who want it

        batches = ArrowBatches(self.stream, self.partition)
        for piece in self.slices():
            yield batches.of(piece)

    def _ask(self, offset: int) -> int | None:
        """Ahead of need. A connection that is lost here is noticed by the next fetch."""
        try:
            return self._connection.send(self._span.request(offset))
        except ConnectionLostError:
            return None

    def _fetch(self, asked: int | None) -> Fetched:
        if asked is not None:
            try:
                return self._connection.receive(asked, Fetched)
            except ConnectionLostError:
                pass  # asked again
        return self._connection.fetch(self._span.request(self.offset))
