"""The AMQP clients, knowing all nodes of a cluster, while it loses one they are connected to."""

import pytest
import trio

from clients.amqp_errors import AMQPClientError
from clients.backoff import Backoff
from clients.blocking import connect as connect_blocking
from clients.trio_channel import Channel
from clients.trio_client import connect
from tests.cluster.nodes import Cluster

pytestmark = [pytest.mark.leveret_only, pytest.mark.timeout(400)]

QUICK = Backoff(first_s=0.02, most_s=0.2)
COUNT = 3000


def url_of(cluster: Cluster) -> str:
    nodes = ",".join(f"127.0.0.1:{node.ports['amqp']}" for node in cluster.nodes.values())
    return f"amqp://guest:guest@{nodes}/"


async def lose_leader(cluster: Cluster, queue: str) -> str:
    while (name := await trio.to_thread.run_sync(cluster.leader_of, queue)) is None:
        pass
    cluster.nodes[name].kill()
    return name


async def test_publishers_and_consumers_go_on_though_the_leader_is_killed(cluster: Cluster) -> None:
    seen: set[int] = set()
    begun = trio.Event()

    async def consume(channel: Channel) -> None:
        async with channel.consume("q", prefetch=50) as messages:
            while len(seen) < COUNT:
                message = await anext(messages)
                seen.add(int(message.body))
                message.ack()
                if len(seen) > COUNT // 10:
                    begun.set()

    async def publish(channel: Channel) -> None:
        async with channel.publishing(window=100) as out:
            for number in range(COUNT):
                await out.send(b"%d" % number, routing_key="q")

    async with (
        connect(url_of(cluster), reconnect=QUICK, resend=True) as connection,
        connection.channel() as outlet,
        connection.channel() as inlet,
    ):
        await outlet.declare_queue("q", arguments={"x-queue-type": "quorum"})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume, inlet)
            nursery.start_soon(publish, outlet)
            await begun.wait()
            lost = await lose_leader(cluster, "q")
    assert seen == set(range(COUNT))
    await trio.to_thread.run_sync(cluster.nodes[lost].launch)
    await trio.to_thread.run_sync(cluster.await_healthy)
    assert not cluster.tracebacks()


def test_the_blocking_client_finds_a_node_that_lives(cluster: Cluster) -> None:
    url = url_of(cluster)
    with connect_blocking(url) as connection, connection.channel() as channel:
        channel.declare_queue("q", arguments={"x-queue-type": "quorum"})
        channel.publish(b"kept", routing_key="q")
    cluster.nodes["a"].kill()
    found = None
    while found is None:  # until the others have a leader
        try:
            with connect_blocking(url) as connection, connection.channel() as channel:
                found = channel.get("q")
        except AMQPClientError:
            continue
    assert found.body == b"kept"
    assert not cluster.tracebacks()
