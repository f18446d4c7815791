"""What is remembered of publishers: bounded, the same everywhere, and never a promise too much."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import queues.publishers
from queues.commands import decode_origins, encode_origins, split_commands
from queues.live import LiveSet
from queues.publishers import GAP_MS, IDLE_MS, REFUSED_MAX, Note, Origin, Publishers
from tests.durability.test_live_set import old_checkpoint

A, B, C = (bytes([letter]) * 16 for letter in b"abc")
NOTES = st.lists(
    st.builds(
        Note,
        st.sampled_from([A, B, C]),
        st.integers(1, 2**64 - 1),
        st.lists(st.integers(0, 2**32 - 1), max_size=4).map(tuple),
    ),
    max_size=5,
)


def known(publishers, session, seq):
    return publishers.find(Origin(session, seq)) is not None


def again(publishers):
    """As a checkpoint brings them back, in the middle of other things."""
    encoded = publishers.encode()
    found, end = Publishers.decode(b"before" + encoded + b"behind", 6)
    assert end == 6 + len(encoded)
    assert found.encode() == encoded
    return found


@given(notes=NOTES, time_ms=st.integers(0, 2**64 - 1))
def test_a_command_says_what_was_put_in(notes, time_ms):
    entry = encode_origins(notes, time_ms)
    [(_, start, end)] = split_commands(entry)
    assert decode_origins(entry, start, end) == (time_ms, notes)


def test_batches_up_to_the_last_of_a_session_are_known():
    publishers = Publishers()
    publishers.apply(1, [Note(A, 1), Note(A, 2), Note(B, 7)])
    for copy in (publishers, again(publishers)):
        assert [seq for seq in range(1, 5) if known(copy, A, seq)] == [1, 2]
        assert known(copy, B, 7)
        assert not known(copy, B, 8)
        assert not known(copy, C, 1)
        assert (copy.last(A), copy.last(C)) == (2, 0)


def test_who_was_quiet_for_long_is_forgotten_by_the_time_in_the_log():
    publishers = Publishers()
    publishers.apply(1000, [Note(A, 1)])
    publishers.apply(2000, [Note(B, 1)])
    for number in range(1, IDLE_MS // GAP_MS + 1):
        publishers.apply(1000 + number * GAP_MS, [Note(C, number)])
    assert known(publishers, A, 1)
    publishers.apply(1001 + IDLE_MS, [Note(C, 1000)])
    assert not known(publishers, A, 1)
    assert known(publishers, B, 1)


@pytest.mark.parametrize("ahead_ms", [IDLE_MS + 1, 48 * IDLE_MS])
def test_a_leader_whose_clock_is_ahead_forgets_nobody_who_may_send_again(ahead_ms):
    """After a change of leaders all send again what they have heard nothing of."""
    publishers = Publishers()
    publishers.apply(1000, [Note(A, 5)])
    publishers.apply(1100, [Note(B, 7)])
    for number in range(3):
        publishers.apply(1200 + number + ahead_ms, [Note(C, number)])
    copy, _ = Publishers.decode(publishers.encode(), 0)
    for one in (publishers, copy):
        assert known(one, A, 5)
        assert known(one, B, 7)
    publishers.apply(2000, [Note(B, 8)])  # and back to one whose clock is right
    assert known(publishers, A, 5)


def test_beyond_a_number_of_sessions_the_longest_unused_is_forgotten(monkeypatch):
    monkeypatch.setattr(queues.publishers, "SESSIONS_MAX", 2)
    publishers = Publishers()
    publishers.apply(1, [Note(A, 1), Note(B, 1), Note(A, 2), Note(C, 1)])
    for copy in (publishers, again(publishers)):
        assert len(copy) == 2
        assert not known(copy, B, 1)
        copy.apply(2, [Note(B, 2)])
        assert not known(copy, A, 2)
        assert known(copy, C, 1)


def test_refused_messages_of_a_batch_stay_refused():
    publishers = Publishers()
    publishers.apply(1, [Note(A, 1), Note(A, 2, (0, 3)), Note(A, 3)])
    for copy in (publishers, again(publishers)):
        found = copy.find(Origin(A, 2))
        assert [list(found.refused_of(seq, 5)) for seq in (1, 2, 3)] == [[], [0, 3], []]


def test_what_is_not_remembered_of_a_batch_counts_as_refused():
    publishers = Publishers()
    publishers.apply(1, [Note(A, 1), Note(A, 2, (0,)), Note(A, 3), Note(A, 4, (1,) * REFUSED_MAX)])
    for copy in (publishers, again(publishers)):
        found = copy.find(Origin(A, 4))
        assert [len(found.refused_of(seq, 5)) for seq in (1, 2, 3)] == [5, 5, 0]
        assert len(found.refused_of(4, 5)) == REFUSED_MAX


@given(steps=st.lists(st.tuples(st.integers(0, 3 * IDLE_MS), NOTES), max_size=12), cut=st.data())
def test_a_replica_that_starts_from_a_checkpoint_goes_on_as_the_others_do(steps, cut):
    original = Publishers()
    copy = Publishers()
    at = cut.draw(st.integers(0, len(steps)))
    for number, (time_ms, notes) in enumerate(steps):
        if number == at:
            copy = again(copy)
        original.apply(time_ms, notes)
        copy.apply(time_ms, notes)
    assert copy.encode() == original.encode()


def test_a_checkpoint_from_before_there_were_publishers_is_read():
    live = LiveSet()
    entry = encode_origins([Note(A, 3)], 5)
    live.apply(1, entry)
    state = live.checkpoint()
    assert known(LiveSet.restore(state).publishers, A, 3)
    restored = LiveSet.restore(old_checkpoint(live, 2))
    assert len(restored.publishers) == 0
    assert restored.next_sequence == live.next_sequence
    with pytest.raises(ValueError, match="version 5"):
        LiveSet.restore((5).to_bytes(8, "big") + state[8:])
