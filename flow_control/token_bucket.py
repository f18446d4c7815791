"""A token bucket: so many a second on the long run, and a burst of them at once."""

from fractions import Fraction
from math import lcm


class TokenBucket:
    """Starts full.

    Tokens are counted in whole shares of a token, small enough that the rate per millisecond and
    the burst are whole numbers of them: nothing is ever rounded, so nothing drifts. A rate of 0.3
    is taken as three tenths and not as the binary fraction next to it. As all shares are decimal,
    they get no smaller than the number with the most digits needs, however often the rate changes.
    """

    __slots__ = ("_burst", "_held", "_now", "_per_ms", "_token")

    def __init__(self, rate_per_s: float, burst: float, now_ms: int) -> None:
        self._now = now_ms
        self._token = 1  # in shares, as are the others
        self._held = 0  # negative: a debt
        self._per_ms = self._burst = 0
        self.set_rate(rate_per_s, burst, now_ms)
        self._held = self._burst

    def set_rate(self, rate_per_s: float, burst: float, now_ms: int) -> None:
        """From now on. What is there stays, up to the new burst; so does a debt."""
        assert rate_per_s > 0, "the first token would never come"
        assert burst >= 1, "there would never be a whole token"
        self._refill(now_ms)
        held = Fraction(self._held, self._token)
        per_ms = Fraction(str(rate_per_s)) / 1000
        most = Fraction(str(burst))
        self._token = lcm(held.denominator, per_ms.denominator, most.denominator)
        self._per_ms = int(per_ms * self._token)
        self._burst = int(most * self._token)
        self._held = min(int(held * self._token), self._burst)

    def take(self, wanted: int, now_ms: int) -> int:
        """How many of `wanted` may go now; they are taken."""
        self._refill(now_ms)
        taken = max(0, min(wanted, self._held // self._token))
        self._held -= taken * self._token
        return taken

    def charge(self, count: int, now_ms: int) -> None:
        """Take so many in any case; what is missing becomes a debt, to be paid first."""
        assert count >= 0
        self._refill(now_ms)
        self._held -= count * self._token

    def ready_ms(self, now_ms: int) -> int:
        """When at least one whole token will be there: `now_ms` if there is one now."""
        self._refill(now_ms)
        missing = self._token - self._held
        return now_ms if missing <= 0 else self._now - (-missing // self._per_ms)

    def _refill(self, now_ms: int) -> None:
        """Time never goes back: an earlier `now_ms` counts as the last one."""
        if now_ms > self._now:
            self._held = min(self._burst, self._held + (now_ms - self._now) * self._per_ms)
            self._now = now_ms
