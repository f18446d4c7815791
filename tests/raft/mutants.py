"""Planted bugs: cores that break one rule each. The suite must catch every one of them."""

from collections.abc import Sequence

from queues.raft.core import Raft
from queues.raft.messages import Append, AppendReply, Entry, Message, NodeId


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


MUTANTS: tuple[type[Raft], ...] = (
    AckBeforeFsync,
    AlwaysTruncate,
    SkipPrevCheck,
    AckLastIndex,
    VoteNotPersisted,
    CommitOldTerm,
    StaleWriteCompletion,
    AckFromOldTerm,
)
