"""A message of a queue as JSON."""

from __future__ import annotations

import base64
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pamqp import commands

from broker.dead_letter import split_address
from broker.protocol.constants import FLAG_CLUSTER_ID

if TYPE_CHECKING:
    from queues.message import Message


def message_json(message: Message, *, body_bytes_max: int) -> dict[str, Any]:
    """Its place, address, properties and as much of the body as is asked for."""
    exchange, key = split_address(message.address)
    payload, encoding = text_of(bytes(message.body[:body_bytes_max]))
    return {
        "id": message.sequence,
        "exchange": exchange,
        "routing_key": key,
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
    properties = commands.Basic.Properties()
    properties.unmarshal(message.flags, message.frames[21 : 7 + message.header_bytes])
    found: dict[str, Any] = {
        name: plain_value(value) for name, value in properties if value is not None
    }
    if "message_type" in found:
        found["type"] = found.pop("message_type")
    if not message.flags & FLAG_CLUSTER_ID:
        found.pop("cluster_id", None)
    if message.delivery_count:
        headers = found.setdefault("headers", {})
        headers["x-delivery-count"] = message.delivery_count
    return found


def plain_value(value: object) -> object:
    """A field value in JSON's few types."""
    if isinstance(value, dict):
        return {str(name): plain_value(part) for name, part in value.items()}
    if isinstance(value, list):
        return [plain_value(part) for part in value]
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return float(value)
    return value
