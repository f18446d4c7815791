"""The codec of the stream protocol: what goes in comes out, and anything else is refused."""

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.protocol import stream_messages as wire
from broker.protocol.stream_fields import ITEMS_MAX, MalformedError
from broker.protocol.stream_properties import decode_headers, encode_properties
from broker.protocol.stream_wire import (
    FrameBuffer,
    FrameTooLargeError,
    Operation,
    Refused,
    Status,
    decode_refusal,
    encode_answer,
    encode_refusal,
    encode_request,
    read_answer,
    read_request,
)

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "stream-protocol.md"

TEXTS = st.text(max_size=6)
U16 = st.integers(0, 2**16 - 1)
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
BYTES = st.binary(max_size=20)


def many(items):
    return st.lists(items, max_size=3).map(tuple)


PARTITIONS = st.builds(wire.Partition, TEXTS, U32)
POSITIONS = st.builds(wire.Position, PARTITIONS, U64, TEXTS)
COMMITTED = st.builds(wire.CommittedOffset, PARTITIONS, U64, TEXTS, I64)
KEYS = st.builds(wire.Key, TEXTS, U32, U64)
PARTS = many(
    st.builds(wire.PartitionPart, PARTITIONS, many(st.builds(wire.WriterRows, TEXTS, U64)))
)
GROUP_PARTS = many(st.builds(wire.GroupPart, TEXTS, TEXTS, U64, many(POSITIONS)))
PARTITION_METADATA = st.builds(wire.PartitionMetadata, U32, U64, U64, U64, U64, TEXTS)
MEMBERS = st.builds(
    wire.MemberDescription, TEXTS, TEXTS, many(TEXTS), many(PARTITIONS), many(PARTITIONS)
)
FIELDS = {
    wire.Empty: (),
    wire.Authenticate: (TEXTS, BYTES, TEXTS, TEXTS),
    wire.Authenticated: (TEXTS, U32, U32, U32),
    wire.Metadata: (many(TEXTS),),
    wire.MetadataAnswer: (
        many(st.builds(wire.StreamMetadata, TEXTS, U16, many(PARTITION_METADATA))),
    ),
    wire.Identify: (many(TEXTS),),
    wire.Identities: (many(st.builds(wire.StreamIdentity, TEXTS, U16, TEXTS)),),
    wire.StreamList: (many(st.builds(wire.StreamListed, TEXTS, U32)),),
    wire.OffsetFor: (TEXTS, st.integers(0, 255), I64, many(U32)),
    wire.OffsetsFound: (many(st.builds(wire.PartitionOffset, U32, U64)),),
    wire.Fetch: (TEXTS, U32, U64, U64, U32, U32, U32),
    wire.FetchHead: (U64, U64, U64, U64),
    wire.Append: (TEXTS, U32, BYTES),
    wire.Appended: (st.booleans(), U64),
    wire.AllocateProducer: (TEXTS,),
    wire.ProducerAllocated: (U64, U16),
    wire.Join: (TEXTS, TEXTS, TEXTS, TEXTS, many(TEXTS)),
    wire.Heartbeat: (TEXTS, TEXTS, U64, many(PARTITIONS)),
    wire.Assignment: (TEXTS, U64, many(PARTITIONS), many(PARTITIONS)),
    wire.Leave: (TEXTS, TEXTS),
    wire.CommitOffsets: (TEXTS, TEXTS, U64, many(POSITIONS)),
    wire.FetchOffsets: (TEXTS, many(PARTITIONS)),
    wire.CommittedOffsets: (many(COMMITTED),),
    wire.ResetOffsets: (TEXTS, many(POSITIONS)),
    wire.GroupList: (many(st.builds(wire.GroupListed, TEXTS, U64, U32)),),
    wire.DescribeGroup: (TEXTS,),
    wire.GroupDescription: (
        U64,
        many(MEMBERS),
        many(st.builds(wire.OffsetDescription, COMMITTED, U64)),
    ),
    wire.OpenTransactions: (TEXTS,),
    wire.TransactionsOpened: (U32, I64),
    wire.Stage: (KEYS, TEXTS, U32, TEXTS, U32, BYTES),
    wire.Staged: (st.booleans(),),
    wire.Commit: (KEYS, PARTS, GROUP_PARTS),
    wire.Committed: (U64, U64),
    wire.Abort: (KEYS, PARTS, GROUP_PARTS),
}
KINDS = sorted({kind for pair in wire.MESSAGES.values() for kind in pair}, key=str)
MESSAGES = st.sampled_from(KINDS).flatmap(lambda kind: st.builds(kind, *FIELDS[kind]))


@given(MESSAGES)
def test_a_message_comes_out_as_it_went_in(message):
    body = b"".join(wire.encode_body(message))
    assert wire.decode_body(type(message), body) == message


@given(MESSAGES, st.data())
def test_a_message_that_is_cut_short_is_refused(message, data):
    body = b"".join(wire.encode_body(message))
    if isinstance(message, wire.Append | wire.Stage):
        body = body[: len(body) - len(message.chunk)]  # any rest of a body may be a chunk
    if body:
        with pytest.raises(MalformedError):
            wire.decode_body(type(message), body[: data.draw(st.integers(0, len(body) - 1))])


@given(st.sampled_from(KINDS), st.binary(max_size=60))
@example(wire.Metadata, b"\xff\xff\xff\xff")
def test_any_bytes_are_a_message_or_malformed(kind, body):
    try:
        message = wire.decode_body(kind, body)
    except MalformedError:
        return
    assert b"".join(wire.encode_body(message)) == body


@pytest.mark.parametrize(
    "message",
    [
        wire.Metadata(("s",) * (wire.STREAMS_MAX + 1)),
        wire.OffsetFor("s", 0, 0, (0,) * (ITEMS_MAX + 1)),
        wire.DescribeGroup("x" * 2**16),
        wire.DescribeGroup("\udc80"),
        wire.ProducerAllocated(1, 2**16),
    ],
)
def test_what_has_no_place_on_the_wire_is_not_written(message):
    with pytest.raises(MalformedError):
        wire.encode_body(message)


def test_a_list_that_is_too_long_is_not_read():
    body = (wire.STREAMS_MAX + 1).to_bytes(4, "little") + b"\0\0" * (wire.STREAMS_MAX + 1)
    with pytest.raises(MalformedError, match="items"):
        wire.decode_body(wire.Metadata, body)


@given(
    st.lists(st.tuples(U32, U16, st.binary(max_size=30)), max_size=8),
    st.lists(st.integers(1, 40), max_size=30),
)
def test_frames_come_out_whole_however_they_are_cut(requests, cuts):
    data = b"".join(encode_request(number, kind, [body]) for number, kind, body in requests)
    buffer = FrameBuffer(1000)
    found, position = [], 0
    for cut in [*cuts, len(data)]:
        buffer.feed(data[position : position + cut])
        position += cut
        while (frame := buffer.take()) is not None:
            found.append(tuple(read_request(frame)))
    assert found == requests
    assert buffer.size_bytes == 0


def test_a_frame_beyond_the_limit_is_refused_before_it_is_read():
    buffer = FrameBuffer(10)
    buffer.feed((11).to_bytes(4, "little"))
    with pytest.raises(FrameTooLargeError):
        buffer.take()


@pytest.mark.parametrize("read", [read_request, read_answer])
def test_a_frame_without_its_head_is_malformed(read):
    with pytest.raises(MalformedError):
        read(memoryview(b"\0" * 5))


@given(U32, U16, st.sampled_from(list(Status)), st.text(max_size=20), many(U64))
def test_an_error_comes_out_as_it_went_in(correlation, operation, status, text, numbers):
    buffer = FrameBuffer(1000)
    buffer.feed(encode_refusal(correlation, operation, Refused(status, text, numbers)))
    answer = read_answer(buffer.take())
    assert (answer.correlation, answer.operation) == (correlation, operation)
    assert decode_refusal(answer) == (status, text, numbers)


def test_the_text_of_an_error_is_cut_to_what_fits():
    buffer = FrameBuffer(10_000)
    buffer.feed(encode_refusal(1, 1, Refused(Status.MALFORMED, "é" * 10_000)))
    assert decode_refusal(read_answer(buffer.take())).text == "é" * 2048


def test_frames_are_the_ones_that_are_drawn():
    body = wire.encode_body(wire.Fetch("s", 2, 3, 4, 5, 6, 7))
    assert encode_request(9, Operation.FETCH, body) == bytes.fromhex(
        "29000000 09000000 2000"
        "0100 73 02000000 0300000000000000 0400000000000000 05000000 06000000 07000000"
    )
    named = wire.encode_body(wire.Fetch("s", 2, 3, 4, 5, 6, 7, "ab"))
    assert b"".join(named) == b"".join(body) + b"\2\0ab"
    answer = encode_answer(9, Operation.APPEND, wire.encode_body(wire.Appended(True, 8)))
    assert answer == bytes.fromhex("11000000 09000000 2100 0000 01 0800000000000000")


HEADERS = st.dictionaries(st.text(max_size=5), st.text(max_size=5) | I64 | st.booleans())


@given(HEADERS)
def test_headers_come_out_of_properties_as_they_went_in(headers):
    assert decode_headers(encode_properties(headers, routing_key="key")) == headers


@given(st.binary(max_size=40))
def test_properties_of_anybody_give_headers_or_a_value_error(properties):
    with contextlib.suppress(ValueError):
        assert isinstance(decode_headers(properties), dict)


@pytest.mark.parametrize("catalogue", [Operation, Status])
def test_the_document_has_every_number(catalogue):
    text = DOCUMENT.read_text()
    for member in catalogue:
        assert re.search(rf"\| {member.value} \| `?{member.name}`? \|", text), member
