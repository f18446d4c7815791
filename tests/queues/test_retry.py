"""Retries: how long a failed message waits, and what happens to it and its group meanwhile."""

import pytest

from queues.admission import retry_delay_ms
from queues.options import BACKOFF_MAX, DELAY_MS_MAX, QueueOptions
from tests.queues.fakes import (
    FakeSink,
    consume,
    drain,
    fetch,
    hand_back,
    message,
    names,
    new_queue,
    publish,
)


@pytest.mark.parametrize(
    ("delay_ms", "backoff", "most_ms", "waits"),
    [
        (5, 1.0, DELAY_MS_MAX, [5, 5, 5, 5]),
        (5, 2.0, DELAY_MS_MAX, [5, 10, 20, 40]),
        (5, 2.0, 12, [5, 10, 12, 12]),
        (5, 1.5, DELAY_MS_MAX, [5, 7, 11, 16]),
        (1, 1.1, DELAY_MS_MAX, [1, 1, 1, 1]),
        (5, 3.0, 3, [3, 3, 3, 3]),
        (1, 1000.0, DELAY_MS_MAX, [1, 1000, 10**6, 10**9, DELAY_MS_MAX]),
    ],
)
def test_each_failure_waits_longer_up_to_the_most(delay_ms, backoff, most_ms, waits):
    options = QueueOptions(
        retry_delay_ms=delay_ms, retry_backoff=backoff, retry_max_delay_ms=most_ms
    )
    assert [retry_delay_ms(options, 1 + n) for n in range(len(waits))] == waits


@pytest.mark.parametrize("failures", [64, 65, 66, 1000, 2**31, 2**64])
@pytest.mark.parametrize("backoff", [1.0, 1.0001, 2.0, float(BACKOFF_MAX)])
def test_no_number_of_failures_is_too_much(failures, backoff):
    options = QueueOptions(retry_delay_ms=DELAY_MS_MAX, retry_backoff=backoff)
    assert retry_delay_ms(options, failures) == DELAY_MS_MAX
    small = QueueOptions(retry_delay_ms=1, retry_backoff=backoff, retry_max_delay_ms=77)
    assert 1 <= retry_delay_ms(small, failures) <= 77


@pytest.fixture
def sink():
    return FakeSink()


def fail(queue, sink, consumer, count=1, **options):
    """What the consumer got last is refused."""
    hand_back(queue, consumer, sink.take()[-count:], "requeue", **options)


def test_a_failed_message_comes_back_after_its_delay_and_each_time_later(context, sink):
    queue = new_queue(context, retry_delay_ms=2, retry_backoff=2.0, retry_max_delay_ms=7)
    consumer = consume(queue, sink, prefetch=1)
    publish(queue, message(0))
    waited = []
    for _ in range(4):
        fail(queue, sink, consumer)
        assert (queue.ready, queue.unacked, queue.away.delayed_count) == (0, 0, 1)
        start = context.now
        while not sink.delivered:
            context.advance(1)
        waited.append(context.now - start)
    assert waited == [2, 4, 7, 7]
    [again] = sink.take()
    assert (again.redelivered, again.delivery_count) == (True, 4)


def test_others_go_on_while_a_failed_message_waits(context, sink):
    queue = new_queue(context, retry_delay_ms=5)
    consumer = consume(queue, sink, prefetch=1)
    publish(queue, message(0), message(1), message(2))
    fail(queue, sink, consumer)
    assert sink.names == [1]
    context.advance(5)
    hand_back(queue, consumer, sink.take())
    assert sink.names == [0]  # in its old place, before fresh ones


def test_a_lost_consumer_gives_back_without_the_delay(context, sink):
    queue = new_queue(context, retry_delay_ms=50)
    consumer = consume(queue, sink, prefetch=1)
    publish(queue, message(0))
    queue.remove_consumer(consumer)
    fail(queue, sink, consumer, lost=True)
    assert (queue.ready, queue.away.delayed_count) == (1, 0)
    assert fetch(queue) == 0


def test_a_rejected_message_dies_at_once(context, sink):
    queue = new_queue(context, retry_delay_ms=50)
    consumer = consume(queue, sink, prefetch=1)
    publish(queue, message(0))
    hand_back(queue, consumer, sink.take(), "discard")
    assert (context.dead, queue.away.delayed_count) == ([(0, "rejected")], 0)
    assert context.timers == 0


def test_the_delivery_limit_ends_the_retries(context, sink):
    queue = new_queue(context, retry_delay_ms=3, delivery_limit=2)
    consumer = consume(queue, sink, prefetch=1)
    publish(queue, message(0))
    for _ in range(2):
        fail(queue, sink, consumer)
        context.advance(3)
    fail(queue, sink, consumer)
    assert context.dead == [(0, "delivery_limit")]
    assert (queue.ready, queue.away.delayed_count, context.timers) == (0, 0, 0)


def test_of_a_batch_that_failed_some_may_wait_and_some_die(context, sink):
    queue = new_queue(context, retry_delay_ms=3, delivery_limit=1)
    consumer = consume(queue, sink)
    publish(queue, message(0))
    fail(queue, sink, consumer)
    publish(queue, message(1))
    context.advance(3)
    assert sink.names == [1, 0]
    fail(queue, sink, consumer, 2)
    assert (context.dead, queue.away.delayed_count) == ([(0, "delivery_limit")], 1)


def test_the_ttl_of_a_failed_message_goes_on_while_it_waits(context, sink):
    queue = new_queue(context, retry_delay_ms=10, message_ttl_ms=6)
    consumer = consume(queue, sink, prefetch=1)
    publish(queue, message(0))
    fail(queue, sink, consumer)
    context.advance(9)
    assert context.dead == []
    context.advance(1)
    assert (sink.names, context.dead) == ([], [(0, "expired")])


def test_a_purge_takes_failed_messages_that_wait(context, sink):
    queue = new_queue(context, retry_delay_ms=10)
    consumer = consume(queue, sink, prefetch=1)
    publish(queue, message(0))
    fail(queue, sink, consumer)
    assert queue.purge() == 1
    context.advance(20)
    assert (sink.names, queue.away.delayed_count, context.timers) == ([], 0, 0)


def test_a_changed_retry_delay_is_for_failures_to_come(context, sink):
    queue = new_queue(context, retry_delay_ms=10)
    consumer = consume(queue, sink, prefetch=1)
    publish(queue, message(0))
    fail(queue, sink, consumer)
    queue.configure(QueueOptions(retry_delay_ms=2))
    context.advance(9)
    assert sink.names == []
    context.advance(1)
    fail(queue, sink, consumer)
    context.advance(2)
    assert sink.names == [0]


# Groups


@pytest.fixture
def groups(context):
    return new_queue(context, retry_delay_ms=5, message_groups=True)


def test_a_failed_message_blocks_its_group_while_it_waits_and_no_other(context, sink, groups):
    consumer = consume(groups, sink)
    publish(groups, message(0, group="a"), message(1, group="a"), message(2, group="b"))
    assert sink.names == [0, 2]
    hand_back(groups, consumer, [sink.take()[0]], "requeue")
    publish(groups, message(3, group="a"), message(4))
    assert sink.names == [4]
    context.advance(5)
    assert sink.names == [4, 0]
    hand_back(groups, consumer, sink.take()[1:])
    assert sink.names == [1]


def failed(queue, sink):
    """0 of group a failed and waits; 1 of the same group stands behind it."""
    consumer = consume(queue, sink)
    publish(queue, message(0, group="a"), message(1, group="a"))
    queue.remove_consumer(consumer)
    hand_back(queue, consumer, sink.take(), "requeue")
    assert fetch(queue) is None


def test_a_purge_frees_the_groups_of_failed_messages(context, sink, groups):
    failed(groups, sink)
    assert groups.purge() == 2
    publish(groups, message(2, group="a"), message(3, group="a"))
    assert drain(groups) == [2, 3]


def test_a_cancelled_message_frees_its_group(context, sink, groups):
    failed(groups, sink)
    sequence = groups.away.delays.first(1)[0][0]
    assert groups.away.delays.cancel(sequence)
    assert drain(groups) == [1]
    assert not groups.away.delays.cancel(sequence)


def test_a_cancelled_message_lets_the_next_of_its_group_out_at_once(context, sink, groups):
    failed(groups, sink)
    consume(groups, sink)
    assert groups.away.delays.cancel(groups.away.delays.first(1)[0][0])
    assert sink.names == [1]


def test_a_moved_message_blocks_its_group_for_longer(context, sink, groups):
    failed(groups, sink)
    assert groups.away.delays.move(groups.away.delays.first(1)[0][0], context.now + 20)
    context.advance(19)
    assert fetch(groups) is None
    context.advance(1)
    assert drain(groups) == [0, 1]


def test_a_failed_message_blocks_its_group_also_where_groups_came_later(context, sink):
    """A policy gave the queue groups while the message waited."""
    queue = new_queue(context, retry_delay_ms=5)
    consumer = consume(queue, sink, prefetch=1)
    publish(queue, message(0, group="a"), message(1, group="a"), message(2, group="b"))
    queue.remove_consumer(consumer)
    hand_back(queue, consumer, sink.take(), "requeue")
    queue.configure(QueueOptions(retry_delay_ms=5, message_groups=True))
    assert drain(queue) == [2]
    context.advance(5)
    assert drain(queue) == [0, 1]


def test_a_failed_message_blocks_nothing_where_there_are_no_groups_any_more(context, sink, groups):
    failed(groups, sink)
    groups.configure(QueueOptions(retry_delay_ms=5))
    assert drain(groups) == [1]
    context.advance(5)
    assert drain(groups) == [0]


def test_one_that_dies_of_its_last_failure_frees_its_group(context, sink):
    queue = new_queue(context, retry_delay_ms=5, message_groups=True, delivery_limit=0)
    consumer = consume(queue, sink, prefetch=1)
    publish(queue, message(0, group="a"), message(1, group="a"))
    fail(queue, sink, consumer)
    assert (context.dead, names(sink.take())) == ([(0, "delivery_limit")], [1])
