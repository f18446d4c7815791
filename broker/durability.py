"""What survives: opens the data directory, brings definitions and queues back, keeps them there."""

import os
import time
from collections.abc import Iterator
from typing import Any, Final

import trio

from broker import logs
from broker.definitions import durable_definitions, replay
from broker.journal import STARTED, STOPPED, Journal
from broker.log_host import HostedLog, LogHost, Threads, at_once
from broker.node import Node
from broker.startup import StartupError
from broker.vhost import VHost, is_durable
from queues.durable import DurableStore
from queues.paged import HotBudget
from queues.queue import Queue
from queues.storage.disk import Disk, RealDisk
from queues.storage.errors import StorageError
from queues.storage.log_store import LogStore
from queues.storage.options import StoreEvents, StoreOptions
from queues.storage.reclaim import Reclaimer

RECLAIM_SLICE_S: Final = 0.02  # of work in one go, off the loop
RECLAIM_REST_S: Final = 0.5  # when there was nothing to reclaim
LAST_WORDS_S: Final = 5.0  # a full disk may never take them; nothing that was confirmed is in them
SPACE_CHECK_S: Final = 1.0  # between looks at how much room the disk has
DEFINITIONS_UID: Final = b"leveret metadata"  # sixteen bytes, as every log's name

_log = logs.get("storage")


def _reclaim_slice(reclaimer: Reclaimer) -> bool:
    """Work a little; whether there is more to do."""
    until = time.monotonic() + RECLAIM_SLICE_S
    while reclaimer.step():
        if time.monotonic() > until:
            return True
    return False


def _has_lost_logs(store: LogStore) -> bool:
    """Whether damage hit logs that cannot be told from ones that never were."""
    known = {view.gid for view in store.groups() if view.uuid}
    hurt = [finding.gids for finding in store.recovery.findings]
    nameless = any(not view.uuid for view in store.groups())
    return nameless or any(gids is None or not gids <= known for gids in hurt)


class Durability:
    """The storage of a node, from opening to closing.

    Without threads its caller flushes the store and keeps house, and so decides when what happens.
    """

    def __init__(
        self,
        node: Node,
        *,
        disk: Disk | None = None,
        threaded: bool = True,
        options: StoreOptions | None = None,
    ) -> None:
        self._node = node
        self._disk = disk
        self._threaded = threaded
        self._options = options or StoreOptions(free_bytes_min=node.config.disk_free_bytes_min)
        self._budget = HotBudget()
        self._recovered: list[DurableStore] = []
        self._journal: Journal
        self._stopped_cleanly = False  # the last run came to its end, and this one has not begun
        self._lost_logs = False  # damage took logs of which not even the name is known
        self._off_loop = Threads() if threaded else at_once
        self.host = LogHost(node.timers, node.flush, self._full, self._off_loop)
        node.host = self.host
        self._housekeeping = trio.CancelScope()
        self._kept_house = trio.Event()  # set when nobody is at the store's files any more

    def _full(self, full: bool) -> None:  # noqa: FBT001 - the state, as the store reports it
        if full:
            self._node.raise_alarm("disk", "low on disk")
        else:
            self._node.clear_alarm("disk")

    def open(self) -> None:
        """Recover everything. Raises StartupError where the directory cannot be used."""
        config = self._node.config
        events = StoreEvents(
            durable=self.host.told_durable,
            failed=self.host.told_failed,
            full=self.host.told_full,
        )
        try:
            store = LogStore.open(
                self._disk or RealDisk(config.data_dir),
                self._options,
                events,
                new_store_id=lambda: os.urandom(16),
                threaded=self._threaded,
            )
        except (StorageError, OSError) as error:
            raise StartupError(f"cannot use data directory {config.data_dir}: {error}") from error
        self.host.use(store)
        self._lost_logs = _has_lost_logs(store)
        journal = self._journal = self._recover_definitions()
        for vhost in self._node.vhosts.values():
            for queue in vhost.queues.values():
                self._recover_queue(vhost, queue)
            vhost.journal = journal
            vhost.make_durable = self._make_durable
            vhost.barrier = self.host.when_stored

    def _recover_definitions(self) -> Journal:
        log = self.host.open(DEFINITIONS_UID)
        reason = self.host.damage_of(log)
        if log.gid is None and (self._lost_logs or any(self.host.store.groups())):
            reason = "there are logs, and theirs is not among them"
        if reason is not None:
            raise StartupError(f"the definitions are damaged: {reason}")
        journal = Journal(log, self._definitions)
        log.machine = journal
        checkpoint = self.host.checkpoint_of(log)
        entries = [checkpoint] if checkpoint is not None else []
        for change in journal.recover([*entries, *self.host.replay(log)]):
            self._stopped_cleanly = change[0] == STOPPED
            if change[0] not in (STARTED, STOPPED):
                replay(self._vhost(change[1]), change)
        return journal

    def _vhost(self, name: str) -> VHost:
        """Also one that is configured no more: what is in it must not be lost by that."""
        vhost = self._node.vhosts.get(name)
        if vhost is None:
            vhost = self._node.vhosts[name] = VHost(name, self._node.timers)
        return vhost

    def _definitions(self) -> Iterator[list[Any]]:
        for vhost in self._node.vhosts.values():
            yield from durable_definitions(vhost)

    def _make_durable(self, queue: Queue) -> None:
        self._attach(queue, self.host.open(queue.uid))

    def _attach(self, queue: Queue, log: HostedLog) -> DurableStore:
        store = DurableStore(
            log,
            queue,
            self._budget,
            self._node.timers.now_ms,
            max_priority=queue.options.max_priority or 0,
        )
        log.machine = store
        queue.keep_in(store)
        return store

    def _recover_queue(self, vhost: VHost, queue: Queue) -> None:
        if not is_durable(queue):
            return
        log = self.host.open(queue.uid)
        reason = self.host.damage_of(log)
        store = self._attach(queue, log)
        if log.gid is None and self._lost_logs:
            reason = "logs are lost, and its own may be one of them"
        if reason is not None:
            _log.error("queue_damaged", vhost=vhost.name, queue=queue.name, reason=reason)
            queue.damage(reason)
            return
        if log.gid is None:
            return
        live = store.recover(
            self.host.checkpoint_of(log),
            self.host.replay(log),
            stopped_cleanly=self._stopped_cleanly,
        )
        self.host.retain(log, live)
        self._recovered.append(store)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the logs; ends only with the node, or with the disk."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.host.run)
            if self._stopped_cleanly:
                # From now on messages may be delivered that the queues' logs say never were.
                self._journal.record(STARTED)
                await self.host.drain()
            for store in self._recovered:
                store.start()
            self._recovered.clear()
            task_status.started()
            try:
                if self._threaded:
                    await self._keep_house()
            finally:
                self._kept_house.set()

    async def _keep_house(self) -> None:
        """Until the store closes."""
        with self._housekeeping:
            async with trio.open_nursery() as keepers:
                keepers.start_soon(self._reclaim)
                keepers.start_soon(self._watch_space)

    async def _reclaim(self) -> None:
        """Give disk space back as messages are settled."""
        reclaimer = Reclaimer(self.host.store)
        try:
            while True:
                more = await trio.to_thread.run_sync(_reclaim_slice, reclaimer)
                if not more:
                    await trio.sleep(RECLAIM_REST_S)
        finally:
            reclaimer.close()

    async def _watch_space(self) -> None:
        while True:
            await trio.sleep(SPACE_CHECK_S)
            await trio.to_thread.run_sync(self.host.store.check_space)

    async def close(self) -> None:
        """Write the last words and let the directory go."""
        self._housekeeping.cancel()
        await self._kept_house.wait()
        if self.host.failure is None:
            with trio.move_on_after(LAST_WORDS_S) as scope:
                await self._last_words()
            if scope.cancelled_caught:
                _log.warning("stopped_unwritten", reason="the disk did not take it in time")
        await self._off_loop(self.host.store.close)

    async def _last_words(self) -> None:
        await self.host.drain()
        for vhost in self._node.vhosts.values():
            for queue in vhost.queues.values():
                queue.stop()
        await self.host.drain()
        self._journal.record(STOPPED)
        await self.host.drain()
