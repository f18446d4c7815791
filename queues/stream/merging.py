"""Fewer, larger chunks: out of many small ones, or out of what compaction leaves of them."""

from collections.abc import Iterable, Sequence
from typing import Final

from broker.protocol.chunk import (
    ABORT_MARK,
    COMMIT_MARK,
    HEADER_BYTES,
    TRANSACTIONAL,
    Chunk,
    Record,
    encode_chunk,
    encode_empty,
    read_header,
)

# A reader's cost is mostly per chunk below this size, and mostly per byte above it.
SMALL_CHUNK_BYTES: Final = 64 * 1024
# What small chunks grow to: a good read for a bulk reader, a bounded one for a consumer.
MERGED_CHUNK_BYTES: Final = 1024 * 1024
# Of a segment that is full at least so many, so that it is little larger than it should be; but
# chunks are not cut smaller than this, however small the segments are to be.
CHUNKS_PER_SEGMENT: Final = 8
CUT_CHUNK_BYTES_MIN: Final = 8 * 1024
SPAN_MAX: Final = 2**32 - 1
_RECORD_BYTES: Final = 20  # what a record takes in a chunk beside its own bytes
_OF_TRANSACTIONS: Final = TRANSACTIONAL | COMMIT_MARK | ABORT_MARK


class ChunkBuilder:
    """Gathers records for one chunk, which covers the offsets from `base` to `end`."""

    def __init__(self, base: int) -> None:
        self._start(base)

    def _start(self, base: int) -> None:
        self.base = self.end = base
        self.size_bytes = 0
        self._latest_ms = 0
        self._records: list[Record] = []

    def add(self, records: Iterable[Record], end: int, latest_ms: int) -> None:
        """What is left of a chunk that covered the offsets up to `end`."""
        before = len(self._records)
        self._records += records
        added = self._records[before:]
        self.size_bytes += sum(
            [len(r.key or b"") + len(r.value or b"") + len(r.properties) for r in added]
        )
        self.size_bytes += _RECORD_BYTES * len(added)
        self._latest_ms = latest_ms if self.end == self.base else max(self._latest_ms, latest_ms)
        self.end = end

    def covers(self, end: int) -> bool:
        """Whether one chunk can go on as far as that."""
        return end - self.base <= SPAN_MAX

    def build(self) -> bytes | None:
        """The chunk of all that was added, None if that was nothing. The next begins behind it."""
        base, span, records = self.base, self.end - self.base, self._records
        latest_ms = self._latest_ms
        self._start(self.end)
        if not span:
            return None
        if not records:
            return encode_empty(span, latest_ms, base_offset=base)
        offsets, times, keys, values, properties = zip(*records, strict=True)
        return encode_chunk(
            keys,
            values,
            properties,
            times,
            base_offset=base,
            span=span,
            relative=[offset - base for offset in offsets],
        )


def resize(chunks: Sequence[Chunk], segment_bytes: int) -> list[Chunk]:
    """The same records in the same order: runs of small chunks made one, and large ones cut.

    A segment ends behind the chunk that fills it, so that chunks must be small beside it. Those of
    transactions stay as they are: a reader has to see whose they are.
    """
    most_bytes = max(segment_bytes // CHUNKS_PER_SEGMENT, CUT_CHUNK_BYTES_MIN)
    small_bytes = min(SMALL_CHUNK_BYTES, most_bytes)
    merged: list[Chunk] = []
    run: list[Chunk] = []
    size = 0
    for chunk in chunks:
        header = chunk.header
        if header.flags & _OF_TRANSACTIONS or header.size_bytes >= small_bytes:
            merged += _merge(run)
            merged += _cut(chunk, most_bytes)
            run, size = [], 0
            continue
        if size + header.size_bytes > min(MERGED_CHUNK_BYTES, most_bytes):
            merged += _merge(run)
            run, size = [], 0
        run.append(chunk)
        size += header.size_bytes
    return merged + _merge(run)


def _merge(run: list[Chunk]) -> list[Chunk]:
    if len(run) < 2:
        return run
    builder = ChunkBuilder(run[0].header.base_offset)
    for chunk in run:
        builder.add(chunk, chunk.header.end_offset, chunk.header.latest_ms)
    made = builder.build()
    assert made is not None
    return [Chunk(made, read_header(made))]


def _cut(chunk: Chunk, most_bytes: int) -> list[Chunk]:
    header = chunk.header
    if header.size_bytes <= most_bytes or header.flags & _OF_TRANSACTIONS or header.records < 2:
        return [chunk]
    pieces: list[bytes | None] = []
    builder = ChunkBuilder(header.base_offset)
    room = most_bytes - HEADER_BYTES - _RECORD_BYTES
    for record in chunk:
        length = len(record.key or b"") + len(record.value or b"") + len(record.properties)
        if builder.size_bytes and builder.size_bytes + length > room:
            pieces.append(builder.build())
        builder.add([record], record.offset + 1, record.timestamp_ms)
    builder.add([], header.end_offset, 0)  # records may be missing at its end
    pieces.append(builder.build())
    return [Chunk(piece, read_header(piece)) for piece in pieces if piece is not None]
