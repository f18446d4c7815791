"""What a group wants done: writes, messages, entries to apply, reads; and when to call it next."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from queues.raft.messages import Entry, Message, NodeId, Snapshot


class Role(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class NotLeaderError(Exception):
    """Only the leader can do this; `leader` is the node to ask, None while there is none."""

    def __init__(self, leader: NodeId | None) -> None:
        super().__init__(f"not the leader; the leader is {leader}")
        self.leader = leader


@dataclass(slots=True)
class WriteOp:
    """One write of a group, done in this order, before or together with all later ones.

    When it and all before it are on disk, the host calls `persisted(wseq)`.
    """

    wseq: int
    hard: tuple[int, NodeId | None] | None  # term and vote: one record
    truncate_from: int | None  # this index and all after it are void
    entries: Sequence[Entry]


@dataclass(slots=True)
class ReadOp:
    """The host answers `fetched(peer, entries)`: at least one, or none if they are compacted."""

    peer: NodeId
    first: int
    last: int
    bytes_max: int


@dataclass(slots=True)
class ReadState:
    """The read that `context` names is linearizable once `index` is applied here."""

    context: object
    index: int


@dataclass(slots=True)
class Ready:
    """To be carried out by the host; only the writes and the messages need an order.

    `install` comes before `writes`: it voids the stored log, and the wseq of the one write with it
    stands for both. Messages need no waiting: those that had to wait for a write have waited.
    """

    writes: Sequence[WriteOp]
    msgs: Sequence[Message]
    apply_to: int  # committed and on disk here; the host applies up to it, then calls `applied`
    install: Snapshot | None
    role: Role
    term: int
    leader: NodeId | None
    read_states: Sequence[ReadState]
    reads: Sequence[ReadOp]
    snapshots: Sequence[NodeId]  # peers that need one; the host answers with `snapshot(peer, …)`
    next_deadline: float | None  # call `tick` then, at once if past; None while the group is idle
