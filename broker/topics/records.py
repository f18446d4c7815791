"""A record of a topic as JSON, both ways.

{"key": text or null, "value": base64 or null, "headers": {…}}; a key that is not text is base64,
and `keyEncoding` says so. AMQP clients find the key in the header `x-partition-key`, as they would
have sent it; over HTTP that is not among the headers. A null value is a tombstone.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.http.message_json import plain_value, text_of
from broker.protocol.stream_properties import encode_properties
from broker.topics.fields import number_in, only
from broker.topics.problems import TopicError, bad_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.protocol.chunk import Record

KEY_HEADER: Final = "x-partition-key"
KEY_BYTES_MAX: Final = 64 * 1024
# A chunk is kept whole up to 8 MiB; this is below, whatever stands around the record in it.
RECORD_BYTES_MAX: Final = 7 * 1024 * 1024
PARTITION_MAX: Final = 2**32 - 1
_KNOWN: Final = ("key", "keyEncoding", "value", "headers", "partition")
_TEXT: Final = "string"
_BASE64: Final = "base64"


class NewRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    properties: bytes
    partition: int | None  # None: where its key leads

    @property
    def size_bytes(self) -> int:
        return len(self.key or b"") + len(self.value or b"") + len(self.properties)


def read_record(body: object, topic: str, bytes_max: int) -> NewRecord:
    """Raises TopicError."""
    if not isinstance(body, dict):
        raise bad_request("a record is a JSON object")
    only(body, _KNOWN)
    key, value = _key(body), _value(body)
    headers = body.get("headers")
    if headers is None:
        headers = {}
    if not isinstance(headers, dict):
        raise bad_request("headers: it must be an object")
    if key is not None:  # as a byte array where it is no text
        text, encoding = text_of(key)
        headers = {**headers, KEY_HEADER: text if encoding == _TEXT else bytearray(key)}
    try:
        properties = encode_properties(headers, routing_key=topic)
    except (ValueError, OverflowError, RecursionError, TypeError) as error:
        raise bad_request(f"headers: {error}") from None
    partition = number_in(body, "partition", None, least=0, most=PARTITION_MAX)
    record = NewRecord(key, value, properties, partition)
    most = min(bytes_max, RECORD_BYTES_MAX)
    if record.size_bytes > most:
        raise TopicError(413, f"a record of more than {most} bytes", code="record_too_large")
    return record


def _key(body: Mapping[str, Any]) -> bytes | None:
    key, encoding = body.get("key"), body.get("keyEncoding", _TEXT)
    if encoding not in (_TEXT, _BASE64):
        raise bad_request(f"keyEncoding: {encoding!r} is neither string nor base64")
    if key is None:
        return None
    if not isinstance(key, str):
        raise bad_request("key: it must be a text")
    try:
        found = key.encode() if encoding == _TEXT else _decoded("key", key)
    except UnicodeEncodeError:
        raise bad_request("key: half of a character") from None
    if len(found) > KEY_BYTES_MAX:
        raise bad_request(f"key: more than {KEY_BYTES_MAX} bytes")
    return found


def _value(body: Mapping[str, Any]) -> bytes | None:
    if "value" not in body:
        raise bad_request("value: it is needed; null is a tombstone")
    value = body["value"]
    if value is None:
        return None
    if not isinstance(value, str):
        raise bad_request("value: it must be base64")
    return _decoded("value", value)


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise bad_request(f"{name}: it is not base64") from None


def show_record(topic: str, partition: int, record: Record) -> dict[str, Any]:
    value = None if record.value is None else base64.b64encode(record.value).decode()
    key, encoding = (None, _TEXT) if record.key is None else text_of(record.key)
    headers = _headers(record)
    if key is not None and headers.get(KEY_HEADER) == key:
        del headers[KEY_HEADER]
    row = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": key,
        "value": value,
        "headers": headers,
    }
    return row if encoding == _TEXT else row | {"keyEncoding": encoding}


def _headers(record: Record) -> dict[str, Any]:
    try:
        found = plain_value(record.headers)
    except ValueError:
        return {}  # a producer may write anything there
    return found if isinstance(found, dict) else {}
