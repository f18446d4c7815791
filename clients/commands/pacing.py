"""Not more than so many a second."""

import trio


class Pace:
    """Time that was lost is made up for by at most a second's worth at once."""

    def __init__(self, rate: float | None) -> None:
        self._step_s = 1 / rate if rate is not None else 0.0
        self._due = trio.current_time()

    async def wait(self) -> None:
        """Until it is the next one's turn."""
        if not self._step_s:
            return
        now = trio.current_time()
        if self._due > now:
            await trio.sleep_until(self._due)
        self._due = max(self._due + self._step_s, now - 1.0)
