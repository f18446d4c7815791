"""Members that are damaged on this node are given up and begun again, as learners with nothing.

What a damaged member voted for and acknowledged is not known any more. So it must be out of the
group, by a decision of the others, before it may take part again: it asks the leader, which removes
it and says so. Then what the disk has of it is replaced by an empty log, the leader's keeper adds
it as a learner, and it is promoted when it has caught up. A question is a log's uid; the answer is
one byte, 1: removed, 0: not now.

Where no leader is known here, all nodes are asked: one that leads after all does it. The others
learn which members are damaged, and whether those are too many for a leader ever to be.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from broker import logs
from broker.cluster.asking import Asking
from broker.cluster.kinds import Kind
from queues.bell import Clock
from queues.raft.messages import NodeId

if TYPE_CHECKING:
    from broker.cluster.replication import Replication
    from broker.hosted_log import MemberLog

RETRY_MS: Final = 1000
REPORT_MS: Final = 5000  # between two questions to all nodes about one log
BELIEVED_MS: Final = 3 * REPORT_MS  # whoever was mended since does not ask again
_NOT_NOW, _REMOVED = b"\0", b"\1"

_log = logs.get("replication")


@runtime_checkable
class Renewable(Protocol):
    """A machine that can forget everything and begin again."""

    def begin_anew(self) -> bool:
        """False if it has to finish something first."""
        ...


class Mending:
    """One per node: for its own damaged members, and for those of others in logs that it leads."""

    def __init__(
        self,
        replication: "Replication",
        clock: Clock,
        *,
        others_of: Callable[[bytes], tuple[NodeId, ...]],
        look: Callable[[], None],
        spared: bytes,
    ) -> None:
        """`others_of`: who else should be a member; `look`: there is one to be added.

        `spared` is a log without which nothing can be mended.
        """
        self._replication = replication
        self._clock = clock
        self._others_of = others_of
        self._look = look
        self._spared = spared
        self._asking = Asking(replication.mail, Kind.MEND, clock, self._asked)
        self._damaged: set[bytes] = set()
        self._asked_for: set[bytes] = set()  # without an answer
        self._reported_ms: dict[bytes, int] = {}  # when all nodes were last asked, by log
        self._reports: dict[bytes, dict[NodeId, int]] = {}  # who is damaged, and when it said so
        self._ticking = False
        self.received = self._asking.received
        self.node_down = self._asking.node_down
        replication.on_damaged.append(self._noticed)

    def _noticed(self, uid: bytes, _reason: str) -> None:
        if uid != self._spared:
            self._damaged.add(uid)
            self._tick_later()

    def _tick_later(self) -> None:
        if self._damaged and not self._ticking:
            self._ticking = True
            self._clock.call_at(self._clock.now_ms() + RETRY_MS, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        for uid in list(self._damaged):
            log = self._replication.logs.get(uid)
            if log is None or log.damaged is None:
                self._damaged.discard(uid)  # deleted meanwhile
                self._reported_ms.pop(uid, None)
            elif uid not in self._asked_for:
                self._ask(log)
        self._tick_later()

    def _ask(self, log: "MemberLog") -> None:
        replication = self._replication
        leader = replication.book.leader_of(log.uid)
        if leader is None:
            self._report(log)
        if leader is None or leader == replication.me or _renewable(log) is None:
            return
        self._asked_for.add(log.uid)
        self._asking.ask(leader, log.uid, partial(self._answered, log, log.gid, leader))

    def _report(self, log: "MemberLog") -> None:
        now = self._clock.now_ms()
        if now - self._reported_ms.get(log.uid, 0) >= REPORT_MS:
            self._reported_ms[log.uid] = now
            for node in self._replication.mail.up():
                self._asking.ask(node, log.uid, partial(self._reported, log, log.gid, node))

    def _reported(
        self, log: "MemberLog", gid: int | None, node: NodeId, answer: bytes | None
    ) -> None:
        if answer == _REMOVED:  # it leads, and this node has not heard of that
            self._asked_for.add(log.uid)
            self._answered(log, gid, node, answer)

    def _answered(
        self, log: "MemberLog", gid: int | None, leader: NodeId, answer: bytes | None
    ) -> None:
        if answer == _REMOVED:
            # Once all that was said of the old one has been written, or is forgotten.
            self._replication.host.after_write(partial(self._begin_anew, log, gid, leader))
            self._replication.host.end_turn()
        else:
            self._asked_for.discard(log.uid)

    def _begin_anew(self, log: "MemberLog", gid: int | None, leader: NodeId) -> None:
        self._asked_for.discard(log.uid)
        if self._replication.logs.get(log.uid) is not log or log.damaged is None:
            return
        if log.gid != gid:
            return  # a late answer: it has begun anew and may have voted since
        machine = _renewable(log)
        if machine is not None and machine.begin_anew():
            self._damaged.discard(log.uid)
            self._replication.renew(log, self._others_of(log.uid) or (leader,))
            _log.warning("begun_anew", log=log.uid.hex())

    # For others, where this node leads

    def _asked(self, node: NodeId, uid: bytes, answer: Callable[[bytes], None]) -> None:
        log = self._replication.logs.get(uid)
        config = log.config if log is not None else None
        if log is None or config is None or not log.leads:
            self._reports.setdefault(uid, {})[node] = self._clock.now_ms()
            answer(_NOT_NOW)
            return

        def done(error: Exception | None) -> None:
            answer(_REMOVED if error is None else _NOT_NOW)
            self._look()

        if node in (*config.voters, *config.learners):
            _log.warning("removes_damaged", log=uid.hex(), node=node)
            log.remove(node, done)
        else:
            log.read_index(done)  # one that is deposed without knowing must not say so

    def hopeless(self) -> set[bytes]:
        """Logs that are sound here and get no leader: most of those that vote are damaged."""
        since = self._clock.now_ms() - BELIEVED_MS
        found = set()
        for uid, reports in list(self._reports.items()):
            damaged = {node for node, said_ms in reports.items() if said_ms > since}
            log = self._replication.logs.get(uid)
            config = log.config if log is not None else None
            if not damaged or config is None:
                del self._reports[uid]
            elif self._replication.book.leader_of(uid) is None:
                sound = [node for node in config.voters if node not in damaged]
                if 2 * len(sound) <= len(config.voters):
                    found.add(uid)
        return found


def _renewable(log: "MemberLog") -> Renewable | None:
    machine: object = log.machine
    return machine if isinstance(machine, Renewable) else None
