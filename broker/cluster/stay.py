"""Where a front's leader is at present, and the way there."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.cluster.mail import Mail
from broker.cluster.post import post
from broker.cluster.queue_wire import Op

if TYPE_CHECKING:
    from broker.cluster.desk import Desk
    from queues.queue import Queue
    from queues.raft.messages import NodeId


class Stay:
    """With a leader on this node there are `desk` and `queue`, with one elsewhere `leader`."""

    __slots__ = ("_mail", "attachment", "changed", "desk", "leader", "queue", "term", "uid")

    def __init__(self, uid: bytes, mail: Mail, changed: Callable[[], None]) -> None:
        self.uid = uid
        self.changed = changed  # there is something to be said at the end of the turn
        self.desk: Desk | None = None
        self.queue: Queue | None = None
        self.leader: NodeId | None = None
        self.term = 0
        self.attachment = 0  # the number of stays with leaders elsewhere
        self._mail = mail

    def send(self, op: Op, *pieces: bytes, size_bytes: int = 0) -> None:
        """About so many bytes, where there may be many of them."""
        assert self.leader is not None
        post(self._mail, self.leader, (op, self.uid, self.attachment), pieces, size_bytes)
