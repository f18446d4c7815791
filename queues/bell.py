"""One timer that can be set earlier, put off and stopped."""

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A callback to come."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The time, and timers; milliseconds since the epoch."""

    def now_ms(self) -> int: ...
    def call_at(self, when_ms: int, callback: Callable[[], None]) -> Timer: ...


class Bell:
    """Rings once, at the earliest time that it was set for since it last rang or was stopped."""

    __slots__ = ("_clock", "_due_ms", "_on_ring", "_timer")

    def __init__(self, clock: Clock, on_ring: Callable[[], None]) -> None:
        self._clock = clock
        self._on_ring = on_ring
        self._due_ms: int | None = None
        self._timer: Timer | None = None

    def ring_at(self, when_ms: int | None) -> None:
        """Ring then, if not earlier; None asks for nothing."""
        if when_ms is not None and (self._due_ms is None or when_ms < self._due_ms):
            self.stop()
            self._due_ms = when_ms
            self._timer = self._clock.call_at(when_ms, self._ring)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_ms = self._timer = None

    def _ring(self) -> None:
        self._due_ms = self._timer = None
        self._on_ring()
