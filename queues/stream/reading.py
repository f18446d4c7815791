"""Reading a partition: from its tail at once, from its segments off the loop."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from broker.protocol.chunk import Chunk
from broker.protocol.stream_errors import OffsetOutOfRangeError, StreamError
from queues.stream.keeper import OffLoop
from queues.stream.ranges import ByteRange, Ranges
from queues.stream.segments import Segments
from queues.stream.tail import Tail
from queues.stream.verdict import Producers


class Batch(NamedTuple):
    """Whole chunks. The first may begin before the offset asked for."""

    chunks: list[Chunk]
    next_offset: int  # where to read on


class Located(NamedTuple):
    """Whole chunks to be sent as they are: parts of files, or bytes in memory.

    `close` lets the files go; call it in any case.
    """

    pieces: list[ByteRange | memoryview]
    size_bytes: int
    next_offset: int
    close: Callable[[], None]


BatchThen: TypeAlias = Callable[[Batch | StreamError], None]
LocatedThen: TypeAlias = Callable[[Located | StreamError], None]


def _nothing() -> None:
    pass


class PartitionReader:
    """Any number of readers. Each call answers once, through `then`, at once or later."""

    def __init__(
        self,
        tail: Tail,
        segments: Segments,
        producers: Producers,
        off_loop: OffLoop,
        ends: Callable[[], tuple[int, bool]],
    ) -> None:
        """`ends`: the next offset, and whether no replica has more."""
        self._tail = tail
        self._segments = segments
        self._producers = producers
        self._off_loop = off_loop
        self._ends = ends

    def stable_end(self) -> int:
        """Where those have to stop who read only what is committed."""
        unstable = self._producers.first_unstable()
        return self._ends()[0] if unstable is None else unstable

    def _window(self, offset: int, *, committed: bool) -> tuple[int, int]:
        """The next offsets to read in one go. Raises OffsetOutOfRangeError."""
        first, (end, is_last) = self._segments.first_offset, self._ends()
        if offset > end and not is_last:
            return offset, offset  # it is on its way here
        if not first <= offset <= end:
            raise OffsetOutOfRangeError(offset, first, end)
        if not committed:
            return offset, end
        end = self.stable_end()
        for aborted, aborted_end in self._producers.hidden(offset, end):
            if aborted > offset:
                return offset, aborted
            offset = max(offset, aborted_end)
        return offset, end

    def read(self, offset: int, max_bytes: int, then: BatchThen, *, committed: bool = True) -> None:
        """Chunks from the one that covers `offset` on, at least one if there is any."""

        def from_segments() -> Batch | StreamError:
            try:
                with self._segments.locate(start, end, max_bytes) as found:
                    return Batch(found.read(), found.next_offset)
            except StreamError as error:
                return error

        try:
            start, end = self._window(offset, committed=committed)
        except OffsetOutOfRangeError as error:
            then(error)
            return
        if self._in_memory(start, end):
            then(self._from_tail(start, end, max_bytes))
        else:
            self._off_loop(from_segments, then)

    def locate(
        self, offset: int, until: int, max_bytes: int, then: LocatedThen, *, committed: bool = True
    ) -> None:
        """As `read`, but without looking into the chunks: their reader checks them.

        No chunk that begins at `until` or later is among them.
        """

        def in_segments() -> Located | StreamError:
            try:
                found: Ranges = self._segments.locate(start, end, max_bytes)
            except StreamError as error:
                return error
            return Located([*found.ranges], found.size_bytes, found.next_offset, found.close)

        try:
            start, end = self._window(offset, committed=committed)
            end = min(end, until)
        except OffsetOutOfRangeError as error:
            then(error)
            return
        if self._in_memory(start, end):
            chunks, next_offset = self._from_tail(start, end, max_bytes)
            pieces: list[ByteRange | memoryview] = [p for chunk in chunks for p in chunk.pieces]
            size = sum([chunk.header.size_bytes for chunk in chunks])
            then(Located(pieces, size, next_offset, _nothing))
        else:
            self._off_loop(in_segments, then)

    def _in_memory(self, offset: int, end: int) -> bool:
        """Whether there is no need of the segments: also if there is nothing to read."""
        first = self._tail.first_offset
        return offset >= end or (first is not None and offset >= first)

    def _from_tail(self, offset: int, end: int, max_bytes: int) -> Batch:
        chunks = self._tail.read(offset, end, max_bytes) if offset < end else []
        return Batch(chunks, chunks[-1].header.end_offset if chunks else offset)

    def seek_time(self, time_ms: int, then: Callable[[int | StreamError], None]) -> None:
        """The offset of the first record of this time or later; the next offset if none is."""
        searched = self._segments.end.end

        def search() -> int | StreamError | None:
            try:
                return self._segments.seek_time(time_ms)
            except StreamError as error:
                return error

        def found(offset: int | StreamError | None) -> None:
            if offset is not None:
                then(offset)
            elif self._segments.end.end > searched:
                self.seek_time(time_ms, then)  # what was in the tail is in the segments now
            else:
                in_tail = self._tail.seek_time(time_ms)
                then(self._ends()[0] if in_tail is None else in_tail)

        self._off_loop(search, found)
