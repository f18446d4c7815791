"""The commands of a durable queue: what is written is what is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.commands import (
    DELAY,
    DELIVERED,
    ENQUEUE,
    RETURN,
    SEEN,
    SETTLE,
    decode_delays,
    decode_delivered,
    decode_messages,
    decode_ranges,
    decode_seen,
    encode_delays,
    encode_delivered,
    encode_enqueue,
    encode_ranges,
    encode_seen,
    enqueued_count,
    enqueued_ms,
    ranges_of,
    split_commands,
)
from queues.message import Message
from tests.support.frames import Basic, Properties, content_bytes

FRAME_MAX = 4096
SEQUENCES = st.lists(st.integers(0, 2**40) | st.integers(0, 30), max_size=30)


def published(body, *, address=b"\x01x\x03key", channel=1, priority=0, expires_at=None, **props):
    """A message as it comes off the wire: header and body frames, raw."""
    method = Basic.Publish()
    whole = content_bytes(channel, method, Properties(**props), body, FRAME_MAX)
    after_method = 7 + int.from_bytes(whole[3:7], "big") + 1
    frames = whole[after_method:]
    header_bytes = int.from_bytes(frames[3:7], "big")
    flags = int.from_bytes(frames[19:21], "big")
    message = Message(address, frames, header_bytes, flags, len(body), channel)
    message.priority, message.expires_at = priority, expires_at
    return message


def look(message):
    return (
        message.address,
        message.frames,
        message.header_bytes,
        message.flags,
        message.body_bytes,
        message.channel,
        message.priority,
        message.expires_at,
    )


MESSAGES = st.builds(
    published,
    st.binary(max_size=200) | st.binary(min_size=FRAME_MAX, max_size=FRAME_MAX * 3),
    address=st.binary(min_size=2, max_size=512),
    channel=st.integers(1, 65535),
    priority=st.integers(0, 255),
    expires_at=st.none() | st.integers(0, 2**62),
    content_type=st.none() | st.just("text/plain"),
    delivery_mode=st.none() | st.sampled_from([1, 2]),
    headers=st.none() | st.just({"a": 1, "b": {"c": [True, None, "x"]}}),
    message_id=st.none() | st.text("abc", max_size=20),
)


@given(st.lists(MESSAGES, min_size=1, max_size=8), st.integers(0, 2**63))
def test_messages_come_back_byte_for_byte(messages, time_ms):
    entry = encode_enqueue(messages, time_ms)
    [(kind, start, end)] = split_commands(entry)
    assert (kind, end) == (ENQUEUE, len(entry))
    assert enqueued_count(entry, start) == len(messages)
    assert enqueued_ms(entry, start) == time_ms
    assert [look(m) for m in decode_messages(entry, start)] == [look(m) for m in messages]


@given(SEQUENCES, st.sampled_from([SETTLE, RETURN]))
def test_ranges_come_back_as_the_same_sequences(sequences, kind):
    entry = encode_ranges(kind, sequences)
    [(found, start, end)] = split_commands(entry)
    ranges = decode_ranges(entry, start, end)
    assert found == kind
    assert ranges == ranges_of(sequences)
    assert {s for first, count in ranges for s in range(first, first + count)} == set(sequences)


U64 = st.integers(0, 2**64 - 1)


@given(st.lists(st.tuples(U64, U64), max_size=10))
def test_delays_come_back_in_the_order_in_which_they_were_said(delays):
    entry = encode_delays(delays)
    [(kind, start, end)] = split_commands(entry)
    assert (kind, end) == (DELAY, len(entry))
    assert decode_delays(entry, start, end) == delays


@given(st.lists(st.tuples(st.binary(min_size=16, max_size=16), U64), max_size=10), U64)
def test_ids_come_back_with_their_times(ids, time_ms):
    entry = encode_seen(ids, time_ms)
    [(kind, start, end)] = split_commands(entry)
    assert (kind, end) == (SEEN, len(entry))
    assert decode_seen(entry, start, end) == (time_ms, ids)


@pytest.mark.parametrize(
    ("sequences", "ranges"),
    [
        ([], []),
        ([0], [(0, 1)]),
        ([2, 0, 1], [(0, 3)]),
        ([5, 7, 6, 9], [(5, 3), (9, 1)]),
        ([2**63, 2**63 + 1], [(2**63, 2)]),
    ],
)
def test_ranges_are_as_long_as_they_can_be(sequences, ranges):
    assert ranges_of(sequences) == ranges


@given(st.lists(st.sampled_from("esrdyi"), max_size=8))
def test_commands_of_one_entry_come_apart_in_order(kinds):
    made = {
        "e": (ENQUEUE, encode_enqueue([published(b"body")], 1)),
        "s": (SETTLE, encode_ranges(SETTLE, [1, 2, 9])),
        "r": (RETURN, encode_ranges(RETURN, [4])),
        "d": (DELIVERED, encode_delivered(17)),
        "y": (DELAY, encode_delays([(3, 1000), (4, 2000)])),
        "i": (SEEN, encode_seen([(b"i" * 16, 5000)], 1000)),
    }
    entry = b"".join(made[kind][1] for kind in kinds)
    assert [found for found, _, _ in split_commands(entry)] == [made[kind][0] for kind in kinds]
    for kind, start, end in split_commands(entry):
        if kind == DELIVERED:
            assert decode_delivered(entry, start) == 17
        elif kind == DELAY:
            assert decode_delays(entry, start, end) == [(3, 1000), (4, 2000)]
        elif kind == SEEN:
            assert decode_seen(entry, start, end) == (1000, [(b"i" * 16, 5000)])
