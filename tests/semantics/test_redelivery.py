"""What comes back: its place, its flag, its count, and how fast the rest of a crowd follows."""

from typing import Any

import pytest

from tests.semantics.stage import Stage, Stopwatch, delivery
from tests.support.frames import Basic, Content, Queue, Tx
from tests.support.waiting import eventually
from tests.support.wire import ChannelClosedError, WireChannel

pytestmark = pytest.mark.leveret_only  # limits, priorities and places in every kind of queue


def fill(stage: Stage, queue: str, count: int) -> list[bytes]:
    bodies = [b"%d" % number for number in range(count)]
    stage.publish_together(queue, [(body, {}) for body in bodies])
    return bodies


def hold_all(stage: Stage, queue: str, count: int) -> WireChannel:
    """A consumer on a connection of its own that has so many and acks none."""
    channel = stage.open_channel()
    channel.consume(queue)
    for _ in range(count):
        delivery(channel)
    return channel


def seen(content: Content) -> tuple[bytes, bool]:
    return content.body, content.redelivered


# -- place, flag and count


@pytest.mark.parametrize("lost", ["closed", "aborted", "channel closed"])
def test_what_a_lost_consumer_held_goes_to_another_in_order_and_flagged(
    stage: Stage, lost: str
) -> None:
    queue = stage.queue()
    bodies = fill(stage, queue, 10)
    holder = hold_all(stage, queue, 10)
    stage.publish(queue, b"fresh")
    stage.channel.consume(queue)
    # The holder has no limit, and so may have been given this one too.
    if lost == "channel closed":
        holder.close()
    elif lost == "closed":
        holder.conn.close()
    else:
        holder.conn.abort()
    got = [delivery(stage.channel) for _ in range(11)]
    returned = [content.body for content in got if content.body != b"fresh"]
    assert returned == bodies
    assert all(content.redelivered for content in got if content.body != b"fresh")


def test_requeued_messages_regain_their_places(stage: Stage) -> None:
    queue = stage.queue()
    fill(stage, queue, 6)
    tags = [stage.take(queue).delivery_tag for _ in range(4)]
    for tag in (tags[2], tags[0], tags[3]):
        stage.channel.nack(tag)
    stage.channel.settle(queue)
    assert stage.bodies(queue, 5) == [b"0", b"2", b"3", b"4", b"5"]


def test_deliveries_are_counted_where_the_queue_is_a_quorum_queue(stage: Stage) -> None:
    queue = stage.queue()
    stage.publish(queue, b"x", headers={"mine": 1})
    counts = []
    for turn in range(4):
        content = stage.take(queue)
        counts.append(content.headers.get("x-delivery-count"))
        assert content.headers["mine"] == 1
        assert content.redelivered == bool(turn)
        stage.channel.nack(content.delivery_tag)
    quorum = stage.kind == "quorum"
    assert counts == ([None, 1, 2, 3] if quorum else [None] * 4)


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_after_so_many_returns_a_message_is_dead_lettered(stage: Stage, limit: int) -> None:
    dead, arguments = stage.graveyard()
    queue = stage.queue(delivery_limit=limit, **arguments)
    stage.publish(queue, b"x")
    for _ in range(limit + 1):
        stage.channel.nack(stage.take(queue).delivery_tag)
    letter = stage.take(dead)
    (death,) = letter.headers["x-death"]
    assert (death["reason"], death["queue"], death["count"]) == ("delivery_limit", queue, 1)
    stage.assert_empty(queue)


def test_a_quorum_queue_gives_up_after_twenty_returns_and_others_never(stage: Stage) -> None:
    dead, arguments = stage.graveyard()
    queue = stage.queue(**arguments)
    stage.publish(queue, b"x")
    for _ in range(21):
        stage.channel.nack(stage.take(queue).delivery_tag)
    if stage.kind == "quorum":
        assert stage.take(dead).headers["x-death"][0]["reason"] == "delivery_limit"
    else:
        assert stage.take(queue).redelivered


def test_without_dead_letters_the_limit_drops_the_message(stage: Stage) -> None:
    queue = stage.queue(delivery_limit=0)
    stage.publish(queue, b"x")
    stage.channel.nack(stage.take(queue).delivery_tag)
    stage.assert_empty(queue)


def test_returns_of_a_transaction_happen_at_commit(stage: Stage) -> None:
    queue = stage.queue()
    fill(stage, queue, 2)
    channel = stage.open_channel()
    channel.rpc(Tx.Select())
    channel.nack(channel.get(queue).delivery_tag)
    channel.rpc(Basic.Qos())
    assert seen(stage.take(queue)) == (b"1", False)
    channel.rpc(Tx.Commit())
    assert seen(stage.take(queue)) == (b"0", True)


# -- a crowd


RATE = 40


def test_what_a_mass_disconnect_gives_back_comes_in_order_at_a_bounded_rate(stage: Stage) -> None:
    queue = stage.queue(redelivery_rate=RATE)
    bodies = fill(stage, queue, 2 * RATE)
    holder = hold_all(stage, queue, 2 * RATE)
    waiting = stage.open_channel()
    waiting.consume(queue)
    watch = Stopwatch()
    holder.conn.abort()
    for place, body in enumerate(bodies, start=1):
        assert seen(delivery(waiting)) == (body, True)
        # A burst of RATE, and then so many a second; one may be due at this very moment.
        watch.assert_passed(max(0, (place - RATE - 1) * 1000 // RATE))


def test_messages_that_wait_for_their_turn_are_ready_but_not_to_be_had(stage: Stage) -> None:
    queue = stage.queue(redelivery_rate=1)
    fill(stage, queue, 200)
    hold_all(stage, queue, 200).conn.abort()
    eventually(lambda: stage.channel.count(queue) == 200, "all to be counted")
    assert seen(stage.take(queue)) == (b"0", True)
    assert stage.channel.rpc(Queue.Purge(queue=queue)).message_count == 199
    stage.publish(queue, b"fresh")
    assert seen(stage.take(queue)) == (b"fresh", False)


def test_fresh_messages_do_not_wait_behind_them(stage: Stage) -> None:
    queue = stage.queue(redelivery_rate=1)
    fill(stage, queue, 200)
    hold_all(stage, queue, 200).conn.abort()
    eventually(lambda: stage.channel.count(queue) == 200, "all to be counted")
    stage.publish(queue, b"fresh")
    stage.channel.consume(queue)
    got = [seen(delivery(stage.channel))]
    while (b"fresh", False) not in got:
        got.append(seen(delivery(stage.channel)))
    assert len(got) < 200  # which would take minutes


@pytest.mark.parametrize("rate", [0, None], ids=["no limit", "the default"])
def test_a_crowd_that_is_not_large_comes_back_at_once(stage: Stage, rate: int | None) -> None:
    queue = stage.queue(**({} if rate is None else {"redelivery_rate": rate}))
    bodies = fill(stage, queue, 2000)
    hold_all(stage, queue, 2000).conn.abort()
    eventually(lambda: stage.channel.count(queue) == 2000, "all to be counted")
    stage.channel.consume(queue, no_ack=True)
    assert [delivery(stage.channel).body for _ in bodies] == bodies


def test_what_a_consumer_hands_back_itself_is_not_slowed_down(stage: Stage) -> None:
    queue = stage.queue(redelivery_rate=1, delivery_limit=-1)
    bodies = fill(stage, queue, 500)
    stage.channel.consume(queue)
    last = [delivery(stage.channel) for _ in bodies][-1]
    stage.channel.nack(last.delivery_tag, multiple=True)
    assert [delivery(stage.channel).body for _ in bodies] == bodies


@pytest.mark.parametrize("value", [-1, "fast", 1.5, 10**10], ids=repr)
def test_a_rate_that_cannot_be_meant_is_refused(stage: Stage, value: Any) -> None:
    with pytest.raises(ChannelClosedError, match=r"406.*x-redelivery-rate"):
        stage.queue(redelivery_rate=value)
