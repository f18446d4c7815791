"""What a channel sees of its connection."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from broker.protocol.frames import Batch
from broker.security.user import User
from broker.vhost import VHost
from flow_control.outbox import Outbox

if TYPE_CHECKING:
    from broker.channel.channel import Channel


class Link(Protocol):
    """The connection, as far as channels care. It is also the owner of exclusive queues."""

    name: str
    user: User
    vhost: VHost
    outbox: Outbox
    frame_max: int
    unacked_max: int
    capabilities: frozenset[str]

    def resume(self, channel: "Channel", action: Callable[[], None]) -> None:
        """A channel that waited acts, then handles what came meanwhile."""

    def keep_first(self, channel: "Channel", batch: Batch) -> None:
        """The rest of a batch has to wait until its channel is resumed."""

    def mark_dirty(self) -> None:
        """Something was written to the outbox outside of the connection's own reading."""
