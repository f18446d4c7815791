"""Who gets a message, in which order, and what becomes of it until it is settled."""

import pytest

from tests.support.frames import Basic, Channel
from tests.support.scene import Scene
from tests.support.wire import WireChannel


def bodies(contents: list) -> list[bytes]:
    return [content.body for content in contents]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(1, count + 1)]


def test_messages_come_in_the_order_they_were_published(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.publish_all(queue, numbered(500))
    channel.consume(queue)
    got = channel.deliveries(500)
    assert bodies(got) == numbered(500)
    assert [content.delivery_tag for content in got] == list(range(1, 501))
    assert not any(content.redelivered for content in got)


def test_a_delivery_tells_consumer_exchange_and_key(scene: Scene, channel: WireChannel) -> None:
    queue = scene.bound_queue(channel, "amq.topic", "news.#")
    tag = channel.consume(queue, "reader")
    channel.publish("amq.topic", "news.today", b"x", message_id="m1", headers={"a": [1, {"b": 2}]})
    got = channel.delivery()
    assert (got.consumer_tag, got.exchange, got.routing_key) == (tag, "amq.topic", "news.today")
    assert got.properties.message_id == "m1"
    assert got.headers == {"a": [1, {"b": 2}]}


def test_get_counts_what_is_left(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.publish_all(queue, numbered(3))
    assert [channel.get(queue).message_count for _ in range(3)] == [2, 1, 0]
    assert channel.get(queue) is None


def test_unacked_messages_are_not_counted_as_ready(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.publish_all(queue, numbered(3))
    channel.get(queue)
    assert channel.count(queue) == 2


@pytest.mark.parametrize("how", ["reject", "nack", "nack multiple", "recover"])
def test_a_requeued_message_regains_its_old_place(
    scene: Scene, channel: WireChannel, how: str
) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.publish_all(queue, numbered(5))
    held = [channel.get(queue) for _ in range(3)]
    assert bodies(held) == [b"1", b"2", b"3"]
    match how:
        case "reject":
            for content in held:
                channel.reject(content.delivery_tag)
        case "nack":
            for content in reversed(held):
                channel.nack(content.delivery_tag)
        case "nack multiple":
            channel.nack(held[-1].delivery_tag, multiple=True)
        case "recover":
            channel.rpc(Basic.Recover(requeue=True))
    channel.settle(queue)
    again = [channel.get(queue) for _ in range(5)]
    assert bodies(again) == numbered(5)
    assert [content.redelivered for content in again] == [True, True, True, False, False]


def test_one_requeued_from_the_middle_stands_before_newer_ones(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.publish_all(queue, numbered(4))
    held = [channel.get(queue) for _ in range(3)]
    channel.ack(held[0].delivery_tag)
    channel.reject(held[1].delivery_tag)
    channel.settle(queue)
    assert bodies([channel.get(queue), channel.get(queue)]) == [b"2", b"4"]


def test_recover_async_requeues_without_an_answer(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.publish("", queue, b"1")
    channel.get(queue)
    with pytest.warns(DeprecationWarning, match="deprecated"):
        method = Basic.RecoverAsync(requeue=True)
    channel.send(method)
    channel.assert_quiet(queue)
    assert channel.get(queue).redelivered


@pytest.mark.parametrize("how", ["channel closed", "connection closed", "socket lost", "reset"])
def test_what_a_lost_consumer_held_comes_back_in_order_and_flagged(
    scene: Scene, channel: WireChannel, how: str
) -> None:
    queue = scene.queue(channel)
    channel.publish_all(queue, numbered(6))
    holder = scene.channel()
    held = [holder.get(queue) for _ in range(4)]
    holder.ack(held[1].delivery_tag)
    holder.settle(queue)
    match how:
        case "channel closed":
            holder.close()
        case "connection closed":
            holder.conn.close()
        case "socket lost":
            holder.conn.abort()
        case "reset":
            holder.conn.reset()
    channel.consume(queue)
    expected = {b"1": True, b"3": True, b"4": True, b"5": False, b"6": False}
    got = channel.deliveries(5)
    assert {content.body: content.redelivered for content in got} == expected
    if how in {"channel closed", "connection closed"}:
        assert bodies(got) == list(expected)


def test_order_holds_after_a_lost_connection(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, auto_delete=True)
    channel.publish_all(queue, numbered(50))
    holder = scene.channel()
    holder.qos(30)
    holder.consume(queue)
    holder.deliveries(30)
    watcher = scene.channel()
    watcher.qos(1)
    watcher.consume(queue)
    assert watcher.delivery().body == b"31"
    holder.conn.abort()
    got = []
    tag = 1
    for _ in range(49):
        watcher.ack(tag)
        content = watcher.delivery()
        got.append(content.body)
        tag = content.delivery_tag
    assert sorted(got, key=int) == numbered(30) + numbered(50)[31:]
    back = [body for body in got if int(body) <= 30]
    assert back == numbered(30)


def test_ack_multiple_settles_all_up_to_the_tag(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.publish_all(queue, numbered(5))
    channel.consume(queue, "c")
    channel.deliveries(5)
    channel.ack(3, multiple=True)
    channel.cancel("c")
    channel.rpc(Basic.Recover(requeue=True))
    channel.settle(queue)
    assert channel.get_all(queue) == [b"4", b"5"]


def test_ack_multiple_of_tag_zero_settles_everything(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.publish_all(queue, numbered(5))
    channel.consume(queue)
    channel.deliveries(5)
    channel.ack(0, multiple=True)
    channel.rpc(Basic.Recover(requeue=True))
    channel.assert_quiet(queue)
    assert channel.count(queue) == 0


def test_nothing_is_acked_by_a_multiple_ack_that_goes_too_far(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel)
    channel.publish_all(queue, numbered(2))
    holder = scene.channel()
    holder.get(queue)
    holder.ack(9, multiple=True)
    holder.expect_close(406, "unknown delivery tag 9")
    channel.settle(queue)
    assert channel.get_all(queue) == numbered(2)


def test_a_rejected_message_is_dropped_without_dead_lettering(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.publish_all(queue, numbered(3))
    for _ in range(3):
        channel.reject(channel.get(queue).delivery_tag, requeue=False)
    channel.settle(queue)
    assert channel.get(queue) is None


def test_a_requeued_message_goes_to_another_consumer_with_credit(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel)
    channel.qos(1)
    channel.consume(queue, "first")
    channel.publish("", queue, b"ball")
    content = channel.delivery()
    other = scene.channel()
    other.consume(queue, "second")
    channel.cancel("first")
    channel.nack(content.delivery_tag)
    again = other.delivery()
    assert again.body == b"ball"
    assert again.redelivered


def test_tags_of_deliveries_and_gets_count_together(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.publish_all(queue, numbered(3))
    assert channel.get(queue).delivery_tag == 1
    assert channel.get(queue, no_ack=True).delivery_tag == 2
    channel.consume(queue)
    assert channel.delivery().delivery_tag == 3


def test_no_ack_messages_are_gone_once_sent(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel)
    channel.publish_all(queue, numbered(3))
    reader = scene.channel()
    reader.consume(queue, no_ack=True)
    reader.deliveries(3)
    reader.conn.abort()
    channel.settle(queue)
    assert channel.count(queue) == 0


def test_a_reopened_channel_starts_counting_tags_anew(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel)
    channel.publish_all(queue, numbered(2))
    assert channel.get(queue, no_ack=True).delivery_tag == 1
    channel.close()
    channel.rpc(Channel.Open())
    assert channel.get(queue, no_ack=True).delivery_tag == 1
