"""When messages expire: at the head of their queue, and never while somebody holds them."""

from collections.abc import Callable

from queues.bell import Bell, Clock
from queues.message import Message
from queues.ready import Ready


class Expiry:
    """The TTL of a queue's messages, and a timer for the one at the head."""

    __slots__ = ("_bell", "_clock", "_ttl_ms", "active", "mixed")

    def __init__(
        self, clock: Clock, on_due: Callable[[], None], *, ttl_ms: int | None, out_of_order: bool
    ) -> None:
        self._clock = clock
        self._bell = Bell(clock, on_due)  # the head's time has come
        self._ttl_ms = ttl_ms
        self.active = ttl_ms is not None
        # Later ones may expire before the head does, so that each has to be looked at.
        self.mixed = out_of_order

    def stamp(self, messages: list[Message]) -> None:
        """Turn each message's own TTL and the queue's into a time; the smaller one counts."""
        self.notice(messages)
        if self._ttl_ms is not None:
            due = self._clock.now_ms() + self._ttl_ms
            for message in messages:
                own = message.expires_at
                message.expires_at = due if own is None else min(own, due)

    def stamp_delayed(self, messages: list[Message]) -> None:
        """The queue's TTL begins when they are due, so that not all of them expire in order."""
        self.notice(messages)
        if self._ttl_ms is not None:
            self.mixed = True
            for message in messages:
                due = message.due_ms + self._ttl_ms
                own = message.expires_at
                message.expires_at = due if own is None else min(own, due)

    def set_ttl(self, ttl_ms: int | None) -> None:
        """For messages to come. Those that are there may expire before or after them."""
        if ttl_ms != self._ttl_ms:
            self.mixed = self.mixed or self.active
            self._ttl_ms = ttl_ms
            self.active = self.active or ttl_ms is not None

    def notice(self, messages: list[Message]) -> None:
        """Some of these may have a time of their own."""
        if [m for m in messages if m.expires_at is not None]:
            self.active = self.mixed = True

    def take_expired(self, ready: Ready, before_ms: int, most: int) -> list[Message]:
        """What expired at the head before this time, up to so many; the timer is for the next."""
        expired: list[Message] = []
        head = ready.head()
        while head is not None and head.expires_at is not None and head.expires_at < before_ms:
            if len(expired) == most:
                return expired  # whoever asks for no more now will ask again
            expired.append(ready.pop())
            head = ready.head()
        if head is not None and head.expires_at is not None:
            self._bell.ring_at(head.expires_at)
        return expired

    def stop(self) -> None:
        self._bell.stop()
