"""Slices of chunks as Arrow batches of the columns that a query has; no Python for each record.

Headers are the exception, and only where asked for: properties that repeat are decoded once for
each batch.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from broker.protocol.stream_messages import Partition
from broker.protocol.stream_properties import decode_headers
from broker.protocol.tables import raw_text
from clients.stream_arrow import TYPES, ArrowBatches
from clients.stream_reader import Slice
from spark.columns import HEADERS

CREATE_TIME: Final = 0  # of timestampType: the time is that of the producer, as Kafka numbers it
_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS_ARROW: Final = pa.list_(pa.field("element", _HEADER))
_OTHER_TYPES: Final = {"timestampType": pa.int32(), HEADERS: HEADERS_ARROW}


class ArrowRows:
    """Makes batches of one partition."""

    def __init__(self, partition: Partition, columns: Sequence[str]) -> None:
        types = {**TYPES, **_OTHER_TYPES}
        self.schema = pa.schema([(name, types[name]) for name in columns])
        plain = [name for name in columns if name not in _OTHER_TYPES]
        if HEADERS in columns:
            plain.append("properties")
        self._plain = ArrowBatches(*partition, plain)

    def of(self, pieces: Sequence[Slice]) -> pa.RecordBatch:
        """One batch of them all."""
        batches = [self._batch(piece) for piece in pieces]
        if len(batches) == 1:
            return batches[0]
        table = pa.Table.from_batches(batches, self.schema).combine_chunks()
        return table.to_batches()[0]

    def _batch(self, piece: Slice) -> pa.RecordBatch:
        plain = self._plain.of(piece)
        arrays = [self._column(name, plain, piece) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, plain: pa.RecordBatch, piece: Slice) -> Any:
        if name == "timestampType":
            return pa.repeat(pa.scalar(CREATE_TIME, pa.int32()), piece.stop - piece.start)
        return headers_of(plain.column("properties")) if name == HEADERS else plain.column(name)


def headers_of(properties: pa.Array) -> pa.Array:
    """Null where a record has none."""
    encoded = properties.dictionary_encode()
    lists = [_headers(each) for each in encoded.dictionary.to_pylist()]
    return pa.array(lists, HEADERS_ARROW).take(encoded.indices)


def _headers(properties: bytes) -> list[tuple[str, bytes | None]] | None:
    try:
        headers = decode_headers(properties)
    except ValueError:  # made up by whoever wrote the chunk; AMQP consumers get none either
        return None
    return [(_name(name), _bytes(value)) for name, value in headers.items()] or None


def _name(name: str) -> str:
    """AMQP allows any bytes, and Spark only text."""
    return raw_text(name).decode("utf-8", "replace")


def _bytes(value: object) -> bytes | None:
    """Text and bytes as they are; what else AMQP has as text, and tables and lists as JSON."""
    match value:
        case None:
            return None
        case bytes() | bytearray():
            return bytes(value)
        case datetime() | Decimal() | str():
            return _text(value).encode()
        case _:
            return json.dumps(value, default=_text).encode()


def _text(value: object) -> str:
    match value:
        case bytes() | bytearray():
            return value.decode("utf-8", "replace")
        case datetime():
            return value.isoformat()
        case _:
            return str(value)
