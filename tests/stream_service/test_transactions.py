"""Transactions through the stream protocol: visible whole or not at all, once, with offsets."""

import pytest

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import Producer, encode_chunk
from broker.protocol.stream_wire import Status
from clients.stream_errors import RefusedError
from tests.support.frames import Queue
from tests.support.streams import bodies, numbers, read
from tests.support.waiting import eventually

pytestmark = pytest.mark.leveret_only


def refusal(call, *arguments):
    with pytest.raises(RefusedError) as caught:
        call(*arguments)
    return caught.value


def write(writer, stream, values, partitions=1):
    for place, value in enumerate(values):
        writer.send(stream, value, partition=place % partitions)
    return writer.finish()


def values_of(client, stream, partitions=1):
    return [
        record.value for number in range(partitions) for record in client.reader(stream, number, 0)
    ]


def stable(client, stream):
    return [each.stable_offset for each in client.metadata(stream)[stream]]


@pytest.fixture
def producer(client, stream):
    return client.transactions(f"producer of {stream}")


# All or nothing


def test_rows_are_invisible_until_they_are_committed(client, stream, producer):
    key = producer.key()
    parts = write(producer.writer(key, stream), stream, numbers(50))
    assert values_of(client, stream) == []
    assert client.metadata(stream)[stream][0].next_offset == 0
    committed = producer.commit(key, parts)
    assert committed.rows == 50
    assert sum(stable(client, stream)) == 50
    assert values_of(client, stream) == numbers(50)


def test_rows_in_many_partitions_and_streams_are_committed_together(client, declare):
    streams = [declare(partitions=3), declare(partitions=2)]
    producer = client.transactions(streams[0])
    key = producer.key()
    writer = producer.writer(key, *streams)
    for stream, partitions in zip(streams, (3, 2), strict=True):
        for place, value in enumerate(numbers(30)):
            writer.send(stream, value, partition=place % partitions)
    committed = producer.commit(key, writer.finish())
    assert committed.rows == 60
    for stream, partitions in zip(streams, (3, 2), strict=True):
        assert sum(stable(client, stream)) == 30
        assert sorted(values_of(client, stream, partitions)) == sorted(numbers(30))


def test_an_abort_leaves_nothing(client, stream, producer):
    key = producer.key()
    parts = write(producer.writer(key, stream), stream, numbers(10))
    producer.abort(key, parts)
    again = write(producer.writer(key, stream), stream, [b"better"])
    producer.commit(key, again)
    assert sum(stable(client, stream)) == 1
    assert values_of(client, stream) == [b"better"]


def test_what_a_failed_attempt_left_is_not_committed(client, stream, producer):
    key = producer.key()
    write(producer.writer(key, stream), stream, [b"lost"])
    parts = write(producer.writer(key, stream), stream, [b"kept"])
    producer.commit(key, parts)
    assert sum(stable(client, stream)) == 1
    assert values_of(client, stream) == [b"kept"]


def test_a_commit_of_rows_that_are_not_there_is_aborted(client, stream, producer):
    key = producer.key()
    [part] = write(producer.writer(key, stream), stream, numbers(3))
    [rows] = part.writers
    wrong = part._replace(writers=(rows._replace(rows=4),))
    error = refusal(producer.commit, key, [wrong])
    assert error.status == Status.TRANSACTION_ABORTED
    assert values_of(client, stream) == []


def test_plain_records_and_staged_ones_are_in_the_order_of_their_commits(client, stream, producer):
    key = producer.key()
    parts = write(producer.writer(key, stream), stream, [b"second"])
    with client.producer(stream) as plain:
        plain.send(b"first")
    producer.commit(key, parts)
    assert sum(stable(client, stream)) == 2
    with client.producer(stream) as plain:
        plain.send(b"third")
    assert values_of(client, stream) == [b"first", b"second", b"third"]


def test_amqp_consumers_get_rows_when_they_are_committed(client, stream, producer, channel):
    key = producer.key()
    parts = write(producer.writer(key, stream), stream, numbers(5))
    producer.commit(key, parts)
    assert bodies(read(channel, stream, 5)) == numbers(5)


def test_a_transaction_of_a_deleted_stream_is_aborted_and_others_go_on(
    client, declare, stream, producer, channel
):
    other = declare()
    key = producer.key()
    writer = producer.writer(key, stream, other)
    writer.send(other, b"gone")
    parts = write(writer, stream, numbers(3))
    channel.rpc(Queue.Delete(queue=other))
    assert refusal(producer.commit, key, parts).status == Status.TRANSACTION_ABORTED
    parts = write(producer.writer(key, stream), stream, [b"again"])
    producer.commit(key, parts)
    assert sum(stable(client, stream)) == 1
    assert values_of(client, stream) == [b"again"]


# Once


def test_a_commit_that_is_asked_again_is_answered_the_same(client, stream, producer):
    key = producer.key()
    parts = write(producer.writer(key, stream), stream, numbers(5))
    first = producer.commit(key, parts)
    assert producer.commit(key, parts) == first
    other = client.transactions(producer.name)
    assert other.last == key.sequence
    assert other.commit(wire.Key(other.name, other.epoch, key.sequence), parts) == first
    assert sum(stable(client, stream)) == 5
    assert values_of(client, stream) == numbers(5)


def test_an_abort_after_the_commit_changes_nothing(client, stream, producer):
    key = producer.key()
    parts = write(producer.writer(key, stream), stream, numbers(5))
    first = producer.commit(key, parts)
    producer.abort(key, parts)
    assert producer.commit(key, parts) == first
    assert sum(stable(client, stream)) == 5


def test_a_chunk_that_is_staged_again_is_staged_once(client, stream, producer):
    key = producer.key()
    chunk = encode_chunk([None], [b"one"], [b""], 1000)
    request = wire.Stage(key, stream, 0, "writer", 0, chunk)
    assert client.connection.ask(request, wire.Staged).duplicate is False
    assert client.connection.ask(request, wire.Staged).duplicate is True
    part = wire.PartitionPart(wire.Partition(stream, 0), (wire.WriterRows("writer", 1),))
    assert producer.commit(key, [part]).rows == 1


def test_a_producer_that_starts_anew_fences_its_former_self(client, stream, producer):
    key = producer.key()
    parts = write(producer.writer(key, stream), stream, numbers(5))
    newer = client.transactions(producer.name)
    assert newer.epoch > producer.epoch
    assert refusal(producer.commit, key, parts).status == Status.TRANSACTION_FENCED
    assert refusal(producer.abort, key, parts).status == Status.TRANSACTION_FENCED
    assert values_of(client, stream) == []


# What is refused


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"stream": "nowhere"}, Status.STREAM_NOT_FOUND),
        ({"partition": 7}, Status.PARTITION_NOT_FOUND),
        ({"number": 1}, Status.STAGED_OUT_OF_ORDER),
        ({"writer": ""}, Status.TRANSACTION_MALFORMED),
        ({"writer": "w" * 256}, Status.TRANSACTION_MALFORMED),
        ({"chunk": b"no chunk"}, Status.CORRUPT_CHUNK),
        (
            {"chunk": encode_chunk([None], [b""], [b""], 1, producer=Producer(1, 1, 1))},
            Status.CORRUPT_CHUNK,
        ),
        ({"stream": "__consumer_offsets"}, Status.ACCESS_REFUSED),
    ],
    ids=str,
)
def test_what_cannot_be_staged_is_refused(client, stream, producer, change, status):
    chunk = encode_chunk([None], [b"one"], [b""], 1000)
    request = wire.Stage(producer.key(), stream, 0, "writer", 0, chunk)._replace(**change)
    assert refusal(client.connection.ask, request, wire.Staged).status == status


def test_more_than_a_partition_may_hold_is_refused_until_something_is_decided(
    client, stream, producer
):
    key = producer.key()
    chunk = encode_chunk([None], [bytes(8_000_000)], [b""], 1000)

    def stage(number):
        request = wire.Stage(key, stream, 0, "writer", number, chunk)
        return client.connection.ask(request, wire.Staged)

    for number in range(8):
        stage(number)
    assert refusal(stage, 8).status == Status.STAGING_FULL
    rows = wire.WriterRows("writer", 8)
    producer.abort(key, [wire.PartitionPart(wire.Partition(stream, 0), (rows,))])
    key = producer.key(5)
    eventually(lambda: _has_room(stage), "room for more")


def test_a_stage_without_a_chunk_adds_nothing(client, stream, producer):
    key = producer.key()
    parts = write(producer.writer(key, stream), stream, numbers(3))
    for _ in range(2):
        renewal = wire.Stage(key, stream, 0, "whoever is at work", 0, b"")
        assert client.connection.ask(renewal, wire.Staged) == wire.Staged(duplicate=False)
    assert producer.commit(key, parts).rows == 3


def test_an_attempt_at_the_whole_takes_the_place_that_the_one_before_took(client, stream, producer):
    """A driver that is killed again and again must not fill the broker."""
    key = producer.key()
    chunk = encode_chunk([None], [bytes(8_000_000)], [b""], 1000)
    for attempt in range(2):
        writer = f"attempt {attempt}/writer"
        for number in range(8):
            request = wire.Stage(key, stream, 0, writer, number, chunk)
            client.connection.ask(request, wire.Staged)
    partition = wire.Partition(stream, 0)

    def commit(attempt):
        rows = wire.WriterRows(f"attempt {attempt}/writer", 8)
        return producer.commit(key, [wire.PartitionPart(partition, (rows,))])

    assert refusal(commit, 0).status == Status.TRANSACTION_ABORTED
    assert commit(1).rows == 8


def _has_room(stage):
    try:
        stage(0)
    except RefusedError:
        return False
    return True


# Offsets


def committed_of(client, group):
    found = client.connection.ask(wire.FetchOffsets(group, ()), wire.CommittedOffsets)
    return {each.partition.number: each.offset for each in found.offsets}


def test_offsets_are_committed_with_the_rows(client, stream, declare, producer):
    source, group = declare(partitions=2), f"group of {stream}"
    key = producer.key()
    parts = write(producer.writer(key, stream), stream, numbers(3))
    positions = (wire.Position(wire.Partition(source, 1), 7),)
    producer.commit(key, parts, [wire.GroupPart(group, "", 0, positions)])
    assert committed_of(client, group) == {1: 7}
    assert sum(stable(client, stream)) == 3


def test_a_member_that_was_given_up_cannot_commit_its_offsets_nor_the_rows(
    client, stream, declare, producer
):
    source, group = declare(), f"group of {stream}"

    def join(instance):
        request = wire.Join(group, "m", "", instance, (source,))
        return client.connection.ask(request, wire.Assignment)

    zombie, present = join("a"), join("a")
    positions = (wire.Position(wire.Partition(source, 0), 9),)
    key = producer.key()
    parts = write(producer.writer(key, stream), stream, numbers(3))
    part = wire.GroupPart(group, zombie.member, zombie.generation, positions)
    assert refusal(producer.commit, key, parts, [part]).status == Status.TRANSACTION_ABORTED
    assert committed_of(client, group) == {}
    parts = write(producer.writer(key, stream), stream, [b"present"])
    part = wire.GroupPart(group, present.member, present.generation, positions)
    producer.commit(key, parts, [part])
    assert sum(stable(client, stream)) == 1
    assert committed_of(client, group) == {0: 9}
    assert values_of(client, stream) == [b"present"]
