"""Messages of a queue that wait for their time: in memory, or on disk where it is durable."""

import heapq
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from queues.bell import Bell, Clock
from queues.message import Message
from queues.timer_wheel import TimerWheel

# Timers of cancelled and moved messages are left in the wheel until there are so many of them.
STALE_MAX: Final = 4096


class OnDisk(Protocol):
    """Where a durable queue keeps its delayed messages."""

    def due_of(self, sequence: int) -> int | None:
        """When a delayed message is or was due; None for any other."""
        ...

    def delay(self, delays: list[tuple[int, int]]) -> None: ...
    def overdue(self, sequences: list[int]) -> None:
        """These are due: they come back through `Queue.came_due` when they are read."""
        ...

    def settle_sequences(self, sequences: list[int]) -> None: ...


class Delays:
    """Who is delayed until when. What is due is handed on in order of time."""

    __slots__ = (
        "_bell",
        "_clock",
        "_held",
        "_on_cancelled",
        "_on_due",
        "_store",
        "_waiting",
        "_wheel",
    )

    def __init__(
        self,
        clock: Clock,
        on_due: Callable[[list[Message]], None],
        on_cancelled: Callable[[int], None],
        store: OnDisk | None,
    ) -> None:
        self._clock = clock
        self._on_cancelled = on_cancelled
        self._on_due = on_due  # for messages in memory; those on disk go through the store
        self._store = store
        self._held: dict[int, Message] = {}
        self._waiting = 0
        self._wheel = TimerWheel(clock.now_ms())
        self._bell = Bell(clock, self._ring)

    def __len__(self) -> int:
        return self._waiting

    def add(self, messages: list[Message]) -> None:
        """Their `due_ms` and sequences are set."""
        self._wheel.fill([(message.sequence, message.due_ms) for message in messages])
        if self._store is None:
            self._held.update([(message.sequence, message) for message in messages])
        self._waiting += len(messages)
        self._bell.ring_at(self._wheel.next_ms())

    def recovered(self, delays: Iterable[tuple[int, int]]) -> None:
        """What a restart found on disk; there may be a million of them."""
        before = len(self._wheel)
        self._wheel.fill(delays)
        self._waiting += len(self._wheel) - before
        self._bell.ring_at(self._wheel.next_ms())

    def due_of(self, sequence: int) -> int | None:
        """When a message that waits will be due; None for any other."""
        due_ms = self._meant_for(sequence)
        if due_ms is not None and self._store is not None and due_ms <= self._clock.now_ms():
            return None  # it may have come already, which its store does not tell
        return due_ms

    def _meant_for(self, sequence: int) -> int | None:
        """Which of its timers in the wheel counts."""
        if self._store is not None:
            return self._store.due_of(sequence)
        held = self._held.get(sequence)
        return held.due_ms if held is not None else None

    def move(self, sequence: int, due_ms: int) -> bool:
        """Give a waiting message another time; whether there is such a message."""
        if self.due_of(sequence) is None:
            return False
        if self._store is None:
            self._held[sequence].due_ms = due_ms
        else:
            self._store.delay([(sequence, due_ms)])
        self._wheel.add(sequence, due_ms)
        self._sweep()
        self._bell.ring_at(self._wheel.next_ms())
        return True

    def cancel(self, sequence: int) -> bool:
        """Take a waiting message out for good; whether there is such a message."""
        if self.due_of(sequence) is None:
            return False
        if self._store is None:
            del self._held[sequence]
        else:
            self._store.settle_sequences([sequence])
        self._waiting -= 1
        if not self._waiting:
            self.clear()
        self._sweep()
        self._on_cancelled(sequence)
        return True

    def withdraw(self, sequences: Iterable[int]) -> set[int]:
        """Those of these that wait do so no more: somebody has them."""
        meant = {s: self._meant_for(s) for s in sequences}
        waiting: set[int] = set()
        if meant:
            waiting.update([key for key, due_ms in self._wheel if meant.get(key) == due_ms])
        if waiting:
            left = [(key, due_ms) for key, due_ms in self._wheel if key not in waiting]
            self._wheel = TimerWheel(self._clock.now_ms())
            self._wheel.fill(left)
            self._waiting -= len(waiting)
        return waiting

    def first(self, count: int) -> list[tuple[int, int]]:
        """Sequence and time of the next to be due."""
        alive = {key: due for key, due in self._wheel if self.due_of(key) == due}
        return heapq.nsmallest(count, alive.items(), key=lambda item: (item[1], item[0]))

    def held(self, sequences: Iterable[int]) -> list[Message]:
        """Waiting messages that are in memory."""
        return [self._held[sequence] for sequence in sequences if sequence in self._held]

    def failed(self) -> list[Message]:
        """Messages in memory that wait for another try."""
        return [message for message in self._held.values() if message.delivery_count]

    def clear(self) -> int:
        """Forget all of them; how many there were."""
        count = self._waiting
        self._held.clear()
        self._waiting = 0
        self._wheel = TimerWheel(self._clock.now_ms())
        self._bell.stop()
        return count

    def _sweep(self) -> None:
        """Build the wheel anew when most of its timers mean nothing any more."""
        if len(self._wheel) > 2 * self._waiting + STALE_MAX:
            # Also of those that are due: their bell may ring late.
            alive = {key: due for key, due in self._wheel if self._meant_for(key) == due}
            self._wheel = TimerWheel(self._clock.now_ms())
            self._wheel.fill(list(alive.items()))

    def _ring(self) -> None:
        rung = self._wheel.advance(self._clock.now_ms())
        self._bell.ring_at(self._wheel.next_ms())
        meant_for = self._meant_for
        # One that was moved away and back has two timers for the same time.
        sequences = list(dict.fromkeys([key for key, due in rung if meant_for(key) == due]))
        self._waiting -= len(sequences)
        if not sequences:
            return
        if self._store is None:
            self._on_due([self._held.pop(sequence) for sequence in sequences])
        else:
            self._store.overdue(sequences)
