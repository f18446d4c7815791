"""When messages expire: at the head of their queue, and never while somebody holds them."""

from collections.abc import Callable
from typing import Protocol

from queues.message import Message
from queues.ready import Ready


class Timer(Protocol):
    """A callback to come."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    def now_ms(self) -> int: ...
    def call_at(self, when_ms: int, callback: Callable[[], None]) -> Timer: ...


class Expiry:
    """The TTL of a queue's messages, and a timer for the one at the head."""

    __slots__ = ("_clock", "_due_ms", "_on_due", "_timer", "_ttl_ms", "active", "mixed")

    def __init__(
        self, clock: Clock, on_due: Callable[[], None], *, ttl_ms: int | None, by_priority: bool
    ) -> None:
        self._clock = clock
        self._on_due = on_due  # the head's time has come
        self._ttl_ms = ttl_ms
        self._due_ms: int | None = None  # when the timer rings
        self._timer: Timer | None = None
        self.active = ttl_ms is not None
        # Later ones may expire before the head does, so that each has to be looked at.
        self.mixed = by_priority

    def stamp(self, messages: list[Message]) -> None:
        """Turn each message's own TTL and the queue's into a time; the smaller one counts."""
        self.notice(messages)
        if self._ttl_ms is not None:
            due = self._clock.now_ms() + self._ttl_ms
            for message in messages:
                own = message.expires_at
                message.expires_at = due if own is None else min(own, due)

    def notice(self, messages: list[Message]) -> None:
        """Some of these may have a time of their own."""
        if [m for m in messages if m.expires_at is not None]:
            self.active = self.mixed = True

    def take_expired(self, ready: Ready, before_ms: int) -> list[Message]:
        """What expired at the head before this time; the timer is set for the next."""
        expired: list[Message] = []
        head = ready.head()
        while head is not None and head.expires_at is not None and head.expires_at < before_ms:
            expired.append(ready.pop())
            head = ready.head()
        if head is not None and head.expires_at is not None:
            self._ring_at(head.expires_at)
        return expired

    def _ring_at(self, when_ms: int) -> None:
        if self._due_ms is None or when_ms < self._due_ms:
            self.stop()
            self._due_ms = when_ms
            self._timer = self._clock.call_at(when_ms, self._ring)

    def _ring(self) -> None:
        self._due_ms = self._timer = None
        self._on_due()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_ms = self._timer = None
