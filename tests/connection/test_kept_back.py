"""Publishes kept back during an alarm cost a bounded amount, of one connection and of the node."""

import trio

from broker.connection.throttle import BITE_BYTES, PASS_BYTES
from broker.node import LOOK_BYTES
from flow_control.kept_back import (
    CONNECTION_BYTES_MAX,
    CONNECTION_BYTES_MIN,
    NODE_BYTES_MAX,
    KeptBack,
    Share,
)
from tests.connection.fakes import Place, published, ready
from tests.support.frames import Basic

BODY = bytes(50_000)


def test_a_share_ends_with_its_own_limit_or_above_its_minimum_with_the_node_s():
    node = KeptBack()
    greedy, modest = Share(node), Share(node)
    greedy.charge(CONNECTION_BYTES_MAX - 1)
    assert not greedy.exhausted
    greedy.charge(1)
    assert greedy.exhausted
    modest.charge(CONNECTION_BYTES_MIN)
    assert not modest.exhausted
    Share(node).charge(NODE_BYTES_MAX - node.used_bytes)
    assert modest.exhausted
    modest.charge(-1)
    assert not modest.exhausted


def test_those_who_wait_are_told_once_when_the_node_has_room():
    node = KeptBack(100)
    told = []
    node.charge(120)
    node.call_when_eased(lambda: told.append("a"))
    forgotten = lambda: told.append("b")  # noqa: E731 - it must be the same twice
    node.call_when_eased(forgotten)
    node.forget(forgotten)
    node.charge(-20)
    assert told == []
    node.charge(-1)
    assert told == ["a"]
    node.charge(-1)
    assert told == ["a"]


async def test_a_blocked_publisher_that_goes_on_writing_costs_a_bounded_amount(nursery):
    place = Place(nursery)
    client = await place.client(channels=5)
    client.declare("q")
    await client.rest()
    place.node.raise_alarm("memory", "low on memory")
    count = 0
    while len(client.transport.unread) < 1_000_000:
        client.publish("q", *[BODY] * 20, channel=1 + count % 5)
        count += 20
        await client.rest()
        assert count < 2000, "never stopped being read"
    assert place.node.kept_back.used_bytes < CONNECTION_BYTES_MAX + len(BODY) + BITE_BYTES
    assert ready(place.node, "q") == 0
    assert client.names().count("Connection.Blocked") == 1

    place.node.clear_alarm("memory")
    await client.rest()
    assert ready(place.node, "q") == count
    assert place.node.kept_back.used_bytes == 0
    assert client.names() == ["Connection.Unblocked"]


async def test_many_blocked_publishers_together_cost_a_bounded_amount(nursery):
    place = Place(nursery)
    clients = [await place.client() for _ in range(200)]
    clients[0].declare("q")
    await clients[0].rest()
    place.node.raise_alarm("memory", "low on memory")
    for client in clients:
        client.publish("q", *[BODY] * 20)
        await client.rest()
    each = CONNECTION_BYTES_MIN + BITE_BYTES + len(BODY)
    assert place.node.kept_back.used_bytes < NODE_BYTES_MAX + len(clients) * each
    assert sum(bool(client.transport.unread) for client in clients) > 100
    place.node.clear_alarm("memory")
    await clients[0].rest()
    assert ready(place.node, "q") == 20 * len(clients)
    assert place.node.kept_back.used_bytes == 0


async def test_when_the_node_has_kept_back_enough_the_modest_still_ack(nursery):
    place = Place(nursery)
    place.node.kept_back.limit_bytes = 1_000_000
    greedy, modest = await place.client(), await place.client()
    modest.declare("q")
    modest.publish("q", b"1", b"2", b"3")
    modest.send(Basic.Qos(prefetch_count=1))
    modest.send(Basic.Consume(queue="q", consumer_tag="c"))
    await modest.rest()
    place.node.raise_alarm("memory", "low on memory")
    greedy.publish("q", *[BODY] * 100)
    await greedy.rest()
    assert greedy.transport.unread
    assert place.node.kept_back.exhausted
    modest.publish("q", b"4")
    modest.send(Basic.Ack(delivery_tag=1))
    await modest.rest()
    assert ready(place.node, "q") == 1  # the second was delivered
    greedy.connection.lost("for this test")
    await modest.rest()
    assert place.node.kept_back.used_bytes < CONNECTION_BYTES_MIN


async def test_a_client_held_up_by_others_is_read_again_when_they_are_gone(nursery):
    place = Place(nursery)
    place.node.kept_back.limit_bytes = 1_000_000
    greedy, other = await place.client(), await place.client()
    other.declare("q")
    place.node.raise_alarm("memory", "low on memory")
    greedy.publish("q", *[BODY] * 100)
    await greedy.rest()
    other.publish("q", BODY, BODY)
    await other.rest()
    assert other.transport.unread
    greedy.connection.lost("for this test")
    await other.rest()
    assert not other.transport.unread


async def test_a_large_message_is_not_read_to_its_end_during_an_alarm(nursery):
    place = Place(nursery)
    client = await place.client()
    client.declare("q")
    await client.rest()
    place.node.raise_alarm("memory", "low on memory")
    client.write(published("q", bytes(CONNECTION_BYTES_MAX * 2)))
    await client.rest()
    assert len(client.transport.unread) > CONNECTION_BYTES_MAX - 1_000_000
    place.node.clear_alarm("memory")
    await client.rest()
    assert ready(place.node, "q") == 1
    assert place.node.kept_back.used_bytes == 0


async def test_reads_are_small_only_while_publishes_have_to_wait(nursery):
    place = Place(nursery)
    client = await place.client()
    client.declare("q")
    await client.rest()
    sizes = []
    for alarm in (True, False):
        client.transport.reads.clear()
        if alarm:
            place.node.raise_alarm("memory", "low on memory")
        else:
            place.node.clear_alarm("memory")
        client.publish("q", *[BODY] * 4)
        await client.rest()
        sizes.append(max(client.transport.reads))
    assert sizes[0] == BITE_BYTES
    assert sizes[1] > 100_000


async def test_the_more_connections_there_are_the_less_is_read_of_each_at_once(nursery):
    place = Place(nursery)
    clients = [await place.client() for _ in range(200)]
    clients[0].declare("q")
    await clients[0].rest()
    clients[0].transport.reads.clear()
    clients[0].publish("q", *[BODY] * 10)
    await clients[0].rest()
    assert max(clients[0].transport.reads) == PASS_BYTES // 200
    assert ready(place.node, "q") == 10


async def test_memory_is_looked_at_when_much_has_come_even_within_one_pass_of_the_loop(nursery):
    place = Place(nursery)
    client = await place.client()
    client.declare("q")
    await client.rest()
    looks = []

    def look():
        looks.append(ready(place.node, "q"))
        if len(looks) == 2:
            place.node.raise_alarm("memory", "low on memory")

    place.node.look_at_memory = look
    client.publish("q", *[BODY] * 400)
    await client.rest()
    assert looks[0] * len(BODY) < LOOK_BYTES
    assert ready(place.node, "q") * len(BODY) < 2 * LOOK_BYTES
    place.node.clear_alarm("memory")
    await client.rest()
    assert ready(place.node, "q") == 400


async def test_a_client_that_is_not_read_does_not_die_by_its_heartbeat(nursery, autojump_clock):
    place = Place(nursery)
    client = await place.client(heartbeat_s=2)
    client.declare("q")
    await client.rest()
    place.node.raise_alarm("memory", "low on memory")
    client.publish("q", *[BODY] * 400)
    await trio.sleep(60)
    assert client.transport.unread
    assert "Heartbeat" in client.names()
    place.node.clear_alarm("memory")
    await client.rest()
    assert ready(place.node, "q") == 400
    await trio.sleep(5)  # now that it is read, its silence counts
    assert client.connection not in place.node.connections
