"""Consumers that are slow, stuck or deaf: little is held for them, and nobody else notices."""

from random import Random

import trio

from flow_control.outbox import BRIM_BYTES, HIGH_BYTES
from tests.connection.fakes import Place, ready
from tests.support.frames import Basic, Connection

BODY = bytes(50_000)
DEAL_BYTES = 1 << 20  # what a queue hands out in one go


def bodies(count, first=0):
    return [b"%d" % number for number in range(first, first + count)]


async def test_a_deaf_consumer_is_sent_to_until_its_outbox_is_full_and_others_get_the_rest(nursery):
    place = Place(nursery)
    deaf, good, publisher = [await place.client() for _ in range(3)]
    publisher.declare("q")
    await publisher.rest()
    deaf.transport.deaf = True
    deaf.consume("q", no_ack=True)
    good.consume("q", no_ack=True)
    await good.rest()
    got = 0
    for _ in range(40):
        publisher.publish("q", *[BODY] * 10)
        await publisher.rest()
        got += len(good.delivered())
    assert ready(place.node, "q") == 0
    stuck = deaf.transport.outbox.size
    assert HIGH_BYTES < stuck < HIGH_BYTES + DEAL_BYTES
    assert got > 350
    deaf.transport.hear()
    await deaf.rest()
    assert len(deaf.delivered()) * len(BODY) <= stuck


async def test_a_deaf_consumer_alone_leaves_messages_in_the_queue_and_gets_them_when_it_reads(
    nursery,
):
    place = Place(nursery)
    client, publisher = await place.client(), await place.client()
    client.declare("q")
    client.consume("q", no_ack=True)
    await client.rest()
    client.received()
    client.transport.deaf = True
    expected = [b"%06d" % number + BODY for number in range(200)]
    publisher.publish("q", *expected)
    await publisher.rest()
    assert client.transport.outbox.size < HIGH_BYTES + DEAL_BYTES
    assert ready(place.node, "q") > 150
    client.transport.hear()
    await client.rest()
    assert [body for _, body in client.delivered()] == expected
    assert ready(place.node, "q") == 0


async def test_a_slow_consumer_never_holds_more_than_its_window(nursery):
    place = Place(nursery)
    client, publisher = await place.client(), await place.client()
    client.declare("q")
    client.consume("q", prefetch=7)
    random = Random(1)
    held, got, sent = [], [], 0
    for _ in range(200):
        fresh = bodies(random.randint(0, 2), sent)
        sent += len(fresh)
        publisher.publish("q", *fresh)
        await publisher.rest()
        held += client.delivered()
        assert len(held) <= 7
        if held and random.random() < 0.5:
            tag, body = held.pop(random.randrange(len(held)))
            if random.random() < 0.2:
                client.send(Basic.Nack(delivery_tag=tag, requeue=True))
            else:
                client.ack(tag)
                got.append(int(body))
        await client.rest()
    assert len(got) == len(set(got)) > 50
    assert ready(place.node, "q") > 50


async def test_a_window_for_the_channel_changes_live_both_ways(nursery):
    place = Place(nursery)
    client = await place.client()
    client.declare("q")
    client.publish("q", *bodies(20))
    client.send(Basic.Qos(prefetch_count=3, global_=True))
    client.consume("q", "one")
    client.consume("q", "two")
    await client.rest()
    assert len(client.delivered()) == 3
    client.send(Basic.Qos(prefetch_count=8, global_=True))
    await client.rest()
    assert len(client.delivered()) == 5
    client.send(Basic.Qos(prefetch_count=2, global_=True))
    client.ack(6, multiple=True)
    await client.rest()
    assert client.delivered() == []  # two are out, and two may be
    client.ack(7)
    await client.rest()
    assert len(client.delivered()) == 1
    client.send(Basic.Qos(prefetch_count=0, global_=True))
    await client.rest()
    assert len(client.delivered()) == 11


async def test_acks_go_on_during_an_alarm_behind_publishes_on_the_same_channel(nursery):
    place = Place(nursery)
    client = await place.client()
    client.declare("q")
    client.publish("q", *bodies(10))
    client.consume("q", prefetch=2)
    await client.rest()
    assert len(client.delivered()) == 2
    place.node.raise_alarm("memory", "low on memory")
    client.publish("q", *bodies(5, first=10))
    client.ack(1)
    client.publish("q", *bodies(5, first=15))
    client.ack(2)
    client.send(Basic.Qos(prefetch_count=5))
    client.send(Basic.Consume(queue="q", consumer_tag="more"))
    client.send(Basic.Cancel(consumer_tag="more"))
    client.send(Basic.Get(queue="q"))
    await client.rest()
    names = client.names()
    assert names[0] == "Connection.Blocked"
    assert names.count("Basic.Deliver") == 2 + 5
    assert {"Basic.QosOk", "Basic.ConsumeOk", "Basic.CancelOk", "Basic.GetOk"} <= set(names)
    place.node.clear_alarm("memory")
    client.ack(0, multiple=True)
    client.consume("q", "rest", no_ack=True)
    await client.rest()
    assert [body for _, body in client.delivered()][-10:] == bodies(10, first=10)


async def test_replies_to_a_client_that_does_not_read_are_dropped_beyond_a_bound(nursery):
    place = Place(nursery)
    asking, answering = await place.client(), await place.client()
    asking.consume("amq.rabbitmq.reply-to", no_ack=True)
    asking.send(Basic.Qos(prefetch_count=1))
    await asking.rest()
    (address,) = place.node.vhosts["/"].reply_targets
    asking.transport.deaf = True
    for _ in range(500):
        answering.publish(address, BODY)
    await answering.rest()
    assert asking.transport.outbox.size < BRIM_BYTES + len(BODY) + 1000
    asking.received()
    asking.transport.hear()
    await asking.rest()
    assert len(asking.delivered()) > 300
    answering.publish(address, b"again")
    await answering.rest()
    assert [body for _, body in asking.delivered()] == [b"again"]


class BusyDisk:
    """A host whose disk has fallen behind."""

    def __init__(self):
        self.overloaded = True
        self._event = trio.Event()

    def flush(self):
        pass

    async def relief(self):
        await self._event.wait()

    def relieve(self):
        self._event.set()
        self._event = trio.Event()


async def test_a_publisher_that_outruns_the_disk_is_not_read_and_everybody_else_is(nursery):
    place = Place(nursery)
    publisher, other = await place.client(), await place.client()
    publisher.declare("q")
    publisher.publish("q", b"1")
    await publisher.rest()
    disk = place.node.host = BusyDisk()
    publisher.publish("q", b"2")
    await publisher.rest()
    publisher.publish("q", b"3")
    other.declare("other")
    await other.rest()
    assert publisher.transport.unread
    assert other.names() == ["Queue.DeclareOk"]
    disk.overloaded = False
    disk.relieve()
    await publisher.rest()
    assert ready(place.node, "q") == 3


async def test_in_an_alarm_acks_are_read_even_of_a_publisher_that_outran_the_disk(nursery):
    place = Place(nursery)
    client = await place.client()
    client.declare("q")
    client.publish("q", *bodies(5))
    client.consume("q", prefetch=1)
    await client.rest()
    assert len(client.delivered()) == 1
    place.node.host = BusyDisk()
    client.publish("q", b"one more")
    await client.rest()
    client.ack(1)
    await client.rest()
    assert client.delivered() == []
    place.node.raise_alarm("disk", "low on disk")
    await client.rest()
    assert [body for _, body in client.delivered()] == [b"1"]


async def test_many_deaf_consumers_that_vanish_at_once_leave_all_they_held_to_those_who_stay(
    nursery,
):
    """What one gives back is dealt to others, of which some are about to end as well."""
    place = Place(nursery)
    publisher = await place.client()
    publisher.declare("q")
    publisher.publish("q", *[BODY] * 400)
    await publisher.rest()
    deaf = [await place.client() for _ in range(12)]
    for client in deaf:
        client.transport.deaf = True
        client.consume("q")
    await publisher.rest()
    assert ready(place.node, "q") < 400
    for client in deaf:
        client.transport.vanish()
    await publisher.rest()
    assert ready(place.node, "q") == 400
    assert not place.node.errors.total


async def test_a_client_that_closes_its_socket_behind_its_close_is_not_logged_as_lost(
    nursery, caplog
):
    """Its close waits behind publishes that an alarm keeps back."""
    caplog.set_level("INFO", "leveret")
    place = Place(nursery)
    client = await place.client()
    client.declare("q")
    await client.rest()
    place.node.raise_alarm("memory", "low on memory")
    client.publish("q", b"kept back")
    client.send(Connection.Close(200, "bye", 0, 0), 0)
    await client.rest()
    client.transport.vanish()
    await client.rest()
    events = [record.msg for record in caplog.records if record.name == "leveret.connection"]
    assert events == ["open", "closed"]
