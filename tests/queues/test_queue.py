"""A queue's life at its edges: deletion, disuse, timers, and messages that die."""

import pytest

from queues.consumers import Consumer
from tests.queues.fakes import (
    FakeContext,
    FakeReceipt,
    FakeSink,
    consume,
    message,
    names,
    new_queue,
)


@pytest.fixture
def context():
    return FakeContext()


def publish(queue, *messages):
    receipt = FakeReceipt()
    queue.publish(list(messages), receipt)
    return receipt


# Deletion


def test_a_deleted_queue_tells_its_consumers_and_how_many_were_ready(context):
    queue = new_queue(context)
    sink = FakeSink()
    consume(queue, sink, "a", prefetch=1)
    consume(queue, sink, "b", prefetch=1)
    publish(queue, *[message(n) for n in range(5)])
    assert queue.delete() == 3
    assert sink.cancelled == ["a", "b"]
    assert (queue.ready, queue.ready_bytes) == (0, 0)


def test_what_is_published_to_a_deleted_queue_is_confirmed_and_goes_nowhere(context):
    queue = new_queue(context)
    queue.delete()
    assert publish(queue, message(0)).answers == [[]]
    assert queue.ready == 0


@pytest.mark.parametrize("how", ["settle", "requeue", "discard"])
def test_what_consumers_of_a_deleted_queue_hand_back_is_gone(context, how):
    queue = new_queue(context)
    sink = FakeSink()
    consumer = consume(queue, sink, prefetch=1)
    publish(queue, message(0), message(1))
    queue.delete()
    consumer.release(1)
    getattr(queue, how)(consumer, [sink.delivered[0][1]])
    queue.consumer_ready(consumer)
    queue.remove_consumer(consumer)
    assert (queue.ready, context.dead, sink.names) == (0, [], [0])


def test_timers_of_a_deleted_queue_do_nothing(context):
    queue = new_queue(context, message_ttl_ms=5, expires_ms=10)
    publish(queue, message(0))
    queue.delete()
    context.advance(30)
    assert (context.dead, context.unused) == ([], [])


# Disuse


def test_an_auto_delete_queue_is_unused_when_its_last_consumer_leaves(context):
    queue = new_queue(context, auto_delete=True)
    sink = FakeSink()
    first, second = consume(queue, sink, "a"), consume(queue, sink, "b")
    queue.remove_consumer(first)
    assert context.unused == []
    queue.remove_consumer(second)
    assert context.unused == [queue]


def test_an_auto_delete_queue_that_never_had_a_consumer_stays(context):
    queue = new_queue(context, auto_delete=True)
    publish(queue, message(0))
    queue.get(Consumer("", queue, FakeSink(), no_ack=True, fetching=True))
    context.advance(100)
    assert context.unused == []


def test_a_queue_expires_after_its_time_without_use(context):
    queue = new_queue(context, expires_ms=50)
    context.advance(49)
    assert context.unused == []
    context.advance(1)
    assert context.unused == [queue]


@pytest.mark.parametrize("use", ["touch", "get", "consumer"])
def test_each_use_puts_the_expiry_of_a_queue_off(context, use):
    queue = new_queue(context, expires_ms=50)
    context.advance(30)
    if use == "touch":
        queue.touch()
    elif use == "get":
        queue.get(Consumer("", queue, FakeSink(), fetching=True))
    else:
        queue.remove_consumer(consume(queue, FakeSink()))
    context.advance(49)
    assert context.unused == []
    context.advance(1)
    assert context.unused == [queue]


def test_a_queue_with_a_consumer_does_not_expire(context):
    queue = new_queue(context, expires_ms=50)
    consumer = consume(queue, FakeSink())
    context.advance(500)
    assert context.unused == []
    queue.remove_consumer(consumer)
    context.advance(50)
    assert context.unused == [queue]


def test_publishing_is_no_use(context):
    queue = new_queue(context, expires_ms=50)
    context.advance(30)
    publish(queue, message(0))
    context.advance(20)
    assert context.unused == [queue]


# Expiry of messages


def test_the_smaller_of_both_ttls_counts(context):
    queue = new_queue(context, message_ttl_ms=20)
    publish(
        queue,
        message(0, expires_at=context.now + 10),
        message(1, expires_at=context.now + 90),
        message(2),
    )
    context.advance(10)
    assert context.dead == [(0, "expired")]
    context.advance(10)
    assert context.dead == [(0, "expired"), (1, "expired"), (2, "expired")]


def test_a_message_waits_behind_one_that_lives_longer(context):
    queue = new_queue(context)
    publish(queue, message(0), message(1, expires_at=context.now + 5))
    context.advance(10)
    assert (context.dead, queue.ready) == ([], 2)
    assert names([queue.get(Consumer("", queue, FakeSink(), no_ack=True, fetching=True))]) == [0]
    assert context.dead == [(1, "expired")]


@pytest.mark.parametrize("way", ["get", "drop-head"])
def test_the_next_in_line_expires_in_time_however_the_first_left(context, way):
    queue = new_queue(context, max_length=1 if way == "drop-head" else None)
    publish(queue, message(0))
    publish(queue, message(1, expires_at=context.now + 5))
    if way == "get":
        queue.get(Consumer("", queue, FakeSink(), no_ack=True, fetching=True))
    context.advance(5)
    assert context.dead[-1] == (1, "expired")
    assert queue.ready == 0


def test_a_ttl_of_zero_reaches_a_consumer_that_waits_and_nobody_else(context):
    queue = new_queue(context, message_ttl_ms=0)
    publish(queue, message(0))
    assert context.dead == [(0, "expired")]
    sink = FakeSink()
    consume(queue, sink, prefetch=1)
    publish(queue, message(1), message(2))
    assert sink.names == [1]
    assert context.dead == [(0, "expired"), (2, "expired")]


def test_what_comes_back_after_its_time_is_dead(context):
    queue = new_queue(context, message_ttl_ms=5)
    sink = FakeSink()
    consumer = consume(queue, sink)
    publish(queue, message(0))
    context.advance(10)
    consumer.release(1)
    queue.requeue(consumer, [sink.delivered[0][1]])
    assert context.dead == [(0, "expired")]
    assert sink.names == [0]


def test_messages_of_one_ttl_need_one_timer_at_a_time(context):
    queue = new_queue(context, message_ttl_ms=1000)
    for n in range(100):
        publish(queue, message(n))
        context.advance(1)
    assert context.timers == 1
    context.advance(1000)
    assert (queue.ready, context.timers) == (0, 0)


# Length


def test_drop_head_makes_room_for_the_newest(context):
    queue = new_queue(context, max_length=2)
    assert publish(queue, *[message(n) for n in range(4)]).answers == [[]]
    assert names(queue._ready) == [2, 3]
    assert context.dead == [(0, "maxlen"), (1, "maxlen")]


def test_a_message_larger_than_the_queue_is_dropped_with_all_before_it(context):
    queue = new_queue(context, max_length_bytes=25)
    publish(queue, message(0), message(1), message(2, size=26))
    assert (queue.ready, queue.ready_bytes) == (0, 0)


def test_refused_messages_are_named_to_the_receipt(context):
    queue = new_queue(context, max_length=1, overflow="reject-publish")
    assert publish(queue, *[message(n) for n in range(3)]).answers == [[1, 2]]
    assert context.dead == []


def test_refused_messages_may_be_dead_lettered_too(context):
    queue = new_queue(context, max_length=1, overflow="reject-publish-dlx")
    assert publish(queue, *[message(n) for n in range(3)]).answers == [[1, 2]]
    assert context.dead == [(1, "maxlen"), (2, "maxlen")]


def test_a_consumer_that_waits_makes_room_for_what_would_be_refused(context):
    queue = new_queue(context, max_length=1, overflow="reject-publish")
    sink = FakeSink()
    consume(queue, sink, prefetch=2)
    assert publish(queue, *[message(n) for n in range(5)]).answers == [[3, 4]]
    assert sink.names == [0, 1]


def test_what_comes_back_to_a_full_queue_drops_the_head(context):
    queue = new_queue(context, max_length=2)
    sink = FakeSink()
    consumer = consume(queue, sink, prefetch=1)
    publish(queue, *[message(n) for n in range(3)])
    queue.remove_consumer(consumer)
    consumer.release(1)
    queue.requeue(consumer, [sink.delivered[0][1]])
    assert names(queue._ready) == [1, 2]
    assert context.dead == [(0, "maxlen")]


# Delivery limit


def test_a_message_that_came_back_too_often_is_dead(context):
    queue = new_queue(context, delivery_limit=2)
    sink = FakeSink()
    consumer = consume(queue, sink, prefetch=1)
    publish(queue, message(0))
    for returns in range(3):
        assert context.dead == []
        assert sink.delivered[-1][1].delivery_count == returns
        consumer.release(1)
        queue.requeue(consumer, [sink.delivered[-1][1]])
    assert context.dead == [(0, "delivery_limit")]
    assert len(sink.delivered) == 3


def test_only_quorum_queues_announce_how_often_a_message_came_back(context):
    assert new_queue(context, type="quorum").counts_deliveries
    assert not new_queue(context).counts_deliveries


def test_a_message_and_its_copy_lead_separate_lives():
    original = message(3, size=7, priority=2, expires_at=99)
    original.sequence = 8
    twin = original.copy()
    fields = ("address", "frames", "header_bytes", "flags", "body_bytes", "channel")
    fields += ("sequence", "priority", "expires_at", "redelivered", "delivery_count")
    assert all(getattr(twin, name) == getattr(original, name) for name in fields)
    original.redelivered, original.delivery_count = True, 5
    assert (twin.redelivered, twin.delivery_count) == (False, 0)
