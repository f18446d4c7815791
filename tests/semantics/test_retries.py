"""Retries in the broker: a failed message comes back later, each time later, until the limit."""

import pytest

from tests.semantics.stage import HOUR_MS, Stage, Stopwatch, delivery
from tests.support.frames import Basic, Queue
from tests.support.wire import ChannelClosedError

pytestmark = pytest.mark.leveret_only

RETRY_MS = 120


@pytest.mark.parametrize("how", ["nack", "reject", "recover"])
def test_a_failed_message_comes_back_after_the_retry_delay(stage: Stage, how: str) -> None:
    queue = stage.queue(retry_delay=RETRY_MS)
    stage.publish(queue, b"x")
    first = stage.take(queue)
    watch = Stopwatch()
    if how == "recover":
        stage.channel.rpc(Basic.Recover(requeue=True))
    else:
        getattr(stage.channel, how)(first.delivery_tag)
    again = stage.take(queue)
    watch.assert_passed(RETRY_MS)
    assert (again.body, again.redelivered) == (b"x", True)
    stage.channel.ack(again.delivery_tag)
    stage.assert_empty(queue)


def test_a_message_that_waits_for_its_retry_is_not_ready_and_holds_nobody_up(stage: Stage) -> None:
    queue = stage.queue(retry_delay=HOUR_MS)
    for body in (b"fails", b"second", b"third"):
        stage.publish(queue, body)
    stage.channel.nack(stage.take(queue).delivery_tag)
    stage.channel.settle(queue)
    assert stage.channel.count(queue) == 2
    assert stage.bodies(queue, 2) == [b"second", b"third"]
    stage.assert_empty(queue)


def test_a_failed_message_gives_its_credit_back_while_it_waits(stage: Stage) -> None:
    queue = stage.queue(retry_delay=HOUR_MS)
    stage.channel.qos(1)
    stage.channel.consume(queue)
    stage.publish(queue, b"fails")
    stage.publish(queue, b"second")
    stage.channel.nack(delivery(stage.channel).delivery_tag)
    assert delivery(stage.channel).body == b"second"


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        ("exponential", [100, 200, 250]),
        ("constant", [100, 100, 100]),
        (None, [100, 100, 100]),
        (3, [100, 250, 250]),
        (1.5, [100, 150, 225]),
    ],
    ids=str,
)
def test_each_retry_waits_longer_until_the_limit_sends_it_to_the_dead_letters(
    stage: Stage, backoff: object, waits: list[int]
) -> None:
    dead, arguments = stage.graveyard()
    arguments |= {"retry_delay": 100, "retry_max_delay": 250, "delivery_limit": 3}
    if backoff is not None:
        arguments["retry_backoff"] = backoff
    queue = stage.queue(**arguments)
    stage.publish(queue, b"hopeless")
    stage.channel.consume(queue)
    got = delivery(stage.channel)
    assert "x-delivery-count" not in got.headers
    for failures, wait_ms in enumerate(waits, start=1):
        watch = Stopwatch()
        stage.channel.nack(got.delivery_tag)
        got = delivery(stage.channel)
        watch.assert_passed(wait_ms)
        assert got.redelivered
        counted = failures if stage.kind == "quorum" else None
        assert got.headers.get("x-delivery-count") == counted
    stage.channel.nack(got.delivery_tag)
    channel, stage.channel = stage.channel, stage.open_channel()
    letter = stage.take(dead)
    (death,) = letter.headers["x-death"]
    assert (death["reason"], death["count"], death["queue"]) == ("delivery_limit", 1, queue)
    assert letter.body == b"hopeless"
    channel.assert_quiet(queue)


def test_a_rejection_without_requeue_goes_to_the_dead_letters_at_once(stage: Stage) -> None:
    dead, arguments = stage.graveyard()
    queue = stage.queue(retry_delay=HOUR_MS, **arguments)
    stage.publish(queue, b"x")
    stage.channel.nack(stage.take(queue).delivery_tag, requeue=False)
    assert stage.take(dead).headers["x-death"][0]["reason"] == "rejected"


def test_what_a_lost_consumer_held_comes_back_at_once_and_counts_as_failed(stage: Stage) -> None:
    dead, arguments = stage.graveyard()
    queue = stage.queue(retry_delay=HOUR_MS, delivery_limit=2, **arguments)
    stage.publish(queue, b"x")
    for _ in range(3):
        lost = stage.open_channel()
        lost.consume(queue)
        assert delivery(lost).body == b"x"
        lost.conn.abort()
    assert stage.take(dead).headers["x-death"][0]["reason"] == "delivery_limit"


def test_several_failures_at_once_come_back_in_their_order(stage: Stage) -> None:
    queue = stage.queue(retry_delay=RETRY_MS)
    bodies = [b"%d" % number for number in range(20)]
    stage.publish_together(queue, [(body, {}) for body in bodies])
    stage.channel.consume(queue)
    last = [delivery(stage.channel) for _ in bodies][-1]
    stage.channel.nack(last.delivery_tag, multiple=True)
    again = [delivery(stage.channel) for _ in bodies]
    assert [content.body for content in again] == bodies


def test_a_delayed_message_that_fails_waits_for_its_retry_as_others_do(stage: Stage) -> None:
    queue = stage.queue(retry_delay=RETRY_MS)
    watch = Stopwatch()
    stage.publish(queue, b"x", headers={"x-delay": 100})
    stage.channel.nack(stage.take(queue).delivery_tag)
    again = stage.take(queue)
    watch.assert_passed(100 + RETRY_MS)
    assert again.redelivered


def test_a_message_may_expire_while_it_waits_for_its_retry(stage: Stage) -> None:
    dead, arguments = stage.graveyard()
    queue = stage.queue(retry_delay=300, **arguments)
    stage.publish(queue, b"keeps its time", expiration="250")
    held = stage.channel.get(queue)
    if held is not None:  # else the machine stood still for so long that it expired before
        stage.channel.nack(held.delivery_tag)
    assert stage.take(dead).headers["x-death"][0]["reason"] == "expired"


def test_a_purge_takes_messages_that_wait_for_their_retry(stage: Stage) -> None:
    queue = stage.queue(retry_delay=HOUR_MS)
    stage.publish(queue, b"failed")
    stage.publish(queue, b"ready")
    stage.channel.nack(stage.take(queue).delivery_tag)
    assert stage.channel.rpc(Queue.Purge(queue=queue)).message_count == 2


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("retry_delay", -1),
        ("retry_delay", "5s"),
        ("retry_backoff", 0),
        ("retry_backoff", 1001),
        ("retry_backoff", "linear"),
        ("retry_backoff", float("nan")),
        ("retry_max_delay", 0),
        ("retry_max_delay", True),
    ],
    ids=str,
)
def test_a_retry_that_cannot_be_meant_is_refused(
    stage: Stage, argument: str, value: object
) -> None:
    with pytest.raises(ChannelClosedError, match=f"406.*x-{argument.replace('_', '-')}"):
        stage.queue(**{argument: value})
