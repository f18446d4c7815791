"""Deduplication: a message whose id, or body, came lately is confirmed and dropped."""

from typing import Any

import pytest

from tests.semantics.stage import HOUR_MS, Stage, delivery
from tests.support.frames import Basic, Confirm, Queue, Tx
from tests.support.scene import Scene
from tests.support.waiting import eventually
from tests.support.wire import ChannelClosedError, WireChannel

pytestmark = pytest.mark.leveret_only


def known_as(name: object, **more: Any) -> dict[str, Any]:
    return {"headers": {"x-dedup-id": name} | more}


def test_of_messages_with_the_same_id_the_first_is_kept(stage: Stage) -> None:
    queue = stage.queue()
    stage.publish(queue, b"first", **known_as("id"))
    stage.publish(queue, b"again", **known_as("id"))
    stage.publish(queue, b"other", **known_as("other"))
    stage.publish(queue, b"none")
    stage.publish(queue, b"none")
    assert stage.bodies(queue, 4) == [b"first", b"other", b"none", b"none"]
    stage.assert_empty(queue)


def test_duplicates_are_found_within_a_batch_as_well(stage: Stage) -> None:
    queue = stage.queue()
    ids = ["a", "b", "a", "c", "b", "a"]
    bodies = [(b"%d" % number, {"x-dedup-id": dedup_id}) for number, dedup_id in enumerate(ids)]
    stage.publish_together(queue, bodies)
    stage.publish_together(queue, [*bodies, (b"6", {"x-dedup-id": "d"})])
    assert stage.bodies(queue, 4) == [b"0", b"1", b"3", b"6"]
    stage.assert_empty(queue)


def test_every_publish_is_confirmed_duplicate_or_not(stage: Stage) -> None:
    queue = stage.queue()
    stage.channel.rpc(Confirm.Select())
    for dedup_id in ("a", "a", "b", "a", "b"):
        stage.channel.publish("", queue, b"", mandatory=True, delivery_mode=2, **known_as(dedup_id))
    confirmed = 0
    while confirmed < 5:
        ack = stage.channel.expect(Basic.Ack)  # and nothing is returned
        confirmed = ack.delivery_tag if ack.multiple else confirmed + 1
    assert stage.channel.count(queue) == 2


def test_a_message_is_known_by_whatever_way_it_comes(stage: Stage) -> None:
    queue, copies = stage.queue(), stage.queue()
    stage.channel.bind(queue, "amq.direct", "key")
    stage.channel.bind(queue, "amq.topic", "a.*")
    stage.publish(queue, b"by name", **known_as("id"))
    stage.publish("key", b"direct", "amq.direct", **known_as("id"))
    stage.publish("a.b", b"topic", "amq.topic", **known_as("id"))
    stage.publish(copies, b"copy", **known_as("id", CC=[queue]))
    assert stage.bodies(queue, 1) == [b"by name"]
    assert stage.bodies(copies, 1) == [b"copy"]  # each queue has a memory of its own
    stage.assert_empty(queue)


def test_a_message_is_known_after_it_was_consumed_dead_lettered_or_purged(stage: Stage) -> None:
    queue = stage.queue()
    for dedup_id in ("acked", "rejected", "purged"):
        stage.publish(queue, b"", **known_as(dedup_id))
    stage.channel.ack(stage.take(queue).delivery_tag)
    stage.channel.reject(stage.take(queue).delivery_tag, requeue=False)
    stage.channel.rpc(Queue.Purge(queue=queue))
    for dedup_id in ("acked", "rejected", "purged"):
        stage.publish(queue, b"", **known_as(dedup_id))
    stage.assert_empty(queue)


def test_a_requeued_message_is_no_duplicate_of_itself(stage: Stage) -> None:
    queue = stage.queue(retry_delay=50)
    stage.publish(queue, b"x", **known_as("id"))
    stage.channel.nack(stage.take(queue).delivery_tag)
    assert stage.bodies(queue, 1) == [b"x"]


def test_a_delayed_message_is_known_from_the_beginning(stage: Stage) -> None:
    queue = stage.queue()
    stage.publish(queue, b"delayed", **known_as("id", **{"x-delay": 100}))
    stage.publish(queue, b"prompt", **known_as("id"))
    assert stage.bodies(queue, 1) == [b"delayed"]
    stage.assert_empty(queue)


def test_a_message_that_was_refused_is_not_known(stage: Stage) -> None:
    queue = stage.queue(max_length=1, overflow="reject-publish")
    stage.publish(queue, b"full")
    channel = stage.confirming()
    channel.publish("", queue, b"x", **known_as("id"))
    channel.expect(Basic.Nack)
    assert stage.bodies(queue, 1) == [b"full"]
    stage.channel.settle(queue)
    channel.publish("", queue, b"x", **known_as("id"))
    channel.expect(Basic.Ack)
    assert stage.bodies(queue, 1) == [b"x"]


def test_a_full_queue_confirms_a_duplicate_of_what_it_has(stage: Stage) -> None:
    queue = stage.queue(max_length=1, overflow="reject-publish")
    stage.publish(queue, b"x", **known_as("id"))
    stage.publish(queue, b"x", **known_as("id"))
    assert stage.bodies(queue, 1) == [b"x"]


def test_a_message_refused_by_one_of_its_queues_reaches_each_once_in_the_end(
    stage: Stage,
) -> None:
    queue, full = stage.queue(), stage.queue(max_length=1, overflow="reject-publish")
    stage.publish(full, b"in the way")
    channel = stage.confirming()
    channel.publish("", queue, b"x", **known_as("id", CC=[full]))
    channel.expect(Basic.Nack)
    assert stage.bodies(full, 1) == [b"in the way"]
    stage.channel.settle(full)
    channel.publish("", queue, b"x", **known_as("id", CC=[full]))
    channel.expect(Basic.Ack)
    assert stage.bodies(queue, 1) == stage.bodies(full, 1) == [b"x"]
    stage.assert_empty(queue)


def test_what_is_rolled_back_is_not_known(stage: Stage) -> None:
    queue = stage.queue()
    channel = stage.open_channel()
    channel.rpc(Tx.Select())
    channel.publish("", queue, b"x", **known_as("id"))
    channel.rpc(Tx.Rollback())
    channel.publish("", queue, b"x", **known_as("id"))
    channel.rpc(Tx.Commit())
    assert stage.bodies(queue, 1) == [b"x"]


def test_ids_are_forgotten_when_the_window_is_over(stage: Stage) -> None:
    queue = stage.queue(dedup_window=1)
    channel = stage.confirming()

    def came_twice() -> bool:
        channel.publish("", queue, b"x", **known_as("id"))
        channel.expect(Basic.Ack)
        return stage.channel.count(queue) == 2

    eventually(came_twice, "a window of a millisecond to be over")


def test_a_window_of_zero_lets_duplicates_in(stage: Stage) -> None:
    queue = stage.queue(dedup_window=0, dedup_content=True)
    stage.publish(queue, b"x", **known_as("id"))
    stage.publish(queue, b"x", **known_as("id"))
    assert stage.bodies(queue, 2) == [b"x", b"x"]


def test_a_queue_made_anew_knows_nothing(stage: Stage) -> None:
    queue = stage.queue()
    stage.publish(queue, b"x", **known_as("id"))
    stage.channel.rpc(Queue.Delete(queue=queue))
    stage.declare(queue)
    stage.publish(queue, b"x", **known_as("id"))
    assert stage.bodies(queue, 1) == [b"x"]


# -- by content


def test_with_content_deduplication_the_same_body_is_the_same_message(stage: Stage) -> None:
    queue = stage.queue(dedup_content=True)
    big = bytes(range(256)) * 2000  # several frames
    for body in (b"a", b"a", b"b", b"", b"", big, big, big + b"!", b"a"):
        stage.publish(queue, body, message_id="whatever")
    assert stage.bodies(queue, 5) == [b"a", b"b", b"", big, big + b"!"]
    stage.assert_empty(queue)


def test_an_id_counts_before_the_content(stage: Stage) -> None:
    queue = stage.queue(dedup_content=True)
    for dedup_id in ("1", "2", "1"):
        stage.publish(queue, b"same", **known_as(dedup_id))
    stage.publish(queue, b"same")
    stage.publish(queue, b"same")
    assert stage.bodies(queue, 3) == [b"same"] * 3
    stage.assert_empty(queue)


def test_an_id_is_not_taken_for_a_body(stage: Stage) -> None:
    queue = stage.queue(dedup_content=True)
    stage.publish(queue, b"same")
    stage.publish(queue, b"other", **known_as("same"))
    assert stage.bodies(queue, 2) == [b"same", b"other"]


# -- ids


@pytest.mark.parametrize(
    "pair", [(7, "7"), ("id", bytearray(b"id")), ("ü", bytearray("ü".encode()))], ids=str
)
def test_ids_of_any_type_are_compared_as_text(stage: Stage, pair: tuple[object, object]) -> None:
    queue = stage.queue()
    for dedup_id in pair:
        stage.publish(queue, b"x", **known_as(dedup_id))
    assert stage.channel.count(queue) == 1


@pytest.mark.parametrize("dedup_id", ["", None, bytearray()], ids=repr)
def test_an_empty_id_is_none(stage: Stage, dedup_id: object) -> None:
    queue = stage.queue()
    stage.publish(queue, b"1", **known_as(dedup_id))
    stage.publish(queue, b"2", **known_as(dedup_id))
    assert stage.bodies(queue, 2) == [b"1", b"2"]


def test_a_long_id_is_known_by_all_of_it(stage: Stage) -> None:
    queue = stage.queue()
    for tail in ("a", "b", "a"):
        stage.publish(queue, tail.encode(), **known_as("x" * 5000 + tail))
    assert stage.bodies(queue, 2) == [b"a", b"b"]


@pytest.mark.parametrize("dedup_id", [True, 1.5, [1], {"a": 1}], ids=repr)
def test_an_id_that_cannot_be_meant_is_refused(
    scene: Scene, channel: WireChannel, dedup_id: object
) -> None:
    queue = scene.queue(channel)
    channel.publish("", queue, b"", **known_as(dedup_id))
    channel.expect_close(406, "x-dedup-id")


@pytest.mark.parametrize(
    ("argument", "value"),
    [("dedup_window", -1), ("dedup_window", "5m"), ("dedup_content", 1), ("dedup_content", "yes")],
)
def test_deduplication_that_cannot_be_meant_is_refused(
    stage: Stage, argument: str, value: object
) -> None:
    with pytest.raises(ChannelClosedError, match=f"406.*x-{argument.replace('_', '-')}"):
        stage.queue(**{argument: value})


def test_a_waiting_consumer_gets_no_duplicate(stage: Stage) -> None:
    queue = stage.queue(dedup_window=HOUR_MS)
    stage.channel.consume(queue, no_ack=True)
    for dedup_id in ("a", "a", "b"):
        stage.publish(queue, dedup_id.encode(), **known_as(dedup_id))
    assert [delivery(stage.channel).body for _ in range(2)] == [b"a", b"b"]
    stage.channel.assert_quiet(queue)
