"""What must hold whatever happens: the invariants of a group, checked after every event."""

from typing import TYPE_CHECKING

from queues.raft.config import Config, config_of
from queues.raft.messages import Entry, Snapshot
from queues.raft.ready import Role

if TYPE_CHECKING:
    from tests.raft.member import Member


class ViolationError(AssertionError):
    """A promise of the group is broken."""


class Ledger:
    """An all-seeing observer of one group."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}  # term → node
        self.written: dict[tuple[int, int], tuple[bytes, int]] = {}  # place → payload, term before
        self.committed: dict[int, int] = {}  # index → term
        self.commit_terms: dict[int, int] = {}  # index → term in which it was seen committed
        self.applied: dict[int, tuple[int, bytes]] = {}
        self.digests: dict[int, int] = {0: 0}
        self.configs: list[tuple[int, Config]] = []  # applied by anybody, in order
        self.confirmed: dict[int, int] = {}  # index → term
        self.matches: dict[tuple[int, ...], int] = {}  # (node, term, peer, since) → match
        self.commit_max = 0
        self.confirmed_max = 0

    def saw_write(self, before: int, entries: list[Entry]) -> None:
        """Log matching: one place (index, term) means one payload and one history before it."""
        for entry in entries:
            fact = (entry.payload, before)
            known = self.written.setdefault((entry.index, entry.term), fact)
            if known != fact:
                raise ViolationError(f"log matching: {entry} is {fact} here and {known} elsewhere")
            before = entry.term

    def saw_apply(self, node: int, entry: Entry, digest: int) -> None:
        fact = (entry.term, entry.payload)
        if self.applied.setdefault(entry.index, fact) != fact:
            raise ViolationError(f"node {node} applied {fact}, others {self.applied[entry.index]}")
        config = config_of(entry.payload)
        if config is not None and (not self.configs or self.configs[-1][0] < entry.index):
            self._saw_config(entry.index, config)
        self.saw_state(node, entry.index, digest)

    def _saw_config(self, index: int, config: Config) -> None:
        if self.configs:
            voters = {*self.configs[-1][1].voters}
            if len(voters ^ {*config.voters}) > 1:
                raise ViolationError(f"{config} after {self.configs[-1][1]}: more than one voter")
        self.configs.append((index, config))

    def saw_snapshot(self, node: int, snapshot: Snapshot) -> None:
        """Everything in it was applied by somebody, the configuration too."""
        known = [config for index, config in self.configs if index <= snapshot.index]
        if known and snapshot.config != known[-1]:
            raise ViolationError(f"node {node} snapshots {snapshot.config}, it is {known[-1]}")

    def check_config(self, member: "Member") -> None:
        """The last configuration in the log holds, committed or not."""
        assert member.core is not None
        config = member.disk.latest.config(member.config)
        if member.core.config != config:
            raise ViolationError(f"node {member.node} goes by {member.core.config}, not {config}")

    def saw_state(self, node: int, index: int, digest: int) -> None:
        if self.digests.setdefault(index, digest) != digest:
            raise ViolationError(f"node {node} has another state at {index}")

    def saw_confirm(self, index: int, term: int) -> None:
        if self.committed.get(index) != term:
            raise ViolationError(f"confirmed ({index}, {term}) was never committed")
        self.confirmed[index] = term
        self.confirmed_max = max(self.confirmed_max, index)

    def saw_read(self, floor: int, index: int) -> None:
        if index < floor:
            raise ViolationError(f"a read at {index} misses {floor}, confirmed before it began")

    def check(self, member: "Member") -> None:
        core = member.core
        if core is None:
            return
        log = core.log
        if not (core.durable <= log.last and core.commit <= log.last):
            raise ViolationError(
                f"durable {core.durable} or commit {core.commit} > last {log.last}"
            )
        if core.durable >= max(log.offset, member.disk.durable.snapshot.index):
            image = member.disk.durable
            if not image.has(core.durable, log.term_at(core.durable)):
                raise ViolationError(f"node {core.node} believes {core.durable} durable; it is not")
        if core.role is Role.LEADER:
            self._check_leader(member)
        self._check_commit(member)

    def _check_leader(self, member: "Member") -> None:
        core = member.core
        assert core is not None
        if self.leaders.setdefault(core.term, core.node) != core.node:
            raise ViolationError(f"two leaders in term {core.term}")
        for peer in (core.progress or {}).values():
            key = (core.node, core.term, peer.node, peer.since)
            if peer.match < self.matches.get(key, 0):
                raise ViolationError(f"match of {peer.node} fell in term {core.term}")
            self.matches[key] = peer.match
        image = member.disk.latest
        fresh = [index for index, _ in image.configs if index > core.commit]
        if sum(image.term_at(index) == core.term for index in fresh) > 1:
            raise ViolationError(f"leader {core.node} has two changes of members under way")

    def _check_commit(self, member: "Member") -> None:
        core = member.core
        assert core is not None
        for index in range(max(member.commit_seen, core.log.offset) + 1, core.commit + 1):
            term = core.log.term_at(index)
            self.commit_terms.setdefault(index, core.term)
            if self.committed.setdefault(index, term) != term:
                raise ViolationError(
                    f"node {core.node} committed ({index}, {term}), "
                    f"another ({index}, {self.committed[index]})"
                )
        if core.role is Role.LEADER and core.commit > max(member.commit_seen, core.log.offset):
            self._check_majority(member)
        member.commit_seen = core.commit
        self.commit_max = max(self.commit_max, core.commit)

    def _check_majority(self, member: "Member") -> None:
        """Committed means: on the disks of a majority of the voters."""
        core = member.core
        assert core is not None
        voters = core.config.voters
        place = core.commit, core.log.term_at(core.commit)
        holders = [node for node in voters if member.members[node].disk.durable.has(*place)]
        if len(holders) <= len(voters) // 2:
            raise ViolationError(f"committed {place} is on the disks of {holders} only of {voters}")

    def check_new_leader(self, member: "Member") -> None:
        """Leader completeness: what was committed in a term is in the log of every later leader."""
        core = member.core
        assert core is not None
        for index in range(self.commit_max, core.log.offset, -1):
            term = self.committed.get(index)
            if term is not None and self.commit_terms[index] < core.term:
                if not core.log.matches(index, term):
                    raise ViolationError(f"leader {core.node} of {core.term} lacks {index}")
                return
