"""The chunk: what goes in comes out, anything damaged is told, and Arrow can read it in place."""

import struct
from zlib import crc32

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.protocol.chunk import (
    ABORT_MARK,
    COMMIT_MARK,
    HEADER_BYTES,
    TRANSACTIONAL,
    Chunk,
    Producer,
    Record,
    encode_chunk,
    encode_empty,
    encode_mark,
    read_header,
    split_chunks,
)
from broker.protocol.stream_errors import CorruptChunkError

TIMES = st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(
    st.tuples(
        TIMES,
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=40),
        st.binary(max_size=12),
    ),
    max_size=40,
)
PRODUCERS = st.none() | st.builds(
    Producer, st.integers(0, 2**64 - 1), st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1)
)


def encode(rows, base=0, relative=None, span=None, producer=None, flags=0):
    times, keys, values, properties = zip(*rows, strict=True) if rows else ((), (), (), ())
    if not rows:
        return encode_empty(span or 1, 7, base_offset=base)
    return encode_chunk(
        keys,
        values,
        properties,
        times,
        base_offset=base,
        relative=relative,
        span=span,
        producer=producer,
        flags=flags,
    )


def some_chunk():
    rows = [(5, b"a", b"one", b"p"), (9, None, b"", b""), (8, b"", None, b"qq")]
    return encode(rows, base=100)


@given(ROWS, st.integers(0, 2**62), PRODUCERS, st.data())
def test_what_goes_in_comes_out(rows, base, producer, data):
    gaps = data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    relative, place = [], 0
    for gap in gaps:
        place += gap
        relative.append(place)
        place += 1
    span = place + data.draw(st.integers(0, 2)) or 1
    flags = data.draw(st.sampled_from([0, TRANSACTIONAL]))
    chunk = Chunk(encode(rows, base, relative, span, producer, flags if rows else 0))
    chunk.check()
    assert list(chunk) == [
        Record(base + place, *row) for place, row in zip(relative, rows, strict=True)
    ]
    header = chunk.header
    assert (header.base_offset, header.span, len(chunk)) == (base, span, len(rows))
    assert header.end_offset == base + span
    if rows:
        assert header.producer == producer
        assert header.flags & TRANSACTIONAL == flags
        assert header.first_ms == rows[0][0]
        assert header.latest_ms == max(row[0] for row in rows)


@given(ROWS.filter(bool), st.integers(0, 45), st.integers(0, 45))
def test_a_slice_has_the_records_of_its_offsets(rows, first, end):
    relative = [2 * place for place in range(len(rows))]
    for chunk in (
        Chunk(encode(rows, base=3)),
        Chunk(encode(rows, base=3, relative=relative, span=2 * len(rows))),
    ):
        expected = [record for record in chunk if first <= record.offset < end]
        assert chunk.slice(first, end) == expected
        assert [chunk.offset_of(place) for place in range(len(chunk))] == [
            record.offset for record in chunk
        ]
        assert [chunk.record(place) for place in range(len(chunk))] == list(chunk)
        assert [chunk.keys[place] for place in range(len(chunk))] == [r.key for r in chunk]
        assert [chunk.values[place] for place in range(len(chunk))] == [r.value for r in chunk]


def test_null_keys_are_told_from_empty_ones_and_tombstones_from_empty_values():
    records = list(Chunk(some_chunk()))
    assert [record.key for record in records] == [b"a", None, b""]
    assert [record.value for record in records] == [b"one", b"", None]


def test_one_timestamp_may_stand_for_all():
    alike = encode_chunk([b"a", b"b"], [b"1", b"2"], [b"", b""], 55)
    assert alike == encode_chunk([b"a", b"b"], [b"1", b"2"], [b"", b""], [55, 55])


def test_a_chunk_without_records_covers_its_offsets():
    chunk = Chunk(encode_empty(12, 5, base_offset=30))
    assert (list(chunk), chunk.header.base_offset, chunk.header.end_offset) == ([], 30, 42)
    assert chunk.place_of(35) == 0


@pytest.mark.parametrize("mark", [COMMIT_MARK, ABORT_MARK])
def test_the_mark_of_a_transaction_names_its_producer_and_takes_one_offset(mark):
    chunk = Chunk(encode_mark(mark, Producer(9, 2, 17), 5))
    assert chunk.header.flags & (COMMIT_MARK | ABORT_MARK) == mark
    assert (chunk.header.producer, chunk.header.span, len(chunk)) == (Producer(9, 2, 17), 1, 0)


@given(ROWS.filter(bool), st.integers(0, 2**62))
def test_a_chunk_moved_to_its_offset_is_the_one_encoded_there(rows, base):
    data = encode(rows)
    moved = Chunk.placed(data + b"what follows", read_header(data), base)
    assert moved.encode() == encode(rows, base=base)
    assert moved.header == read_header(moved.encode())
    assert list(moved) == list(Chunk(moved.encode()))


def test_every_flipped_bit_is_noticed():
    data = some_chunk()
    for position in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptChunkError):
            Chunk(bytes(flipped))


def test_every_cut_is_noticed():
    data = some_chunk()
    for end in range(len(data)):
        with pytest.raises(CorruptChunkError):
            Chunk(data[:end])


@given(ROWS, st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=8), st.data())
@settings(max_examples=300)
@example([(5, b"a", b"one", b"p")], [], None)
def test_a_badly_made_chunk_with_right_checksums_is_refused_or_can_be_read(rows, changes, data):
    """A peer may put anything in and then sum it up."""
    made = bytearray(encode(rows))
    for position, byte in changes:
        made[4 + position % (len(made) - 4)] = byte
    made[56:60] = crc32(made[HEADER_BYTES:]).to_bytes(4, "little")
    made[60:64] = crc32(made[:60]).to_bytes(4, "little")
    try:
        chunk = Chunk(bytes(made))
        chunk.check()
    except CorruptChunkError:
        return
    records = list(chunk)
    assert len(records) == len(chunk)
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))
    assert all(chunk.header.base_offset <= o < chunk.header.end_offset for o in offsets)
    again = [(r.timestamp_ms, r.key, r.value, r.properties) for r in records]
    assert not again or Chunk(encode(again, base=offsets[0])).record(0) == records[0]


@given(st.lists(ROWS.filter(bool), max_size=5))
def test_a_run_of_chunks_is_split(batches):
    encoded = [encode(rows, base=10 * number) for number, rows in enumerate(batches)]
    found = split_chunks(b"".join(encoded))
    assert [chunk.encode() for chunk in found] == encoded


def test_the_format_is_the_one_that_is_drawn():
    body = b"".join(
        [
            struct.pack("<3q", 5, 9, 8),
            struct.pack("<3I4x", 0, 2, 4),
            b"\x05" + bytes(7),  # the second key is null
            struct.pack("<4i", 0, 1, 1, 1),
            b"a" + bytes(7),
            b"\x03" + bytes(7),  # the third value is null
            struct.pack("<4i", 0, 3, 3, 3),
            b"one" + bytes(5),
            struct.pack("<4i", 0, 1, 1, 3),
            b"pqq" + bytes(5),
        ]
    )
    fields = struct.pack(
        "<4sBBHQIIqqQIII",
        *(b"LVCH", 1, 1 + 16 + 32 + 64, 4, 100, 6, 3, 5, 9, 77, 12, len(body), crc32(body)),
    )
    made = encode(
        [(5, b"a", b"one", b"p"), (9, None, b"", b""), (8, b"", None, b"qq")],
        base=100,
        relative=[0, 2, 4],
        span=6,
        producer=Producer(77, 4, 12),
    )
    assert made == fields + struct.pack("<I", crc32(fields)) + body


@given(ROWS.filter(bool))
def test_arrow_reads_the_columns_in_place(rows):
    arrow = pytest.importorskip("pyarrow")
    chunk = Chunk(encode(rows))
    for column, number in ((chunk.keys, 1), (chunk.values, 2), (chunk.properties, 3)):
        buffers = [column.validity, column.offsets, column.blob]
        array = arrow.Array.from_buffers(
            arrow.binary(),
            len(chunk),
            [None if buffer is None else arrow.py_buffer(buffer) for buffer in buffers],
        )
        array.validate(full=True)
        assert array.to_pylist() == [row[number] for row in rows]
    times = arrow.Array.from_buffers(
        arrow.int64(), len(chunk), [None, arrow.py_buffer(chunk.timestamps)]
    )
    assert times.to_pylist() == [row[0] for row in rows]
