"""Heartbeats both ways, on the node's timers."""

from typing import Protocol

from broker.protocol.constants import HEARTBEAT_FRAME
from broker.timers import Timers
from flow_control.outbox import Outbox

TICKS_TILL_LOST = 4  # of half an interval each: two heartbeats missed


class Watched(Protocol):
    """What heartbeats know of a connection."""

    outbox: Outbox
    heard: bool
    listening: bool  # what the client sends is being read

    def mark_dirty(self) -> None: ...
    def lost(self, reason: str) -> None: ...
    def failed(self, error: Exception) -> None:
        """An internal error was met that is its own business."""


class Heartbeat:
    """Looks at a connection every half interval, and sends a heartbeat as often.

    It does so on busy connections too: one that was skipped because something went out just before
    would leave the client a whole interval, and any delay on top, without a byte.
    It may outlive the connection by a tick, holding nothing.
    """

    __slots__ = ("_connection", "_half_ms", "_silent", "_timers")

    def __init__(self, connection: Watched, interval_s: int, timers: Timers) -> None:
        self._connection: Watched | None = connection
        self._half_ms = interval_s * 500
        self._timers = timers
        self._silent = 0
        timers.call_at(timers.now_ms() + self._half_ms, self._tick)

    def stop(self) -> None:
        self._connection = None

    def _tick(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            self._look(connection)
        except Exception as error:  # noqa: BLE001 - it must not end others' timers
            connection.failed(error)

    def _look(self, connection: Watched) -> None:
        heard = connection.heard or not connection.listening
        self._silent = 0 if heard else self._silent + 1
        connection.heard = False
        if self._silent >= TICKS_TILL_LOST:
            connection.lost("missed heartbeats from the client")
            return
        if not connection.outbox.size:  # else bytes are on their way to the client anyway
            connection.outbox.write(HEARTBEAT_FRAME)
            connection.mark_dirty()
        self._timers.call_at(self._timers.now_ms() + self._half_ms, self._tick)
