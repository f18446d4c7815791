"""publish_rate: what is too much for now waits; nothing is refused, and nothing else waits."""

import trio

from tests.connection.fakes import Place, ready
from tests.support.frames import Basic, Channel, Connection

BODIES = [b"%d" % number for number in range(25)]


async def test_a_second_s_worth_goes_at_once_and_the_rest_at_the_rate(nursery, autojump_clock):
    place = Place(nursery, publish_rate=10)
    client = await place.client()
    client.confirm()
    client.declare("q")
    client.publish("q", *BODIES)
    counts = []
    await trio.sleep(0.05)  # looks come well between tokens
    for _ in range(5):
        counts.append(ready(place.node, "q"))
        await trio.sleep(0.5)
    assert counts == [10, 15, 20, 25, 25]
    assert client.confirmed() == 25
    client.send(Basic.Get(queue="q"))
    await client.rest()
    assert client.received()[-1][2].value == b"0"


async def test_everything_but_publishing_goes_on(nursery, autojump_clock):
    place = Place(nursery, publish_rate=10)
    client = await place.client(channels=2)
    client.declare("q")
    client.publish("q", *BODIES)
    client.send(Basic.Qos(prefetch_count=3))
    client.send(Basic.Consume(queue="q", consumer_tag="c"))
    client.send(Basic.Ack(delivery_tag=1))
    client.declare("other")  # must not overtake what was published before it
    client.send(Channel.Flow(active=True), 2)
    await client.rest()
    names = client.names()
    assert names.count("Basic.Deliver") == 4
    assert {"Basic.QosOk", "Basic.ConsumeOk", "Channel.FlowOk"} <= set(names)
    assert names.count("Queue.DeclareOk") == 1
    await trio.sleep(2)
    assert client.names() == ["Queue.DeclareOk"]


async def test_channels_that_publish_too_much_take_turns(nursery, autojump_clock):
    place = Place(nursery, publish_rate=10)
    client = await place.client(channels=3)
    for number in (1, 2, 3):
        client.declare(f"q{number}")
    client.publish("q1", *[b""] * 10)  # the burst
    await client.rest()
    for number in (1, 2, 3):
        client.publish(f"q{number}", *[b""] * 50, channel=number)
    await trio.sleep(6)
    counts = [ready(place.node, f"q{number}") for number in (1, 2, 3)]
    assert sum(counts) in {69, 70, 71}
    assert min(counts) >= 19


async def test_a_close_waits_for_what_was_published_before_it(nursery, autojump_clock):
    place = Place(nursery, publish_rate=10)
    client = await place.client()
    client.declare("q")
    client.publish("q", *BODIES)
    client.send(Channel.Close(200, "", 0, 0))
    client.send(Connection.Close(200, "", 0, 0), 0)
    await client.rest()
    assert client.names() == ["Queue.DeclareOk"]
    await trio.sleep(1.6)
    assert client.names() == ["Channel.CloseOk", "Connection.CloseOk"]
    assert ready(place.node, "q") == 25


async def test_a_client_that_goes_away_leaves_nothing_behind(nursery, autojump_clock):
    place = Place(nursery, publish_rate=10)
    client = await place.client()
    client.declare("q")
    client.publish("q", *BODIES)
    await client.rest()
    assert place.node.kept_back.used_bytes > 0
    client.connection.lost("for this test")
    await trio.sleep(3)
    assert place.node.kept_back.used_bytes == 0
    assert ready(place.node, "q") == 10


async def test_a_mistake_among_what_waited_closes_the_channel_in_its_turn(nursery, autojump_clock):
    place = Place(nursery, publish_rate=10)
    client = await place.client()
    client.declare("q")
    client.publish("q", *BODIES[:11])
    client.send(Basic.Publish(exchange="no such exchange"))
    client.write(b"\x02\0\1\0\0\0\x0e\0\x3c\0\0\0\0\0\0\0\0\0\0\0\0\xce")
    client.publish("q", b"never")
    await client.rest()
    assert "Channel.Close" not in client.names()
    await trio.sleep(1)
    ((_, name, close),) = client.received()
    assert (name, close.reply_code) == ("Channel.Close", 404)
    assert ready(place.node, "q") == 11
    assert place.node.kept_back.used_bytes == 0


async def test_a_publisher_far_too_fast_is_not_read_any_more(nursery, autojump_clock):
    place = Place(nursery, publish_rate=10)
    client = await place.client()
    client.declare("q")
    client.publish("q", *[bytes(100_000)] * 300)
    await client.rest()
    assert len(client.transport.unread) > 10_000_000
    assert place.node.kept_back.used_bytes < 17_000_000
    await trio.sleep(30)
    assert ready(place.node, "q") == 300
    assert not client.transport.unread
