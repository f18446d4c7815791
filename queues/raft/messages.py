"""What the members of a group say to each other. Every message and every reply carries a term.

Treat them as immutable: a host may send one message twice, and entries are shared with the log.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from queues.raft.config import Config

NodeId: TypeAlias = int

NO_OP: Final = b""  # what a new leader appends first; a proposal is never empty


@dataclass(slots=True)
class Entry:
    """One place in a group's log; the payload is opaque to the core."""

    index: int
    term: int
    payload: bytes


@dataclass(slots=True)
class Snapshot:
    """The state up to and with `index`. `data` is the host's own: a handle, a path, bytes."""

    index: int
    term: int
    config: "Config"  # of the group as of `index`
    data: object


@dataclass(slots=True)
class PreVote:
    """Would you vote for me? `term` is the one that the sender would campaign in."""

    to: NodeId
    frm: NodeId
    term: int
    last_index: int
    last_term: int


@dataclass(slots=True)
class PreVoteReply:
    """`term` is the one asked about if granted, else the sender's own."""

    to: NodeId
    frm: NodeId
    term: int
    granted: bool


@dataclass(slots=True)
class Vote:
    """Vote for me. `transfer`: the leader itself asked for this election, so its lease is over."""

    to: NodeId
    frm: NodeId
    term: int
    last_index: int
    last_term: int
    transfer: bool


@dataclass(slots=True)
class VoteReply:
    to: NodeId
    frm: NodeId
    term: int
    granted: bool


@dataclass(slots=True)
class Append:
    """Entries after `prev_index`; with none it is heartbeat, probe and news of the commit index."""

    to: NodeId
    frm: NodeId
    term: int
    prev_index: int
    prev_term: int
    entries: Sequence[Entry]
    commit: int
    read_round: int  # echoed, so that the leader knows which reads this reply confirms


@dataclass(slots=True)
class AppendReply:
    """Answer to Append and Install.

    If `ok`, `index` is the last index known to match. If not, it is the `prev_index` that did not
    match, and the hint is the last place of the sender's log that may still match.
    """

    to: NodeId
    frm: NodeId
    term: int
    ok: bool
    index: int
    commit: int
    hint_index: int
    hint_term: int
    read_round: int


@dataclass(slots=True)
class Install:
    """Replace your log and state by this snapshot."""

    to: NodeId
    frm: NodeId
    term: int
    snapshot: Snapshot
    read_round: int = 0  # echoed, as that of an Append: an answer of an earlier life is known by it


@dataclass(slots=True)
class TimeoutNow:
    """Campaign at once: the sender hands its leadership over."""

    to: NodeId
    frm: NodeId
    term: int


Message: TypeAlias = (
    PreVote | PreVoteReply | Vote | VoteReply | Append | AppendReply | Install | TimeoutNow
)
