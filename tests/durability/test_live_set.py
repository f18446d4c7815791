"""The live set against plain sets: what is alive, what may go, what a checkpoint keeps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import queues.live
from queues.commands import (
    RETURN,
    SETTLE,
    encode_delivered,
    encode_enqueue,
    encode_ranges,
    ranges_of,
)
from queues.live import ANYTHING, LiveSet
from tests.durability.test_commands import published

MESSAGE = published(b"x")
# Each step becomes one entry: so many messages, then what is settled and returned of all so far.
STEPS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.lists(st.integers(0, 1000), max_size=6),
        st.lists(st.integers(0, 1000), max_size=3),
    ),
    max_size=40,
)


@pytest.fixture(autouse=True)
def _compact_soon(monkeypatch):
    monkeypatch.setattr(queues.live, "_COMPACT_SLOTS", 3)


def entry_of(count, settled, returned):
    entry = encode_enqueue([MESSAGE] * count, 0) if count else b""
    entry += encode_ranges(SETTLE, settled) if settled else b""
    return entry + b"".join(encode_ranges(RETURN, [sequence]) for sequence in returned)


class Model:
    """Every message by itself."""

    def __init__(self):
        self.alive = {}  # sequence → index of its entry
        self.counts = {}
        self.next = 0

    def apply(self, index, count, settled, returned):
        """The entries that nobody needs any more."""
        before = set(self.alive.values())
        for _ in range(count):
            self.alive[self.next] = index
            self.next += 1
        before.add(index) if count else None
        for sequence in settled:
            self.alive.pop(sequence, None)
            self.counts.pop(sequence, None)
        for sequence in returned:
            if sequence in self.alive:
                self.counts[sequence] = self.counts.get(sequence, 0) + 1
        return before - set(self.alive.values())


def agree(live, model):
    assert len(live) == len(model.alive)
    assert live.next_sequence == model.next
    assert live.ranges() == ranges_of(model.alive)
    for sequence in range(model.next + 2):
        assert live.is_live(sequence) == (sequence in model.alive)
        assert live.count_of(sequence) == model.counts.get(sequence, 0)
    needed = [entry.index for entry in live.entries_from(0)]
    assert needed == sorted(set(model.alive.values()))


@given(STEPS, st.booleans())
def test_what_is_alive_is_what_was_enqueued_and_not_settled(steps, restart):
    live, model = LiveSet(), Model()
    for index, (count, settles, returns) in enumerate(steps, start=1):
        bound = model.next + count
        settled = [s % bound for s in settles] if bound else []
        returned = [r % bound for r in returns] if bound else []
        entry = entry_of(count, settled, returned)
        expected = model.apply(index, count, settled, returned)
        released = live.apply(index, entry)
        assert len(released) == len(set(released)), "released twice"
        assert set(released) == expected
        if restart:
            live = LiveSet.restore(live.checkpoint())
    agree(live, model)


@given(STEPS)
def test_a_checkpoint_brings_everything_back(steps):
    live, model = LiveSet(), Model()
    for index, (count, settles, returns) in enumerate(steps, start=1):
        bound = model.next + count
        settled = [s % bound for s in settles] if bound else []
        returned = [r % bound for r in returns] if bound else []
        live.apply(index, entry_of(count, settled, returned))
        model.apply(index, count, settled, returned)
    checkpoint = live.checkpoint()
    restored = LiveSet.restore(checkpoint)
    agree(restored, model)
    assert restored.checkpoint() == checkpoint


@pytest.mark.parametrize("entries", [2, 7, 8, 9, 100])
def test_a_range_over_many_entries_settles_all_of_them(entries):
    """Dead slots are cut off in bulk, and never under the feet of a range being settled."""
    live = LiveSet()
    for index in range(1, entries + 1):
        live.apply(index, entry_of(2, [], []))
    released = live.apply(entries + 1, entry_of(0, range(2 * entries), []))
    assert released == list(range(1, entries + 1))
    assert (len(live), live.ranges()) == (0, [])


def test_settling_twice_or_what_never_was_changes_nothing():
    live = LiveSet()
    live.apply(1, entry_of(3, [1], []))
    assert live.apply(2, entry_of(0, [1, 7], [])) == []
    assert live.ranges() == [(0, 1), (2, 1)]


def test_what_was_never_delivered_is_known_until_anything_else_happens():
    live = LiveSet()
    live.apply(1, entry_of(3, [], []))
    assert live.delivered == ANYTHING
    live.apply(2, encode_delivered(1))
    assert live.delivered == 1
    assert LiveSet.restore(live.checkpoint()).delivered == 1
    live.apply(3, entry_of(0, [0], []))
    assert live.delivered == ANYTHING


def test_a_checkpoint_of_another_version_is_refused():
    checkpoint = bytearray(LiveSet().checkpoint())
    checkpoint[7] = 99
    with pytest.raises(ValueError, match="version 99, expected 1"):
        LiveSet.restore(bytes(checkpoint))
