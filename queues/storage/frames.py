"""The format of log files and segments: headers, frames, records; how they are written and read.

    file     0        8         10     11    12         16       24         40    44
             +--------+---------+------+-----+----------+--------+----------+-----+
             |magic 8s|version H|kind B| pad |next gid I|number Q|store 16s |crc I|
             +--------+---------+------+-----+----------+--------+----------+-----+
             44               52    56      4096
             +----------------+-----+-------+---------
             |first sequence Q|crc I| zeros | frames …
             +----------------+-----+-------+---------
    frame    0        4        8          16       24             32        36          40    44
             +--------+--------+----------+--------+--------------+---------+-----------+-----+
             |magic 4s|length I|sequence Q|synced Q|witness from Q|records I|witnesses I|crc I|
             +--------+--------+----------+--------+--------------+---------+-----------+-----+
             followed by   records of (kind B, pad 3x, gid I, index Q, term Q, length I)
                           witnesses of (gid I)
                           records of (crc I, payload)

All numbers are little-endian. `length` is what follows the frame's header. The frame's crc covers
its header, the table of records and the witnesses; each payload has its own, so that a damaged one
is laid to its group and the rest of the frame stands. Both start from a seed made of the store's id
and the file's number: what a recycled file still holds fails, and so does a message made to look
like a frame. `synced` is the last sequence that was on disk before this frame was written: if such
a frame is bad, that is corruption and not a torn write. The witnesses are the groups of the frames
from `witness from` up to this one, to tell whose records a bad frame held.

A log file begins with the frame of its first sequence. All frames before that one were on disk when
the file was made; whatever an older file has from there on is what a torn write left, and void.
Files of earlier versions have zeros in its place, and so do segments, whose sequences begin with 1.

    kind     index        term       payload
    REG      -            -          group's uuid
    HARD     term         commit     vote, 16 bytes little-endian; all ones: none
    ENTRY    index        term       entry
    TRUNC    first void   -          -
    SNAP     last covered its term   snapshot
    DEL      -            -          -
    SEAL     -            -          the gids in a segment, I each; its last record
    DAMAGE   -            -          why the group must not be served, UTF-8
    CONFIG   as of which  -          who is in the group, as the host writes it; opaque here

A DAMAGE of gid 0 is about logs of which not even the name is known any more. Index 0: such logs are
lost, and the payload says why. Index 1: that was accepted, for the findings that the payload lists,
one to a line. The last such record counts, and stays for as long as the store does.

A REG names a group anew where that takes the place of another, whose DEL follows it in the frame.
"""

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from queues.storage.disk import File
from queues.storage.errors import FormatVersionError

FORMAT_VERSION: Final = 1
FILE_MAGIC: Final = b"LEVERETL"
FRAME_MAGIC: Final = b"LVRF"
LOG_FILE: Final = 0
SEGMENT_FILE: Final = 1
FILE_HEADER_BYTES: Final = 4096  # a page, so that the first frame never shares one with the header
FILE_BYTES_MAX: Final = 2**32 - 1  # offsets take 32 bits of a position
# A frame is checked as a whole before anything of it counts; bigger batches take several.
FRAME_BYTES_MAX: Final = 8 * 1024 * 1024
# A bad sector takes neighbouring frames with it: name the groups of about two pages of them.
WITNESS_SPAN_BYTES: Final = 8 * 1024
# A payload that is cheaper to hand to the system by itself than to copy first.
LARGE_BYTES: Final = 32 * 1024
# One read of a scan: big enough for the disk, small beside the process.
SCAN_WINDOW_BYTES: Final = 4 * 1024 * 1024

REG: Final = 1
HARD: Final = 2
ENTRY: Final = 3
TRUNC: Final = 4
SNAP: Final = 5
DEL: Final = 6
SEAL: Final = 7
DAMAGE: Final = 8
CONFIG: Final = 9

LOSS_GID: Final = 0  # whose DAMAGE is about logs that nothing names any more
LOST: Final = 0
LOSS_ACCEPTED: Final = 1

NO_VOTE: Final = b"\xff" * 16

_FILE_HEADER: Final = struct.Struct("<8sHBxIQ16s")
_FIRST: Final = struct.Struct("<Q")
_FRAME_HEADER: Final = struct.Struct("<4sIQQQII")
_RECORD: Final = struct.Struct("<B3xIQQI")
_U32: Final = struct.Struct("<I")
FRAME_HEADER_BYTES: Final = _FRAME_HEADER.size + _U32.size
RECORD_BYTES: Final = _RECORD.size + _U32.size  # what a record takes beside its payload
CRC_BYTES: Final = _U32.size

# kind, gid, index, term, payload
Record: TypeAlias = tuple[int, int, int, int, bytes]

_pack_record = _RECORD.pack
_pack_u32 = _U32.pack


class FileHeader(NamedTuple):
    kind: int
    next_gid: int
    number: int
    store_id: bytes
    first_sequence: int = 0  # of a log file; 0 if it does not say


def position_of(number: int, offset: int) -> int:
    """File and offset of a record's crc in one number, for packed arrays."""
    return number << 32 | offset


def seed_of(store_id: bytes, number: int) -> int:
    return crc32(store_id) ^ (number & 0xFFFFFFFF)


def encode_file_header(header: FileHeader) -> bytes:
    fields = _FILE_HEADER.pack(
        FILE_MAGIC,
        FORMAT_VERSION,
        header.kind,
        header.next_gid,
        header.number,
        header.store_id,
    )
    fields += _pack_u32(crc32(fields))
    if header.first_sequence:
        fields += _FIRST.pack(header.first_sequence)
        fields += _pack_u32(crc32(fields))
    return fields.ljust(FILE_HEADER_BYTES, b"\0")


def decode_file_header(data: bytes, name: str) -> FileHeader | None:
    """None if the bytes are no header; FormatVersionError if they are one of another version."""
    end = _FILE_HEADER.size
    if len(data) < end + CRC_BYTES or _U32.unpack_from(data, end)[0] != crc32(data[:end]):
        return None
    magic, version, kind, next_gid, number, store_id = _FILE_HEADER.unpack_from(data)
    if magic != FILE_MAGIC:
        return None
    if version != FORMAT_VERSION:
        raise FormatVersionError(
            f"{name} has format version {version}; this program reads {FORMAT_VERSION}"
        )
    return FileHeader(kind, next_gid, number, store_id, _first_sequence(data))


def _first_sequence(data: bytes) -> int:
    start = _FILE_HEADER.size + CRC_BYTES
    end = start + _FIRST.size
    if len(data) < end + CRC_BYTES or _U32.unpack_from(data, end)[0] != crc32(data[:end]):
        return 0
    first: int = _FIRST.unpack_from(data, start)[0]
    return first


class Witnesses:
    """The groups of the last few frames."""

    __slots__ = ("_bytes", "_frames", "gids", "since")

    def __init__(self, next_sequence: int) -> None:
        self._frames: deque[tuple[int, set[int], int]] = deque()
        self._bytes = 0
        self.since = next_sequence  # the first sequence that the next frame vouches for
        self.gids: list[int] = []  # the groups of the frames from there on

    def saw(self, sequence: int, gids: set[int], size_bytes: int) -> None:
        frames = self._frames
        frames.append((sequence, gids, size_bytes))
        self._bytes += size_bytes
        while len(frames) > 1 and self._bytes - frames[0][2] >= WITNESS_SPAN_BYTES:
            self._bytes -= frames.popleft()[2]
        self.since = frames[0][0]
        self.gids = sorted(set().union(*[of_frame for _, of_frame, _ in frames]))


@dataclass(slots=True)
class Frame:
    """A frame with its place in a file, not yet encoded."""

    number: int
    offset: int
    file_bytes: int  # the size its file must have at least
    sequence: int
    witness_from: int
    witnesses: list[int]
    records: list[Record]
    offsets: list[int]  # of each record's crc, ascending
    size_bytes: int
    submit: int | None = None  # the submit that this frame is the last one of

    @property
    def start(self) -> int:
        return position_of(self.number, self.offset)

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + self.size_bytes

    def placed(self) -> Iterator[tuple[Record, int]]:
        """The records with their offsets."""
        return zip(self.records, self.offsets, strict=True)

    def encode(self, seed: int, synced: int) -> bytes:
        return b"".join(self.pieces(seed, synced))

    def pieces(self, seed: int, synced: int) -> list[bytes]:
        """All its bytes, to be written one behind another; large payloads are not copied."""
        parts = [b"", b""]
        blob = []
        for kind, gid, index, term, payload in self.records:
            parts.append(_pack_record(kind, gid, index, term, len(payload)))
            blob.append(_pack_u32(crc32(payload, seed)))
            blob.append(payload)
        parts.append(encode_gids(self.witnesses))
        head = _FRAME_HEADER.pack(
            FRAME_MAGIC,
            self.size_bytes - FRAME_HEADER_BYTES,
            self.sequence,
            synced,
            self.witness_from,
            len(self.records),
            len(self.witnesses),
        )
        parts[0] = head
        parts[1] = _pack_u32(crc32(b"".join(parts), seed))
        return _joined(parts + blob)


def _joined(parts: list[bytes]) -> list[bytes]:
    """The same bytes with what is small made one."""
    pieces: list[bytes] = []
    start = 0
    for place, part in enumerate(parts):
        if len(part) >= LARGE_BYTES:
            pieces += (b"".join(parts[start:place]), part)
            start = place + 1
    return [*pieces, b"".join(parts[start:])]


class FramePlanner:
    """Gives frames their sequence, size and place. One planner per log or segment."""

    __slots__ = ("_witnesses", "next_sequence")

    def __init__(self, next_sequence: int, witnesses: Witnesses | None = None) -> None:
        self.next_sequence = next_sequence
        self._witnesses = witnesses or Witnesses(next_sequence)

    def overhead_bytes(self) -> int:
        """What the next frame takes beside its records."""
        return FRAME_HEADER_BYTES + 4 * len(self._witnesses.gids)

    def plan(self, records: list[Record], number: int, offset: int, file_bytes: int) -> Frame:
        sequence = self.next_sequence
        witness_from, witnesses = self._witnesses.since, self._witnesses.gids
        place = offset + FRAME_HEADER_BYTES + _RECORD.size * len(records) + 4 * len(witnesses)
        offsets = []
        for record in records:
            offsets.append(place)
            place += CRC_BYTES + len(record[4])
        size = place - offset
        self._witnesses.saw(sequence, {record[1] for record in records}, size)
        self.next_sequence = sequence + 1
        return Frame(
            number,
            offset,
            file_bytes,
            sequence,
            witness_from,
            witnesses,
            records,
            offsets,
            size,
        )


class RecordHead(NamedTuple):
    """A record in a file; its payload is `length` bytes after the crc at `offset`."""

    kind: int
    gid: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs
    term: int
    length: int
    offset: int


@dataclass(slots=True)
class ScannedFrame:
    """A frame whose table is sound. `body` is the whole frame, as read."""

    offset: int
    sequence: int
    synced: int
    witness_from: int
    witnesses: Sequence[int]
    size_bytes: int
    body: memoryview
    records: int

    def heads(self) -> Iterator[RecordHead]:
        place = self.first_record
        for kind, gid, index, term, length in self.table():
            yield RecordHead(kind, gid, index, term, length, place)
            place += CRC_BYTES + length

    @property
    def first_record(self) -> int:
        """The offset in the file of the first record's crc."""
        table = _RECORD.size * self.records + 4 * len(self.witnesses)
        return self.offset + FRAME_HEADER_BYTES + table

    def table(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Kind, gid, index, term and length of each record."""
        end = FRAME_HEADER_BYTES + _RECORD.size * self.records
        return _RECORD.iter_unpack(self.body[FRAME_HEADER_BYTES:end])

    def payload(self, head: RecordHead) -> bytes:
        start = head.offset - self.offset + CRC_BYTES
        return bytes(self.body[start : start + head.length])

    def bad_payloads(self, seed: int) -> list[int]:
        """The numbers of the records whose payload fails its crc."""
        bad = []
        body = self.body
        place = self.first_record - self.offset
        crc_at = _U32.unpack_from
        for number, (_, _, _, _, length) in enumerate(self.table()):
            start = place + CRC_BYTES
            end = start + length
            if (crc32(body[start:end], seed),) != crc_at(body, place):
                bad.append(number)
            place = end
        return bad


@dataclass(slots=True)
class BadBytes:
    """No frame begins here."""

    offset: int
    sequence: int | None  # what the broken header claims, if it has the magic


def check_payload(data: memoryview, seed: int) -> bool:
    """Whether a record read back as crc and payload is sound."""
    return bool(crc32(data[CRC_BYTES:], seed) == _U32.unpack_from(data)[0])


def scan_frames(file: File, seed: int) -> Iterator[ScannedFrame | BadBytes]:
    """All sound frames of a file in order; BadBytes wherever the next one does not follow."""
    window = _Window(file)
    offset = FILE_HEADER_BYTES
    while window.end - offset >= FRAME_HEADER_BYTES:
        frame = _frame_at(window, offset, seed)
        if frame is None:
            yield BadBytes(offset, _claimed_sequence(window, offset))
            frame = _next_frame(window, offset + 1, seed)
            if frame is None:
                return
        yield frame
        offset = frame.offset + frame.size_bytes


class _Window:
    """A file read in large pieces."""

    __slots__ = ("_data", "_file", "_start", "_view", "end")

    def __init__(self, file: File) -> None:
        self._file = file
        self._data = b""
        self._view = memoryview(b"")
        self._start = 0
        self.end = file.size_bytes()

    def view(self, offset: int, length: int) -> memoryview:
        """Exactly these bytes; they must be inside the file."""
        if offset < self._start or offset + length > self._start + len(self._data):
            self._load(offset, length)
        return self._view[offset - self._start : offset - self._start + length]

    def _load(self, offset: int, length: int) -> None:
        self._data = self._file.pread(max(length, SCAN_WINDOW_BYTES), offset)
        self._view = memoryview(self._data)
        self._start = offset

    def find_magic(self, offset: int) -> int:
        """Where the next frame may begin, or -1."""
        while self.end - offset >= FRAME_HEADER_BYTES:
            self.view(offset, FRAME_HEADER_BYTES)
            found = self._data.find(FRAME_MAGIC, offset - self._start)
            if found >= 0:
                return self._start + found
            offset = max(offset + 1, self._start + len(self._data) - len(FRAME_MAGIC) + 1)
        return -1


def _frame_at(window: _Window, offset: int, seed: int) -> ScannedFrame | None:
    if window.end - offset < FRAME_HEADER_BYTES:
        return None
    header = window.view(offset, FRAME_HEADER_BYTES)
    magic, length, sequence, synced, witness_from, records, witnesses = _FRAME_HEADER.unpack_from(
        header
    )
    table = FRAME_HEADER_BYTES + _RECORD.size * records + 4 * witnesses
    size = FRAME_HEADER_BYTES + length
    if magic != FRAME_MAGIC or table > size or offset + size > window.end:
        return None
    crc = _U32.unpack_from(header, _FRAME_HEADER.size)[0]
    body = window.view(offset, table)
    found = crc32(body[: _FRAME_HEADER.size], seed)
    if crc32(body[FRAME_HEADER_BYTES:], found) != crc:
        return None
    body = window.view(offset, size)
    gids = decode_gids(body[table - 4 * witnesses : table])
    return ScannedFrame(offset, sequence, synced, witness_from, gids, size, body, records)


def _next_frame(window: _Window, offset: int, seed: int) -> ScannedFrame | None:
    while (offset := window.find_magic(offset)) >= 0:
        if frame := _frame_at(window, offset, seed):
            return frame
        offset += 1
    return None


def _claimed_sequence(window: _Window, offset: int) -> int | None:
    fields = _FRAME_HEADER.unpack_from(window.view(offset, FRAME_HEADER_BYTES))
    return fields[2] if fields[0] == FRAME_MAGIC else None


def encode_vote(vote: int | None) -> bytes:
    if vote is None:
        return NO_VOTE
    data = vote.to_bytes(16, "little")
    assert data != NO_VOTE
    return data


def decode_vote(data: bytes) -> int | None:
    return None if data == NO_VOTE else int.from_bytes(data, "little")


def encode_gids(gids: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(gids)}I", *gids)


def decode_gids(data: bytes | memoryview) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)
