"""Which logs are led here: when their machines begin to lead and stop, who waits for what."""

from typing import TYPE_CHECKING, Final

import trio

from broker.hosted_log import MemberLog, Then
from queues.raft.config import Change, ConfChangeError
from queues.raft.core import Raft
from queues.raft.messages import NodeId
from queues.raft.ready import NotLeaderError, Ready
from queues.raft.replica import LEADER

if TYPE_CHECKING:
    from broker.cluster.replication import Replication

# Of one log, proposed and not applied: a queue whose followers lag holds its publishers back.
UNCOMMITTED_BYTES_MAX: Final = 16 * 1024 * 1024
NODE_UNCOMMITTED_BYTES_MAX: Final = 256 * 1024 * 1024  # of all logs together


class Leadership:
    def __init__(self, replication: "Replication") -> None:
        self.uncommitted_bytes = 0  # of all logs
        self._replication = replication
        self._host = replication.host
        self._heavy: set[MemberLog] = set()  # logs with more than UNCOMMITTED_BYTES_MAX

    @property
    def overloaded(self) -> bool:
        return bool(self._heavy) or self.uncommitted_bytes > NODE_UNCOMMITTED_BYTES_MAX

    def propose(self, log: MemberLog) -> None:
        """Ask its machine for what it has to say; the writes join the submit that is being made."""
        raft, machine = log.raft, log.machine
        if raft is None or machine is None or not log.leads:
            return
        while True:
            if log.proposed_bytes > UNCOMMITTED_BYTES_MAX:
                self._heavy.add(log)
            if log in self._heavy or not raft.takes_proposals:
                log.held_back = True
                break
            entry = machine.next_entry()
            if entry is None:
                break
            log.proposed.append(raft.propose(entry)[1])
            log.proposed_bytes += len(entry)
            self.uncommitted_bytes += len(entry)
        self._replication.take_ready(log, trio.current_time())

    def change(self, log: MemberLog, change: Change, then: Then) -> None:
        if log.raft is None:
            then(NotLeaderError(None))
            return
        try:
            _, index = log.raft.propose_conf(change)
        except (NotLeaderError, ConfChangeError) as error:
            then(error)
            return
        log.changes.append((index, then))
        self._replication.touch(log)

    def read_index(self, log: MemberLog, then: Then) -> None:
        if log.raft is None or not log.leads:
            then(NotLeaderError(log.leader if log.leader != self._replication.me else None))
            return
        try:
            log.raft.read_index(then)
        except NotLeaderError as error:  # deposed in this very turn: `on_role` has yet to come
            then(error)
            return
        log.reads.append(then)
        self._replication.touch(log)

    def on_role(self, log: MemberLog, ready: Ready) -> None:
        """The machine leads once all is applied that came before, and stops at once."""
        if log.lead_term:
            self.stand_down(log, ready.leader if ready.leader != self._replication.me else None)
        if ready.role is LEADER:
            log.lead_term = ready.term
        elif ready.leader is not None:
            self._replication.book.heard(log.uid, ready.term, ready.leader)

    def stand_down(self, log: MemberLog, leader: NodeId | None) -> None:
        self._replication.snapshots.stand_down(log)
        self.uncommitted_bytes -= log.proposed_bytes
        term, log.lead_term = log.lead_term, 0
        log.proposed_bytes = 0
        log.proposed.clear()
        log.held_back = False
        self._heavy.discard(log)
        self._host.relieve_if_light()
        error = NotLeaderError(leader)
        waiting = [*log.reads, *[then for _, then in log.reads_due]]
        changes = log.changes
        log.reads, log.reads_due, log.changes = [], [], []
        if log.leads:
            log.leads = False
            if log.machine is not None:
                log.machine.follow()
        if term:
            self._replication.book.i_lead_no_more(log.uid, term)
        for then in waiting:
            then(error)
        for index, then in changes:
            done = log.raft is not None and index <= log.raft.commit  # its own removal, say
            then(None if done else error)

    def applied(self, log: MemberLog) -> None:
        """A slice of its entries has been applied."""
        raft, machine = log.raft, log.machine
        if raft is None or machine is None:
            return
        index = raft.applied_index
        if log.lead_term and not log.leads and self._has_caught_up(log, raft):
            log.leads = True
            machine.lead()
            self._replication.book.i_lead(log.uid, log.lead_term)
            log.changed(urgent=True)
        if log.held_back:
            self.resume(log)
        while log.reads_due and log.reads_due[0][0] <= index:
            log.reads_due.pop(0)[1](None)
        while log.changes and log.changes[0][0] <= index:
            log.changes.pop(0)[1](None)

    def _has_caught_up(self, log: MemberLog, raft: Raft) -> bool:  # noqa: ARG002
        """All that was before is applied. Until its machine leads nothing more is proposed.

        So the log ends with the first entry of this term; or, where a sole voter goes on in its old
        term, with what it had, of which the disk may not say that it is committed.
        """
        return raft.applied_index == raft.log.last

    def resume(self, log: MemberLog) -> None:
        """Ask the machine again that was held back."""
        raft = log.raft
        if log in self._heavy and log.proposed_bytes <= UNCOMMITTED_BYTES_MAX // 2:
            self._heavy.discard(log)
            self._host.relieve_if_light()
        if raft is not None and raft.takes_proposals and log not in self._heavy:
            log.held_back = False
            log.changed(urgent=True)

    def confirmed(self, log: MemberLog, context: object, index: int) -> None:
        then = next((then for then in log.reads if then is context), None)
        if then is None:
            return  # it was told that this node leads no more
        log.reads.remove(then)
        if log.raft is not None and log.raft.applied_index >= index:
            then(None)
        else:
            log.reads_due.append((index, then))
