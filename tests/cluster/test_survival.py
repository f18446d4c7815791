"""What a queue or stream knows beyond its messages survives the loss of the node that leads it.

The same of a lone node that is killed and started again, which shows that the tests are right.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clients.stream_errors import ConnectionLostError, RefusedError
from clients.streams import StreamClient, connect
from tests.cluster.nodes import Cluster
from tests.support.frames import Basic, Confirm
from tests.support.waiting import eventually
from tests.support.wire import WireChannel, WireConnection

pytestmark = [pytest.mark.leveret_only, pytest.mark.timeout(400)]

QUORUM = {"x-queue-type": "quorum"}
STREAM = {"x-queue-type": "stream"}
PATIENCE_S = 60.0  # a bound for what never comes, not a promise


class Place:
    """Somewhere to be that can lose the leader of a queue."""

    def __init__(self, cluster: Cluster, *, lone: bool) -> None:
        self._cluster = cluster
        self._lone = lone
        self.url = next(iter(cluster.nodes.values())).url

    def channel(self) -> WireChannel:
        return WireConnection.connect(self.url).open_channel()

    def confirming(self) -> WireChannel:
        channel = self.channel()
        channel.rpc(Confirm.Select())
        return channel

    def lose_leader(self, queue: str) -> None:
        """Kill it; from now on `url` is that of a node that runs."""
        if self._lone:
            node = self._cluster.nodes["a"]
            node.kill()
            node.launch()
            node.await_ready()
            return
        found: list[str | None] = []

        def look() -> bool:
            found[:] = [self._cluster.leader_of(queue)]
            return found[0] is not None

        eventually(look, f"a leader of {queue}", within_s=PATIENCE_S)
        (lost,) = found
        assert lost is not None
        self._cluster.nodes[lost].kill()
        self.url = next(node.url for name, node in self._cluster.nodes.items() if name != lost)


@pytest.fixture(params=["lone", "cluster"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "cluster":
        yield Place(request.getfixturevalue("cluster"), lone=False)
        return
    with Cluster(tmp_path, "a", clustered=False) as cluster:
        cluster.start()
        yield Place(cluster, lone=True)
    cluster.wipe()


def publish(channel: WireChannel, queue: str, payload: bytes, **headers: object) -> None:
    channel.publish("", queue, payload, delivery_mode=2, headers=headers)
    item = channel.conn.next_item(channel.number, timeout=PATIENCE_S)
    assert isinstance(item, Basic.Ack), item


def test_a_delayed_message_comes_when_it_is_due(place: Place) -> None:
    channel = place.confirming()
    channel.declare_queue("q", durable=True, arguments=QUORUM)
    began = time.time()
    publish(channel, "q", b"later", **{"x-delay": 4000})
    place.lose_leader("q")
    channel = place.channel()
    channel.consume("q")
    assert channel.delivery(timeout=PATIENCE_S).body == b"later"
    assert time.time() - began >= 3.9


def test_a_duplicate_is_still_known_as_one(place: Place) -> None:
    channel = place.confirming()
    channel.declare_queue("q", durable=True, arguments=QUORUM)
    publish(channel, "q", b"once", **{"x-dedup-id": "1"})
    place.lose_leader("q")
    channel = place.confirming()
    publish(channel, "q", b"twice", **{"x-dedup-id": "1"})
    publish(channel, "q", b"another", **{"x-dedup-id": "2"})
    assert channel.get_all("q") == [b"once", b"another"]


def test_a_message_whose_lease_ends_comes_again(place: Place) -> None:
    channel = place.confirming()
    arguments = {**QUORUM, "x-visibility-timeout": 3000}
    channel.declare_queue("q", durable=True, arguments=arguments)
    publish(channel, "q", b"leased")
    holder = place.channel()
    holder.consume("q")
    assert holder.delivery(timeout=PATIENCE_S).body == b"leased"
    place.lose_leader("q")
    other = place.channel()
    other.consume("q")
    again = other.delivery(timeout=PATIENCE_S)
    assert (again.body, again.redelivered) == (b"leased", True)


def test_failures_are_counted_on(place: Place) -> None:
    """One more than the limit makes a dead letter, whoever led meanwhile."""
    channel = place.confirming()
    channel.declare_queue("dead", durable=True, arguments=QUORUM)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    arguments = {**QUORUM, "x-delivery-limit": 2, **dead}
    channel.declare_queue("q", durable=True, arguments=arguments)
    publish(channel, "q", b"poison")
    for _ in range(2):
        failed = channel.get("q")
        assert failed is not None
        channel.nack(failed.delivery_tag)
    publish(channel, "q", b"confirmed behind the failures")
    place.lose_leader("q")
    channel = place.channel()
    again = channel.get("q")
    assert again is not None
    assert (again.body, again.headers["x-delivery-count"]) == (b"poison", 2)
    channel.nack(again.delivery_tag)
    channel.consume("dead")
    assert channel.delivery(timeout=PATIENCE_S).body == b"poison"


@contextmanager
def stream_client(place: Place) -> Iterator[StreamClient]:
    """Once the node that it connects to has found the new leader."""
    with connect(place.url, timeout_s=PATIENCE_S) as client:
        yield client


def patiently(ask: Callable[[], object]) -> object:
    """Ask again what is refused while there is no leader."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except (RefusedError, ConnectionLostError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def test_a_group_goes_on_at_its_committed_offset(place: Place) -> None:
    channel = place.confirming()
    channel.declare_queue("s", durable=True, arguments=STREAM)
    for number in range(10):
        publish(channel, "s", b"%d" % number)
    member = place.channel()
    member.qos(100)
    member.consume("s", arguments={"x-group": "g", "x-stream-offset": "first"})
    for _ in range(6):
        member.ack(member.delivery(timeout=PATIENCE_S).delivery_tag)
    with stream_client(place) as client:
        eventually(
            lambda: [one.offset for one in client.committed("g").values()] == [6],
            "six to be committed",
            within_s=PATIENCE_S,
        )
    member.conn.abort()
    place.lose_leader("s")
    member = place.channel()
    member.qos(100)
    member.consume("s", arguments={"x-group": "g"})
    got = [member.delivery(timeout=PATIENCE_S).body for _ in range(4)]
    assert got == [b"6", b"7", b"8", b"9"]


def test_a_transaction_that_was_committed_is_there_once(place: Place) -> None:
    channel = place.confirming()
    channel.declare_queue("s", durable=True, arguments={**STREAM, "x-partitions": 2})
    with stream_client(place) as client:
        producer = client.transactions("mover")
        key = producer.key()
        writer = producer.writer(key, "s")
        for number in range(10):
            writer.send("s", b"%d" % number, partition=number % 2)
        parts = writer.finish()
        producer.commit(key, parts)
    place.lose_leader("s")

    def ends() -> list[list[bytes | None]]:
        with stream_client(place) as client:
            assert client.transactions("mover").last == key.sequence
            rows = []
            for partition in range(2):
                reader = iter(client.reader("s", partition=partition, offset=0))
                rows.append([next(reader).value for _ in range(5)])
            return rows

    assert patiently(ends) == [[b"0", b"2", b"4", b"6", b"8"], [b"1", b"3", b"5", b"7", b"9"]]
