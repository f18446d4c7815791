"""A node's storage, whatever lives in it: the store opened, kept in order and closed."""

import os
import time
from collections.abc import Iterable
from typing import Final

import trio

from broker import logs
from broker.log_host import PENDING_BYTES_MAX, LogHost
from broker.node import Node
from broker.off_loop import Threads, at_once
from broker.spilling import Spilling
from broker.startup import StartupError
from broker.statistics import StorageStatistics
from broker.streams.host import Streams
from queues.paged import HOT_BYTES_MAX, HotBudget
from queues.queue import Queue
from queues.storage.directories import Directories, RealDirectories
from queues.storage.disk import Disk, RealDisk
from queues.storage.errors import StorageError
from queues.storage.log_store import LogStore
from queues.storage.options import StoreEvents, StoreOptions
from queues.storage.reclaim import Reclaimer
from queues.storage.spill_files import SpillFiles

RECLAIM_SLICE_S: Final = 0.02  # of work in one go, off the loop
RECLAIM_REST_S: Final = 0.5  # when there was nothing to reclaim
LAST_WORDS_S: Final = 5.0  # a full disk may never take them; nothing that was confirmed is in them
SPACE_CHECK_S: Final = 1.0  # between looks at how much room the disk has
# Of the memory there may be in use, what ready messages of durable queues may take.
HOT_SHARE_MAX: Final = 0.125
# And what is on its way to the disk, which the log has in memory once or twice more.
PENDING_SHARE_MAX: Final = 0.125
HOT_SHRINKS: Final = 8  # times smaller is that while memory is short
STREAMS_DIRECTORY: Final = "streams"  # in the data directory
STREAM_THREADS: Final = 4  # that move, keep and read what is in it

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
    if store.lost is None:
        return False
    _log.error("logs_lost", reason=store.lost, until="leveret data accept-loss")
    return True


class Storage:
    """From opening to closing; subclasses say what is brought back, and what is said at the end.

    Without threads its caller flushes the store and keeps house, and so decides when what happens.
    """

    def __init__(
        self,
        node: Node,
        *,
        disk: Disk | None = None,
        directories: Directories | None = None,
        threaded: bool = True,
        options: StoreOptions | None = None,
    ) -> None:
        self._node = node
        self._disk = disk
        self._threaded = threaded
        self._options = options or StoreOptions(free_bytes_min=node.config.disk_free_bytes_min)
        self._hot_bytes = min(HOT_BYTES_MAX, int(node.memory_limit_bytes * HOT_SHARE_MAX))
        self._budget = HotBudget(self._hot_bytes)
        self._spilling: Spilling
        self.lost_logs = False  # damage took logs of which not even the name is known
        self._off_loop = Threads() if threaded else at_once
        self._space_wanted = trio.Event()
        self.host = LogHost(node.timers, node.flush, self._full, self._off_loop, self._low)
        share = int(node.memory_limit_bytes * PENDING_SHARE_MAX)
        self.host.pending_bytes_max = min(PENDING_BYTES_MAX, share)
        node.host = self.host
        node.storage = self.statistics
        directories = directories or RealDirectories(node.config.data_dir / STREAMS_DIRECTORY)
        work = Threads(STREAM_THREADS) if threaded else at_once
        self.streams = Streams(self.host, node.timers, node.flush, directories, work)
        self._housekeeping = trio.CancelScope()
        self._kept_house = trio.Event()  # set when nobody is at the store's files any more

    def _full(self, full: bool) -> None:  # noqa: FBT001 - the state, as the store reports it
        if full:
            self._node.raise_alarm("disk", "low on disk")
        else:
            self._node.clear_alarm("disk")

    def _low(self) -> None:
        """The log took its last spare: look for room now, before more is accepted than fits."""
        self._space_wanted.set()

    def statistics(self) -> StorageStatistics:
        return StorageStatistics(
            disk_free_bytes=self.host.store.free_bytes,
            disk_free_bytes_min=self._options.free_bytes_min,
            pending_bytes=self.host.pending_bytes,
            pending_bytes_max=self.host.pending_bytes_max,
            hot_bytes=self._budget.used,
            hot_bytes_max=self._budget.limit,
            spilled_bytes=self._spilling.live_bytes,
        )

    def open(self) -> None:
        """Recover everything. Raises StartupError where the directory cannot be used."""
        config = self._node.config
        events = StoreEvents(
            durable=self.host.told_durable,
            failed=self.host.told_failed,
            full=self.host.told_full,
            low=self.host.told_low,
        )
        try:
            disk = self._disk or RealDisk(config.data_dir)
            store = LogStore.open(
                disk,
                self._options,
                events,
                new_store_id=lambda: os.urandom(16),
                threaded=self._threaded,
            )
        except (StorageError, OSError) as error:
            raise StartupError(f"cannot use data directory {config.data_dir}: {error}") from error
        self.host.use(store)
        files = SpillFiles(disk)
        self._spilling = Spilling(
            files, self._off_loop, self._node.flush, self.host.fail, self._node.errors
        )
        self.lost_logs = _has_lost_logs(store)
        self._bring_back()

    def _bring_back(self) -> None:
        """Recover what lives on the logs. Raises StartupError."""
        raise NotImplementedError

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the logs; ends only with the node, or with the disk."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.host.run)
            await nursery.start(self._spilling.run)
            await self._begin(nursery)
            task_status.started()
            try:
                if self._threaded:
                    await self._keep_house()
            finally:
                self._kept_house.set()

    async def _begin(self, nursery: trio.Nursery) -> None:
        """Offer what was recovered: logs can be written now."""
        raise NotImplementedError

    def page_out(self, short: bool) -> None:  # noqa: FBT001 - the state, as the watch reports it
        """Memory is short: keep less of durable queues in it, and less and less of all others."""
        self._budget.limit = self._hot_bytes // HOT_SHRINKS if short else self._hot_bytes
        queues = (queue for queue in self._queues() if isinstance(queue, Queue))
        self._spilling.look(queues, short=short, disk_full=self.host.store.full)

    def _queues(self) -> Iterable[object]:
        """Whatever holds messages on this node."""
        return (q for vhost in self._node.vhosts.values() for q in vhost.queues.values())

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
            with trio.move_on_after(SPACE_CHECK_S):
                await self._space_wanted.wait()
            self._space_wanted = trio.Event()
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
        await self.streams.finish()
        await self._off_loop(self.host.store.close)

    async def _last_words(self) -> None:
        """What a node that stops in good order leaves in its logs."""
        raise NotImplementedError
