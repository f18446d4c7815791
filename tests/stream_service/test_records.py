"""The node's streams through the stream protocol, by the blocking client and AMQP together."""

import threading
import time

import pytest

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import ABORT_MARK, Chunk, Producer, encode_chunk, encode_mark
from broker.protocol.stream_errors import OffsetOutOfRangeError
from broker.protocol.stream_wire import UNKNOWN_OFFSET, Status
from clients.stream_conversation import Fetched
from clients.stream_errors import RefusedError, StreamReplacedError
from clients.stream_questions import identities
from clients.streams import connect
from tests.support.frames import Queue
from tests.support.streams import bodies, fill, numbers, offsets, partitions, read

pytestmark = pytest.mark.leveret_only

NOBODY = 2**39  # a producer id that no broker gave to anybody yet


def chunk_of(*values, producer=None, at_ms=None):
    count = len(values)
    at_ms = int(time.time() * 1000) if at_ms is None else at_ms
    return encode_chunk([None] * count, values, [b""] * count, at_ms, producer=producer)


def append(client, stream, chunk, partition=0):
    return client.connection.ask(wire.Append(stream, partition, chunk), wire.Appended)


def values_of(client, stream, partition=0, offset=0):
    return [record.value for record in client.reader(stream, partition, offset)]


def refusal(call, *arguments):
    with pytest.raises(RefusedError) as caught:
        call(*arguments)
    return caught.value


# In and out


def test_what_the_client_writes_it_reads_and_amqp_reads_it_too(client, stream, channel):
    with client.producer(stream) as producer:
        for value in numbers(100):
            producer.send(value, headers={"n": int(value)})
    records = list(client.reader(stream, 0, 0))
    assert [record.value for record in records] == numbers(100)
    assert [record.offset for record in records] == list(range(100))
    assert records[7].headers == {"n": 7}
    got = read(channel, stream, 100)
    assert bodies(got) == numbers(100)
    assert offsets(got) == list(range(100))
    assert got[7].headers["n"] == 7


def test_a_reader_that_must_not_wait_stops_before_an_end_that_is_not_there_yet(client, stream):
    with client.producer(stream) as producer:
        for value in numbers(3):
            producer.send(value)
    reader = client.reader(stream, 0, 0, end=10, wait_ms=0)
    assert [record.value for record in reader] == numbers(3)
    assert reader.offset == 3


def test_what_amqp_publishes_the_client_reads_with_its_headers(client, stream, scene):
    fill(scene, stream, [b"body"], headers={"n": 7, "s": "text"}, content_type="text/plain")
    (record,) = client.reader(stream, 0, 0)
    assert (record.value, record.headers) == (b"body", {"n": 7, "s": "text"})


def test_records_without_headers_reach_amqp_consumers(client, stream, channel):
    with client.producer(stream) as producer:
        producer.send(b"bare")
        producer.send(None, key=b"k")
    assert bodies(read(channel, stream, 2)) == [b"bare", b""]


def test_what_amqp_publishes_the_client_reads(client, stream, scene):
    fill(scene, stream, numbers(50))
    assert values_of(client, stream) == numbers(50)
    assert values_of(client, stream, offset=45) == numbers(5, 45)


def test_keys_go_to_the_same_partition_by_either_way(client, declare, channel):
    stream = declare(partitions=4)
    with client.producer(stream) as producer:
        for number in range(40):
            producer.send(b"%d" % number, key=b"key-%d" % number)
    by_client = {
        record.key: number for number in range(4) for record in client.reader(stream, number, 0)
    }
    assert len(by_client) == 40
    got = read(channel, stream, 40)
    by_amqp = dict(zip((b"key-" + body for body in bodies(got)), partitions(got), strict=True))
    assert by_amqp == by_client


def test_arrow_batches_hold_all_records(client, stream):
    pytest.importorskip("pyarrow")
    with client.producer(stream, batch_bytes=1000) as producer:
        for value in numbers(500):
            producer.send(value, key=b"k")
    batches = list(client.reader(stream, 0, 0).arrow_batches())
    assert len(batches) > 1
    values = [value for batch in batches for value in batch.column("value").to_pylist()]
    assert values == numbers(500)


def test_a_reader_that_follows_is_woken_by_each_publish(broker, client, stream):
    got = []

    def follow():
        with connect(broker.amqp_url()) as other:
            for record in other.reader(stream, 0, 0, follow=True):
                got.append(record.value)
                seen.set()
                if record.value == b"last":
                    return

    seen = threading.Event()
    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    for value in (b"first", b"second", b"last"):
        seen.clear()
        append(client, stream, chunk_of(value))
        assert seen.wait(30)
    reader.join(30)
    assert got == [b"first", b"second", b"last"]


def test_a_long_poll_ends_when_the_stream_is_deleted(broker, client, stream, channel):
    poll = client.connection.send(wire.Fetch(stream, 0, 0, 10, 1000, 1, 60_000))
    assert client.connection.ask(wire.Metadata((stream,)), wire.MetadataAnswer)
    channel.rpc(Queue.Delete(queue=stream))
    with pytest.raises(RefusedError) as caught:
        client.connection.receive(poll, Fetched)
    assert caught.value.status == Status.STREAM_NOT_FOUND


def test_a_fetch_ends_with_the_chunk_that_covers_its_end(client, stream):
    for number in range(5):
        append(client, stream, chunk_of(b"%d" % (2 * number), b"%d" % (2 * number + 1)))
    fetched = client.fetch(stream, 0, 3, 5)
    assert fetched.head.resume_offset == 6
    assert (fetched.head.first_offset, fetched.head.next_offset) == (0, 10)
    assert Chunk(fetched.data).header.base_offset == 2
    nothing = client.fetch(stream, 0, 10)
    assert (len(nothing.data), nothing.head.resume_offset) == (0, 10)


def test_an_offset_out_of_range_names_what_there_is(client, stream):
    append(client, stream, chunk_of(b"a", b"b"))
    with pytest.raises(OffsetOutOfRangeError) as caught:
        client.fetch(stream, 0, 3)
    assert (caught.value.first_offset, caught.value.next_offset) == (0, 2)


# Metadata and places


def test_metadata_tells_all_partitions_of_several_streams_in_one_call(client, declare):
    one, two = declare(partitions=3), declare()
    append(client, one, chunk_of(b"a", b"b"), partition=1)
    found = client.metadata(one, two)
    assert [part.number for part in found[one]] == [0, 1, 2]
    assert [(part.first_offset, part.next_offset) for part in found[one]] == [
        (0, 0),
        (0, 2),
        (0, 0),
    ]
    assert [part.stable_offset for part in found[one]] == [0, 2, 0]
    assert [part.size_bytes > 0 for part in found[one]] == [False, True, False]
    assert len(found[two]) == 1
    listed = client.streams()
    assert (listed[one], listed[two]) == (3, 1)


def test_each_stream_of_a_metadata_request_has_its_own_status(client, stream, channel, scene):
    queue = scene.queue(channel)
    request = wire.Metadata((queue, stream, "no such stream"))
    found = client.connection.ask(request, wire.MetadataAnswer).streams
    statuses = [(each.stream, each.status, len(each.partitions)) for each in found]
    assert statuses == [
        (queue, Status.STREAM_NOT_FOUND, 0),
        (stream, Status.OK, 1),
        ("no such stream", Status.STREAM_NOT_FOUND, 0),
    ]


def test_a_stream_that_is_declared_again_has_another_uid(client, stream, channel):
    def uid() -> str:
        return client.connection.run(identities([stream, "no such stream"]))[stream]

    first = uid()
    assert uid() == first
    channel.rpc(Queue.Delete(queue=stream))
    assert client.connection.run(identities([stream])) == {}
    channel.declare_queue(stream, durable=True, arguments={"x-queue-type": "stream"})
    assert uid() not in ("", first)


def declare_again(channel, stream):
    channel.rpc(Queue.Delete(queue=stream))
    channel.declare_queue(stream, durable=True, arguments={"x-queue-type": "stream"})


def test_a_reader_does_not_go_on_in_a_stream_that_is_declared_again(client, stream, channel):
    append(client, stream, chunk_of(*numbers(5)))
    reader = client.reader(stream, 0, 0)
    assert [record.value for record in reader] == numbers(5)
    declare_again(channel, stream)
    append(client, stream, chunk_of(*numbers(20)))
    with pytest.raises(StreamReplacedError, match="was deleted and declared again"):
        next(iter(reader))
    assert len(list(client.reader(stream, 0, 5))) == 15


def test_a_member_of_a_group_does_not_go_on_in_a_stream_that_is_declared_again(
    client, stream, channel
):
    append(client, stream, chunk_of(*numbers(5)))
    consumer = client.group(f"group of {stream}", [stream])
    try:
        got = []
        while len(got) < 5:
            polled = consumer.poll()
            got += [] if polled is None else [record.value for record in polled.records()]
        declare_again(channel, stream)
        append(client, stream, chunk_of(*numbers(20)))
        with pytest.raises(RefusedError, match=r"STREAM_REPLACED|STREAM_NOT_FOUND"):
            next(filter(None, iter(consumer.poll, b"never")))
    finally:
        consumer.close()


def test_a_group_has_no_offsets_in_a_stream_that_is_declared_again(client, stream, channel):
    group, position = f"group of {stream}", wire.Position(wire.Partition(stream, 0), 5)
    client.connection.ask(wire.ResetOffsets(group, (position,)), wire.Empty)
    assert [each.offset for each in client.committed(group).values()] == [5]
    channel.rpc(Queue.Delete(queue=stream))
    channel.declare_queue(stream, durable=True, arguments={"x-queue-type": "stream"})
    assert client.committed(group) == {}


def test_offsets_are_found_by_place_and_by_time(client, declare):
    stream = declare(partitions=2)
    empty = {0: 0, 1: 0}
    assert client.offsets(stream, "last") == client.offsets(stream, 1) == empty
    now = int(time.time() * 1000)
    for age_ms in (3000, 2000, 1000):
        append(client, stream, chunk_of(b"a", b"b", at_ms=now - age_ms), partition=1)
    assert client.offsets(stream, "first") == {0: 0, 1: 0}
    assert client.offsets(stream, "last") == {0: 0, 1: 5}
    assert client.offsets(stream, "next") == {0: 0, 1: 6}
    assert client.offsets(stream, now - 2000) == {0: 0, 1: 2}
    assert client.offsets(stream, now - 1999, [1]) == {1: 4}
    assert client.offsets(stream, now) == {0: 0, 1: 6}


@pytest.mark.parametrize(
    "request_of",
    [
        lambda stream: wire.Fetch(stream, 7, 0, 1, 1, 0, 0),
        lambda stream: wire.OffsetFor(stream, wire.FIRST, 0, (0, 7)),
        lambda stream: wire.Append(stream, 7, chunk_of(b"a")),
    ],
)
def test_a_partition_or_stream_that_is_not_there_is_refused(client, stream, request_of):
    for name, status in (
        (stream, Status.PARTITION_NOT_FOUND),
        ("no such stream", Status.STREAM_NOT_FOUND),
    ):
        error = refusal(client.connection.ask, request_of(name), wire.Appended)
        assert error.status == status


def test_a_place_that_is_none_is_refused(client, stream):
    request = wire.OffsetFor(stream, 9, 0, ())
    assert refusal(client.connection.ask, request, wire.OffsetsFound).status == Status.MALFORMED


# Chunks and producers


@pytest.mark.parametrize(
    "chunk",
    [
        b"",
        chunk_of(b"a")[:-1],
        chunk_of(b"a") + b"x",
        chunk_of(b"abc").replace(b"abc", b"abd"),
        encode_mark(ABORT_MARK, Producer(1, 0, 0), 0),
        encode_chunk([], [], [], 0, producer=Producer(1, 0, 0)),
    ],
    ids=["empty", "cut", "longer", "flipped", "a mark", "no records"],
)
def test_a_badly_made_chunk_is_refused_and_the_connection_goes_on(client, stream, chunk):
    assert refusal(append, client, stream, chunk).status == Status.CORRUPT_CHUNK
    assert append(client, stream, chunk_of(b"good")).offset == 0


def test_a_chunk_sent_twice_is_stored_once_and_has_the_same_offset(client, stream):
    append(client, stream, chunk_of(b"before"))
    chunk = chunk_of(b"a", b"b", producer=Producer(NOBODY, 0, 0))
    assert append(client, stream, chunk) == wire.Appended(duplicate=False, offset=1)
    assert append(client, stream, chunk) == wire.Appended(duplicate=True, offset=1)
    for first in range(2, 20, 2):
        append(client, stream, chunk_of(b"c", b"d", producer=Producer(NOBODY, 0, first)))
    assert append(client, stream, chunk) == wire.Appended(duplicate=True, offset=UNKNOWN_OFFSET)
    assert len(values_of(client, stream)) == 21


def test_a_gap_in_the_sequence_is_refused_with_the_one_expected(client, stream):
    append(client, stream, chunk_of(b"a", b"b", producer=Producer(NOBODY, 0, 0)))
    error = refusal(append, client, stream, chunk_of(b"d", producer=Producer(NOBODY, 0, 3)))
    assert (error.status, error.numbers) == (Status.OUT_OF_ORDER, (2,))
    assert values_of(client, stream) == [b"a", b"b"]


def test_a_producer_of_the_same_name_fences_the_older_one(broker, client, stream):
    def two_of_one_name():
        with connect(broker.amqp_url()) as other, client.producer(stream, name="worker") as old:
            old.send(b"old")
            old.flush()
            with other.producer(stream, name="worker") as new:
                new.send(b"new")
            old.send(b"zombie")

    assert refusal(two_of_one_name).status == Status.PRODUCER_FENCED
    assert values_of(client, stream) == [b"old", b"new"]


def allocate(client, name):
    return client.connection.ask(wire.AllocateProducer(name), wire.ProducerAllocated)


def test_names_of_producers_keep_their_number_and_get_a_new_epoch(client):
    first, again = allocate(client, "one"), allocate(client, "one")
    assert again == first._replace(epoch=first.epoch + 1)
    assert allocate(client, "two").producer_id != first.producer_id
    nameless = [allocate(client, "").producer_id for _ in range(3)]
    assert len({first.producer_id, *nameless}) == 4


def test_a_producer_name_that_is_too_long_is_refused(client):
    assert refusal(allocate, client, "x" * 256).status == Status.MALFORMED


def test_users_do_not_share_names_of_producers(start_broker):
    broker = start_broker(
        config="""
        [[users]]
        name = "guest"
        password = "guest"
        permissions = [{ vhost = "/", configure = ".*", write = ".*", read = ".*" }]
        [[users]]
        name = "other"
        password = "other"
        permissions = [{ vhost = "/", configure = ".*", write = ".*", read = ".*" }]
        """
    )
    urls = [broker.amqp_url(), broker.amqp_url(user="other", password="other")]
    given = []
    for url in urls:
        with connect(url) as client:
            given.append(allocate(client, "same"))
    assert given[0].producer_id != given[1].producer_id
    assert given[0].epoch == given[1].epoch == 0
