"""One clock and one heap of deadlines for the whole node, instead of a task per timer."""

import heapq
import itertools
import time
from collections.abc import Callable
from typing import Final

import trio

from broker.internal_errors import TIMER, InternalErrors

# Cancelled timers are taken out in bulk once there are so many of them.
CANCELLED_MAX: Final = 1024


class Timer:
    """A deadline. Once cancelled it holds on to nothing."""

    __slots__ = ("_timers", "callback")

    def __init__(self, timers: "Timers", callback: Callable[[], None]) -> None:
        self._timers = timers
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._timers.cancelled_one()


class Timers:
    """Calls back at given times (milliseconds since the epoch). Callbacks are plain functions."""

    def __init__(self, errors: InternalErrors | None = None) -> None:
        self.errors = errors or InternalErrors()
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = itertools.count()
        self._cancelled = 0
        self._changed = trio.Event()
        self._epoch_ms: float | None = None

    def now_ms(self) -> int:
        """Wall-clock time that does not jump: taken once, then carried on by Trio's clock."""
        if self._epoch_ms is None:
            self._epoch_ms = time.time() * 1000 - trio.current_time() * 1000
        return int(self._epoch_ms + trio.current_time() * 1000)

    def call_at(self, when_ms: int, callback: Callable[[], None]) -> Timer:
        timer = Timer(self, callback)
        heapq.heappush(self._heap, (when_ms, next(self._order), timer))
        if self._heap[0][0] == when_ms:
            self._changed.set()
        return timer

    def cancelled_one(self) -> None:
        self._cancelled += 1
        if self._cancelled >= CANCELLED_MAX and self._cancelled * 2 >= len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - what belongs to one must not end all
            name = getattr(callback, "__qualname__", repr(callback))
            self.errors.note(TIMER, error, callback=name)

    async def run(self, after: Callable[[], None]) -> None:
        """Serve deadlines for ever; `after` runs once behind each burst of callbacks.

        One that fails does not keep the others waiting.
        """
        while True:
            now = self.now_ms()
            due = False
            while self._heap and self._heap[0][0] <= now:
                timer = heapq.heappop(self._heap)[2]
                callback, timer.callback = timer.callback, None
                if callback is None:
                    self._cancelled -= 1
                else:
                    due = True
                    self._call(callback)
            if due:
                after()
            self._changed = trio.Event()
            wait_s = (self._heap[0][0] - now + 1) / 1000 if self._heap else float("inf")
            with trio.move_on_after(wait_s):
                await self._changed.wait()
