"""Planted bugs: cores that break one rule each. The suite must catch every one of them."""

from collections.abc import Sequence

from queues.raft.config import Change
from queues.raft.core import Raft
from queues.raft.messages import Append, AppendReply, Entry, Message, NodeId, Snapshot
from queues.raft.progress import Progress


class AckBeforeFsync(Raft):
    """Messages do not wait for the writes before them."""

    __slots__ = ()

    def _send(self, message: Message) -> None:
        self._msgs.append(message)
        self._dirty = True


class AlwaysTruncate(Raft):
    """An append replaces everything after its `prev`, conflict or not."""

    __slots__ = ()

    def _first_new(self, entries: Sequence[Entry]) -> int | None:
        return entries[0].index if entries else None


class SkipPrevCheck(Raft):
    """An append is taken wherever it touches the log, whatever the term before it is."""

    __slots__ = ()

    def _prev_matches(self, msg: Append) -> bool:
        return msg.prev_index <= self.log.last


class AckLastIndex(Raft):
    """A follower acknowledges its whole log."""

    __slots__ = ()

    def _ack_index(self, msg: Append) -> int:
        return self.log.last


class VoteNotPersisted(Raft):
    """The term is written, who got the vote is not."""

    __slots__ = ()

    def _hard_state(self) -> tuple[int, NodeId | None]:
        return self.term, None


class CommitOldTerm(Raft):
    """An entry on a majority counts as committed, whatever its term (Raft's figure 8)."""

    __slots__ = ()

    def _is_of_this_term(self, index: int) -> bool:
        return True


class StaleWriteCompletion(Raft):
    """A write that was under way when its entries were cut off still counts when it is done."""

    __slots__ = ()

    def _clamp_writes(self, last: int) -> None:
        self.durable = min(self.durable, last)


class AckFromOldTerm(Raft):
    """A leader takes an acknowledgement that was meant for a leader of an earlier term."""

    __slots__ = ()

    def _refuse_stale(self, msg: Message) -> None:
        if isinstance(msg, AppendReply):
            self._on_append_reply(msg, 0.0)
        else:
            super()._refuse_stale(msg)


class TwoChangesAtOnce(Raft):
    """A change of members does not wait for the one before it."""

    __slots__ = ()

    def _change_under_way(self) -> bool:
        return False


class ChangeBeforeCommit(Raft):
    """A new leader changes members before it has committed anything in its term."""

    __slots__ = ()

    def _check_timely(self, change: Change) -> None:
        pass


class ConfigAtCommit(Raft):
    """A configuration holds from when it is committed, not from when it is appended."""

    __slots__ = ()

    def _use_config(self) -> None:
        commit = getattr(self, "commit", self._configs[-1][0])
        self.config = [config for index, config in self._configs if index <= commit][-1]
        self._votes_here = self.node in self.config.voters

    def _commit_to(self, index: int) -> None:
        super()._commit_to(index)
        self._use_config()


class ConfigNotReverted(Raft):
    """An entry that is cut off leaves its configuration behind."""

    __slots__ = ()

    def _disown(self, index: int) -> None:
        while self._configs[-1][0] >= index:
            self._configs.pop()


class LearnerCounted(Raft):
    """What a learner has counts towards the majority."""

    __slots__ = ()

    def _meet_members(self) -> None:
        super()._meet_members()
        for peer in (self.progress or {}).values():
            peer.voter = True


class StrangersVoteCounted(Raft):
    """A vote counts, whoever gave it."""

    __slots__ = ()

    def _tally(self, votes: dict[NodeId, bool]) -> int:
        return sum(votes.values())


class ConfigLostInSnapshot(Raft):
    """A member that gets a snapshot keeps the configuration that it had."""

    __slots__ = ()

    def _restore_config(self, snapshot: Snapshot) -> None:
        self._configs = [(snapshot.index, self.config)]


class ApplyOffByOne(Raft):
    """After a snapshot the first entry to apply is one too late."""

    __slots__ = ()

    def _replace_by(self, snapshot: Snapshot) -> None:
        super()._replace_by(snapshot)
        self._apply_handed += 1


class RemovedLeaderStays(Raft):
    """A leader goes on after its own removal is committed."""

    __slots__ = ()

    def _retire(self) -> None:
        pass


class ReplyOfRemovedMember(Raft):
    """A member that comes back without its disk is taken for what it was."""

    __slots__ = ()

    def _meet_members(self) -> None:
        super()._meet_members()
        for peer in (self.progress or {}).values():
            peer.since = 0


class InstallRoundIgnored(Raft):
    """While a snapshot is on its way, an answer of the member's earlier life counts."""

    __slots__ = ()

    def _is_of_an_earlier_life(self, peer: Progress, msg: AppendReply) -> bool:
        return super()._is_of_an_earlier_life(peer, msg) and not peer.installing


class ReadStatesKept(Raft):
    """Reads that were confirmed in the turn of a deposition are handed out after it."""

    __slots__ = ()

    def _become_follower(self, term: int, leader: NodeId | None, now: float) -> None:
        states = self._read_states
        super()._become_follower(term, leader, now)
        self._read_states = states


class CongestionIgnored(Raft):
    """A follower gets entries however much is on its way to it."""

    __slots__ = ()

    def _is_crowded(self, peer: Progress) -> bool:
        return False


MUTANTS: tuple[type[Raft], ...] = (
    AckBeforeFsync,
    AlwaysTruncate,
    SkipPrevCheck,
    AckLastIndex,
    VoteNotPersisted,
    CommitOldTerm,
    StaleWriteCompletion,
    AckFromOldTerm,
    TwoChangesAtOnce,
    ChangeBeforeCommit,
    ConfigAtCommit,
    ConfigNotReverted,
    LearnerCounted,
    StrangersVoteCounted,
    ConfigLostInSnapshot,
    ApplyOffByOne,
    RemovedLeaderStays,
    ReplyOfRemovedMember,
    InstallRoundIgnored,
    ReadStatesKept,
    CongestionIgnored,
)
