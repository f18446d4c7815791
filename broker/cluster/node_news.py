"""That a node is gone or back, told to the logs that it has to do with: a few in each turn."""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import trio

from queues.raft.messages import NodeId

if TYPE_CHECKING:
    from broker.cluster.replication import Replication

SLICE_LOGS: Final = 256  # in one turn: about a millisecond


class NodeNews:
    """What there is to tell, in the order in which it happened."""

    def __init__(self, replication: "Replication") -> None:
        self._replication = replication
        self._news: deque[Iterator[None]] = deque()

    def down(self, node: NodeId) -> None:
        self._news.append(self._tell_down(node))

    def up(self, node: NodeId, *, restarted: bool) -> None:
        self._news.append(self._tell_up(node, restarted=restarted))

    def tell_some(self) -> bool:
        """Whether there is more."""
        news = self._news
        while news:
            for _ in news[0]:
                return True
            news.popleft()
        return False

    def _tell_down(self, node: NodeId) -> Iterator[None]:
        replication = self._replication
        for count, log in enumerate(list(replication.logs.values()), 1):
            raft = log.raft
            if raft is not None:
                now = trio.current_time()
                raft.peer_down(node, now)
                # It may be back by now, and have said that it leads this one still.
                if raft.leader == node and replication.book.leader_of(log.uid) != node:
                    raft.suspect_leader(now)
                replication.touch(log)
            if count % SLICE_LOGS == 0:
                yield

    def _tell_up(self, node: NodeId, *, restarted: bool) -> Iterator[None]:
        replication = self._replication
        for count, log in enumerate(list(replication.logs.values()), 1):
            raft = log.raft
            if raft is not None:
                now = trio.current_time()
                raft.peer_up(node, now)
                if restarted and raft.leader == node:
                    raft.suspect_leader(now)
                replication.touch(log)
            if count % SLICE_LOGS == 0:
                yield
