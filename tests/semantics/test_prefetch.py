"""basic.qos: how many unacked messages a consumer, and a channel, may hold."""

from tests.support.frames import Basic
from tests.support.scene import Scene
from tests.support.wire import WireChannel


def filled_queue(scene: Scene, channel: WireChannel, count: int = 20) -> str:
    queue = scene.queue(channel)
    channel.publish_all(queue, [b"%d" % number for number in range(count)])
    return queue


def taken(channel: WireChannel, queue: str) -> list[str]:
    """Consumer tags of all that arrives before the broker stops sending."""
    channel.settle(queue)
    contents = channel.deliveries(len(channel.pending()))
    return [content.consumer_tag for content in contents]


def test_a_consumer_holds_no_more_than_its_prefetch(scene: Scene, channel: WireChannel) -> None:
    queue = filled_queue(scene, channel)
    channel.qos(3)
    channel.consume(queue, "c")
    assert taken(channel, queue) == ["c"] * 3
    channel.ack(2)
    assert taken(channel, queue) == ["c"]
    channel.ack(4, multiple=True)
    assert taken(channel, queue) == ["c"] * 3


def test_prefetch_zero_is_no_limit(scene: Scene, channel: WireChannel) -> None:
    queue = filled_queue(scene, channel)
    channel.qos(0)
    channel.consume(queue, "c")
    assert taken(channel, queue) == ["c"] * 20


def test_prefetch_is_for_each_consumer_started_later(scene: Scene, channel: WireChannel) -> None:
    queue = filled_queue(scene, channel)
    channel.qos(2)
    channel.consume(queue, "two")
    channel.qos(5)
    channel.consume(queue, "five")
    assert sorted(taken(channel, queue)) == ["five"] * 5 + ["two"] * 2


def test_changing_the_consumer_prefetch_leaves_running_consumers_alone(
    scene: Scene, channel: WireChannel
) -> None:
    queue = filled_queue(scene, channel)
    channel.qos(2)
    channel.consume(queue, "c")
    assert len(taken(channel, queue)) == 2
    channel.qos(10)
    assert taken(channel, queue) == []
    channel.ack(1)
    assert len(taken(channel, queue)) == 1


def test_global_prefetch_caps_all_consumers_of_the_channel(
    scene: Scene, channel: WireChannel
) -> None:
    queue = filled_queue(scene, channel)
    channel.qos(4, global_=True)
    channel.consume(queue, "a")
    channel.consume(queue, "b")
    assert len(taken(channel, queue)) == 4
    channel.ack(2, multiple=True)
    assert len(taken(channel, queue)) == 2


def test_global_prefetch_raised_while_running_takes_effect(
    scene: Scene, channel: WireChannel
) -> None:
    queue = filled_queue(scene, channel)
    channel.qos(2, global_=True)
    channel.consume(queue, "c")
    assert len(taken(channel, queue)) == 2
    channel.qos(5, global_=True)
    assert len(taken(channel, queue)) == 3
    channel.qos(0, global_=True)
    assert len(taken(channel, queue)) == 15


def test_global_prefetch_lowered_while_running_takes_effect(
    scene: Scene, channel: WireChannel
) -> None:
    queue = filled_queue(scene, channel)
    channel.qos(5, global_=True)
    channel.consume(queue, "c")
    assert len(taken(channel, queue)) == 5
    channel.qos(2, global_=True)
    channel.ack(3, multiple=True)
    assert taken(channel, queue) == []
    channel.ack(4)
    assert len(taken(channel, queue)) == 1


def test_both_kinds_of_prefetch_hold_together(scene: Scene, channel: WireChannel) -> None:
    queue = filled_queue(scene, channel)
    channel.qos(3)
    channel.qos(5, global_=True)
    channel.consume(queue, "a")
    assert taken(channel, queue) == ["a"] * 3
    channel.consume(queue, "b")
    assert taken(channel, queue) == ["b"] * 2


def test_get_ignores_prefetch(scene: Scene, channel: WireChannel) -> None:
    queue = filled_queue(scene, channel)
    channel.qos(1, global_=True)
    assert all(channel.get(queue) for _ in range(5))


def test_no_ack_consumers_ignore_prefetch(scene: Scene, channel: WireChannel) -> None:
    queue = filled_queue(scene, channel)
    channel.qos(1)
    channel.consume(queue, "free", no_ack=True)
    assert taken(channel, queue) == ["free"] * 20


def test_nack_and_reject_give_credit_back(scene: Scene, channel: WireChannel) -> None:
    queue = filled_queue(scene, channel)
    channel.qos(2)
    channel.consume(queue, "c")
    assert len(taken(channel, queue)) == 2
    channel.reject(1, requeue=False)
    channel.nack(2, requeue=False)
    assert len(taken(channel, queue)) == 2


def test_credit_of_a_cancelled_consumer_is_not_passed_on(
    scene: Scene, channel: WireChannel
) -> None:
    queue = filled_queue(scene, channel)
    channel.qos(2)
    channel.consume(queue, "gone")
    assert len(taken(channel, queue)) == 2
    channel.cancel("gone")
    channel.consume(queue, "next")
    assert taken(channel, queue) == ["next"] * 2


def test_messages_held_after_cancel_count_for_the_global_prefetch(
    scene: Scene, channel: WireChannel
) -> None:
    queue = filled_queue(scene, channel)
    channel.qos(2, global_=True)
    channel.consume(queue, "gone")
    assert len(taken(channel, queue)) == 2
    channel.cancel("gone")
    channel.consume(queue, "next")
    assert taken(channel, queue) == []
    channel.ack(1)
    assert taken(channel, queue) == ["next"]


def test_a_slow_consumer_leaves_the_rest_to_others(scene: Scene, channel: WireChannel) -> None:
    queue = filled_queue(scene, channel)
    slow = scene.channel()
    slow.qos(1)
    slow.consume(queue, "slow")
    assert len(taken(slow, queue)) == 1
    channel.consume(queue, "quick")
    assert taken(channel, queue) == ["quick"] * 19


def test_qos_is_answered(channel: WireChannel) -> None:
    channel.rpc(Basic.Qos(prefetch_count=65535))
