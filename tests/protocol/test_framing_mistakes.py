"""What a peer may do wrong in its framing: the reply code, and what came before is still read."""

import struct

import pytest
from pamqp import commands

from broker.protocol.constants import (
    BASIC_ACK,
    BASIC_NACK,
    BASIC_PUBLISH,
    BASIC_REJECT,
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
)
from broker.protocol.frames import CONTENT_TOO_LARGE, FrameReader
from tests.protocol.pamqp_frames import (
    HEARTBEAT,
    body_frame,
    cut,
    header_frame,
    method_frame,
    publish_frames,
    read_all,
)

FRAME_MAX = 4096
METHOD, HEAD, BODY = publish_frames(1)
ACK = method_frame(1, commands.Basic.Ack, delivery_tag=7)
BIG = FRAME_MAX + 1  # of payload: the eight bytes around it are not counted, as in RabbitMQ
ENDLESS = b"\x00" * 8


def raw(kind, channel, payload, end=b"\xce"):
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def spoiled(frame):
    return frame[:-1] + b"\xcd"


def settle(key, arguments):
    return raw(1, 1, struct.pack(">I", key) + arguments)


MISTAKES = {
    "a frame type 0": (501, raw(0, 1, bytes(4))),
    "a frame type 4": (501, raw(4, 1, bytes(20))),
    "a frame type 255": (501, raw(255, 0, b"")),
    "a method without its end octet": (501, spoiled(ACK)),
    "a publish without its end octet": (501, spoiled(METHOD) + HEAD + BODY),
    "a header without its end octet": (501, METHOD + spoiled(HEAD) + BODY),
    "a body without its end octet": (501, METHOD + HEAD + spoiled(BODY)),
    "a heartbeat without its end octet": (501, spoiled(HEARTBEAT)),
    "a method larger than frame_max": (501, raw(1, 1, bytes(BIG))),
    "a header larger than frame_max": (501, METHOD + raw(2, 1, HEAD[7:-1] + bytes(BIG)) + BODY),
    "a header larger than frame_max, for no body": (
        501,
        METHOD + raw(2, 1, header_frame(1, 0)[7:-1] + bytes(BIG)),
    ),
    "a body larger than frame_max": (501, METHOD + header_frame(1, BIG) + raw(3, 1, bytes(BIG))),
    "a heartbeat larger than frame_max": (501, raw(8, 0, bytes(BIG))),
    "a body longer than announced": (501, METHOD + header_frame(1, 3) + BODY),
    "a second body longer than what was left": (
        501,
        METHOD + header_frame(1, 9) + body_frame(1, b"five!") + body_frame(1, b"five!"),
    ),
    "a method frame of three octets": (501, raw(1, 1, b"\x00\x3c\x00")),
    "an empty method frame": (501, raw(1, 1, b"")),
    "a header too short for its flags": (501, METHOD + raw(2, 1, HEAD[7:-2])),
    "an ack without its bits": (501, settle(BASIC_ACK, bytes(8))),
    "an ack of two octets": (501, settle(BASIC_ACK, bytes(2))),
    "a nack with an octet too many": (501, settle(BASIC_NACK, bytes(10))),
    "a reject with nothing": (501, settle(BASIC_REJECT, b"")),
    "a header without a method": (505, HEAD),
    "a body without a method": (505, BODY),
    "a body without a header": (505, METHOD + BODY),
    "a header on another channel": (505, METHOD + header_frame(2, 4) + BODY),
    "a body on another channel": (505, METHOD + HEAD + body_frame(2, b"body")),
    "a header for another class": (505, METHOD + raw(2, 1, b"\x00\x0a" + HEAD[9:-1]) + BODY),
    "a method where a header is due": (505, METHOD + ACK),
    "a publish where a header is due": (505, METHOD + METHOD + HEAD + BODY),
    "a method where a body is due": (505, METHOD + HEAD + ACK),
    "a short method where a body is due": (505, METHOD + HEAD + raw(1, 1, b"")),
    "a header where a body is due": (505, METHOD + HEAD + HEAD),
    "a body behind a whole content": (505, METHOD + HEAD + BODY + BODY),
    "a heartbeat on a channel": (505, raw(8, 1, b"")),
}
COMPLETE_FIRST = {"a body behind a whole content": 1}  # good methods in the mistake's own bytes


def new_reader(message_bytes_max=1 << 20):
    return FrameReader(frame_max=FRAME_MAX, message_bytes_max=message_bytes_max)


@pytest.mark.parametrize("size", [1, 3, 10, 11, 1 << 20])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_fails_with_its_code_behind_the_good_methods(mistake, size):
    code, data = MISTAKES[mistake]
    good = ACK + METHOD + HEAD + BODY + HEARTBEAT + ACK
    reader = new_reader()
    found = read_all(reader, cut(good + data + ENDLESS, [size]))
    keys = [BASIC_ACK, BASIC_PUBLISH, BASIC_ACK] + [BASIC_PUBLISH] * COMPLETE_FIRST.get(mistake, 0)
    assert [key for _, key, _ in found] == keys
    assert reader.failure is not None
    assert reader.failure.code == code, reader.failure


def test_a_mistake_in_a_content_names_the_method_it_belongs_to():
    reader = new_reader()
    reader.feed(METHOD + HEAD + HEAD)
    assert reader.failure.method == BASIC_PUBLISH


def test_frames_up_to_frame_max_pass_and_it_can_grow():
    def publish(payload):
        return METHOD + header_frame(1, len(payload)) + body_frame(1, payload)

    reader = new_reader()
    assert len(read_all(reader, [publish(bytes(BIG - 1))])) == 1
    reader.set_limits(frame_max=FRAME_MAX + 1, message_bytes_max=2**27)
    assert len(read_all(reader, [publish(bytes(BIG))])) == 1
    assert reader.failure is None
    assert read_all(reader, [publish(bytes(BIG + 1))]) == []
    assert reader.failure.code == 501


def test_the_announced_length_of_a_frame_is_refused_before_its_bytes_come():
    reader = new_reader()
    reader.feed(struct.pack(">BHI", 1, 1, 0xFFFFFFFF))
    assert reader.failure.code == 501


# Channels that we closed


@pytest.mark.parametrize("size", [1, 9, 1 << 20])
def test_what_comes_for_an_abandoned_channel_is_skipped_until_its_close_ok(size):
    reader = new_reader()
    reader.abandon(1)
    other = b"".join(publish_frames(2))
    skipped = METHOD + HEAD + BODY + ACK + BODY + HEAD + other
    close_ok = method_frame(1, commands.Channel.CloseOk)
    found = read_all(reader, cut(skipped + close_ok + METHOD + HEAD + BODY, [size]))
    assert [(channel, key) for channel, key, _ in found] == [
        (2, BASIC_PUBLISH),
        (1, CHANNEL_CLOSE_OK),
        (1, BASIC_PUBLISH),
    ]


def test_a_peer_that_closes_an_abandoned_channel_too_is_heard():
    reader = new_reader()
    reader.abandon(1)
    close = method_frame(
        1, commands.Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0
    )
    close_ok = method_frame(1, commands.Channel.CloseOk)
    found = read_all(reader, [close + ACK + close_ok + ACK])
    assert [key for _, key, _ in found] == [CHANNEL_CLOSE, CHANNEL_CLOSE_OK, BASIC_ACK]


def test_a_content_in_the_making_is_dropped_with_its_channel():
    reader = new_reader()
    reader.feed(METHOD + HEAD)
    reader.abandon(1)
    assert read_all(reader, [BODY + method_frame(1, commands.Channel.CloseOk)])[0][1] == (
        CHANNEL_CLOSE_OK
    )
    assert [key for _, key, _ in read_all(reader, [METHOD + HEAD + BODY])] == [BASIC_PUBLISH]


@pytest.mark.parametrize("mistake", ["a frame type 4", "a body without its end octet"])
def test_an_abandoned_channel_still_has_to_be_framed_well(mistake):
    reader = new_reader()
    reader.abandon(1)
    assert read_all(reader, [MISTAKES[mistake][1]]) == []
    assert reader.failure.code == 501


# Messages over the limit


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_a_message_over_the_limit_is_told_once_and_skipped(size):
    reader = new_reader(message_bytes_max=1000)
    oversize = METHOD + header_frame(1, 1500) + body_frame(1, bytes(750)) * 2
    found = read_all(reader, cut(ACK + oversize + METHOD + HEAD + BODY, [size]))
    assert [key for _, key, _ in found] == [BASIC_ACK, CONTENT_TOO_LARGE, BASIC_PUBLISH]
    assert found[1][2] == 1500
    assert reader.failure is None


def test_a_message_over_the_limit_is_not_kept():
    reader = new_reader(message_bytes_max=1000)
    reader.feed(METHOD + header_frame(1, 1 << 60))
    for _ in range(100):
        assert reader.feed(body_frame(1, bytes(4000))) == []
    assert len(reader._open[1].buffer) == 0


def test_a_message_of_just_the_limit_passes_in_one_frame_and_in_many():
    reader = new_reader(message_bytes_max=1000)
    whole = METHOD + header_frame(1, 1000) + body_frame(1, bytes(1000))
    split = METHOD + header_frame(1, 1000) + body_frame(1, bytes(500)) * 2
    assert [key for _, key, _ in read_all(reader, [whole + split])] == [BASIC_PUBLISH] * 2
