"""Chunks as Arrow batches, made of the chunks' own buffers: no record is touched in Python.

Columns are named and typed as Spark's Kafka source does it: key and value binary, topic string,
partition int32, offset int64, timestamp timestamp[us, UTC]. `properties`, where asked for, is the
binary that broker.protocol.stream_properties reads.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import compute

from broker.protocol.chunk import Column

if TYPE_CHECKING:
    from clients.stream_reader import Slice

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp")
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "properties": pa.binary(),
}


class ArrowBatches:
    """Makes batches of one partition. Constant columns are made once and sliced."""

    def __init__(self, stream: str, partition: int, columns: Sequence[str] = COLUMNS) -> None:
        self.schema = pa.schema([(name, TYPES[name]) for name in columns])
        self._constants = {
            "topic": pa.scalar(stream, pa.string()),
            "partition": pa.scalar(partition, pa.int32()),
        }
        self._repeated: dict[str, Any] = {}
        self._places = pa.array([], pa.int64())  # 0, 1, 2 …

    def of(self, piece: "Slice") -> "pa.RecordBatch":
        arrays = [self._column(name, piece) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, piece: "Slice") -> Any:
        chunk, start, stop = piece
        count = len(chunk)
        if name == "key":
            whole = _binary(chunk.keys, count)
        elif name == "value":
            whole = _binary(chunk.values, count)
        elif name == "properties":
            whole = _binary(chunk.properties, count)
        elif name == "offset":
            whole = self._offsets(piece)
        elif name == "timestamp":
            buffers = [None, pa.py_buffer(chunk.timestamps)]
            milliseconds = pa.Array.from_buffers(pa.timestamp("ms", tz="UTC"), count, buffers)
            whole = milliseconds.cast(TIMESTAMP)
        else:
            return self._repeat(name, stop - start)
        return whole if stop - start == count else whole.slice(start, stop - start)

    def _repeat(self, name: str, count: int) -> Any:
        known = self._repeated.get(name)
        if known is None or len(known) < count:
            known = self._repeated[name] = pa.repeat(self._constants[name], count)
        return known if len(known) == count else known.slice(0, count)

    def _offsets(self, piece: "Slice") -> Any:
        chunk = piece.chunk
        count = len(chunk)
        relative = chunk.relative_offsets
        if relative is not None:
            buffers = [None, pa.py_buffer(relative)]
            places = pa.Array.from_buffers(pa.uint32(), count, buffers).cast(pa.int64())
        else:
            if len(self._places) < count:
                self._places = pa.array(range(count), pa.int64())
            places = self._places.slice(0, count)
        return compute.add(places, chunk.header.base_offset)


def _binary(column: Column, count: int) -> Any:
    buffers = [
        None if column.validity is None else pa.py_buffer(column.validity),
        pa.py_buffer(column.offsets),
        pa.py_buffer(column.blob),
    ]
    return pa.Array.from_buffers(pa.binary(), count, buffers)
