"""Rows in Arrow's buffers as chunks for a stream: columns are copied whole, never row by row."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import compute

from broker.protocol.chunk import Column, encode_columns
from clients.stream_batches import BATCH_RECORDS, RECORD_BYTES_MAX
from spark.errors import RowError

# Readers like large chunks; a broker handles a chunk at once, while everybody else waits.
CHUNK_BYTES: Final = 2 * 1024 * 1024
_ROW_BYTES: Final = 24  # what a row costs in a chunk beside its key, value and properties


class Rows(NamedTuple):
    """Binary arrays of the same length, without chunks of their own."""

    keys: Any
    values: Any
    properties: Any  # nothing in it is null

    def __len__(self) -> int:
        return len(self.values)

    def take(self, places: np.ndarray[Any, Any]) -> "Rows":
        """The rows at these places, in this order."""
        return Rows(*(each.take(pa.array(places)) for each in self))

    def cut(self, start: int, stop: int) -> "Rows":
        return Rows(*(each.slice(start, stop - start) for each in self))

    def sizes_bytes(self) -> np.ndarray[Any, Any]:
        """Of each row in a chunk. Raises RowError for one that no chunk can hold."""
        sizes = np.full(len(self), _ROW_BYTES, np.int64)
        for each in self:
            sizes += _lengths(each)
        largest = int(sizes.max(initial=0))
        if largest > RECORD_BYTES_MAX:
            raise RowError(f"a row of {largest} bytes; a stream takes {RECORD_BYTES_MAX} at most")
        return sizes

    def chunk(self, time_ms: int) -> bytes:
        columns = [_column(each) for each in self]
        return encode_columns(len(self), time_ms, *columns)


def pieces(ends_bytes: np.ndarray[Any, Any], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Where to cut these rows into chunks; `ends_bytes` sums up the sizes of all rows."""
    while start < stop:
        before = int(ends_bytes[start - 1]) if start else 0
        fitting = int(np.searchsorted(ends_bytes, before + CHUNK_BYTES, "right"))
        end = min(max(fitting, start + 1), start + BATCH_RECORDS, stop)
        yield start, end
        start = end


def _lengths(array: Any) -> np.ndarray[Any, Any]:
    lengths = compute.fill_null(compute.binary_length(array), 0)
    found: np.ndarray[Any, Any] = lengths.to_numpy(zero_copy_only=False)
    return found


def _column(array: Any) -> Column:
    """The buffers of a binary array, cut to what is its own."""
    _, offsets, blob = array.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset)
    start, stop = int(bounds[0]), int(bounds[-1])
    validity = None
    if array.null_count:
        bits = np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
        validity = bits.data
    view = memoryview(b"") if blob is None else memoryview(blob)[start:stop]
    return Column(validity, (bounds - bounds[0]).data, view)
