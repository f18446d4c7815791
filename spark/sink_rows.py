"""What a batch of Arrow rows says: which records, with which headers, for which partitions."""

from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
from pyarrow import compute

from broker.protocol.stream_properties import encode_properties
from spark.arrow_chunks import CHUNK_BYTES, Rows
from spark.errors import RowError

HEADER_NAME_BYTES_MAX: Final = 255  # as AMQP's tables have it

Numbers = np.ndarray[Any, Any]


class Part(NamedTuple):
    """Rows of a batch that go to one stream; `partitions` is -1 where no column says which."""

    rows: Rows
    partitions: Numbers | None


def by_topic(batch: Any, topic: str | None) -> dict[str, Part]:
    """All of it to `topic`, or each row to where it says. Raises RowError."""
    part = Part(_rows_of(batch), _partitions_of(batch))
    if topic is not None:
        return {topic: part} if len(part.rows) else {}
    topics = batch.column("topic")
    if topics.null_count:
        raise RowError("the column topic is null in a row, and there is no option topic")
    coded = topics.dictionary_encode()
    names = coded.dictionary.to_pylist()
    if len(names) == 1:
        return {names[0]: part}
    codes = coded.indices.to_numpy(zero_copy_only=False)
    return {name: _only(part, codes == code) for code, name in enumerate(names)}


def _only(part: Part, which: Numbers) -> Part:
    chosen = None if part.partitions is None else part.partitions[which]
    return Part(part.rows.take(np.flatnonzero(which)), chosen)


def _rows_of(batch: Any) -> Rows:
    names = batch.schema.names
    values = _binary(batch.column("value"))
    keys = _binary(batch.column("key")) if "key" in names else pa.nulls(len(values), pa.binary())
    if "headers" in names:
        properties = _properties_of(batch.column("headers"))
    else:
        properties = _no_properties(len(values))
    return Rows(keys, values, properties)


def _binary(array: Any) -> Any:
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _no_properties(count: int) -> Any:
    offsets = pa.py_buffer(bytes(4 * (count + 1)))
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(b"")])


def _properties_of(headers: Any) -> Any:
    """The one thing that is made row by row, for the rows that have headers."""
    counts = compute.fill_null(compute.list_value_length(headers), 0)
    if not compute.any(compute.greater(counts, 0)).as_py():
        return _no_properties(len(headers))
    made = [encode_properties(_table(each)) if each else b"" for each in headers.to_pylist()]
    return pa.array(made, pa.binary())


def _table(items: list[dict[str, Any] | None]) -> dict[str, object]:
    table: dict[str, object] = {}
    for item in items:
        name = None if item is None else item["key"]
        if item is None or name is None:
            raise RowError("a header of a row has no name")
        if len(name.encode()) > HEADER_NAME_BYTES_MAX:
            raise RowError(f"the name of a header has more than {HEADER_NAME_BYTES_MAX} bytes")
        if name in table:
            raise RowError(f"a row has the header {name!r} twice; AMQP has each of them once")
        table[name] = item["value"]
    return table


def _partitions_of(batch: Any) -> Numbers | None:
    if "partition" not in batch.schema.names:
        return None
    column = batch.column("partition").cast(pa.int64())
    if column.null_count == len(column):
        return None
    if compute.any(compute.less(column, 0)).as_py():
        raise RowError("a row is for a partition below 0")
    found: Numbers = compute.fill_null(column, -1).to_numpy(zero_copy_only=False)
    return found


class Spread:
    """Finds the partitions of one stream's rows, as all other clients do."""

    def __init__(self, topic: str, partitions: int, turn: int) -> None:
        """`turn`: the partition that the first rows without a key go to."""
        self._topic = topic
        self.count = partitions
        self._turn = turn % partitions

    def partitions_of(self, part: Part, sizes_bytes: Numbers) -> Numbers:
        """Of each row. Raises RowError."""
        chosen, rows = part.partitions, part.rows
        if chosen is not None and int(chosen.max(initial=-1)) >= self.count:
            raise RowError(
                f"a row is for partition {int(chosen.max())} of stream {self._topic!r}, which has "
                f"{self.count}: drop the column partition to have it chosen by key"
            )
        if self.count == 1:
            return np.zeros(len(rows), np.int64)
        if chosen is None:
            chosen = np.full(len(rows), -1, np.int64)
        found = np.array(chosen)
        keyed = rows.keys.is_valid().to_numpy(zero_copy_only=False)
        by_key = (found < 0) & keyed
        found[by_key] = self._of_keys(rows.keys, by_key)
        by_turn = found < 0
        found[by_turn] = self._of_turns(sizes_bytes[by_turn])
        return found

    def _of_keys(self, keys: Any, which: Numbers) -> list[int]:
        count = self.count
        chosen = keys if which.all() else keys.filter(pa.array(which))
        return [crc32(key) % count for key in chosen.to_pylist()]

    def _of_turns(self, sizes_bytes: Numbers) -> Numbers:
        """A chunk's worth of rows to each partition in turn."""
        if not len(sizes_bytes):
            return sizes_bytes
        blocks = np.cumsum(sizes_bytes) // CHUNK_BYTES
        found: Numbers = (self._turn + blocks) % self.count
        self._turn = (self._turn + int(blocks[-1]) + 1) % self.count
        return found
