"""Bugs that replicated logs could have; storms must notice each of them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from broker.cluster import recovering
from broker.cluster.applying import Applier
from broker.cluster.incoming import Incoming
from broker.cluster.leadership import Leadership
from broker.cluster.outgoing import Outgoing
from broker.cluster.snapshots import Snapshots
from broker.cluster.transfers import NUMBER, From
from broker.hosted_log import MemberLog
from broker.log_host import LogHost
from queues.raft.messages import Entry, Message
from queues.raft.replica import Replica

Mutant = Callable[[], AbstractContextManager[object]]


def acknowledged_before_it_is_durable() -> AbstractContextManager[object]:
    def send(self: Replica, message: Message) -> None:
        self._msgs.append(message)
        self._dirty = True

    return patch.object(Replica, "_send", send)


def uncommitted_entries_applied_after_a_restart() -> AbstractContextManager[object]:
    return patch.object(
        recovering, "_known_committed", lambda view, offset: max(offset, view.last_index)
    )


def snapshots_without_the_kept_entries() -> AbstractContextManager[object]:
    async def send_entries(self: Outgoing, gid: int, indexes: list[int]) -> bool:
        return True

    return patch.object(Outgoing, "_send_entries", send_entries)


def snapshots_without_what_the_member_has_itself() -> AbstractContextManager[object]:
    async def stage_own(self: Incoming) -> None:
        assert self._log.raft is not None
        self.gid = self._host.batch.create_group(b"staged elsewhere")
        await self._host.written()
        self._last = self._log.raft.applied_index
        self._say(From.WANT, NUMBER.pack(self._last))

    return patch.object(Incoming, "_stage_own", stage_own)


@contextmanager
def proposals_of_an_earlier_term_taken_for_own_ones() -> Iterator[None]:
    real = Applier._apply

    def apply(self: Applier, log: MemberLog, entries: list[Entry]) -> None:
        of_any_term = [Entry(e.index, log.lead_term, e.payload) for e in entries]
        real(self, log, of_any_term)

    stand_down = Leadership.stand_down

    def forgetful(self: Leadership, log: MemberLog, leader: Any) -> None:
        proposed = list(log.proposed)
        stand_down(self, log, leader)
        log.proposed.extend(proposed)

    with (
        patch.object(Applier, "_apply", apply),
        patch.object(Leadership, "stand_down", forgetful),
    ):
        yield


def leading_before_all_is_applied() -> AbstractContextManager[object]:
    return patch.object(Leadership, "_has_caught_up", lambda self, log, raft: True)


def the_old_log_kept_beside_a_snapshot() -> AbstractContextManager[object]:
    """The state is put into the group as it is, whose entries may be void."""
    real = Snapshots.install

    def install(self: Snapshots, log: MemberLog, raft: Any, snapshot: Any) -> None:
        old, coming = log.gid, self._heeded[log.uid]
        assert old is not None
        batch, records = self._replication.host.batch, len(self._replication.host.batch.records)
        real(self, log, raft, snapshot)
        written = batch.records[records:-2]
        batch.records[records:] = [(kind, old, *rest) for kind, _, *rest in written]
        assert coming.gid is not None
        log.gid = old
        self._replication.host.delete_group(coming.gid)

    return patch.object(Snapshots, "install", install)


def written_without_waiting_for_the_disk() -> AbstractContextManager[object]:
    real = LogHost.write

    def write(self: LogHost, log: Any, write: Any, *, commit: int = 0) -> None:
        real(self, log, write, commit=commit)
        self._filling.writes.pop()
        log.raft.persisted(write.wseq)
        log.touched = False
        log._replication.touch(log)

    return patch.object(LogHost, "write", write)


MUTANTS: list[Mutant] = [
    acknowledged_before_it_is_durable,
    uncommitted_entries_applied_after_a_restart,
    snapshots_without_the_kept_entries,
    snapshots_without_what_the_member_has_itself,
    proposals_of_an_earlier_term_taken_for_own_ones,
    leading_before_all_is_applied,
    the_old_log_kept_beside_a_snapshot,
    written_without_waiting_for_the_disk,
]
