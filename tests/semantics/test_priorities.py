"""Priorities from 0 to 255, on durable queues too, and aging, so that low ones do not starve."""

from typing import Any

import pytest

from tests.semantics.stage import HOUR_MS, Stage, delivery
from tests.support.frames import Basic
from tests.support.waiting import eventually
from tests.support.wire import ChannelClosedError

pytestmark = pytest.mark.leveret_only  # limits, priorities and places in every kind of queue


def publish_all(stage: Stage, queue: str, *names: tuple[str, int | None], **more: Any) -> None:
    """(name, priority), in this order, each safe before the next."""
    channel = stage.confirming()
    for name, priority in names:
        channel.publish("", queue, name.encode(), priority=priority, delivery_mode=2, **more)
        channel.expect(Basic.Ack)
    channel.conn.close()


def names(stage: Stage, queue: str, count: int) -> list[str]:
    return [body.decode() for body in stage.bodies(queue, count)]


def test_each_of_256_priorities_goes_before_the_lower_ones(stage: Stage) -> None:
    queue = stage.queue(max_priority=255)
    mixed = [number * 77 % 256 for number in range(256)]
    channel = stage.confirming()
    for priority in [*mixed, *mixed]:
        channel.publish("", queue, b"%d" % priority, priority=priority, delivery_mode=2)
    eventually(lambda: stage.channel.count(queue) == 512, "all to be safe")
    stage.channel.consume(queue, no_ack=True)
    got = [int(delivery(stage.channel).body) for _ in range(512)]
    assert got == sorted([*mixed, *mixed], reverse=True)


def test_equals_go_in_order_and_no_priority_is_zero(stage: Stage) -> None:
    queue = stage.queue(max_priority=3)
    publish_all(stage, queue, ("a", 1), ("b", None), ("c", 3), ("d", 0), ("e", 1), ("f", 3))
    assert names(stage, queue, 6) == ["c", "f", "a", "e", "b", "d"]


def test_a_priority_above_the_most_counts_as_the_most(stage: Stage) -> None:
    queue = stage.queue(max_priority=2)
    publish_all(stage, queue, ("low", 0), ("two", 2), ("255", 255), ("three", 3))
    assert names(stage, queue, 4) == ["two", "255", "three", "low"]


def test_a_requeued_message_stands_first_among_its_equals(stage: Stage) -> None:
    queue = stage.queue(max_priority=2)
    publish_all(stage, queue, ("low", 0), ("high", 2), ("high2", 2))
    held = stage.take(queue)
    assert held.body == b"high"
    stage.channel.nack(held.delivery_tag)
    stage.channel.settle(queue)
    assert names(stage, queue, 3) == ["high", "high2", "low"]


def test_a_delayed_message_keeps_its_priority(stage: Stage) -> None:
    queue = stage.queue(max_priority=2, delivery_limit=-1)
    publish_all(stage, queue, ("delayed", 2), headers={"x-delay": 100})
    publish_all(stage, queue, ("low", 0), ("middle", 1))
    stage.wait_for_head(queue, b"delayed")
    assert names(stage, queue, 3) == ["delayed", "middle", "low"]


def test_a_failed_message_keeps_its_priority(stage: Stage) -> None:
    queue = stage.queue(max_priority=2, retry_delay=100, delivery_limit=-1)
    publish_all(stage, queue, ("failed", 2))
    stage.channel.nack(stage.take(queue).delivery_tag)
    publish_all(stage, queue, ("low", 0), ("middle", 1))
    stage.wait_for_head(queue, b"failed")
    assert names(stage, queue, 3) == ["failed", "middle", "low"]


def test_a_dead_letter_keeps_its_priority(stage: Stage) -> None:
    dead = stage.queue(max_priority=9)
    queue = stage.queue(dead_letter_exchange="", dead_letter_routing_key=dead)
    publish_all(stage, queue, ("low", 1), ("high", 8))
    stage.channel.consume(queue)
    last = [delivery(stage.channel) for _ in range(2)][-1]
    stage.channel.nack(last.delivery_tag, multiple=True, requeue=False)
    stage.channel = stage.open_channel()
    eventually(lambda: stage.channel.count(dead) == 2, "both dead letters")
    assert names(stage, dead, 2) == ["high", "low"]


def test_an_expired_message_goes_when_its_turn_comes(stage: Stage) -> None:
    dead, arguments = stage.graveyard()
    queue = stage.queue(max_priority=1, **arguments)
    publish_all(stage, queue, ("high", 1))
    publish_all(stage, queue, ("expired", 0), expiration="1")
    publish_all(stage, queue, ("low", 0))
    assert names(stage, queue, 1) == ["high"]
    assert names(stage, dead, 1) == ["expired"]
    assert names(stage, queue, 1) == ["low"]


def test_what_is_dropped_is_of_the_lowest_priority(stage: Stage) -> None:
    dead, arguments = stage.graveyard()
    queue = stage.queue(max_priority=5, max_length=2, **arguments)
    publish_all(stage, queue, ("low", 0), ("high", 5), ("middle", 3), ("highest", 5))
    assert names(stage, dead, 2) == ["low", "middle"]
    assert names(stage, queue, 2) == ["high", "highest"]


@pytest.mark.parametrize("value", [-1, 256, "5", True], ids=repr)
def test_priorities_that_cannot_be_meant_are_refused(stage: Stage, value: object) -> None:
    with pytest.raises(ChannelClosedError, match=r"406.*x-max-priority"):
        stage.queue(max_priority=value)


# -- aging


def test_a_message_gains_a_priority_for_every_so_long_that_it_waits(stage: Stage) -> None:
    """With aging of a millisecond, one that is safe before another is sent is older by more."""
    queue = stage.queue(max_priority=1, priority_aging_ms=1)
    marker = stage.queue(message_delay=20)
    publish_all(stage, queue, ("old and low", 0))
    stage.publish(marker, b"")
    assert stage.bodies(marker, 1) == [b""]  # twenty times the aging has passed
    publish_all(stage, queue, ("new and high", 1))
    assert names(stage, queue, 2) == ["old and low", "new and high"]


def test_before_that_priority_decides(stage: Stage) -> None:
    queue = stage.queue(max_priority=1, priority_aging_ms=HOUR_MS)
    publish_all(stage, queue, ("old and low", 0), ("new and high", 1))
    assert names(stage, queue, 2) == ["new and high", "old and low"]


def test_a_low_message_does_not_starve_under_a_stream_of_high_ones(stage: Stage) -> None:
    queue = stage.queue(max_priority=255, priority_aging_ms=1)
    publish_all(stage, queue, ("starving", 0))
    publisher = stage.confirming()
    taken = b""
    for _ in range(100_000):  # the last of them would be published after minutes
        publisher.publish("", queue, b"high", priority=255)
        publisher.expect(Basic.Ack)
        content = stage.take(queue)
        stage.channel.ack(content.delivery_tag)
        taken = content.body
        if taken == b"starving":
            break
    assert taken == b"starving"


@pytest.mark.parametrize(
    "arguments",
    [
        {"priority_aging_ms": 5},
        {"priority_aging_ms": 5, "max_priority": 0},
        {"priority_aging_ms": 0, "max_priority": 5},
        {"priority_aging_ms": "5", "max_priority": 5},
    ],
    ids=str,
)
def test_aging_that_cannot_be_meant_is_refused(stage: Stage, arguments: dict[str, Any]) -> None:
    with pytest.raises(ChannelClosedError, match=r"406.*x-priority-aging-ms"):
        stage.queue(**arguments)
