"""x-expires: a queue goes when it had no consumer and no use for that long."""

from collections.abc import Callable

from queues.bell import Bell, Clock


class Unused:
    """Watches for how long a queue was not used; `is_used` tells of consumers."""

    __slots__ = ("_bell", "_clock", "_expires_ms", "_is_used", "_on_unused", "_touched_ms")

    def __init__(
        self,
        clock: Clock,
        expires_ms: int,
        is_used: Callable[[], bool],
        on_unused: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._expires_ms = expires_ms
        self._is_used = is_used
        self._on_unused = on_unused
        self._touched_ms = clock.now_ms()
        self._bell = Bell(clock, self._check)
        self._bell.ring_at(self._touched_ms + expires_ms)

    def touch(self) -> None:
        self._touched_ms = self._clock.now_ms()

    def stop(self) -> None:
        self._bell.stop()

    def _check(self) -> None:
        now = self._clock.now_ms()
        if self._is_used():
            self._touched_ms = now
        due = self._touched_ms + self._expires_ms
        if due <= now:
            self._on_unused()
        else:
            self._bell.ring_at(due)
