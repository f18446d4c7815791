"""The host of a node's replicated logs: proposals in, one write per turn, applied entries out.

Each log has a machine (a queue's storage, or the definitions) that says what to propose and is told
what was applied. The proposals of all logs become one submit to the store; while that is being
written the next one gathers. Nothing is applied before its submit is durable.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import trio

from broker import logs
from broker.startup import DiskFailedError
from broker.timers import Timers
from queues.commands import ranges_of
from queues.durable import Entries
from queues.raft.config import Config as Voters
from queues.raft.core import Raft
from queues.raft.log import RaftLog
from queues.raft.ready import WriteOp
from queues.storage.errors import CorruptRecordError, StoreFailedError
from queues.storage.log_store import LogStore

if TYPE_CHECKING:
    from queues.storage.batch import WriteBatch

# Settles wait this long for a publish to ride along with. A crash within it redelivers them.
LAZY_MS: Final = 10
# Bytes handed over and not yet durable, of all logs together. Beyond it publishers are not read.
PENDING_BYTES_MAX: Final = 64 * 1024 * 1024
COLD_READS_MAX: Final = 2  # threads that read messages back
COLD_READ_BYTES: Final = 4 * 1024 * 1024
REPLAY_BYTES: Final = 8 * 1024 * 1024  # read at once while recovering
NODE: Final = 1  # this node's number within its groups, as long as there are no others

_log = logs.get("log")

T = TypeVar("T")


class OffLoop(Protocol):
    """Does what waits for the disk away from the loop."""

    async def __call__(self, work: Callable[[], T]) -> T: ...


class Threads:
    """In a thread, as few at a time as do not disturb each other on one disk."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(COLD_READS_MAX)

    async def __call__(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._limiter)


async def at_once(work: Callable[[], T]) -> T:
    """Here and now, where there are no threads."""
    await trio.lowlevel.checkpoint()
    return work()


class Machine(Protocol):
    """What lives on a log."""

    def next_entry(self) -> bytes | None: ...
    def applied(self, index: int) -> None: ...
    def damaged(self, reason: str) -> None: ...


class HostedLog:
    """One log, to its machine. Its Raft group starts when there is something to propose."""

    __slots__ = ("_host", "dirty", "gid", "machine", "raft", "uid")

    def __init__(self, host: "LogHost", uid: bytes, gid: int | None) -> None:
        self._host = host
        self.uid = uid
        self.gid = gid
        self.machine: Machine | None = None
        self.raft: Raft | None = None
        self.dirty = False

    def changed(self, *, urgent: bool, size_bytes: int = 0) -> None:
        self._host.changed(self, urgent=urgent, size_bytes=size_bytes)

    def read(self, indexes: list[int], then: Callable[[Entries], None]) -> None:
        self._host.read(self, indexes, then)

    def release(self, indexes: list[int]) -> None:
        if self.gid is not None:
            ranges = [(first, first + count - 1) for first, count in ranges_of(indexes)]
            self._host.store.release(self.gid, ranges)

    def checkpoint(self, index: int, state: bytes, then: Callable[[], None]) -> None:
        self._host.checkpoint(self, index, state, then)

    def delete(self) -> None:
        self._host.delete(self)


class _Submit:
    """A batch on its way to the disk."""

    __slots__ = ("actions", "number", "size_bytes", "writes")

    def __init__(self) -> None:
        self.number = 0
        self.writes: list[tuple[HostedLog, int]] = []  # log and the number of its write
        self.actions: list[Callable[[], None]] = []
        self.size_bytes = 0


class LogHost:
    """Drives the Raft groups of a node on one store. For the loop's thread, but for `told_*`."""

    def __init__(
        self,
        timers: Timers,
        flush: Callable[[], None],
        on_full: Callable[[bool], None],
        off_loop: OffLoop,
    ) -> None:
        self.store: LogStore  # set by `use`, once it is open
        self.pending_bytes = 0  # handed over by machines and not yet durable
        self.failure: BaseException | None = None
        self._timers = timers
        self._flush_node = flush
        self._on_full = on_full
        self.off_loop = off_loop
        self._voters = Voters((NODE,))
        self._random = Random(0)  # noqa: S311 - spreads elections; a group of one has none
        self._dirty: list[HostedLog] = []
        self._urgent = False
        self._applying = False  # what is being applied may lead to more: that waits for its end
        self._lazy_set = False
        self._gathering = _Submit()
        self._batch: WriteBatch
        self._submits: deque[_Submit] = deque()
        self._token = trio.lowlevel.current_trio_token()
        self._nursery: trio.Nursery | None = None
        self._relief = trio.Event()
        self._failed = trio.Event()

    def use(self, store: LogStore) -> None:
        self.store = store
        self._batch = store.batch()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve reads until the disk fails; then say so, which ends the node."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await self._failed.wait()
            assert self.failure is not None
            _log.error("disk_failed", reason=str(self.failure))
            raise DiskFailedError(f"the disk failed: {self.failure}") from self.failure

    async def drain(self) -> None:
        """Wait until all that was said is durable."""
        done = trio.Event()
        self.when_stored(done.set)
        self.flush()
        await done.wait()

    # What the store's writer thread says

    def told_durable(self, number: int) -> None:
        self._token.run_sync_soon(self._durable, number)

    def told_full(self, full: bool) -> None:  # noqa: FBT001 - the store calls it so
        self._token.run_sync_soon(self._on_full, full)

    def told_failed(self, error: BaseException) -> None:
        self._token.run_sync_soon(self._fail, error)

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self._failed.set()

    # Opening logs

    def open(self, uid: bytes) -> HostedLog:
        """The log of this name, as the disk has it or new."""
        return HostedLog(self, uid, self.store.gid_of(uid))

    def damage_of(self, log: HostedLog) -> str | None:
        """Why a log must not be served, if so."""
        return None if log.gid is None else self.store.group(log.gid).damaged

    def checkpoint_of(self, log: HostedLog) -> tuple[int, bytes] | None:
        if log.gid is None:
            return None
        snapshot = self.store.group(log.gid).snapshot
        state = self.store.read_snapshot(log.gid)
        return None if snapshot is None or state is None else (snapshot.index, state)

    def replay(self, log: HostedLog) -> Iterator[tuple[int, bytes]]:
        """Index and payload of each entry above the checkpoint, without those of the log itself."""
        if log.gid is None:
            return
        view = self.store.group(log.gid)
        first = view.snapshot.index + 1 if view.snapshot is not None else 1
        while first <= view.last_index:
            entries = self.store.read(log.gid, first, view.last_index, bytes_max=REPLAY_BYTES)
            if not entries:
                return
            for entry in entries:
                if entry.payload:
                    yield entry.index, entry.payload
            first = entries[-1].index + 1

    def retain(self, log: HostedLog, indexes: list[int]) -> None:
        """Keep these entries under the checkpoint, and no others there."""
        if log.gid is None:
            return
        snapshot = self.store.group(log.gid).snapshot
        if snapshot is not None:
            kept = [index for index in indexes if index <= snapshot.index]
            ranges = [(first, first + count - 1) for first, count in ranges_of(kept)]
            self.store.retain(log.gid, ranges, upto=snapshot.index)

    def _start(self, log: HostedLog) -> Raft:
        """Begin, or go on with, a log's Raft group."""
        now = trio.current_time()
        if log.gid is None:
            log.gid = self._batch.create_group(log.uid)
            raft = Raft(NODE, self._voters, now, self._random)
        else:
            view = self.store.group(log.gid)
            offset, term = (view.snapshot.index, view.snapshot.term) if view.snapshot else (0, 0)
            above = [e for e in self.store.entries(log.gid) if e.index > offset]
            runs = [
                (entry.index, entry.term)
                for before, entry in zip([None, *above], above, strict=False)
                if before is None or before.term != entry.term
            ]
            last = above[-1].index if above else offset
            raft = Raft(
                NODE,
                self._voters,
                now,
                self._random,
                hard=(view.term, view.vote),
                log=RaftLog(offset, term, runs, last),
                applied=last,
            )
        log.raft = raft
        return raft

    # Proposing

    def changed(self, log: HostedLog, *, urgent: bool, size_bytes: int) -> None:
        """A machine has something to say."""
        self.pending_bytes += size_bytes
        self._gathering.size_bytes += size_bytes
        if not log.dirty:
            log.dirty = True
            self._dirty.append(log)
        if urgent:
            self._urgent = True
        elif not self._lazy_set:
            self._lazy_set = True
            self._timers.call_at(self._timers.now_ms() + LAZY_MS, self._lazily)

    def _lazily(self) -> None:
        self._lazy_set = False
        if self._dirty:
            self._urgent = True
            self.flush()

    def when_stored(self, action: Callable[[], None]) -> None:
        """Call back when everything said so far is durable."""
        if self._dirty or self._batch:
            self._urgent = True
            self._gathering.actions.append(action)
        elif self._submits:
            self._submits[-1].actions.append(action)
        else:
            action()

    @property
    def overloaded(self) -> bool:
        return self.pending_bytes > PENDING_BYTES_MAX

    async def relief(self) -> None:
        while self.overloaded:
            await self._relief.wait()

    def flush(self) -> None:
        """At the end of a turn: write what is urgent, unless a write is under way."""
        busy = self._submits or self._applying
        if self._urgent and not busy and self.failure is None:
            self._submit()

    def _submit(self) -> None:
        self._urgent = False
        submit, self._gathering = self._gathering, _Submit()
        dirty, self._dirty = self._dirty, []
        for log in dirty:
            log.dirty = False
            self._propose(log, submit)
        batch, self._batch = self._batch, self.store.batch()
        try:
            submit.number = self.store.submit(batch)
        except StoreFailedError as error:  # its writer has not got round to saying so
            self._fail(error.__cause__ or error)
            return
        self._submits.append(submit)
        if not batch:  # nothing to write after all, or only what was written before
            self._durable(submit.number)

    def _propose(self, log: HostedLog, submit: _Submit) -> None:
        assert log.machine is not None
        entry = log.machine.next_entry()
        if entry is None:
            return
        raft = log.raft if log.raft is not None else self._start(log)
        while entry is not None:
            raft.propose(entry)
            entry = log.machine.next_entry()
        ready = raft.ready()
        assert ready is not None
        for write in ready.writes:
            self._write(log, write)
            submit.writes.append((log, write.wseq))

    def _write(self, log: HostedLog, write: WriteOp) -> None:
        assert log.gid is not None
        if write.hard is not None:
            self._batch.set_hard(log.gid, *write.hard)
        if write.truncate_from is not None:
            self._batch.truncate_from(log.gid, write.truncate_from)
        self._batch.append(log.gid, write.entries)

    def _durable(self, number: int) -> None:
        """Everything up to this submit is on disk."""
        self._applying = True
        while self._submits and self._submits[0].number <= number:
            submit = self._submits.popleft()
            for log, wseq in submit.writes:
                self._persisted(log, wseq)
            for action in submit.actions:
                action()
            self.pending_bytes -= submit.size_bytes
        self._applying = False
        if not self.overloaded:
            self._relief.set()
            self._relief = trio.Event()
        self._flush_node()

    def _persisted(self, log: HostedLog, wseq: int) -> None:
        raft = log.raft
        if raft is None or log.machine is None:
            return  # deleted meanwhile
        raft.persisted(wseq)
        ready = raft.ready()
        if ready is None or ready.apply_to <= raft.applied_index:
            return
        entries = raft.entries(raft.applied_index + 1, ready.apply_to)
        assert entries is not None
        for entry in entries:
            if entry.payload and log.machine is not None:  # a confirm may lead to its deletion
                log.machine.applied(entry.index)
        raft.applied(ready.apply_to)
        if log.gid is not None:
            self.store.committed(log.gid, ready.apply_to)

    # Checkpoints, deletion, reading back

    def checkpoint(
        self, log: HostedLog, index: int, state: bytes, then: Callable[[], None]
    ) -> None:
        assert log.gid is not None
        raft = log.raft if log.raft is not None else self._start(log)
        self._batch.snapshot(log.gid, index, raft.log.term_at(index), state)

        def durable() -> None:
            if log.raft is not None:
                raft.compacted(index)
                then()

        self._gathering.actions.append(durable)
        self._urgent = True

    def delete(self, log: HostedLog) -> None:
        """Its queue is deleted, and the definitions say so in the same submit or an earlier one."""
        if log.gid is not None:
            self._batch.delete_group(log.gid)
            self._urgent = True
        log.raft = log.machine = log.gid = None
        if log.dirty:
            log.dirty = False
            self._dirty.remove(log)

    def read(self, log: HostedLog, indexes: list[int], then: Callable[[Entries], None]) -> None:
        assert self._nursery is not None, "messages are read once the node runs"
        if self.failure is None:
            self._nursery.start_soon(self._read, log, indexes, then)

    async def _read(
        self, log: HostedLog, indexes: list[int], then: Callable[[Entries], None]
    ) -> None:
        if log.gid is None:
            return  # deleted meanwhile
        fetch = partial(self.store.read_indexes, log.gid, indexes, bytes_max=COLD_READ_BYTES)
        try:
            entries = await self.off_loop(fetch)
        except CorruptRecordError as error:
            _log.error("corrupt", reason=str(error))
            if log.machine is not None:
                log.machine.damaged(str(error))
        except OSError as error:
            self._fail(error)
        except KeyError:
            if log.gid is not None:
                raise  # else it was deleted while the thread got round to it
        else:
            if log.gid is not None:
                then([(entry.index, entry.payload) for entry in entries])
        self._flush_node()
