"""Expiry, length limits, dead-lettering and priorities, as far as one queue type shows them."""

import time
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.frames import Basic, Confirm, Content, Queue
from tests.support.scene import Scene
from tests.support.waiting import eventually
from tests.support.wire import ChannelClosedError, WireChannel


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(1, count + 1)]


@dataclass(frozen=True)
class Graveyard:
    """Where dead letters go: a fanout exchange with one queue."""

    channel: WireChannel
    exchange: str
    queue: str

    def arguments(self, **more: Any) -> dict[str, Any]:
        return {"x-dead-letter-exchange": self.exchange} | more

    def wait(self) -> Content:
        eventually(lambda: self.channel.count(self.queue), "a dead letter")
        return self.channel.get(self.queue, no_ack=True)


@pytest.fixture
def graveyard(scene: Scene, channel: WireChannel) -> Graveyard:
    exchange, queue = scene.exchange(channel, "fanout"), scene.queue(channel)
    channel.bind(queue, exchange)
    return Graveyard(channel, exchange, queue)


# -- expiry


def test_messages_outlive_neither_the_queues_ttl_nor_their_own(
    scene: Scene, channel: WireChannel
) -> None:
    short = scene.queue(channel, arguments={"x-message-ttl": 50})
    long = scene.queue(channel, arguments={"x-message-ttl": 600_000})
    channel.publish("", short, b"queue's", expiration="600000")
    channel.publish("", long, b"own", expiration="50")
    channel.publish("", long, b"stays")
    eventually(lambda: channel.count(short) == 0, "the queue's TTL")
    eventually(lambda: channel.count(long) == 1, "the message's TTL")
    assert channel.get_all(long) == [b"stays"]


def test_a_ttl_of_zero_reaches_only_a_waiting_consumer(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel)
    channel.publish("", queue, b"nobody there", expiration="0")
    eventually(lambda: channel.count(queue) == 0, "expiry")
    channel.consume(queue, no_ack=True)
    channel.publish("", queue, b"at once", expiration="0")
    assert channel.delivery().body == b"at once"


def test_an_unacked_message_does_not_expire(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, arguments={"x-message-ttl": 30})
    marker = scene.queue(channel, arguments={"x-message-ttl": 60})
    channel.publish("", queue, b"held")
    held = channel.get(queue)
    channel.publish("", marker)
    eventually(lambda: channel.count(marker) == 0, "the later marker to expire")
    channel.ack(held.delivery_tag)
    channel.qos(1)


def test_an_unused_queue_expires_however_often_it_is_bound(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel, arguments={"x-expires": 100})
    with pytest.raises(ChannelClosedError, match="no queue"):
        eventually(lambda: channel.bind(queue, "amq.fanout"), "x-expires")


def test_a_consumed_queue_does_not_expire(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, arguments={"x-expires": 50})
    channel.consume(queue)
    marker = scene.queue(channel, arguments={"x-message-ttl": 150})
    channel.publish("", marker)
    eventually(lambda: channel.count(marker) == 0, "three times the expiry")
    assert channel.count(queue) == 0


# -- length


@pytest.mark.parametrize("limit", [{"x-max-length": 3}, {"x-max-length-bytes": 3}], ids=str)
def test_the_oldest_are_dropped_when_a_queue_is_full(
    scene: Scene, channel: WireChannel, limit: dict[str, int]
) -> None:
    queue = scene.queue(channel, arguments=limit)
    channel.publish_all(queue, numbered(8))
    channel.settle(queue)
    assert channel.get_all(queue) == [b"6", b"7", b"8"]


def test_unacked_messages_do_not_count_for_the_length(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, arguments={"x-max-length": 2})
    channel.publish_all(queue, numbered(2))
    channel.get(queue)
    channel.get(queue)
    channel.publish_all(queue, [b"3", b"4"])
    assert channel.get_all(queue) == [b"3", b"4"]


def test_reject_publish_keeps_the_oldest(scene: Scene, channel: WireChannel) -> None:
    arguments = {"x-max-length": 3, "x-overflow": "reject-publish"}
    queue = scene.queue(channel, arguments=arguments)
    channel.publish_all(queue, numbered(3))
    channel.settle(queue)
    channel.publish_all(queue, [b"4", b"5"])
    channel.settle(queue)
    assert channel.get_all(queue) == numbered(3)


def test_reject_publish_dlx_dead_letters_what_it_refuses(
    scene: Scene, channel: WireChannel, graveyard: Graveyard
) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish-dlx"}
    queue = scene.queue(channel, arguments=graveyard.arguments(**arguments))
    channel.rpc(Confirm.Select())
    channel.publish("", queue, b"fits")
    channel.expect(Basic.Ack)
    channel.publish("", queue, b"refused")
    channel.expect(Basic.Nack)
    dead = graveyard.wait()
    assert (dead.body, dead.headers["x-death"][0]["reason"]) == (b"refused", "maxlen")


# -- dead letters


def test_a_rejected_message_is_dead_lettered_with_its_story(
    scene: Scene, channel: WireChannel, graveyard: Graveyard
) -> None:
    queue = scene.queue(channel, arguments=graveyard.arguments())
    channel.bind(queue, "amq.direct", queue)
    before = int(time.time()) - 1
    channel.publish("amq.direct", queue, b"bad", headers={"mine": 1, "CC": ["copy"]})
    channel.settle(queue)
    channel.reject(channel.get(queue).delivery_tag, requeue=False)
    dead = graveyard.wait()
    assert (dead.exchange, dead.routing_key) == (graveyard.exchange, queue)
    assert dead.headers["mine"] == 1
    (death,) = dead.headers["x-death"]
    assert death.pop("time").timestamp() >= before
    assert death == {
        "count": 1,
        "reason": "rejected",
        "queue": queue,
        "exchange": "amq.direct",
        "routing-keys": [queue, "copy"],
    }
    first = {
        name: dead.headers[f"x-first-death-{name}"] for name in ("reason", "queue", "exchange")
    }
    assert first == {"reason": "rejected", "queue": queue, "exchange": "amq.direct"}


def test_an_expired_message_loses_its_expiration_and_remembers_it(
    scene: Scene, channel: WireChannel, graveyard: Graveyard
) -> None:
    queue = scene.queue(channel, arguments=graveyard.arguments())
    channel.publish("", queue, b"late", expiration="20")
    dead = graveyard.wait()
    (death,) = dead.headers["x-death"]
    assert (death["reason"], death["original-expiration"]) == ("expired", "20")
    assert dead.properties.expiration is None


def test_what_a_full_queue_drops_is_dead_lettered(
    scene: Scene, channel: WireChannel, graveyard: Graveyard
) -> None:
    queue = scene.queue(channel, arguments=graveyard.arguments(**{"x-max-length": 1}))
    channel.publish_all(queue, [b"old", b"new"])
    dead = graveyard.wait()
    assert (dead.body, dead.headers["x-death"][0]["reason"]) == (b"old", "maxlen")
    assert channel.get_all(queue) == [b"new"]


def test_a_queue_that_is_full_by_its_own_limit_drops_dead_letters(
    scene: Scene, channel: WireChannel
) -> None:
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    target = scene.queue(channel, durable=True, arguments=full)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
    queue = scene.queue(channel, durable=True, arguments=dead)
    channel.rpc(Confirm.Select())
    for body in (b"first", b"second"):
        channel.publish("", queue, body, delivery_mode=2)
        channel.expect(Basic.Ack)
        channel.reject(channel.get(queue).delivery_tag, requeue=False)
    eventually(lambda: channel.count(target) == 1, "the first is there")
    assert channel.get(queue) is None
    assert channel.get(target).body == b"first"
    assert channel.get(target) is None


def test_the_dead_letter_routing_key_replaces_the_key_and_cc(
    scene: Scene, channel: WireChannel, graveyard: Graveyard
) -> None:
    more = {"x-dead-letter-routing-key": "elsewhere"}
    queue = scene.queue(channel, arguments=graveyard.arguments(**more))
    channel.publish("", queue, b"x", headers={"CC": ["copy"]})
    channel.reject(channel.get(queue).delivery_tag, requeue=False)
    dead = graveyard.wait()
    assert dead.routing_key == "elsewhere"
    assert "CC" not in dead.headers
    assert dead.headers["x-death"][0]["routing-keys"] == [queue, "copy"]


def test_the_same_death_again_raises_its_count(
    scene: Scene, channel: WireChannel, graveyard: Graveyard
) -> None:
    queue = scene.queue(channel, arguments=graveyard.arguments())
    channel.publish("", queue, b"again")
    channel.reject(channel.get(queue).delivery_tag, requeue=False)
    dead = graveyard.wait()
    channel.publish("", queue, dead.body, headers=dead.headers)
    channel.reject(channel.get(queue).delivery_tag, requeue=False)
    (death,) = graveyard.wait().headers["x-death"]
    assert (death["count"], death["reason"]) == (2, "rejected")


def test_deaths_for_other_reasons_come_first_in_the_list(
    scene: Scene, channel: WireChannel, graveyard: Graveyard
) -> None:
    last = scene.queue(channel, arguments=graveyard.arguments())
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": last}
    first = scene.queue(channel, arguments=arguments)
    channel.publish("", first, b"x", expiration="10")
    eventually(lambda: channel.count(last), "the first death")
    channel.reject(channel.get(last).delivery_tag, requeue=False)
    dead = graveyard.wait()
    story = [(death["queue"], death["reason"]) for death in dead.headers["x-death"]]
    assert story == [(last, "rejected"), (first, "expired")]
    assert dead.headers["x-first-death-queue"] == first


def test_a_cycle_of_expiries_is_cut(scene: Scene, channel: WireChannel) -> None:
    name = scene.queue_name()
    arguments = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": name,
        "x-message-ttl": 10,
    }
    channel.declare_queue(name, arguments=arguments)
    channel.rpc(Confirm.Select())
    channel.publish("", name, b"round")
    channel.expect(Basic.Ack)
    eventually(lambda: channel.count(name) == 0, "the cycle to be cut")
    marker = scene.queue(channel, arguments={"x-message-ttl": 50})
    channel.publish("", marker)
    eventually(lambda: channel.count(marker) == 0, "the marker")
    assert channel.count(name) == 0


def test_a_cycle_with_a_rejection_goes_on(scene: Scene, channel: WireChannel) -> None:
    name = scene.queue_name()
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name}
    channel.declare_queue(name, arguments=arguments)
    channel.consume(name)
    channel.publish("", name, b"round")
    for expected in range(5):
        got = channel.delivery()
        deaths = got.headers.get("x-death", [{"count": 0}])
        assert deaths[0]["count"] == expected
        channel.reject(got.delivery_tag, requeue=False)


def test_a_missing_dead_letter_exchange_drops_the_message(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel, arguments={"x-dead-letter-exchange": scene.exchange_name()})
    channel.publish("", queue, b"x")
    channel.reject(channel.get(queue).delivery_tag, requeue=False)
    channel.assert_quiet(queue)
    assert channel.count(queue) == 0


def test_purged_and_deleted_messages_are_not_dead_lettered(
    scene: Scene, channel: WireChannel, graveyard: Graveyard
) -> None:
    queue = scene.queue(channel, arguments=graveyard.arguments())
    channel.publish_all(queue, numbered(3))
    channel.rpc(Queue.Purge(queue=queue))
    channel.settle(queue)
    assert channel.count(graveyard.queue) == 0


# -- priorities


def test_higher_priorities_come_first_and_equals_in_order(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel, arguments={"x-max-priority": 5})
    for name, priority in [("a", 1), ("b", 5), ("c", None), ("d", 1), ("e", 5), ("f", 0)]:
        channel.publish("", queue, name.encode(), priority=priority)
    channel.settle(queue)
    assert channel.get_all(queue) == [b"b", b"e", b"a", b"d", b"c", b"f"]


def test_priorities_above_the_most_count_as_the_most(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, arguments={"x-max-priority": 5})
    channel.publish("", queue, b"five", priority=5)
    channel.publish("", queue, b"two hundred", priority=200)
    channel.settle(queue)
    assert channel.get_all(queue) == [b"five", b"two hundred"]


def test_a_requeued_message_regains_its_place_among_its_priority(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel, arguments={"x-max-priority": 5})
    for name, priority in [("low", 1), ("high", 2), ("high2", 2)]:
        channel.publish("", queue, name.encode(), priority=priority)
    channel.settle(queue)
    held = channel.get(queue)
    channel.nack(held.delivery_tag)
    channel.settle(queue)
    assert channel.get_all(queue) == [b"high", b"high2", b"low"]


def test_without_x_max_priority_the_property_is_only_carried(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.publish("", queue, b"1", priority=1)
    channel.publish("", queue, b"2", priority=9)
    got = channel.get(queue)
    assert (got.body, got.properties.priority) == (b"1", 1)
