"""What is asked of the links to other nodes by those who only talk; see peers.Peers."""

from typing import Protocol

from broker.cluster.kinds import Kind
from queues.raft.messages import NodeId


class Mail(Protocol):
    """Messages to other nodes; they go out at the end of the turn, and may be lost."""

    def send(self, node: NodeId, kind: Kind, *pieces: bytes) -> None: ...
    def is_up(self, node: NodeId) -> bool: ...
    def up(self) -> set[NodeId]: ...
    def congested(self, node: NodeId) -> bool: ...
