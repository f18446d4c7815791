"""Entries that are no longer in memory, read back off the loop."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.cluster.kinds import Kind
from broker.hosted_log import MemberLog
from queues.raft.core import Raft
from queues.raft.messages import Entry, NodeId
from queues.raft.ready import ReadOp
from queues.storage.errors import CorruptRecordError

if TYPE_CHECKING:
    from broker.cluster.replication import Replication


# At a time for followers on one node, of about a megabyte each: many logs may lag there.
FEEDS_MAX: Final = 4


class DiskReads:
    def __init__(self, replication: "Replication") -> None:
        self._replication = replication
        self._host = replication.host
        self._wishes: dict[NodeId, deque[tuple[MemberLog, Raft, ReadOp]]] = {}
        self._feeding: dict[NodeId, int] = {}

    def feed(self, log: MemberLog, raft: Raft, read: ReadOp) -> None:
        """For a follower that is further behind: when it is its turn, and its node takes more."""
        self._wishes.setdefault(read.peer, deque()).append((log, raft, read))
        self._feed_some(read.peer)

    def go_on(self) -> None:
        """Some node takes more."""
        for node in list(self._wishes):
            self._feed_some(node)

    def node_down(self, node: NodeId) -> None:
        """Leaders ask again once it is back."""
        self._wishes.pop(node, None)

    def _feed_some(self, node: NodeId) -> None:
        wishes = self._wishes.get(node)
        while wishes and self._feeding.get(node, 0) < FEEDS_MAX:
            log, raft, read = wishes[0]
            if self._replication.mail.congested(node, (Kind.RAFT_BULK, log.uid)):
                return
            wishes.popleft()
            if log.raft is raft:
                self._feed(log, raft, read)
        if not wishes:
            self._wishes.pop(node, None)

    def _feed(self, log: MemberLog, raft: Raft, read: ReadOp) -> None:
        node = read.peer
        self._feeding[node] = self._feeding.get(node, 0) + 1

        def fetched(entries: list[Entry]) -> None:
            raft.fetched(node, entries)
            self._replication.touch(log)

        def over() -> None:
            self._feeding[node] -= 1
            self._feed_some(node)

        self.read(log, read.first, read.last, read.bytes_max, fetched, over)

    def read(
        self,
        log: MemberLog,
        first: int,
        last: int,
        bytes_max: int,
        then: Callable[[list[Entry]], None],
        over: Callable[[], None] = lambda: None,
    ) -> None:
        """Read entries in a row off the loop; not called back if the group is not the same then.

        `over` is called in any case, after the turn that the entries have their effect in.
        """
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
            over()

        self._host.start_soon(run)

    def _hand_over(self, entries: list[Entry], then: Callable[[list[Entry]], None]) -> None:
        """To the group or its machine: what is wrong with entries is wrong with the log."""
        try:
            then(entries)
        except Exception as error:  # noqa: BLE001 - told from what is the reader's business
            self._host.broken(error)
