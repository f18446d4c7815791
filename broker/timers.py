"""One clock and one heap of deadlines for the whole node, instead of a task per timer."""

import heapq
import itertools
import time
from collections.abc import Callable

import trio


class Timers:
    """Calls back at given times (milliseconds since the epoch). Callbacks are plain functions."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._changed = trio.Event()
        self._epoch_ms: float | None = None

    def now_ms(self) -> int:
        """Wall-clock time that does not jump: taken once, then carried on by Trio's clock."""
        if self._epoch_ms is None:
            self._epoch_ms = time.time() * 1000 - trio.current_time() * 1000
        return int(self._epoch_ms + trio.current_time() * 1000)

    def call_at(self, when_ms: int, callback: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (when_ms, next(self._order), callback))
        if self._heap[0][0] == when_ms:
            self._changed.set()

    async def run(self, after: Callable[[], None]) -> None:
        """Serve deadlines for ever; `after` runs once behind each burst of callbacks."""
        while True:
            now = self.now_ms()
            due = False
            while self._heap and self._heap[0][0] <= now:
                due = True
                heapq.heappop(self._heap)[2]()
            if due:
                after()
            self._changed = trio.Event()
            wait_s = (self._heap[0][0] - now + 1) / 1000 if self._heap else float("inf")
            with trio.move_on_after(wait_s):
                await self._changed.wait()
