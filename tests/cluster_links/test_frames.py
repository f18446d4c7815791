"""Frames out of bytes, however these are cut; heartbeats and their times."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cluster.frames import FRAME_BYTES_MAX, HEADER, FrameError, FrameReader
from broker.cluster.heartbeats import BulkPulse, Pulse
from broker.cluster.kinds import Kind, Lane


@given(
    st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40))),
    st.lists(st.integers(1, 60), min_size=1),
)
def test_frames_come_out_as_they_went_in(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    data = b"".join(HEADER.pack(len(body), kind) + body for kind, body in frames)
    reader = FrameReader()
    got: list[tuple[int, bytes]] = []
    turn = 0
    while data:
        size = cuts[turn % len(cuts)]
        got += reader.feed(data[:size])
        data = data[size:]
        turn += 1
    assert got == frames


def test_a_frame_of_the_largest_size_is_put_together_once() -> None:
    reader = FrameReader()
    body = bytes(FRAME_BYTES_MAX)
    data = HEADER.pack(len(body), 20) + body
    got = []
    for at in range(0, len(data), 65536):
        got += reader.feed(data[at : at + 65536])
    assert got == [(20, body)]


def test_a_length_beyond_the_limit_is_refused_before_its_bytes_come() -> None:
    reader = FrameReader()
    with pytest.raises(FrameError, match="above"):
        reader.feed(HEADER.pack(FRAME_BYTES_MAX + 1, 10))


def test_kinds_have_their_lane_and_numbers_of_a_byte() -> None:
    assert len({int(kind) for kind in Kind}) == len(Kind)
    assert all(0 < kind < 256 for kind in Kind)
    assert Kind.RAFT.lane is Lane.CONTROL
    assert Kind.QUEUE.lane is Lane.BULK


def test_an_answer_counts_from_when_its_heartbeat_was_sent() -> None:
    pulse = Pulse(100.0, timeout_s=1.0)
    pulse.got_answer(100.5, 100.9)
    assert pulse.answered_at == 100.5
    assert not pulse.late(101.5)
    assert pulse.late(101.51)


@pytest.mark.parametrize("sent", [99.0, 200.0, math.nan, math.inf, -math.inf])
def test_an_answer_to_what_was_not_sent_counts_for_nothing(sent: float) -> None:
    pulse = Pulse(100.0, timeout_s=1.0)
    pulse.got_answer(sent, 100.9)
    assert pulse.answered_at == 100.0
    assert not pulse.answered


def test_a_bulk_lane_is_late_only_if_nothing_moves() -> None:
    pulse = BulkPulse(0.0, timeout_s=4.0)
    pulse.sent(0.0, behind=1000, written=0)
    assert not pulse.late(3.9, written=1)  # it moves, slowly
    assert not pulse.late(7.8, written=2)
    assert not pulse.late(11.7, written=1000)  # the beat itself is out
    assert not pulse.late(15.6, written=5000)  # what goes out behind it proves nothing
    assert pulse.late(15.8, written=9000)


def test_a_bulk_beat_that_is_answered_is_not_late() -> None:
    pulse = BulkPulse(0.0, timeout_s=4.0)
    pulse.sent(0.0, behind=10, written=10)
    pulse.got_answer(7.0)
    assert not pulse.answered
    pulse.got_answer(0.0)
    assert pulse.answered
    assert not pulse.late(100.0, written=10)


def test_a_bulk_beat_is_due_at_once_then_four_times_in_a_time_out_and_never_beside_another() -> (
    None
):
    pulse = BulkPulse(0.0, timeout_s=4.0)
    assert pulse.due(0.0)
    pulse.sent(0.0, behind=10, written=10)
    assert not pulse.due(3.0)
    pulse.got_answer(0.0)
    assert not pulse.due(0.9)
    assert pulse.due(1.0)
