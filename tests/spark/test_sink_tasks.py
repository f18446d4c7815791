"""What tasks stage, and what becomes of it: without Spark, which only calls them."""

import itertools
import threading
import uuid
from collections.abc import Callable, Iterator

import pytest

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import encode_chunk
from clients.stream_transactions import merge_parts
from clients.streams import StreamClient, connect
from spark.errors import WriteError
from spark.sink_options import SinkOptions, stream_options
from spark.sink_renewal import Renewal
from spark.sink_task import TaskRows, drop_rows, stage_rows
from tests.spark.writing import batch, count, records, values
from tests.support.scene import Scene
from tests.support.streams import declare_stream
from tests.support.waiting import eventually
from tests.support.wire import WireChannel

Stage = Callable[..., TaskRows]


@pytest.fixture
def client(amqp_url: str) -> Iterator[StreamClient]:
    with connect(amqp_url) as client:
        yield client


@pytest.fixture
def stream(scene: Scene, channel: WireChannel) -> str:
    return declare_stream(scene, channel, partitions=3)


@pytest.fixture
def options(amqp_url: str, stream: str) -> SinkOptions:
    return stream_options({"url": amqp_url, "topic": stream})


@pytest.fixture
def key() -> wire.Key:
    return wire.Key(uuid.uuid4().hex, 0, 7)


@pytest.fixture
def stage(options: SinkOptions, key: wire.Key) -> Stage:
    """By one attempt at the batch."""
    attempt = uuid.uuid4().hex

    def stage(*some: bytes, attempt: str = attempt) -> TaskRows:
        return stage_rows(options, key, attempt, [batch(*some)])

    return stage


def commit(client: StreamClient, key: wire.Key, *tasks: TaskRows) -> wire.Committed:
    parts = merge_parts(part for task in tasks for part in task.parts)
    return client.connection.ask(wire.Commit(key, parts, ()), wire.Committed)


def test_a_batch_that_runs_again_after_its_commit_changes_nothing(
    client: StreamClient, stream: str, key: wire.Key, stage: Stage
) -> None:
    """It may well have other rows then."""
    first = commit(client, key, stage(b"1", b"2"), stage(b"3"))
    again = commit(client, key, stage(b"2", b"3", b"4", attempt="again"))
    assert again == first
    assert values(client, stream) == [1, 2, 3]


def test_only_the_attempts_that_the_driver_names_become_visible(
    client: StreamClient, stream: str, key: wire.Key, stage: Stage
) -> None:
    stage(b"1")  # a speculative attempt that lost
    commit(client, key, stage(b"1"), stage(b"2"))
    assert values(client, stream) == [1, 2]


def test_a_task_that_fails_late_takes_nothing_of_the_others_with_it(
    options: SinkOptions, client: StreamClient, stream: str, key: wire.Key, stage: Stage
) -> None:
    late, winner = stage(b"1"), stage(b"1")
    drop_rows(options.broker, late)
    commit(client, key, winner)
    drop_rows(options.broker, late)
    assert values(client, stream) == [1]


def test_rows_that_come_in_many_small_batches_are_put_together(
    options: SinkOptions, client: StreamClient, stream: str, key: wire.Key
) -> None:
    batches = [batch(b"%d" % number) for number in range(500)]
    commit(client, key, stage_rows(options, key, "attempt", batches))
    assert values(client, stream) == list(range(500))
    # Without keys, they all go to one partition: a chunk is worth more than an even spread.
    assert len({partition for partition, _ in records(client, stream)}) == 1


def test_more_than_a_broker_holds_is_refused_and_leaves_room(
    options: SinkOptions, client: StreamClient, stream: str, key: wire.Key, stage: Stage
) -> None:
    large = [batch(bytes(6_000_000)) for _ in range(45)]
    with pytest.raises(WriteError, match=r"STAGING_FULL.*let it run once with"):
        stage_rows(options, key, "attempt", large)
    eventually(lambda: _fits(stage), "room for a smaller batch")
    assert count(client, stream) == 0


def test_a_write_waits_for_rows_of_one_that_was_killed(
    options: SinkOptions, client: StreamClient, stream: str, key: wire.Key
) -> None:
    killed = wire.Key(uuid.uuid4().hex, 0, 7)
    chunk = encode_chunk([None], [bytes(7_250_000)], [b""], 1000)
    for partition, number in itertools.product(range(3), range(8)):
        request = wire.Stage(killed, stream, partition, "writer", number, chunk)
        client.connection.ask(request, wire.Staged)
    parts = tuple(
        wire.PartitionPart(wire.Partition(stream, number), (wire.WriterRows("writer", 8),))
        for number in range(3)
    )
    dropping = threading.Timer(1, drop_rows, [options.broker, TaskRows(killed, parts)])
    dropping.start()
    task = stage_rows(options, key, "attempt", [batch(bytes(6_000_000)) for _ in range(6)])
    dropping.join()
    commit(client, key, task)
    assert count(client, stream) == 6


def _fits(stage: Stage) -> bool:
    try:
        stage(bytes(6_000_000), bytes(6_000_000), bytes(6_000_000), attempt="smaller")
    except WriteError:
        return False
    return True


def test_what_is_staged_is_renewed_while_a_task_is_at_work(
    options: SinkOptions, client: StreamClient, stream: str, key: wire.Key, stage: Stage
) -> None:
    task = stage(b"1")
    partitions = [wire.Partition(stream, number) for number in range(3)]
    renewal = Renewal(options.broker, key, "writer", lambda: partitions, every_s=0.01)
    with renewal:
        eventually(lambda: renewal.renewals >= 2, "two renewals")
    commit(client, key, task)
    assert values(client, stream) == [1]
