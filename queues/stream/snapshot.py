"""The records of a partition for a replica that is too far behind to get them from the log.

The replica says what it has; who leads answers with parts, in pieces, up to the end of its segments
and so beyond its last checkpoint, which comes after them. Replicas move, merge and compact by
themselves, so that neither files nor chunks are the same on both: offsets and records are.

    have    0     8             16      24
            +-----+-------------+-------+-----+
            |end Q|last offset q|time q |crc I|   nothing at all if it has nothing of use
            +-----+-------------+-------+-----+
    part    0       1      9
            +-------+------+-----------+
            |anew B |base Q| chunks …  |   anew: what the replica has is not what it should have
            +-------+------+-----------+
    piece   MORE or LAST, and then some bytes of a part

`end` is where its segments end; the last offset (-1: none), with its time and the crc of key, value
and properties, is of the last record in them. Little-endian.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import crc32

from broker.protocol.chunk import Record, split_chunks
from broker.protocol.stream_errors import OffsetOutOfRangeError
from queues.stream.cutting import between, cut
from queues.stream.segments import Segments

PART_BYTES: Final = 1024 * 1024  # about; one chunk may be larger
PIECE_BYTES: Final = 128 * 1024  # others get their turn in between
MORE: Final = b"\1"
LAST: Final = b"\0"

_HAVE: Final = struct.Struct("<QqqI")
_PART: Final = struct.Struct("<?Q")


class Have(NamedTuple):
    """What a replica has in its segments."""

    end: int
    last: int  # offset of the last record, -1 if there is none
    time_ms: int
    crc: int

    def encode(self) -> bytes:
        return _HAVE.pack(*self)

    @classmethod
    def decode(cls, have: bytes) -> "Have | None":
        """None: nothing of use."""
        return cls(*_HAVE.unpack(have)) if len(have) == _HAVE.size else None


def _crc(record: Record) -> int:
    """Of the record; a null and an empty one differ."""
    crc = 0
    for piece in (record.key, record.value, record.properties):
        crc = crc32(b"\0" if piece is None else b"\1" + piece, crc)
    return crc


def have_of(segments: Segments) -> Have:
    """Reads one chunk. Raises StreamError."""
    last = segments.last_record()
    end = segments.end.end
    if last is None:
        return Have(end, -1, 0, 0)
    return Have(end, last.offset, last.timestamp_ms, _crc(last))


def parts_for(segments: Segments, have: bytes) -> Iterator[bytes]:
    """At the leader, off the loop: what a replica lacks of these segments, in pieces.

    At least one, which says that a replacement begins. Raises StreamError.
    """
    theirs = Have.decode(have)
    until = segments.end.end
    same = theirs is not None and theirs.end <= until and _is_same(segments, theirs)
    offset = theirs.end if same and theirs is not None else segments.first_offset
    anew, told = not same, False
    while offset < until or not told:
        try:
            chunks = segments.read(offset, until, PART_BYTES)
        except OffsetOutOfRangeError as error:
            # Retention overtook it: what the replica has before the hole goes there as well.
            offset = min(error.first_offset, until)
            continue
        data = b"".join(between(chunks, offset, until))
        yield from _pieces(_PART.pack(anew, offset) + data)
        anew, told = False, True
        offset = min(chunks[-1].header.end_offset, until) if chunks else until


def _is_same(segments: Segments, have: Have) -> bool:
    """Whether a replica's last record is what is there; if it is gone here, nobody can say."""
    if have.last < 0:
        return True
    try:
        chunks = segments.read(have.last, have.last + 1, 1)
    except OffsetOutOfRangeError:
        return True
    found = [record for chunk in chunks for record in chunk.slice(have.last, have.last + 1)]
    return all((each.timestamp_ms, _crc(each)) == (have.time_ms, have.crc) for each in found)


def _pieces(part: bytes) -> Iterator[bytes]:
    for start in range(0, len(part), PIECE_BYTES):
        piece = part[start : start + PIECE_BYTES]
        yield (LAST if start + PIECE_BYTES >= len(part) else MORE) + piece


def store_part(segments: Segments, part: bytes) -> None:
    """At the replica, off the loop. What it has already is left out, so that it may come twice.

    Raises CorruptChunkError, and OutOfSpaceError.
    """
    anew, base = _PART.unpack_from(part)
    chunks = split_chunks(memoryview(part)[_PART.size :])
    segments.mark_replaced()
    if anew or base > segments.end.end:
        segments.begin_anew(base)
    made: list[bytes] = []
    end = segments.end.end
    for chunk in chunks:
        if chunk.header.end_offset > end:
            made.append(cut(chunk, end))
            end = chunk.header.end_offset
    segments.append(made)
