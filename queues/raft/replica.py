"""What a member is whatever its role: term and vote, log, writes under way, messages that wait."""

from collections.abc import Container, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from queues.raft.config import Config, Tunables
from queues.raft.log import RaftLog
from queues.raft.messages import Message, NodeId, Snapshot
from queues.raft.ready import ReadOp, ReadState, Role, WriteOp

if TYPE_CHECKING:
    from queues.raft.progress import Progress

LEADER: Final = Role.LEADER
FOLLOWER: Final = Role.FOLLOWER

# A deadline that has passed at any time: set where no clock is at hand, it asks for a tick.
AT_ONCE: Final = -1.0


class Replica:
    """The lowest layer. It decides when something counts as durable and when a message may go."""

    __slots__ = (
        "_apply_handed",
        "_configs",
        "_dirty",
        "_hard_dirty",
        "_install",
        "_msgs",
        "_outstanding",
        "_persisted",
        "_read_round",
        "_read_states",
        "_reads",
        "_reads_waiting",
        "_resumed",
        "_snapshots",
        "_staged",
        "_term_start",
        "_transfer_beats",
        "_transferee",
        "_tries",
        "_truncate_from",
        "_votes",
        "_votes_here",
        "_waiting",
        "_wseq",
        "applied_index",
        "beats",
        "commit",
        "config",
        "crowded",
        "deadline",
        "down",
        "durable",
        "held_up",
        "leader",
        "log",
        "node",
        "progress",
        "random",
        "role",
        "term",
        "tunables",
        "vote",
    )

    def __init__(
        self,
        node: NodeId,
        configs: Sequence[tuple[int, Config]],
        *,
        hard: tuple[int, NodeId | None],
        log: RaftLog,
        applied: int,
        tunables: Tunables,
        random: Random,
        down: Container[NodeId],
        crowded: Container[NodeId],
    ) -> None:
        assert log.offset <= applied <= log.last
        self.node = node
        # Each with the index from which on it holds. A later one may be cut off again; the first
        # is the one at the snapshot.
        self._configs = list(configs)
        indexes = [index for index, _ in configs]
        assert indexes == sorted(set(indexes)), "one configuration after the other"
        assert indexes[-1] <= log.last
        self._use_config()
        self.tunables = tunables
        self.down = down
        self.crowded = crowded
        self.held_up = False  # a follower lacks entries only because it is crowded
        self.random = random  # shared by the node's groups: an own one would cost 2.5 KB
        self.term, self.vote = hard
        if self.term < log.last_term:
            # An installed snapshot reached the disk, the term that came with it did not. Nothing
            # was said in that term, no vote either: it would be on disk.
            self.term, self.vote = log.last_term, None
        self.role = FOLLOWER
        self.leader: NodeId | None = None
        self.log = log
        self.commit = self.applied_index = applied
        self.durable = log.last
        self.deadline: float | None = None  # of the election, or of the leader's next heartbeat

        self._dirty = True
        self._hard_dirty = False
        self._truncate_from: int | None = None
        self._install: Snapshot | None = None
        self._staged = log.last  # entries up to here were handed out to be written
        self._wseq = self._persisted = 0
        self._outstanding: list[tuple[int, int]] = []  # (wseq, last index once it is on disk)
        self._waiting: list[tuple[int, Message]] = []  # messages behind the write they wait for
        self._msgs: list[Message] = []
        self._apply_handed = applied

        self._votes: dict[NodeId, bool] | None = None  # while a candidate
        self._tries = 0  # pre-votes to be repeated soon
        self.progress: dict[NodeId, Progress] | None = None  # while a leader with followers
        self.beats = 0
        self._term_start = 0  # where the leader's own entries begin
        self._resumed = False  # a sole voter that leads since its restart, still in its old term
        self._transferee: NodeId | None = None
        self._transfer_beats = 0
        self._read_round = 0
        self._reads_waiting: list[tuple[int, ReadState]] | None = None
        self._read_states: list[ReadState] | None = None
        self._reads: list[ReadOp] | None = None
        self._snapshots: list[NodeId] | None = None

    # Who is a member.

    def _use_config(self) -> None:
        """The last configuration in the log holds, committed or not."""
        self.config = self._configs[-1][1]
        self._votes_here = self.node in self.config.voters

    def _adopt(self, index: int, config: Config) -> None:
        """The entry at `index` brings this configuration."""
        assert index > self._configs[-1][0]
        self._configs.append((index, config))
        self._use_config()

    def _disown(self, index: int) -> None:
        """Entries from `index` on are cut off, and with them what they changed."""
        if self._configs[-1][0] >= index:
            while self._configs[-1][0] >= index:
                self._configs.pop()
            self._use_config()

    def _change_under_way(self) -> bool:
        return len(self._configs) > 1 and self._configs[-1][0] > self.commit

    def _may_stand(self) -> bool:
        """Voters may; also one whose removal is not committed: it may be the only one that can."""
        if self._votes_here:
            return True
        return self._change_under_way() and self.node in self._configs[-2][1].voters

    def config_at(self, index: int) -> Config:
        """The configuration as of `index`, at the snapshot or later: for a snapshot of there."""
        return next(config for first, config in reversed(self._configs) if first <= index)

    def _become_follower(self, term: int, leader: NodeId | None, now: float) -> None:
        if term > self.term:
            self.term = term
            self.vote = None
            self._hard_dirty = True
        assert term == self.term, "terms never fall"
        self.role = FOLLOWER
        self.leader = leader
        self._votes = None
        self.progress = None
        self._transferee = None
        # Reads confirmed in this very turn too: their caller hears of the change of role instead.
        self._reads_waiting = self._read_states = self._reads = self._snapshots = None
        if leader is None:
            self._await_election(now)
        else:
            self.deadline = None  # whether it lives is for the host to say: suspect_leader
            self._tries = 0
        self._dirty = True

    def _await_election(self, now: float) -> None:
        """One to two election times from now, so that rarely two members campaign at once."""
        if self._may_stand():
            self.deadline = now + self.tunables.election_s * (1.0 + self.random.random())
        else:
            self.deadline = None
        self._dirty = True

    # Writes and what waits for them.

    def _has_unstaged(self) -> bool:
        return (
            self._staged < self.log.last
            or self._hard_dirty
            or self._truncate_from is not None
            or self._install is not None
        )

    def _send(self, message: Message) -> None:
        """Send once everything decided so far is on disk (rule 1)."""
        wseq = self._wseq + 1 if self._has_unstaged() else self._wseq
        if wseq <= self._persisted:
            self._msgs.append(message)
        else:
            self._waiting.append((wseq, message))
        self._dirty = True

    def _stage(self) -> Sequence[WriteOp]:
        """Hand out everything that is not yet on its way to the disk as one write."""
        if not self._has_unstaged():
            return ()
        log = self.log
        entries = log.held(self._staged + 1, log.last)
        assert entries is not None, "an entry is held until it is written"
        self._wseq = wseq = self._wseq + 1
        hard = self._hard_state() if self._hard_dirty else None
        write = WriteOp(wseq, hard, self._truncate_from, entries)
        self._staged = log.last
        self._outstanding.append((wseq, log.last))
        self._hard_dirty = False
        self._truncate_from = None
        return (write,)

    def _hard_state(self) -> tuple[int, NodeId | None]:
        return self.term, self.vote

    def _settle(self, wseq: int) -> None:
        """All writes up to `wseq` are on disk: count them, and let go what waited for them."""
        assert wseq <= self._wseq, "persisted before it was handed out"
        outstanding = self._outstanding
        done = 0
        while done < len(outstanding) and outstanding[done][0] <= wseq:
            self.durable = outstanding[done][1]
            done += 1
        if not done:
            return
        del outstanding[:done]
        self._persisted = wseq
        assert self.durable <= self.log.last, "durable beyond the end of the log"
        self._dirty = True
        waiting = self._waiting
        if waiting:
            released = 0
            while released < len(waiting) and waiting[released][0] <= wseq:
                self._msgs.append(waiting[released][1])
                released += 1
            del waiting[:released]

    def _truncate(self, index: int) -> None:
        assert index > self.commit, "a committed entry would be lost"
        self.log.truncate(index)
        self._disown(index)
        if index <= self._staged:
            self._staged = index - 1
            before = self._truncate_from
            self._truncate_from = index if before is None else min(before, index)
            self._clamp_writes(index - 1)

    def _clamp_writes(self, last: int) -> None:
        """Writes under way no longer prove anything after `last` (rule 2)."""
        self.durable = min(self.durable, last)
        self._outstanding = [(wseq, min(index, last)) for wseq, index in self._outstanding]

    def _replace_by(self, snapshot: Snapshot) -> None:
        """The snapshot takes the place of the whole log; durable again once it is on disk."""
        self._clamp_writes(self.commit)
        self.log.reset(snapshot.index, snapshot.term)
        self._restore_config(snapshot)
        self.commit = self.applied_index = self._apply_handed = self._staged = snapshot.index
        self._install = snapshot
        self._truncate_from = None
        self._dirty = True

    def _restore_config(self, snapshot: Snapshot) -> None:
        self._configs = [(snapshot.index, snapshot.config)]
        self._use_config()

    def _commit_to(self, index: int) -> None:
        if index > self.commit:
            assert index <= self.log.last, "commit beyond the end of the log"
            self.commit = index
            self._dirty = True
