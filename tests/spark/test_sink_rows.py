"""Rows in Arrow's buffers become the chunks that record by record would be made of them."""

from collections.abc import Sequence
from itertools import pairwise
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.protocol.chunk import Chunk, encode_chunk
from broker.protocol.stream_properties import encode_properties
from clients.stream_batches import BATCH_RECORDS, RECORD_BYTES_MAX, Batches
from spark.arrow_chunks import CHUNK_BYTES, Rows, pieces
from spark.errors import RowError
from spark.sink_rows import Part, Spread, by_topic

NOW_MS = 1_700_000_000_000
SOME_BYTES = st.none() | st.binary(max_size=20)
HEADERS = st.none() | st.dictionaries(st.text(max_size=5), st.none() | st.binary(max_size=5))


def binary(items: Sequence[bytes | None]) -> pa.Array:
    return pa.array(items, pa.binary())


def rows(keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Rows:
    return Rows(binary(keys), binary(values), binary([b""] * len(values)))


@st.composite
def slices(draw: st.DrawFn) -> tuple[Rows, list[tuple[bytes | None, bytes | None, bytes]]]:
    """A part of larger arrays, as Arrow cuts them, and what is in it."""
    records = draw(
        st.lists(st.tuples(SOME_BYTES, SOME_BYTES, st.binary(max_size=9)), min_size=1, max_size=40)
    )
    start = draw(st.integers(0, len(records) - 1))
    stop = draw(st.integers(start + 1, len(records)))
    columns = zip(*records, strict=True)
    return Rows(*map(binary, columns)).cut(start, stop), records[start:stop]


@given(slices())
def test_a_chunk_is_the_same_whether_made_of_columns_or_of_records(
    given_rows: tuple[Rows, list[tuple[bytes | None, bytes | None, bytes]]],
) -> None:
    some_rows, records = given_rows
    keys, values, properties = zip(*records, strict=True)
    made = some_rows.chunk(NOW_MS)
    assert made == encode_chunk(keys, values, properties, NOW_MS)
    Chunk(made).check()


@given(slices(), st.randoms(use_true_random=False))
def test_rows_that_change_places_stay_whole(given_rows, random) -> None:
    some_rows, records = given_rows
    order = list(range(len(records)))
    random.shuffle(order)
    keys, values, properties = zip(*(records[place] for place in order), strict=True)
    taken = some_rows.take(np.array(order))
    assert taken.chunk(NOW_MS) == encode_chunk(keys, values, properties, NOW_MS)


@given(st.lists(SOME_BYTES, min_size=1, max_size=30), st.integers(2, 7))
def test_keys_go_where_other_clients_send_them(keys: list[bytes | None], partitions: int) -> None:
    some_rows = rows(keys, [b"v"] * len(keys))
    found = Spread("s", partitions, 0).partitions_of(Part(some_rows, None), some_rows.sizes_bytes())
    others = Batches(partitions)
    for key, partition in zip(keys, found.tolist(), strict=True):
        if key is not None:
            assert partition == others.partition_of(key) == crc32(key) % partitions
        assert 0 <= partition < partitions


def test_rows_without_a_key_take_turns_a_chunk_at_a_time() -> None:
    value = bytes(CHUNK_BYTES // 4)
    some_rows = rows([None] * 10, [value] * 10)
    spread = Spread("s", 4, 3)
    first = spread.partitions_of(Part(some_rows, None), some_rows.sizes_bytes()).tolist()
    second = spread.partitions_of(Part(some_rows, None), some_rows.sizes_bytes()).tolist()
    assert first == [3, 3, 3, 0, 0, 0, 0, 1, 1, 1]
    assert second[0] == 2


def test_a_partition_that_is_given_comes_before_the_key() -> None:
    some_rows = rows([b"a", b"b", None], [b"v"] * 3)
    part = Part(some_rows, np.array([2, -1, 1]))
    found = Spread("s", 3, 0).partitions_of(part, some_rows.sizes_bytes()).tolist()
    assert found == [2, crc32(b"b") % 3, 1]


def test_a_partition_that_a_stream_does_not_have_is_refused() -> None:
    some_rows = rows([b"a"], [b"v"])
    with pytest.raises(RowError, match="partition 3 of stream 's', which has 3: drop the column"):
        Spread("s", 3, 0).partitions_of(Part(some_rows, np.array([3])), some_rows.sizes_bytes())


@given(st.lists(st.integers(0, 3 * CHUNK_BYTES // 2), min_size=1, max_size=60), st.data())
def test_pieces_cover_all_rows_and_are_as_large_as_allowed(
    sizes: list[int], data: st.DataObject
) -> None:
    ends = np.cumsum(np.array(sizes))
    start = data.draw(st.integers(0, len(sizes) - 1))
    stop = data.draw(st.integers(start + 1, len(sizes)))
    cuts = list(pieces(ends, start, stop))
    assert [first for first, _ in cuts] == [start, *(end for _, end in cuts[:-1])]
    assert cuts[-1][1] == stop
    for first, end in cuts:
        assert end - first == 1 or sum(sizes[first:end]) <= CHUNK_BYTES
    for (first, _), (_, end) in pairwise(cuts):
        assert sum(sizes[first:end]) > CHUNK_BYTES


def test_a_chunk_has_no_more_records_than_other_clients_put_into_one() -> None:
    ends = np.arange(3 * BATCH_RECORDS)
    assert max(end - start for start, end in pieces(ends, 0, len(ends))) == BATCH_RECORDS


def test_a_row_that_fits_into_no_chunk_is_refused() -> None:
    with pytest.raises(RowError, match=r"a row of \d+ bytes"):
        rows([None], [bytes(RECORD_BYTES_MAX)]).sizes_bytes()


# Batches as Spark gives them

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@given(st.lists(st.tuples(SOME_BYTES, HEADERS), min_size=1, max_size=20))
def test_headers_are_what_the_blocking_client_makes_of_them(records) -> None:
    values = [value for value, _ in records]
    headers = [
        None if each is None else [{"key": name, "value": value} for name, value in each.items()]
        for _, each in records
    ]
    batch = pa.record_batch({"value": binary(values), "headers": pa.array(headers, HEADERS_TYPE)})
    made = by_topic(batch, "s")["s"].rows.properties.to_pylist()
    assert made == [encode_properties(each) if each else b"" for _, each in records]


@pytest.mark.parametrize(
    ("items", "why"),
    [
        ([{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}], "'a' twice"),
        ([{"key": None, "value": b"1"}], "no name"),
        ([None], "no name"),
        ([{"key": "ü" * 128, "value": b"1"}], "more than 255 bytes"),
    ],
)
def test_headers_that_amqp_cannot_have_are_refused(items, why: str) -> None:
    batch = pa.record_batch({"value": binary([b"v"]), "headers": pa.array([items], HEADERS_TYPE)})
    with pytest.raises(RowError, match=why):
        by_topic(batch, "s")


def test_text_is_written_as_utf_8() -> None:
    batch = pa.record_batch({"key": pa.array(["k", None]), "value": pa.array(["ü", ""])})
    found = by_topic(batch, "s")["s"].rows
    assert found.keys.to_pylist() == [b"k", None]
    assert found.values.to_pylist() == ["ü".encode(), b""]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.binary(max_size=3), st.none() | st.integers(0, 9))
    )
)
def test_each_row_goes_to_the_topic_that_it_names_in_order(records) -> None:
    topics, values, partitions = zip(*records, strict=True) if records else ([], [], [])
    batch = pa.record_batch(
        {
            "topic": pa.array(topics, pa.string()),
            "value": binary(values),
            "partition": pa.array(partitions, pa.int32()),
        }
    )
    found = by_topic(batch, None)
    assert set(found) == set(topics)
    for topic, part in found.items():
        mine = [record for record in records if record[0] == topic]
        assert part.rows.values.to_pylist() == [value for _, value, _ in mine]
        wanted = [-1 if number is None else number for _, _, number in mine]
        assert (wanted if part.partitions is None else part.partitions.tolist()) == wanted


def test_the_option_topic_comes_before_the_column() -> None:
    batch = pa.record_batch({"topic": pa.array(["a", None]), "value": binary([b"1", b"2"])})
    assert list(by_topic(batch, "b")) == ["b"]
    with pytest.raises(RowError, match="topic is null"):
        by_topic(batch, None)


def test_a_partition_below_zero_is_refused() -> None:
    batch = pa.record_batch({"value": binary([b"1"]), "partition": pa.array([-1])})
    with pytest.raises(RowError, match="below 0"):
        by_topic(batch, "s")
