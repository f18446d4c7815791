"""Records of a topic from where a session is, some of each partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from broker.protocol.stream_errors import OffsetOutOfRangeError, StreamError
from broker.topics.asking import WAIT_S, must_be_sound
from broker.topics.problems import UNAVAILABLE, TopicError
from broker.topics.records import show_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from queues.stream.reading import Batch
    from queues.stream.stream import Stream

READ_BYTES: Final = 256 * 1024  # at once; a chunk is read whole
ANSWER_BYTES: Final = 4 * 1024 * 1024  # of records in one answer, the last one beyond it


class Found(NamedTuple):
    """Records as JSON, and where to go on in the partitions that were looked at."""

    rows: list[dict[str, Any]]
    following: dict[int, int]


async def read_some(
    stream: Stream, positions: Mapping[int, int], numbers: Iterable[int], count: int
) -> Found:
    """Up to `count` records of these partitions, in that order. Raises TopicError."""
    rows: list[dict[str, Any]] = []
    following: dict[int, int] = {}
    room = ANSWER_BYTES
    for number in numbers:
        if len(rows) >= count or room <= 0:
            break
        reading = _Reading(stream, number, positions[number])
        room = await reading.fill(count - len(rows), room)
        rows += reading.rows
        following[number] = reading.offset
    return Found(rows, following)


class _Reading:
    def __init__(self, stream: Stream, number: int, offset: int) -> None:
        self._stream = stream
        self._number = number
        self.offset = offset
        self.rows: list[dict[str, Any]] = []

    async def fill(self, count: int, room: int) -> int:
        """Read on until there is enough or no more; how many bytes of `room` are left."""
        while len(self.rows) < count and room > 0:
            batch = await _read(self._stream, self._number, self.offset)
            if isinstance(batch, OffsetOutOfRangeError):
                # Retention took what is before; nothing can be read beyond the end.
                is_before = self.offset < batch.first_offset
                self.offset = batch.first_offset if is_before else batch.next_offset
                if not is_before:
                    break
                continue
            if isinstance(batch, StreamError):
                raise TopicError(UNAVAILABLE, str(batch), code="stream_damaged")
            if batch.next_offset <= self.offset:
                break
            room = self._take(batch, count, room)
        return room

    def _take(self, batch: Batch, count: int, room: int) -> int:
        topic = self._stream.name
        for chunk in batch.chunks:
            for record in chunk.slice(self.offset, batch.next_offset):
                if len(self.rows) == count or room <= 0:
                    self.offset = record.offset
                    return room
                self.rows.append(show_record(topic, self._number, record))
                room -= len(record.value or b"") + len(record.key or b"") + len(record.properties)
        self.offset = batch.next_offset
        return room


async def _read(stream: Stream, number: int, offset: int) -> Batch | StreamError:
    must_be_sound(stream)
    found: list[Batch | StreamError] = []
    done = trio.Event()

    def answer(batch: Batch | StreamError) -> None:
        found.append(batch)
        done.set()

    stream.partitions[number].reader.read(offset, READ_BYTES, answer)
    with trio.move_on_after(WAIT_S):
        await done.wait()
        return found[0]
    raise TopicError(UNAVAILABLE, "the disk took too long", code="unavailable")
