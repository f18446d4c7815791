"""How fast a connection may publish: what is too much for now waits, and nothing is refused."""

from collections.abc import Callable
from typing import Final

from broker.timers import Timer, Timers
from flow_control.token_bucket import TokenBucket

# Publishes that had to wait go on in bursts of at least this long, not one by one.
TICK_MS: Final = 10
# What may come at once after a pause: a second's worth, so that the rate is one of the long run.
BURST_S: Final = 1


class Pace:
    """A token bucket, and a timer for those who wait for tokens."""

    def __init__(self, rate_per_s: int, timers: Timers, go_on: Callable[[], None]) -> None:
        self.rate_per_s = rate_per_s
        self._timers = timers
        self._go_on = go_on  # more may be published
        self._bucket = TokenBucket(rate_per_s, rate_per_s * BURST_S, timers.now_ms())
        self._timer: Timer | None = None

    @property
    def waits(self) -> bool:
        return self._timer is not None

    def take(self, wanted: int) -> int:
        """How many of so many publishes may go now; for the others `go_on` is called in time."""
        now = self._timers.now_ms()
        granted = self._bucket.take(wanted, now)
        if granted < wanted and self._timer is None:
            due = max(self._bucket.ready_ms(now), now + TICK_MS)
            self._timer = self._timers.call_at(due, self._ring)
        return granted

    def _ring(self) -> None:
        self._timer = None
        self._go_on()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
