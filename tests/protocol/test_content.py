"""Content headers and framing against pamqp's."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import body, commands, header

from broker.protocol.constants import FLAG_HEADERS, FRAME_MIN_BYTES
from broker.protocol.content import join_header, method_head, reframe, split_properties
from broker.protocol.methods import short_string
from tests.protocol.pamqp_frames import (
    PROPERTIES,
    content_frames,
    header_frame,
    method_frame,
    unmarshal_all,
)


def flags_of(head):
    return int.from_bytes(head[19:21], "big")


@settings(derandomize=True, deadline=None)
@given(PROPERTIES, st.integers(0, 2**63 - 1), st.integers(0, 65535))
def test_properties_are_split_and_joined_to_pamqps_bytes(properties, body_bytes, channel):
    head = header_frame(channel, body_bytes, properties)
    values = split_properties(flags_of(head), head, len(head) - 8)
    assert b"".join(values.values()) == head[21:-1]
    assert join_header(channel, body_bytes, values) == (head, len(head) - 8, flags_of(head))


@settings(derandomize=True, deadline=None)
@given(PROPERTIES)
def test_each_value_stands_under_its_flag(properties):
    head = header_frame(1, 0, properties)
    for flag, value in split_properties(flags_of(head), head, len(head) - 8).items():
        alone, _, flags = join_header(1, 0, {flag: value})
        (name,) = [name for name, bit in commands.Basic.Properties.flags.items() if bit == flag]
        ((_, read),) = unmarshal_all(alone)
        assert flags == flag
        assert getattr(read.properties, name) == getattr(properties, name)


@settings(derandomize=True, deadline=None)
@given(PROPERTIES)
def test_a_property_may_be_added_changed_and_taken_away(properties):
    properties.expiration = "60000"
    head = header_frame(1, 5, properties)
    values = split_properties(flags_of(head), head, len(head) - 8)
    del values[commands.Basic.Properties.flags["expiration"]]
    values[commands.Basic.Properties.flags["reply_to"]] = short_string("elsewhere")
    properties.expiration, properties.reply_to = None, "elsewhere"
    assert join_header(1, 5, values)[0] == header_frame(1, 5, properties)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.integers(0, 0xFFFF), st.binary(max_size=40), st.binary(max_size=10))
def test_flags_that_do_not_fit_the_values_are_a_value_error(flags, values, behind):
    head = bytes(19) + flags.to_bytes(2, "big") + values
    try:
        split = split_properties(flags, head + b"\xce" + behind, len(head) - 7)
    except ValueError:
        return
    assert b"".join(split.values()) == values
    assert all(flags & flag for flag in split)


@settings(derandomize=True, deadline=None)
@given(PROPERTIES.filter(lambda properties: properties.marshal() != b"\x00\x00"))
def test_a_header_cut_short_or_too_long_is_a_value_error(properties):
    head = header_frame(1, 0, properties)
    for size in (len(head) - 9, len(head) - 7):
        with pytest.raises(ValueError, match="content header"):
            split_properties(flags_of(head), head + bytes(8), size)


def test_more_flags_than_there_are_properties_are_a_value_error():
    with pytest.raises(ValueError, match="flags"):
        split_properties(1, header_frame(1, 0), 14)


def test_a_header_table_of_four_gigabytes_is_a_value_error():
    with pytest.raises(ValueError, match="content header"):
        split_properties(FLAG_HEADERS, bytes(21) + b"\xff" * 4 + b"\xce", 18)


BODY_SIZES = [0, 1, 4087, 4088, 4089, 8176, 8177, 50_000]


@pytest.mark.parametrize("frame_max", [FRAME_MIN_BYTES, 4097, 10_000, 131072])
@pytest.mark.parametrize("channel", [1, 2, 65535])
@pytest.mark.parametrize("size", BODY_SIZES)
def test_content_is_reframed_for_any_channel_and_frame_max(size, channel, frame_max):
    payload = bytes(range(256)) * (size // 256 + 1)
    payload = payload[:size]
    properties = commands.Basic.Properties(message_id="m", headers={"k": "v"})
    frames = content_frames(1, payload, properties)
    head_bytes = len(header_frame(1, size, properties)) - 8
    written = reframe(frames, head_bytes, size, channel=channel, frame_max=frame_max)
    (head, *bodies) = unmarshal_all(written)
    assert isinstance(head[1], header.ContentHeader)
    assert (head[1].body_size, head[1].properties) == (size, properties)
    assert {number for number, _ in (head, *bodies)} == {channel}
    assert all(isinstance(piece, body.ContentBody) for _, piece in bodies)
    assert b"".join(piece.value for _, piece in bodies) == payload
    assert len(bodies) == -(-size // (frame_max - 8))
    assert all(len(piece.value) <= frame_max - 8 for _, piece in bodies)


def test_reframing_for_the_same_channel_changes_nothing():
    frames = content_frames(3, b"payload")
    assert reframe(frames, 14, 7, channel=3, frame_max=4096) == frames


def test_a_method_head_is_the_start_of_pamqps_frame():
    whole = method_frame(5, commands.Basic.CancelOk, consumer_tag="tag")
    args = short_string("tag")
    assert method_head(5, commands.Basic.CancelOk.index, len(args), args) + b"\xce" == whole
