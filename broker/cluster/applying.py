"""Committed entries to their machines, in slices: no turn is long because much was committed."""

from collections import deque
from typing import TYPE_CHECKING, Final

from broker.hosted_log import MemberLog
from queues.raft.config import CONFIG_MARK
from queues.raft.messages import Entry

if TYPE_CHECKING:
    from broker.cluster.replication import Replication

# In one turn, of all logs together: some ten milliseconds for the smallest of messages.
SLICE_ENTRIES: Final = 512
SLICE_BYTES: Final = 1024 * 1024
READ_BYTES: Final = 1024 * 1024  # read back at once, of what is no longer in memory


class Applier:
    """Logs with something to apply stand in line."""

    def __init__(self, replication: "Replication") -> None:
        self._replication = replication
        self._line: deque[MemberLog] = deque()

    def want(self, log: MemberLog) -> None:
        if not log.applying:
            log.applying = True
            self._line.append(log)

    def some(self) -> bool:
        """Apply a slice; whether there is more."""
        line = self._line
        entries_left, bytes_left = SLICE_ENTRIES, SLICE_BYTES
        while line and entries_left > 0 and bytes_left > 0:
            log = line.popleft()
            raft = log.raft
            log.applying = False
            if raft is None or raft.applied_index >= log.apply_to:
                continue
            first = raft.applied_index + 1
            last = min(log.apply_to, first + entries_left - 1)
            entries = raft.entries(first, last)
            if entries is None:
                log.applying = True
                self._read(log, first, last)
                continue
            entries = _up_to(entries, bytes_left)
            entries_left -= len(entries)
            bytes_left -= sum([len(entry.payload) for entry in entries])
            self._apply(log, entries)
            if log.raft is not None and log.raft.applied_index < log.apply_to:
                self.want(log)
        return bool(line)

    def _read(self, log: MemberLog, first: int, last: int) -> None:
        """After a restart only the disk has them."""
        raft = log.raft
        assert raft is not None
        last = min(last, raft.log.held_from - 1)

        def fetched(entries: list[Entry]) -> None:
            log.applying = False
            if not entries:
                self._replication.damage(log, f"entry {first} is missing")
            elif entries[0].index == raft.applied_index + 1:
                self._apply(log, entries)
            if log.raft is not None and raft.applied_index < log.apply_to:
                self.want(log)

        self._replication.disk_reads.read(log, first, last, READ_BYTES, fetched)

    def _apply(self, log: MemberLog, entries: list[Entry]) -> None:
        """Its own proposals of this term, and no others, are answered as such."""
        proposed, lead_term = log.proposed, log.lead_term
        raft, machine = log.raft, log.machine
        assert raft is not None
        for entry in entries:
            payload = entry.payload
            if not payload or payload.startswith(CONFIG_MARK):
                continue  # the group's own
            if machine is None:
                return  # a confirm led to its deletion
            if proposed and proposed[0] == entry.index and entry.term == lead_term:
                proposed.popleft()
                log.proposed_bytes -= len(payload)
                self._replication.leadership.uncommitted_bytes -= len(payload)
                machine.applied(entry.index)
            else:
                machine.apply(entry.index, payload)
            machine = log.machine
        if log.raft is raft and log.gid is not None:
            raft.applied(entries[-1].index)
            self._replication.host.store.committed(log.gid, entries[-1].index)
            self._replication.leadership.applied(log)


def _up_to(entries: list[Entry], bytes_max: int) -> list[Entry]:
    """As many as fit, but at least one."""
    size = 0
    for count, entry in enumerate(entries):
        size += len(entry.payload)
        if size > bytes_max and count:
            return entries[:count]
    return entries
