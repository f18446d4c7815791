"""Messages about queues on their way between nodes: what is too long for one goes in parts."""

from collections.abc import Sequence
from typing import Final

from broker.cluster.kinds import Kind
from broker.cluster.mail import Mail
from broker.cluster.parcels import PIECE_BYTES, cut
from broker.cluster.queue_wire import HEAD, Op, head
from queues.raft.messages import NodeId

# In one message: longer ones are cut, and passed by others. A link takes some times as much.
PART_BYTES: Final = 2 * 1024 * 1024
# What another node may have sent of a message that has not come to its end.
PARTS_BYTES_MAX: Final = 1024 * 1024 * 1024


def post(
    mail: Mail,
    node: NodeId,
    about: tuple[Op, bytes, int],
    pieces: Sequence[bytes],
    size_bytes: int = 0,
) -> None:
    """Send one, of about so many bytes if there may be many of them. In order for each queue."""
    _, uid, attachment = about
    key = (Kind.QUEUE, uid)
    if size_bytes > PART_BYTES:
        for some, is_last in cut((head(*about), *pieces), PIECE_BYTES):
            start = head(Op.LAST if is_last else Op.PART, uid, attachment)
            mail.send_large(node, key, start, *some)
    elif mail.carries(node, key):
        mail.send_large(node, key, head(*about), *pieces)
    else:
        mail.send(node, Kind.QUEUE, head(*about), *pieces)


class Parts:
    """Parts that came, by the node that they came from."""

    __slots__ = ("_parts", "_sizes")

    def __init__(self) -> None:
        self._parts: dict[NodeId, list[bytes]] = {}
        self._sizes: dict[NodeId, int] = {}

    def add(self, node: NodeId, op: Op, body: bytes) -> bytes | None:
        """The message, when this was its last part. ValueError if it is too long."""
        parts = self._parts.setdefault(node, [])
        parts.append(body[HEAD.size :])
        size = self._sizes[node] = self._sizes.get(node, 0) + len(body)
        if size > PARTS_BYTES_MAX:
            raise ValueError(f"a message of more than {PARTS_BYTES_MAX} bytes about a queue")
        if op == Op.PART:
            return None
        self.forget(node)
        return b"".join(parts)

    def forget(self, node: NodeId) -> None:
        """The link is down: no more will come of what was under way."""
        self._parts.pop(node, None)
        self._sizes.pop(node, None)
