"""Ready messages in the order of delivery: returned ones first, then fresh ones; or by priority."""

from bisect import insort
from collections import deque
from collections.abc import Collection, Iterator
from heapq import heapify, heappop, heappush, merge
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
    def remove(self, sequences: Collection[int]) -> list[Message]:
        """Take out those of these that wait here, wherever they stand; in order of iteration."""
        ...

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

    def remove(self, sequences: Collection[int]) -> list[Message]:
        wanted = frozenset(sequences)
        removed = [m for m in self if m.sequence in wanted]
        if removed:
            self._fresh = deque([m for m in self._fresh if m.sequence not in wanted])
            self._returned = [entry for entry in self._returned if entry[0] not in wanted]
            heapify(self._returned)
            self.size_bytes -= sum([m.body_bytes for m in removed])
        return removed

    def split_off(self, keep_bytes: int, overhead_bytes: int) -> deque[Message]:
        """All fresh messages but the first, which cost so much in memory; they are in order."""
        rest, kept = self._fresh, deque[Message]()
        cost = 0
        while rest and cost < keep_bytes:
            message = rest.popleft()
            kept.append(message)
            cost += message.body_bytes + overhead_bytes
        self._fresh = kept
        self.size_bytes = sum([m.body_bytes for m in self])
        return rest

    def first_fresh(self) -> int | None:
        return self._fresh[0].sequence if self._fresh else None

    def clear(self) -> None:
        self._fresh.clear()
        self._returned.clear()
        self.size_bytes = 0


class PriorityReady:
    """One FIFO per priority; the highest that holds anything goes first.

    With aging, a message gains one priority for each `aging_ms` since its `enqueued_ms`. All gain
    alike, so who is ahead of whom never changes: it is as if a message of priority p had come
    p * aging_ms earlier. Within a level the first came first, so that heads are all to compare.
    """

    __slots__ = ("_aging_ms", "_count", "_filled", "_levels", "size_bytes")

    def __init__(self, max_priority: int, aging_ms: int | None = None) -> None:
        self._levels = [FifoReady() for _ in range(max_priority + 1)]
        self._filled: list[int] = []  # levels that hold anything, the lowest first
        self._aging_ms = aging_ms
        self._count = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return self._count

    @property
    def available(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message]:
        levels = [self._levels[number] for number in reversed(self._filled)]
        if self._aging_ms is not None:
            yield from merge(*levels, key=self._rank)  # equal ones: the higher level
            return
        for level in levels:
            yield from level

    def push(self, messages: list[Message]) -> None:
        for message in messages:
            self._open_level(message).push([message])
        self._added(messages)

    def put_back(self, messages: list[Message]) -> None:
        for message in messages:
            self._open_level(message).put_back([message])
        self._added(messages)

    def head(self) -> Message | None:
        return self._levels[self._first()].head() if self._count else None

    def oldest(self) -> Message | None:
        """The message to drop when the queue is too long: of the lowest priority, the first."""
        return self._levels[self._filled[0]].head() if self._count else None

    def pop(self) -> Message:
        return self._pop_from(self._first())

    def pop_oldest(self) -> Message:
        return self._pop_from(self._filled[0])

    def take(self, count: int, size_bytes: int) -> list[Message]:
        taken: list[Message] = []
        until = self.size_bytes - size_bytes
        while count > 0 and self._count:
            taken.append(self.pop())
            count -= 1
            if self.size_bytes <= until:
                break
        return taken

    def remove(self, sequences: Collection[int]) -> list[Message]:
        wanted = frozenset(sequences)
        removed = [m for m in self if m.sequence in wanted]
        for number in {self._level_of(m) for m in removed}:
            level = self._levels[number]
            level.remove(wanted)
            if not len(level):
                self._filled.remove(number)
        self._count -= len(removed)
        self.size_bytes -= sum([m.body_bytes for m in removed])
        return removed

    def first_fresh(self) -> int | None:
        return None  # each level has its own

    def clear(self) -> None:
        for number in self._filled:
            self._levels[number].clear()
        self._filled.clear()
        self._count = self.size_bytes = 0

    def _first(self) -> int:
        """The level whose head goes first."""
        filled = self._filled
        if self._aging_ms is None or len(filled) == 1:
            return filled[-1]
        return min(reversed(filled), key=self._head_rank)  # equal ones: the higher level

    def _head_rank(self, number: int) -> int:
        head = self._levels[number].head()
        assert head is not None
        assert self._aging_ms is not None
        return head.enqueued_ms - number * self._aging_ms

    def _rank(self, message: Message) -> int:
        """When a message of priority 0 must have come to be its equal."""
        assert self._aging_ms is not None
        return message.enqueued_ms - self._level_of(message) * self._aging_ms

    def _level_of(self, message: Message) -> int:
        return min(message.priority, len(self._levels) - 1)

    def _open_level(self, message: Message) -> FifoReady:
        """Where it belongs, about to hold something."""
        number = self._level_of(message)
        level = self._levels[number]
        if not len(level):
            insort(self._filled, number)
        return level

    def _added(self, messages: list[Message]) -> None:
        self._count += len(messages)
        self.size_bytes += sum([m.body_bytes for m in messages])

    def _pop_from(self, number: int) -> Message:
        level = self._levels[number]
        message = level.pop()
        if not len(level):
            self._filled.remove(number)
        self._count -= 1
        self.size_bytes -= message.body_bytes
        return message
