"""A durable queue with all it can do, through crashes: nothing early, lost or twice."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import queues.cold
import queues.durable
import queues.live
import queues.live_log
import queues.paged
from queues.commands import (
    DELAY,
    ENQUEUE,
    REACHED_FROM,
    RETURN,
    SETTLE,
    decode_delays,
    decode_messages,
    decode_ranges,
    split_commands,
)
from queues.consumers import Consumer
from queues.paged import MESSAGE_OVERHEAD_BYTES
from tests.durability.queue_on_log import QueueOnLog
from tests.queues.fakes import FakeReceipt, FakeSink, message, names

# So small that a few steps go through every transition.
SMALL = {
    (queues.durable, "ENTRY_MESSAGES_MAX"): 6,
    (queues.cold, "LOAD_MESSAGES"): 5,
    (queues.cold, "LOAD_ENTRIES"): 3,
    (queues.live_log, "CHECKPOINT_ENTRIES"): 3,
    (queues.live_log, "CHECKPOINT_BYTES"): 600,
    (queues.durable, "LOW_MESSAGES"): 3,
    (queues.paged, "HOT_BYTES_FLOOR"): 20,
    (queues.live, "_COMPACT_SLOTS"): 3,
}
HOT_BYTES = 5 * MESSAGE_OVERHEAD_BYTES
LATER_MS = 10_000  # after everything that is delayed here

OPTIONS = st.fixed_dictionaries(
    {"retry_delay_ms": st.integers(0, 40), "retry_max_delay_ms": st.just(100)},
    optional={
        "retry_backoff": st.sampled_from([1.0, 2.0]),
        "delivery_limit": st.integers(0, 9),
        "visibility_timeout_ms": st.integers(1, 20),
        "message_delay_ms": st.integers(0, 3),
        "dedup_window_ms": st.integers(0, 30),
        "redelivery_rate": st.just(0),
    },
)
PUBLISH = st.fixed_dictionaries(
    {"group": st.sampled_from([None, "a", "a", "b", "b"])},
    optional={"delay_ms": st.integers(1, 20), "dedup_id": st.sampled_from("abcd")},
)


@pytest.fixture(autouse=True)
def _small_numbers(monkeypatch):
    for (module, name), value in SMALL.items():
        monkeypatch.setattr(module, name, value)


@dataclass
class Truth:
    """What follows from some entries: names of messages, how often they failed, their times."""

    numbers: list = field(default_factory=list)  # names by sequence
    alive: set = field(default_factory=set)
    counts: dict = field(default_factory=dict)
    due: dict = field(default_factory=dict)

    def copy(self):
        return Truth(list(self.numbers), set(self.alive), dict(self.counts), dict(self.due))

    def apply(self, entry):
        for kind, start, end in split_commands(entry):
            if kind == ENQUEUE:
                fresh = names(decode_messages(entry, start))
                self.numbers += fresh
                self.alive.update(fresh)
            elif kind == SETTLE:
                self.alive.difference_update(self._ranges(entry, start, end))
            elif kind == RETURN:
                for name in self._ranges(entry, start, end):
                    self.counts[name] = self.counts.get(name, 0) + 1
            elif kind == DELAY:
                for sequence, due in decode_delays(entry, start, end):
                    self.due[self.numbers[sequence]] = due

    def _ranges(self, entry, start, end):
        ranges = decode_ranges(entry, start, end)
        ranges = [each for each in ranges if each[0] < REACHED_FROM]
        return [self.numbers[s] for first, count in ranges for s in range(first, first + count)]


class WatchedSink(FakeSink):
    def __init__(self, life):
        super().__init__()
        self._life = life

    def deliver(self, consumer, messages):
        super().deliver(consumer, messages)
        for each in messages:
            self._life.delivered(consumer, each)

    def revoke(self, consumer, messages):
        taken = super().revoke(consumer, messages)
        self._life.returned(names(taken))
        return taken


class DurableLife(RuleBasedStateMachine):
    """`disk` is what the entries on disk say, `now` what the queue was told and says."""

    @initialize(
        options=OPTIONS,
        grouped=st.booleans(),
        batch=st.lists(PUBLISH, min_size=2, max_size=6),
        prefetch=st.integers(1, 4),
    )
    def start(self, options, grouped, batch, prefetch):
        self.options = options
        self.grouped = grouped
        self.life = QueueOnLog(budget_bytes=HOT_BYTES, message_groups=grouped, **options)
        self.published = 0
        self.groups = {}  # by name
        self.ids = {}  # id → (until, name), of all that came
        self.welcome = set()  # names of what is no duplicate
        self.confirmed = set()
        self.disk = Truth()
        self._began(Truth())
        self.add_consumer(prefetch, no_ack=False)
        self.publish(batch)
        self.everything_becomes_durable()

    def _began(self, truth):
        """A new life, with what the disk said at its begin."""
        self.now = truth
        self.held = {}  # name → (holder, message)
        self.made = {}  # of this life, by name
        self.back = set()  # names of what was returned in this life
        self.old = set(truth.alive)  # may have been delivered in another life
        self.consumers = []
        self.sink = WatchedSink(self)
        self.life.context.dead_letter = self._died
        self.life.log.on_commit = self._committed
        self.life.log.on_submit = lambda index: None

    @property
    def queue(self):
        return self.life.queue

    def _time(self):
        return self.life.context.now

    # What the storage does

    def _committed(self, index):
        entry = self.life.disk.entries[index]
        self.disk.apply(entry)
        for kind, start, _ in split_commands(entry):
            if kind == ENQUEUE:
                fresh = names(decode_messages(entry, start))
                assert self.welcome.issuperset(fresh), "a duplicate was taken"
                self.now.numbers += fresh
                self.now.alive.update(fresh)
                self.now.due.update({n: self.disk.due[n] for n in fresh if n in self.disk.due})

    # What the queue does

    def delivered(self, consumer, given):
        [name] = names([given])
        now = self.now
        assert name in now.alive, "it was gone, or is not safe yet"
        assert name not in self.held, "somebody has it"
        assert now.due.get(name, 0) <= self._time(), "early"
        assert given.delivery_count == now.counts.get(name, 0)
        if name in self.back or now.counts.get(name):
            assert given.redelivered
        elif name not in self.old:
            assert not given.redelivered
        self._check_order(name)
        if consumer.no_ack:
            now.alive.remove(name)
        else:
            self.held[name] = (consumer, given)

    def _check_order(self, name):
        now, number = self.now, self.now.numbers.index
        others = now.alive - {name}
        if self.grouped:
            group = self.groups[name]
            others = {n for n in others if group is not None and self.groups[n] == group}
            assert not others & self.held.keys(), "two of a group are out"
            waiting = {n for n in others if now.counts.get(n) and now.due.get(n, 0) > self._time()}
            assert not waiting, "one of its group failed and waits"
        if name not in now.due:
            before = {n for n in others if number(n) < number(name)} - now.due.keys()
            assert before <= self.held.keys(), "out of order"

    def _died(self, queue, burial, then):
        reason = burial.reason
        for name in names(burial.messages):
            assert name not in self.held
            assert reason in ("rejected", "delivery_limit")
            if reason == "delivery_limit":
                assert self.now.counts.get(name, 0) >= self.options["delivery_limit"]
            self.now.alive.remove(name)
        then([])

    def returned(self, chosen):
        """These fail, or are lost with their holder; called before the queue gets to know."""
        now = self.now
        limit = self.options.get("delivery_limit")
        for name in chosen:
            self.held.pop(name)
            self.back.add(name)
            if limit is None or now.counts.get(name, 0) < limit:
                now.counts[name] = now.counts.get(name, 0) + 1
                if self.options.get("retry_delay_ms"):
                    wait = self.options["retry_delay_ms"]
                    wait *= self.options.get("retry_backoff", 1.0) ** (now.counts[name] - 1)
                    now.due[name] = self._time() + min(int(wait), 100)

    # What clients do

    @rule(batch=st.lists(PUBLISH, min_size=1, max_size=4))
    def publish(self, batch):
        made, expected = [], []
        window = self.queue.options.dedup_window_ms
        for wanted in batch:
            name, known = self.published, wanted.get("dedup_id")
            self.published += 1
            self.groups[name] = wanted["group"]
            made.append(message(name, **wanted))
            if known is not None and window:
                if self.ids.get(known, (0, 0))[0] > self._time():
                    continue
                self.ids[known] = (self._time() + window, name)
            expected.append(name)
        self.welcome.update(expected)
        receipt = FakeReceipt()
        receipt.stored = lambda refused: self._confirmed(expected, refused)
        self.queue.publish(made, receipt)

    def _confirmed(self, expected, refused):
        assert not refused
        assert set(expected) <= set(self.disk.numbers), "confirmed, and not on disk"
        assert not self.confirmed & set(expected), "confirmed twice"
        self.confirmed.update(expected)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def ack(self, data):
        self._hand_back(data, "settle")

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def fail(self, data):
        self._hand_back(data, "requeue")

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def reject(self, data):
        self._hand_back(data, "discard")

    def _hand_back(self, data, how):
        name = data.draw(st.sampled_from(sorted(self.held)))
        holder, given = self.held[name]
        if how == "requeue":
            self.returned([name])
        else:
            del self.held[name]
            if how == "settle":
                self.now.alive.remove(name)
        holder.release(1)
        getattr(self.queue, how)(holder, [given])

    @precondition(lambda self: len(self.consumers) < 3)
    @rule(prefetch=st.integers(0, 4), no_ack=st.sampled_from([False, False, True]))
    def add_consumer(self, prefetch, no_ack):
        consumer = Consumer("c", self.queue, self.sink, prefetch=prefetch, no_ack=no_ack)
        self.consumers.append(consumer)
        self.queue.add_consumer(consumer)
        self.queue.start_consumer()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def remove_consumer(self, data):
        consumer = data.draw(st.sampled_from(self.consumers))
        self.consumers.remove(consumer)
        self.queue.remove_consumer(consumer)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def lose_consumer(self, data):
        consumer = data.draw(st.sampled_from(self.consumers))
        self.consumers.remove(consumer)
        self.queue.remove_consumer(consumer)
        self._lose(consumer)

    def _lose(self, consumer):
        """What it holds comes back at once, without a retry delay."""
        lost = [name for name, (holder, _) in self.held.items() if holder is consumer]
        if not lost:
            return
        given = [self.held[name][1] for name in lost]
        due = dict(self.now.due)
        self.returned(lost)
        self.now.due = due
        consumer.release(len(lost))
        self.queue.requeue(consumer, given, lost=True)

    # What operators do

    @precondition(lambda self: len(self.now.alive) > 2)
    @rule()
    def purge(self):
        gone = self.now.alive - self.held.keys()
        assert self.queue.purge() == len(gone)
        self.now.alive -= gone

    def _waiting(self):
        return [self.now.numbers[s] for s, _ in self.queue.away.delays.first(100)]

    @precondition(lambda self: self.queue.away.delayed_count)
    @rule(data=st.data())
    def cancel(self, data):
        self._move_or_cancel(data, None)

    @precondition(lambda self: self.queue.away.delayed_count)
    @rule(data=st.data(), ms=st.integers(0, 25))
    def move(self, data, ms):
        self._move_or_cancel(data, ms)

    def _move_or_cancel(self, data, ms):
        waiting = self._waiting()
        if not waiting:
            return  # due, and about to come
        name = data.draw(st.sampled_from(sorted(waiting)))
        number = self.now.numbers.index(name)
        assert name in self.now.alive
        if ms is None:
            self.now.alive.remove(name)
            assert self.queue.away.delays.cancel(number)
        else:
            self.now.due[name] = self._time() + ms
            assert self.queue.away.delays.move(number, self._time() + ms)

    @rule(options=OPTIONS)
    def configure(self, options):
        self.options = options
        self.life.configure(message_groups=self.grouped, **options)

    @precondition(lambda self: not self.held)
    @rule()
    def groups_come_and_go(self):
        self.grouped = not self.grouped
        self.life.configure(message_groups=self.grouped, **self.options)

    # What the disk does, and time

    @rule()
    def submit(self):
        self.life.log.submit()

    @precondition(lambda self: self.life.log.writes)
    @rule(count=st.integers(1, 5))
    def commit(self, count):
        self.life.log.commit(count)

    @precondition(lambda self: self.life.log.reads)
    @rule(count=st.none() | st.integers(1, 3))
    def finish_read(self, count):
        self.life.log.finish_read(count)

    @rule(ms=st.integers(1, 15))
    def wait(self, ms):
        self.life.advance(ms)
        now = self.now
        out = {n for n in now.alive if now.due.get(n, 0) > self._time()} - self.held.keys()
        assert self.queue.away.delayed_count == len(out)
        assert set(self._waiting()) == out

    @rule()
    def everything_becomes_durable(self):
        self.life.settle_down()
        self.wait(1)  # what is due rings
        self.life.settle_down()
        assert self.disk.alive == self.now.alive
        for name in self.now.alive:
            assert self.disk.counts.get(name, 0) == self.now.counts.get(name, 0)
            assert self.disk.due.get(name) == self.now.due.get(name)
        free = self._free()
        if any(consumer.room() > 0 for consumer in self.consumers):
            assert not free, "somebody waits while there is something to deliver"

    def _free(self):
        """What could be delivered once everything is read."""
        now = self.now
        there = {n for n in now.alive if now.due.get(n, 0) <= self._time()} - self.held.keys()
        if not self.grouped:
            return there
        failed = {n for n in now.alive if now.counts.get(n)} - there
        blocked = {self.groups[n] for n in failed | self.held.keys()} - {None}
        return {n for n in there if self.groups[n] not in blocked}

    # Restarts

    @rule(data=st.data(), down_ms=st.integers(0, 20))
    def crash(self, data, down_ms):
        log, disk = self.life.log, self.life.disk
        kept = data.draw(st.integers(0, len(log.writes)), "writes that made it")
        undone = st.sets(st.sampled_from(sorted(disk.released)))
        brought_back = data.draw(undone) if disk.released else ()
        for write in list(log.writes)[:kept]:
            if write[0] == "entry":
                self.disk.apply(write[2])
        self.life.crash(kept=kept, brought_back=brought_back, down_ms=down_ms)
        self._come_back(data.draw(st.integers(0, 3), "prefetch"))

    @rule(down_ms=st.integers(0, 20), prefetch=st.integers(0, 3))
    def stop(self, down_ms, prefetch):
        for consumer in self.consumers:
            self.queue.remove_consumer(consumer)
        for holder in dict.fromkeys(holder for holder, _ in self.held.values()):
            self._lose(holder)
        self.life.stop(down_ms=down_ms)
        self._come_back(prefetch)

    def _come_back(self, prefetch):
        assert self.confirmed <= set(self.disk.numbers), "lost"
        kept = set(self.disk.numbers)
        self.ids = {key: value for key, value in self.ids.items() if value[1] in kept}
        self._check_what_is_there()
        assert self.queue.away.leased_count == 0
        assert self.queue.ready + self.queue.away.delayed_count == len(self.disk.alive)
        self._began(self.disk.copy())
        self.add_consumer(prefetch, no_ack=False)

    def _check_what_is_there(self):
        """A node started on the same disk, much later, has each message that is alive once."""
        twin = QueueOnLog(message_groups=self.grouped)
        twin.disk = self.life.disk.copy()
        twin.context.now = self._time() + LATER_MS
        twin._open()
        sink = FakeSink()
        queue = twin.queue
        queue.add_consumer(Consumer("c", queue, sink, no_ack=True))
        queue.start_consumer()
        twin.advance(1)
        twin.settle_down()
        found = {names([m])[0]: m.delivery_count for m in sink.take()}
        expected = {name: self.disk.counts.get(name, 0) for name in self.disk.alive}
        assert found == expected
        assert queue.ready == queue.unacked == queue.away.delayed_count == 0

    # Always

    @invariant()
    def everything_is_counted(self):
        if hasattr(self, "life"):
            assert self.queue.damaged is None
            counted = self.queue.ready + self.queue.unacked + self.queue.away.delayed_count
            assert counted == len(self.now.alive)
            assert self.queue.unacked == len(self.held)

    @invariant()
    def nobody_waits_in_vain(self):
        if hasattr(self, "life") and self.queue.is_loading:
            log = self.life.log
            # Or they wait until the log knows that they were moved.
            assert log.reads or log.dirty or log.writes, "nobody reads what is on disk"

    def teardown(self):
        if hasattr(self, "life"):
            self.everything_becomes_durable()


# The same numbers, whoever collects the class.
@pytest.mark.usefixtures("_small_numbers")
class TestDurableLife(DurableLife.TestCase):
    settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
