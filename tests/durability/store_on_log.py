"""A durable queue's storage on a log in memory, without a queue: messages told by their names."""

from typing import NamedTuple

from queues.durable import DurableStore
from queues.message import Message
from queues.paged import MESSAGE_OVERHEAD_BYTES, HotBudget
from queues.ready import FifoReady
from tests.durability.fake_log import FakeAway, FakeLog

ANY_SIZE = 1 << 40
HOT_BYTES = 5 * MESSAGE_OVERHEAD_BYTES  # so few that a few steps page messages out


def make_message(name):
    """A message told from others by its body."""
    body = b"<%d>" % name
    header = b"\x02\x00\x01" + (14).to_bytes(4, "big") + b"\x00\x3c\x00\x00"
    header += len(body).to_bytes(8, "big") + b"\x00\x00\xce"
    frames = header + b"\x03\x00\x01" + len(body).to_bytes(4, "big") + body + b"\xce"
    return Message(b"\x00\x01q", frames, 14, 0, len(body), 1)


def name_of(message):
    return int(message.frames[message.frames.rindex(b"<") + 1 : message.frames.rindex(b">")])


def nobody(messages):
    """Does not care."""


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

    def __init__(self, on_enqueued, on_delayed=nobody):
        self._on_enqueued = on_enqueued
        self.store = None
        self.away = FakeAway(on_delayed)

    def enqueued(self, messages):
        self.store.ready.push(messages)
        self._on_enqueued(messages)

    def loaded(self, messages):
        pass

    def redeliver(self, messages):
        self.store.ready.put_back(messages)

    def damage(self, reason):
        raise AssertionError(reason)


def open_store(disk, budget, now_ms, on_enqueued=nobody, on_delayed=nobody):
    log = FakeLog(disk)
    holder = Holder(on_enqueued, on_delayed)
    store = DurableStore(log, holder, budget, now_ms, FifoReady(), in_order=True, grouped=False)
    holder.store = store
    log.machine = store
    needed = store.recover(
        disk.checkpoint, disk.above_checkpoint(), stopped_cleanly=disk.stopped_cleanly
    )
    assert set(needed) <= disk.entries.keys(), "an entry is needed that was given away"
    store.start()
    return log, store, holder.away


class Found(NamedTuple):
    """A message as a restart finds it."""

    name: int
    sequence: int
    redelivered: bool
    count: int
    due: int | None


def drained(disk, now_ms):
    """All that a start on this disk would bring, in order of names."""
    log, store, away = open_store(disk.copy(), HotBudget(HOT_BYTES), lambda: now_ms)
    assert all(due > now_ms for due in away.delays.values()), "it waits though it is due"
    store.overdue(list(away.delays))
    found = []
    while len(store.ready):
        if not store.ready.available:
            log.finish_read()
        found += store.ready.take(100, ANY_SIZE)
    prompt = [name_of(m) for m in found if store.due_of(m.sequence) is None]
    assert prompt == sorted(prompt), "out of order"
    return sorted(
        Found(name_of(m), m.sequence, m.redelivered, m.delivery_count, store.due_of(m.sequence))
        for m in found
    )
