"""The packed index against a dict."""

import sys
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from queues.storage.entry_index import CHUNK_ENTRIES_MAX, EntryIndex, Located

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["append", "put", "remove", "move", "get"]),
        st.integers(1, 3 * CHUNK_ENTRIES_MAX),
        st.integers(1, 2 * CHUNK_ENTRIES_MAX),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(OPERATIONS)
def test_the_index_is_a_dict_in_order(operations: list[tuple[str, int, int]]) -> None:
    index = EntryIndex()
    model: dict[int, Located] = {}
    for position, (what, first, count) in enumerate(operations):
        if what == "append":
            start = max(model, default=0) + first
            for number in range(start, start + count):
                model[number] = Located(number, 3, position, 7)
                index.append(*model[number])
        elif what == "put":
            entry = Located(first, 4, position, 9)
            assert index.put(entry) == model.get(first)
            model[first] = entry
        elif what == "remove":
            gone = [model.pop(n) for n in sorted(model) if first <= n < first + count]
            expected = [(entry.position, entry.length) for entry in gone]
            assert index.remove(first, first + count - 1) == expected
        elif what == "move" and first in model:
            old = model[first]
            assert not index.move(first, old.position + 1, 77)
            assert index.move(first, old.position, 77)
            model[first] = old._replace(position=77)
        assert index.get(first) == model.get(first)
        assert index.last == max(model, default=0)
        inside = [model[n] for n in sorted(model) if first <= n <= first + count]
        assert list(index.select(first, first + count)) == inside
    assert list(index) == [model[number] for number in sorted(model)]
    assert len(index) == len(model)


def test_indexes_far_apart_fit() -> None:
    index = EntryIndex()
    far = [1, 2, 2**33, 2**33 + 1, 2**60]
    for number in far:
        index.append(number, 1, number, 1)
    index.put(Located(2**40, 1, 5, 1))
    assert [entry.index for entry in index] == sorted([*far, 2**40])
    index.remove(2, 2**40)
    assert [entry.index for entry in index] == [1, 2**60]
    assert index.get(2**59) is None
    assert not index.move(2**59, 0, 1)


def size_of(index: EntryIndex) -> int:
    total = sys.getsizeof(index) + sys.getsizeof(index._chunks) + sys.getsizeof(index._starts)
    for chunk in index._chunks:
        arrays = (chunk.deltas, chunk.terms, chunk.positions, chunk.lengths)
        total += sys.getsizeof(chunk) + sum(map(sys.getsizeof, arrays)) + 64
    return total


def test_an_entry_takes_at_most_24_bytes() -> None:
    index = EntryIndex()
    for number in range(1, 100_001):
        index.append(number, 1, number, 1)
    assert size_of(index) / 100_000 <= 24


def test_entries_left_over_here_and_there_do_not_keep_their_chunks() -> None:
    index = EntryIndex()
    for number in range(1, 100_001):
        index.append(number, 1, number, 1)
    for start in range(1, 100_001, 100):
        index.remove(start, start + 98)
    assert len(index) == 1000
    assert size_of(index) / 1000 <= 48


def test_a_gap_is_found_wherever_it_is() -> None:
    random = Random(5)
    for _ in range(200):
        index = EntryIndex()
        last = random.choice([1, 5, CHUNK_ENTRIES_MAX, 3 * CHUNK_ENTRIES_MAX])
        first = random.randint(1, 3)
        indexes = set(range(first, first + last)) - {
            random.randrange(first, first + last) for _ in range(random.choice([0, 0, 1, 2]))
        }
        for one in sorted(indexes):
            index.append(one, 1, one, 1)
        low, high = sorted((random.randint(1, first + last), random.randint(1, first + last)))
        missing = [one for one in range(low, high + 1) if one not in indexes]
        assert index.gap(low, high) == (missing[0] if missing else None)
