"""Ready messages in the order of delivery: returned ones first, then fresh ones; or by priority."""

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Protocol

from queues.message import Message


class Ready(Protocol):
    """What a queue needs of its ready messages. `size_bytes` counts bodies."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def available(self) -> int:
        """How many can be taken now; the rest of them is still on disk."""
        ...

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Message]: ...
    def push(self, messages: list[Message]) -> None: ...
    def put_back(self, messages: list[Message]) -> None: ...
    def head(self) -> Message | None: ...
    def oldest(self) -> Message | None: ...
    def pop(self) -> Message: ...
    def pop_oldest(self) -> Message: ...
    def take(self, count: int, size_bytes: int) -> list[Message]: ...
    def clear(self) -> None: ...
    def first_fresh(self) -> int | None:
        """The sequence from which on nothing was ever taken; None if that cannot be said."""
        ...


class FifoReady:
    """Plain FIFO.

    Fresh messages leave in order, so everything that ever left comes before everything that has
    not: what is put back stands before all fresh ones, among its like by sequence.
    """

    __slots__ = ("_fresh", "_returned", "size_bytes")

    def __init__(self) -> None:
        self._fresh: deque[Message] = deque()
        self._returned: list[tuple[int, Message]] = []  # a heap; sequences are unique
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._fresh) + len(self._returned)

    @property
    def available(self) -> int:
        return len(self._fresh) + len(self._returned)

    def __iter__(self) -> Iterator[Message]:
        for _, message in sorted(self._returned):
            yield message
        yield from self._fresh

    def push(self, messages: list[Message]) -> None:
        self._fresh.extend(messages)
        self.size_bytes += sum([m.body_bytes for m in messages])

    def put_back(self, messages: list[Message]) -> None:
        for message in messages:
            heappush(self._returned, (message.sequence, message))
        self.size_bytes += sum([m.body_bytes for m in messages])

    def head(self) -> Message | None:
        if self._returned:
            return self._returned[0][1]
        return self._fresh[0] if self._fresh else None

    oldest = head

    def pop(self) -> Message:
        message = heappop(self._returned)[1] if self._returned else self._fresh.popleft()
        self.size_bytes -= message.body_bytes
        return message

    pop_oldest = pop

    def take(self, count: int, size_bytes: int) -> list[Message]:
        """Up to `count` messages, and no more than one over `size_bytes`."""
        if not self._returned and self.size_bytes <= size_bytes:
            fresh = self._fresh
            if count >= len(fresh):
                taken = list(fresh)
                fresh.clear()
                self.size_bytes = 0
                return taken
            popleft = fresh.popleft
            taken = [popleft() for _ in range(count)]
            self.size_bytes -= sum([m.body_bytes for m in taken])
            return taken
        taken = []
        until = self.size_bytes - size_bytes
        while count > 0 and len(self):
            taken.append(self.pop())
            count -= 1
            if self.size_bytes <= until:
                break
        return taken

    def first_fresh(self) -> int | None:
        return self._fresh[0].sequence if self._fresh else None

    def clear(self) -> None:
        self._fresh.clear()
        self._returned.clear()
        self.size_bytes = 0


class PriorityReady:
    """One FIFO per priority; the highest that holds anything goes first."""

    __slots__ = ("_count", "_levels", "size_bytes")

    def __init__(self, max_priority: int) -> None:
        self._levels = [FifoReady() for _ in range(max_priority + 1)]
        self._count = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return self._count

    @property
    def available(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message]:
        for level in reversed(self._levels):
            yield from level

    def push(self, messages: list[Message]) -> None:
        for message in messages:
            self._level(message).push([message])
        self._added(messages)

    def put_back(self, messages: list[Message]) -> None:
        for message in messages:
            self._level(message).put_back([message])
        self._added(messages)

    def head(self) -> Message | None:
        for level in reversed(self._levels):
            if len(level):
                return level.head()
        return None

    def oldest(self) -> Message | None:
        """The message to drop when the queue is too long: of the lowest priority, the first."""
        for level in self._levels:
            if len(level):
                return level.head()
        return None

    def pop(self) -> Message:
        return self._pop_from(next(level for level in reversed(self._levels) if len(level)))

    def pop_oldest(self) -> Message:
        return self._pop_from(next(level for level in self._levels if len(level)))

    def take(self, count: int, size_bytes: int) -> list[Message]:
        taken: list[Message] = []
        until = self.size_bytes - size_bytes
        while count > 0 and self._count:
            taken.append(self.pop())
            count -= 1
            if self.size_bytes <= until:
                break
        return taken

    def first_fresh(self) -> int | None:
        return None  # each level has its own

    def clear(self) -> None:
        for level in self._levels:
            level.clear()
        self._count = self.size_bytes = 0

    def _level(self, message: Message) -> FifoReady:
        return self._levels[min(message.priority, len(self._levels) - 1)]

    def _added(self, messages: list[Message]) -> None:
        self._count += len(messages)
        self.size_bytes += sum([m.body_bytes for m in messages])

    def _pop_from(self, level: FifoReady) -> Message:
        message = level.pop()
        self._count -= 1
        self.size_bytes -= message.body_bytes
        return message
