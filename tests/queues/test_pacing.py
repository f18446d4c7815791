"""Staggered redelivery: what lost consumers held comes back at a bounded rate."""

import itertools

import pytest

import queues.pacing
from queues.options import QueueOptions
from queues.pacing import MESSAGE_OVERHEAD_BYTES, PACE_MS, Pacer
from tests.queues.fakes import (
    FakeSink,
    consume,
    drain,
    hand_back,
    message,
    names,
    new_queue,
    publish,
)


def lose(queue, count, *, first=0):
    """A consumer held so many and is gone."""
    sink = FakeSink()
    publish(queue, *[message(first + n) for n in range(count)])
    consumer = consume(queue, sink)
    queue.remove_consumer(consumer)
    hand_back(queue, consumer, sink.take(), "requeue", lost=True)


def test_no_more_than_the_rate_comes_back_at_once_and_then_a_second(context):
    queue = new_queue(context, redelivery_rate=100)
    lose(queue, 350)
    assert queue.ready == 350  # what waits for its turn counts, and cannot be had
    found = [drain(queue)]
    for _ in range(3):
        context.advance(1000)
        found.append(drain(queue))
    assert [len(some) for some in found] == [100, 100, 100, 50]
    assert list(itertools.chain(*found)) == list(range(350))
    context.advance(PACE_MS)
    assert (queue.ready, queue.away.paced_count, context.timers) == (0, 0, 0)


def test_turns_are_short(context):
    queue = new_queue(context, redelivery_rate=100)
    lose(queue, 110)
    drain(queue)
    context.advance(PACE_MS - 1)
    assert drain(queue) == []
    context.advance(1)
    assert drain(queue) == [100, 101]


def test_a_rate_under_one_a_turn_is_kept(context):
    queue = new_queue(context, redelivery_rate=2)
    lose(queue, 4)
    came = []
    for _ in range(1100):
        came += [(context.now - 1000, name) for name in drain(queue)]
        context.advance(1)
    assert came == [(0, 0), (0, 1), (500, 2), (1000, 3)]


def test_a_rate_of_zero_is_no_limit(context):
    queue = new_queue(context, redelivery_rate=0)
    lose(queue, 20_000)
    assert len(drain(queue)) == 20_000
    assert context.timers == 0


def test_by_default_only_large_numbers_are_staggered(context):
    queue = new_queue(context)
    lose(queue, 10_500)
    assert len(drain(queue)) == 10_000
    context.advance(PACE_MS)
    assert len(drain(queue)) == 200


def test_what_was_lost_earlier_does_not_stand_before_what_came_earlier(context):
    """By sequence among all that wait, whoever held it."""
    queue = new_queue(context, redelivery_rate=3)
    publish(queue, *[message(n) for n in range(6)])
    sinks = [FakeSink(), FakeSink()]
    first = consume(queue, sinks[0], prefetch=3)
    second = consume(queue, sinks[1], prefetch=3)
    for consumer in (second, first):
        queue.remove_consumer(consumer)
    hand_back(queue, second, sinks[1].take(), "requeue", lost=True)
    assert drain(queue) == [3, 4, 5]
    hand_back(queue, first, sinks[0].take(), "requeue", lost=True)
    context.advance(2000)
    assert drain(queue) == [0, 1, 2]


def test_fresh_messages_do_not_wait_for_those_that_come_back(context):
    queue = new_queue(context, redelivery_rate=1)
    lose(queue, 3)
    publish(queue, message(7))
    assert drain(queue) == [0, 7]


def test_a_refusal_is_no_loss_and_comes_back_at_once(context):
    queue = new_queue(context, redelivery_rate=1)
    sink = FakeSink()
    publish(queue, *[message(n) for n in range(5)])
    consumer = consume(queue, sink)
    queue.remove_consumer(consumer)
    hand_back(queue, consumer, sink.take(), "requeue")
    assert drain(queue) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("rate", "at_once", "a_second"), [(0, 9, 0), (4, 4, 4), (2, 2, 2)])
def test_a_changed_rate_is_for_those_that_wait_too(context, rate, at_once, a_second):
    queue = new_queue(context, redelivery_rate=1)
    lose(queue, 10)
    assert drain(queue) == [0]
    queue.configure(QueueOptions(redelivery_rate=rate))
    assert len(drain(queue)) == at_once
    context.advance(1000)
    assert len(drain(queue)) == a_second
    assert queue.ready == 9 - at_once - a_second


def test_a_rate_that_stays_gives_no_second_burst(context):
    queue = new_queue(context, redelivery_rate=1)
    lose(queue, 3)
    drain(queue)
    queue.configure(QueueOptions(redelivery_rate=1, max_length=100))
    assert drain(queue) == []


def test_when_nothing_waits_for_its_turn_no_timer_is_left(context):
    queue = new_queue(context, redelivery_rate=1)
    lose(queue, 3)
    queue.configure(QueueOptions(redelivery_rate=0))
    assert (len(drain(queue)), context.timers) == (3, 0)


def test_a_purge_takes_what_waits_for_its_turn(context):
    queue = new_queue(context, redelivery_rate=1)
    lose(queue, 4)
    assert queue.purge() == 4
    assert queue.ready == 0
    context.advance(5000)
    assert (drain(queue), context.timers) == ([], 0)


def test_a_deleted_queue_counts_and_forgets_what_waits_for_its_turn(context):
    queue = new_queue(context, redelivery_rate=1)
    lose(queue, 4)
    assert queue.delete() == 4
    assert (queue.ready, context.timers) == (0, 0)


def test_the_delivery_limit_is_looked_at_before_they_wait(context):
    queue = new_queue(context, redelivery_rate=1, delivery_limit=0)
    lose(queue, 3)
    assert [reason for _, reason in context.dead] == ["delivery_limit"] * 3
    assert queue.ready == 0


def test_groups_of_those_that_wait_are_blocked_until_their_turn(context):
    queue = new_queue(context, redelivery_rate=1, message_groups=True)
    sink = FakeSink()
    publish(queue, message(0, group="a"), message(1, group="b"), message(2, group="b"))
    consumer = consume(queue, sink)
    queue.remove_consumer(consumer)
    hand_back(queue, consumer, sink.take(), "requeue", lost=True)
    publish(queue, message(3, group="a"), message(4, group="b"))
    assert drain(queue) == [0, 3]
    context.advance(1000)
    assert drain(queue) == [1, 2, 4]


def test_where_groups_came_later_those_that_wait_block_theirs_too(context):
    queue = new_queue(context, redelivery_rate=1)
    sink = FakeSink()
    consumer = consume(queue, sink)
    publish(queue, message(0), message(1, group="a"))
    queue.remove_consumer(consumer)
    publish(queue, message(2, group="a"), message(3, group="b"))
    hand_back(queue, consumer, sink.take(), "requeue", lost=True)
    queue.configure(QueueOptions(redelivery_rate=1, message_groups=True))
    assert drain(queue) == [0, 3]
    context.advance(1000)
    assert drain(queue) == [1, 2]


def test_a_purge_frees_the_groups_of_those_that_wait(context):
    queue = new_queue(context, redelivery_rate=1, message_groups=True)
    sink = FakeSink()
    publish(queue, message(0, group="a"), message(1, group="b"))
    consumer = consume(queue, sink)
    queue.remove_consumer(consumer)
    hand_back(queue, consumer, sink.take(), "requeue", lost=True)
    queue.purge()
    publish(queue, message(2, group="a"), message(3, group="b"))
    assert drain(queue) == [2, 3]


# Reads from disk after a restart


class Turns:
    def __init__(self, context, rate):
        self.asked = 0
        self.pacer = Pacer(context, rate, self._turn)

    def _turn(self):
        self.asked += 1


def numbered(count):
    made = [message(n) for n in range(count)]
    for n, each in enumerate(made):
        each.sequence = n
    return made


def test_what_waits_is_bounded_in_bytes(context, monkeypatch):
    monkeypatch.setattr(queues.pacing, "WAITING_BYTES_MAX", 3 * MESSAGE_OVERHEAD_BYTES)
    turns = Turns(context, 1)
    made = numbered(4)
    assert turns.pacer.admit(made[:3]) == made[:1]
    assert not turns.pacer.full
    assert not turns.pacer.admit(made[3:])
    assert turns.pacer.full
    context.advance(1000)
    assert turns.asked == 1
    assert turns.pacer.take() == made[1:2]
    assert not turns.pacer.full


def test_who_waits_can_be_taken_out_by_number(context):
    turns = Turns(context, 1)
    made = numbered(5)
    turns.pacer.admit(made)
    assert turns.pacer.remove({0, 2, 4, 9}) == [made[2], made[4]]
    assert turns.pacer.drain() == [made[1], made[3]]
    assert not turns.pacer.full


def test_all_that_wait_can_be_taken_out_in_order(context):
    turns = Turns(context, 1)
    made = [message(n) for n in (3, 1, 2, 0)]
    for each in made:
        each.sequence = names([each])[0]
    assert names(turns.pacer.admit(made)) == [0]
    assert names(turns.pacer.drain()) == [1, 2, 3]
    assert (len(turns.pacer), turns.pacer.drain()) == (0, [])
