"""The host of a node's replicated logs: proposals in, one write per turn, applied entries out.

Each log has a machine (a queue's storage, or the definitions) that says what to propose and is told
what was applied. The proposals of all logs become one submit to the store; while that is being
written the next one gathers. Nothing is applied before its submit is durable.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

import trio

from broker import logs
from broker.cluster.leaders import LeaderBook
from broker.cluster.mail import Mail
from broker.cluster.replication import Replication
from broker.hosted_log import HostedLog, MemberLog, MemberMachine
from broker.internal_errors import CALLBACK
from broker.off_loop import OffLoop
from broker.startup import DiskFailedError, LogBrokenError
from broker.stored_logs import StoredLogs
from broker.timers import Timers
from queues.live_log import Entries
from queues.raft.config import DEFAULTS, Tunables
from queues.raft.core import Raft
from queues.raft.messages import NodeId
from queues.raft.ready import WriteOp
from queues.storage.errors import CorruptRecordError, StoreFailedError
from queues.storage.log_store import LogStore

if TYPE_CHECKING:
    from queues.storage.batch import WriteBatch

# Settles wait this long for a publish to ride along with. A crash within it redelivers them.
LAZY_MS: Final = 10
# What is handed over and not yet durable, of all logs together, may cost so much in memory. Beyond
# it publishers are not read.
PENDING_BYTES_MAX: Final = 64 * 1024 * 1024
COLD_READ_BYTES: Final = 4 * 1024 * 1024

_log = logs.get("log")


class Crowded(Protocol):
    """Whatever may hold more than it can put away."""

    @property
    def congested(self) -> bool: ...


class _Submit:
    """A batch on its way to the disk."""

    __slots__ = ("actions", "number", "size_bytes", "writes")

    def __init__(self) -> None:
        self.number = 0
        self.writes: list[tuple[HostedLog, int]] = []  # log and the number of its write
        self.actions: list[Callable[[], None]] = []
        self.size_bytes = 0


class LogHost(StoredLogs):
    """Drives the Raft groups of a node on one store. For the loop's thread, but for `told_*`."""

    def __init__(
        self,
        timers: Timers,
        flush: Callable[[], None],
        on_full: Callable[[bool], None],
        off_loop: OffLoop,
        on_low: Callable[[], None] = lambda: None,
    ) -> None:
        self.pending_bytes = 0  # handed over by machines and not yet durable
        self.pending_bytes_max = PENDING_BYTES_MAX
        self.crowded: set[Crowded] = set()
        self.failure: BaseException | None = None
        self.timers = timers
        self._flush_node = flush
        self._on_full = on_full
        self._on_low = on_low
        self.off_loop = off_loop
        self._random = Random(0)  # noqa: S311 - spreads elections; a group of one has none
        self._dirty: list[HostedLog] = []
        self._urgent = False
        self._applying = False  # what is being applied may lead to more: that waits for its end
        self._lazy_set = False
        self._gathering = _Submit()
        self._filling = self._gathering  # to which what is written now belongs
        self._going: set[int] = set()  # groups whose deletion is not durable
        self.replication: Replication | None = None  # in a cluster
        self.batch: WriteBatch  # what the next submit writes
        self._submits: deque[_Submit] = deque()
        self._token = trio.lowlevel.current_trio_token()
        self._nursery: trio.Nursery | None = None
        self._early: list[Callable[[], Awaitable[object]]] = []  # to be done once there is one
        self._relief = trio.Event()
        self._failed = trio.Event()
        self._broken = False  # it is the log that failed, not the disk

    def use(self, store: LogStore) -> None:
        self.store = store
        self.batch = store.batch()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve reads until the disk fails, or the log; then say so, which ends the node."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for work in self._early:
                nursery.start_soon(self._guarded, work)
            self._early.clear()
            task_status.started()
            await self._failed.wait()
            assert self.failure is not None
            if self._broken:
                raise LogBrokenError(f"the log is broken: {self.failure!r}") from self.failure
            _log.error("disk_failed", reason=str(self.failure))
            raise DiskFailedError(f"the disk failed: {self.failure}") from self.failure

    def start_soon(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Have it done beside, once the node runs."""
        if self._nursery is None:
            self._early.append(partial(work, *arguments))
        elif self.failure is None:
            self._nursery.start_soon(self._guarded, work, *arguments)

    async def _guarded(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """What goes wrong beside is the business of whoever asked for it, unless it is the disk."""
        try:
            await work(*arguments)
        except (OSError, StoreFailedError) as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001 - one reader's bug must not end the node
            self.timers.errors.note(CALLBACK, error, work=getattr(work, "__qualname__", repr(work)))

    def end_turn(self) -> None:
        self._flush_node()

    def go_on_soon(self) -> None:
        """There is more to do than fits in a turn: have another, after whoever else waits."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._flush_node, idempotent=True)

    def want_submit(self) -> None:
        """Something is in the batch that waits for nobody else."""
        self._urgent = True

    def after_write(self, action: Callable[[], None]) -> None:
        """Call back when all that is in the batch now is durable."""
        self._gathering.actions.append(action)
        self._urgent = True

    async def written(self) -> None:
        """Wait for that."""
        done = trio.Event()
        self.after_write(done.set)
        self.end_turn()
        await done.wait()

    async def drain(self) -> None:
        """Wait until all that was said is durable."""
        done = trio.Event()
        self.when_stored(done.set)
        self.flush()
        await done.wait()

    # What the store's writer thread says

    def told_durable(self, number: int) -> None:
        self._tell(self._durable, number)

    def told_full(self, full: bool) -> None:  # noqa: FBT001 - the store calls it so
        self._tell(self._on_full, full)

    def told_low(self) -> None:
        self._tell(self._on_low)

    def told_failed(self, error: BaseException) -> None:
        self._tell(self.fail, error)

    def _tell(self, what: Callable[..., None], *arguments: object) -> None:
        """From the writer's thread to the loop, which is gone where a start came to nothing."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._told, what, *arguments)

    def _told(self, what: Callable[..., None], *arguments: object) -> None:
        try:
            what(*arguments)
        except Exception as error:  # noqa: BLE001 - Trio would end the process without a word
            self.broken(error)

    def fail(self, error: BaseException) -> None:
        self.failure = error
        self._failed.set()

    def broken(self, error: Exception) -> None:
        """An invariant does not hold: to go on could lose or repeat what was confirmed."""
        if self.failure is None:
            _log.exception("broken", error)
            self._broken = True
            self.fail(error)

    # Opening logs

    def open(self, uid: bytes) -> HostedLog:
        """The log of this name, as the disk has it or new."""
        return HostedLog(self, uid, self.gid_of(uid))

    def connect(self, me: NodeId, mail: Mail, book: LeaderBook) -> Replication:
        """This node is one of several: from now on logs can be joined."""
        assert self.replication is None
        self.replication = Replication(self, me, mail, book)
        return self.replication

    def join(
        self,
        uid: bytes,
        voters: tuple[NodeId, ...],
        make: Callable[[MemberLog], MemberMachine],
        *,
        first: NodeId,
        may_be_new: bool = True,
        tunables: Tunables = DEFAULTS,
    ) -> MemberLog:
        """This node's member of a log, as the disk has it or new.

        `make` gives the machine that is to live on it; before this returns it is brought back as
        far as the disk knows what is committed (`install`, `apply`), or told that it is `damaged`.
        Of a new log `voters` are the members, of which `first` campaigns at once. A node that is
        not among them is to be added by the leader. `may_be_new`: if it is not on disk, that is
        not because it was lost (Replication.lost_logs).
        """
        assert self.replication is not None, "not connected"
        return self.replication.join(
            uid, voters, make, first=first, may_be_new=may_be_new, tunables=tunables
        )

    def node_down(self, node: NodeId) -> None:
        """Nothing is heard of that node any more."""
        assert self.replication is not None
        self.replication.node_down(node)

    def node_up(self, node: NodeId, *, restarted: bool) -> None:
        """That node is heard of again; `restarted` if it is not the process that it was."""
        assert self.replication is not None
        self.replication.node_up(node, restarted=restarted)

    def relieved(self) -> None:
        """A node that had enough takes more."""
        assert self.replication is not None
        self.replication.relieved()

    def gid_of(self, uid: bytes) -> int | None:
        """The group of this name; one that is being deleted is none."""
        gid = self.store.gid_of(uid)
        return None if gid in self._going else gid

    def delete_group(self, gid: int) -> None:
        self._going.add(gid)
        self.batch.delete_group(gid)
        self.after_write(partial(self._going.discard, gid))

    def _start(self, log: HostedLog) -> Raft:
        """Begin, or go on with, the group of a log of this node alone."""
        if log.gid is None:
            log.gid = self.batch.create_group(log.uid)
            view = None
        else:
            view = self.store.group(log.gid)
        log.raft = self.lone_group(view, self._random)
        return log.raft

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
            self.timers.call_at(self.timers.now_ms() + LAZY_MS, self._lazily)

    def _lazily(self) -> None:
        self._lazy_set = False
        if self._dirty:
            self._urgent = True
            self.flush()

    def when_stored(self, action: Callable[[], None]) -> None:
        """Call back when everything said so far is durable."""
        if self._dirty or self.batch:
            self._urgent = True
            self._gathering.actions.append(action)
        elif self._submits:
            self._submits[-1].actions.append(action)
        else:
            action()

    @property
    def overloaded(self) -> bool:
        return (
            self.pending_bytes > self.pending_bytes_max
            or bool(self.crowded)
            or (self.replication is not None and self.replication.leadership.overloaded)
        )

    def relieve_if_light(self) -> None:
        if not self.overloaded:
            self.relieve()

    async def relief(self) -> None:
        """Wait until it is no longer overloaded, or somebody has to look again."""
        await self._relief.wait()

    def relieve(self) -> None:
        self._relief.set()
        self._relief = trio.Event()

    def flush(self) -> None:
        """At the end of a turn: write what is urgent, unless a write is under way."""
        if self._applying or self.failure is not None:
            return
        try:
            self._flush()
        except Exception as error:  # noqa: BLE001 - whoever's turn it is has no part in it
            self.broken(error)

    def _flush(self) -> None:
        replication = self.replication
        if replication is not None:
            self._applying = True
            try:
                replication.turn()
            finally:
                self._applying = False
        if self._urgent and not self._submits:
            self._submit()
        if replication is not None:
            replication.post()

    def _submit(self) -> None:
        self._urgent = False
        submit, self._gathering = self._gathering, _Submit()
        dirty, self._dirty = self._dirty, []
        for log in dirty:
            log.dirty = False
            if isinstance(log, MemberLog):
                assert self.replication is not None
                self.replication.leadership.propose(log)
            else:
                self._propose(log)
        self._filling = self._gathering
        batch, self.batch = self.batch, self.store.batch()
        try:
            submit.number = self.store.submit(batch)
        except StoreFailedError as error:  # its writer has not got round to saying so
            self.fail(error.__cause__ or error)
            return
        self._submits.append(submit)
        if not batch:  # nothing to write after all, or only what was written before
            self._durable(submit.number)

    def _propose(self, log: HostedLog) -> None:
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
            self.write(log, write)

    def write(self, log: HostedLog, write: WriteOp, *, commit: int = 0) -> None:
        """Write this with the next submit; `commit` is final and on disk."""
        assert log.gid is not None
        if write.hard is not None:
            self.batch.set_hard(log.gid, *write.hard, commit=commit)
        if write.truncate_from is not None:
            self.batch.truncate_from(log.gid, write.truncate_from)
        self.batch.append(log.gid, write.entries)
        self._filling.writes.append((log, write.wseq))
        self._urgent = True

    def _durable(self, number: int) -> None:
        """Everything up to this submit is on disk."""
        self._applying = True
        try:
            self._settle(number)
        except Exception as error:  # noqa: BLE001 - whoever's turn it is has no part in it
            self.broken(error)
            return
        finally:
            self._applying = False
        if self.crowded:
            self.crowded = {one for one in self.crowded if one.congested}
        self.relieve_if_light()
        self._flush_node()

    def _settle(self, number: int) -> None:
        while self._submits and self._submits[0].number <= number:
            submit = self._submits.popleft()
            for log, wseq in submit.writes:
                self._persisted(log, wseq)
            for action in submit.actions:
                self._act(action)
            self.pending_bytes -= submit.size_bytes

    def _act(self, action: Callable[[], None]) -> None:
        """Somebody waited for what is durable now: it is their business what comes of it."""
        try:
            action()
        except AssertionError:
            raise  # an invariant, of which most are the log's own
        except Exception as error:  # noqa: BLE001 - others wait as well
            self.timers.errors.note(CALLBACK, error)

    def _persisted(self, log: HostedLog, wseq: int) -> None:
        raft = log.raft
        if raft is None or log.machine is None:
            return  # deleted meanwhile
        raft.persisted(wseq)
        if isinstance(log, MemberLog):
            assert self.replication is not None
            self.replication.touch(log)
            if log.on_disk is not None and log.leads:
                log.on_disk(bisect_right(log.proposed, raft.durable))
            return
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
        if isinstance(log, MemberLog):
            if log.raft is None:
                log.postponed = partial(self.checkpoint, log, index, state, then)
                return
            raft = log.raft
            self._keep_config(log.gid, index, raft)
        else:
            raft = log.raft if log.raft is not None else self._start(log)
        self.batch.snapshot(log.gid, index, raft.log.term_at(index), state)

        def durable() -> None:
            if log.raft is raft:  # else it is deleted, or damaged
                raft.compacted(index)
                then()

        self.after_write(durable)

    def spread(self, log: HostedLog, slices: Iterator[None], then: Callable[[], None]) -> None:
        """Work that would hold up everybody else, a slice with every turn."""
        self.start_soon(self._spread, log, slices, then)

    async def _spread(
        self, log: HostedLog, slices: Iterator[None], then: Callable[[], None]
    ) -> None:
        for _ in slices:
            await trio.lowlevel.checkpoint()
        damaged = isinstance(log, MemberLog) and log.damaged is not None
        if log.gid is not None and not damaged:
            then()
            self.end_turn()

    def _keep_config(self, gid: int, index: int, raft: Raft) -> None:
        """The entries that brought it go: who the members are is kept beside the checkpoint."""
        config, known = raft.config_at(index).encode(), self.store.group(gid).config
        if known is None or known[1] != config:
            self.batch.set_config(gid, index, config)

    def delete(self, log: HostedLog) -> None:
        """Its queue is deleted, and the definitions say so in the same submit or an earlier one."""
        if isinstance(log, MemberLog) and self.replication is not None:
            self.replication.leave(log)
        if log.gid is not None:
            self.delete_group(log.gid)
        log.raft = log.machine = log.gid = None
        if log.dirty:
            log.dirty = False
            self._dirty.remove(log)

    def read(self, log: HostedLog, indexes: list[int], then: Callable[[Entries], None]) -> None:
        self.start_soon(self._read, log, indexes, then)

    async def _read(
        self, log: HostedLog, indexes: list[int], then: Callable[[Entries], None]
    ) -> None:
        gid = log.gid
        if gid is None:
            return  # deleted meanwhile
        fetch = partial(self.store.read_indexes, gid, indexes, bytes_max=COLD_READ_BYTES)
        try:
            entries = await self.off_loop(fetch)
        except CorruptRecordError as error:
            _log.error("corrupt", reason=str(error))
            if isinstance(log, MemberLog) and self.replication is not None:
                self.replication.damage(log, str(error))
            elif log.machine is not None:
                log.machine.damaged(str(error))
        except OSError as error:
            self.fail(error)
        except KeyError as error:
            if log.gid == gid:  # else it was deleted or replaced meanwhile
                self.broken(error)
        else:
            if log.gid == gid:
                then([(entry.index, entry.payload) for entry in entries])
        self._flush_node()
