"""When a queue lets go of log entries: never before the checkpoint for them is durable."""

import pytest

import queues.live_log
from queues.durable import DurableStore
from queues.paged import HotBudget
from queues.ready import FifoReady
from tests.durability.fake_log import FakeAway
from tests.queues.fakes import message


class RecordingLog:
    """Takes everything down; checkpoints become durable when the test says so."""

    def __init__(self):
        self.released = []
        self.checkpoints = []  # (index, then)

    def changed(self, *, urgent, size_bytes=0):
        pass

    def release(self, indexes):
        self.released += indexes

    def checkpoint(self, index, state, then):
        self.checkpoints.append((index, then))


class Holder:
    """A queue that keeps what it is given."""

    def __init__(self):
        self.messages = []
        self.away = FakeAway()

    def enqueued(self, messages):
        self.messages += messages


@pytest.fixture
def log(monkeypatch):
    monkeypatch.setattr(queues.live_log, "CHECKPOINT_ENTRIES", 2)
    return RecordingLog()


@pytest.fixture
def store(log):
    return DurableStore(
        log, Holder(), HotBudget(), lambda: 0, FifoReady(), in_order=True, grouped=False
    )


def commit(store, index):
    """Propose what the store has to say, and apply it at this index."""
    assert store.next_entry() is not None
    store.applied(index)


def enqueue(store, index):
    made = message(index)
    store.enqueue([made], None)
    commit(store, index)
    return made


def test_dead_entries_are_kept_until_the_checkpoint_is_durable(store, log):
    first, second, third = (enqueue(store, index) for index in (1, 2, 3))
    store.settle([first, second])
    commit(store, 4)
    [(index, durable)] = log.checkpoints
    assert index == 4
    assert log.released == []
    durable()
    assert sorted(log.released) == [1, 2, 4], "two dead messages, and the entry that settled them"
    store.settle([third])
    commit(store, 5)
    assert sorted(log.released) == [1, 2, 3, 4], "under a durable checkpoint, dead means gone"


def test_what_dies_while_a_checkpoint_is_on_its_way_waits_for_it(store, log):
    first, second, third = (enqueue(store, index) for index in (1, 2, 3))
    store.settle([first, second])
    commit(store, 4)
    store.settle([third])  # alive by the checkpoint, dead by entry 5
    commit(store, 5)
    assert log.released == []
    [(_, durable)] = log.checkpoints
    durable()
    assert sorted(log.released) == [1, 2, 3, 4], "entry 5 is above the checkpoint and stays"


def test_entries_above_the_checkpoint_are_never_released(store, log):
    enqueue(store, 1)
    old = [enqueue(store, index) for index in (2, 3)]
    store.settle(old)
    commit(store, 4)
    _, durable = log.checkpoints.pop()
    durable()
    young = [enqueue(store, index) for index in (5, 6)]
    store.settle(young)
    commit(store, 7)
    assert not {1, 5, 6, 7} & set(log.released)
