"""How many records a micro-batch may have, so that it takes about as long as it should.

What is measured is the time from the planning of a batch to that of the next one: work, and the
wait for the trigger. A batch that was full and quick lets the next one have more, up to twice as
much; one that was slow lets it have less, down to a quarter: a slow or failing sink slows intake,
and it recovers in a few batches. A trigger that is rarer than the target would make all batches
slow: where another number of records took exactly the same time, that was the wait for the trigger,
and counts as quick.
"""

from dataclasses import dataclass, replace
from typing import Final

FIRST_ROWS: Final = 10_000  # before anything is known; not the whole backlog
GROWTH_MAX: Final = 2.0
SHRINK_MAX: Final = 0.25
CALM: Final = 0.1  # as near to the target as this nothing changes
UNLIKE: Final = 1.5  # numbers of records that differ by this factor take another time
# A trigger is on time, unlike work.
PUNCTUAL: Final = 0.02
PUNCTUAL_MS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Bounds:
    target_ms: int
    least_rows: int
    most_rows: int


@dataclass(frozen=True, slots=True)
class Intake:
    """What the next batch may have, and what is known from those before it."""

    limit: int
    measured: tuple[int, float] | None = None  # limit and time of the last batch that was full
    waits: bool = False  # the time is that of the trigger


def first(bounds: Bounds) -> Intake:
    return Intake(_within(FIRST_ROWS, bounds))


def after(intake: Intake, rows: int, took_ms: float, bounds: Bounds) -> Intake:
    """When a batch of so many records took so long. One without records says nothing."""
    if rows <= 0:
        return intake
    took_ms = max(took_ms, 1.0)
    if rows < intake.limit:
        return _after_few(intake, took_ms, bounds)
    now = (intake.limit, took_ms)
    waits = intake.measured is not None and _waits(intake.measured, now, known=intake.waits)
    factor = GROWTH_MAX if waits else min(bounds.target_ms / took_ms, GROWTH_MAX)
    return Intake(_scaled(intake.limit, factor, bounds), now, waits)


def _after_few(intake: Intake, took_ms: float, bounds: Bounds) -> Intake:
    """That few were quick says nothing about many, and that they waited, nothing about work."""
    if intake.waits:
        return intake
    factor = min(bounds.target_ms / took_ms, 1.0)
    return replace(intake, limit=_scaled(intake.limit, factor, bounds))


def _waits(before: tuple[int, float], now: tuple[int, float], *, known: bool) -> bool:
    """Whether other numbers took the same time; with about the same number, what was known."""
    allowed_ms = PUNCTUAL * max(before[1], now[1]) + PUNCTUAL_MS
    is_punctual = abs(before[1] - now[1]) <= allowed_ms
    large, small = max(before[0], now[0]), max(1, min(before[0], now[0]))
    return is_punctual and (known or large >= UNLIKE * small)


def _scaled(limit: int, factor: float, bounds: Bounds) -> int:
    if abs(factor - 1) <= CALM:
        return limit
    return _within(int(limit * max(factor, SHRINK_MAX)), bounds)


def _within(limit: int, bounds: Bounds) -> int:
    return max(bounds.least_rows, min(limit, bounds.most_rows))
