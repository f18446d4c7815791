"""What a task does: fetch a range of offsets and hand it to Spark as Arrow batches.

A broker that is away is waited for, and the read goes on where it was: nothing comes twice.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from broker.protocol.stream_errors import OffsetOutOfRangeError
from broker.protocol.stream_wire import Status
from clients.stream_errors import ConnectionLostError, RefusedError, StreamReplacedError
from clients.stream_reader import Reader, Slice
from spark.addressing import Broker
from spark.arrow_rows import ArrowRows
from spark.connections import Patience, client
from spark.errors import DataLossError
from spark.losses import Losses
from spark.planning import Range

# Small chunks are put together until a batch has so much: each costs the JVM some.
BATCH_BYTES: Final = 1024 * 1024
_GONE: Final = (Status.STREAM_NOT_FOUND, Status.PARTITION_NOT_FOUND)


def read_range(
    broker: Broker, losses: Losses, columns: Sequence[str], part: Range
) -> Iterator[pa.RecordBatch]:
    rows = ArrowRows(part.partition, columns)
    held: list[Slice] = []
    held_bytes = 0
    for piece in _Pieces(broker, losses, part):
        held.append(piece)
        held_bytes += piece.chunk.header.size_bytes
        if held_bytes >= BATCH_BYTES:
            yield rows.of(held)
            held, held_bytes = [], 0
    if held:
        yield rows.of(held)


class _Pieces:
    """The slices of a range, however often the connection is lost."""

    def __init__(self, broker: Broker, losses: Losses, part: Range) -> None:
        self._broker = broker
        self._losses = losses
        self._part = part
        self._offset = part.start
        self._patience = Patience(broker)

    def __iter__(self) -> Iterator[Slice]:
        while self._offset < self._part.end:
            reader = client(self._broker).reader(
                *self._part.partition,
                self._offset,
                end=self._part.end,
                wait_ms=0,
                uid=self._part.uid,
            )
            try:
                yield from self._of(reader)
                short: Exception = self._not_there()
            except (OffsetOutOfRangeError, ConnectionLostError, RefusedError) as error:
                short = error
            if self._offset < self._part.end:
                self._go_on_after(short)

    def _of(self, reader: Reader) -> Iterator[Slice]:
        try:
            for piece in reader.slices():
                self._offset = reader.offset
                self._patience.renew()
                yield piece
        finally:
            self._offset = reader.offset

    def _go_on_after(self, error: Exception) -> None:
        """Skip what is gone, or wait; raises what cannot be helped."""
        partition = self._part.partition
        if isinstance(error, OffsetOutOfRangeError) and error.offset < error.first_offset:
            self._losses.overtaken(partition, error.offset, error.first_offset)
            self._offset = min(error.first_offset, self._part.end)
        elif isinstance(error, StreamReplacedError):
            self._losses.replaced(partition.stream)
            self._offset = self._part.end
        elif isinstance(error, RefusedError) and error.status in _GONE:
            self._losses.no_longer_there(f"{partition.stream!r} partition {partition.number}")
            self._offset = self._part.end
        else:  # away; or another node that does not have it all yet
            self._patience.wait_after(error)

    def _not_there(self) -> DataLossError:
        partition = self._part.partition
        return DataLossError(
            f"stream {partition.stream!r} partition {partition.number} ends at offset "
            f"{self._offset} now; it had records up to {self._part.end}"
        )
