"""The Trio client of streams, knowing all nodes of a cluster, while it loses the leader."""

import pytest
import trio

from clients.backoff import Backoff
from clients.trio_streams import Streams, connect_streams
from tests.cluster.nodes import Cluster
from tests.support.wire import WireConnection

pytestmark = [pytest.mark.leveret_only, pytest.mark.timeout(400)]

QUICK = Backoff(first_s=0.02, most_s=0.2)
PARTITIONS = 2
COUNT = 1500  # in each partition


def url_of(cluster: Cluster) -> str:
    nodes = ",".join(f"127.0.0.1:{node.ports['amqp']}" for node in cluster.nodes.values())
    return f"amqp://guest:guest@{nodes}/"


def declare(cluster: Cluster, *streams: str) -> None:
    with WireConnection.connect(cluster.nodes["a"].url) as connection:
        channel = connection.open_channel()
        arguments = {"x-queue-type": "stream", "x-partitions": PARTITIONS}
        for stream in streams:
            channel.declare_queue(stream, durable=True, arguments=arguments)


async def lose_leader(cluster: Cluster, stream: str) -> str:
    """Kill the node that leads it, when one does."""
    while (name := await trio.to_thread.run_sync(cluster.leader_of, stream)) is None:
        pass
    cluster.nodes[name].kill()
    return name


async def values(streams: Streams, stream: str, partition: int) -> list[bytes | None]:
    """Of this node's replica, which may still have to get the last of them."""
    return [record.value async for record in streams.reader(stream, partition, end=COUNT)]


async def test_exactly_once_from_producer_to_output_though_the_leader_is_killed(
    cluster: Cluster,
) -> None:
    declare(cluster, "source", "target")
    stop, some_done = trio.Event(), trio.Event()
    seen = 0

    async def produce(streams: Streams) -> None:
        async with streams.producer("source", batch_bytes=200) as producer:
            for number in range(COUNT):
                for partition in range(PARTITIONS):
                    await producer.send(b"%d" % number, partition=partition)

    async def copy(batch, out) -> None:
        nonlocal seen
        for record in batch.records():
            await out.send("target", record.value, partition=batch.partition.number)
            seen += 1
        if seen > COUNT // 10:
            some_done.set()

    async def process(streams: Streams) -> None:
        await streams.process(
            "g", ["source"], ["target"], copy, instance="i", stop=stop, fetch_bytes=5000
        )

    async with connect_streams(url_of(cluster), reconnect=QUICK) as streams:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce, streams)
            nursery.start_soon(process, streams)
            await some_done.wait()
            lost = await lose_leader(cluster, "target")
            while True:
                done = await streams.committed("g")
                if [each.offset for each in done.values()] == [COUNT] * PARTITIONS:
                    break
            stop.set()
        await trio.to_thread.run_sync(cluster.nodes[lost].launch)
        await trio.to_thread.run_sync(cluster.await_healthy)
        for stream in ("source", "target"):
            for partition in range(PARTITIONS):
                expected = [b"%d" % number for number in range(COUNT)]
                assert await values(streams, stream, partition) == expected
            ends = await streams.offsets(stream, "next")
            assert ends == dict.fromkeys(range(PARTITIONS), COUNT)
    assert not cluster.tracebacks()
