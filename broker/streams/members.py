"""A consumer on an AMQP channel as a member of a group: its partitions, its acks, its end.

It gets the partitions that the group assigns to it, each from where the group stands. If it stands
nowhere yet, where to begin is committed first, so that nobody who comes later begins elsewhere.
Acks move the committed offset as far as everything before is settled. What the consumer gives back
it gets again at once, in order, before anything new of that partition.

A partition that moves is delivered no more; it stays for as long as acks are under way, but not for
longer than a second. Its new holder begins at the first record that was not acked.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from queues.consumers import Consumer
from queues.stream.group_errors import GroupError, OffsetUnstableError
from queues.stream.group_records import Position
from queues.stream.groups import Assignment, ConsumerGroup
from queues.stream.names import PartitionId
from queues.stream.stream import Stream
from queues.stream.watermark import Watermark
from queues.stream.wishes import ReaderWishes

# How long a partition that moves waits for acks that are under way.
RELEASE_MS: Final = 1000


class Book(Protocol):
    """The groups of the vhost, as a member sees them."""

    seen: dict[tuple[str, PartitionId], int]

    def now_ms(self) -> int: ...
    def changed(self, group: ConsumerGroup, answer: Callable[[], None] | None = None) -> None: ...
    def write(self, group: ConsumerGroup, answer: Callable[[], None] | None = None) -> None: ...
    def commit_soon(self, member: "Member") -> None: ...
    def forget(self, member: "Member") -> None: ...


class Member:
    """To its subscription it is the `Membership`."""

    def __init__(
        self,
        book: Book,
        group: ConsumerGroup,
        stream: Stream,
        consumer: Consumer,
        wishes: ReaderWishes,
        told: Assignment,
        *,
        is_static: bool,
    ) -> None:
        self.group = group
        self.name = told.member
        self._generation = told.generation
        self._book = book
        self._stream = stream
        self._consumer = consumer
        self._start = wishes.start
        self._is_static = is_static
        self._marks: dict[int, Watermark] = {}
        self._committed: dict[int, int] = {}
        self._placing: dict[int, object] = {}  # looked for where to begin in them
        self._leaving: dict[int, int] = {}  # until when they may stay
        self._gone = False
        self._subscription = stream.subscribe_member(consumer, wishes, self)

    def _partition(self, number: int) -> PartitionId:
        return PartitionId(self._stream.name, number)

    # What the group says

    def refresh(self, now_ms: int) -> bool:
        """Hear what is assigned, let go of what is not; whether something moved.

        Raises GroupError if it is no member any more.
        """
        released = self._release(now_ms)
        names = [self._partition(number) for number in released]
        told = self.group.heartbeat(self.name, self._generation, now_ms, released=names)
        self._generation = told.generation
        assigned = {each.number for each in told.assigned}
        leaving = {each.number for each in told.leaving}
        for number in leaving - self._leaving.keys():
            self._leaving[number] = now_ms + RELEASE_MS
            self._placing.pop(number, None)
            if number in self._subscription.cursors:
                self._subscription.remove(number)
        for number in assigned & self._leaving.keys():  # it may stay after all
            del self._leaving[number]
            if number in self._marks:
                self._read(number, self._marks[number])
        for number in sorted(assigned - self._marks.keys() - self._placing.keys()):
            self._place(number)
        return bool(released) or any(self._is_done(number, now_ms) for number in self._leaving)

    def _is_done(self, number: int, now_ms: int) -> bool:
        mark = self._marks.get(number)
        return mark is None or not mark.held or now_ms >= self._leaving[number]

    def _release(self, now_ms: int) -> list[int]:
        """Let go of partitions that are leaving and done with; what was acked is committed."""
        done = [number for number in self._leaving if self._is_done(number, now_ms)]
        if done:
            self.commit()
        for number in done:
            del self._leaving[number]
            self._drop(number)
        return done

    def _drop(self, number: int) -> None:
        mark = self._marks.pop(number, None)
        self._committed.pop(number, None)
        if mark is not None:
            self._book.seen[self.group.name, self._partition(number)] = mark.seen

    # Beginning

    def _place(self, number: int) -> None:
        if self._stream.deleted or self._stream.damaged is not None:
            return
        try:
            committed = self.group.committed(self._partition(number))
        except OffsetUnstableError:
            return  # with the next tick
        self._placing[number] = token = object()
        if committed is not None:
            self._begin(number, token, committed.offset)
        else:
            found = partial(self._found, number, token)
            self._stream.find(self._subscription, number, self._start, found)

    def _found(self, number: int, token: object, offset: int) -> None:
        if self._placing.get(number) is not token:
            return
        position = {self._partition(number): Position(offset)}
        try:
            self.group.commit(self.name, self._generation, position, self._book.now_ms())
        except GroupError:
            del self._placing[number]
            return
        self._book.write(self.group, partial(self._begin, number, token, offset))

    def _begin(self, number: int, token: object, offset: int) -> None:
        if self._placing.get(number) is not token or self._gone:
            return
        del self._placing[number]
        seen = self._book.seen.get((self.group.name, self._partition(number)), 0)
        self._marks[number] = mark = Watermark(offset, seen)
        self._committed[number] = offset
        self._read(number, mark)

    def _read(self, number: int, mark: Watermark) -> None:
        first = self._stream.partitions[number].first_offset
        self._stream.read(self._subscription, number, max(first, mark.resume), mark)

    # What the consumer says

    def progressed(self) -> None:
        self._book.commit_soon(self)

    def settled(self, places: list[tuple[int, int]]) -> None:
        for number, offsets in by_partition(places).items():
            if number in self._marks:
                self._marks[number].ack(offsets)
        self._moved_on()

    def returned(self, places: list[tuple[int, int]]) -> None:
        for number, offsets in by_partition(places).items():
            mark = self._marks.get(number)
            if mark is not None:
                mark.requeue(offsets)
                self._subscription.go_back(number, mark.resume)
        self._moved_on()

    def _moved_on(self) -> None:
        self._book.commit_soon(self)
        if any(not self._marks[number].held for number in self._leaving if number in self._marks):
            self._book.changed(self.group)

    def commit(self) -> None:
        """Commit how far it is done, where that is news."""
        found = {number: mark.position for number, mark in self._marks.items()}
        news = {number: at for number, at in found.items() if at != self._committed[number]}
        if not news:
            return
        positions = {self._partition(number): Position(at) for number, at in news.items()}
        try:
            self.group.commit(self.name, self._generation, positions, self._book.now_ms())
        except OffsetUnstableError:
            self._book.commit_soon(self)
        except GroupError:
            pass  # given up for dead: whoever comes after it begins where it had committed
        else:
            self._committed.update(news)

    # The end

    def dismiss(self) -> None:
        """It is no member any more."""
        self._forget()
        self._stream.dismiss(self._consumer)

    def left(self) -> None:
        """The consumer is gone. A static member stays one until it comes back or times out."""
        if self._gone:
            return
        self.commit()
        self._forget()
        if not self._is_static:
            with suppress(GroupError):
                self.group.leave(self.name, self._book.now_ms())
        self._book.changed(self.group)

    def _forget(self) -> None:
        self._gone = True
        for number in list(self._marks):
            self._drop(number)
        self._book.forget(self)


def by_partition(places: list[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for number, offset in places:
        found.setdefault(number, []).append(offset)
    return found
