"""The live set against plain sets: what is alive, what may go, what a checkpoint keeps."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import queues.live
from queues.commands import (
    RETURN,
    SETTLE,
    encode_delays,
    encode_delivered,
    encode_enqueue,
    encode_ranges,
    encode_seen,
    ranges_of,
)
from queues.live import ANYTHING, LiveSet
from queues.live_log import LiveLog
from tests.durability.fake_log import FakeDisk, FakeLog
from tests.durability.test_commands import published

MESSAGE = published(b"x")
IDS = [bytes([letter]) * 16 for letter in b"abc"]
SEQUENCES = st.integers(0, 1000)


class Step(NamedTuple):
    """Becomes one entry. Sequences are taken modulo the number of messages there ever were."""

    count: int = 0
    settled: Sequence[int] = ()
    returned: Sequence[int] = ()
    delays: Sequence[tuple[int, int]] = ()
    ids: Sequence[tuple[bytes, int]] = ()
    after_ms: int = 0

    def within(self, bound):
        """As it is when there were so many messages before."""
        bound += self.count
        if not bound:
            return self._replace(settled=[], returned=[], delays=[])
        return self._replace(
            settled=[s % bound for s in self.settled],
            returned=[s % bound for s in self.returned],
            delays=[(s % bound, due) for s, due in self.delays],
        )

    def entry(self, now_ms=0):
        entry = encode_enqueue([MESSAGE] * self.count, now_ms) if self.count else b""
        entry += encode_ranges(SETTLE, self.settled) if self.settled else b""
        entry += b"".join(encode_ranges(RETURN, [sequence]) for sequence in self.returned)
        entry += encode_delays(self.delays) if self.delays else b""
        ids = [(digest, now_ms + window) for digest, window in self.ids]
        return entry + (encode_seen(ids, now_ms) if ids else b"")


STEPS = st.lists(
    st.builds(
        Step,
        st.integers(0, 5),
        st.lists(SEQUENCES, max_size=6),
        st.lists(SEQUENCES, max_size=3),
        st.lists(st.tuples(SEQUENCES, st.integers(0, 50)), max_size=3),
        st.lists(st.tuples(st.sampled_from(IDS), st.integers(1, 40)), max_size=2),
        st.integers(0, 20),
    ),
    max_size=40,
)


@pytest.fixture(autouse=True)
def _compact_soon(monkeypatch):
    monkeypatch.setattr(queues.live, "_COMPACT_SLOTS", 3)


class Model:
    """Every message and every id by itself."""

    def __init__(self):
        self.alive = {}  # sequence → index of its entry
        self.counts = {}
        self.due = {}
        self.seen = {}  # id → until when
        self.next = 0
        self.now_ms = 0

    def apply(self, index, step):
        """The entries that nobody needs any more."""
        before = set(self.alive.values())
        for _ in range(step.count):
            self.alive[self.next] = index
            self.next += 1
        before.add(index) if step.count else None
        for sequence in step.settled:
            for kept in (self.alive, self.counts, self.due):
                kept.pop(sequence, None)
        for sequence in step.returned:
            if sequence in self.alive:
                self.counts[sequence] = self.counts.get(sequence, 0) + 1
        self.due |= {sequence: due for sequence, due in step.delays if sequence in self.alive}
        for digest, window_ms in step.ids:
            self.seen[digest] = max(self.seen.get(digest, 0), self.now_ms + window_ms)
        return before - set(self.alive.values())


def agree(live, model):
    assert len(live) == len(model.alive)
    assert live.next_sequence == model.next
    assert live.ranges() == ranges_of(model.alive)
    assert live.due == model.due
    for sequence in range(model.next + 2):
        assert live.is_live(sequence) == (sequence in model.alive)
        assert live.count_of(sequence) == model.counts.get(sequence, 0)
    for digest in IDS:
        known = model.seen.get(digest, 0) > model.now_ms
        assert live.seen.seen(digest, model.now_ms) == known
    needed = [entry.index for entry in live.entries_from(0)]
    assert needed == sorted(set(model.alive.values()))


def walk(steps, *, restart=False):
    """The live set and the model after these steps."""
    live, model = LiveSet(), Model()
    for index, step in enumerate(steps, start=1):
        within = step.within(model.next)
        model.now_ms += within.after_ms
        expected = model.apply(index, within)
        released = live.apply(index, within.entry(model.now_ms))
        assert len(released) == len(set(released)), "released twice"
        assert set(released) == expected
        if restart:
            live = LiveSet.restore(live.checkpoint())
    return live, model


@given(STEPS, st.booleans())
def test_what_is_alive_is_what_was_enqueued_and_not_settled(steps, restart):
    agree(*walk(steps, restart=restart))


@given(STEPS)
def test_a_checkpoint_brings_everything_back(steps):
    live, model = walk(steps)
    checkpoint = live.checkpoint()
    restored = LiveSet.restore(checkpoint)
    agree(restored, model)
    assert (restored.taken, restored.delivered) == (live.taken, live.delivered)
    assert restored.checkpoint() == checkpoint


SLICE_ENTRIES = 64  # for these tests
CHECKPOINT_ENTRIES = 50


@pytest.fixture
def small_slices(monkeypatch):
    monkeypatch.setattr("queues.live_checkpoint.SLICE_ENTRIES", SLICE_ENTRIES)
    monkeypatch.setattr("queues.live_log.CHECKPOINT_ENTRIES", CHECKPOINT_ENTRIES)


def old_checkpoint(live, version):
    """As versions before the fourth wrote it: entry by entry."""
    entries = list(live.entries_from(0))
    counts = [(s, live.count_of(s)) for s in range(live.next_sequence) if live.count_of(s)]
    data = struct.pack(
        ">QQQII", version, live.next_sequence, live.delivered, len(entries), len(counts)
    )
    for entry in entries:
        settled = sum(1 << sub for sub, alive in enumerate(live.alive_in(entry)) if not alive)
        bitmap = settled.to_bytes((settled.bit_length() + 7) // 8, "big")
        data += struct.pack(">QQII", entry.index, entry.first, entry.count, len(bitmap)) + bitmap
    for sequence, count in counts:
        data += struct.pack(">QI", sequence, count)
    if version == 1:
        return data
    data += struct.pack(">QI", live.taken, len(live.due))
    for sequence, due_ms in sorted(live.due.items()):
        data += struct.pack(">QQ", sequence, due_ms)
    publishers = live.publishers.encode() if version > 2 else b""
    return data + publishers + live.seen.encode()


@given(STEPS)
def test_a_checkpoint_of_the_first_version_is_read(steps):
    """It has no second row: nothing was delayed then, and no id known."""
    live, model = walk([step._replace(delays=(), ids=()) for step in steps])
    restored = LiveSet.restore(old_checkpoint(live, 1))
    agree(restored, model)
    assert restored.taken == 0


@given(STEPS)
def test_a_checkpoint_of_the_third_version_is_read(steps):
    live, model = walk(steps)
    restored = LiveSet.restore(old_checkpoint(live, 3))
    agree(restored, model)
    assert restored.checkpoint() == live.checkpoint()


@pytest.mark.usefixtures("small_slices")
def test_a_large_checkpoint_takes_many_turns_and_is_of_the_moment_it_was_begun():
    """No turn looks at more than a slice of entries, whatever happens in between."""
    live = LiveSet()
    for index in range(1, 4 * SLICE_ENTRIES + 1):
        live.apply(index, Step(2).entry())
    for sequence in range(0, 8 * SLICE_ENTRIES, 2):  # one of the two in each
        live.apply(10**6 + sequence, Step(settled=[sequence]).entry())
    live.apply(10**7, Step(settled=range(8, 100)).entry())
    expected = live.checkpoint()
    looked_at = []
    frozen = live.freeze()
    assert not frozen.is_small
    for number, _ in enumerate(frozen.slices()):
        looked_at.append(number)
        live.apply(10**8 + number, Step(3, [100 + 2 * number + 1]).entry())
    assert frozen.state == expected
    assert len(looked_at) >= 2 * 4  # entries, and what is settled of them
    assert LiveSet.restore(expected).checkpoint() == expected


class SlowLog(FakeLog):
    """Does what is spread over turns one turn at a time."""

    def spread(self, slices, then):
        self.under_way = (slices, then)

    def turn(self):
        slices, then = self.under_way
        if next(slices, self) is self:
            self.under_way = None
            then()


@pytest.mark.usefixtures("small_slices")
def test_a_log_with_a_large_live_set_is_checkpointed_by_turns():
    log = SlowLog(FakeDisk())
    state = LiveLog(log)
    for index in range(1, 2 * SLICE_ENTRIES + 1):
        state.apply(index, Step(1).entry())
    log._applied = 10**9
    for sequence in range(CHECKPOINT_ENTRIES + 1):
        state.apply(10**6 + sequence, Step(settled=[sequence]).entry())
    state.checkpoint_if_due()
    turns = 0
    while log.under_way is not None:
        assert not log.writes
        log.turn()
        turns += 1
    assert turns > (2 * SLICE_ENTRIES - CHECKPOINT_ENTRIES) // SLICE_ENTRIES
    [(_, index, checkpoint, _)] = log.writes
    assert index == 10**6 + CHECKPOINT_ENTRIES
    assert LiveSet.restore(checkpoint).live == 2 * SLICE_ENTRIES - CHECKPOINT_ENTRIES - 1


@pytest.mark.usefixtures("small_slices")
def test_a_checkpoint_that_was_overtaken_by_another_state_is_not_written():
    log = SlowLog(FakeDisk())
    state = LiveLog(log)
    for index in range(1, 2 * SLICE_ENTRIES + 1):
        state.apply(index, Step(1).entry())
    for sequence in range(CHECKPOINT_ENTRIES + 1):
        state.apply(10**6 + sequence, Step(settled=[sequence]).entry())
    state.checkpoint_if_due()
    log.turn()
    state.install(10**7, LiveSet().checkpoint())
    while log.under_way is not None:
        log.turn()
    assert not log.writes


@pytest.mark.parametrize("entries", [2, 7, 8, 9, 100])
def test_a_range_over_many_entries_settles_all_of_them(entries):
    """Dead slots are cut off in bulk, and never under the feet of a range being settled."""
    live = LiveSet()
    for index in range(1, entries + 1):
        live.apply(index, Step(2).entry())
    released = live.apply(entries + 1, Step(0, range(2 * entries)).entry())
    assert released == list(range(1, entries + 1))
    assert (len(live), live.ranges()) == (0, [])


def test_settling_twice_or_what_never_was_changes_nothing():
    live = LiveSet()
    live.apply(1, Step(3, [1]).entry())
    assert live.apply(2, Step(0, [1, 7]).entry()) == []
    assert live.ranges() == [(0, 1), (2, 1)]


def test_what_was_never_delivered_is_known_until_anything_else_happens():
    live = LiveSet()
    live.apply(1, Step(3).entry())
    assert live.delivered == ANYTHING
    live.apply(2, encode_delivered(1))
    assert live.delivered == 1
    assert LiveSet.restore(live.checkpoint()).delivered == 1
    live.apply(3, Step(0, [0]).entry())
    assert live.delivered == ANYTHING


def test_a_settled_message_is_delayed_no_more_and_cannot_be():
    live = LiveSet()
    live.apply(1, Step(3, delays=[(0, 10), (1, 20), (7, 30)]).entry())
    assert live.due == {0: 10, 1: 20}
    live.apply(2, Step(settled=[0], delays=[(0, 40), (1, 50)]).entry())
    assert live.due == {1: 50}


def test_what_was_settled_in_its_turn_tells_how_far_consumers_came():
    """Delayed messages leave before their turn, and tell nothing."""
    live = LiveSet()
    live.apply(1, Step(6, delays=[(4, 10)]).entry())
    live.apply(2, Step(settled=[0, 1, 4]).entry())
    assert live.taken == 2


def test_an_entry_is_dead_once_its_last_message_is_whoever_asks():
    live = LiveSet()
    live.apply(1, Step(2).entry())
    [entry] = live.entries_from(0)
    assert live.alive_in(entry) == [True, True]
    live.apply(2, Step(2, [0]).entry())
    assert live.alive_in(entry) == [False, True]
    live.apply(3, Step(settled=[1]).entry())
    assert live.alive_in(entry) == [False, False]
    assert live.entry_of(1) is None


def test_an_unknown_command_is_refused():
    with pytest.raises(ValueError, match="unknown command 99"):
        LiveSet().apply(1, b"\x63\x00\x00\x00\x00")


def test_a_checkpoint_of_another_version_is_refused():
    checkpoint = bytearray(LiveSet().checkpoint())
    checkpoint[7] = 99
    with pytest.raises(ValueError, match="version 99, expected 4"):
        LiveSet.restore(bytes(checkpoint))
