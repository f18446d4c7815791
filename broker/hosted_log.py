"""One log of a node and what lives on it: the machine on one side, the host on the other.

A log is a Raft group. It is either this node's alone (`LogHost.open`) or has members on several
nodes (`LogHost.join`); what lives on the latter is a `MemberMachine`.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from queues.commands import ranges_of
from queues.raft.config import Change, Step

if TYPE_CHECKING:
    from broker.cluster.replication import Replication
    from broker.log_host import LogHost
    from queues.live_log import Entries
    from queues.raft.config import Config
    from queues.raft.core import Raft
    from queues.raft.messages import NodeId

# Called once a change of members or a barrier is through, with what went wrong if something did:
# NotLeaderError, ConfChangeError.
Then: TypeAlias = Callable[[Exception | None], None]


class Machine(Protocol):
    """What lives on a log of this node alone. All calls are in the loop's thread."""

    def next_entry(self) -> bytes | None:
        """What to propose next. It is never empty."""
        ...

    def applied(self, index: int) -> None:
        """Its oldest proposal is committed, at this index."""
        ...

    def damaged(self, reason: str) -> None: ...


class MemberMachine(Machine, Protocol):
    """What lives on a log with members on several nodes.

    Each committed entry comes once and in order, as `applied` or as `apply`. `next_entry` is asked
    only between `lead` and `follow`.
    """

    def apply(self, index: int, entry: bytes) -> None:
        """A committed entry that is not its own proposal since it leads."""
        ...

    def lead(self) -> None:
        """It leads now, and everything committed earlier is applied."""
        ...

    def follow(self) -> None:
        """It leads no more. What was proposed and not applied is void; it may yet come by `apply`.

        Not called of a member that has not led.
        """
        ...

    def install(self, index: int, state: bytes) -> Sequence[int]:
        """Be as `state`, a checkpoint at `index`, says; the entries at or under it that are in use.

        At the start, where the disk has a checkpoint, and whenever the leader sends one. Some of
        those entries may be missing: entries that follow say that they are dead.
        """
        ...


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

    def read(self, indexes: list[int], then: "Callable[[Entries], None]") -> None:
        self._host.read(self, indexes, then)

    def release(self, indexes: list[int]) -> None:
        if self.gid is not None:
            ranges = [(first, first + count - 1) for first, count in ranges_of(indexes)]
            self._host.store.release(self.gid, ranges)

    def checkpoint(self, index: int, state: bytes, then: Callable[[], None]) -> None:
        self._host.checkpoint(self, index, state, then)

    def confirm(self, then: Callable[[bool], None]) -> None:
        """There is nobody else who could know more."""
        then(True)  # noqa: FBT003 - an answer

    def spread(self, slices: Iterator[None], then: Callable[[], None]) -> None:
        self._host.spread(self, slices, then)

    def delete(self) -> None:
        self._host.delete(self)


class MemberLog(HostedLog):
    """This node's member of a log that others have too."""

    __slots__ = (
        "_replication",
        "apply_to",
        "applying",
        "changes",
        "damaged",
        "deadline",
        "held_back",
        "is_full",
        "lead_term",
        "leads",
        "on_disk",
        "postponed",
        "proposed",
        "proposed_bytes",
        "reads",
        "reads_due",
        "touched",
    )

    def __init__(
        self,
        host: "LogHost",
        replication: "Replication",
        uid: bytes,
        gid: int | None,
    ) -> None:
        super().__init__(host, uid, gid)
        self._replication = replication
        self.machine: MemberMachine | None
        self.damaged: str | None = None  # why it takes no part any more
        self.postponed: Callable[[], None] | None = None  # a checkpoint, while it is brought back
        self.leads = False  # between `lead` and `follow` of its machine
        self.lead_term = 0  # in which it leads, or will when all before is applied
        self.proposed: deque[int] = deque()  # places of its machine's proposals in that term
        self.proposed_bytes = 0
        # Told, while it leads, how many of its machine's proposals are on this node's disk.
        self.on_disk: Callable[[int], None] | None = None
        # Whether its machine has no room for what another node's would send.
        self.is_full: Callable[[], bool] | None = None
        self.held_back = False  # its machine is not asked for more, for now
        self.apply_to = 0  # committed and on disk up to here
        self.applying = False  # is in line for it, or reads what is to be applied
        self.touched = False  # its group may have something to be done
        self.deadline: float | None = None  # for which a timer is set
        self.reads: list[Then] = []  # barriers asked for and not confirmed
        self.reads_due: list[tuple[int, Then]] = []  # confirmed, once that much is applied
        self.changes: list[tuple[int, Then]] = []  # of members, by their index

    @property
    def term(self) -> int:
        return self.raft.term if self.raft is not None else 0

    @property
    def leader(self) -> "NodeId | None":
        """The node that leads, as far as this one knows."""
        return self.raft.leader if self.raft is not None else None

    @property
    def config(self) -> "Config | None":
        """Who votes and who learns, as of the end of the log; None where it is damaged."""
        return self.raft.config if self.raft is not None else None

    def campaign(self) -> None:
        """Try to lead, where there is no leader."""
        self._replication.campaign(self)

    def transfer(self, to: "NodeId") -> None:
        """Hand leadership over to a voter. Raises NotLeaderError."""
        self._replication.transfer(self, to)

    def add_learner(self, node: "NodeId", then: Then) -> None:
        """Leader: have the log copied to that node, which does not count in majorities."""
        self._replication.leadership.change(self, Change(Step.ADD_LEARNER, node), then)

    def promote(self, node: "NodeId", then: Then) -> None:
        """Leader: a learner that has caught up becomes a voter."""
        self._replication.leadership.change(self, Change(Step.PROMOTE, node), then)

    def remove(self, node: "NodeId", then: Then) -> None:
        """Leader: a voter or learner is no member any more."""
        self._replication.leadership.change(self, Change(Step.REMOVE, node), then)

    def read_index(self, then: Then) -> None:
        """Linearizable barrier: `then` gets None once all that was committed before is applied.

        NotLeaderError if this node does not lead, or ceases to before that.
        """
        self._replication.leadership.read_index(self, then)

    def confirm(self, then: Callable[[bool], None]) -> None:
        self.read_index(lambda error: then(error is None))
