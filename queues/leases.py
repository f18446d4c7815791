"""Leases: how long an unacked message may stay with its consumer before others get it."""

from collections.abc import Callable, Iterable
from typing import Final

from queues.bell import Bell, Clock
from queues.consumers import Consumer
from queues.message import Message
from queues.timer_wheel import TimerWheel

# Timers of settled messages are left in the wheel until there are so many of them.
STALE_MAX: Final = 4096


class Leases:
    """Held messages of a queue, by sequence, and until when they may be held."""

    __slots__ = ("_bell", "_clock", "_held", "_on_over", "_wheel")

    def __init__(self, clock: Clock, on_over: Callable[[Consumer, list[Message]], None]) -> None:
        self._clock = clock
        self._on_over = on_over
        self._held: dict[int, tuple[int, Consumer, Message]] = {}
        self._wheel = TimerWheel(clock.now_ms())
        self._bell = Bell(clock, self._ring)

    def __len__(self) -> int:
        return len(self._held)

    def grant(self, consumer: Consumer, messages: list[Message], lease_ms: int) -> None:
        until = self._clock.now_ms() + lease_ms
        for message in messages:
            self._held[message.sequence] = (until, consumer, message)
            self._wheel.add(message.sequence, until)
        self._bell.ring_at(self._wheel.next_ms())

    def end(self, messages: Iterable[Message]) -> None:
        """They were settled or came back."""
        for message in messages:
            self._held.pop(message.sequence, None)
        self._sweep()

    def extend(self, message: Message, lease_ms: int | None) -> bool:
        """Let it be held for so long from now, or for as long as its holder gets for a new one.

        False if nobody holds it on a lease.
        """
        lease = self._held.get(message.sequence)
        if lease is None or lease[2] is not message:
            return False
        lease_ms = lease_ms or lease[1].lease_ms
        if lease_ms is None:
            return False
        self.grant(lease[1], [message], lease_ms)
        self._sweep()
        return True

    def clear(self) -> None:
        self._held.clear()
        self._wheel = TimerWheel(self._clock.now_ms())
        self._bell.stop()

    def _sweep(self) -> None:
        """Build the wheel anew when most of its timers mean nothing any more."""
        if len(self._wheel) > 2 * len(self._held) + STALE_MAX:
            self._wheel = TimerWheel(self._clock.now_ms())
            self._wheel.fill([(key, until) for key, (until, _, _) in self._held.items()])

    def _ring(self) -> None:
        over: dict[Consumer, list[Message]] = {}
        for sequence, until in self._wheel.advance(self._clock.now_ms()):
            lease = self._held.get(sequence)
            if lease is not None and lease[0] == until:
                del self._held[sequence]
                over.setdefault(lease[1], []).append(lease[2])
        self._bell.ring_at(self._wheel.next_ms())
        for consumer, messages in over.items():
            self._on_over(consumer, messages)
