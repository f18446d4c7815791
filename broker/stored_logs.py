"""What the disk has of a node's logs, for those who bring back what lives on them."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

import trio

from broker.hosted_log import HostedLog
from queues.commands import ranges_of
from queues.raft.config import Config
from queues.raft.core import Raft
from queues.raft.log import RaftLog
from queues.storage.errors import MissingEntryError
from queues.storage.log_store import GroupView, LogStore

REPLAY_BYTES: Final = 8 * 1024 * 1024  # read at once while recovering
NODE: Final = 1  # this node's number within groups of its own
ALONE: Final = Config((NODE,))


class StoredLogs:
    """Logs of this node alone; see broker.cluster.recovering for others."""

    store: LogStore  # set once it is open

    def damage_of(self, log: HostedLog) -> str | None:
        """Why a log must not be served, if so."""
        if log.gid is None:
            return None
        reason = self.store.group(log.gid).damaged
        if reason is None and (gap := self.store.gap(log.gid)) is not None:
            return self._damage(log.gid, MissingEntryError(log.gid, gap))
        return reason

    def lacks(self, log: HostedLog, indexes: Sequence[int]) -> str | None:
        """Why a log must not be served of which these entries are needed, if so.

        All that the disk has of it is applied, so that each of them has to be there.
        """
        if log.gid is None:
            return None
        missing = self.store.missing(log.gid, _as_pairs(indexes))
        if missing is None:
            return None
        return self._damage(log.gid, MissingEntryError(log.gid, missing))

    def _damage(self, gid: int, error: MissingEntryError) -> str:
        self.store.damage(gid, str(error))
        return str(error)

    def checkpoint_of(self, log: HostedLog) -> tuple[int, bytes] | None:
        if log.gid is None:
            return None
        snapshot = self.store.group(log.gid).snapshot
        state = self.store.read_snapshot(log.gid)
        return None if snapshot is None or state is None else (snapshot.index, state)

    def replay(self, log: HostedLog) -> Iterator[tuple[int, bytes]]:
        """Index and payload of each entry above the checkpoint, without those of the log itself.

        Messages are numbered by the entries before them: where one is missing, what follows cannot
        be understood. MissingEntryError then; `damage_of` tells beforehand.
        """
        if log.gid is None:
            return
        view = self.store.group(log.gid)
        first = view.snapshot.index + 1 if view.snapshot is not None else 1
        while first <= view.last_index:
            entries = self.store.read(log.gid, first, view.last_index, bytes_max=REPLAY_BYTES)
            for entry in entries:
                if entry.index != first:
                    raise MissingEntryError(log.gid, first)
                if entry.payload:
                    yield entry.index, entry.payload
                first += 1

    def entries(self, log: HostedLog, indexes: list[int]) -> Iterator[tuple[int, bytes]]:
        """Entries under the checkpoint, while recovering; those that are gone are left out."""
        assert log.gid is not None
        while indexes:
            found = self.store.read_indexes(log.gid, indexes, bytes_max=REPLAY_BYTES)
            if not found:
                return
            yield from ((entry.index, entry.payload) for entry in found)
            indexes = [index for index in indexes if index > found[-1].index]

    def retain(self, log: HostedLog, indexes: Sequence[int]) -> None:
        """Keep these entries under the checkpoint, and no others there."""
        if log.gid is None:
            return
        snapshot = self.store.group(log.gid).snapshot
        if snapshot is not None:
            kept = [index for index in indexes if index <= snapshot.index]
            self.store.retain(log.gid, _as_pairs(kept), upto=snapshot.index)

    def lone_group(self, view: GroupView | None, random: Random) -> Raft:
        """The group of a log as the disk has it: all that is there is committed; or a new one."""
        now = trio.current_time()
        if view is None:
            return Raft(NODE, ALONE, now, random)
        offset, term = (view.snapshot.index, view.snapshot.term) if view.snapshot else (0, 0)
        above = [entry for entry in self.store.entries(view.gid) if entry.index > offset]
        runs = [
            (entry.index, entry.term)
            for before, entry in zip([None, *above], above, strict=False)
            if before is None or before.term != entry.term
        ]
        last = above[-1].index if above else offset
        if len(above) != last - offset:
            raise MissingEntryError(view.gid, self.store.gap(view.gid) or offset + 1)
        return Raft(
            NODE,
            ALONE,
            now,
            random,
            hard=(view.term, view.vote),
            log=RaftLog(offset, term, runs, last),
            applied=last,
        )


def _as_pairs(indexes: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending indexes as ranges of first and last."""
    return [(first, first + count - 1) for first, count in ranges_of(indexes)]
