"""What is asked of the links to other nodes by those who only talk; see peers.Peers."""

from typing import Protocol, TypeAlias

from broker.cluster.kinds import Kind
from queues.raft.messages import NodeId

Piece: TypeAlias = bytes | memoryview
# What messages belong to whose order counts: of that kind, those of a log or queue (its uid), or
# all of them (no bytes).
Key: TypeAlias = tuple[Kind, bytes]


class Mail(Protocol):
    """Messages to other nodes; they go out at the end of the turn, and may be lost."""

    def send(self, node: NodeId, kind: Kind, *pieces: Piece) -> None: ...

    def send_large(self, node: NodeId, key: Key, *pieces: Piece) -> None:
        """Part of something large: what is sent meanwhile passes it.

        Whatever must not pass it goes the same way for as long as the node `carries` the key.
        """
        ...

    def carries(self, node: NodeId, key: Key) -> bool:
        """Whether something large of that key has still to go out."""
        ...

    def is_up(self, node: NodeId) -> bool: ...
    def up(self) -> set[NodeId]: ...

    def congested(self, node: NodeId, key: Key) -> bool:
        """Whether enough waits for it, be it of that key or of all."""
        ...
