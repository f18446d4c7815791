"""Consumers: turns, priorities, exclusivity, single active, cancelling, and what ends with them."""

import pytest

from tests.semantics.stage import Stage
from tests.support.frames import Basic, Exchange, Queue, unvalidated
from tests.support.scene import Scene
from tests.support.waiting import eventually
from tests.support.wire import ChannelClosedError, WireChannel, WireConnection


def publish(channel: WireChannel, queue: str, count: int) -> None:
    channel.publish_all(queue, [b"%d" % number for number in range(count)])


def consumer_count(channel: WireChannel, queue: str) -> int:
    return channel.declare_queue(queue, passive=True).consumer_count


def test_consumers_with_credit_take_turns(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    for tag in ("a", "b", "c"):
        channel.consume(queue, tag)
    publish(channel, queue, 9)
    tags = [content.consumer_tag for content in channel.deliveries(9)]
    assert sorted(tags[:3]) == ["a", "b", "c"]
    assert tags == tags[:3] * 3


def test_a_consumer_without_credit_is_passed_over(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.qos(1)
    channel.consume(queue, "narrow")
    channel.qos(0)
    channel.consume(queue, "wide")
    publish(channel, queue, 6)
    tags = [content.consumer_tag for content in channel.deliveries(6)]
    assert sorted(tags) == ["narrow"] + ["wide"] * 5


def test_a_higher_priority_is_served_first_while_it_has_credit(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.qos(3)
    channel.consume(queue, "low", arguments={"x-priority": -1})
    channel.consume(queue, "default")
    channel.consume(queue, "high", arguments={"x-priority": 10})
    publish(channel, queue, 8)
    tags = [content.consumer_tag for content in channel.deliveries(8)]
    assert tags == ["high"] * 3 + ["default"] * 3 + ["low"] * 2


def test_a_high_priority_consumer_that_frees_credit_is_next(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.qos(1)
    channel.consume(queue, "low")
    channel.consume(queue, "high", arguments={"x-priority": 1})
    publish(channel, queue, 3)
    first, second = channel.deliveries(2)
    assert (first.consumer_tag, second.consumer_tag) == ("high", "low")
    channel.ack(first.delivery_tag)
    assert channel.delivery().consumer_tag == "high"


def test_the_broker_names_consumers_that_give_no_tag(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    tags = {channel.consume(queue) for _ in range(3)}
    assert len(tags) == 3
    assert all(tag.startswith("amq.ctag-") for tag in tags)


def test_a_tag_may_be_used_again_after_cancel_and_on_other_channels(
    scene: Scene, connection: WireConnection
) -> None:
    one, other = connection.open_channel(), connection.open_channel()
    queue = scene.queue(one, exclusive=True)
    one.consume(queue, "tag")
    other.consume(queue, "tag")
    one.cancel("tag")
    assert one.consume(queue, "tag") == "tag"


def test_cancel_leaves_the_unacked_with_the_channel(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    publish(channel, queue, 2)
    channel.consume(queue, "c")
    channel.deliveries(2)
    channel.cancel("c")
    assert channel.count(queue) == 0
    channel.ack(1)
    channel.nack(2)
    channel.settle(queue)
    assert channel.get(queue).body == b"1"
    assert channel.get(queue) is None


def test_nothing_is_delivered_after_cancel_ok(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel)
    feeder = scene.channel()
    for round_number in range(20):
        tag = channel.consume(queue, f"c{round_number}", no_ack=True)
        publish(feeder, queue, 20)
        channel.send(Basic.Cancel(consumer_tag=tag))
        while not isinstance(item := channel.conn.next_item(channel.number), Basic.CancelOk):
            assert item.consumer_tag == tag
        feeder.settle(queue)
        channel.assert_quiet(queue)


def test_a_consumer_hears_that_its_queue_was_deleted(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel)
    watcher = scene.channel()
    watcher.consume(queue, "watcher")
    channel.rpc(Queue.Delete(queue=queue))
    assert watcher.expect(Basic.Cancel).consumer_tag == "watcher"
    watcher.qos(1)


def test_the_deleter_itself_hears_it_too_behind_its_answer(stage: Stage) -> None:
    queue, channel = stage.queue(), stage.channel
    channel.consume(queue, "own")
    channel.consume(queue, "too")
    channel.send(Queue.Delete(queue=queue))
    assert isinstance(channel.conn.next_item(channel.number), Queue.DeleteOk)
    assert {channel.expect(Basic.Cancel).consumer_tag for _ in range(2)} == {"own", "too"}
    channel.qos(1)


def test_with_nowait_the_deleter_hears_of_its_consumers_only(stage: Stage) -> None:
    queue, channel = stage.queue(), stage.channel
    channel.consume(queue, "own")
    channel.send(Queue.Delete(queue=queue, nowait=True))
    assert channel.expect(Basic.Cancel).consumer_tag == "own"
    channel.qos(1)


def test_who_did_not_announce_cancel_notify_hears_nothing(scene: Scene) -> None:
    channel = scene.channel(capabilities={})
    queue = scene.queue(channel)
    channel.consume(queue)
    channel.rpc(Queue.Delete(queue=queue))
    channel.declare_queue(queue)
    channel.assert_quiet(queue)


def test_the_tag_of_a_cancelled_by_broker_consumer_is_free_again(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel)
    channel.consume(queue, "tag")
    channel.rpc(Queue.Delete(queue=queue))
    channel.expect(Basic.Cancel)
    channel.declare_queue(queue)
    assert channel.consume(queue, "tag") == "tag"


def test_messages_of_a_deleted_queue_may_still_be_acked(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel)
    publish(channel, queue, 1)
    held = channel.get(queue)
    channel.rpc(Queue.Delete(queue=queue))
    channel.ack(held.delivery_tag)
    channel.qos(1)


# -- exclusive consumers, single active consumer


def test_an_exclusive_consumer_frees_the_queue_when_it_leaves(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel)
    channel.consume(queue, "sole", exclusive=True)
    other = scene.channel()
    with pytest.raises(ChannelClosedError, match="in exclusive use"):
        other.consume(queue)
    channel.cancel("sole")
    scene.channel().consume(queue)


def test_get_is_allowed_beside_an_exclusive_consumer(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel)
    channel.qos(1)
    channel.consume(queue, exclusive=True)
    publish(channel, queue, 2)
    channel.delivery()
    assert scene.channel().get(queue).body == b"1"


def test_of_a_single_active_queue_only_the_first_consumer_gets_messages(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel, arguments={"x-single-active-consumer": True})
    channel.qos(2)
    channel.consume(queue, "active")
    waiting = scene.channel()
    waiting.consume(queue, "waiting")
    publish(channel, queue, 4)
    assert [content.consumer_tag for content in channel.deliveries(2)] == ["active"] * 2
    waiting.assert_quiet(queue)


@pytest.mark.parametrize("how", ["cancel", "channel", "connection", "lost"])
def test_the_next_consumer_becomes_active_when_the_first_leaves(
    scene: Scene, channel: WireChannel, how: str
) -> None:
    queue = scene.queue(channel, arguments={"x-single-active-consumer": True})
    first = scene.channel()
    first.consume(queue, "first")
    second, third = scene.channel(), scene.channel()
    second.consume(queue, "second")
    third.consume(queue, "third")
    match how:
        case "cancel":
            first.cancel("first")
        case "channel":
            first.close()
        case "connection":
            first.conn.close()
        case "lost":
            first.conn.abort()
    eventually(lambda: consumer_count(channel, queue) == 2, "the first consumer to be gone")
    publish(channel, queue, 3)
    assert [content.body for content in second.deliveries(3)] == [b"0", b"1", b"2"]
    third.assert_quiet(queue)


# -- auto-delete


def test_an_auto_delete_queue_goes_with_its_last_consumer(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel, auto_delete=True)
    channel.consume(queue, "a")
    channel.consume(queue, "b")
    channel.cancel("a")
    assert consumer_count(channel, queue) == 1
    channel.cancel("b")
    with pytest.raises(ChannelClosedError, match="no queue"):
        channel.count(queue)


def test_an_auto_delete_queue_that_never_had_a_consumer_stays(
    scene: Scene, channel: WireChannel
) -> None:
    other = scene.channel()
    queue = scene.queue(other, auto_delete=True)
    publish(other, queue, 1)
    assert other.get(queue, no_ack=True)
    other.conn.close()
    assert channel.count(queue) == 0


@pytest.mark.parametrize("how", ["channel", "connection"])
def test_an_auto_delete_queue_goes_when_its_consumers_channel_does(
    scene: Scene, channel: WireChannel, how: str
) -> None:
    other = scene.channel()
    queue = scene.queue(other, auto_delete=True)
    other.consume(queue)
    (other if how == "channel" else other.conn).close()

    def gone() -> bool:
        try:
            channel.conn.open_channel().count(queue)
        except ChannelClosedError as closed:
            return closed.method.reply_code == 404
        return False

    eventually(gone, "the auto-delete queue to go")


def test_an_auto_delete_exchange_goes_with_its_last_binding(
    scene: Scene, channel: WireChannel
) -> None:
    exchange = scene.exchange(channel, "fanout", auto_delete=True)
    one = scene.bound_queue(channel, exchange)
    other = scene.bound_queue(channel, exchange)
    channel.rpc(Queue.Unbind(queue=one, exchange=exchange))
    channel.declare_exchange(exchange, passive=True)
    channel.rpc(Queue.Delete(queue=other))
    with pytest.raises(ChannelClosedError, match="no exchange"):
        channel.declare_exchange(exchange, passive=True)


def test_an_auto_delete_exchange_goes_with_the_exchange_bound_to_it(
    scene: Scene, channel: WireChannel
) -> None:
    source = scene.exchange(channel, "fanout", auto_delete=True)
    target = scene.exchange(channel, "fanout")
    channel.rpc(Exchange.Bind(destination=target, source=source))
    channel.rpc(Exchange.Delete(exchange=target))
    with pytest.raises(ChannelClosedError, match="no exchange"):
        channel.declare_exchange(source, passive=True)


# -- no-wait


def test_nowait_consume_and_cancel_are_not_answered(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.send(unvalidated(Basic.Consume, queue=queue, consumer_tag="quiet", nowait=True))
    publish(channel, queue, 1)
    assert channel.delivery().consumer_tag == "quiet"
    channel.send(Basic.Cancel(consumer_tag="quiet", nowait=True))
    publish(channel, queue, 1)
    channel.assert_quiet(queue)
    assert channel.count(queue) == 1
