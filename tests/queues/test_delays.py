"""Delayed messages: when they come, in which order, and what moving and cancelling do."""

import pytest

import queues.delays
from queues.delays import Delays
from tests.queues.fakes import (
    FakeReceipt,
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

DAY_MS = 24 * 3600 * 1000


class Disk:
    """Where a durable queue would keep them: sequence → due."""

    def __init__(self):
        self.due = {}
        self.overdue_ones = []

    def due_of(self, sequence):
        return self.due.get(sequence)

    def delay(self, delays):
        self.due.update(delays)

    def overdue(self, sequences):
        self.overdue_ones += sequences

    def settle_sequences(self, sequences):
        for sequence in sequences:
            del self.due[sequence]


class Bench:
    """Delays in memory or on disk, and what became due."""

    def __init__(self, context, kind):
        self.context = context
        self.disk = Disk() if kind == "disk" else None
        self.rung = []
        self.delays = Delays(context, self._came, lambda sequence: None, self.disk)

    def _came(self, messages):
        self.rung += names(messages)

    @property
    def due(self):
        return self.disk.overdue_ones if self.disk is not None else self.rung

    def add(self, *items):
        made = []
        for sequence, due_ms in items:
            made.append(message(sequence))
            made[-1].sequence, made[-1].due_ms = sequence, due_ms
            if self.disk is not None:
                self.disk.due[sequence] = due_ms
        self.delays.add(made)


@pytest.fixture(params=["memory", "disk"])
def bench(context, request):
    return Bench(context, request.param)


# Moving and cancelling


def test_two_with_the_same_time_come_together_in_order_of_their_numbers(context, bench):
    bench.add((7, 1010), (3, 1010), (5, 1005))
    context.advance(9)
    assert bench.due == [5]
    context.advance(1)
    assert bench.due == [5, 3, 7]
    assert (len(bench.delays), context.timers) == (0, 0)


def test_a_moved_message_comes_at_its_new_time_and_only_then(context, bench):
    bench.add((0, 1010), (1, 1010))
    assert bench.delays.move(0, 1030)
    assert bench.delays.move(1, 1005)
    context.advance(5)
    assert bench.due == [1]
    context.advance(24)
    assert bench.due == [1]
    context.advance(1)
    assert bench.due == [1, 0]
    assert (len(bench.delays), context.timers) == (0, 0)


def test_a_message_moved_away_and_back_comes_once(context, bench):
    bench.add((0, 1010))
    for due_ms in (1020, 1010, 1005, 1010):
        assert bench.delays.move(0, due_ms)
    context.advance(9)
    assert bench.due == []
    context.advance(30)
    assert bench.due == [0]


@pytest.mark.parametrize("due_ms", [0, 1, 999, 1000])
def test_a_message_moved_to_now_or_the_past_comes_at_once(context, bench, due_ms):
    bench.add((0, 1000 + DAY_MS))
    assert bench.delays.move(0, due_ms)
    context.advance(1)
    assert bench.due == [0]
    assert len(bench.delays) == 0


def test_a_cancelled_message_never_comes(context, bench):
    bench.add((0, 1010), (1, 1010))
    assert bench.delays.cancel(0)
    assert len(bench.delays) == 1
    context.advance(20)
    assert bench.due == [1]


@pytest.mark.parametrize("how", ["cancel", "move"])
def test_what_is_not_there_can_be_neither_moved_nor_cancelled(context, bench, how):
    arguments = (2000,) if how == "move" else ()
    bench.add((0, 1010), (1, 1020))
    assert bench.delays.cancel(1)
    context.advance(10)
    for sequence in (0, 1, 2):  # came already, cancelled, never was
        assert not getattr(bench.delays, how)(sequence, *arguments)
    assert (bench.due, len(bench.delays)) == ([0], 0)


def test_when_the_last_one_is_cancelled_no_timer_is_left(context, bench):
    bench.add((0, 1000 + 30 * DAY_MS))
    assert bench.delays.cancel(0)
    assert context.timers == 0


def test_a_wheel_swept_in_the_middle_loses_nobody(context, bench, monkeypatch):
    monkeypatch.setattr(queues.delays, "STALE_MAX", 10)
    bench.add(*[(sequence, 5000 + sequence) for sequence in range(5)])
    for turn in range(1000):
        assert bench.delays.move(turn % 5, 6000 + turn)
    assert len(bench.delays._wheel) <= 2 * 5 + 10 + 1
    assert bench.delays.first(9) == [(sequence, 6995 + sequence) for sequence in range(5)]
    context.advance(6000)
    assert bench.due == list(range(5))


def test_a_sweep_keeps_what_is_due_and_did_not_come_yet(context, bench, monkeypatch):
    """The loop was busy: its timers ring late, and an operator was there first."""
    monkeypatch.setattr(queues.delays, "STALE_MAX", 10)
    bench.add((0, 1005), (1, 9000))
    context.now += 7
    for turn in range(50):
        assert bench.delays.move(1, 9001 + turn)
    context.advance(1)
    assert bench.due == [0]
    assert len(bench.delays) == 1


def test_a_sweep_keeps_the_very_message_that_was_moved_to_now(context, bench, monkeypatch):
    monkeypatch.setattr(queues.delays, "STALE_MAX", 10)
    bench.add((0, 9000), (1, 9000))
    for turn in range(12):
        bench.delays.move(0, 8000 + turn)
    assert len(bench.delays._wheel) == 2 * 2 + 10  # as many as are left alone
    assert bench.delays.move(1, context.now)
    assert len(bench.delays._wheel) == 2
    context.advance(1)
    assert bench.due == [1]


def test_the_next_to_come_are_listed_by_time(context, bench):
    bench.add((0, 1500), (1, 1200), (2, 1200), (3, 1100))
    bench.delays.cancel(3)
    bench.delays.move(0, 1300)
    assert bench.delays.first(2) == [(1, 1200), (2, 1200)]
    assert bench.delays.first(10) == [(1, 1200), (2, 1200), (0, 1300)]
    assert [bench.delays.due_of(sequence) for sequence in range(4)] == [1300, 1200, 1200, None]


def test_what_a_restart_found_comes_at_its_time_or_at_once(context):
    bench = Bench(context, "disk")
    bench.disk.due = {0: 10, 1: 1000, 2: 1003}
    bench.delays.recovered(bench.disk.due.items())
    assert len(bench.delays) == 3
    context.advance(1)
    assert bench.due == [0, 1]
    context.advance(2)
    assert (bench.due, len(bench.delays)) == ([0, 1, 2], 0)


# In a queue


@pytest.mark.parametrize("delay_ms", [1, 2, 63, 64, 65, 1000, 4097])
def test_a_delayed_message_comes_to_the_millisecond(context, delay_ms):
    queue = new_queue(context)
    sink = FakeSink()
    consume(queue, sink)
    publish(queue, message(0, delay_ms=delay_ms))
    context.advance(delay_ms - 1)
    assert (sink.names, queue.ready, queue.away.delayed_count) == ([], 0, 1)
    context.advance(1)
    assert (sink.names, queue.ready, queue.away.delayed_count) == ([0], 0, 0)
    assert not sink.delivered[0][1].redelivered
    assert context.timers == 0


def test_the_queues_delay_is_for_those_that_bring_none(context):
    queue = new_queue(context, message_delay_ms=10)
    publish(queue, message(0), message(1, delay_ms=3), message(2, delay_ms=20))
    publish(queue, message(3, delay_ms=0))
    assert drain(queue) == [3]  # its own delay is none at all
    seen = []
    for _ in range(20):
        context.advance(1)
        seen += [(context.now - 1000, name) for name in drain(queue)]
    assert seen == [(3, 1), (10, 0), (20, 2)]


def test_what_comes_due_takes_its_place_among_its_like_and_before_fresh_ones(context):
    queue = new_queue(context)
    publish(queue, message(0, delay_ms=5), message(1), message(2, delay_ms=5), message(3))
    context.advance(5)
    assert drain(queue) == [0, 2, 1, 3]


def test_the_queues_ttl_begins_when_a_delayed_message_is_due(context):
    queue = new_queue(context, message_ttl_ms=5)
    publish(queue, message(0, delay_ms=10))
    context.advance(14)
    assert (queue.ready, context.dead) == (1, [])
    context.advance(1)
    assert (queue.ready, context.dead) == (0, [(0, "expired")])


def test_a_messages_own_ttl_begins_when_it_is_due(context):
    queue = new_queue(context)
    publish(queue, message(0, delay_ms=10, expires_at=context.now + 5))
    context.advance(14)
    assert (queue.ready, context.dead) == (1, [])
    context.advance(1)
    assert (queue.ready, context.dead) == (0, [(0, "expired")])


def test_the_smaller_ttl_counts_for_delayed_messages_too(context):
    queue = new_queue(context, message_ttl_ms=3)
    publish(queue, message(0, delay_ms=10, expires_at=context.now + 5))
    publish(queue, message(1, delay_ms=10, expires_at=context.now + 2))
    context.advance(12)
    assert context.dead == []  # 0 stands at the head, and lives for another millisecond
    context.advance(1)
    assert context.dead == [(0, "expired"), (1, "expired")]


def test_a_message_that_expired_behind_one_that_came_due_is_not_delivered(context):
    queue = new_queue(context, message_ttl_ms=5)
    publish(queue, message(0))
    publish(queue, message(1, delay_ms=3))
    context.advance(6)
    assert (queue.ready, context.dead) == (2, [])  # 1 stands at the head until 8
    sink = FakeSink()
    consume(queue, sink)
    assert (sink.names, context.dead) == ([1], [(0, "expired")])


def test_delayed_messages_need_no_room_until_they_are_due(context):
    queue = new_queue(context, max_length=1, overflow="reject-publish")
    delayed = [message(n, delay_ms=5) for n in range(3)]
    assert publish(queue, *delayed, message(3), message(4)) == [[4]]
    assert (queue.ready, queue.away.delayed_count) == (1, 3)
    context.advance(5)
    assert drain(queue) == [0, 1, 2, 3]  # what was accepted is not refused afterwards


def test_where_the_head_is_dropped_delayed_messages_push_it_out_when_they_are_due(context):
    queue = new_queue(context, max_length=2)
    publish(queue, message(0, delay_ms=5), message(1), message(2))
    context.advance(5)
    assert context.dead == [(0, "maxlen")]  # which stands first
    assert drain(queue) == [1, 2]


def test_a_purge_takes_delayed_messages_and_their_timers(context):
    queue = new_queue(context)
    publish(queue, message(0), message(1, delay_ms=50), message(2, delay_ms=60))
    assert queue.purge() == 3
    assert (queue.ready, queue.away.delayed_count, context.timers) == (0, 0, 0)
    context.advance(100)
    assert drain(queue) == []
    publish(queue, message(3, delay_ms=5))
    context.advance(5)
    assert drain(queue) == [3]


def test_a_deleted_queue_forgets_its_delayed_messages(context):
    queue = new_queue(context, retry_delay_ms=5, visibility_timeout_ms=9)
    sink = FakeSink()
    consumer = consume(queue, sink, prefetch=2)
    publish(queue, message(0, delay_ms=50), message(1), message(2))
    hand_back(queue, consumer, sink.take()[:1], "requeue")
    queue.delete()
    assert (queue.ready, queue.away.delayed_count, context.timers) == (0, 0, 0)
    context.advance(100)
    assert (sink.names, context.dead) == ([], [])


def test_a_delayed_message_is_confirmed_when_it_is_taken(context):
    receipt = FakeReceipt()
    new_queue(context).publish([message(0, delay_ms=30 * DAY_MS)], receipt)
    assert receipt.answers == [[]]


def test_a_delayed_message_can_be_cancelled_and_moved_in_its_queue(context):
    queue = new_queue(context)
    publish(queue, *[message(n, delay_ms=10) for n in range(3)])
    assert queue.away.delays.cancel(1)
    assert queue.away.delays.move(2, context.now + 20)
    context.advance(10)
    assert drain(queue) == [0]
    context.advance(10)
    assert drain(queue) == [2]
    assert (queue.away.delayed_count, context.timers) == (0, 0)


def test_messages_that_come_due_together_go_to_consumers_in_turn(context):
    queue = new_queue(context)
    sinks = [FakeSink(), FakeSink()]
    for tag, sink in zip("ab", sinks, strict=True):
        consume(queue, sink, tag)
    publish(queue, *[message(n, delay_ms=5) for n in range(6)])
    context.advance(5)
    assert [sink.names for sink in sinks] == [[0, 2, 4], [1, 3, 5]]


def test_priorities_count_when_they_are_due(context):
    queue = new_queue(context, max_priority=5)
    publish(queue, message(0, delay_ms=5), message(1, priority=5, delay_ms=5), message(2))
    context.advance(5)
    assert drain(queue) == [1, 0, 2]


def test_a_delayed_message_ages_from_when_it_is_due(context):
    queue = new_queue(context, max_priority=1, priority_aging_ms=10)
    publish(queue, message(0, delay_ms=20))
    context.advance(20)
    publish(queue, message(1, priority=1))
    context.advance(5)
    publish(queue, message(2, priority=1))
    assert drain(queue) == [1, 2, 0]


def test_a_message_that_waits_is_not_fetched(context):
    queue = new_queue(context)
    publish(queue, message(0, delay_ms=5))
    assert fetch(queue) is None
    context.advance(5)
    assert fetch(queue) == 0
