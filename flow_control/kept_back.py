"""What publishers sent too early: how much of it a node keeps in memory before it stops reading.

Not to read a client is the last resort, as its acks are then not read either. So each connection
may keep back a little whatever the others do, more while the node has room, and never more than a
limit of its own.
"""

from collections.abc import Callable
from typing import Final

# More than a client can have on its way when it is told to stop: the buffers of two sockets, which
# with Linux's defaults grow to 10 MiB. One that stops then goes on acking.
CONNECTION_BYTES_MAX: Final = 16 * 1024 * 1024
# Whatever the others keep back: a client that publishes little goes on acking during an alarm.
# Small beside what a connection costs anyway.
CONNECTION_BYTES_MIN: Final = 16 * 1024
# Two greedy publishers, or two thousand modest ones: little where memory is what is short.
NODE_BYTES_MAX: Final = 32 * 1024 * 1024


class KeptBack:
    """Bytes that all connections of a node keep back."""

    __slots__ = ("_waiting", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int = NODE_BYTES_MAX) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def exhausted(self) -> bool:
        return self.used_bytes >= self.limit_bytes

    def charge(self, size_bytes: int) -> None:
        """So much more is kept back or, negative, so much less."""
        self.used_bytes += size_bytes
        assert self.used_bytes >= 0
        if self._waiting and not self.exhausted:
            waiting, self._waiting = self._waiting, {}
            for wake in waiting:
                wake()

    def call_when_eased(self, wake: Callable[[], None]) -> None:
        self._waiting[wake] = None

    def forget(self, wake: Callable[[], None]) -> None:
        self._waiting.pop(wake, None)


class Share:
    """What one connection keeps back."""

    __slots__ = ("_node", "used_bytes")

    def __init__(self, node: KeptBack) -> None:
        self._node = node
        self.used_bytes = 0

    def charge(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes
        assert self.used_bytes >= 0
        self._node.charge(size_bytes)

    @property
    def exhausted(self) -> bool:
        """So much is kept back that its client should not be read."""
        if self.used_bytes < CONNECTION_BYTES_MIN:
            return False
        return self.used_bytes >= CONNECTION_BYTES_MAX or self._node.exhausted
