"""Leases: how long a message may stay unacked, and how its holder asks for more time."""

from typing import Any

import pytest
from pamqp import base

from tests.semantics.stage import HOUR_MS, Stage, Stopwatch, delivery
from tests.support.frames import Basic, Channel, Confirm, Content, Exchange, Tx, kind_of
from tests.support.waiting import eventually
from tests.support.wire import ChannelClosedError, WireChannel

pytestmark = pytest.mark.leveret_only

LEASE_MS = 150
LEASES = "amq.leveret.lease"
# A consumer that may take its time: what it holds does not come back during a test.
PATIENT = {"x-consumer-timeout": HOUR_MS}
BOTH_NAMES = pytest.mark.parametrize("name", ["visibility_timeout", "consumer_timeout"])


def extend(channel: WireChannel, tag: object, lease_ms: object = None) -> bool:
    """Ask for more time; whether there was such a lease."""
    headers = {} if lease_ms is None else {"x-lease-ms": lease_ms}
    channel.publish(LEASES, str(tag), mandatory=True, headers=headers)
    channel.rpc(Basic.Qos())
    inbox = channel.conn._inbox[channel.number]
    returned = [item for item in inbox if kind_of(item) is Basic.Return]
    for item in returned:
        inbox.remove(item)
    return not returned


def hold(channel: WireChannel, queue: str, **arguments: Any) -> Content:
    """Have a message delivered, and consume no more: it stays with the channel."""
    tag = channel.consume(queue, arguments=arguments)
    content = delivery(channel)
    channel.cancel(tag)
    return content


def ack_in_time(channel: WireChannel, queue: str, *first: base.Frame) -> None:
    """Ack a message before its lease is over, however often that takes."""
    while True:
        for method in first:
            channel.rpc(method)
        held = hold(channel, queue)
        channel.ack(held.delivery_tag)
        try:
            channel.settle(queue)
        except ChannelClosedError:  # the machine stood still
            channel.send(Channel.CloseOk())
            channel.rpc(Channel.Open())
        else:
            return


def wait_for_leases(stage: Stage) -> None:
    """Until leases that began before this have been over for as long again."""
    queue = stage.queue(visibility_timeout=2 * LEASE_MS)
    stage.publish(queue, b"")
    hold(stage.channel, queue)
    assert hold(stage.channel, queue, **PATIENT).redelivered


# -- the end of a lease


@BOTH_NAMES
def test_an_unacked_message_goes_to_another_consumer(stage: Stage, name: str) -> None:
    queue = stage.queue(**{name: LEASE_MS})
    stage.publish(queue, b"x")
    watch = Stopwatch()
    held = hold(stage.channel, queue)
    other = stage.open_channel()
    other.consume(queue, arguments=PATIENT)
    again = delivery(other)
    watch.assert_passed(LEASE_MS)
    assert (held.body, held.redelivered) == (b"x", False)
    assert (again.body, again.redelivered) == (b"x", True)
    assert again.headers.get("x-delivery-count") == (1 if stage.kind == "quorum" else None)


def test_a_late_ack_is_an_unknown_tag_and_the_redelivered_message_survives_it(
    stage: Stage,
) -> None:
    queue = stage.queue(visibility_timeout=LEASE_MS)
    stage.publish(queue, b"x")
    late = stage.open_channel()
    held = hold(late, queue)
    other = stage.open_channel()
    other.consume(queue, arguments=PATIENT)
    again = delivery(other)
    late.ack(held.delivery_tag)
    late.expect_close(406, f"unknown delivery tag {held.delivery_tag}")
    other.nack(again.delivery_tag)  # it is still there, and still held by the other
    assert delivery(other).body == b"x"


@pytest.mark.parametrize("settle", ["nack", "reject"])
def test_a_late_nack_is_an_unknown_tag_too(stage: Stage, settle: str) -> None:
    queue = stage.queue(visibility_timeout=LEASE_MS)
    stage.publish(queue, b"x")
    late = stage.open_channel()
    held = hold(late, queue)
    other = stage.open_channel()
    other.consume(queue, arguments=PATIENT)
    delivery(other)
    getattr(late, settle)(held.delivery_tag)
    late.expect_close(406, f"unknown delivery tag {held.delivery_tag}")


def test_an_ack_in_time_ends_the_lease(stage: Stage) -> None:
    queue = stage.queue(visibility_timeout=LEASE_MS)
    stage.publish(queue, b"x")
    ack_in_time(stage.open_channel(), queue)
    wait_for_leases(stage)
    stage.assert_empty(queue)


def test_the_lease_of_a_consumer_overrides_the_queues(stage: Stage) -> None:
    queue = stage.queue(visibility_timeout=HOUR_MS)
    stage.publish(queue, b"x")
    watch = Stopwatch()
    first = hold(stage.channel, queue, **{"x-consumer-timeout": LEASE_MS})
    again = hold(stage.channel, queue)
    watch.assert_passed(LEASE_MS)
    assert (first.body, again.body, again.redelivered) == (b"x", b"x", True)


def test_a_consumer_may_have_a_lease_where_the_queue_has_none(stage: Stage) -> None:
    queue = stage.queue()
    stage.publish(queue, b"x")
    hold(stage.channel, queue, **{"x-consumer-timeout": LEASE_MS})
    assert hold(stage.channel, queue).redelivered


@pytest.mark.parametrize("value", [0, -1, "5", 2**40, True, 0.5], ids=repr)
def test_a_lease_that_cannot_be_meant_is_refused(stage: Stage, value: object) -> None:
    queue = stage.queue()
    for argument in ("visibility_timeout", "consumer_timeout"):
        with pytest.raises(ChannelClosedError, match=f"406.*x-{argument.replace('_', '-')}"):
            stage.queue(**{argument: value})
        stage.channel = stage.open_channel()
    with pytest.raises(ChannelClosedError, match=r"406.*x-consumer-timeout"):
        stage.channel.consume(queue, arguments={"x-consumer-timeout": value})


def test_a_message_that_was_fetched_is_leased_too(stage: Stage) -> None:
    queue = stage.queue(visibility_timeout=LEASE_MS)
    stage.publish(queue, b"x")
    watch = Stopwatch()
    fetched = stage.channel.get(queue)
    again = stage.take(queue)
    watch.assert_passed(LEASE_MS)
    assert (fetched.body, again.body, again.redelivered) == (b"x", b"x", True)
    late = fetched.delivery_tag
    stage.channel.ack(late)
    stage.channel.expect_close(406, f"unknown delivery tag {late}")


def test_no_lease_holds_for_consumers_that_do_not_ack(stage: Stage) -> None:
    queue = stage.queue(visibility_timeout=1)
    stage.channel.consume(queue, no_ack=True)
    stage.publish(queue, b"1")
    stage.publish(queue, b"2")
    assert [delivery(stage.channel).body for _ in range(2)] == [b"1", b"2"]
    stage.channel.assert_quiet(queue)


def test_messages_come_back_in_their_order_and_before_others(stage: Stage) -> None:
    queue = stage.queue(visibility_timeout=LEASE_MS)
    bodies = [b"%d" % number for number in range(5)]
    stage.publish_together(queue, [(body, {}) for body in bodies])
    stage.channel.qos(3)
    tag = stage.channel.consume(queue)
    assert [delivery(stage.channel).body for _ in range(3)] == bodies[:3]
    stage.channel.cancel(tag)
    eventually(lambda: stage.channel.count(queue) == 5, "the end of the leases")
    channel = stage.open_channel()
    channel.consume(queue, arguments=PATIENT)
    assert [delivery(channel).body for _ in range(5)] == bodies


def test_an_ack_of_several_leaves_out_one_whose_lease_is_over(stage: Stage) -> None:
    queue, brief = stage.queue(), stage.queue(visibility_timeout=LEASE_MS)
    channel = stage.open_channel()
    first = _fetch(stage, channel, queue, b"1")
    second = _fetch(stage, channel, brief, b"2")
    third = _fetch(stage, channel, queue, b"3")
    assert (first, second, third) == (1, 2, 3)
    assert hold(stage.channel, brief, **PATIENT).redelivered
    channel.ack(third, multiple=True)
    channel.settle(queue)
    assert channel.count(queue) == 0
    channel.conn.close()  # whatever was not acked would come back
    stage.assert_empty(queue)


def test_an_ack_of_several_up_to_one_whose_lease_is_over_acks_nothing(stage: Stage) -> None:
    queue, brief = stage.queue(), stage.queue(visibility_timeout=LEASE_MS)
    channel = stage.open_channel()
    _fetch(stage, channel, queue, b"1")
    second = _fetch(stage, channel, brief, b"2")
    assert hold(stage.channel, brief, **PATIENT).redelivered
    channel.ack(second, multiple=True)
    channel.expect_close(406, f"unknown delivery tag {second}")
    assert stage.bodies(queue, 1) == [b"1"]


def _fetch(stage: Stage, channel: WireChannel, queue: str, body: bytes) -> int:
    stage.publish(queue, body)
    return channel.get(queue).delivery_tag


# -- credit


def test_the_credit_of_a_message_comes_back_with_it(stage: Stage) -> None:
    queue = stage.queue(visibility_timeout=LEASE_MS, retry_delay=HOUR_MS)
    stage.channel.qos(1)
    stage.channel.consume(queue)
    for body in (b"1", b"2", b"3"):
        stage.publish(queue, body)
    assert [delivery(stage.channel).body for _ in range(3)] == [b"1", b"2", b"3"]


def test_the_credit_of_a_channel_comes_back_to_its_other_consumers(stage: Stage) -> None:
    queue = stage.queue(visibility_timeout=LEASE_MS, retry_delay=HOUR_MS)
    other = stage.queue()
    stage.publish(queue, b"held")
    stage.publish(other, b"waits")
    stage.channel.qos(1, global_=True)
    stage.channel.consume(queue)
    assert delivery(stage.channel).body == b"held"
    stage.channel.consume(other)
    assert delivery(stage.channel).body == b"waits"


def test_with_a_retry_delay_the_message_waits_for_that_as_well(stage: Stage) -> None:
    queue = stage.queue(visibility_timeout=LEASE_MS, retry_delay=200)
    stage.publish(queue, b"x")
    watch = Stopwatch()
    hold(stage.channel, queue)
    assert hold(stage.channel, queue).redelivered
    watch.assert_passed(LEASE_MS + 200)


def test_a_message_that_nobody_acks_in_time_is_dead_lettered_in_the_end(stage: Stage) -> None:
    dead, arguments = stage.graveyard()
    queue = stage.queue(visibility_timeout=50, delivery_limit=2, **arguments)
    stage.publish(queue, b"x")
    consumer = stage.open_channel()
    consumer.consume(queue)
    letter = stage.take(dead)
    assert letter.headers["x-death"][0]["reason"] == "delivery_limit"
    assert [delivery(consumer).redelivered for _ in range(3)] == [False, True, True]
    consumer.assert_quiet(queue)


# -- transactions


def test_a_message_acked_in_a_transaction_does_not_come_back_before_it_is_over(
    stage: Stage,
) -> None:
    queue = stage.queue(visibility_timeout=LEASE_MS)
    stage.publish(queue, b"x")
    channel = stage.open_channel()
    ack_in_time(channel, queue, Tx.Select())
    wait_for_leases(stage)
    stage.assert_empty(queue)
    channel.rpc(Tx.Rollback())
    again = stage.take(queue)  # and now the lease has an end again
    assert (again.body, again.redelivered) == (b"x", True)


# -- more time


@pytest.mark.parametrize("everything", [False, True])
def test_a_lease_that_is_extended_outlasts_others(stage: Stage, everything: bool) -> None:
    other = stage.open_channel()
    for _ in range(10):
        queue = stage.queue(visibility_timeout=800)
        stage.publish_together(queue, [(b"extended", {}), (b"not extended", {})])
        held, lost = stage.take(queue), other.get(queue)
        tag = 0 if everything else held.delivery_tag
        if extend(stage.channel, tag, HOUR_MS) and lost.body == b"not extended":
            break  # else the machine stood still
    again = hold(other, queue, **PATIENT)
    assert (again.body, again.redelivered) == (b"not extended", True)
    stage.channel.ack(held.delivery_tag)
    stage.assert_empty(queue)


def test_an_extension_counts_from_the_call_and_may_shorten_a_lease(stage: Stage) -> None:
    queue = stage.queue(visibility_timeout=HOUR_MS)
    stage.publish(queue, b"x")
    held = stage.take(queue)
    watch = Stopwatch()
    assert extend(stage.channel, held.delivery_tag, LEASE_MS)
    assert hold(stage.channel, queue).redelivered
    watch.assert_passed(LEASE_MS)


@BOTH_NAMES
def test_without_a_time_of_its_own_an_extension_is_as_long_as_the_lease(
    stage: Stage, name: str
) -> None:
    queue = stage.queue(**{name: 500})
    stage.publish(queue, b"x")
    extended = False
    while not extended:
        held = stage.take(queue)
        watch = Stopwatch()
        extended = extend(stage.channel, held.delivery_tag)
    assert hold(stage.channel, queue, **PATIENT).redelivered
    watch.assert_passed(500)


def test_a_lease_of_a_consumer_alone_is_extended_by_as_long_again(stage: Stage) -> None:
    queue = stage.queue()
    stage.publish(queue, b"x")
    tag = hold(stage.channel, queue, **PATIENT).delivery_tag
    assert extend(stage.channel, tag, HOUR_MS // 2)
    assert extend(stage.channel, tag)
    wait_for_leases(stage)
    stage.assert_empty(queue)


@pytest.mark.parametrize("lease_ms", [str(LEASE_MS), float(LEASE_MS)], ids=repr)
def test_the_time_may_be_any_kind_of_number(stage: Stage, lease_ms: object) -> None:
    queue = stage.queue(visibility_timeout=HOUR_MS)
    stage.publish(queue, b"x")
    assert extend(stage.channel, stage.take(queue).delivery_tag, lease_ms)
    assert stage.take(queue).redelivered


def test_all_leases_of_a_channel_are_extended_at_once_by_tag_zero(stage: Stage) -> None:
    one, two, without = (
        stage.queue(visibility_timeout=HOUR_MS),
        stage.queue(visibility_timeout=HOUR_MS),
        stage.queue(),
    )
    for queue in (one, two, without):
        stage.publish(queue, b"x")
        stage.take(queue)
    assert extend(stage.channel, 0, LEASE_MS)
    assert stage.take(one).redelivered
    assert stage.take(two).redelivered
    stage.assert_empty(without)


def test_where_there_is_no_such_lease_an_extension_is_returned(stage: Stage) -> None:
    leased, free = stage.queue(visibility_timeout=HOUR_MS), stage.queue()
    stage.publish(leased, b"x")
    stage.publish(free, b"x")
    assert not extend(stage.channel, 0)
    held = stage.take(leased)
    unleased = stage.take(free)
    assert not extend(stage.channel, unleased.delivery_tag, LEASE_MS)
    assert not extend(stage.channel, 99)
    assert not extend(stage.channel, 2**63)
    another = stage.channel.conn.open_channel()
    assert not extend(another, held.delivery_tag)  # tags are a channel's own
    assert extend(stage.channel, held.delivery_tag)
    stage.channel.ack(held.delivery_tag)
    assert not extend(stage.channel, held.delivery_tag)


def test_an_extension_is_confirmed_and_goes_nowhere(stage: Stage) -> None:
    queue = stage.queue(visibility_timeout=HOUR_MS)
    stage.channel.bind(queue, LEASES, "1")
    stage.publish(queue, b"x")
    held = stage.take(queue)
    stage.channel.rpc(Confirm.Select())
    for tag, returned in ((held.delivery_tag, False), (99, True)):
        stage.channel.publish(LEASES, str(tag), mandatory=True)
        if returned:
            assert stage.channel.expect(Basic.Return).reply_code == 312
        stage.channel.expect(Basic.Ack)
    stage.channel.publish(LEASES, "99")  # not mandatory: nobody cares
    stage.channel.expect(Basic.Ack)
    stage.assert_empty(queue)


@pytest.mark.parametrize("key", ["", "all", "-1", "1.0", "1 ", "٣", "0x1", "0" * 20 + "1"])
def test_a_key_that_is_no_delivery_tag_is_refused(channel: WireChannel, key: str) -> None:
    channel.publish(LEASES, key)
    channel.expect_close(406, "delivery tag")


@pytest.mark.parametrize(
    "value", [0, -1, "", "soon", "-1", 2**40, float("nan"), True, [1], bytearray(b"1")], ids=repr
)
def test_a_time_that_cannot_be_meant_is_refused(channel: WireChannel, value: object) -> None:
    channel.publish(LEASES, "1", headers={"x-lease-ms": value})
    channel.expect_close(406, "x-lease-ms")


def test_the_lease_exchange_can_be_neither_deleted_nor_declared_otherwise(
    channel: WireChannel,
) -> None:
    channel.declare_exchange(LEASES, passive=True)
    with pytest.raises(ChannelClosedError, match="403"):
        channel.rpc(Exchange.Delete(exchange=LEASES))
    with pytest.raises(ChannelClosedError, match="406"):
        channel.conn.open_channel().declare_exchange(LEASES, "fanout", durable=True)
