"""The records that dead letters were made of, as long as their topics have them.

Spark has headers as text only, and so have dead letters. A replay takes them from the record.
"""

from collections.abc import Sequence
from typing import Final

from broker.protocol.chunk import Record
from broker.protocol.stream_errors import OffsetOutOfRangeError
from broker.protocol.stream_messages import Partition
from broker.protocol.stream_wire import END, Status
from clients.stream_errors import RefusedError
from clients.stream_reader import Slice, slices
from clients.streams import StreamClient
from spark.etl.dead_letters import moment_of
from spark.etl.letters_table import DeadLetter

FETCH_BYTES: Final = 256 * 1024
_NOT_FOR_US: Final = (Status.ACCESS_REFUSED, Status.STREAM_NOT_FOUND, Status.PARTITION_NOT_FOUND)
PARTITIONS_MAX: Final = 64  # whose last fetch is held: letters come by their ids, in turns


class Originals:
    def __init__(self, client: StreamClient) -> None:
        self._client = client
        self._held: dict[Partition, Sequence[Slice]] = {}

    def find(self, letter: DeadLetter) -> Record | None:
        """None if the topic has another record there, or none, or it may not be read."""
        place = Partition(letter.topic, letter.partition)
        record = _record_at(self._held.get(place, ()), letter.offset)
        if record is None:
            record = _record_at(self._fetch(place, letter.offset), letter.offset)
        return record if record is not None and _is_of(letter, record) else None

    def _fetch(self, place: Partition, offset: int) -> Sequence[Slice]:
        try:
            fetched = self._client.fetch(*place, offset, max_bytes=FETCH_BYTES)
        except OffsetOutOfRangeError:
            return ()
        except RefusedError as error:
            if error.status not in _NOT_FOR_US:
                raise
            return ()
        while len(self._held) >= PARTITIONS_MAX:
            del self._held[next(iter(self._held))]
        self._held[place] = slices(fetched, offset, END)
        return self._held[place]


def _record_at(held: Sequence[Slice], offset: int) -> Record | None:
    for piece in held:
        place = piece.chunk.place_of(offset)
        if piece.start <= place < piece.stop:
            record = piece.chunk.record(place)
            return record if record.offset == offset else None
    return None


def _is_of(letter: DeadLetter, record: Record) -> bool:
    """A topic that was declared again has other records at the same offsets."""
    is_then = letter.message_ms in (None, moment_of(record))
    return is_then and (record.key, record.value) == (letter.key, letter.raw_message)
