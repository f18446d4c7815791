"""The tail of a partition: chunks that are committed and not in a segment yet, in memory."""

from bisect import bisect_right
from typing import Final

from broker.protocol.chunk import Chunk

# All partitions of a node together hold about this much before they move what little they have.
TAILS_BYTES_MAX: Final = 48 * 1024 * 1024
CHUNK_OVERHEAD_BYTES: Final = 2048  # what a chunk costs in memory beside its bytes


class TailBudget:
    """Bytes that the tails of a node hold."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int = TAILS_BYTES_MAX) -> None:
        self.limit = limit
        self.used = 0

    @property
    def exceeded(self) -> bool:
        return self.used > self.limit

    @property
    def exhausted(self) -> bool:
        """Moving is no longer enough: partitions that have much must take no more for now."""
        return self.used > 2 * self.limit


class Tail:
    """Chunks in the order of their offsets."""

    def __init__(self, budget: TailBudget) -> None:
        self._budget = budget
        self._chunks: list[Chunk] = []
        self._bases: list[int] = []
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._chunks)

    @property
    def first_offset(self) -> int | None:
        return self._bases[0] if self._bases else None

    def append(self, chunk: Chunk) -> None:
        self._chunks.append(chunk)
        self._bases.append(chunk.header.base_offset)
        self._charge(chunk.header.size_bytes + CHUNK_OVERHEAD_BYTES)

    def _charge(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._budget.used += size_bytes

    def drop_before(self, offset: int) -> None:
        """Chunks that end here or before are in a segment now."""
        count = bisect_right(self._bases, offset - 1)
        gone = self._chunks[:count]
        assert not gone or gone[-1].header.end_offset <= offset, "chunks move as a whole"
        del self._chunks[:count], self._bases[:count]
        self._charge(-sum([c.header.size_bytes + CHUNK_OVERHEAD_BYTES for c in gone]))

    def clear(self) -> None:
        self._chunks, self._bases = [], []
        self._charge(-self.size_bytes)

    def all(self) -> list[Chunk]:
        return list(self._chunks)

    def read(self, offset: int, end_offset: int, max_bytes: int) -> list[Chunk]:
        """Chunks from the one that covers `offset` on, before `end_offset`, at least one."""
        found: list[Chunk] = []
        size = 0
        for place in range(max(0, bisect_right(self._bases, offset) - 1), len(self._chunks)):
            chunk = self._chunks[place]
            size += chunk.header.size_bytes
            if chunk.header.base_offset >= end_offset or (found and size > max_bytes):
                break
            found.append(chunk)
        return found

    def seek_time(self, time_ms: int) -> int | None:
        """The offset of the first record of this time or later."""
        for chunk in self._chunks:
            if chunk.header.records and chunk.header.latest_ms >= time_ms:
                times = chunk.timestamps.tolist()
                return chunk.offset_of(next(n for n, t in enumerate(times) if t >= time_ms))
        return None
