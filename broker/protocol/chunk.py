"""The chunk: a columnar batch of records, the unit of storage, replication and reading.

    header   0        4         5       6       8             16     20        24
             +--------+---------+-------+-------+-------------+------+---------+----------+
             |magic 4s|version B|flags B|epoch H|base offset Q|span I|records I|first ms q|
             +--------+---------+-------+-------+-------------+------+---------+----------+
             32          40           48           52           56         60        64
             +-----------+------------+------------+------------+----------+---------+
             |latest ms q|producer id Q|sequence I |body bytes I|body crc I|head crc I|
             +-----------+------------+------------+------------+----------+---------+
    body     timestamps          i64[records], ms
             relative offsets    u32[records], only with GAPS
             key validity        bits, LSB first, only with NULL_KEYS: a 0 is a null key
             key offsets         i32[records + 1]
             keys
             value validity      bits, only with NULL_VALUES: a 0 is a null value (a tombstone)
             value offsets       i32[records + 1]
             values
             property offsets    i32[records + 1]
             properties          of the AMQP message, see content.py; opaque here

All numbers are little-endian, and each section starts at a multiple of eight bytes of the chunk;
what is between them is zero. Offsets, bits and blobs are those of Arrow's binary arrays, so that a
reader makes arrays of them as they are. The chunk covers `span` offsets from `base offset` on;
without GAPS there is a record at each. The base is 0 until the chunk is committed: only the header,
and so only its own crc, changes with it. The body's crc covers everything behind the header.
`producer id`, `epoch` and the `sequence` of the first record count with PRODUCER only.
"""

import struct
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple
from zlib import crc32

from broker.protocol.chunk_columns import Buffer, add_column, add_section
from broker.protocol.stream_errors import CorruptChunkError
from broker.protocol.stream_properties import decode_headers
from broker.protocol.tables import Table

MAGIC: Final = b"LVCH"
VERSION: Final = 1
HEADER_BYTES: Final = 64
BODY_BYTES_MAX: Final = 2**31 - 1  # Arrow's offsets have 32 bits

PRODUCER: Final = 1  # the producer's number and sequence are given
TRANSACTIONAL: Final = 2  # counts only when its transaction is committed
COMMIT_MARK: Final = 4  # ends a transaction of its producer; no records
ABORT_MARK: Final = 8
GAPS: Final = 16  # not every offset of the span has a record
NULL_KEYS: Final = 32
NULL_VALUES: Final = 64
_KNOWN_FLAGS: Final = 127
_GIVEN_FLAGS: Final = TRANSACTIONAL | COMMIT_MARK | ABORT_MARK

_FIELDS: Final = struct.Struct("<4sBBHQIIqqQIII")
_CRC: Final = struct.Struct("<I")
_TIME: Final = struct.Struct("<q")

if sys.byteorder != "little":
    raise ImportError("chunks are read in place, which takes a little-endian machine")


class Producer(NamedTuple):
    """Who wrote a chunk; the sequence is that of its first record."""

    id: int
    epoch: int
    sequence: int


class Header(NamedTuple):
    flags: int
    epoch: int
    base_offset: int
    span: int
    records: int
    first_ms: int
    latest_ms: int
    producer_id: int
    sequence: int
    body_bytes: int
    body_crc: int

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.span

    @property
    def size_bytes(self) -> int:
        return HEADER_BYTES + self.body_bytes

    @property
    def producer(self) -> Producer | None:
        if not self.flags & PRODUCER:
            return None
        return Producer(self.producer_id, self.epoch, self.sequence)

    def encode(self) -> bytes:
        fields = _FIELDS.pack(MAGIC, VERSION, *self)
        return fields + _CRC.pack(crc32(fields))


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    properties: bytes

    @property
    def headers(self) -> Table:
        """Decoded when asked for. Raises ValueError if the properties are not what they should."""
        return decode_headers(self.properties)


# Encoding


def encode_chunk(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    properties: Sequence[bytes],
    timestamps_ms: Sequence[int] | int,
    *,
    flags: int = 0,
    producer: Producer | None = None,
    base_offset: int = 0,
    span: int | None = None,
    relative: Sequence[int] | None = None,
) -> bytes:
    """A chunk of these columns. One timestamp may stand for all.

    `span` and `relative`, the place of each record in it, are for chunks with gaps.
    """
    count = len(keys)
    span = count if span is None else span
    assert flags | _GIVEN_FLAGS == _GIVEN_FLAGS
    assert count == len(values) == len(properties)
    if isinstance(timestamps_ms, int):
        times = _TIME.pack(timestamps_ms) * count
        first = latest = timestamps_ms
    else:
        times = struct.pack(f"<{count}q", *timestamps_ms)
        first, latest = timestamps_ms[0], max(timestamps_ms)
    pieces: list[Buffer] = [times]
    if span != count:
        assert relative is not None
        flags |= GAPS
        add_section(pieces, struct.pack(f"<{count}I", *relative))
    flags |= NULL_KEYS * add_column(pieces, keys)
    flags |= NULL_VALUES * add_column(pieces, values)
    add_column(pieces, properties)
    return _join(pieces, flags, span, count, (first, latest), producer, base_offset)


def encode_columns(
    records: int, time_ms: int, keys: "Column", values: "Column", properties: "Column"
) -> bytes:
    """A chunk of columns as Arrow has them, whose offsets begin with 0. One time for all."""
    pieces: list[Buffer] = [_TIME.pack(time_ms) * records]
    for column in (keys, values, properties):
        if column.validity is not None:
            add_section(pieces, column.validity)
        add_section(pieces, column.offsets.cast("B"))
        add_section(pieces, column.blob)
    assert properties.validity is None
    flags = NULL_KEYS * (keys.validity is not None) | NULL_VALUES * (values.validity is not None)
    return _join(pieces, flags, records, records, (time_ms, time_ms), None, 0)


def _join(
    pieces: Sequence[Buffer],
    flags: int,
    span: int,
    count: int,
    times_ms: tuple[int, int],
    producer: Producer | None,
    base_offset: int,
) -> bytes:
    """Put the header in front of the sections of a body."""
    body_bytes = sum(map(len, pieces))
    assert body_bytes <= BODY_BYTES_MAX
    crc = 0
    for piece in pieces:
        crc = crc32(piece, crc)
    header = Header(
        flags | (PRODUCER if producer is not None else 0),
        producer.epoch if producer is not None else 0,
        base_offset,
        span,
        count,
        *times_ms,
        producer.id if producer is not None else 0,
        producer.sequence if producer is not None else 0,
        body_bytes,
        crc,
    )
    return b"".join((header.encode(), *pieces))


def encode_empty(span: int, time_ms: int, *, base_offset: int = 0) -> bytes:
    """A chunk that covers offsets without a record at any of them."""
    return encode_chunk([], [], [], time_ms, base_offset=base_offset, span=span, relative=[])


def encode_mark(mark: int, producer: Producer, time_ms: int) -> bytes:
    """The end of a producer's transaction, COMMIT_MARK or ABORT_MARK; it takes one offset."""
    return encode_chunk([], [], [], time_ms, flags=mark, producer=producer, span=1, relative=[])


def read_header(data: Buffer, position: int = 0) -> Header:
    """The header at this place. Raises CorruptChunkError; the body is not looked at."""
    if len(data) - position < HEADER_BYTES:
        raise CorruptChunkError("a chunk is cut short in its header")
    magic, version, *fields = _FIELDS.unpack_from(data, position)
    crc = crc32(memoryview(data)[position : position + _FIELDS.size])
    if magic != MAGIC or crc != _CRC.unpack_from(data, position + _FIELDS.size)[0]:
        raise CorruptChunkError("no chunk begins where one should")
    header = Header(*fields)
    gaps = bool(header.flags & GAPS)
    if version != VERSION or header.flags & ~_KNOWN_FLAGS:
        raise CorruptChunkError(f"a chunk of unknown version {version} or flags {header.flags}")
    if gaps != (header.span != header.records) or header.records > header.span or not header.span:
        raise CorruptChunkError("a chunk whose records do not fit its offsets")
    if header.end_offset >= 2**63 or header.body_bytes > BODY_BYTES_MAX:
        raise CorruptChunkError("a chunk beyond all limits")
    return header


# Decoding


class Column:
    """Keys, values or properties as they stand in a chunk: the buffers of a binary Arrow array."""

    __slots__ = ("blob", "offsets", "validity")

    def __init__(self, validity: memoryview | None, offsets: memoryview, blob: memoryview) -> None:
        self.validity = validity  # bits, LSB first; None if nothing is null
        self.offsets = offsets  # of format "i"
        self.blob = blob

    def __getitem__(self, place: int) -> bytes | None:
        if self.validity is not None and not self.validity[place >> 3] >> (place & 7) & 1:
            return None
        return bytes(self.blob[self.offsets[place] : self.offsets[place + 1]])

    def items(self, start: int, stop: int) -> list[bytes | None]:
        count = stop - start
        bits = ""
        if self.validity is not None:
            valid = int.from_bytes(self.validity, "little") >> start & (1 << count) - 1
            if not valid:
                return [None] * count
            bits = f"{valid:0{count}b}"[::-1]
        items = self._present(start, stop)
        if "0" in bits:
            items = [item if bit == "1" else None for item, bit in zip(items, bits, strict=True)]
        return items

    def _present(self, start: int, stop: int) -> list[bytes | None]:
        bounds: list[int] = self.offsets[start : stop + 1].tolist()
        shift = bounds[0]
        if shift == bounds[-1]:
            return [b""] * (stop - start)
        blob = bytes(self.blob[shift : bounds[-1]])
        if shift:
            bounds = [bound - shift for bound in bounds]
        return [blob[a:b] for a, b in pairwise(bounds)]


class _Sections:
    """Takes a body apart, from its start to its very end."""

    def __init__(self, body: memoryview, records: int) -> None:
        self._body = body
        self._records = records
        self._position = 0

    def take(self, size_bytes: int) -> memoryview:
        start = self._position
        self._position = start + size_bytes + -size_bytes % 8
        if size_bytes < 0 or self._position > len(self._body):
            raise CorruptChunkError("the sections of a chunk do not fit in it")
        return self._body[start : start + size_bytes]

    def column(self, *, nulls: bool) -> Column:
        validity = self.take((self._records + 7) // 8) if nulls else None
        offsets = self.take(4 * (self._records + 1)).cast("i")
        return Column(validity, offsets, self.take(offsets[-1]))

    def end(self) -> None:
        if self._position != len(self._body):
            raise CorruptChunkError("a chunk has bytes beyond its sections")


class Chunk:
    """A chunk read in place. Making one checks its header, checksums and sections."""

    __slots__ = (
        "_data",
        "_head",
        "_relative",
        "header",
        "keys",
        "properties",
        "timestamps",
        "values",
    )

    def __init__(self, data: Buffer, header: Header | None = None) -> None:
        """A header that is given has been read from the same data, and the body is trusted."""
        trusted = header is not None
        header = header or read_header(data)
        self.header = header
        self._head: bytes | None = None  # if it is not the one in `data`
        self._data = memoryview(data)[: header.size_bytes]
        body = self._data[HEADER_BYTES:]
        if len(body) != header.body_bytes:
            raise CorruptChunkError("a chunk is cut short")
        if not trusted and crc32(body) != header.body_crc:
            raise CorruptChunkError(f"the chunk at offset {header.base_offset} fails its checksum")
        records, flags = header.records, header.flags
        sections = _Sections(body, records)
        self.timestamps = sections.take(8 * records).cast("q")
        self._relative = sections.take(4 * records).cast("I") if flags & GAPS else None
        self.keys = sections.column(nulls=bool(flags & NULL_KEYS))
        self.values = sections.column(nulls=bool(flags & NULL_VALUES))
        self.properties = sections.column(nulls=False)
        sections.end()

    @classmethod
    def placed(cls, data: Buffer, header: Header, base_offset: int) -> "Chunk":
        """The same chunk at its place in the stream; header and body are trusted, and not copied.

        Only the header is another: see `pieces`.
        """
        chunk = cls(data, header)
        chunk.header = header._replace(base_offset=base_offset)
        chunk._head = chunk.header.encode()
        return chunk

    @property
    def pieces(self) -> list[memoryview]:
        """All its bytes, to be written one behind another."""
        if self._head is None:
            return [self._data]
        return [memoryview(self._head), self._data[HEADER_BYTES:]]

    def encode(self) -> bytes:
        return b"".join(self.pieces)

    def check(self) -> None:
        """Look at every record's place too: for chunks that a peer made."""
        header = self.header
        for column in (self.keys, self.values, self.properties):
            bounds = column.offsets.tolist()
            if bounds[0] or bounds != sorted(bounds):
                raise CorruptChunkError("a chunk's records overlap")
        if self._relative is not None:
            places = self._relative.tolist()
            if places != sorted(set(places)) or (places and places[-1] >= header.span):
                raise CorruptChunkError("a chunk's offsets do not ascend")
        times = self.timestamps.tolist()
        if times and (times[0], max(times)) != (header.first_ms, header.latest_ms):
            raise CorruptChunkError("a chunk's header does not tell its times")

    def __len__(self) -> int:
        return self.header.records

    @property
    def relative_offsets(self) -> memoryview | None:
        """Of format "I", from the base offset; None if there is a record at every offset."""
        return self._relative

    def offset_of(self, place: int) -> int:
        """The offset of the record at this place in the chunk."""
        if self._relative is not None:
            place = self._relative[place]
        return self.header.base_offset + place

    def offsets_of(self, places: Sequence[int]) -> Sequence[int]:
        """The offsets of the records at these ascending places."""
        base, relative = self.header.base_offset, self._relative
        if relative is not None:
            return [base + relative[place] for place in places]
        if isinstance(places, range):
            return range(base + places.start, base + places.stop)
        return [base + place for place in places]

    def place_of(self, offset: int) -> int:
        """The place of the first record at this offset or behind it; len(self) if there is none."""
        relative = offset - self.header.base_offset
        if self._relative is not None:
            return bisect_left(self._relative, relative)
        return min(max(relative, 0), self.header.records)

    def record(self, place: int) -> Record:
        return self.records(place, place + 1)[0]

    def records(self, start: int = 0, stop: int | None = None) -> list[Record]:
        """The records at these places."""
        stop = self.header.records if stop is None else min(stop, self.header.records)
        if start >= stop:
            return []
        base = self.header.base_offset
        if self._relative is None:
            offsets: Sequence[int] = range(base + start, base + stop)
        else:
            offsets = [base + place for place in self._relative[start:stop].tolist()]
        columns = zip(
            offsets,
            self.timestamps[start:stop].tolist(),
            self.keys.items(start, stop),
            self.values.items(start, stop),
            self.properties.items(start, stop),
            strict=True,
        )
        return list(map(Record._make, columns))

    def slice(self, first_offset: int, end_offset: int) -> list[Record]:
        """The records with these offsets."""
        return self.records(self.place_of(first_offset), self.place_of(end_offset))

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records())


def split_chunks(data: Buffer) -> list[Chunk]:
    """All the chunks in a run of whole ones."""
    view = memoryview(data)
    chunks = []
    position = 0
    while position < len(view):
        chunk = Chunk(view[position:])
        chunks.append(chunk)
        position += chunk.header.size_bytes
    return chunks
