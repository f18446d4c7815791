"""The sparse index of a segment: the chunk to start looking at, by offset or by time.

    file   0        4         6      8      16    24           32         40
           +--------+---------+------+------+-----+------------+----------+-----------+
           |magic 4s|version H|zero H|base Q|end Q|size bytes Q|first ms q|latest ms q|
           +--------+---------+------+------+-----+------------+----------+-----------+
           48        56           64        68            72         76
           +---------+------------+---------+-------------+----------+
           |records Q|cleaned to Q|entries I|entries crc I|head crc I|
           +---------+------------+---------+-------------+----------+
           followed by offsets u64[entries], times i64[entries], positions u64[entries]

An entry is a chunk: its base offset, the latest time of any record before it in the segment, and
where it stands. The first chunk has one, and then whichever begins INDEX_SPACING_BYTES after the
last that has. The head alone says what the segment holds, so that a start reads no more.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple
from zlib import crc32

from broker.protocol.chunk import Header

MAGIC: Final = b"LVIX"
VERSION: Final = 1
# One read finds the chunk from an entry; 128 MiB of segment make 2048 entries of 24 bytes.
INDEX_SPACING_BYTES: Final = 64 * 1024
BEGINNING_OF_TIME: Final = -(2**63)

_HEAD: Final = struct.Struct("<4sHHQQQqqQQII")
_CRC: Final = struct.Struct("<I")
HEAD_BYTES: Final = _HEAD.size + _CRC.size
_ENTRY_BYTES: Final = 24


class Summary(NamedTuple):
    """What a segment holds."""

    base: int
    end: int  # the offset that follows its last
    size_bytes: int
    first_ms: int
    latest_ms: int
    records: int
    cleaned_to: int  # below this offset, compaction has left one record of each key

    def with_chunk(self, header: Header) -> "Summary":
        """The same segment with one chunk more."""
        empty = not self.size_bytes
        return Summary(
            self.base,
            header.end_offset,
            self.size_bytes + header.size_bytes,
            header.first_ms if empty else self.first_ms,
            header.latest_ms if empty else max(self.latest_ms, header.latest_ms),
            self.records + header.records,
            self.cleaned_to,
        )


def empty_summary(base: int) -> Summary:
    return Summary(base, base, 0, 0, 0, 0, 0)


class SparseIndex:
    """Entries in three arrays, ascending in each."""

    __slots__ = ("_latest_ms", "_offsets", "_positions", "_times")

    def __init__(self) -> None:
        self._offsets = array("Q")
        self._times = array("q")
        self._positions = array("Q")
        self._latest_ms = BEGINNING_OF_TIME

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, header: Header, position: int) -> None:
        """The next chunk of the segment."""
        positions = self._positions
        if not positions or position - positions[-1] >= INDEX_SPACING_BYTES:
            self._offsets.append(header.base_offset)
            self._times.append(self._latest_ms)
            positions.append(position)
        if header.records:
            self._latest_ms = max(self._latest_ms, header.latest_ms)

    def by_offset(self, offset: int) -> int:
        """The position of a chunk at or before the one that covers the offset."""
        return self._positions[max(0, bisect_right(self._offsets, offset) - 1)]

    def by_time(self, time_ms: int) -> int:
        """The position of a chunk before which no record is so late."""
        return self._positions[max(0, bisect_left(self._times, time_ms) - 1)]

    def by_position(self, position: int) -> int:
        """The position of the last chunk known to begin there or before."""
        return self._positions[max(0, bisect_right(self._positions, position) - 1)]

    def encode(self, summary: Summary) -> bytes:
        entries = b"".join(map(bytes, (self._offsets, self._times, self._positions)))
        crc = crc32(entries)
        head = _HEAD.pack(MAGIC, VERSION, 0, *summary, len(self), crc)
        return b"".join((head, _CRC.pack(crc32(head)), entries))

    @classmethod
    def decode(cls, data: bytes) -> "SparseIndex | None":
        """None if the file is damaged: it can be made anew."""
        if decode_summary(data) is None:
            return None
        count, crc = _HEAD.unpack_from(data)[-2:]
        entries = data[HEAD_BYTES:]
        if len(entries) != _ENTRY_BYTES * count or crc32(entries) != crc:
            return None
        index = cls()
        for number, column in enumerate((index._offsets, index._times, index._positions)):
            column.frombytes(entries[8 * count * number : 8 * count * (number + 1)])
        return index


def decode_summary(head: bytes) -> Summary | None:
    """What an index file says of its segment, None if that is damaged."""
    if len(head) < HEAD_BYTES or _CRC.unpack_from(head, _HEAD.size)[0] != crc32(head[: _HEAD.size]):
        return None
    magic, version, _, *fields = _HEAD.unpack_from(head)
    if magic != MAGIC or version != VERSION:
        return None
    return Summary(*fields[:-2])
