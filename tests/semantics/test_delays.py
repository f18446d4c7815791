"""Delayed messages: by header, by queue, through an exchange of type x-delayed-message."""

from decimal import Decimal
from typing import Any

import pytest

from tests.semantics.stage import HOUR_MS, Stage, Stopwatch, delivery
from tests.support.frames import Basic, Confirm, Exchange, Queue, Tx, unvalidated
from tests.support.scene import Scene
from tests.support.waiting import eventually
from tests.support.wire import ChannelClosedError, WireChannel

pytestmark = pytest.mark.leveret_only

THIRTY_DAYS_MS = 30 * 24 * HOUR_MS
DELAY_MS = 150


def delayed(ms: object) -> dict[str, Any]:
    return {"headers": {"x-delay": ms}}


# -- the header x-delay


@pytest.mark.parametrize(
    "value",
    [DELAY_MS, str(DELAY_MS), float(DELAY_MS), Decimal(DELAY_MS)],
    ids=lambda value: type(value).__name__,
)
def test_a_delayed_message_comes_later_whatever_the_type_of_its_number(
    stage: Stage, value: object
) -> None:
    queue = stage.queue()
    stage.channel.consume(queue, no_ack=True)
    watch = Stopwatch()
    stage.channel.publish("", queue, b"late", **delayed(value))
    late = delivery(stage.channel)
    watch.assert_passed(DELAY_MS)
    assert (late.body, late.redelivered, late.headers) == (b"late", False, {"x-delay": value})


@pytest.mark.parametrize("value", [0, -1, -(2**63), "0", "000", 0.0, None], ids=repr)
def test_a_delay_that_is_not_positive_is_none(stage: Stage, value: object) -> None:
    queue = stage.queue()
    stage.publish(queue, b"at once", **delayed(value))
    assert stage.channel.count(queue) == 1
    assert stage.channel.get(queue, no_ack=True).body == b"at once"


@pytest.mark.parametrize(
    "value",
    [
        THIRTY_DAYS_MS + 1,
        2**63 - 1,
        str(THIRTY_DAYS_MS + 1),
        "9" * 400,
        "0" * 30 + "9" * 30,
        "soon",
        "-5",
        "1.5",
        "",
        1.5,
        Decimal("1.5"),
        float("nan"),
        float("inf"),
        float("-inf"),
        True,
        [100],
        {"ms": 100},
        bytearray(b"100"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_a_delay_that_cannot_be_meant_is_refused(
    scene: Scene, channel: WireChannel, value: object
) -> None:
    queue = scene.queue(channel)
    channel.publish("", queue, b"", **delayed(value))
    channel.expect_close(406, "x-delay")
    assert channel.conn.open_channel().count(queue) == 0


def test_the_longest_delay_is_thirty_days(stage: Stage) -> None:
    queue = stage.queue()
    stage.publish(queue, b"next month", **delayed(THIRTY_DAYS_MS))
    assert stage.channel.count(queue) == 0


def test_what_a_mistake_in_a_delay_follows_is_published(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel)
    channel.publish("", queue, b"sound")
    channel.publish("", queue, b"unsound", **delayed("soon"))
    channel.expect_close(406, "x-delay")
    assert channel.conn.open_channel().get_all(queue) == [b"sound"]


def test_a_delayed_message_is_not_counted_until_it_is_ready(stage: Stage) -> None:
    queue = stage.queue()
    stage.publish(queue, b"later", **delayed(HOUR_MS))
    stage.publish(queue, b"soon", **delayed(DELAY_MS))
    stage.publish(queue, b"now")
    assert stage.channel.count(queue) in (1, 2)
    eventually(lambda: stage.channel.count(queue) == 2, "the second to be ready")
    assert sorted(stage.bodies(queue, 2)) == [b"now", b"soon"]
    stage.assert_empty(queue)


def test_messages_published_together_come_each_at_its_time(stage: Stage) -> None:
    queue = stage.queue()
    delays = [400, 100, 0, 300, 200, HOUR_MS]
    watch = Stopwatch()
    stage.publish_together(queue, [(b"%d" % ms, {"x-delay": ms}) for ms in delays])
    stage.channel.consume(queue, no_ack=True)
    come = []
    for _ in range(5):
        come.append(int(delivery(stage.channel).body))
        watch.assert_passed(come[-1])
    assert sorted(come) == [0, 100, 200, 300, 400]
    stage.channel.assert_quiet(queue)


def test_a_hundred_with_the_same_delay_keep_their_order(stage: Stage) -> None:
    queue = stage.queue()
    bodies = [b"%d" % number for number in range(100)]
    stage.publish_together(queue, [(body, {"x-delay": DELAY_MS}) for body in bodies])
    stage.channel.consume(queue, no_ack=True)
    assert [delivery(stage.channel).body for _ in bodies] == bodies


def test_a_message_that_is_due_goes_before_later_ones(stage: Stage) -> None:
    queue = stage.queue(delivery_limit=-1)
    stage.publish(queue, b"first", **delayed(DELAY_MS))
    stage.publish(queue, b"second")
    stage.publish(queue, b"third")
    stage.wait_for_head(queue, b"first")
    assert stage.bodies(queue, 3) == [b"first", b"second", b"third"]


def test_a_big_delayed_message_comes_whole(stage: Stage) -> None:
    queue = stage.queue()
    body = bytes(range(256)) * 2000  # several frames
    stage.publish(queue, body, **delayed(DELAY_MS))
    assert stage.bodies(queue, 1) == [body]


# -- confirms, transactions, mandatory, copies


def test_a_delayed_message_is_confirmed_when_it_is_stored_not_when_it_is_due(
    stage: Stage,
) -> None:
    queue = stage.queue()
    stage.channel.rpc(Confirm.Select())
    stage.channel.publish("", queue, b"later", delivery_mode=2, **delayed(HOUR_MS))
    assert stage.channel.expect(Basic.Ack).delivery_tag == 1
    assert stage.channel.count(queue) == 0


def test_a_delayed_message_counts_as_routed(stage: Stage) -> None:
    queue = stage.queue()
    stage.channel.rpc(Confirm.Select())
    stage.channel.publish("", queue, b"", mandatory=True, **delayed(HOUR_MS))
    stage.channel.expect(Basic.Ack)
    stage.channel.publish("", queue + "-missing", b"", mandatory=True, **delayed(HOUR_MS))
    assert stage.channel.expect(Basic.Return).reply_code == 312
    stage.channel.expect(Basic.Ack)


def test_a_transaction_publishes_its_delayed_messages_at_commit(stage: Stage) -> None:
    queue = stage.queue()
    channel = stage.open_channel()
    channel.rpc(Tx.Select())
    channel.publish("", queue, b"dropped", **delayed(1))
    channel.rpc(Tx.Rollback())
    channel.publish("", queue, b"kept", **delayed(DELAY_MS))
    watch = Stopwatch()
    channel.rpc(Tx.Commit())
    assert stage.bodies(queue, 1) == [b"kept"]
    watch.assert_passed(DELAY_MS)
    stage.assert_empty(queue)


def test_a_transaction_with_a_delay_that_cannot_be_meant_publishes_nothing_after_it(
    stage: Stage,
) -> None:
    queue = stage.queue()
    channel = stage.open_channel()
    channel.rpc(Tx.Select())
    channel.publish("", queue, b"unsound", **delayed("soon"))
    channel.publish("", queue, b"after it")
    channel.send(Tx.Commit())
    channel.expect_close(406, "x-delay")
    stage.assert_empty(queue)


def test_copies_are_delayed_as_well(stage: Stage) -> None:
    first, second, third = stage.queue(), stage.queue(), stage.queue()
    headers = {"x-delay": DELAY_MS, "CC": [second], "BCC": [third]}
    watch = Stopwatch()
    stage.publish(first, b"to all", headers=headers)
    for queue in (first, second, third):
        content = stage.take(queue)
        watch.assert_passed(DELAY_MS)
        assert content.body == b"to all"
        assert "BCC" not in content.headers


def test_each_queue_of_a_message_adds_no_delay_to_the_others(stage: Stage) -> None:
    slow, quick = stage.queue(message_delay=HOUR_MS), stage.queue()
    stage.publish(slow, b"", headers={"CC": [quick]})
    assert stage.channel.count(slow) == 0
    assert stage.channel.count(quick) == 1


# -- the argument x-message-delay


def test_a_queue_delays_every_message_that_does_not_say_otherwise(stage: Stage) -> None:
    queue = stage.queue(message_delay=DELAY_MS)
    stage.publish(queue, b"its own", **delayed(HOUR_MS))
    stage.publish(queue, b"none", **delayed(0))
    assert stage.channel.get(queue, no_ack=True).body == b"none"
    watch = Stopwatch()
    stage.publish(queue, b"the queue's", headers={"other": 1})
    assert stage.bodies(queue, 1) == [b"the queue's"]
    watch.assert_passed(DELAY_MS)
    stage.assert_empty(queue)


def test_a_message_for_a_waiting_consumer_is_delayed_too(stage: Stage) -> None:
    queue = stage.queue(message_delay=DELAY_MS)
    stage.channel.consume(queue, no_ack=True)
    watch = Stopwatch()
    stage.channel.publish("", queue, b"late")
    assert delivery(stage.channel).body == b"late"
    watch.assert_passed(DELAY_MS)


@pytest.mark.parametrize("value", [-1, THIRTY_DAYS_MS + 1, "5", True, 1.5], ids=repr)
def test_a_queue_refuses_a_delay_that_cannot_be_meant(stage: Stage, value: object) -> None:
    with pytest.raises(ChannelClosedError, match=r"406.*x-message-delay"):
        stage.queue(message_delay=value)


def test_a_requeued_message_is_not_delayed_again(stage: Stage) -> None:
    queue = stage.queue(message_delay=DELAY_MS)
    stage.publish(queue, b"x")
    stage.channel.nack(stage.take(queue).delivery_tag)
    again = stage.channel.get(queue)
    assert (again.body, again.redelivered) == (b"x", True)


# -- with expiry, dead letters, limits, purge and delete


def test_a_ttl_begins_when_the_message_is_due(stage: Stage) -> None:
    dead, arguments = stage.graveyard()
    own, queues = stage.queue(**arguments), stage.queue(message_ttl=100, **arguments)
    for queue in (own, queues):
        watch = Stopwatch()
        headers = {"x-delay": 200}
        stage.publish(queue, b"x", headers=headers, expiration="100" if queue == own else None)
        letter = stage.take(dead)
        watch.assert_passed(300)
        assert letter.headers["x-death"][0]["reason"] == "expired"
        assert letter.headers["x-death"][0]["queue"] == queue


def test_a_dead_letter_is_not_delayed_by_the_header_it_still_has(stage: Stage) -> None:
    dead, arguments = stage.graveyard()
    queue = stage.queue(**arguments)
    stage.publish(queue, b"x", **delayed(DELAY_MS))
    stage.channel.reject(stage.take(queue).delivery_tag, requeue=False)
    letter = stage.take(dead)
    assert letter.headers["x-delay"] == DELAY_MS
    assert letter.headers["x-death"][0]["reason"] == "rejected"


def test_a_queue_for_dead_letters_may_delay_them(stage: Stage) -> None:
    dead = stage.queue(message_delay=DELAY_MS)
    queue = stage.queue(dead_letter_exchange="", dead_letter_routing_key=dead)
    stage.publish(queue, b"x")
    taken = stage.take(queue)
    watch = Stopwatch()
    stage.channel.reject(taken.delivery_tag, requeue=False)
    assert stage.take(dead).headers["x-death"][0]["queue"] == queue
    watch.assert_passed(DELAY_MS)


def test_delayed_messages_do_not_count_for_the_length_until_they_are_ready(stage: Stage) -> None:
    dead, arguments = stage.graveyard()
    queue = stage.queue(max_length=2, **arguments)
    for body in (b"1", b"2", b"3"):
        stage.publish(queue, body, **delayed(DELAY_MS))
    stage.publish(queue, b"4")
    letters = stage.bodies(dead, 2)  # the oldest go when there are too many
    assert letters == [b"1", b"2"]
    assert stage.bodies(queue, 2) == [b"3", b"4"]


def test_a_full_queue_that_refuses_takes_delayed_messages_all_the_same(stage: Stage) -> None:
    queue = stage.queue(max_length=1, overflow="reject-publish")
    stage.publish(queue, b"ready")
    channel = stage.confirming()
    channel.publish("", queue, b"refused")
    channel.expect(Basic.Nack)
    channel.publish("", queue, b"later", **delayed(DELAY_MS))
    channel.expect(Basic.Ack)
    eventually(lambda: stage.channel.count(queue) == 2, "the delayed one")


def test_a_purge_takes_delayed_messages_too(stage: Stage) -> None:
    queue = stage.queue()
    stage.publish(queue, b"unacked")
    unacked = stage.take(queue)
    stage.publish(queue, b"later", **delayed(HOUR_MS))
    stage.publish(queue, b"soon", **delayed(DELAY_MS))
    stage.publish(queue, b"ready too")
    purged = stage.channel.rpc(Queue.Purge(queue=queue)).message_count
    assert purged == 3
    stage.publish(queue, b"new", **delayed(2 * DELAY_MS))
    assert stage.bodies(queue, 1) == [b"new"]
    stage.channel.nack(unacked.delivery_tag)
    assert stage.bodies(queue, 1) == [b"unacked"]


def test_a_purge_does_not_count_what_was_acked(stage: Stage) -> None:
    queue = stage.queue()
    for number in range(3):
        stage.publish(queue, b"%d" % number, **delayed(5))
    for _ in range(3):
        stage.channel.ack(stage.take(queue).delivery_tag)
    assert stage.channel.rpc(Queue.Purge(queue=queue)).message_count == 0


def test_a_deleted_queue_takes_its_delayed_messages_with_it(stage: Stage) -> None:
    queue = stage.queue()
    stage.publish(queue, b"old", **delayed(DELAY_MS))
    stage.channel.rpc(Queue.Delete(queue=queue))
    stage.declare(queue)
    stage.publish(queue, b"new", **delayed(2 * DELAY_MS))
    assert stage.bodies(queue, 1) == [b"new"]
    stage.assert_empty(queue)


# -- exchanges of type x-delayed-message


@pytest.mark.parametrize(
    ("kind", "key", "arguments", "published"),
    [
        ("direct", "k", {}, ("k", {})),
        ("fanout", "", {}, ("anything", {})),
        ("topic", "a.*.#", {}, ("a.b.c", {})),
        ("headers", "", {"colour": "red"}, ("", {"colour": "red"})),
        ("x-consistent-hash", "1", {}, ("whatever", {})),
    ],
)
def test_a_delayed_exchange_routes_as_the_type_in_its_argument(
    stage: Stage, kind: str, key: str, arguments: dict[str, Any], published: tuple[str, dict]
) -> None:
    exchange = delayed_exchange(stage, kind)
    queue = stage.queue()
    stage.channel.bind(queue, exchange, key, arguments)
    stage.publish(published[0], b"prompt", exchange, headers=published[1])
    assert stage.channel.get(queue, no_ack=True).body == b"prompt"
    watch = Stopwatch()
    headers = {"x-delay": DELAY_MS} | published[1]
    stage.publish(published[0], b"late", exchange, headers=headers)
    late = stage.take(queue)
    watch.assert_passed(DELAY_MS)
    assert (late.exchange, late.routing_key, late.body) == (exchange, published[0], b"late")


def delayed_exchange(stage: Stage, kind: str) -> str:
    arguments = {"x-delayed-type": kind}
    return stage.scene.exchange(stage.channel, "x-delayed-message", arguments=arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"x-delayed-type": "quantum"},
        {"x-delayed-type": "x-delayed-message"},
        {"x-delayed-type": ""},
        {"x-delayed-type": 5},
        {"x-delayed-type": None},
    ],
    ids=str,
)
def test_a_delayed_exchange_must_name_its_type(
    scene: Scene, channel: WireChannel, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ChannelClosedError, match=r"406.*x-delayed-type"):
        scene.exchange(channel, "x-delayed-message", arguments=arguments)


def test_a_delayed_exchange_may_be_declared_again_only_with_the_same_type(
    scene: Scene, channel: WireChannel
) -> None:
    arguments = {"x-delayed-type": "topic"}
    name = scene.exchange(channel, "x-delayed-message", arguments=arguments)
    channel.declare_exchange(name, "x-delayed-message", arguments=arguments)
    channel.declare_exchange(name, "x-delayed-message", passive=True)
    for kind, other in (
        ("x-delayed-message", {"x-delayed-type": "direct"}),
        ("x-delayed-message", {}),
        ("topic", {}),
    ):
        with pytest.raises(ChannelClosedError, match=r"406.*inequivalent arg"):
            channel.conn.open_channel().declare_exchange(name, kind, arguments=other)


def test_a_delayed_topic_exchange_checks_bindings_as_its_type_does(
    scene: Scene, channel: WireChannel
) -> None:
    exchange = scene.exchange(
        channel, "x-delayed-message", arguments={"x-delayed-type": "x-consistent-hash"}
    )
    queue = scene.queue(channel)
    with pytest.raises(ChannelClosedError, match="406"):
        channel.bind(queue, exchange, "not a weight")


def test_delays_go_through_exchanges_bound_to_exchanges(stage: Stage) -> None:
    first, second = delayed_exchange(stage, "fanout"), delayed_exchange(stage, "topic")
    plain = stage.scene.exchange(stage.channel, "fanout")
    queue = stage.queue()
    for source, target in ((plain, first), (first, second)):
        bind = unvalidated(
            Exchange.Bind, source=source, destination=target, routing_key="#", arguments={}
        )
        stage.channel.rpc(bind)
    stage.channel.bind(queue, second, "a.#")
    watch = Stopwatch()
    stage.publish("a.b", b"through three", plain, **delayed(DELAY_MS))
    assert stage.take(queue).body == b"through three"
    watch.assert_passed(DELAY_MS)


def test_a_delayed_exchange_has_its_alternate(stage: Stage) -> None:
    arguments = {"x-delayed-type": "direct", "alternate-exchange": "amq.fanout"}
    exchange = stage.scene.exchange(stage.channel, "x-delayed-message", arguments=arguments)
    queue = stage.queue()
    stage.channel.bind(queue, "amq.fanout")
    stage.publish("nobody's", b"x", exchange, **delayed(DELAY_MS))
    assert stage.take(queue).body == b"x"
