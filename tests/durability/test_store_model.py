"""A durable queue's storage against sets of names, through crashes at any moment."""

from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import queues.cold
import queues.durable
import queues.live
import queues.live_log
import queues.paged
from queues.paged import MESSAGE_OVERHEAD_BYTES, HotBudget
from tests.durability.fake_log import FakeDisk
from tests.durability.store_on_log import (
    ANY_SIZE,
    HOT_BYTES,
    Receipt,
    drained,
    make_message,
    name_of,
    open_store,
)

# So small that a few steps go through every transition.
SMALL = {
    (queues.durable, "ENTRY_MESSAGES_MAX"): 6,
    (queues.cold, "LOAD_MESSAGES"): 5,
    (queues.cold, "LOAD_ENTRIES"): 2,
    (queues.live_log, "CHECKPOINT_ENTRIES"): 3,
    (queues.live_log, "CHECKPOINT_BYTES"): 600,
    (queues.durable, "LOW_MESSAGES"): 3,
    (queues.paged, "HOT_BYTES_FLOOR"): 20,
    (queues.live, "_COMPACT_SLOTS"): 3,
}
# Steps that end what others began come seldom, so that lives are long enough for delays to end.
SELDOM = st.sampled_from([False, False, False, True])


@pytest.fixture(autouse=True)
def _small_numbers(monkeypatch):
    for (module, name), value in SMALL.items():
        monkeypatch.setattr(module, name, value)


class DurableQueueLife(RuleBasedStateMachine):
    """What may be asked of the disk after a crash follows from what had been promised."""

    def __init__(self):
        super().__init__()
        self.disk = FakeDisk()
        self.now_ms = 1000
        self.published = 0
        self.confirmed = set()
        self.gone = set()  # settled, and that is durable
        self.going = set()  # settled, and that is not durable yet
        self.flagged = set()  # to be called redelivered
        self.counts = {}  # name → durable returns
        self.dues = {}  # name → its due time as is durable, then those asked for since
        self.sequences = {}  # by name
        self.ready = []
        self.waiting = set()  # names of delayed ones
        self._open()

    def _open(self):
        self.budget = HotBudget(HOT_BYTES)
        self.log, self.store, _ = open_store(
            self.disk, self.budget, lambda: self.now_ms, self._enqueued, self._delayed
        )
        self.disk.stopped_cleanly = False
        self.log.on_submit, self.log.on_commit = self._submitted, self._committed
        self.held = {}  # name → message
        self.fresh = ([], [], [])  # names settled and returned, and (name, due), not submitted yet
        self.writing = {}  # index → the same
        self.told = {}  # name → returns so far, durable or not
        self.taken_apart = set()  # they stand before all fresh ones when they come back

    # What the storage says

    def _enqueued(self, messages):
        assert [name_of(m) for m in messages] == sorted(name_of(m) for m in messages)
        self.ready += [name_of(m) for m in messages]

    def _delayed(self, messages):
        self.waiting.update(name_of(m) for m in messages)

    def _submitted(self, index):
        self.writing[index] = self.fresh
        self.fresh = ([], [], [])

    def _committed(self, index):
        settled, returned, delays = self.writing.pop(index)
        self.gone.update(settled)
        self.going.difference_update(settled)
        for name in returned:
            self.counts[name] = self.counts.get(name, 0) + 1
        for name, due in delays:
            asked = self.dues[name]
            del asked[: asked.index(due)]

    # What clients do

    @rule(
        sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
        delays=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    )
    def publish(self, sizes, delays):
        for size in sizes:
            names = list(range(self.published, self.published + size))
            self.published += size
            receipt = Receipt(partial(self._confirmed, names))
            messages = [make_message(name) for name in names]
            late = [m for m, delay in zip(messages, delays, strict=False) if delay > 1]
            for message in late:
                message.due_ms = self.now_ms + delays[0] + 1
                self.dues[name_of(message)] = [message.due_ms]
            self.store.enqueue(messages, receipt, late)
            self.sequences |= {name_of(m): m.sequence for m in messages}

    def _confirmed(self, names):
        for name in names:
            assert any(b"<%d>" % name in entry for entry in self.disk.entries.values())
        self.confirmed.update(names)

    @rule(count=st.integers(1, 8))
    def take(self, count):
        taken = self.store.ready.take(count, ANY_SIZE)
        names = [name_of(m) for m in taken]
        prompt = [name for name in names if self._is_prompt(name)]
        assert prompt == [name for name in self.ready if self._is_prompt(name)][: len(prompt)]
        assert set(names) <= set(self.ready)
        for message in taken:
            name = name_of(message)
            assert message.redelivered == (name in self.flagged), name
            assert message.delivery_count == self.told.get(name, self.counts.get(name, 0))
        self.ready = [name for name in self.ready if name not in names]
        self.held |= dict(zip(names, taken, strict=True))

    def _is_prompt(self, name):
        """It never had to wait, and has its place among others."""
        return name not in self.dues and name not in self.taken_apart

    def _some_held(self, data):
        return data.draw(st.lists(st.sampled_from(sorted(self.held)), min_size=1, unique=True))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def settle(self, data):
        names = self._some_held(data)
        self.store.settle([self.held.pop(name) for name in names])
        self._settled(names)

    def _settled(self, names):
        self.fresh[0].extend(names)
        self.going.update(names)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data):
        self._give_back(self._some_held(data))

    def _give_back(self, names):
        messages = self._returned(names)
        self.store.ready.put_back(messages)
        self.ready = sorted(self.ready + names)

    def _returned(self, names):
        messages = [self.held.pop(name) for name in names]
        for message in messages:
            message.redelivered = True
            message.delivery_count += 1
            self.told[name_of(message)] = message.delivery_count
        self.flagged.update(names)
        self.fresh[1].extend(names)
        self.store.give_back(messages)
        return messages

    @rule(really=SELDOM)
    def purge(self, really):
        if not really:
            return
        assert self.store.purge() == len(self.ready) + len(self.waiting)
        self._settled([*self.ready, *self.waiting])
        self.ready = []
        self.waiting = set()

    # Delays

    @precondition(lambda self: self.held)
    @rule(data=st.data(), delay_ms=st.integers(1, 3))
    def try_again_later(self, data, delay_ms):
        names = self._some_held(data)
        self._returned(names)
        self._delay(names, self.now_ms + delay_ms)
        self.waiting.update(names)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), delay_ms=st.integers(1, 3))
    def reschedule(self, data, delay_ms):
        self._delay([self._one_waiting(data)], self.now_ms + delay_ms)

    def _delay(self, names, due_ms):
        self.store.delay([(self.sequences[name], due_ms) for name in names])
        for name in names:
            self.dues.setdefault(name, [None]).append(due_ms)
            self.fresh[2].append((name, due_ms))
            assert self.store.due_of(self.sequences[name]) == due_ms

    def _one_waiting(self, data):
        return data.draw(st.sampled_from(sorted(self.waiting)))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data):
        name = self._one_waiting(data)
        self.store.settle_sequences([self.sequences[name]])
        assert self.store.due_of(self.sequences[name]) is None
        self.waiting.remove(name)
        self._settled([name])

    @rule(by_ms=st.integers(1, 3))
    def time_passes(self, by_ms):
        self.now_ms += by_ms
        due = {name for name in self.waiting if self.dues[name][-1] <= self.now_ms}
        self.waiting -= due
        self.ready = sorted([*self.ready, *due])
        if due:
            self.store.overdue([self.sequences[name] for name in due])

    # Looking at messages one by one

    @rule(data=st.data())
    def take_apart(self, data):
        """Any cold message, which may be loaded or purged before it is read."""
        names = {sequence: name for name, sequence in self.sequences.items()}
        cold = [names[sequence] for sequence in self.store.cold_after(-1, 100)]
        hot = {name_of(message) for message in self.store.ready}
        assert cold == [n for n in self.ready if n not in hot and self._is_prompt(n)]
        if cold:
            name = data.draw(st.sampled_from(cold))
            self.store.read([self.sequences[name]], partial(self._apart, name))

    def _apart(self, name, messages):
        if not messages:
            assert name not in self.ready
            return
        [message] = messages
        assert name_of(message) == name
        hot = {name_of(message) for message in self.store.ready}
        if self.store.take_apart(message):
            self.ready.remove(name)
            self.held[name] = message
            self.taken_apart.add(name)
        else:
            assert name in hot or name not in self.ready

    # What the disk does

    @rule()
    def submit(self):
        self.log.submit()

    @precondition(lambda self: self.log.writes)
    @rule(count=st.integers(1, 5))
    def commit(self, count):
        self.log.commit(count)

    @precondition(lambda self: self.log.reads)
    @rule(count=st.none() | st.integers(1, 3))
    def finish_read(self, count):
        self.log.finish_read(count)

    @rule(reads=st.booleans())
    def everything_becomes_durable(self, reads):
        self.log.settle_down()
        while reads and self.log.reads:
            self.log.finish_read()
        assert self.confirmed == set(range(self.published)) - self.lost

    lost = frozenset()
    restarted = False

    # Restarts

    @rule(data=st.data(), really=SELDOM)
    def crash(self, data, really):
        if not really:
            return
        kept = data.draw(st.integers(0, len(self.log.writes)), "writes that made it")
        undone = st.sets(st.sampled_from(sorted(self.disk.released)))
        brought_back = data.draw(undone) if self.disk.released else ()
        self.log.crash(kept, brought_back)
        self._come_back(crashed=True)

    @rule(really=SELDOM)
    def stop(self, really):
        if not really:
            return
        if self.held:
            self._give_back(sorted(self.held))
        self.log.settle_down()
        self.store.mark_clean_stop()
        self.log.settle_down()
        self.log.crash(0, ())
        self.disk.stopped_cleanly = True
        self._come_back(crashed=False)

    def _come_back(self, *, crashed):
        found = drained(self.disk, self.now_ms)
        names = [each.name for each in found]
        assert len(names) == len(set(names)), "twice"
        assert not self.gone & set(names), "what was settled for good came back"
        assert self.confirmed - self.gone - self.going <= set(names), "lost"
        invented = set(names) - set(range(self.published))
        assert not invented
        unconfirmed = [name for name in names if name not in self.confirmed]
        expected = [n for n in range(self.published) if n not in self.confirmed | self.lost]
        assert unconfirmed == expected[: len(unconfirmed)], "not a prefix of what was on its way"
        for each in found:
            self._survived(each, crashed=crashed)
        # From here on, what is there is what there is.
        self.lost = frozenset(range(self.published)) - set(names)
        self.confirmed = set(range(self.published)) - self.lost
        self.flagged = {each.name for each in found if each.redelivered}
        self.counts = {each.name: each.count for each in found if each.count}
        self.dues = {each.name: [each.due] for each in found if each.due is not None}
        self.sequences = {each.name: each.sequence for each in found}
        self.waiting = {name for name, (due,) in self.dues.items() if due > self.now_ms}
        self.ready = [name for name in names if name not in self.waiting]
        self.gone, self.going = set(self.lost), set()
        self.restarted = True
        self._open()

    def _survived(self, found, *, crashed):
        name = found.name
        told = max(self.told.get(name, 0), self.counts.get(name, 0))
        assert self.counts.get(name, 0) <= found.count <= told
        assert found.due in self.dues.get(name, [None])
        if found.due is None:
            assert found.redelivered or not (crashed or name in self.flagged), name
            assert crashed or found.redelivered == (name in self.flagged), name
        elif found.due > self.now_ms:
            assert found.redelivered == (found.count > 0), name
        else:
            assert found.redelivered or not (crashed or name in self.flagged), name

    # Always

    @invariant()
    def the_same_number_is_ready(self):
        assert len(self.store.ready) == len(self.ready)

    @invariant()
    def nobody_waits_in_vain(self):
        if self.ready and not self.store.ready.available:
            writing = self.log.dirty or self.log.writes  # then they may be read
            assert self.log.reads or writing, "messages are on disk and nobody reads them"

    @invariant()
    def memory_is_accounted_for(self):
        hot = list(self.store.ready)
        cost = sum(m.body_bytes + MESSAGE_OVERHEAD_BYTES for m in hot)
        assert self.budget.used == cost
        if self.published and not self.restarted and not self.dues:
            weight = sum(len(b"<%d>" % name) for name in self.ready)
            assert self.store.ready.size_bytes == weight
        assert self.store.ready.available == len(hot)


# The same numbers, whoever collects the class.
@pytest.mark.usefixtures("_small_numbers")
class TestDurableQueueLife(DurableQueueLife.TestCase):
    settings = settings(max_examples=250, stateful_step_count=60, deadline=None)
