"""When a client must not be read, and how much of it at a time: it is paused by its socket."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.connection.backlogs import Backlogs
    from broker.connection.gate import Gate
    from broker.connection.sender import Sender
    from broker.node import Node

# A peer that takes nothing for this long, with the outbox brimming, is given up.
STALL_TIMEOUT_S: Final = 60.0
# One read is one batch: large enough to spread the cost of a turn of the loop over hundreds of
# messages, small enough that other connections are served within a few milliseconds.
READ_BYTES: Final = 256 * 1024
# What all connections together bring in one pass of the loop: some tens of milliseconds of work,
# and not much memory between one look at it and the next.
PASS_BYTES: Final = 32 * 1024 * 1024
# While publishes have to wait: hundreds of publishers must not put much aside with one read each.
BITE_BYTES: Final = 16 * 1024


class Throttle:
    """Looks at what a client does not take, at what it has sent too early, and at the disk."""

    def __init__(self, node: "Node", sender: "Sender", backlogs: "Backlogs", gate: "Gate") -> None:
        self._node = node
        self._sender = sender
        self._backlogs = backlogs
        self._gate = gate

    @property
    def closed(self) -> bool:
        """The client must not be read now."""
        if self._sender.outbox.brimming or self._backlogs.overfull:
            return True
        return self._gate.publishes and self._outruns_the_disk

    @property
    def _outruns_the_disk(self) -> bool:
        """During an alarm it may be read: its publishes are kept back, and its acks are not."""
        host = self._node.host
        return host is not None and host.overloaded and self._node.blocked is None

    async def wait(self) -> bool:
        """Until it is worth looking again; False if the client took nothing for too long."""
        if self._sender.outbox.brimming:
            return await self._sender.wait_for_relief(STALL_TIMEOUT_S)
        if self._backlogs.overfull:
            await self._backlogs.wait_for_room()
        elif self._node.host is not None:
            await self._node.host.relief()
        return True

    def read_bytes(self) -> int:
        """How much to read at once."""
        node = self._node
        if node.blocked is not None or self._backlogs.size_bytes or self._outruns_the_disk:
            return BITE_BYTES
        return max(BITE_BYTES, min(READ_BYTES, PASS_BYTES // (len(node.connections) or 1)))
