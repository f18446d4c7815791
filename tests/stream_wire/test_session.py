"""What a client of the stream protocol may rely on, at the wire."""

import contextlib
import os
import socket
import struct
import threading

import pytest

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import Producer, encode_chunk, split_chunks
from broker.protocol.stream_wire import (
    END,
    LAST_WORD,
    PROTOCOL_HEADER,
    REQUEST_BYTES_MAX,
    Operation,
    Status,
    decode_refusal,
    encode_request,
)
from broker.streams import sending
from broker.streams.requests import IN_FLIGHT_BYTES_MAX, REQUESTS_MAX
from broker.streams.sending import HIGH_BYTES
from broker.streams.service import Caller
from tests.stream_wire.door import Door, authenticate
from tests.support.waiting import eventually


def chunk(*values, keys=None, producer=None):
    return encode_chunk(
        keys or [None] * len(values), values, [b""] * len(values), 1000, producer=producer
    )


def fetch(start=0, end=END, max_bytes=1 << 20, min_bytes=0, wait_ms=0, stream="s"):
    return wire.Fetch(stream, 0, start, end, max_bytes, min_bytes, wait_ms)


def found(answer):
    assert answer.status == Status.OK, decode_refusal(answer)
    head = wire.decode_body(wire.FetchHead, answer.body[: wire.FETCH_HEAD_BYTES])
    chunks = split_chunks(answer.body[wire.FETCH_HEAD_BYTES :])
    return head, [(record.offset, record.value) for each in chunks for record in each]


# Opening


def test_a_client_that_logs_in_is_told_the_limits(door):
    with door.dial() as client:
        answer = client.ask(7, authenticate())
        told = wire.decode_body(wire.Authenticated, answer.body)
        assert told.request_bytes_max == REQUEST_BYTES_MAX
        assert told.requests_max == REQUESTS_MAX
        assert told.idle_ms == 120_000


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (authenticate(password="wrong"), Status.LOGIN_REFUSED),
        (authenticate(user="nobody"), Status.LOGIN_REFUSED),
        (authenticate(vhost="/other"), Status.VHOST_REFUSED),
        (wire.Authenticate("GSSAPI", b"", "/", ""), Status.MALFORMED),
        (wire.Authenticate("PLAIN", b"no nul", "/", ""), Status.MALFORMED),
        (wire.Metadata(("s",)), Status.NOT_AUTHENTICATED),
    ],
)
def test_whoever_cannot_log_in_is_told_why_and_closed(door, request_, status):
    with door.dial() as client:
        assert client.ask(1, request_).status == status
        assert client.ends()


def test_a_wrong_password_is_answered_after_the_delay():
    with Door(auth_failure_delay_s=600.0, handshake_timeout_s=0.2) as door, door.dial() as client:
        client.send(1, authenticate(password="wrong"))
        assert client.ends()  # the handshake's time-out came first: nothing was answered


def test_a_client_that_says_nothing_is_closed_after_the_handshake_timeout():
    with Door(handshake_timeout_s=0.05) as door, door.dial() as client:
        assert client.ends()


def test_another_version_of_the_protocol_is_answered_with_this_one(door):
    with door.dial(b"LVST\0\0\2\0") as client:
        assert client.sock.recv(8, socket.MSG_WAITALL) == PROTOCOL_HEADER
        assert client.ends()


def test_the_header_may_come_in_pieces(door):
    with door.dial(PROTOCOL_HEADER[:3]) as client:
        client.sock.sendall(PROTOCOL_HEADER[3:])
        assert client.ask(1, authenticate()).status == Status.OK


def test_a_node_without_streams_closes_at_once(door):
    door.server.streams = None
    with door.dial() as client:
        assert client.ends()


def test_amqp_is_spoken_on_the_same_port(door):
    with door.dial(b"AMQP\0\0\x09\1") as client:
        assert client.sock.recv(7, socket.MSG_WAITALL)[:3] == b"\1\0\0"  # connection.start


def test_a_node_that_stops_does_not_wait_for_strangers(door):
    with door.dial() as client:
        eventually(lambda: door.server.connections, "the connection")
        door.stop()
        assert client.ends()


def test_connections_beyond_the_limit_are_told_so():
    with Door(connections_max=1) as door, door.logged_in(), door.dial() as second:
        assert second.ask(1, authenticate()).status == Status.TOO_MANY_CONNECTIONS
        assert second.ends()


def test_an_idle_client_is_told_and_closed():
    with Door(heartbeat_s=1) as door, door.logged_in() as client:
        answer = client.receive()
        assert (answer.correlation, answer.status) == (LAST_WORD, Status.IDLE)
        assert client.ends()


def test_a_stopping_node_says_so(door):
    with door.logged_in() as client:
        door.call(door._stop.set)
        answer = client.receive()
        assert (answer.correlation, answer.status) == (LAST_WORD, Status.SHUTTING_DOWN)
        assert client.ends()


# Malformed frames


def test_a_frame_that_is_too_large_ends_the_connection(door):
    with door.logged_in() as client:
        client.sock.sendall(struct.pack("<I", REQUEST_BYTES_MAX + 1))
        answer = client.receive()
        assert (answer.correlation, answer.status) == (LAST_WORD, Status.FRAME_TOO_LARGE)
        assert client.ends()


def test_a_frame_of_a_stranger_is_small(door):
    with door.dial() as client:
        client.sock.sendall(struct.pack("<I", 10_000))
        assert client.receive().status == Status.FRAME_TOO_LARGE
        assert client.ends()


def test_a_frame_without_a_request_ends_the_connection(door):
    with door.logged_in() as client:
        client.sock.sendall(struct.pack("<I3x", 3))
        assert client.receive().status == Status.MALFORMED
        assert client.ends()


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff\xff", b"\0\0" + b"\0" * 100, b"\2\0\xff\xfe"],
    ids=["empty", "a text cut short", "too long", "no UTF-8"],
)
def test_a_malformed_body_is_refused_and_the_connection_goes_on(door, body):
    with door.logged_in() as client:
        client.sock.sendall(encode_request(2, Operation.FETCH, [body]))
        assert client.receive().status == Status.MALFORMED
        assert client.ask(3, wire.Empty(), Operation.PING).status == Status.OK


def test_an_unknown_operation_is_refused(door):
    with door.logged_in() as client:
        client.sock.sendall(encode_request(2, 999, []))
        answer = client.receive()
        assert (answer.correlation, answer.operation) == (2, 999)
        assert answer.status == Status.UNKNOWN_OPERATION


# Streams


def test_metadata_tells_of_all_partitions_and_of_what_is_not_there(door):
    door.call(door.streams.declare, "s", 2)
    door.append("s", chunk(b"a", b"b"), partition=1)
    with door.logged_in() as client:
        answer = client.ask(2, wire.Metadata(("s", "missing")))
        known, missing = wire.decode_body(wire.MetadataAnswer, answer.body).streams
        assert missing == wire.StreamMetadata("missing", Status.STREAM_NOT_FOUND, ())
        assert [each.next_offset for each in known.partitions] == [0, 2]
    assert door.streams.callers == {Caller("/", "guest")}


def test_streams_are_known_by_their_uids(door):
    for name in ("open", "closed"):
        door.call(door.streams.declare, name)
    with door.logged_in("reader", "secret") as client:
        answer = client.ask(2, wire.Identify(("closed", "open", "openly missing")))
        assert wire.decode_body(wire.Identities, answer.body).streams == (
            wire.StreamIdentity("closed", Status.ACCESS_REFUSED, ""),
            wire.StreamIdentity("open", Status.OK, "uid of open"),
            wire.StreamIdentity("openly missing", Status.STREAM_NOT_FOUND, ""),
        )


def test_permissions_are_those_for_queues(door):
    for name in ("open", "closed"):
        door.call(door.streams.declare, name)
    with door.logged_in("reader", "secret") as client:
        answer = client.ask(2, wire.Metadata(("closed", "open")))
        statuses = wire.decode_body(wire.MetadataAnswer, answer.body).streams
        assert [each.status for each in statuses] == [Status.ACCESS_REFUSED, Status.OK]
        answer = client.ask(3, wire.Empty(), Operation.LIST_STREAMS)
        listed = wire.decode_body(wire.StreamList, answer.body).streams
        assert [each.stream for each in listed] == ["open"]
        assert client.ask(4, fetch(stream="open")).status == Status.OK
        refused = [
            fetch(stream="closed"),
            wire.OffsetFor("closed", wire.FIRST, 0, ()),
            wire.Append("open", 0, chunk(b"x")),
            wire.Stage(wire.Key("p", 1, 0), "open", 0, "w", 0, chunk(b"x")),
            wire.Join("team", "me", "", "", ("closed",)),
            wire.Join("others", "me", "", "", ("open",)),
            wire.CommitOffsets("team", "me", 1, (wire.Position(wire.Partition("closed", 0), 1),)),
            wire.FetchOffsets("team", (wire.Partition("closed", 0),)),
            wire.ResetOffsets("others", ()),
            wire.DescribeGroup("others"),
            wire.Commit(
                wire.Key("p", 1, 0), (wire.PartitionPart(wire.Partition("open", 0), ()),), ()
            ),
            wire.Commit(wire.Key("p", 1, 0), (), (wire.GroupPart("others", "", 0, ()),)),
        ]
        for number, message in enumerate(refused, start=10):
            assert client.ask(number, message).status == Status.ACCESS_REFUSED, message


def test_who_may_only_write_learns_which_partitions_there_are(door):
    for name in ("open", "closed"):
        door.call(door.streams.declare, name)
    with door.logged_in("writer", "secret") as client:
        answer = client.ask(2, wire.Metadata(("closed", "open")))
        statuses = wire.decode_body(wire.MetadataAnswer, answer.body).streams
        assert [each.status for each in statuses] == [Status.ACCESS_REFUSED, Status.OK]
        assert client.ask(3, wire.Append("open", 0, chunk(b"x"))).status == Status.OK
        assert client.ask(4, fetch(stream="open")).status == Status.ACCESS_REFUSED


# Fetching


def test_a_fetch_brings_whole_chunks_and_where_to_read_on(door):
    door.call(door.streams.declare, "s")
    for values in ([b"a", b"b"], [b"c"], [b"d"]):
        door.append("s", chunk(*values))
    with door.logged_in() as client:
        head, records = found(client.ask(2, fetch(start=1, end=3)))
        assert records == [(0, b"a"), (1, b"b"), (2, b"c")]
        assert head == wire.FetchHead(0, 4, 4, 3)
        head, records = found(client.ask(3, fetch(max_bytes=1)))
        assert (records, head.resume_offset) == ([(0, b"a"), (1, b"b")], 2)
    eventually(lambda: door.streams.open_files == 0, "door.streams.open_files == 0")


def test_an_offset_out_of_range_is_told_with_the_range(door):
    (partition,) = door.call(door.streams.declare, "s")
    door.append("s", chunk(b"a", b"b"))
    partition.first_offset = 1
    with door.logged_in() as client:
        for start in (0, 3):
            answer = client.ask(2, fetch(start=start))
            refused = decode_refusal(answer)
            assert refused.status == Status.OFFSET_OUT_OF_RANGE
            assert refused.numbers == (1, 2)


def test_chunks_come_from_files_as_they_are(tmp_path):
    with Door(tmp_path) as door:
        door.call(door.streams.declare, "s")
        values = [bytes([number]) * 300_000 for number in range(40)]
        for value in values:
            door.append("s", chunk(value))
        with door.logged_in() as client:
            client.send(2, fetch(max_bytes=5_000_000))
            client.send(3, fetch(start=20, max_bytes=100_000_000))
            answers = {answer.correlation: found(answer) for answer in map(_next, [client] * 2)}
        head, records = answers[2]
        assert head.resume_offset == len(records) == 16
        assert [value for _, value in records] == values[:16]
        assert [value for _, value in answers[3][1]] == values[20:]
        eventually(lambda: door.streams.open_files == 0, "door.streams.open_files == 0")


def _next(client):
    return client.receive()


def test_requests_are_pipelined_and_answered_by_correlation(door):
    door.call(door.streams.declare, "s")
    with door.logged_in() as client:
        client.send(2, fetch(min_bytes=1, wait_ms=60_000))
        client.send(3, wire.Empty(), Operation.PING)
        assert client.receive().correlation == 3
        client.send(4, wire.Append("s", 0, chunk(b"new")))
        answers = {answer.correlation: answer for answer in map(_next, [client] * 2)}
        assert wire.decode_body(wire.Appended, answers[4].body) == (False, 0)
        assert found(answers[2])[1] == [(0, b"new")]


def test_a_long_poll_waits_for_enough(door):
    door.call(door.streams.declare, "s")
    with door.logged_in() as client:
        client.send(2, fetch(min_bytes=1000, wait_ms=60_000))
        eventually(lambda: door.streams.watchers == 1, "door.streams.watchers == 1")
        door.append("s", chunk(b"too little"))
        eventually(
            lambda: door.streams.fetches == 2 and door.streams.watchers == 1,
            "door.streams.fetches == 2 and door.streams.watchers == 1",
        )
        door.append("s", chunk(bytes(1000)))
        assert len(found(client.receive())[1]) == 2
        assert door.streams.watchers == 0


def test_a_long_poll_ends_at_the_end_of_its_range(door):
    door.call(door.streams.declare, "s")
    door.append("s", chunk(b"a"))
    with door.logged_in() as client:
        answer = client.ask(2, fetch(end=1, min_bytes=1 << 20, wait_ms=60_000))
        assert found(answer)[1] == [(0, b"a")]


def test_a_long_poll_answers_with_nothing_when_its_time_is_over(door):
    door.call(door.streams.declare, "s")
    with door.logged_in() as client:
        head, records = found(client.ask(2, fetch(min_bytes=1, wait_ms=10)))
        assert (head.resume_offset, records) == (0, [])
    assert door.streams.watchers == 0


def test_a_long_poll_ends_with_its_stream(door):
    door.call(door.streams.declare, "s")
    with door.logged_in() as client:
        client.send(2, fetch(min_bytes=1, wait_ms=60_000))
        eventually(lambda: door.streams.watchers == 1, "door.streams.watchers == 1")
        door.call(door.streams.delete, "s")
        assert client.receive().status == Status.STREAM_NOT_FOUND


def test_a_long_poll_ends_with_its_client(door):
    door.call(door.streams.declare, "s")
    with door.logged_in() as client:
        client.send(2, fetch(min_bytes=1, wait_ms=60_000))
        eventually(lambda: door.streams.watchers == 1, "door.streams.watchers == 1")
    eventually(
        lambda: door.streams.watchers == 0 and not door.server.connections,
        "door.streams.watchers == 0 and not door.server.connections",
    )


def test_an_answer_for_a_client_that_is_gone_lets_its_files_go(door):
    door.call(door.streams.declare, "s")
    door.append("s", chunk(b"a"))
    door.call(door.streams.hold)
    with door.logged_in() as client:
        client.send(2, fetch())
        eventually(lambda: door.streams.fetches == 1, "door.streams.fetches == 1")
    eventually(lambda: not door.server.connections, "not door.server.connections")
    door.call(door.streams.release)
    assert door.streams.open_files == 0


# Appending


def test_an_append_is_answered_with_its_offset_or_why_not(door):
    door.call(door.streams.declare, "s")
    with door.logged_in() as client:

        def append(made):
            return client.ask(2, wire.Append("s", 0, made))

        def appended(made):
            return tuple(wire.decode_body(wire.Appended, append(made).body))

        assert appended(chunk(b"a", b"b")) == (False, 0)
        assert appended(chunk(b"c", producer=Producer(5, 1, 0))) == (False, 2)
        assert appended(chunk(b"c", producer=Producer(5, 1, 0))) == (True, 2)
        refused = decode_refusal(append(chunk(b"e", producer=Producer(5, 1, 7))))
        assert (refused.status, refused.numbers) == (Status.OUT_OF_ORDER, (1,))
        assert append(chunk(b"c", producer=Producer(5, 0, 0))).status == Status.PRODUCER_FENCED
        assert append(chunk(b"x")[:-1]).status == Status.CORRUPT_CHUNK


def test_an_alarm_keeps_writes_back_in_their_order_and_nothing_else(door):
    door.call(door.streams.declare, "s")
    with door.logged_in() as client:
        door.call(door.node.raise_alarm, "memory", "low on memory")
        for number in range(3):
            client.send(2 + number, wire.Append("s", 0, chunk(b"%d" % number)))
        assert client.ask(9, fetch()).status == Status.OK
        door.call(door.node.clear_alarm, "memory")
        answers = [client.receive() for _ in range(3)]
        offsets = [wire.decode_body(wire.Appended, each.body).offset for each in answers]
        assert ([each.correlation for each in answers], offsets) == ([2, 3, 4], [0, 1, 2])


# Bounds


def test_a_client_that_never_reads_holds_a_bounded_amount(door):
    door.call(door.streams.declare, "s")
    size = 1 << 20
    door.append("s", chunk(bytes(size)))
    with door.logged_in() as client:
        for number in range(200):
            client.send(2 + number, fetch(max_bytes=size))
        eventually(lambda: door.streams.fetches >= 200, "door.streams.fetches >= 200")
        (session,) = door.server.connections
        assert session._sender.size_bytes <= HIGH_BYTES + 2 * size
        assert door.streams.open_files <= HIGH_BYTES // size + 2
        for _ in range(200):  # once it reads it gets everything
            assert found(client.receive())[0].resume_offset == 1
    eventually(lambda: door.streams.open_files == 0, "door.streams.open_files == 0")


def test_a_client_that_takes_nothing_for_too_long_is_given_up(door, monkeypatch):
    monkeypatch.setattr(sending, "STALL_TIMEOUT_S", 0.05)
    door.call(door.streams.declare, "s")
    for _ in range(16):
        door.append("s", chunk(bytes(1 << 20)))
    with door.logged_in() as client:
        client.send(2, fetch(max_bytes=16 << 20))
        eventually(lambda: not door.server.connections, "the end of the connection")
    assert door.streams.open_files == 0


def test_a_file_that_cannot_be_sent_ends_the_connection(tmp_path):
    with Door(tmp_path) as door:
        door.call(door.streams.declare, "s")
        door.append("s", chunk(bytes(1000)))
        os.truncate(tmp_path / "s-0", 100)
        with door.logged_in() as client:
            client.send(2, fetch())
            eventually(lambda: not door.server.connections, "the end of the connection")
        assert door.streams.open_files == 0


def test_requests_beyond_those_in_flight_wait_in_the_socket(door):
    door.call(door.streams.declare, "s")
    door.call(door.streams.hold)
    with door.logged_in() as client:
        for number in range(REQUESTS_MAX + 50):
            client.send(2 + number, fetch())
        eventually(
            lambda: door.streams.fetches == REQUESTS_MAX, "door.streams.fetches == REQUESTS_MAX"
        )
        client.send(1, wire.Empty(), Operation.PING)
        door.call(door.streams.release)
        answers = [client.receive().correlation for _ in range(REQUESTS_MAX + 51)]
        assert sorted(answers) == list(range(1, REQUESTS_MAX + 52))


def test_chunks_beyond_the_bytes_in_flight_wait_in_the_socket(door):
    door.call(door.streams.declare, "s")
    door.call(door.streams.hold)
    with door.logged_in() as client:
        flood = threading.Thread(target=_flood, args=(client, chunk(bytes(4 << 20))))
        flood.start()
        (session,) = door.server.connections
        eventually(lambda: session._requests.full, "as much in flight as may be")
        assert len(door.streams.held) <= IN_FLIGHT_BYTES_MAX // (4 << 20) + 1
        client.sock.shutdown(socket.SHUT_RDWR)
        flood.join()


def _flood(client, made):
    with contextlib.suppress(OSError):
        for number in range(100):
            client.send(2 + number, wire.Append("s", 0, made))
