"""What a queue takes in and what not: duplicates, limits, delays and groups together."""

import pytest

from queues.options import QueueOptions
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
    with_body,
)

REFUSING = {"max_length": 1, "overflow": "reject-publish"}


# Duplicates


def test_a_duplicate_is_confirmed_and_dropped(context):
    queue = new_queue(context)
    assert publish(queue, message(0, dedup_id="a")) == [[]]
    assert publish(queue, message(1, dedup_id="a")) == [[]]
    assert (drain(queue), context.dead) == ([0], [])


def test_a_duplicate_within_one_batch_is_one_too(context):
    queue = new_queue(context)
    batch = [message(n, dedup_id=name) for n, name in enumerate("abab")]
    assert publish(queue, *batch, message(4), message(5)) == [[]]
    assert drain(queue) == [0, 1, 4, 5]


def test_a_duplicate_is_one_whatever_became_of_the_first(context):
    queue = new_queue(context)
    sink = FakeSink()
    consumer = consume(queue, sink)
    publish(queue, message(0, dedup_id="a"), message(1, dedup_id="b"), message(2, dedup_id="c"))
    [acked, rejected, _] = sink.take()
    hand_back(queue, consumer, [acked])
    hand_back(queue, consumer, [rejected], "discard")
    publish(queue, *[message(3 + n, dedup_id=name) for n, name in enumerate("abc")])
    assert sink.names == []
    queue.purge()
    publish(queue, message(7, dedup_id="a"))
    assert sink.names == []


@pytest.mark.parametrize("window_ms", [1, 10, 1000])
def test_an_id_is_known_until_the_window_is_over(context, window_ms):
    queue = new_queue(context, dedup_window_ms=window_ms)
    publish(queue, message(0, dedup_id="a"))
    context.advance(window_ms - 1)
    publish(queue, message(1, dedup_id="a"))  # a duplicate does not make it longer
    context.advance(1)
    publish(queue, message(2, dedup_id="a"), message(3, dedup_id="a"))
    assert drain(queue) == [0, 2]


def test_with_a_window_of_zero_duplicates_are_welcome(context):
    queue = new_queue(context, dedup_window_ms=0, dedup_content=True)
    publish(queue, message(0, dedup_id="a"), message(1, dedup_id="a"))
    publish(queue, with_body(2, b"same"), with_body(3, b"same"))
    assert drain(queue) == [0, 1, 2, 3]


def test_the_same_content_is_a_duplicate_where_the_queue_says_so(context):
    bodies = [b"one", b"two", b"one", b"", b""]
    made = [with_body(n, body) for n, body in enumerate(bodies)]
    plain, close = new_queue(context), new_queue(context, dedup_content=True)
    publish(plain, *[m.copy() for m in made])
    publish(close, *made)
    assert (drain(plain), drain(close)) == ([0, 1, 2, 3, 4], [0, 1, 3])


def test_an_id_counts_more_than_the_content(context):
    queue = new_queue(context, dedup_content=True)
    made = [with_body(n, b"same") for n in range(4)]
    made[0].wishes = message(0, dedup_id="a").wishes
    made[1].wishes = message(0, dedup_id="b").wishes
    publish(queue, *made)
    assert drain(queue) == [0, 1, 2]


def test_the_id_of_a_refused_message_is_not_remembered(context):
    queue = new_queue(context, **REFUSING)
    assert publish(queue, message(0), message(1, dedup_id="a")) == [[1]]
    assert fetch(queue) == 0
    assert publish(queue, message(2, dedup_id="a")) == [[]]
    assert drain(queue) == [2]


def test_a_duplicate_needs_no_room(context):
    queue = new_queue(context, **REFUSING)
    assert publish(queue, message(0, dedup_id="a"), message(1, dedup_id="a")) == [[]]
    assert drain(queue) == [0]


def test_a_delayed_message_is_known_before_it_is_due(context):
    queue = new_queue(context)
    publish(queue, message(0, dedup_id="a", delay_ms=10), message(1, dedup_id="a"))
    assert drain(queue) == []
    context.advance(10)
    assert drain(queue) == [0]


def test_a_longer_window_is_for_ids_to_come(context):
    queue = new_queue(context, dedup_window_ms=10)
    publish(queue, message(0, dedup_id="a"))
    queue.configure(QueueOptions(dedup_window_ms=100))
    publish(queue, message(1, dedup_id="b"))
    context.advance(10)
    publish(queue, message(2, dedup_id="a"), message(3, dedup_id="b"))
    assert drain(queue) == [0, 1, 2]


def test_a_shorter_window_does_not_hide_that_the_older_ids_are_known(context):
    queue = new_queue(context, dedup_window_ms=100)
    publish(queue, message(0, dedup_id="a"))
    queue.configure(QueueOptions(dedup_window_ms=10))
    publish(queue, message(1, dedup_id="b"))
    context.advance(10)
    publish(queue, message(2, dedup_id="a"), message(3, dedup_id="b"))
    assert drain(queue) == [0, 1, 3]


def test_ids_are_each_queues_own(context):
    one, other = new_queue(context), new_queue(context)
    made = message(0, dedup_id="a")
    publish(one, made)
    publish(other, message(1, dedup_id="a"))
    assert (drain(one), drain(other)) == ([0], [1])


# Limits


def test_what_goes_straight_to_a_consumer_needs_no_room(context):
    queue = new_queue(context, **REFUSING)
    sink = FakeSink()
    consume(queue, sink, prefetch=3)
    assert publish(queue, *[message(n) for n in range(6)]) == [[4, 5]]
    assert (sink.names, queue.ready) == ([0, 1, 2], 1)


def test_refused_messages_are_dead_lettered_where_the_queue_says_so(context):
    queue = new_queue(context, max_length=1, overflow="reject-publish-dlx")
    assert publish(queue, message(0), message(1, delay_ms=5), message(2)) == [[2]]
    assert context.dead == [(2, "maxlen")]


def test_a_changed_limit_drops_at_once_what_is_too_much(context):
    queue = new_queue(context)
    publish(queue, *[message(n) for n in range(5)])
    queue.configure(QueueOptions(max_length=2))
    assert context.dead == [(n, "maxlen") for n in range(3)]
    assert drain(queue) == [3, 4]


def test_a_queue_that_refuses_from_now_on_drops_nothing(context):
    queue = new_queue(context)
    publish(queue, *[message(n) for n in range(3)])
    queue.configure(QueueOptions(**REFUSING))
    assert publish(queue, message(3)) == [[3]]
    assert (context.dead, drain(queue)) == ([], [0, 1, 2])


def test_returned_messages_that_are_too_much_push_out_the_first(context):
    queue = new_queue(context, max_length=2)
    sink = FakeSink()
    consumer = consume(queue, sink, prefetch=2)
    publish(queue, *[message(n) for n in range(4)])
    queue.remove_consumer(consumer)
    hand_back(queue, consumer, sink.take(), "requeue")
    assert context.dead == [(0, "maxlen"), (1, "maxlen")]
    assert drain(queue) == [2, 3]


# Groups


def test_the_first_of_all_is_dropped_also_where_every_group_is_blocked(context):
    queue = new_queue(context, message_groups=True, max_length=2)
    sink = FakeSink()
    consumer = consume(queue, sink)
    publish(queue, message(0, group="a"), message(1, group="b"))
    publish(queue, *[message(2 + n, group=group) for n, group in enumerate("abab")])
    assert (sink.names, context.dead) == ([0, 1], [(2, "maxlen"), (3, "maxlen")])
    hand_back(queue, consumer, sink.take())
    assert sink.names == [4, 5]


def test_a_fetch_without_ack_frees_the_group_at_once(context):
    queue = new_queue(context, message_groups=True)
    publish(queue, *[message(n, group="a") for n in range(3)])
    assert drain(queue) == [0, 1, 2]


def test_a_fetch_with_ack_blocks_the_group(context):
    queue = new_queue(context, message_groups=True)
    publish(queue, message(0, group="a"), message(1, group="a"), message(2, group="b"))
    assert [fetch(queue, no_ack=False) for _ in range(3)] == [0, 2, None]
    assert (queue.ready, queue.unacked) == (1, 2)


def test_consumers_that_do_not_ack_block_no_group(context):
    queue = new_queue(context, message_groups=True)
    sink = FakeSink()
    consume(queue, sink, no_ack=True)
    publish(queue, *[message(n, group="a") for n in range(4)])
    assert sink.names == [0, 1, 2, 3]


def test_a_single_active_consumer_gets_one_of_each_group(context):
    queue = new_queue(context, message_groups=True, single_active_consumer=True)
    sinks = [FakeSink(), FakeSink()]
    first = consume(queue, sinks[0], "a")
    consume(queue, sinks[1], "b")
    publish(queue, *[message(n, group=group) for n, group in enumerate("aabb")])
    assert [sink.names for sink in sinks] == [[0, 2], []]
    queue.remove_consumer(first)
    assert sinks[1].names == []  # both groups are still held
    hand_back(queue, first, sinks[0].take()[:1])
    assert sinks[1].names == [1]


def test_a_lost_exclusive_consumers_groups_go_on_in_order(context):
    queue = new_queue(context, message_groups=True)
    sink = FakeSink()
    consumer = consume(queue, sink, exclusive=True)
    publish(queue, *[message(n, group=group) for n, group in enumerate("abab")])
    queue.remove_consumer(consumer)
    hand_back(queue, consumer, sink.take(), "requeue", lost=True)
    assert drain(queue) == [0, 1, 2, 3]


def test_an_expired_message_frees_its_group_for_the_next(context):
    queue = new_queue(context, message_groups=True, message_ttl_ms=5)
    publish(queue, *[message(n, group="a") for n in range(3)])
    context.advance(5)
    assert context.dead == [(n, "expired") for n in range(3)]
    publish(queue, message(3, group="a"))
    assert drain(queue) == [3]


def test_messages_published_before_there_were_groups_are_in_them_too(context):
    queue = new_queue(context)
    publish(queue, message(0, group="a"), message(1, group="a"), message(2, group="b"))
    queue.configure(QueueOptions(message_groups=True))
    sink = FakeSink()
    consume(queue, sink)
    assert sink.names == [0, 2]


def test_a_delayed_message_does_not_block_its_group_before_it_was_delivered(context):
    queue = new_queue(context, message_groups=True)
    publish(queue, message(0, group="a", delay_ms=5), message(1, group="a"))
    assert drain(queue) == [1]
    context.advance(5)
    assert drain(queue) == [0]


# Changes of order while messages are out


@pytest.mark.parametrize(
    "before", [{}, {"max_priority": 3}, {"message_groups": True}], ids=" ".join
)
@pytest.mark.parametrize(
    "after",
    [
        {},
        {"max_priority": 3},
        {"max_priority": 3, "priority_aging_ms": 10},
        {"message_groups": True},
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("retry_delay_ms", [0, 3])
def test_what_was_out_comes_back_into_the_new_order(context, before, after, retry_delay_ms):
    queue = new_queue(context, retry_delay_ms=retry_delay_ms, **before)
    sink = FakeSink()
    consumer = consume(queue, sink)
    publish(queue, *[message(n, priority=n, group=str(n)) for n in range(3)])
    publish(queue, message(3, priority=3, group="3", delay_ms=1))
    context.advance(1)
    queue.remove_consumer(consumer)
    held = sink.take()
    assert names(held) == [0, 1, 2, 3] if "max_priority" not in before else len(held) == 4
    hand_back(queue, consumer, held[:2], "requeue")
    queue.configure(QueueOptions(retry_delay_ms=retry_delay_ms, **after))
    hand_back(queue, consumer, held[2:], "requeue")
    publish(queue, message(4, priority=1, group="4"))
    context.advance(3)
    assert queue.ready == 5
    found = drain(queue)
    assert sorted(found) == [0, 1, 2, 3, 4]
    if after == {"max_priority": 3}:
        assert found == [3, 2, 1, 4, 0]
