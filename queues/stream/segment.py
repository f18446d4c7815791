"""One segment: a file of whole chunks, one behind another, and the index beside it.

A segment is named by the first offset that it covers. Its chunks cover all offsets up to those of
the next segment without a hole, also where compaction took records away. Only the last segment
grows. The generation in the name tells what compaction wrote from what it replaced.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from broker.protocol.chunk import HEADER_BYTES, Chunk, Header, read_header
from broker.protocol.stream_errors import CorruptChunkError
from queues.storage.disk import Disk, File
from queues.storage.errors import OutOfSpaceError
from queues.stream.index import SparseIndex, Summary

SEGMENT_SUFFIX: Final = ".segment"
INDEX_SUFFIX: Final = ".index"
UNFINISHED_SUFFIX: Final = ".tmp"
SCAN_BYTES: Final = 4 * 1024 * 1024  # one read of a scan
WALK_BYTES: Final = 4 * 1024  # one read of a walk: many headers of small chunks, one of large ones


def stem(base: int, generation: int) -> str:
    return f"{base:020d}-{generation}"


def parse_name(name: str) -> tuple[int, int] | None:
    """Base and generation of a segment file, None for anything else."""
    digits, dash, generation = name.removesuffix(SEGMENT_SUFFIX).partition("-")
    if name.endswith(SEGMENT_SUFFIX) and dash and digits.isdecimal() and generation.isdecimal():
        return int(digits), int(generation)
    return None


class Segment:
    """A segment in memory: what it holds, and its file and index while they are in use."""

    __slots__ = ("dropped", "file", "generation", "index", "pins", "summary")

    def __init__(self, summary: Summary, generation: int) -> None:
        self.summary = summary
        self.generation = generation
        self.file: File | None = None
        self.index: SparseIndex | None = None
        self.pins = 0  # readers; its file is not closed before they are done
        self.dropped = False  # no part of the stream any more

    @property
    def base(self) -> int:
        return self.summary.base

    @property
    def name(self) -> str:
        return stem(self.base, self.generation) + SEGMENT_SUFFIX

    @property
    def index_name(self) -> str:
        return stem(self.base, self.generation) + INDEX_SUFFIX


def corrupt(name: str, position: int, reason: object) -> CorruptChunkError:
    return CorruptChunkError(f"{name} at byte {position}: {reason}")


def walk(file: File, name: str, position: int, end: int) -> Iterator[tuple[int, Header]]:
    """The headers of the chunks between two positions. Raises CorruptChunkError."""
    window, start = b"", 0
    while position < end:
        if not start <= position <= start + len(window) - HEADER_BYTES:
            window, start = file.pread(min(WALK_BYTES, end - position), position), position
        try:
            header = read_header(window, position - start)
        except CorruptChunkError as error:
            raise corrupt(name, position, error) from None
        if position + header.size_bytes > end:
            raise corrupt(name, position, "the last chunk is cut short")
        yield position, header
        position += header.size_bytes


def read_chunk(file: File, name: str, position: int, header: Header) -> Chunk:
    """The chunk of this header, checked."""
    try:
        return Chunk(file.pread(header.size_bytes, position))
    except CorruptChunkError as error:
        raise corrupt(name, position, error) from None


def scan(file: File, position: int, offset: int) -> Iterator[Header]:
    """The sound chunks that follow from a position and offset on, up to the first that does not."""
    size = file.size_bytes()
    window, start = b"", position
    while True:
        data = memoryview(window)[position - start :]
        try:
            header = read_header(data)
            if header.base_offset != offset:
                return
            if header.size_bytes <= len(data):
                Chunk(data)
                yield header
                position += header.size_bytes
                offset = header.end_offset
                continue
            needed = header.size_bytes
        except CorruptChunkError:
            if len(data) >= HEADER_BYTES:
                return
            needed = HEADER_BYTES
        if position + needed > size:
            return
        window, start = file.pread(max(needed, SCAN_BYTES), position), position


def build_index(file: File, name: str, index: SparseIndex, position: int, end: int) -> None:
    """Add the chunks between two positions."""
    for place, header in walk(file, name, position, end):
        index.add(header, place)


@contextmanager
def room_wanted() -> Iterator[None]:
    """A full disk is no failed disk: what was not written can be written later."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OutOfSpaceError(str(error)) from error
        raise


def write_file(disk: Disk, name: str, data: bytes) -> None:
    """Put a small file in place as a whole, or not at all. Durable with the next directory sync."""
    unfinished = name + UNFINISHED_SUFFIX
    if unfinished in disk.list():
        disk.unlink(unfinished)
    file = disk.create(unfinished, 0)
    try:
        file.pwritev([data], 0)
        file.datasync()
    finally:
        file.close()
    disk.rename(unfinished, name)


def remove_segment(disk: Disk, name: str, index_name: str) -> None:
    disk.unlink(name)
    if index_name in disk.list():
        disk.unlink(index_name)
    disk.sync_directory()
