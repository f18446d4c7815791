"""The properties of a message: plain values here, raw content headers on the wire."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypedDict, cast

from broker.protocol.constants import (
    FLAG_APP_ID,
    FLAG_CLUSTER_ID,
    FLAG_CONTENT_ENCODING,
    FLAG_CONTENT_TYPE,
    FLAG_CORRELATION_ID,
    FLAG_DELIVERY_MODE,
    FLAG_EXPIRATION,
    FLAG_HEADERS,
    FLAG_MESSAGE_ID,
    FLAG_PRIORITY,
    FLAG_REPLY_TO,
    FLAG_TIMESTAMP,
    FLAG_TYPE,
    FLAG_USER_ID,
)
from broker.protocol.content import split_properties
from broker.protocol.tables import FieldValue, decode_table, encode_table, raw_text, text

PERSISTENT: Final = 2
TRANSIENT: Final = 1
SHORT_STRING_BYTES_MAX: Final = 255


class PropertyArguments(TypedDict, total=False):
    """The properties as keyword arguments of `publish`."""

    content_type: str | None
    content_encoding: str | None
    headers: Mapping[str, FieldValue] | None
    delivery_mode: int | None
    priority: int | None
    correlation_id: str | None
    reply_to: str | None
    expiration: str | None
    message_id: str | None
    timestamp: int | None
    type: str | None
    user_id: str | None
    app_id: str | None
    cluster_id: str | None


@dataclass(frozen=True, slots=True)
class Properties:
    """What is None is not sent. Messages survive a restart of the broker unless told otherwise."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Mapping[str, FieldValue] | None = None
    delivery_mode: int | None = PERSISTENT
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None  # milliseconds, as a text
    message_id: str | None = None
    timestamp: int | None = None  # seconds since 1970
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


_FLAGS: Final = {
    "content_type": FLAG_CONTENT_TYPE,
    "content_encoding": FLAG_CONTENT_ENCODING,
    "headers": FLAG_HEADERS,
    "delivery_mode": FLAG_DELIVERY_MODE,
    "priority": FLAG_PRIORITY,
    "correlation_id": FLAG_CORRELATION_ID,
    "reply_to": FLAG_REPLY_TO,
    "expiration": FLAG_EXPIRATION,
    "message_id": FLAG_MESSAGE_ID,
    "timestamp": FLAG_TIMESTAMP,
    "type": FLAG_TYPE,
    "user_id": FLAG_USER_ID,
    "app_id": FLAG_APP_ID,
    "cluster_id": FLAG_CLUSTER_ID,
}
assert list(_FLAGS) == [field.name for field in fields(Properties)]
_NAMES: Final = {flag: name for name, flag in _FLAGS.items()}
_SIZES: Final = {FLAG_DELIVERY_MODE: 1, FLAG_PRIORITY: 1, FLAG_TIMESTAMP: 8}


def encode_properties(properties: Properties) -> tuple[int, bytes]:
    """The flags, and the values in wire order. Raises ValueError for what does not fit."""
    flags = 0
    pieces: list[bytes] = []
    for name, flag in _FLAGS.items():
        value = getattr(properties, name)
        if value is not None:
            flags |= flag
            pieces.append(_encode(name, flag, value))
    return flags, b"".join(pieces)


def _encode(name: str, flag: int, value: Any) -> bytes:
    if flag == FLAG_HEADERS:
        return encode_table(value)
    size = _SIZES.get(flag)
    if size is None:
        return encode_short(value, name)
    try:
        return int(value).to_bytes(size, "big")
    except OverflowError:
        raise ValueError(f"{name} does not fit {size} byte(s): {value}") from None


def encode_short(value: str, name: str) -> bytes:
    """A short string. Raises ValueError, with the name, if it is not short."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is text, not {type(value).__name__}")
    raw = raw_text(value)
    if len(raw) > SHORT_STRING_BYTES_MAX:
        raise ValueError(f"{name} is longer than {SHORT_STRING_BYTES_MAX} bytes")
    return bytes((len(raw),)) + raw


def decode_properties(flags: int, frames: bytes, header_bytes: int) -> Properties:
    """Of a content header as it came. Raises ValueError if it is malformed."""
    raw = split_properties(flags, frames, header_bytes)
    found: dict[str, Any] = {"delivery_mode": None}
    for flag, value in raw.items():
        if flag == FLAG_HEADERS:
            found["headers"] = decode_table(value)[0]
        elif flag in _SIZES:
            found[_NAMES[flag]] = int.from_bytes(value, "big")
        else:
            found[_NAMES[flag]] = text(value[1:])
    return Properties(**cast("PropertyArguments", found))
