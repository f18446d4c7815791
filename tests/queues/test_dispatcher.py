"""Whose turn it is: fairness, priorities, and what consumers without room cost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queues.consumers import Consumer, Dispatcher
from queues.ready import FifoReady
from tests.queues.fakes import FakeContext, FakeSink, message, names, new_queue


class Held:
    """A queue that nothing is asked of."""

    def auto_acked(self, messages):
        pass


def filled(count, size=10):
    ready = FifoReady()
    made = [message(n, size=size) for n in range(count)]
    for n, m in enumerate(made):
        m.sequence = n
    ready.push(made)
    return ready


def dispatcher_with(*consumers, **options):
    dispatcher = Dispatcher(single_active=False, **options)
    for consumer in consumers:
        dispatcher.add(consumer)
    return dispatcher


def consumer_on(sink, tag="c", **options):
    return Consumer(tag, Held(), sink, **options)


@settings(derandomize=True, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.lists(st.integers(0, 20), max_size=5),
)
def test_batches_are_dealt_as_if_message_by_message(prefetches, batches):
    """In one go or one at a time, with room for all or not: who gets what is the same."""
    shares = []
    for one_by_one in (False, True):
        sinks = [FakeSink() for _ in prefetches]
        dispatcher = dispatcher_with(
            *[consumer_on(s, prefetch=p) for s, p in zip(sinks, prefetches, strict=True)]
        )
        for count in batches:
            ready = filled(count)
            if one_by_one:
                while len(ready) and dispatcher.deal_one(ready) is not None:
                    pass
            else:
                dispatcher.deal(ready)
        shares.append([sink.names for sink in sinks])
    assert shares[0] == shares[1]


def test_consumers_take_turns_across_batches():
    sinks = [FakeSink() for _ in range(3)]
    dispatcher = dispatcher_with(*[consumer_on(sink) for sink in sinks])
    ready = filled(0)
    for n in range(7):
        ready.push([message(n)])
        dispatcher.deal(ready)
    assert [sink.names for sink in sinks] == [[0, 3, 6], [1, 4], [2, 5]]


def test_consumers_that_share_a_channel_take_turns_too():
    sink = FakeSink()
    dispatcher = dispatcher_with(consumer_on(sink, "a"), consumer_on(sink, "b"))
    dispatcher.deal(filled(6))
    assert [tag for tag, _ in sink.delivered] == ["a", "b"] * 3
    assert sink.names == list(range(6))


def test_the_credit_of_a_channel_is_shared_by_its_consumers():
    sink = FakeSink(limit=3)
    dispatcher = dispatcher_with(consumer_on(sink, "a"), consumer_on(sink, "b", prefetch=9))
    assert dispatcher.deal(filled(10)) == 3
    assert sink.names == [0, 1, 2]


def test_the_highest_priority_with_room_is_served_first():
    low, high, middle = FakeSink(), FakeSink(), FakeSink()
    dispatcher = dispatcher_with(
        consumer_on(low, priority=-5),
        consumer_on(high, priority=10, prefetch=2),
        consumer_on(middle, priority=1, prefetch=3),
    )
    dispatcher.deal(filled(7))
    assert (high.names, middle.names, low.names) == ([0, 1], [2, 3, 4], [5, 6])


def test_consumers_that_do_not_ack_hold_nothing_and_count_for_nothing():
    sink = FakeSink(limit=1)
    dispatcher = dispatcher_with(consumer_on(sink, no_ack=True, prefetch=1))
    assert dispatcher.deal(filled(5)) == 0
    assert sink.names == list(range(5))
    assert sink.credit.used == 0


def test_a_channel_whose_buffer_fills_up_gets_no_further_batch():
    sink = FakeSink(full_after=1)
    dispatcher = dispatcher_with(consumer_on(sink, no_ack=True), batch_bytes=100)
    ready = filled(100, size=30)
    dispatcher.deal(ready)
    assert len(sink.names) == 4  # up to the one that reaches the size of a batch
    assert len(ready) == 96


def test_a_batch_for_several_is_bounded_as_well():
    sinks = [FakeSink(full_after=1), FakeSink(full_after=1)]
    dispatcher = dispatcher_with(*[consumer_on(sink) for sink in sinks], batch_bytes=100)
    ready = filled(100, size=30)
    dispatcher.deal(ready)
    assert [sink.names for sink in sinks] == [[0, 2], [1, 3]]


def test_turns_go_on_where_a_bounded_batch_ended():
    sinks = [FakeSink(), FakeSink()]
    dispatcher = dispatcher_with(*[consumer_on(sink) for sink in sinks], batch_bytes=80)
    dispatcher.deal(filled(20, size=30))  # three messages reach the size of a batch
    assert [sink.names for sink in sinks] == [list(range(0, 20, 2)), list(range(1, 20, 2))]


def test_a_consumer_that_has_room_again_comes_back_behind_the_others():
    sinks = [FakeSink() for _ in range(3)]
    consumers = [consumer_on(sink, prefetch=1) for sink in sinks]
    dispatcher = dispatcher_with(*consumers)
    ready = filled(5)
    assert dispatcher.deal(ready) == 3
    for consumer in reversed(consumers):
        consumer.release(1)
        dispatcher.wake(consumer)
        dispatcher.wake(consumer)  # twice makes no difference
    dispatcher.deal(ready)
    assert [sink.names for sink in sinks] == [[0], [1, 4], [2, 3]]


def test_a_removed_consumer_is_not_served_and_cannot_be_woken():
    sinks = [FakeSink(), FakeSink()]
    first, second = [consumer_on(sink) for sink in sinks]
    dispatcher = dispatcher_with(first, second)
    dispatcher.remove(first)
    dispatcher.wake(first)
    dispatcher.deal(filled(4))
    assert [sink.names for sink in sinks] == [[], [0, 1, 2, 3]]
    dispatcher.remove(second)
    assert dispatcher.deal(filled(4)) == 0
    assert len(dispatcher) == 0


@pytest.mark.parametrize("parked", [10, 1000])
def test_consumers_without_room_cost_nothing_per_message(parked):
    stuck = [FakeSink() for _ in range(parked)]
    consumers = [consumer_on(sink, prefetch=1) for sink in stuck]
    able = FakeSink()
    dispatcher = dispatcher_with(*consumers, consumer_on(able, priority=-1))
    ready = filled(parked + 10)
    dispatcher.deal(ready)
    assert len(able.names) == 10
    for sink in stuck:
        sink.looked_at = 0
    able.looked_at = 0
    for n in range(100):
        ready.push([message(n)])
        dispatcher.deal(ready)
    assert sum(sink.looked_at for sink in stuck) == 0
    assert able.looked_at <= 100


def test_room_is_counted_up_to_what_is_enough():
    dispatcher = dispatcher_with(
        consumer_on(FakeSink(), prefetch=2),
        consumer_on(FakeSink(limit=1), prefetch=5),
        consumer_on(FakeSink(), prefetch=4, priority=3),
    )
    assert dispatcher.room(100) == 7
    assert dispatcher.room(5) == 5
    assert dispatcher_with(consumer_on(FakeSink(), no_ack=True)).room(9) == 9


# Single active consumer


def test_only_the_first_of_single_active_consumers_is_served_until_it_leaves():
    context = FakeContext()
    queue = new_queue(context, single_active_consumer=True)
    sinks = [FakeSink() for _ in range(3)]
    consumers = [Consumer(str(n), queue, sink, prefetch=2) for n, sink in enumerate(sinks)]
    for consumer in consumers:
        queue.add_consumer(consumer)
    queue.publish([message(n) for n in range(6)], None)
    assert [sink.names for sink in sinks] == [[0, 1], [], []]
    queue.remove_consumer(consumers[1])
    assert [sink.names for sink in sinks] == [[0, 1], [], []]
    queue.remove_consumer(consumers[0])
    assert [sink.names for sink in sinks] == [[0, 1], [], [2, 3]]
    held = [m for _, m in sinks[0].delivered]
    consumers[0].release(2)
    queue.requeue(consumers[0], held)
    assert names(queue._ready) == [0, 1, 4, 5]
