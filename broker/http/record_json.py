"""A record of a stream as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.http.message_json import plain_value, text_of

if TYPE_CHECKING:
    from broker.protocol.chunk import Record


def record_json(partition: int, record: Record) -> dict[str, Any]:
    row: dict[str, Any] = {
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "headers": _headers(record),
    }
    for name, data in (("key", record.key), ("value", record.value)):
        if data is None:
            row |= {name: None}
        else:
            row[name], row[f"{name}_encoding"] = text_of(data)
    return row


def _headers(record: Record) -> object:
    try:
        return plain_value(record.headers)
    except ValueError:
        return {}  # a producer may write anything there
