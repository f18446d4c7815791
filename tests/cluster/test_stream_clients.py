"""Clients of the stream protocol that know all nodes of a cluster, while it loses some of them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Status
from clients.stream_errors import RefusedError
from clients.stream_group import GroupConsumer
from clients.streams import StreamClient, connect
from tests.cluster.nodes import Cluster
from tests.support.waiting import eventually
from tests.support.wire import WireConnection

pytestmark = [pytest.mark.leveret_only, pytest.mark.timeout(400)]

PATIENCE_S = 60.0  # a bound for what never comes, not a promise
OFFSETS = "__consumer_offsets"


@contextmanager
def client_of(cluster: Cluster) -> Iterator[StreamClient]:
    nodes = ",".join(f"127.0.0.1:{node.ports['amqp']}" for node in cluster.nodes.values())
    with connect(f"amqp://guest:guest@{nodes}/", timeout_s=PATIENCE_S) as client:
        yield client


def declare(cluster: Cluster, stream: str, partitions: int) -> None:
    channel = WireConnection.connect(cluster.nodes["a"].url).open_channel()
    arguments = {"x-queue-type": "stream", "x-partitions": partitions}
    channel.declare_queue(stream, durable=True, arguments=arguments)
    channel.conn.close()


def lose_leader(cluster: Cluster, stream: str) -> str:
    """Kill the node that leads it, when one does."""
    found: list[str | None] = []

    def look() -> bool:
        found[:] = [cluster.leader_of(stream)]
        return found[0] is not None

    eventually(look, f"a leader of {stream}", within_s=PATIENCE_S)
    (name,) = found
    assert name is not None
    cluster.nodes[name].kill()
    return name


def rows(client: StreamClient, stream: str, partitions: int) -> list[list[bytes | None]]:
    """All that there is, by partition."""
    ends = client.offsets(stream, "next")
    found = []
    for partition in range(partitions):
        reader = iter(client.reader(stream, partition=partition, offset=0))
        found.append([next(reader).value for _ in range(ends[partition])])
    return found


def done_with(member: GroupConsumer, count: int) -> list[bytes | None]:
    """Records that were committed: whoever lost its place with them gets them again."""
    done: list[bytes | None] = []
    while len(done) < count:
        polled = member.poll(1.0)
        if polled is not None:
            try:
                member.commit({polled.partition: polled.next_offset})
            except RefusedError as error:
                if error.status != Status.UNKNOWN_MEMBER:
                    raise
            else:
                done += [record.value for record in polled.records()]
    return done


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """In a thread of its own, which ends before this does."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert not failed, failed


def test_an_idempotent_producer_stores_all_of_it_once_though_the_leader_is_killed(
    cluster: Cluster,
) -> None:
    declare(cluster, "s", 2)
    began = threading.Event()
    count = 3000

    def produce() -> None:
        with client_of(cluster) as client, client.producer("s", batch_bytes=500) as producer:
            for number in range(count):
                producer.send(b"%d" % number, partition=number % 2)
                if number == 300:
                    began.set()

    with meanwhile(produce):
        assert began.wait(PATIENCE_S)
        lost = lose_leader(cluster, "s")
    with client_of(cluster) as client:
        found = rows(client, "s", 2)
    assert found == [[b"%d" % n for n in range(start, count, 2)] for start in (0, 1)]
    cluster.nodes[lost].launch()
    cluster.await_healthy()
    with connect(cluster.nodes[lost].url, timeout_s=PATIENCE_S) as client:
        eventually(lambda: rows(client, "s", 2) == found, "all of it at the node that was lost")
    assert not cluster.tracebacks()


def test_transactions_are_whole_or_not_at_all_though_nodes_are_killed(cluster: Cluster) -> None:
    declare(cluster, "s", 2)
    began = threading.Event()
    committed: list[int] = []
    count = 30

    def produce() -> None:
        with client_of(cluster) as client:
            producer = client.transactions("mover")
            for number in range(count):
                key = producer.key()
                writer = producer.writer(key, "s")
                for partition in range(2):
                    writer.send("s", b"%d" % number, partition=partition)
                try:
                    producer.commit(key, writer.finish())
                except RefusedError:  # aborted: the next one has another key
                    producer = client.transactions("mover")
                else:
                    committed.append(number)
                if number == 5:
                    began.set()

    with meanwhile(produce):
        assert began.wait(PATIENCE_S)
        lost = lose_leader(cluster, "s")
    with client_of(cluster) as client:
        first, second = rows(client, "s", 2)
    assert first == second, "none is half"
    assert first == sorted(set(first), key=lambda row: int(row or b"0")), "none is there twice"
    assert set(first) >= {b"%d" % number for number in committed}
    assert len(committed) > 5
    cluster.nodes[lost].launch()
    cluster.await_healthy()
    assert not cluster.tracebacks()


def test_the_offsets_of_a_group_survive_the_node_that_had_them(cluster: Cluster) -> None:
    declare(cluster, "s", 1)
    with client_of(cluster) as client:
        with client.producer("s") as producer:
            for number in range(10):
                producer.send(b"%d" % number)
        member = client.group("g", ["s"])
        got = done_with(member, 10)
        lose_leader(cluster, OFFSETS)
        with client.producer("s") as producer:
            producer.send(b"10")
        got += done_with(member, 1)
        member.close()
        assert got == [b"%d" % number for number in range(11)]
        (committed,) = client.committed("g").values()
        assert committed.offset == 11
    assert not cluster.tracebacks()


def test_an_amqp_consumer_stays_in_its_group_when_another_node_gets_that(
    cluster: Cluster,
) -> None:
    declare(cluster, "s", 2)
    with client_of(cluster) as client:
        client.reset_offsets("g", {wire.Partition("s", number): 0 for number in range(2)})
        eventually(lambda: cluster.leader_of(OFFSETS) is not None, "a leader", within_s=PATIENCE_S)
        had = cluster.leader_of(OFFSETS)
        home = next(node for name, node in cluster.nodes.items() if name != had)
        channel = WireConnection.connect(home.url).open_channel()
        channel.qos(100)
        channel.consume("s", arguments={"x-group": "g"})
        generation = client.describe_group("g").generation
        for rows_more in (range(10), range(10, 20)):
            with client.producer("s") as producer:
                for number in rows_more:
                    producer.send(b"%d" % number, partition=number % 2)
            left = {b"%d" % number for number in rows_more}
            while left:  # what was not committed comes again
                delivery = channel.delivery(timeout=PATIENCE_S)
                left.discard(delivery.body)
                channel.ack(delivery.delivery_tag)
            if rows_more.start == 0:
                assert lose_leader(cluster, OFFSETS) != home.name

        def committed() -> bool:
            with suppress(TimeoutError):  # what comes again is acked again
                while True:
                    channel.ack(channel.delivery(timeout=0.2).delivery_tag)
            return {each.offset for each in client.committed("g").values()} == {10}

        eventually(committed, "all to be committed", within_s=PATIENCE_S)
        assert client.describe_group("g").generation > generation
    assert not cluster.tracebacks()


def test_a_replica_whose_segments_are_gone_gets_them_from_the_others(cluster: Cluster) -> None:
    declare(cluster, "s", 1)
    value = bytes(100_000)
    with client_of(cluster) as client, client.producer("s") as producer:
        for _ in range(300):  # enough to be moved from the log to segments
            producer.send(value)
    segments = "streams/*/*.segment"
    node = cluster.nodes["a"]
    eventually(lambda: any(node.data_dir.glob(segments)), "segments", within_s=PATIENCE_S)
    assert node.stop() == 0
    gone = list(node.data_dir.glob(segments))
    assert gone
    for path in gone:
        path.unlink()
    node.launch()
    node.await_ready()

    def whole() -> bool:
        with connect(node.url, timeout_s=PATIENCE_S) as client:
            try:
                return [len(found) for found in rows(client, "s", 1)] == [300]
            except RefusedError:
                return False

    eventually(whole, "all records", within_s=2 * PATIENCE_S)
    assert "repaired" in node.log_text()
    cluster.await_healthy()
    assert not cluster.tracebacks()
