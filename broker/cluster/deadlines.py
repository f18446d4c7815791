"""When which group wants a tick: one heap and one timer for all, none for idle groups."""

import heapq
import math
from collections.abc import Callable
from itertools import count

import trio

from broker.hosted_log import MemberLog
from broker.timers import Timer, Timers


class Deadlines:
    """Calls back for each log whose deadline has come. Seconds by Trio's clock."""

    def __init__(self, timers: Timers, due: Callable[[MemberLog, float], None]) -> None:
        self._timers = timers
        self._due = due
        self._heap: list[tuple[float, int, MemberLog]] = []
        self._order = count()
        self._timer: Timer | None = None
        self._set_for = math.inf

    def set(self, log: MemberLog, deadline: float | None) -> None:
        """Replaces the one before. An entry in the heap that no longer holds is passed over."""
        log.deadline = deadline
        if deadline is not None:
            heapq.heappush(self._heap, (deadline, next(self._order), log))
            self._arm()

    def _arm(self) -> None:
        first = self._heap[0][0]
        if first < self._set_for:
            if self._timer is not None:
                self._timer.cancel()
            self._set_for = first
            wait_ms = max(math.ceil((first - trio.current_time()) * 1000), 0)
            self._timer = self._timers.call_at(self._timers.now_ms() + wait_ms, self._ring)

    def _ring(self) -> None:
        now = trio.current_time()
        self._timer, self._set_for = None, math.inf
        heap = self._heap
        while heap and heap[0][0] <= now:
            deadline, _, log = heapq.heappop(heap)
            if log.deadline == deadline:
                log.deadline = None
                self._due(log, now)
        if heap:
            self._arm()
