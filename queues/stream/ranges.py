"""Runs of whole chunks in segment files, for sendfile or for reading."""

from collections.abc import Callable
from typing import NamedTuple

from broker.protocol.chunk import Chunk, split_chunks
from broker.protocol.stream_errors import CorruptChunkError
from queues.storage.disk import File
from queues.stream.segment import Segment, corrupt


class ByteRange(NamedTuple):
    """Whole chunks in an open file, fit for sendfile."""

    file: File
    position: int
    length: int


class Ranges:
    """Where records are. Close it when they have been read or sent."""

    def __init__(self, unpin: Callable[[list[Segment]], None], next_offset: int) -> None:
        self._unpin = unpin
        self._pinned: list[Segment] = []
        self.ranges: list[ByteRange] = []
        self.next_offset = next_offset  # where to read on
        self.size_bytes = 0

    def add(self, segment: Segment, position: int, end: int, next_offset: int) -> None:
        """Takes over the caller's pin."""
        assert segment.file is not None
        self._pinned.append(segment)
        self.ranges.append(ByteRange(segment.file, position, end - position))
        self.size_bytes += end - position
        self.next_offset = next_offset

    def read(self) -> list[Chunk]:
        """The chunks themselves, checked."""
        chunks: list[Chunk] = []
        for segment, (file, position, length) in zip(self._pinned, self.ranges, strict=True):
            try:
                chunks += split_chunks(file.pread(length, position))
            except CorruptChunkError as error:
                raise corrupt(segment.name, position, error) from None
        return chunks

    def close(self) -> None:
        pinned, self._pinned = self._pinned, []
        self._unpin(pinned)

    def __enter__(self) -> "Ranges":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
