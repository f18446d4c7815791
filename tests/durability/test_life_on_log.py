"""Delays, retries, leases, groups and duplicates of a durable queue, and restarts in mid-life."""

import pytest

import queues.cold
import queues.live_log
import queues.pacing
from queues.consumers import Consumer
from tests.durability.queue_on_log import QueueOnLog
from tests.queues.fakes import (
    FakeReceipt,
    FakeSink,
    consume,
    hand_back,
    message,
    names,
    publish,
)


def drain(life):
    """The names of all that can be had, in order, with what has to be read for it."""
    found = []
    while True:
        life.settle_down()
        holder = Consumer("", life.queue, FakeSink(), no_ack=True, fetching=True)
        got = life.queue.get(holder)
        if got is None:
            return names(found)
        found.append(got)


def take_one(life):
    """One message, held by a consumer that wants no more."""
    sink = FakeSink()
    consumer = consume(life.queue, sink, prefetch=1)
    life.settle_down()
    [held] = sink.take()
    life.queue.remove_consumer(consumer)
    return consumer, held


def fail_one(life):
    consumer, held = take_one(life)
    hand_back(life.queue, consumer, [held], "requeue")
    return held


def test_a_delayed_message_keeps_its_time_over_a_restart():
    life = QueueOnLog()
    publish(life.queue, message(0, delay_ms=20), message(1))
    life.settle_down()
    life.advance(5)
    life.crash(down_ms=5)
    assert (life.queue.ready, life.queue.away.delayed_count) == (1, 1)
    life.advance(9)
    assert drain(life) == [1]
    life.advance(1)
    assert drain(life) == [0]
    assert (life.queue.ready, life.queue.away.delayed_count) == (0, 0)


def test_a_message_that_came_due_while_the_node_was_down_comes_at_once():
    life = QueueOnLog()
    publish(life.queue, message(0, delay_ms=20))
    life.settle_down()
    life.crash(down_ms=1000)
    life.advance(1)
    assert drain(life) == [0]


def test_a_moved_message_keeps_its_new_time_over_a_restart():
    life = QueueOnLog()
    publish(life.queue, message(0, delay_ms=20), message(1, delay_ms=20))
    life.settle_down()
    assert life.queue.away.delays.move(0, life.context.now + 5)
    assert life.queue.away.delays.move(1, life.context.now + 50)
    life.settle_down()
    life.crash()
    life.advance(5)
    assert drain(life) == [0]
    life.advance(44)
    assert drain(life) == []
    life.advance(1)
    assert drain(life) == [1]


def test_a_cancelled_message_is_gone_once_that_is_durable():
    life = QueueOnLog()
    publish(life.queue, message(0, delay_ms=20))
    life.settle_down()
    assert life.queue.away.delays.cancel(0)
    assert not life.queue.away.delays.cancel(0)
    assert not life.queue.away.delays.move(0, 5000)
    life.settle_down()
    life.crash(down_ms=100)
    life.advance(1)
    assert (drain(life), life.queue.away.delayed_count) == ([], 0)


def test_a_delayed_message_cannot_be_moved_before_it_is_safe():
    life = QueueOnLog()
    publish(life.queue, message(0, delay_ms=20))
    assert not life.queue.away.delays.cancel(0)
    assert not life.queue.away.delays.move(0, 5000)
    assert life.queue.away.delayed_count == 0


# Failures


def test_a_failed_message_keeps_its_count_and_its_wait_over_a_restart():
    life = QueueOnLog(retry_delay_ms=10, retry_backoff=2.0)
    publish(life.queue, message(0))
    life.settle_down()
    fail_one(life)
    life.advance(10)
    fail_one(life)
    life.settle_down()
    life.advance(5)
    life.crash(down_ms=5)
    life.advance(9)
    assert drain(life) == []
    life.advance(1)
    _, held = take_one(life)
    assert (held.delivery_count, held.redelivered) == (2, True)


def test_a_failed_message_does_not_come_back_before_its_failure_is_durable():
    """A retry delay that is shorter than a commit."""
    life = QueueOnLog(retry_delay_ms=1, delivery_limit=2)
    publish(life.queue, message(0))
    life.settle_down()
    sink = FakeSink()
    consumer = consume(life.queue, sink, prefetch=1)
    for failures in range(3):
        [held] = sink.take()
        assert (held.delivery_count, held.redelivered) == (failures, failures > 0)
        hand_back(life.queue, consumer, [held], "requeue")
        life.advance(1)
        assert not life.log.reads  # not before the log knows of its failure
        life.settle_down()
    assert life.context.dead == [(0, "delivery_limit")]


def test_a_failed_message_comes_back_with_the_ones_that_failed_later():
    life = QueueOnLog(retry_delay_ms=5)
    publish(life.queue, *[message(n) for n in range(3)])
    life.settle_down()
    fail_one(life)
    life.advance(2)
    fail_one(life)
    life.advance(5)
    assert drain(life) == [0, 1, 2]


def test_after_a_restart_failed_messages_block_their_groups_and_no_others():
    life = QueueOnLog(retry_delay_ms=10, message_groups=True)
    publish(life.queue, *[message(n, group=group) for n, group in enumerate("aabb")])
    life.settle_down()
    fail_one(life)
    life.settle_down()
    life.crash()
    assert drain(life) == [2, 3]
    life.advance(10)
    assert drain(life) == [0, 1]


def group_failed(**options):
    """0 of group a failed and waits, 1 stands behind it, and the node was started anew."""
    life = QueueOnLog(retry_delay_ms=10, message_groups=True, **options)
    publish(life.queue, message(0, group="a"), message(1, group="a"))
    life.settle_down()
    fail_one(life)
    life.settle_down()
    life.crash()
    return life


@pytest.mark.parametrize("read", ["before", "after"])
def test_a_purge_after_a_restart_frees_the_groups_of_failed_messages(read):
    life = group_failed()
    if read == "before":
        life.settle_down()
    assert life.queue.purge() == 2
    publish(life.queue, message(2, group="a"), message(3, group="a"))
    assert drain(life) == [2, 3]
    life.advance(20)
    assert (drain(life), life.queue.away.delayed_count) == ([], 0)


@pytest.mark.parametrize("read", ["before", "after"])
def test_cancelling_a_failed_message_after_a_restart_frees_its_group(read):
    life = group_failed()
    if read == "before":
        life.settle_down()
    assert life.queue.away.delays.cancel(0)
    assert drain(life) == [1]


def test_groups_that_come_while_the_last_messages_are_read_do_not_wait_for_ever():
    life = QueueOnLog(retry_delay_ms=10)
    publish(life.queue, *[message(n, group=group) for n, group in enumerate("aab")])
    life.settle_down()
    fail_one(life)
    life.settle_down()
    life.crash()
    assert life.log.reads  # 1 and 2 are on their way
    life.configure(retry_delay_ms=10, message_groups=True)
    assert drain(life) == [2]
    life.advance(10)
    assert drain(life) == [0, 1]


def test_a_failed_message_cancelled_before_its_group_is_known_blocks_nothing():
    life = QueueOnLog(retry_delay_ms=10)
    publish(life.queue, *[message(n, group=group) for n, group in enumerate("aab")])
    life.settle_down()
    fail_one(life)
    life.settle_down()
    life.crash()
    assert life.log.reads  # 1 and 2 are on their way: the groups have to wait for that
    life.configure(retry_delay_ms=10, message_groups=True)
    assert life.queue.away.delays.cancel(0)
    assert drain(life) == [1, 2]


def test_a_purge_and_then_groups_block_nothing():
    life = QueueOnLog(retry_delay_ms=10)
    publish(life.queue, message(0, group="a"))
    life.settle_down()
    fail_one(life)
    life.settle_down()
    life.queue.purge()
    life.configure(retry_delay_ms=10, message_groups=True)
    publish(life.queue, message(1, group="a"))
    assert drain(life) == [1]


# Changes of order


@pytest.mark.parametrize(
    "options",
    [{"message_groups": True}, {"max_priority": 3, "priority_aging_ms": 10}, {"max_priority": 3}],
    ids=" ".join,
)
def test_messages_on_their_way_to_the_log_come_into_the_new_order(options):
    life = QueueOnLog()
    publish(life.queue, message(0, group="a"), message(1, group="a", priority=2))
    life.log.submit()
    publish(life.queue, message(2, group="b", priority=1))
    life.configure(**options)
    assert sorted(drain(life)) == [0, 1, 2]


@pytest.mark.parametrize("retry_delay_ms", [0, 5])
def test_messages_that_were_out_come_into_the_new_order(retry_delay_ms):
    life = QueueOnLog(retry_delay_ms=retry_delay_ms)
    publish(life.queue, *[message(n, group="ab"[n % 2], priority=n) for n in range(4)])
    life.settle_down()
    consumer, held = take_one(life)
    life.configure(retry_delay_ms=retry_delay_ms, max_priority=3, priority_aging_ms=10)
    hand_back(life.queue, consumer, [held], "requeue")
    life.advance(5)
    assert sorted(drain(life)) == [0, 1, 2, 3]


def test_a_delayed_message_that_was_read_back_ages_from_when_it_was_due():
    life = QueueOnLog(max_priority=1, priority_aging_ms=10)
    publish(life.queue, message(0, delay_ms=20))
    life.settle_down()
    life.advance(20)
    publish(life.queue, message(1, priority=1))
    life.advance(5)
    publish(life.queue, message(2, priority=1))
    assert drain(life) == [1, 2, 0]


# Purges


def test_a_purge_counts_ready_delayed_and_failed_messages_once_each():
    life = QueueOnLog(retry_delay_ms=10, redelivery_rate=1)
    publish(life.queue, message(0), message(1, delay_ms=50), message(2), message(3, delay_ms=1))
    life.settle_down()
    fail_one(life)
    life.advance(1)
    life.settle_down()
    assert life.queue.purge() == 4
    life.settle_down()
    assert (drain(life), life.queue.away.delayed_count) == ([], 0)
    life.crash(down_ms=100)
    life.advance(1)
    assert drain(life) == []


@pytest.mark.parametrize("durable", [True, False])
def test_a_purge_does_not_count_what_was_settled_before(durable):
    life = QueueOnLog()
    publish(life.queue, message(0, delay_ms=1), message(1))
    life.settle_down()
    life.advance(1)
    life.settle_down()
    consumer, held = take_one(life)
    assert names([held]) == [0]
    hand_back(life.queue, consumer, [held])
    if durable:
        life.settle_down()
    assert life.queue.purge() == 1


def test_a_purge_counts_messages_that_wait_for_their_turn_once():
    life = QueueOnLog(redelivery_rate=1)
    publish(life.queue, *[message(n, delay_ms=1) for n in range(3)])
    life.settle_down()
    life.advance(1)
    sink = FakeSink()
    consumer = consume(life.queue, sink)
    life.settle_down()
    life.queue.remove_consumer(consumer)
    hand_back(life.queue, consumer, sink.take(), "requeue", lost=True)
    assert life.queue.ready == 3
    assert life.queue.purge() == 3
    life.advance(2000)
    assert drain(life) == []


def test_a_second_purge_finds_nothing():
    life = QueueOnLog()
    publish(life.queue, message(0, delay_ms=1), message(1, delay_ms=50), message(2))
    life.settle_down()
    life.advance(1)
    life.settle_down()
    assert [life.queue.purge() for _ in range(2)] == [3, 0]


def test_a_purge_leaves_held_messages_that_were_delayed_once():
    life = QueueOnLog()
    publish(life.queue, message(0, delay_ms=1))
    life.settle_down()
    life.advance(1)
    consumer, held = take_one(life)
    assert life.queue.purge() == 0
    life.settle_down()
    hand_back(life.queue, consumer, [held], "requeue")
    assert drain(life) == [0]


# Limits and duplicates


def test_delayed_messages_on_their_way_to_the_log_take_no_room():
    life = QueueOnLog(max_length=2, overflow="reject-publish")
    publish(life.queue, *[message(n, delay_ms=5) for n in range(4)])
    receipt = FakeReceipt()
    life.queue.publish([message(4), message(5), message(6)], receipt)
    life.settle_down()
    assert receipt.answers == [[6]]


@pytest.mark.parametrize("committed", [True, False])
def test_a_duplicate_is_confirmed_when_the_first_is_safe(committed):
    life = QueueOnLog()
    first, second = FakeReceipt(), FakeReceipt()
    life.queue.publish([message(0, dedup_id="a")], first)
    life.log.submit()
    if committed:
        life.settle_down()
    life.queue.publish([message(1, dedup_id="a")], second)
    life.log.submit()
    assert len(second.answers) == len(first.answers) == committed
    life.settle_down()
    assert first.answers == second.answers == [[]]
    assert drain(life) == [0]


def test_an_id_is_known_after_a_restart_if_its_message_is():
    life = QueueOnLog(dedup_window_ms=50)
    publish(life.queue, message(0, dedup_id="a"))
    life.settle_down()
    publish(life.queue, message(1, dedup_id="b"))
    life.crash(down_ms=10)
    publish(life.queue, message(2, dedup_id="a"), message(3, dedup_id="b"))
    assert drain(life) == [0, 3]
    life.advance(40)
    publish(life.queue, message(4, dedup_id="a"))
    assert drain(life) == [4]


# Leases


def test_a_restart_ends_every_lease():
    life = QueueOnLog(visibility_timeout_ms=1000)
    publish(life.queue, message(0))
    life.settle_down()
    take_one(life)
    life.crash()
    assert life.queue.away.leased_count == 0
    _, held = take_one(life)
    assert held.redelivered
    assert life.queue.away.leased_count == 1


# Reads


def cold_entries(monkeypatch, *delays, down_ms=0):
    """A restarted queue with an entry for each message, which is read one by one."""
    monkeypatch.setattr(queues.cold, "LOAD_MESSAGES", 1)
    life = QueueOnLog()
    for n, delay_ms in enumerate(delays):
        publish(life.queue, message(n, delay_ms=delay_ms))
        life.log.settle_down()
    life.stop(down_ms=down_ms)
    return life


def test_what_is_cancelled_while_its_entry_is_read_does_not_come_back(monkeypatch):
    life = cold_entries(monkeypatch, 50, 0)
    assert life.log.reads  # of the entry of 0, in which nothing is cold
    assert life.queue.away.delays.cancel(0)
    life.log.settle_down()
    assert drain(life) == [1]
    assert life.queue.ready == 0


@pytest.mark.parametrize("applied", [True, False])
def test_what_is_acked_while_its_entry_is_read_does_not_come_back(monkeypatch, applied):
    """It was delayed, and came due before the cold messages around it were read."""
    life = cold_entries(monkeypatch, 0, 5, 0, down_ms=10)
    life.advance(1)
    life.log.finish_read()
    life.log.finish_read()
    sink = FakeSink()
    consumer = consume(life.queue, sink, prefetch=2)
    life.queue.remove_consumer(consumer)
    [zero, one] = sorted(sink.take(), key=lambda m: m.sequence)
    assert names([zero, one]) == [0, 1]
    assert life.log.reads  # of the entry of 1, for the next cold ones
    hand_back(life.queue, consumer, [one])
    if applied:
        life.log.settle_down()
    life.log.finish_read()
    life.settle_down()
    assert life.queue.ready == 1
    assert drain(life) == [2]


def test_an_entry_that_dies_and_is_released_while_it_is_read_is_not_missed(monkeypatch):
    monkeypatch.setattr(queues.live_log, "CHECKPOINT_ENTRIES", 0)
    life = cold_entries(monkeypatch, 50, 0)
    assert life.log.reads
    assert life.queue.away.delays.cancel(0)
    life.log.settle_down()
    assert 1 in life.log.released
    assert drain(life) == [1]
    assert life.queue.damaged is None


def test_very_many_due_at_once_come_in_order_in_as_many_reads_as_it_takes(monkeypatch):
    monkeypatch.setattr(queues.cold, "LOAD_ENTRIES", 3)
    monkeypatch.setattr(queues.cold, "LOAD_MESSAGES", 4)
    life = QueueOnLog()
    for n in range(20):
        publish(life.queue, message(n, delay_ms=10))
        life.log.settle_down()
    life.advance(10)
    assert life.queue.ready == 20
    assert drain(life) == list(range(20))


# What consumers held at a restart comes back in turns


@pytest.mark.parametrize("end", ["crash", "stop"])
@pytest.mark.parametrize("acked", [0, 1])
def test_what_was_held_at_a_restart_comes_back_at_the_rate_to_the_message(end, acked):
    life = QueueOnLog(redelivery_rate=10, delivery_limit=None)
    publish(life.queue, *[message(n) for n in range(100)])  # all in one entry
    life.settle_down()
    sink = FakeSink()
    consumer = consume(life.queue, sink, prefetch=40)
    life.settle_down()
    held = sink.take()
    assert len(held) == 40
    hand_back(life.queue, consumer, held[:acked])
    held += sink.take()
    life.settle_down()
    getattr(life, end)()
    sink = FakeSink()
    consume(life.queue, sink)
    life.settle_down()
    first = sink.take()
    assert names(first) == [*range(acked, acked + 10), *range(40 + acked, 100)]
    assert all(each.redelivered for each in first[:10])
    assert life.queue.ready == 30
    publish(life.queue, message(100))
    life.settle_down()
    assert names(sink.take()) == [100]
    for turn in range(1, 4):
        life.advance(999)
        life.settle_down()
        life.advance(1)
        life.settle_down()
        some = sink.take()
        assert names(some) == list(range(acked + 10 * turn, acked + 10 * turn + 10))
        assert all(each.redelivered for each in some)
    assert life.queue.ready == 0


def test_what_waits_for_its_turn_is_still_held_at_the_next_restart():
    life = QueueOnLog(redelivery_rate=1, delivery_limit=None)
    publish(life.queue, *[message(n) for n in range(5)])
    consume(life.queue, FakeSink())
    life.settle_down()
    for _ in range(2):
        life.crash()
        sink = FakeSink()
        consume(life.queue, sink)
        life.settle_down()
        assert names(sink.take()) == [0]
        assert life.queue.ready == 4


def test_what_waits_for_its_turn_can_be_purged():
    life = QueueOnLog(redelivery_rate=1, delivery_limit=None)
    publish(life.queue, *[message(n) for n in range(5)])
    consume(life.queue, FakeSink())
    life.settle_down()
    life.crash()
    life.settle_down()
    assert life.queue.purge() == 5
    life.settle_down()
    life.crash()
    assert drain(life) == []
    assert life.queue.ready == 0


def test_what_was_held_and_does_not_fit_in_memory_is_read_by_and_by(monkeypatch):
    monkeypatch.setattr(queues.pacing, "WAITING_BYTES_MAX", 1)
    monkeypatch.setattr(queues.cold, "LOAD_MESSAGES", 2)
    life = QueueOnLog(redelivery_rate=2, delivery_limit=None)
    for n in range(12):
        publish(life.queue, message(n))
        life.settle_down()
    consume(life.queue, FakeSink(), prefetch=10)
    life.settle_down()
    life.crash()
    sink = FakeSink()
    consume(life.queue, sink)
    life.settle_down()
    assert life.queue.on_disk >= 6
    for _ in range(5):
        life.advance(1000)
        life.settle_down()
    came = names(sink.take())
    assert [n for n in came if n < 10] == list(range(10))
    assert sorted(came) == list(range(12))


def test_deliveries_cost_a_note_for_each_tenth_of_the_rate_at_most():
    life = QueueOnLog(redelivery_rate=100, delivery_limit=None)
    consume(life.queue, FakeSink())
    for n in range(95):
        publish(life.queue, message(n))
        life.settle_down()
    assert life.log.disk.last <= 95 + 95 // 10
