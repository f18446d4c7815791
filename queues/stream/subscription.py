"""One consumer of a stream: where it stands in each partition, and what it gets next.

A cursor stands in one partition. It is *dry* when it has nothing to give and nobody looks for more,
reads, waits at the partition's end, or is in `_turns` because it has records. Cursors give in turn,
a slice each, and whoever gave goes to the end of the line: none has to wait for another for longer
than that. What is read depends on the consumer's room only, so that a reader that stands still
costs no more than a chunk or two.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from broker.protocol.chunk import Chunk
from broker.protocol.stream_errors import OffsetOutOfRangeError, StreamError
from queues.consumers import Consumer
from queues.stream.errors import StreamDeletedError
from queues.stream.filtering import HeaderFilter
from queues.stream.partition import StreamPartition
from queues.stream.reading import Batch
from queues.stream.watermark import Watermark

# Read at once, and as much again while the first is being delivered.
READ_BYTES: Final = 1024 * 1024
READ_BYTES_FLOOR: Final = 64 * 1024  # of each of many partitions
# Given in one go by a cursor, where others wait for their turn.
SLICE_RECORDS: Final = 256
SLICE_BYTES: Final = 256 * 1024
# Looked at before others have their turn on the loop: a filter may let nothing pass.
LOOKED_AT_MAX: Final = 16_384


class Records(NamedTuple):
    """A run of records of one partition, as columns."""

    partition: int
    offsets: Sequence[int]
    properties: list[bytes]
    values: list[bytes | None]
    redelivered: bool = False


class Membership(Protocol):
    """Of a consumer that reads for a group."""

    def progressed(self) -> None:
        """Records were passed by."""
        ...

    def settled(self, places: list[tuple[int, int]]) -> None:
        """The consumer is done with records: partitions and offsets."""
        ...

    def returned(self, places: list[tuple[int, int]]) -> None:
        """The consumer gives records back, to be delivered again."""
        ...

    def left(self) -> None:
        """The consumer is gone."""
        ...


class PartitionEnd:
    """Who waits at the end of a partition for more; to the partition it is the stream."""

    __slots__ = ("_damage", "_repaired", "_touched", "waiting")

    def __init__(
        self,
        touched: Callable[[], None],
        damage: Callable[[str], None],
        repaired: Callable[[], None],
    ) -> None:
        self._touched = touched
        self._damage = damage
        self._repaired = repaired
        self.waiting: dict[Cursor, None] = {}

    def advanced(self) -> None:
        self._touched()
        if self.waiting:
            waiting, self.waiting = self.waiting, {}
            for cursor in waiting:
                cursor.subscription.dried(cursor)

    def damage(self, reason: str) -> None:
        self._damage(reason)

    def repaired(self) -> None:
        self._repaired()


class Cursor:
    """Where a subscription stands in one partition."""

    __slots__ = (
        "chunks",
        "end",
        "mark",
        "next",
        "number",
        "partition",
        "place",
        "read_to",
        "reading",
        "subscription",
    )

    def __init__(
        self,
        subscription: "Subscription",
        number: int,
        partition: StreamPartition,
        end: PartitionEnd,
        offset: int,
        mark: Watermark | None = None,
    ) -> None:
        self.subscription = subscription
        self.number = number
        self.partition = partition
        self.end = end
        self.mark = mark  # of a member of a group
        self.next = offset  # to be delivered next; may be one that is not written yet
        self.read_to = offset  # up to here it was read
        self.chunks: deque[Chunk] = deque()
        self.place = 0  # in the first of them
        self.reading = False

    def take(self, chunks: Iterable[Chunk]) -> None:
        """Chunks that were read."""
        had_some = bool(self.chunks)
        self.chunks.extend(chunks)
        if not had_some:
            self._find_place()

    def passed(self, stop: int) -> None:
        """The records of the first chunk up to this place were looked at."""
        self.next = self.chunks[0].offset_of(stop - 1) + 1
        self.place = stop
        if stop == self.chunks[0].header.records:
            self._find_place()

    def _find_place(self) -> None:
        """Go on to the next record, in whichever chunk it is.

        One may begin with records that were delivered: small chunks are merged meanwhile.
        """
        while self.chunks:
            self.place = self.chunks[0].place_of(self.next)
            if self.place < self.chunks[0].header.records:
                return
            self.chunks.popleft()
        self.next = max(self.next, self.read_to)


class Later(Protocol):
    """Calls back behind what others have to do."""

    def __call__(self, callback: Callable[[], None]) -> None: ...


class Subscription:
    """Feeds a consumer as its credit allows. Nothing here awaits."""

    def __init__(
        self,
        consumer: Consumer,
        wanted: HeaderFilter | None,
        later: Later,
        failed: "Callable[[Subscription, StreamError], None]",
    ) -> None:
        self.consumer = consumer
        self.member: Membership | None = None  # if it reads for a group
        self._wanted = wanted
        self._later = later
        self._failed = failed
        self.cursors: dict[int, Cursor] = {}
        self._turns: deque[Cursor] = deque()  # those that have records
        self._dry: dict[Cursor, None] = {}
        self._pumping = False
        self._read_bytes = READ_BYTES
        self.started = False  # it may be delivered to
        self.closed = False

    def add(
        self,
        number: int,
        partition: StreamPartition,
        end: PartitionEnd,
        offset: int,
        mark: Watermark | None = None,
    ) -> None:
        """Read a partition too, from this offset on; `pump` begins it."""
        assert number not in self.cursors
        cursor = self.cursors[number] = Cursor(self, number, partition, end, offset, mark)
        self._dry[cursor] = None
        self._read_bytes = max(READ_BYTES_FLOOR, READ_BYTES // len(self.cursors))

    def remove(self, number: int) -> int:
        """Read a partition no more; the offset that would have been delivered next."""
        cursor = self.cursors.pop(number)
        self._dry.pop(cursor, None)
        cursor.end.waiting.pop(cursor, None)
        if cursor in self._turns:
            self._turns.remove(cursor)
        return cursor.next

    def close(self) -> None:
        self.closed = True
        for number in list(self.cursors):
            self.remove(number)
        if self.member is not None:
            self.member.left()

    def go_back(self, number: int, offset: int) -> None:
        """Look at records of a partition again, from this offset on."""
        cursor = self.cursors.get(number)
        if cursor is not None and offset < cursor.next:
            self.remove(number)
            self.add(number, cursor.partition, cursor.end, offset, cursor.mark)

    @property
    def lag(self) -> int:
        ends = [cursor.partition.next_offset - cursor.next for cursor in self.cursors.values()]
        return sum([max(0, behind) for behind in ends])

    def dried(self, cursor: Cursor) -> None:
        """A cursor has nothing, and there may be something for it."""
        self._dry[cursor] = None
        self.pump()

    def pump(self) -> None:
        """Deliver as much as there is and as the consumer takes."""
        if self._pumping or self.closed or not self.started:
            return
        self._pumping = True
        looked_at = 0
        try:
            while (room := self.consumer.room()) > 0:
                for cursor in list(self._dry):
                    self._read(cursor)
                if not self._turns:
                    break
                if looked_at > LOOKED_AT_MAX:
                    self._later(self.pump)
                    break
                cursor = self._turns.popleft()
                looked_at += self._give(cursor, room)
                if cursor.chunks:
                    self._turns.append(cursor)
                if len(cursor.chunks) < 2 and not cursor.reading:
                    self._dry[cursor] = None  # also if there is some left: the next is read ahead
        finally:
            self._pumping = False

    # Reading

    def _read(self, cursor: Cursor) -> None:
        del self._dry[cursor]
        if cursor.read_to >= cursor.partition.stable_end:
            if not cursor.chunks:
                cursor.end.waiting[cursor] = None
            return
        cursor.reading = True
        arrived = partial(self._arrived, cursor)
        cursor.partition.reader.read(cursor.read_to, self._read_bytes, arrived)

    def _arrived(self, cursor: Cursor, result: Batch | StreamError) -> None:
        cursor.reading = False
        if self.closed or self.cursors.get(cursor.number) is not cursor:
            return
        if isinstance(result, OffsetOutOfRangeError):
            # Retention went past it: it goes on with the oldest that there is.
            cursor.read_to = max(cursor.read_to, result.first_offset)
            cursor.take(())
        elif isinstance(result, StreamDeletedError):
            return
        elif isinstance(result, StreamError):
            self._failed(self, result)
            return
        else:
            had_some = bool(cursor.chunks)
            cursor.read_to = result.next_offset
            cursor.take(result.chunks)
            if cursor.chunks and not had_some:
                self._turns.append(cursor)
        if not cursor.chunks:
            self._passed(cursor, ())
            self._dry[cursor] = None
        self.pump()

    # Giving

    def _give(self, cursor: Cursor, room: int) -> int:
        """Deliver a slice of a cursor's first chunk; how many records were looked at."""
        chunk, start = cursor.chunks[0], cursor.place
        records = chunk.header.records
        most = max(1, SLICE_BYTES * records // chunk.header.body_bytes)
        if len(self.cursors) > 1:
            most = min(most, SLICE_RECORDS)
        stop = min(records, start + most, start + room)
        mark = cursor.mark
        if mark is not None and cursor.next < mark.seen:  # all of a slice is redelivered, or none
            stop = max(start + 1, min(stop, chunk.place_of(mark.seen)))
        properties: list[bytes] = chunk.properties.items(start, stop)  # type: ignore[assignment]
        places: Sequence[int] = range(start, stop)
        if self._wanted is not None:
            wants = self._wanted.wants
            places = [place for place, one in enumerate(properties, start) if wants(one)]
        if mark is not None and cursor.next < mark.next:
            places = [place for place in places if mark.wants(chunk.offset_of(place))]
        offsets: Sequence[int] = ()
        if places:
            if len(places) != len(properties):
                properties = [properties[place - start] for place in places]
            offsets = self._deliver(chunk, cursor, places, properties)
        cursor.passed(stop)
        self._passed(cursor, offsets)
        return stop - start

    def _passed(self, cursor: Cursor, delivered: Sequence[int]) -> None:
        if cursor.mark is not None and self.member is not None:
            cursor.mark.passed(delivered, cursor.next)
            self.member.progressed()

    def _deliver(
        self, chunk: Chunk, cursor: Cursor, places: Sequence[int], properties: list[bytes]
    ) -> Sequence[int]:
        values = chunk.values.items(places[0], places[-1] + 1)
        if len(values) != len(places):
            values = [values[place - places[0]] for place in places]
        offsets = chunk.offsets_of(places)
        self.consumer.hold(len(places))
        redelivered = cursor.mark is not None and offsets[0] < cursor.mark.seen
        records = Records(cursor.number, offsets, properties, values, redelivered)
        self.consumer.sink.deliver_records(self.consumer, records)
        return offsets
