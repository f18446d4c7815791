"""A durable queue's storage against sets of names, through crashes at any moment."""

from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import queues.durable
import queues.live
import queues.paged
from queues.durable import DurableStore
from queues.message import Message
from queues.paged import MESSAGE_OVERHEAD_BYTES, HotBudget, PagedReady
from tests.durability.fake_log import FakeDisk, FakeLog

ANY_SIZE = 1 << 40
# So small that a few steps go through every transition.
SMALL = {
    (queues.durable, "ENTRY_MESSAGES_MAX"): 6,
    (queues.durable, "LOAD_MESSAGES"): 5,
    (queues.durable, "CHECKPOINT_ENTRIES"): 3,
    (queues.durable, "CHECKPOINT_BYTES"): 600,
    (queues.durable, "PagedReady"): partial(PagedReady, low=3),
    (queues.paged, "HOT_BYTES_FLOOR"): 20,
    (queues.live, "_COMPACT_SLOTS"): 3,
}
HOT_BYTES = 5 * MESSAGE_OVERHEAD_BYTES


@pytest.fixture(autouse=True)
def _small_numbers(monkeypatch):
    for (module, name), value in SMALL.items():
        monkeypatch.setattr(module, name, value)


def make_message(name):
    """A message told from others by its body."""
    body = b"<%d>" % name
    header = b"\x02\x00\x01" + (14).to_bytes(4, "big") + b"\x00\x3c\x00\x00"
    header += len(body).to_bytes(8, "big") + b"\x00\x00\xce"
    frames = header + b"\x03\x00\x01" + len(body).to_bytes(4, "big") + body + b"\xce"
    return Message(b"\x00\x01q", frames, 14, 0, len(body), 1)


def name_of(message):
    return int(message.frames[message.frames.rindex(b"<") + 1 : message.frames.rindex(b">")])


class Receipt:
    def __init__(self, on_stored):
        self._on_stored = on_stored
        self.answers = 0

    def stored(self, refused):
        assert not refused
        self.answers += 1
        assert self.answers == 1, "confirmed twice"
        self._on_stored()


class Holder:
    """As little of a queue as storage needs."""

    def __init__(self, on_enqueued):
        self._on_enqueued = on_enqueued
        self.store = None

    def enqueued(self, messages):
        self.store.ready.push(messages)
        self._on_enqueued(messages)

    def loaded(self, messages):
        pass

    def damage(self, reason):
        raise AssertionError(reason)


def open_store(disk, budget, on_enqueued=lambda messages: None):
    log = FakeLog(disk)
    holder = Holder(on_enqueued)
    store = DurableStore(log, holder, budget, lambda: 0)
    holder.store = store
    log.machine = store
    needed = store.recover(
        disk.checkpoint, disk.above_checkpoint(), stopped_cleanly=disk.stopped_cleanly
    )
    assert set(needed) <= disk.entries.keys(), "an entry is needed that was given away"
    store.start()
    return log, store


def drained(disk):
    """All that a start on this disk would bring: names, in order, with flag and count."""
    log, store = open_store(disk.copy(), HotBudget(HOT_BYTES))
    found = []
    while len(store.ready):
        if not store.ready.available:
            log.finish_read()
        found += store.ready.take(100, ANY_SIZE)
    return [(name_of(m), m.redelivered, m.delivery_count) for m in found]


class DurableQueueLife(RuleBasedStateMachine):
    """What may be asked of the disk after a crash follows from what had been promised."""

    def __init__(self):
        super().__init__()
        self.disk = FakeDisk()
        self.published = 0
        self.confirmed = set()
        self.gone = set()  # settled, and that is durable
        self.going = set()  # settled, and that is not durable yet
        self.flagged = set()  # to be called redelivered
        self.counts = {}  # name → durable returns
        self._open()

    def _open(self):
        self.budget = HotBudget(HOT_BYTES)
        self.log, self.store = open_store(self.disk, self.budget, self._enqueued)
        self.disk.stopped_cleanly = False
        self.log.on_submit, self.log.on_commit = self._submitted, self._committed
        self.ready = []  # names in order
        self.held = {}  # name → message
        self.fresh_settles = set()
        self.fresh_returns = []
        self.writing = {}  # index → (names settled by it, names returned by it)
        self.told = {}  # name → returns so far, durable or not

    # What the storage says

    def _enqueued(self, messages):
        assert [name_of(m) for m in messages] == sorted(name_of(m) for m in messages)
        self.ready += [name_of(m) for m in messages]

    def _submitted(self, index):
        self.writing[index] = (self.fresh_settles, self.fresh_returns)
        self.fresh_settles, self.fresh_returns = set(), []

    def _committed(self, index):
        settled, returned = self.writing.pop(index)
        self.gone |= settled
        self.going -= settled
        for name in returned:
            self.counts[name] = self.counts.get(name, 0) + 1

    # What clients do

    @rule(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4))
    def publish(self, sizes):
        for size in sizes:
            names = list(range(self.published, self.published + size))
            self.published += size
            receipt = Receipt(partial(self._confirmed, names))
            self.store.enqueue([make_message(name) for name in names], receipt)

    def _confirmed(self, names):
        for name in names:
            assert any(b"<%d>" % name in entry for entry in self.disk.entries.values())
        self.confirmed.update(names)

    @rule(count=st.integers(1, 8))
    def take(self, count):
        taken = self.store.ready.take(count, ANY_SIZE)
        names = [name_of(m) for m in taken]
        assert names == self.ready[: len(names)]
        for message in taken:
            name = name_of(message)
            assert message.redelivered == (name in self.flagged), name
            assert message.delivery_count == self.told.get(name, self.counts.get(name, 0))
        del self.ready[: len(names)]
        self.held |= dict(zip(names, taken, strict=True))

    def _some_held(self, data):
        return data.draw(st.lists(st.sampled_from(sorted(self.held)), min_size=1, unique=True))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def settle(self, data):
        names = self._some_held(data)
        self.store.settle([self.held.pop(name) for name in names])
        self.fresh_settles.update(names)
        self.going.update(names)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data):
        self._give_back(self._some_held(data))

    def _give_back(self, names):
        messages = [self.held.pop(name) for name in names]
        for message in messages:
            message.redelivered = True
            message.delivery_count += 1
            self.told[name_of(message)] = message.delivery_count
        self.flagged.update(names)
        self.fresh_returns += names
        self.store.ready.put_back(messages)
        self.store.give_back(messages)
        self.ready = sorted(self.ready + names)

    @rule()
    def purge(self):
        assert self.store.purge() == len(self.ready)
        self.fresh_settles.update(self.ready)
        self.going.update(self.ready)
        self.ready = []

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

    @rule()
    def everything_becomes_durable(self):
        self.log.settle_down()
        assert self.confirmed == set(range(self.published)) - self.lost

    lost = frozenset()
    restarted = False

    # Restarts

    @rule(data=st.data())
    def crash(self, data):
        kept = data.draw(st.integers(0, len(self.log.writes)), "writes that made it")
        undone = st.sets(st.sampled_from(sorted(self.disk.released)))
        brought_back = data.draw(undone) if self.disk.released else ()
        self.log.crash(kept, brought_back)
        self._come_back(crashed=True)

    @rule()
    def stop(self):
        if self.held:
            self._give_back(sorted(self.held))
        self.log.settle_down()
        self.store.mark_clean_stop()
        self.log.settle_down()
        self.log.crash(0, ())
        self.disk.stopped_cleanly = True
        self._come_back(crashed=False)

    def _come_back(self, *, crashed):
        found = drained(self.disk)
        names = [name for name, _, _ in found]
        assert names == sorted(set(names)), "out of order, or twice"
        assert not self.gone & set(names), "what was settled for good came back"
        assert self.confirmed - self.gone - self.going <= set(names), "lost"
        invented = set(names) - set(range(self.published))
        assert not invented
        unconfirmed = [name for name in names if name not in self.confirmed]
        expected = [n for n in range(self.published) if n not in self.confirmed | self.lost]
        assert unconfirmed == expected[: len(unconfirmed)], "not a prefix of what was on its way"
        for name, flag, count in found:
            told = max(self.told.get(name, 0), self.counts.get(name, 0))
            assert self.counts.get(name, 0) <= count <= told
            assert flag if crashed else flag == (name in self.flagged), name
        # From here on, what is there is what there is.
        self.lost = frozenset(range(self.published)) - set(names)
        self.confirmed = set(range(self.published)) - self.lost
        self.flagged = {name for name, flag, _ in found if flag}
        self.counts = {name: count for name, _, count in found if count}
        self.gone, self.going = set(self.lost), set()
        self.restarted = True
        self._open()
        self.ready = names

    # Always

    @invariant()
    def the_same_number_is_ready(self):
        assert len(self.store.ready) == len(self.ready)

    @invariant()
    def nobody_waits_in_vain(self):
        if self.ready and not self.store.ready.available:
            assert self.log.reads, "messages are on disk and nobody reads them"

    @invariant()
    def memory_is_accounted_for(self):
        hot = list(self.store.ready)
        cost = sum(m.body_bytes + MESSAGE_OVERHEAD_BYTES for m in hot)
        assert self.budget.used == cost
        if self.published and not self.restarted:
            weight = sum(len(b"<%d>" % name) for name in self.ready)
            assert self.store.ready.size_bytes == weight
        assert self.store.ready.available == len(hot)


# The same numbers, whoever collects the class.
@pytest.mark.usefixtures("_small_numbers")
class TestDurableQueueLife(DurableQueueLife.TestCase):
    settings = settings(max_examples=250, stateful_step_count=60, deadline=None)
