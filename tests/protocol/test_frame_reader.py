"""The frame reader finds what pamqp wrote, however the bytes are cut."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from broker.protocol.constants import BASIC_ACK, BASIC_PUBLISH
from broker.protocol.frames import FrameReader
from tests.protocol.pamqp_frames import (
    CHUNK_SIZES,
    HEARTBEAT,
    body_frame,
    content_frames,
    cut,
    header_frame,
    method_frame,
    publish_frames,
    read_all,
    streams,
)

pytestmark = pytest.mark.filterwarnings("ignore:This command is deprecated:DeprecationWarning")

FRAME_MAX = 131072


def new_reader():
    return FrameReader(frame_max=FRAME_MAX, message_bytes_max=1 << 24)


class CountingReader(FrameReader):
    """Counts how often, and through how many bytes, it looked for frames."""

    __slots__ = ("bytes_scanned", "scans")

    def __init__(self):
        super().__init__(frame_max=FRAME_MAX, message_bytes_max=1 << 24)
        self.scans = self.bytes_scanned = 0

    def _scan(self, data, batches):
        self.scans += 1
        self.bytes_scanned += len(data)
        return super()._scan(data, batches)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(streams(), CHUNK_SIZES)
def test_methods_and_contents_come_out_as_pamqp_wrote_them_however_they_are_cut(stream, sizes):
    data, completed = stream
    for pieces in ([data], cut(data, sizes)):
        reader = new_reader()
        assert read_all(reader, pieces) == completed
        assert reader.failure is None


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    streams(),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
    CHUNK_SIZES,
)
def test_damaged_streams_are_read_alike_however_they_are_cut(stream, damage, sizes):
    data = bytearray(stream[0])
    for at, value in damage:
        if data:
            data[at % len(data)] = value
    whole, chopped = new_reader(), new_reader()
    assert read_all(whole, [bytes(data)]) == read_all(chopped, cut(bytes(data), sizes))
    if whole.failure is None:
        assert chopped.failure is None
    else:
        assert chopped.failure is not None
        assert (whole.failure.code, whole.failure.text) == (
            chopped.failure.code,
            chopped.failure.text,
        )


def test_methods_of_one_kind_in_a_row_on_one_channel_come_as_one_batch():
    ack = [method_frame(1, commands.Basic.Ack, delivery_tag=n) for n in range(3)]
    publish = b"".join(publish_frames(1))
    other = method_frame(2, commands.Basic.Ack, delivery_tag=9)
    batches = new_reader().feed(b"".join([*ack, publish, publish, ack[0], other]))
    assert [(channel, key, len(items)) for channel, key, items in batches] == [
        (1, BASIC_ACK, 3),
        (1, BASIC_PUBLISH, 2),
        (1, BASIC_ACK, 1),
        (2, BASIC_ACK, 1),
    ]


def test_a_content_that_was_waited_for_does_not_swallow_the_batch_behind_it():
    method, head, body = publish_frames(1)
    reader = new_reader()
    assert reader.feed(method + head) == []
    batches = reader.feed(body + method + head + body)
    assert [(channel, key, len(items)) for channel, key, items in batches] == [
        (1, BASIC_PUBLISH, 1),
        (1, BASIC_PUBLISH, 1),
    ]


def test_methods_come_in_the_order_in_which_they_were_complete():
    reader = new_reader()
    method, head, body = publish_frames(2)
    reader.feed(method + head)
    one = b"".join(publish_frames(1))
    batches = reader.feed(one + body + one)
    assert [(channel, len(items)) for channel, _, items in batches] == [(1, 1), (2, 1), (1, 1)]


def test_empty_body_frames_are_fine_and_leave_no_trace():
    method = publish_frames(1)[0]
    frames = [method, header_frame(1, 4), body_frame(1, b"bo"), body_frame(1, b"dy")]
    empty = body_frame(1, b"")
    reader = new_reader()
    (found,) = read_all(reader, [empty.join(frames[1:]).join([method, b""])])
    assert found[2][1] == content_frames(1, b"body")


def test_a_peer_that_sends_empty_body_frames_for_ever_takes_no_memory():
    reader = new_reader()
    reader.feed(publish_frames(1)[0] + header_frame(1, 4))
    before = len(reader._open[1].buffer)
    reader.feed(body_frame(1, b"") * 1000)
    assert len(reader._open[1].buffer) == before


def test_heartbeats_may_stand_between_any_two_frames():
    frames = publish_frames(1)
    (found,) = read_all(new_reader(), [HEARTBEAT + HEARTBEAT.join(frames) + HEARTBEAT])
    assert found[:2] == (1, BASIC_PUBLISH)


def test_a_body_that_trickles_in_byte_by_byte_is_looked_at_a_handful_of_times():
    payload = bytes(100_000)
    data = b"".join(publish_frames(1, payload))
    reader = CountingReader()
    (found,) = read_all(reader, cut(data, [1]))
    assert found[2][1] == content_frames(1, payload)
    assert reader.scans <= 9  # for each frame its first byte, its head, and the whole of it
    assert reader.bytes_scanned <= len(data) + 3 * 8


@settings(derandomize=True, deadline=None, max_examples=50)
@given(streams(), CHUNK_SIZES)
def test_no_byte_is_looked_through_more_than_a_few_times(stream, sizes):
    data, _ = stream
    reader = CountingReader()
    read_all(reader, cut(data, sizes))
    assert reader.bytes_scanned <= 3 * len(data)


def test_what_is_held_of_unfinished_contents_is_counted():
    reader = new_reader()
    whole = b"".join(publish_frames(1, payload=b"x" * 1000))
    assert reader.partial_bytes == 0
    reader.feed(whole[:900])
    assert 600 < reader.partial_bytes <= 900
    reader.feed(whole[900:])
    assert reader.partial_bytes == 0
