"""One simulated node: a core, its disk and a state machine, joined as a real host would."""

from collections.abc import Callable
from random import Random
from zlib import crc32

from queues.raft.config import DEFAULTS, Change, ConfChangeError, Config, Tunables
from queues.raft.core import Raft
from queues.raft.log import RaftLog
from queues.raft.messages import Entry, Message, Snapshot
from queues.raft.ready import NotLeaderError, ReadOp, Ready, Role
from tests.raft.disk import SimDisk
from tests.raft.ledger import Ledger, ViolationError


class Member:
    """Its driver decides when disks sync, clocks tick and messages arrive; this does the rest."""

    def __init__(
        self,
        node: int,
        config: Config,
        send: Callable[[Message], None],
        *,
        ledger: Ledger | None = None,
        random: Random | None = None,
        tunables: Tunables = DEFAULTS,
        core_class: type[Raft] = Raft,
    ) -> None:
        self.node = node
        self.config = config  # as it was told at first
        self.down: set[int] = set()
        self.send = send
        self.ledger = ledger or Ledger()
        self.members = {node: self}
        self.random = random or Random(node)
        self.tunables = tunables
        self.core_class = core_class
        self.disk = SimDisk()
        self.core: Raft | None = None
        self.boots = 0
        self.state = (0, 0)  # index, digest
        self.commit_seen = 0
        self.led_term = 0
        self.pending: dict[int, int] = {}  # proposals to confirm: index → term
        self.reads: list[ReadOp] = []
        self.snapshots: list[int] = []
        self.read_floors: dict[int, int] = {}
        self.snapshotting = False

    def start(self, now: float) -> Raft:
        image = self.disk.durable
        snapshot = image.snapshot
        self.ledger.saw_write(snapshot.term, image.entries)
        if snapshot.index:
            self.ledger.saw_snapshot(self.node, snapshot)
        log = RaftLog(snapshot.index, snapshot.term, image.runs(), image.last)
        self.boots += 1
        self.commit_seen = snapshot.index
        assert isinstance(snapshot.data, int)
        self.state = (snapshot.index, snapshot.data)
        self.core = core = self.core_class(
            self.node,
            snapshot.config if snapshot.index else self.config,
            now,
            self.random,
            hard=image.hard,
            log=log,
            configs=image.configs,
            tunables=self.tunables,
            down=self.down,
        )
        self.pump()
        return core

    def crash(self) -> None:
        self.disk.crash(self.random)
        self.core = None
        self.pending.clear()
        self.reads.clear()
        self.snapshots.clear()
        self.read_floors.clear()
        self.snapshotting = False
        self.down.clear()

    @property
    def leads(self) -> bool:
        return self.core is not None and self.core.role is Role.LEADER

    def pump(self) -> None:
        """Carry out everything the core wants, until it wants nothing more."""
        core = self.core
        assert core is not None
        self.ledger.check(self)
        while (ready := core.ready()) is not None:
            self._carry_out(core, ready)
            self.ledger.check(self)
        self.ledger.check_config(self)

    def _carry_out(self, core: Raft, ready: Ready) -> None:
        if ready.role is Role.LEADER and ready.term != self.led_term:
            self.led_term = ready.term
            self.ledger.check_new_leader(self)
        if ready.install is not None:
            self.state = (ready.install.index, ready.install.data)  # type: ignore[assignment]
            self.ledger.saw_state(self.node, *self.state)
            self.ledger.saw_snapshot(self.node, ready.install)
            self.commit_seen = max(self.commit_seen, ready.install.index)
        for write in ready.writes:
            if write.entries and not self._is_alone(core):
                entries = list(write.entries)
                self.ledger.saw_write(core.log.term_at(entries[0].index - 1), entries)
            self.disk.stage(write, ready.install)
        self.reads += ready.reads
        self.snapshots += ready.snapshots
        for read in ready.read_states:
            assert isinstance(read.context, int)
            if ready.role is not Role.LEADER:
                raise ViolationError("a read is confirmed by one that leads no more")
            self.ledger.saw_read(self.read_floors.pop(read.context), read.index)
        for message in ready.msgs:
            self.send(message)
        if ready.apply_to > self.state[0]:
            self._apply(core, ready.apply_to)

    def _is_alone(self, core: Raft) -> bool:
        """What a sole member loses, term and all, nobody saw: it counts when it is on disk."""
        return core.config == Config((self.node,))

    def _apply(self, core: Raft, last: int) -> None:
        first = self.state[0] + 1
        for entry in core.entries(first, last) or self.disk.latest.read(first, last):
            digest = crc32(b"%d %d %b" % (entry.index, entry.term, entry.payload), self.state[1])
            self.state = (entry.index, digest)
            self.ledger.saw_apply(self.node, entry, digest)
            proposed = self.pending.pop(entry.index, None)
            if proposed == entry.term:
                self.ledger.saw_confirm(entry.index, entry.term)
        assert self.state[0] == last
        core.applied(last)

    def step(self, message: Message, now: float, *, ends_turn: bool = True) -> None:
        """`ends_turn`: else another message, or what the node does itself, shares its turn."""
        if self.core is not None:
            self.core.step(message, now)
            if ends_turn:
                self.pump()

    def end_turn(self) -> None:
        if self.core is not None:
            self.pump()

    def tick(self, now: float) -> None:
        if self.core is not None:
            self.core.tick(now)
            self.pump()

    def campaign(self, now: float) -> None:
        if self.core is not None:
            self.core.campaign(now)
            self.pump()

    def propose(self, payload: bytes) -> bool:
        if self.core is None:
            return False
        try:
            term, index = self.core.propose(payload)
        except NotLeaderError:
            return False
        self.pending[index] = term
        self.pump()
        return True

    def propose_conf(self, change: Change) -> bool:
        assert self.core is not None
        try:
            self.core.propose_conf(change)
        except (NotLeaderError, ConfChangeError):
            done = False
        else:
            done = True
        self.pump()
        return done

    def read(self, context: int) -> None:
        if self.core is not None and self.leads:
            self.read_floors[context] = self.ledger.confirmed_max
            self.core.read_index(context)
            self.pump()

    def sync(self, count: int | None = None) -> None:
        """The oldest writes reach the disk, and the core hears of it."""
        if self.core is None:
            return
        wseq, snapshot = self.disk.sync(len(self.disk.pending) if count is None else count)
        if self._is_alone(self.core):
            self.ledger.saw_write(self.disk.durable.snapshot.term, self.disk.durable.entries)
        if wseq is not None:
            self.core.persisted(wseq)
        if snapshot is not None:
            self.snapshotting = False
            self.core.compacted(snapshot)
        self.pump()

    def compact(self) -> None:
        """Begin a snapshot of the state as it is; the log is cut when that is on disk."""
        core = self.core
        index, digest = self.state
        if core is None or self.snapshotting or index <= core.log.offset:
            return
        self.snapshotting = True
        term = core.log.term_at(index)
        snapshot = Snapshot(index, term, core.config_at(index), digest)
        self.ledger.saw_snapshot(self.node, snapshot)
        self.disk.stage_snapshot(snapshot)

    def serve(self) -> None:
        """Answer what the core asked of its host: entries from disk, snapshots for peers."""
        core = self.core
        if core is None:
            return
        reads, self.reads = self.reads, []
        for op in reads:
            gone = op.first <= self.disk.latest.snapshot.index or op.first > self.disk.latest.last
            found = [] if gone else self.disk.latest.read(op.first, op.last)
            core.fetched(op.peer, _some(found, op))
        peers, self.snapshots = self.snapshots, []
        for peer in peers:
            if self.disk.durable.snapshot.index:
                core.snapshot(peer, self.disk.durable.snapshot)
        self.pump()


def _some(entries: list[Entry], op: ReadOp) -> list[Entry]:
    size = 0
    for count, entry in enumerate(entries):
        size += len(entry.payload)
        if size > op.bytes_max and count:
            return entries[:count]
    return entries
