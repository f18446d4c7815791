"""Leases: an unacked message comes back in time, unless its holder settles or extends it."""

import pytest

import queues.leases
from queues.consumers import Consumer
from queues.leases import Leases
from queues.message import Message
from queues.options import QueueOptions
from tests.queues.fakes import (
    FakeSink,
    consume,
    fetch,
    hand_back,
    message,
    names,
    new_queue,
    publish,
)

NO_LEASE = {}
QUEUE_LEASE = {"visibility_timeout_ms": 10}


@pytest.fixture
def sink():
    return FakeSink()


@pytest.mark.parametrize(
    ("options", "own_ms", "lease_ms"),
    [
        ({"visibility_timeout_ms": 10}, None, 10),
        ({"consumer_timeout_ms": 12}, None, 12),
        ({"visibility_timeout_ms": 10, "consumer_timeout_ms": 12}, None, 10),
        ({"visibility_timeout_ms": 10}, 5, 5),
        ({"visibility_timeout_ms": 10}, 15, 15),
        (NO_LEASE, 7, 7),
    ],
)
def test_a_message_comes_back_when_its_lease_is_over(context, sink, options, own_ms, lease_ms):
    queue = new_queue(context, **options)
    consumer = consume(queue, sink, prefetch=1, lease_ms=own_ms)
    publish(queue, message(0))
    context.advance(lease_ms - 1)
    assert (sink.revoked, queue.unacked) == ([], 1)
    context.advance(1)
    assert (sink.revoked, queue.unacked) == ([0], 1)  # and out again, to the same
    [first, second] = sink.take()
    assert first is second
    assert (second.redelivered, second.delivery_count) == (True, 1)
    assert (consumer.credit.used, sink.credit.used) == (1, 1)


def test_without_a_lease_a_message_may_be_held_for_ever(context, sink):
    queue = new_queue(context)
    consume(queue, sink)
    publish(queue, message(0))
    context.advance(1000)
    assert (sink.revoked, queue.unacked, queue.away.leased_count) == ([], 1, 0)


def test_a_consumer_that_does_not_ack_has_no_lease(context, sink):
    queue = new_queue(context, **QUEUE_LEASE)
    consume(queue, sink, no_ack=True)
    publish(queue, message(0))
    assert (queue.away.leased_count, context.timers) == (0, 0)


@pytest.mark.parametrize("how", ["settle", "discard", "requeue"])
def test_a_settled_message_has_no_lease_any_more(context, sink, how):
    queue = new_queue(context, **QUEUE_LEASE)
    consumer = consume(queue, sink, prefetch=1)
    publish(queue, message(0))
    queue.remove_consumer(consumer)
    hand_back(queue, consumer, sink.take(), how)
    assert queue.away.leased_count == 0
    context.advance(20)
    assert (sink.revoked, context.timers) == ([], 0)


def test_an_ack_in_the_last_millisecond_counts_if_it_comes_first(context, sink):
    queue = new_queue(context, **QUEUE_LEASE)
    consumer = consume(queue, sink)
    publish(queue, message(0))
    context.now += 10  # the bell is about to ring
    hand_back(queue, consumer, sink.take())
    context.advance(1)
    assert (sink.revoked, queue.unacked, queue.ready) == ([], 0, 0)


def test_messages_of_one_consumer_come_back_in_order_before_fresh_ones(context, sink):
    queue = new_queue(context, **QUEUE_LEASE)
    consumer = consume(queue, sink, prefetch=3)
    publish(queue, *[message(n) for n in range(5)])
    queue.remove_consumer(consumer)
    context.advance(10)
    assert sink.revoked == [0, 1, 2]
    assert [fetch(queue) for _ in range(6)] == [0, 1, 2, 3, 4, None]


def test_a_fetched_message_comes_back_too(context):
    queue = new_queue(context, **QUEUE_LEASE)
    publish(queue, message(0))
    assert fetch(queue, no_ack=False, lease_ms=queue.options.lease_ms) == 0
    context.advance(9)
    assert (queue.ready, queue.unacked) == (0, 1)
    context.advance(1)
    assert (queue.ready, queue.unacked) == (1, 0)


def test_what_is_about_to_be_settled_is_left_with_its_holder_for_another_lease(context, sink):
    """The ack stands in a transaction that is not committed yet."""
    queue = new_queue(context, **QUEUE_LEASE)
    consumer = consume(queue, sink, prefetch=2)
    publish(queue, message(0), message(1))
    [kept, taken] = sink.take()
    sink.settling = [kept]
    queue.remove_consumer(consumer)
    context.advance(10)
    assert (sink.revoked, queue.ready, queue.unacked) == ([1], 1, 1)
    sink.settling = []
    context.advance(9)
    assert (queue.ready, queue.unacked) == (1, 1)
    context.advance(1)
    assert (sink.revoked, queue.ready, queue.unacked) == ([1, 0], 2, 0)
    assert taken.delivery_count == kept.delivery_count == 1


class Costly(Message):
    """Knows how often it was compared with another."""

    __slots__ = ()
    __hash__ = Message.__hash__
    compared = 0

    def __eq__(self, other):
        Costly.compared += 1
        return self is other


@pytest.mark.parametrize("left", [0, 1])
def test_of_many_leases_that_end_together_none_is_compared_with_all_others(
    context, sink, monkeypatch, left
):
    monkeypatch.setattr(Costly, "compared", 0)
    queue = new_queue(context, **QUEUE_LEASE)
    consumer = consume(queue, sink)
    made = [message(n) for n in range(500)]
    for each in made:
        each.__class__ = Costly
    publish(queue, *made)
    queue.remove_consumer(consumer)
    sink.settling = made[:left]
    context.advance(10)
    assert (queue.ready, queue.unacked) == (500 - left, left)
    assert Costly.compared < 2 * len(made)


# Extension


def test_an_extension_counts_from_when_it_was_asked_for(context, sink):
    queue = new_queue(context, **QUEUE_LEASE)
    consume(queue, sink)
    publish(queue, message(0))
    [held] = sink.take()
    context.advance(6)
    assert queue.extend_lease(held, 7)
    context.advance(6)
    assert sink.revoked == []
    context.advance(1)
    assert sink.revoked == [0]


def test_a_lease_can_be_made_shorter(context, sink):
    queue = new_queue(context, **QUEUE_LEASE)
    consume(queue, sink)
    publish(queue, message(0))
    assert queue.extend_lease(sink.take()[0], 2)
    context.advance(2)
    assert sink.revoked == [0]
    context.advance(9)
    assert sink.revoked == [0]  # the old one's time comes and means nothing
    context.advance(1)
    assert sink.revoked == [0, 0]


@pytest.mark.parametrize(
    ("options", "own_ms", "lease_ms"),
    [(QUEUE_LEASE, None, 10), (QUEUE_LEASE, 6, 6), (NO_LEASE, 8, 8)],
)
def test_an_extension_that_names_no_time_is_as_long_as_the_lease_was(
    context, sink, options, own_ms, lease_ms
):
    queue = new_queue(context, **options)
    consume(queue, sink, lease_ms=own_ms)
    publish(queue, message(0))
    [held] = sink.take()
    context.advance(3)
    assert queue.extend_lease(held, None)
    context.advance(lease_ms - 1)
    assert sink.revoked == []
    context.advance(1)
    assert sink.revoked == [0]


@pytest.mark.parametrize("how", ["settle", "discard", "requeue"])
def test_a_settled_message_cannot_be_extended(context, sink, how):
    queue = new_queue(context, **QUEUE_LEASE)
    consumer = consume(queue, sink)
    publish(queue, message(0))
    queue.remove_consumer(consumer)
    [held] = sink.take()
    hand_back(queue, consumer, [held], how)
    assert not queue.extend_lease(held, 100)
    assert queue.away.leased_count == 0


def test_a_message_whose_lease_is_over_cannot_be_extended(context, sink):
    queue = new_queue(context, **QUEUE_LEASE)
    consumer = consume(queue, sink)
    publish(queue, message(0))
    queue.remove_consumer(consumer)
    context.advance(10)
    assert not queue.extend_lease(sink.take()[0], 100)


def test_without_a_lease_there_is_nothing_to_extend(context, sink):
    queue = new_queue(context)
    consume(queue, sink)
    publish(queue, message(0))
    assert not queue.extend_lease(sink.take()[0], 100)
    assert context.timers == 0


def test_another_copy_with_the_same_number_is_not_the_held_message(context, sink):
    queue = new_queue(context, **QUEUE_LEASE)
    consume(queue, sink)
    publish(queue, message(0))
    assert not queue.extend_lease(sink.take()[0].copy(), 100)


def test_thousands_of_extensions_cost_no_memory(context, sink, monkeypatch):
    monkeypatch.setattr(queues.leases, "STALE_MAX", 10)
    over = []
    leases = Leases(context, lambda consumer, messages: over.extend(names(messages)))
    consumer = Consumer("c", None, sink)
    held = [message(n) for n in range(3)]
    for number, each in enumerate(held):
        each.sequence = number
    leases.grant(consumer, held, 50)
    for turn in range(3000):
        assert leases.extend(held[turn % 2], 100 + turn % 7)
    assert len(leases._wheel) <= 2 * 3 + 10 + 1
    context.advance(50)
    assert over == [2]
    context.advance(60)
    assert sorted(over) == [0, 1, 2]
    assert (len(leases), context.timers) == (0, 0)


# Changes and ends


def test_a_changed_lease_is_for_deliveries_to_come(context, sink):
    queue = new_queue(context, **QUEUE_LEASE)
    consume(queue, sink, "a")
    publish(queue, message(0))
    queue.configure(QueueOptions(visibility_timeout_ms=30))
    publish(queue, message(1))
    context.advance(10)
    assert sink.revoked == [0]
    context.advance(20)
    assert sink.revoked == [0, 1]


def test_where_there_are_no_leases_any_more_the_last_ones_still_end(context, sink):
    queue = new_queue(context, **QUEUE_LEASE)
    consume(queue, sink)
    publish(queue, message(0))
    queue.configure(QueueOptions())
    assert not queue.extend_lease(sink.delivered[0][1], None)
    context.advance(10)
    assert (sink.revoked, queue.unacked) == ([0], 1)
    context.advance(100)
    assert (sink.revoked, queue.unacked, context.timers) == ([0], 1, 0)


def test_a_lost_consumer_ends_its_leases(context, sink):
    queue = new_queue(context, **QUEUE_LEASE)
    consumer = consume(queue, sink)
    publish(queue, message(0))
    queue.remove_consumer(consumer)
    hand_back(queue, consumer, sink.take(), "requeue", lost=True)
    context.advance(10)
    assert (sink.revoked, queue.ready, context.timers) == ([], 1, 0)


def test_a_message_over_its_delivery_limit_dies_when_its_lease_is_over(context, sink):
    queue = new_queue(context, delivery_limit=1, **QUEUE_LEASE)
    consume(queue, sink)
    publish(queue, message(0))
    context.advance(20)
    assert (sink.revoked, context.dead) == ([0, 0], [(0, "delivery_limit")])
    assert (queue.ready, queue.unacked, context.timers) == (0, 0, 0)


def test_a_message_whose_lease_is_over_waits_for_its_retry(context, sink):
    queue = new_queue(context, retry_delay_ms=5, **QUEUE_LEASE)
    consume(queue, sink)
    publish(queue, message(0))
    context.advance(10)
    assert (sink.names, queue.away.delayed_count) == ([0], 1)
    context.advance(4)
    assert sink.names == [0]
    context.advance(1)
    assert (sink.names, queue.away.delayed_count) == ([0, 0], 0)
