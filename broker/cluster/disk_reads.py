"""Entries that are no longer in memory, read back off the loop."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.hosted_log import MemberLog
from queues.raft.core import Raft
from queues.raft.messages import Entry
from queues.raft.ready import ReadOp
from queues.storage.errors import CorruptRecordError

if TYPE_CHECKING:
    from broker.cluster.replication import Replication


class DiskReads:
    def __init__(self, replication: "Replication") -> None:
        self._replication = replication
        self._host = replication.host

    def feed(self, log: MemberLog, raft: Raft, read: ReadOp) -> None:
        """For a follower that is further behind."""

        def fetched(entries: list[Entry]) -> None:
            raft.fetched(read.peer, entries)
            self._replication.touch(log)

        self.read(log, read.first, read.last, read.bytes_max, fetched)

    def read(
        self,
        log: MemberLog,
        first: int,
        last: int,
        bytes_max: int,
        then: Callable[[list[Entry]], None],
    ) -> None:
        """Read entries in a row off the loop; not called back if the group is not the same then."""
        gid, raft, store = log.gid, log.raft, self._host.store
        assert gid is not None

        def fetch() -> list[Entry]:
            found = store.read(gid, first, last, bytes_max=bytes_max)
            return [
                Entry(entry.index, entry.term, entry.payload)
                for place, entry in enumerate(found)
                if entry.index == first + place
            ]

        async def run() -> None:
            try:
                entries = await self._host.off_loop(fetch)
            except CorruptRecordError as error:
                self._replication.damage(log, str(error))
            except OSError as error:
                self._host.fail(error)
            except KeyError as error:
                if log.gid == gid:  # else it was deleted or replaced meanwhile
                    self._host.broken(error)
            else:
                if log.gid == gid and log.raft is raft:
                    self._hand_over(entries, then)
            self._host.end_turn()

        self._host.start_soon(run)

    def _hand_over(self, entries: list[Entry], then: Callable[[list[Entry]], None]) -> None:
        """To the group or its machine: what is wrong with entries is wrong with the log."""
        try:
            then(entries)
        except Exception as error:  # noqa: BLE001 - told from what is the reader's business
            self._host.broken(error)
