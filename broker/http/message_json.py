"""A message of a queue as JSON."""

from __future__ import annotations

import base64
import re
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from broker.dead_letter import split_address
from broker.protocol import constants
from broker.protocol.constants import (
    FLAG_DELIVERY_MODE,
    FLAG_HEADERS,
    FLAG_PRIORITY,
    FLAG_TIMESTAMP,
)
from broker.protocol.tables import decode_table, text

if TYPE_CHECKING:
    from queues.message import Message

# By flag, as RabbitMQ's API calls them: FLAG_CONTENT_TYPE is content_type.
_NAMES: Final = {
    value: name.removeprefix("FLAG_").lower()
    for name, value in vars(constants).items()
    if name.startswith("FLAG_")
}
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_NUMBERS: Final = frozenset({FLAG_DELIVERY_MODE, FLAG_PRIORITY, FLAG_TIMESTAMP})


def message_json(message: Message, *, body_bytes_max: int) -> dict[str, Any]:
    """Its place, address, properties and as much of the body as is asked for."""
    exchange, key = split_address(message.address)
    payload, encoding = text_of(bytes(message.body[:body_bytes_max]))
    return {
        "id": message.sequence,
        "exchange": readable(exchange),
        "routing_key": readable(key),
        "redelivered": message.redelivered,
        "delivery_count": message.delivery_count,
        "properties": properties_json(message),
        "payload": payload,
        "payload_encoding": encoding,
        "payload_bytes": message.body_bytes,
    }


def text_of(data: bytes) -> tuple[str, str]:
    """Bytes as JSON can hold them, and how: "string" or "base64"."""
    try:
        return data.decode(), "string"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def properties_json(message: Message) -> dict[str, Any]:
    """By the names that RabbitMQ's API gives them."""
    found: dict[str, Any] = {}
    for flag, raw in message.properties().items():
        name = _NAMES[flag]
        if flag == FLAG_HEADERS:
            found[name] = plain_value(decode_table(raw)[0])
        elif flag in _NUMBERS:
            found[name] = int.from_bytes(raw, "big")
        else:
            found[name] = readable(text(raw[1:]))
    if message.delivery_count:
        headers = found.setdefault("headers", {})
        headers["x-delivery-count"] = message.delivery_count
    return found


def plain_value(value: object) -> object:
    """A field value in JSON's few types."""
    if isinstance(value, dict):
        return {readable(str(name)): plain_value(part) for name, part in value.items()}
    if isinstance(value, list):
        return [plain_value(part) for part in value]
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and not isfinite(value):
        return str(value)  # "nan", "inf": JSON has no number for it
    if isinstance(value, str):
        return readable(value)
    return value


def readable(value: str) -> str:
    """A text that any reader takes: bytes that are not UTF-8 (see `tables.text`) are replaced."""
    return value if value.isascii() else _SURROGATES.sub("\ufffd", value)
