"""The alarm for a job that too many records fail in: their share over a window of time."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

RECORDS_MIN: Final = 20  # fewer say nothing about a share
BATCHES_MAX: Final = 10_000  # that a window may hold; the oldest go first


@dataclass(slots=True)
class ErrorRate:
    """`limit` None: no alarm, ever."""

    limit: float | None
    window_s: float
    _batches: deque[tuple[float, int, int]] = field(
        default_factory=lambda: deque(maxlen=BATCHES_MAX)
    )

    def add(self, now_s: float, processed: int, errors: int) -> None:
        """A micro-batch: `errors` of the records that were `processed`."""
        self._batches.append((now_s, processed, errors))

    def share(self, now_s: float) -> float:
        """Of bad records among all of the window."""
        while self._batches and self._batches[0][0] < now_s - self.window_s:
            self._batches.popleft()
        processed = sum(each for _, each, _ in self._batches)
        errors = sum(each for _, _, each in self._batches)
        return errors / processed if processed >= RECORDS_MIN else 0.0

    def is_too_high(self, now_s: float) -> bool:
        return self.limit is not None and self.share(now_s) > self.limit
