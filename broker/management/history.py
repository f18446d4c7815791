"""Samples of counters and lengths, taken at fixed ticks and kept for a while.

Only changes are kept: a tick without a sample has the values of the one before it. So what is idle
costs nothing, neither memory nor time.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TICK_MS: Final = 5000  # RabbitMQ's interval too


class Series:
    """Of one thing: rows of (tick, values…), in order of ticks."""

    __slots__ = ("_numbers", "_width")

    def __init__(self, fields: int) -> None:
        self._width = fields + 1
        self._numbers = array("q")

    def __len__(self) -> int:
        return len(self._numbers) // self._width

    @property
    def last_tick(self) -> int:
        return self._numbers[-self._width] if self._numbers else 0

    def add(self, tick: int, values: Sequence[int], *, most: int) -> None:
        """Note the values at a tick; at most so many rows are kept."""
        width = self._width
        if self._numbers and self._numbers[-width + 1 :] == array("q", values):
            return
        self._numbers.append(tick)
        self._numbers.extend(values)
        surplus = len(self) - most
        if surplus > 0:
            del self._numbers[: surplus * width]

    def keep_last(self) -> None:
        """Forget all but the last row."""
        del self._numbers[: -self._width]

    def at(self, ticks: Iterable[int]) -> list[Sequence[int] | None]:
        """The values at each of some ticks, which descend; None before the first sample."""
        found: list[Sequence[int] | None] = []
        width, place = self._width, len(self._numbers)
        for tick in ticks:
            while place and self._numbers[place - width] > tick:
                place -= width
            row = self._numbers[place - width + 1 : place] if place else None
            found.append(row)
        return found


class Levels:
    """The same values at several intervals: the coarser, the longer they are kept."""

    # Ticks between samples, and how many samples: as RabbitMQ keeps them, up to a day.
    STEPS: Final = ((1, 121), (12, 61), (120, 49), (360, 48))

    def __init__(self, fields: int) -> None:
        self._series = [Series(fields) for _ in self.STEPS]

    def add(self, tick: int, values: Sequence[int]) -> None:
        for series, (step, most) in zip(self._series, self.STEPS, strict=True):
            if not tick % step:
                series.add(tick, values, most=most)

    def for_age(self, age_ticks: int) -> Series:
        """The finest that goes back so far."""
        for series, (step, most) in zip(self._series, self.STEPS, strict=True):
            if step * most >= age_ticks:
                return series
        return self._series[-1]
