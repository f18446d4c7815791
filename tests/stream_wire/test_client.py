"""The blocking client: reading, producing, transactions, over a real socket."""

import socket
import threading
from zlib import crc32

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import Chunk, encode_chunk, encode_empty
from broker.protocol.stream_errors import CorruptChunkError, OffsetOutOfRangeError
from broker.protocol.stream_wire import Status
from clients.stream_address import Address
from clients.stream_arrow import COLUMNS, ArrowBatches
from clients.stream_conversation import Fetched
from clients.stream_errors import (
    ConnectionLostError,
    LoginTimeoutError,
    NoBrokerError,
    RefusedError,
)
from clients.stream_producer import Producer
from clients.stream_reader import Slice
from clients.streams import StreamClient, connect
from tests.stream_wire.door import Door
from tests.support.waiting import eventually


@pytest.fixture
def client(door):
    with connect(door.url, name="a test") as client:
        yield client


def chunk(*values):
    return encode_chunk([None] * len(values), values, [b""] * len(values), 1000)


def fill(door, stream, chunks, partition=0):
    for made in chunks:
        door.append(stream, made, partition)


# Connecting


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("amqp://", Address("127.0.0.1", 5672, "guest", "guest", "/")),
        ("amqp://u:p%40@h:1/v%2F", Address("h", 1, "u", "p@", "v/")),
    ],
)
def test_a_url_means_what_it_means_for_amqp(url, address):
    assert Address.of_url(url) == address


def test_a_url_may_name_several_nodes():
    address = Address.of_url("amqp://me:p%40ss@a:1,b,[::1]:3/v")
    assert address.nodes == [("a", 1), ("b", 5672), ("::1", 3)]
    assert (address.user, address.password, address.vhost) == ("me", "p@ss", "v")
    assert "p@ss" not in repr(address)


def test_a_wrong_password_is_told(door):
    with pytest.raises(RefusedError, match="LOGIN_REFUSED") as caught:
        connect(door.url.replace("guest@", "wrong@"))
    assert caught.value.status == Status.LOGIN_REFUSED


def test_nobody_listening_is_a_lost_connection():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionLostError):
            connect(f"amqp://127.0.0.1:{unused.getsockname()[1]}")


@pytest.fixture
def listening():
    """A socket that is not a broker's: what it is to say, or nothing."""
    said = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while True:
                try:
                    taken, _ = server.accept()
                except OSError:
                    return
                accepted.append(taken)
                if said:
                    taken.sendall(said[0])

        accepted = []
        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1], said.append, accepted
        for taken in accepted:
            taken.close()
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 400 \r\nContent-Length: 0\r\n\r\n", "that is an HTTP server"),
        (b"AMQP\0\0\t\1", "does not speak the stream protocol"),
        (b"\x15\x03\x03\0\2\2\x28", "wants TLS"),
    ],
)
def test_another_protocol_is_recognised_by_its_first_bytes(listening, answer, told):
    port, say, accepted = listening
    say(answer)
    with (
        StreamClient(Address.of_url(f"amqp://127.0.0.1:{port}")) as client,
        pytest.raises(NoBrokerError, match=told) as error,
    ):
        client.connection.ask(wire.Metadata(()), wire.MetadataAnswer)
    assert f"127.0.0.1:{port}" in str(error.value)
    assert len(accepted) == 1, "once is enough"


def test_a_socket_that_never_answers_is_given_up_after_one_login(listening):
    port, _, accepted = listening
    address = Address.of_url(f"amqp://127.0.0.1:{port}")
    with (
        StreamClient(address, login_timeout_s=0.2) as client,
        pytest.raises(LoginTimeoutError, match=r"no answer to the login within 0.2 s"),
    ):
        client.connection.ask(wire.Metadata(()), wire.MetadataAnswer)
    assert len(accepted) == 1


def test_a_request_goes_on_after_a_lost_connection(door, client):
    door.call(door.streams.declare, "s")
    assert client.streams() == {"s": 1}
    client.connection._socket.shutdown(socket.SHUT_RDWR)
    assert client.streams() == {"s": 1}
    assert client.connection.generation == 2


def test_a_server_that_does_not_answer_is_given_up(door, client):
    door.call(door.streams.declare, "s")
    door.call(door.streams.hold)
    client.connection._timeout_s = 0.05
    client.connection._limit(client.connection._socket, 0.05)
    correlation = client.connection.send(wire.Fetch("s", 0, 0, 1, 1, 0, 0))
    with pytest.raises(ConnectionLostError, match="no answer"):
        client.connection.receive(correlation, Fetched)
    door.call(door.streams.release)


# Reading


def test_metadata_is_of_all_partitions_at_once(door, client):
    door.call(door.streams.declare, "s", 3)
    fill(door, "s", [chunk(b"a", b"b")], partition=2)
    found = client.metadata("s")["s"]
    assert [each.next_offset for each in found] == [0, 0, 2]
    with pytest.raises(RefusedError, match="STREAM_NOT_FOUND"):
        client.metadata("s", "missing")


def test_offsets_are_found_by_place_and_by_time(door, client):
    door.call(door.streams.declare, "s", 2)
    fill(door, "s", [encode_chunk([None] * 3, [b""] * 3, [b""] * 3, [10, 20, 30])], partition=1)
    assert client.offsets("s", "first") == {0: 0, 1: 0}
    assert client.offsets("s", "last", [1]) == {1: 2}
    assert client.offsets("s", "next") == {0: 0, 1: 3}
    assert client.offsets("s", 11) == {0: 0, 1: 1}
    with pytest.raises(ValueError, match="no place 'frist'"):
        client.offsets("s", "frist")


@pytest.mark.parametrize("fetch_bytes", [1, 300, 1 << 20])
def test_a_reader_gives_the_records_of_its_range_in_order(door, client, fetch_bytes):
    door.call(door.streams.declare, "s")
    fill(
        door,
        "s",
        [chunk(*[b"%d" % (10 * number + each) for each in range(10)]) for number in range(5)],
    )
    reader = client.reader("s", 0, 7, end=43, fetch_bytes=fetch_bytes)
    assert [(record.offset, record.value) for record in reader] == [
        (offset, b"%d" % offset) for offset in range(7, 43)
    ]
    assert reader.offset == 43


def test_a_reader_without_an_end_stops_where_the_stream_ends(door, client):
    door.call(door.streams.declare, "s")
    fill(door, "s", [chunk(b"a"), chunk(b"b")])
    assert [record.value for record in client.reader("s", 0, 0)] == [b"a", b"b"]
    assert list(client.reader("s", 0, 2)) == []


def test_a_reader_that_follows_gets_what_comes_later(door, client):
    door.call(door.streams.declare, "s")
    fill(door, "s", [chunk(b"a")])
    records = iter(client.reader("s", 0, 0, follow=True))
    assert next(records).value == b"a"
    eventually(lambda: door.streams.watchers == 1, "a long poll")
    fill(door, "s", [chunk(b"b")])
    assert next(records).value == b"b"


def test_a_reader_goes_on_where_it_was_when_its_connection_is_lost(door, client):
    door.call(door.streams.declare, "s")
    fill(door, "s", [chunk(b"%d" % number) for number in range(6)])
    records = iter(client.reader("s", 0, 0, fetch_bytes=1))
    seen = [next(records).value, next(records).value]
    client.connection._socket.shutdown(socket.SHUT_RDWR)
    assert seen + [record.value for record in records] == [b"%d" % n for n in range(6)]


def test_a_reader_that_is_dropped_leaves_nothing_behind(door, client):
    door.call(door.streams.declare, "s")
    fill(door, "s", [chunk(b"a"), chunk(b"b")])
    records = iter(client.reader("s", 0, 0, fetch_bytes=1))
    next(records)
    records.close()
    assert client.streams() == {"s": 1}
    assert not client.connection._answers
    assert not client.connection._conversation.in_flight


def test_chunks_without_records_are_passed(door, client):
    door.call(door.streams.declare, "s")
    fill(door, "s", [chunk(b"a"), encode_empty(5, 0), chunk(b"b")])
    assert [record.offset for record in client.reader("s", 0, 0)] == [0, 6]


def test_an_offset_out_of_range_is_told_with_the_range(door, client):
    (partition,) = door.call(door.streams.declare, "s")
    fill(door, "s", [chunk(b"a", b"b")])
    partition.first_offset = 1
    with pytest.raises(OffsetOutOfRangeError) as caught:
        list(client.reader("s", 0, 0))
    assert (caught.value.first_offset, caught.value.next_offset) == (1, 2)


def test_a_damaged_chunk_is_not_read(door, client):
    (partition,) = door.call(door.streams.declare, "s")
    fill(door, "s", [chunk(b"a")])
    header, data = partition.chunks[0]
    partition.chunks[0] = (header, data[:-1] + b"\1")
    with pytest.raises(CorruptChunkError):
        list(client.reader("s", 0, 0))


# Arrow

ROWS = st.lists(
    st.tuples(
        st.integers(0, 2**40),
        st.none() | st.binary(max_size=8),
        st.none() | st.binary(max_size=12),
        st.binary(max_size=5),
    ),
    min_size=1,
    max_size=20,
)


@given(ROWS, st.booleans(), st.data())
@settings(max_examples=200)
def test_a_batch_has_the_records_of_its_chunk(rows, gaps, data):
    times, keys, values, properties = zip(*rows, strict=True)
    relative = [2 * place for place in range(len(rows))] if gaps else None
    made = encode_chunk(
        keys,
        values,
        properties,
        times,
        base_offset=100,
        relative=relative,
        span=2 * len(rows) if gaps else None,
    )
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start + 1, len(rows)))
    piece = Slice(Chunk(made), start, stop)
    batches = ArrowBatches("s", 3, (*COLUMNS, "properties"))
    for _ in range(2):  # what is remembered for the next batch serves it too
        batch = batches.of(piece)
        batch.validate(full=True)
        found = batch.to_pydict()
        records = piece.records()
        assert found["key"] == [record.key for record in records]
        assert found["value"] == [record.value for record in records]
        assert found["properties"] == [record.properties for record in records]
        assert found["offset"] == [record.offset for record in records]
        assert found["topic"] == ["s"] * len(records)
        assert found["partition"] == [3] * len(records)
        milliseconds = batch.column("timestamp").cast(pa.int64()).to_pylist()
        assert milliseconds == [1000 * record.timestamp_ms for record in records]


def test_arrow_batches_are_made_of_the_buffers_that_came(door, client):
    door.call(door.streams.declare, "s")
    values = [bytes([number]) * 100 for number in range(200)]
    fill(door, "s", [chunk(*values)])
    (piece,) = client.reader("s", 0, 0).slices()
    batch = ArrowBatches("s", 0).of(piece)
    blob = pa.py_buffer(piece.chunk.values.blob)
    assert batch.column("value").buffers()[2].address == blob.address
    assert blob.address % 8 == 0
    (whole,) = client.reader("s", 0, 0).arrow_batches()
    assert whole.column("value").to_pylist() == values
    (part,) = client.reader("s", 0, 10, end=20).arrow_batches()
    assert part.column("offset").to_pylist() == list(range(10, 20))


# Producing


def test_what_was_produced_is_read_with_keys_and_headers(door, client):
    door.call(door.streams.declare, "s")
    with client.producer("s") as producer:
        producer.send(b"one", key=b"k", headers={"a": 1, "b": "two"})
        producer.send(None, key=b"k")
        producer.send(b"three")
    first, second, third = client.reader("s", 0, 0)
    assert (first.key, first.value, first.headers) == (b"k", b"one", {"a": 1, "b": "two"})
    assert (second.key, second.value, second.headers) == (b"k", None, {})
    assert (third.key, third.value) == (None, b"three")
    assert first.timestamp_ms <= third.timestamp_ms
    assert (producer.confirmed, producer.next_offsets) == (3, {0: 3})


def test_a_key_has_one_partition_and_the_rest_is_spread(door, client):
    partitions = door.call(door.streams.declare, "s", 4)
    with client.producer("s", batch_bytes=1000) as producer:
        for number in range(400):
            producer.send(bytes(50), key=b"%d" % (number % 10))
        for _ in range(400):
            producer.send(bytes(50))
        producer.send(b"chosen", partition=2)
    owners = {}
    for number in range(len(partitions)):
        for record in client.reader("s", number, 0):
            if record.key is not None:
                owners.setdefault(record.key, set()).add(number)
    assert {key: {crc32(key) % 4} for key in owners} == owners
    assert all(each.next_offset > 60 for each in partitions)
    assert b"chosen" in [record.value for record in client.reader("s", 2, 0)]


@pytest.mark.parametrize(
    "record", [{"value": "text"}, {"value": b"", "key": "text"}, {"value": b"", "partition": 1}]
)
def test_a_record_that_cannot_be_is_refused_and_spoils_no_other(door, client, record):
    door.call(door.streams.declare, "s", 1)
    with client.producer("s") as producer:
        producer.send(b"a")
        with pytest.raises((TypeError, ValueError), match=r"not str|no partition 1"):
            producer.send(**record)
        producer.send(b"b")
    assert [record.value for record in client.reader("s", 0, 0)] == [b"a", b"b"]


def test_an_idempotent_producer_sends_again_what_was_not_confirmed(door, client):
    (partition,) = door.call(door.streams.declare, "s")
    with client.producer("s", batch_bytes=1) as producer:
        producer.send(b"a")
        producer.flush()
        door.call(door.streams.hold)
        producer.send(b"b")
        producer.send(b"c")
        eventually(lambda: len(door.streams.held) == 2, "both chunks")
        client.connection._socket.shutdown(socket.SHUT_RDWR)
        door.call(door.streams.release)  # both are stored; the answers are lost
    assert [record.value for record in client.reader("s", 0, 0)] == [b"a", b"b", b"c"]
    assert producer.confirmed == 3
    assert partition.next_offset == 3


def test_a_producer_without_a_number_says_that_it_does_not_know(door, client):
    door.call(door.streams.declare, "s")
    producer = Producer(client.connection, "s", 1, idempotent=False, batch_bytes=1)
    door.call(door.streams.hold)
    producer.send(b"a")
    eventually(lambda: len(door.streams.held) == 1, "the chunk")
    client.connection._socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(ConnectionLostError):
        producer.flush()
    door.call(door.streams.release)


def test_a_producer_of_the_same_name_fences_the_older(door, client):
    door.call(door.streams.declare, "s")
    older = Producer(client.connection, "s", 1, name="p")
    with client.producer("s", name="p") as newer:
        newer.send(b"newer")
    older.send(b"older")
    for _ in range(2):  # and it stays so
        with pytest.raises(RefusedError, match="PRODUCER_FENCED"):
            older.flush()
    assert [record.value for record in client.reader("s", 0, 0)] == [b"newer"]


def test_a_producer_whose_numbers_are_used_up_begins_an_epoch(door, client):
    door.call(door.streams.declare, "s")
    with client.producer("s", name="p") as producer:
        producer.send(b"a")
        producer.flush()
        producer._outbox.sequences[0] = 2**32
        producer.send(b"b")
    assert [record.value for record in client.reader("s", 0, 0)] == [b"a", b"b"]
    assert Chunk(door.streams.streams["s"][0].chunks[1][1]).header.producer == (1, 1, 0)


def test_a_record_that_fits_no_request_is_refused_at_once(door, client):
    door.call(door.streams.declare, "s")
    with client.producer("s") as producer, pytest.raises(ValueError, match="bytes"):
        producer.send(bytes(8 << 20))


# Transactions


def test_rows_of_several_writers_are_visible_at_the_commit_and_not_before(door, client):
    door.call(door.streams.declare, "s", 2)
    door.call(door.streams.declare, "t")
    transactions = client.transactions("job")
    key = transactions.key()
    parts = []
    for number in range(2):
        writer = client.staged_writer(key, "s", "t")
        writer.send("s", b"s%d" % number, partition=number)
        writer.send("t", b"t%d" % number)
        parts += writer.finish()
    failed = client.staged_writer(key, "t")
    failed.send("t", b"of an attempt that failed")
    failed.finish()
    assert client.offsets("t", "next") == {0: 0}
    offsets = wire.GroupPart("g", "", 0, (wire.Position(wire.Partition("src", 0), 9),))
    outcome = transactions.commit(key, parts, [offsets])
    assert outcome.rows == 4
    assert transactions.commit(key, parts) == outcome
    assert [record.value for record in client.reader("t", 0, 0)] == [b"t0", b"t1"]
    assert client.committed("g")[wire.Partition("src", 0)].offset == 9
    assert transactions.key().sequence == key.sequence + 1


def test_an_older_epoch_of_a_transactional_producer_cannot_commit(door, client):
    door.call(door.streams.declare, "s")
    older = client.transactions("job")
    newer = client.transactions("job")
    assert newer.epoch > older.epoch
    with pytest.raises(RefusedError, match="TRANSACTION_FENCED"):
        older.commit(older.key(), ())


def test_an_abort_drops_what_was_staged(door, client):
    door.call(door.streams.declare, "s")
    transactions = client.transactions("job")
    key = transactions.key()
    writer = transactions.writer(key, "s")
    writer.send("s", b"a")
    parts = writer.finish()
    transactions.abort(key, parts)
    with pytest.raises(RefusedError, match="TRANSACTION_ABORTED"):
        transactions.commit(key, parts)
    assert client.offsets("s", "next") == {0: 0}


# Many at once


def test_threads_with_a_connection_each_read_the_same(tmp_path):
    with Door(tmp_path) as door:
        door.call(door.streams.declare, "s")
        values = [b"%06d" % number for number in range(30_000)]
        fill(door, "s", [chunk(*values[at : at + 1000]) for at in range(0, 30_000, 1000)])
        found = []

        def read():
            with connect(door.url) as client:
                reader = client.reader("s", 0, 0, fetch_bytes=100_000)
                found.append([record.value for record in reader])

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [values] * 4
        eventually(lambda: door.streams.open_files == 0, "all files let go")
