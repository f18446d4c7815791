"""A disk that fails ends the node and confirms nothing; a full one only holds publishers up."""

from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from broker.journal import Journal
from broker.log_host import LogHost
from broker.off_loop import Threads
from broker.startup import DiskFailedError, LogBrokenError
from broker.timers import Timers
from queues.durable import DurableStore
from queues.paged import HotBudget
from queues.raft.core import Raft
from queues.ready import FifoReady
from queues.storage.log_store import LogStore
from queues.storage.options import StoreEvents, StoreOptions
from tests.durability.store_on_log import Holder, make_message, name_of
from tests.support.simdisk import SimDisk, input_output_error

OPTIONS = StoreOptions(wal_file_bytes=64 * 1024, free_bytes_min=256 * 1024, reserve_bytes=8192)
UID = b"sixteen bytes id"


async def until(condition):
    """The disk's thread wakes the loop; then ask again."""
    with trio.fail_after(5):
        while not condition():  # noqa: ASYNC110 - there are many things to wait for
            await trio.sleep(0.001)


class Queue:
    """A durable queue on a host, with what it confirmed."""

    def __init__(self, host):
        self.log = host.open(UID)
        holder = Holder(lambda messages: None)
        self.store = DurableStore(
            self.log, holder, HotBudget(), lambda: 0, FifoReady(), in_order=True, grouped=False
        )
        holder.store = self.store
        self.log.machine = self.store
        if self.log.gid is not None:
            checkpoint, entries = host.checkpoint_of(self.log), host.replay(self.log)
            self.store.recover(checkpoint, entries, stopped_cleanly=False)
        self.confirmed = []
        self.published = 0

    def publish(self):
        message = make_message(self.published)
        self.store.enqueue([message], _Receipt(partial(self.confirmed.append, self.published)))
        self.published += 1

    async def all_confirmed(self):
        await until(lambda: len(self.confirmed) == self.published)

    async def all_loaded(self):
        await until(lambda: self.store.ready.available == len(self.store.ready))


class _Receipt:
    def __init__(self, stored):
        self._stored = stored

    def stored(self, refused):
        assert not refused
        self._stored()


class Node:
    """A host on a simulated disk, running."""

    def __init__(self, disk):
        self.fulls = []
        self.timers = Timers()
        self.host = LogHost(self.timers, self.flush, self.fulls.append, Threads())
        events = StoreEvents(self.host.told_durable, self.host.told_failed, self.host.told_full)
        self.host.use(LogStore.open(disk, OPTIONS, events, new_store_id=lambda: b"s" * 16))

    def flush(self):
        self.host.flush()

    async def until_full_is(self, full):
        await until(lambda: self.fulls[-1:] == [full])


@asynccontextmanager
async def running(disk):
    node = Node(disk)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.timers.run, node.flush)
        await nursery.start(node.host.run)
        yield node
        nursery.cancel_scope.cancel()


async def names_after_a_restart(disk):
    disk.kill()
    async with running(disk) as node:
        queue = Queue(node.host)
        queue.store.start()
        await queue.all_loaded()
        return [name_of(m) for m in queue.store.ready]


@pytest.mark.parametrize("operation", ["write", "sync"])
async def test_a_disk_that_fails_ends_the_node_and_nothing_is_confirmed_any_more(operation):
    disk = SimDisk()
    queue = None

    def fail_once(happening, name):
        if happening == operation:
            disk.fault = None  # a second try would succeed, and must not be made
            input_output_error(happening, name)

    with pytest.RaisesGroup(DiskFailedError, flatten_subgroups=True):
        async with running(disk) as node:
            queue = Queue(node.host)
            for _ in range(5):
                queue.publish()
            node.flush()
            await queue.all_confirmed()
            disk.fault = fail_once
            queue.publish()
            node.flush()
            await trio.sleep_forever()
    assert queue.confirmed == [0, 1, 2, 3, 4]
    queue.publish()
    node.flush()
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert queue.confirmed == [0, 1, 2, 3, 4]
    assert (await names_after_a_restart(disk))[:5] == [0, 1, 2, 3, 4]


async def test_a_new_file_that_cannot_be_made_durable_ends_the_node():
    disk = SimDisk()
    queue = None

    def fail_in_the_directory(happening, name):
        if happening == "sync directory":
            input_output_error(happening, name)

    with pytest.RaisesGroup(DiskFailedError, flatten_subgroups=True):
        async with running(disk) as node:
            queue = Queue(node.host)
            queue.publish()
            node.flush()
            await queue.all_confirmed()
            disk.fault = fail_in_the_directory
            while True:
                for _ in range(50):
                    queue.publish()
                node.flush()
                await queue.all_confirmed()
    confirmed = list(queue.confirmed)
    assert 0 < len(confirmed) < queue.published
    assert (await names_after_a_restart(disk))[: len(confirmed)] == confirmed


async def test_a_failed_read_of_messages_ends_the_node():
    disk = SimDisk()
    async with running(disk) as node:
        queue = Queue(node.host)
        queue.publish()
        node.flush()
        await queue.all_confirmed()
    disk.kill()
    with pytest.RaisesGroup(DiskFailedError, flatten_subgroups=True):
        async with running(disk) as node:
            queue = Queue(node.host)
            disk.fault = partial(fail_on, "read")
            queue.store.start()
            await trio.sleep_forever()


def fail_on(operation, happening, name):
    if happening == operation:
        input_output_error(happening, name)


async def test_a_full_disk_is_reported_and_waited_out_and_settles_go_on():
    disk = SimDisk(capacity_bytes=512 * 1024)
    async with running(disk) as node:
        queue = Queue(node.host)
        for _ in range(10):
            queue.publish()
        node.flush()
        await queue.all_confirmed()
        disk.capacity_bytes = disk.used_bytes()
        await trio.to_thread.run_sync(node.host.store.check_space)
        await node.until_full_is(True)
        taken = queue.store.ready.take(4, 1 << 30)
        queue.store.settle(taken)
        await node.host.drain()  # what is left is for this
        disk.capacity_bytes = 1 << 30
        await trio.to_thread.run_sync(node.host.store.check_space)
        await node.until_full_is(False)
        queue.publish()
        node.flush()
        await queue.all_confirmed()
    assert await names_after_a_restart(disk) == [4, 5, 6, 7, 8, 9, 10]


async def test_what_no_room_was_left_for_is_confirmed_when_there_is_room_again():
    """Even the reserve can be used up: then nothing is confirmed, and nothing is lost."""
    disk = SimDisk(capacity_bytes=512 * 1024)
    async with running(disk) as node:
        queue = Queue(node.host)
        disk.capacity_bytes = disk.used_bytes()
        while not node.fulls:
            for _ in range(50):
                queue.publish()
            node.flush()
            await until(lambda: len(queue.confirmed) == queue.published or node.fulls)
        assert node.fulls == [True]
        assert 0 < len(queue.confirmed) < queue.published
        disk.capacity_bytes = 1 << 30
        await trio.to_thread.run_sync(node.host.store.check_space)
        await queue.all_confirmed()
        assert queue.confirmed == list(range(queue.published))
    assert await names_after_a_restart(disk) == list(range(queue.published))


async def test_definitions_are_not_called_durable_on_a_failing_disk():
    disk = SimDisk()
    told = []
    with pytest.RaisesGroup(DiskFailedError, flatten_subgroups=True):
        async with running(disk) as node:
            log = node.host.open(UID)
            journal = log.machine = Journal(log, list)
            journal.record("exchange", "/", "x", "fanout", False, False, {})
            journal.when_durable(partial(told.append, "safe"))
            disk.fault = partial(fail_on, "sync")
            node.flush()
            await trio.sleep_forever()
    assert journal.pending
    assert told == []


@pytest.mark.provokes_internal_errors
async def test_a_bug_in_what_reads_beside_is_counted_and_the_log_goes_on():
    async def fail():
        raise ZeroDivisionError

    async with running(SimDisk()) as node:
        node.host.start_soon(fail)
        node.host.after_write(partial(int, "no number"))
        queue = Queue(node.host)
        queue.publish()
        node.flush()
        await queue.all_confirmed()
        assert node.timers.errors.counts["callback"] == node.timers.errors.total == 2


@pytest.mark.parametrize("broken", ["persisted", "propose"])
async def test_a_broken_invariant_of_the_log_ends_the_node_and_nothing_is_confirmed(
    broken, monkeypatch
):
    def fail(*_arguments):
        raise AssertionError("the log is not what it was")

    queue = None
    with pytest.RaisesGroup(LogBrokenError, flatten_subgroups=True):
        async with running(SimDisk()) as node:
            queue = Queue(node.host)
            queue.publish()
            node.flush()
            await queue.all_confirmed()
            monkeypatch.setattr(Raft, broken, fail)
            queue.publish()
            node.flush()
            await trio.sleep_forever()
    assert queue.confirmed == [0]
