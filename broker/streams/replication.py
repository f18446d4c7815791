"""Partitions whose logs other nodes have too: the cluster as streams see it, and who leads."""

from collections.abc import Callable, Iterable
from typing import Protocol

from queues.live_log import Log
from queues.stream.forwarding import encode_ask_end, encode_say, read_end, said_then
from queues.stream.outgoing import Forwarder, Outgoing
from queues.stream.partition import StreamPartition
from queues.stream.staged_rows import Lost, Then
from queues.stream.stream import Stream


class Replication(Forwarder, Protocol):
    """The cluster, as its streams see it."""

    node: int
    boot: int

    def join(
        self, stream: Stream, number: int, uid: bytes, make: Callable[[Log], StreamPartition]
    ) -> None:
        """Put a partition on its log (LogHost.join), as this node's member of it."""
        ...

    def entries(self, log: Log, indexes: list[int]) -> Iterable[tuple[int, bytes]]:
        """Entries under the checkpoint; those that are gone are left out."""
        ...

    def leader_of(self, uid: bytes) -> int | None: ...
    def watch(self, uid: bytes, watcher: Callable[[int | None], None]) -> None: ...
    def unwatch(self, uid: bytes, watcher: Callable[[int | None], None]) -> None: ...

    def forget(self, uid: bytes) -> None:
        """The stream is deleted."""
        ...


class Led:
    """A partition that may lead elsewhere, and what this node publishes to it."""

    def __init__(
        self, replication: Replication, uid: bytes, partition: StreamPartition, outgoing: Outgoing
    ) -> None:
        self.uid = uid
        self.partition = partition
        self.outgoing = outgoing
        self._replication = replication
        partition.elsewhere = self._say
        partition.ask_end = self._ask_end
        replication.watch(uid, self._led)
        self._led(replication.leader_of(uid))

    def _led(self, leader: int | None) -> None:
        is_here = leader == self._replication.node
        self.outgoing.leader_changed(leader, self.partition if is_here else None)

    def _say(self, entry: bytes, then: Then) -> None:
        leader = self._replication.leader_of(self.uid)
        if leader is None or leader == self._replication.node:
            then(Lost.LOST)
        else:
            self._replication.forward(self.uid, leader, encode_say(entry), said_then(then))

    def _ask_end(self, then: Callable[[int | None], None]) -> None:
        leader = self._replication.leader_of(self.uid)
        if leader is None or leader == self._replication.node:
            then(None)
        else:
            self._replication.forward(
                self.uid, leader, encode_ask_end(), lambda answer: then(read_end(answer))
            )

    def close(self) -> None:
        self._replication.unwatch(self.uid, self._led)
        self._replication.forget(self.uid)
        self.outgoing.close()
