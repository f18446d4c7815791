"""Limits are kept and nobody starves; ranges are split without a gap or an overlap."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.protocol.stream_messages import Partition, PartitionMetadata
from spark.options import Limits
from spark.planning import Range, limited, share, split

WANTED = st.dictionaries(st.integers(0, 20), st.integers(0, 10**6), max_size=8)
LIMIT = st.integers(1, 10**6)
PARTITIONS = [Partition("s", number) for number in range(6)]


@given(WANTED, LIMIT, st.integers(0, 10**9))
def test_all_of_a_limit_is_given_and_no_more(wanted: dict[int, int], limit: int, turn: int) -> None:
    given = share(wanted, limit, turn)
    assert sum(given.values()) == min(limit, sum(wanted.values()))
    assert given.keys() == wanted.keys()
    assert all(0 <= count <= wanted[each] for each, count in given.items())


@given(WANTED, LIMIT)
def test_nobody_starves_where_the_limit_allows(wanted: dict[int, int], limit: int) -> None:
    given = share(wanted, limit)
    hungry = [each for each, want in wanted.items() if want]
    if limit >= len(hungry):
        assert all(given[each] for each in hungry)


def test_shares_are_in_proportion() -> None:
    assert share({"a": 100_000, "b": 300_000}, 1000) == pytest.approx({"a": 250, "b": 750}, abs=2)


def test_those_who_got_nothing_come_first_in_their_turn() -> None:
    """With fewer records to a batch than there are partitions."""
    reached = dict.fromkeys("abcde", 0)
    for _ in range(5):
        given = share(dict.fromkeys("abcde", 100), 2, sum(reached.values()))
        reached = {each: reached[each] + given[each] for each in reached}
    assert set(reached.values()) == {2}


@st.composite
def ranges(draw: st.DrawFn) -> list[Range]:
    found = []
    for partition in PARTITIONS[: draw(st.integers(0, len(PARTITIONS)))]:
        start = draw(st.integers(0, 1000))
        found.append(Range(partition, start, start + draw(st.integers(0, 1000))))
    return found


@given(ranges(), st.integers(1, 50))
def test_a_split_covers_the_same_records_with_enough_tasks(whole: list[Range], tasks: int) -> None:
    pieces = split(whole, tasks)
    rows = sum(each.rows for each in whole)
    assert len(pieces) >= min(tasks, rows)
    assert len(pieces) <= max(tasks, len(whole))
    assert all(each.rows > 0 for each in pieces)
    for partition in PARTITIONS:
        covered = [n for each in pieces if each.partition == partition for n in _offsets(each)]
        wanted = [n for each in whole if each.partition == partition for n in _offsets(each)]
        assert covered == wanted


def _offsets(part: Range) -> range:
    return range(part.start, part.end)


def test_larger_ranges_become_more_tasks() -> None:
    whole = [Range(PARTITIONS[0], 0, 900), Range(PARTITIONS[1], 0, 100)]
    pieces = [each.partition.number for each in split(whole, 10)]
    assert pieces.count(0) > 3 * pieces.count(1)


@given(
    st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 10**4)), max_size=6),
    st.none() | st.integers(1, 10**4),
    st.none() | st.integers(1, 10**6),
)
def test_a_batch_goes_on_but_not_beyond_its_limits(
    spans: list[tuple[int, int]], max_rows: int | None, max_bytes: int | None
) -> None:
    starts = {each: start for each, (start, _) in zip(PARTITIONS, spans, strict=False)}
    ends = {each: sum(span) for each, span in zip(PARTITIONS, spans, strict=False)}
    known = {each: _told(each, end) for each, end in ends.items()}
    found = limited(starts, ends, known, Limits(max_rows, max_bytes, None, 0))
    rows = sum(found[each] - starts[each] for each in ends)
    pending = sum(ends[each] - starts[each] for each in ends)
    assert all(starts[each] <= found[each] <= ends[each] for each in ends)
    assert rows <= (pending if max_rows is None else max_rows)
    assert max_bytes is None or rows <= max(1, max_bytes // RECORD_BYTES)
    assert bool(rows) == bool(pending)


RECORD_BYTES = 100


def _told(partition: Partition, end: int) -> PartitionMetadata:
    return PartitionMetadata(partition.number, 0, end, end, end * RECORD_BYTES, "")
