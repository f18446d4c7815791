"""Records on their way into chunks: one batch for each partition, sealed when it is large."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from zlib import crc32

from broker.protocol.chunk import Producer, encode_chunk
from broker.protocol.stream_properties import encode_properties

if TYPE_CHECKING:
    from clients.amqp_promise import Promise

# Large chunks cost the broker and its readers least; a batch is in memory three times meanwhile.
BATCH_BYTES: Final = 1024 * 1024
BATCH_RECORDS: Final = 16_384
RECORD_BYTES_MAX: Final = 7 * 1024 * 1024  # a chunk of one record fits into a request


class Batch:
    """Columns of a chunk to be."""

    __slots__ = ("keys", "properties", "receipts", "size_bytes", "times_ms", "values")

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.properties: list[bytes] = []
        self.times_ms: list[int] = []
        self.receipts: list[tuple[int, Promise]] = []  # for the offsets of some of the records
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self.keys)

    def chunk(self, producer: Producer | None = None) -> bytes:
        return encode_chunk(
            self.keys, self.values, self.properties, self.times_ms, producer=producer
        )


class Batches:
    """The open batches of one stream."""

    def __init__(self, partitions: int, batch_bytes: int = BATCH_BYTES) -> None:
        assert partitions > 0, partitions
        self._partitions = partitions
        self._batch_bytes = batch_bytes
        self._open: dict[int, Batch] = {}
        self.size_bytes = 0  # of those that are open
        self._turn = 0  # where records without a key go, a batch at a time

    def partition_of(self, key: bytes | None) -> int:
        """As the broker finds it."""
        return self._turn if key is None else crc32(key) % self._partitions

    def add(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Mapping[str, object] | None,
        partition: int | None,
    ) -> int | None:
        """The partition whose batch is to be taken now, if that is so.

        Raises what is wrong with a record here, where others in its batch do not suffer from it.
        """
        if isinstance(value, str) or isinstance(key, str):
            raise TypeError("keys and values are bytes, not str")
        if partition is None:
            partition = self.partition_of(key)
        elif not 0 <= partition < self._partitions:
            raise ValueError(f"there is no partition {partition}")
        body_bytes = len(value or b"")
        properties = encode_properties(headers) if headers else b""
        size = body_bytes + len(key or b"") + len(properties)
        if size > RECORD_BYTES_MAX:
            raise ValueError(f"a record of {size} bytes; {RECORD_BYTES_MAX} are allowed")
        batch = self._open.get(partition)
        if batch is None:
            batch = self._open[partition] = Batch()
        batch.keys.append(key)
        batch.values.append(value)
        batch.properties.append(properties)
        batch.times_ms.append(time.time_ns() // 1_000_000)
        batch.size_bytes += size
        self.size_bytes += size
        if batch.size_bytes >= self._batch_bytes or len(batch) >= BATCH_RECORDS:
            return partition
        return None

    def take(self, partition: int) -> Batch:
        if partition == self._turn:
            self._turn = (self._turn + 1) % self._partitions
        batch = self._open.pop(partition)
        self.size_bytes -= batch.size_bytes
        return batch

    def batch(self, partition: int) -> Batch:
        return self._open[partition]

    def open_partitions(self) -> list[int]:
        return sorted(self._open)
