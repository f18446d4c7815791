"""What a channel sees of its connection."""

from typing import Protocol

from broker.auth import User
from broker.vhost import VHost
from flow_control.outbox import Outbox


class Link(Protocol):
    """The connection, as far as channels care. It is also the owner of exclusive queues."""

    name: str
    user: User
    vhost: VHost
    outbox: Outbox
    frame_max: int
    capabilities: frozenset[str]

    def mark_dirty(self) -> None:
        """Something was written to the outbox outside of the connection's own reading."""
