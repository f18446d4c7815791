"""The limits of a query's next micro-batch, which may follow from how long the last one took.

A query plans a batch when the one before it is done: the time between is what a batch takes.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from spark import intake
from spark.options import Limits
from spark.places import Offsets


class Pace:
    def __init__(self, limits: Limits, now_s: Callable[[], float] = time.monotonic) -> None:
        self._given = limits
        self._now_s = now_s
        self._intake: intake.Intake | None = None
        if limits.adaptive is not None:
            self._intake = intake.first(limits.adaptive)
        self._under_way: tuple[Offsets, int, float] | None = None  # where to, how many, since when

    @property
    def limits(self) -> Limits:
        """Of the next batch."""
        if self._intake is None:
            return self._given
        return replace(self._given, max_rows=self._intake.limit)

    def planned(self, end: Offsets, rows: int) -> None:
        """A batch of so many rows begins."""
        if self._intake is not None and rows:
            self._under_way = (end, rows, self._now_s())

    def reached(self, end: Offsets) -> None:
        """The query is there and plans on."""
        if self._intake is None or self._under_way is None:
            return
        adaptive = self._given.adaptive
        assert adaptive is not None
        (planned, rows, since_s), self._under_way = self._under_way, None
        if planned == end:
            took_ms = (self._now_s() - since_s) * 1000
            self._intake = intake.after(self._intake, rows, took_ms, adaptive)
