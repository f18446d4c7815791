"""What is written to another node is read there as it was."""

from hypothesis import given
from hypothesis import strategies as st

from broker.cluster import calls
from broker.cluster.queue_wire import (
    ConsumeWish,
    How,
    Op,
    decode_batches,
    decode_deliver,
    decode_pair,
    decode_returns,
    decode_sequences,
    decode_stored,
    decode_taken,
    encode_batch,
    encode_deliver,
    encode_pair,
    encode_returns,
    encode_sequences,
    encode_stored,
    encode_taken,
    head,
)
from broker.protocol.errors import ChannelError
from queues.message import Wishes
from queues.statistics import QueueStatistics
from tests.cluster_front.world import message

HEAD = head(Op.PUBLISH, b"u" * 16, 7)

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
sequences = st.lists(u64, max_size=20)
wishes = st.none() | st.builds(
    Wishes,
    st.none() | st.integers(0, 2**40),
    st.none() | st.binary(min_size=16, max_size=16),
)


@st.composite
def messages(draw):
    made = message(draw(st.binary(max_size=300)))
    made.address = draw(st.binary(min_size=2, max_size=512))
    made.priority = draw(st.integers(0, 255))
    made.expires_at = draw(st.none() | st.integers(0, 2**62))
    made.wishes = draw(wishes)
    made.sequence = draw(u64)
    made.redelivered = draw(st.booleans())
    made.delivery_count = draw(u32) if made.redelivered else 0
    return made


def content(one):
    return (one.address, one.frames, one.header_bytes, one.flags, one.body_bytes, one.channel)


def asked(one):
    wishes = one.wishes
    return None if wishes is None else (wishes.delay_ms, wishes.dedup_id)


@given(st.lists(st.tuples(u64, st.lists(messages(), max_size=4)), max_size=4))
def test_publishes(batches):
    pieces = [HEAD]
    for number, some in batches:
        encode_batch(pieces, number, some)
    read = decode_batches(b"".join(pieces))
    assert [number for number, _ in read] == [number for number, _ in batches]
    for (_, some), (_, again) in zip(batches, read, strict=True):
        assert list(map(content, some)) == list(map(content, again))
        for one, other in zip(some, again, strict=True):
            assert (one.priority, one.expires_at) == (other.priority, other.expires_at)
            none = (None, None)  # wishes for nothing are no wishes
            assert (asked(one) or none) == (asked(other) or none)


@given(u32, st.lists(messages(), max_size=4))
def test_deliveries(number, some):
    consumer, again = decode_deliver(HEAD + b"".join(encode_deliver(number, some)))
    assert consumer == number
    assert list(map(content, some)) == list(map(content, again))
    told = [(m.sequence, m.redelivered, m.delivery_count) for m in some]
    assert told == [(m.sequence, m.redelivered, m.delivery_count) for m in again]


@given(st.lists(st.tuples(st.integers(0, 30), st.lists(u32, max_size=3)), max_size=20))
def test_what_was_stored(items):
    assert decode_stored(HEAD + encode_stored(items)) == items


@given(u64, st.lists(st.tuples(u32, st.sampled_from(How), sequences), max_size=5))
def test_returns(number, groups):
    assert decode_returns(HEAD + encode_returns(number, groups)) == (number, groups)


@given(u32, u32, u64, sequences)
def test_small_ones(number, value, size, some):
    assert decode_pair(HEAD + encode_pair(number, value)) == (number, value)
    assert decode_taken(HEAD + encode_taken(number, size)) == (number, size)
    assert decode_sequences(HEAD + encode_sequences(number, some)) == (number, some)


wanted = st.tuples(
    u32,
    st.integers(0, 255),
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.integers(1, 2**63),
    u32,
    st.text(max_size=80),
)


@given(wanted)
def test_consumers(values):
    wish = ConsumeWish.decode(HEAD + ConsumeWish(*values).encode())
    read = (wish.consumer, wish.flags, wish.priority, wish.lease_ms, wish.limit, wish.tag)
    assert read == values


@given(st.lists(u64, min_size=8, max_size=8), st.sampled_from((403, 404, 406, 506)), st.text())
def test_answers(numbers, code, text):
    statistics = QueueStatistics(*numbers)
    packed = calls.pack_statistics(statistics, calls.ALL_STATISTICS)
    assert calls.unpack_statistics(packed) == statistics
    before = calls.pack_statistics(statistics, b"")  # as older nodes ask, and answer
    assert calls.unpack_statistics(before) == QueueStatistics(*numbers[:7])
    error = calls.unpack_error(calls.pack_error(ChannelError(code, text)))
    assert (error.code, error.text) == (code, text)
