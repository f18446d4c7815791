"""Staggered redelivery: what lost consumers held comes back at a bounded rate."""

from collections.abc import Callable, Collection
from heapq import heapify, heappop, heappush
from typing import Final

from flow_control.token_bucket import TokenBucket
from queues.bell import Bell, Clock
from queues.message import Message

PACE_MS: Final = 20  # between two bursts: short beside a second, long beside a turn of the loop

# What a queue's consumers held at a restart is read back into memory, where it was before, up to
# this much. The rest, and what comes behind it, stays on disk until some of these had their turn.
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
MESSAGE_OVERHEAD_BYTES: Final = 400  # what a message costs in memory beside its body


def _cost(message: Message) -> int:
    return message.body_bytes + MESSAGE_OVERHEAD_BYTES


class Pacer:
    """A token bucket of `rate` messages a second (0: no limit), and who waits for a token."""

    __slots__ = (
        "_bell",
        "_bucket",
        "_clock",
        "_on_turn",
        "_rate",
        "_waiting",
        "_waiting_bytes",
    )

    def __init__(self, clock: Clock, rate: int, on_turn: Callable[[], None]) -> None:
        self._clock = clock
        self._rate = rate
        self._on_turn = on_turn
        self._bell = Bell(clock, on_turn)  # there are tokens again for those who asked in vain
        self._bucket = TokenBucket(rate, rate, clock.now_ms()) if rate else None
        self._waiting: list[tuple[int, Message]] = []  # a heap, by sequence
        self._waiting_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """What is on disk had better stay there until others have had their turn."""
        return self._waiting_bytes >= WAITING_BYTES_MAX

    def set_rate(self, rate: int) -> None:
        if rate != self._rate:
            self._rate = rate
            self._bucket = TokenBucket(rate, rate, self._clock.now_ms()) if rate else None
            self._bell.stop()
            self._on_turn()

    def admit(self, messages: list[Message]) -> list[Message]:
        """Those that may come back now: the first of all, with those that wait already."""
        if self._bucket is None and not self._waiting:
            return messages
        for message in messages:
            heappush(self._waiting, (message.sequence, message))
            self._waiting_bytes += _cost(message)
        return self.take()

    def take(self) -> list[Message]:
        """Waiting messages for which there is a token now."""
        count = len(self._waiting)
        if self._bucket is not None and count:
            count = self._bucket.take(count, self._clock.now_ms())
        taken = [heappop(self._waiting)[1] for _ in range(count)]
        self._waiting_bytes -= sum(map(_cost, taken))
        if self._waiting:
            self._wind()
        return taken

    def remove(self, sequences: Collection[int]) -> list[Message]:
        """Those of these that wait do so no more."""
        removed = [message for number, message in self._waiting if number in sequences]
        if removed:
            self._waiting = [each for each in self._waiting if each[0] not in sequences]
            heapify(self._waiting)
            self._waiting_bytes -= sum(map(_cost, removed))
        return removed

    def waiting(self) -> list[Message]:
        return [message for _, message in self._waiting]

    def drain(self) -> list[Message]:
        """All that wait, in order."""
        waiting = [message for _, message in sorted(self._waiting)]
        self._waiting.clear()
        self._waiting_bytes = 0
        return waiting

    def clear(self) -> None:
        self.drain()
        self._bell.stop()

    def _wind(self) -> None:
        if self._bucket is not None:
            now = self._clock.now_ms()
            self._bell.ring_at(max(self._bucket.ready_ms(now), now + PACE_MS))
