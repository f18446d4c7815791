"""A message as JSON, with the names that RabbitMQ's management API has, and back again.

    {"exchange": "", "routing_key": "orders", "redelivered": false,
     "properties": {"delivery_mode": 2, "headers": {"region": "north"}},
     "payload": "...", "payload_encoding": "string", "payload_bytes": 3}

A payload that is no UTF-8 text is base64. What `leveret consume --json` prints, one object a line,
is what `leveret publish --json-lines` reads. Of field values JSON cannot tell apart, a time comes
back as a number, bytes as base64 text and a decimal as a double.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from clients.amqp_message import Message
from clients.amqp_properties import Properties

PROPERTY_NAMES: Final = tuple(field.name for field in fields(Properties))
NUMBERS: Final = frozenset({"delivery_mode", "priority", "timestamp"})
_SAID: Final = frozenset({"exchange", "routing_key", "properties", "payload", "payload_encoding"})
# Printed, and of no use to a publisher.
_TOLD: Final = frozenset(
    {"payload_bytes", "redelivered", "message_count", "id", "delivery_count", "death"}
)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to publish. What is None or missing is for the command line to say."""

    body: bytes
    exchange: str | None = None
    routing_key: str | None = None
    properties: Mapping[str, Any] | None = None


def message_json(message: Message) -> dict[str, Any]:
    payload, encoding = text_of(message.body)
    found = message.properties
    values = {name: getattr(found, name) for name in PROPERTY_NAMES}
    return {
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "redelivered": message.redelivered,
        "properties": {
            name: json_value(value) for name, value in values.items() if value is not None
        },
        "payload": payload,
        "payload_encoding": encoding,
        "payload_bytes": len(message.body),
    }


def text_of(data: bytes) -> tuple[str, str]:
    """Bytes as JSON can hold them, and how."""
    try:
        return data.decode(), "string"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def json_value(value: object) -> object:
    """A field value in JSON's few types."""
    if isinstance(value, Mapping):
        return {str(name): json_value(part) for name, part in value.items()}
    if isinstance(value, list):
        return [json_value(part) for part in value]
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return float(value)
    return value


def parse_message(line: bytes) -> Outgoing:
    """One line of `--json-lines`. Raises ValueError with what is wrong."""
    try:
        said = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deep") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(said, dict):
        raise ValueError("not a JSON object")
    if unknown := said.keys() - _SAID - _TOLD:
        known = ", ".join(sorted(_SAID))
        raise ValueError(f"unknown field {min(unknown)!r} (known: {known})")
    for name in ("exchange", "routing_key"):
        if not isinstance(said.get(name, ""), str):
            raise ValueError(f"{name} is not a text")
    properties = said.get("properties")
    if properties is not None:
        check_properties(properties)
    return Outgoing(_body(said), said.get("exchange"), said.get("routing_key"), properties)


def _body(said: dict[str, Any]) -> bytes:
    payload, encoding = said.get("payload"), said.get("payload_encoding", "string")
    if not isinstance(payload, str):
        raise ValueError("payload, a text, is needed")
    if encoding == "string":
        return payload.encode()
    if encoding != "base64":
        raise ValueError(f"payload_encoding is string or base64, not {encoding!r}")
    try:
        return base64.b64decode(payload, validate=True)
    except binascii.Error as error:
        raise ValueError(f"payload is not base64: {error}") from None


def check_properties(said: object) -> None:
    """Raises ValueError with what is wrong."""
    if not isinstance(said, dict):
        raise ValueError("properties are not a JSON object")
    for name, value in said.items():
        if name not in PROPERTY_NAMES:
            known = ", ".join(PROPERTY_NAMES)
            raise ValueError(f"there is no property {name!r} (known: {known})")
        if name == "headers":
            fits, kind = isinstance(value, dict), "an object"
        elif name in NUMBERS:
            fits, kind = isinstance(value, int) and not isinstance(value, bool), "a whole number"
        else:
            fits, kind = isinstance(value, str), "a text"
        if not fits:
            raise ValueError(f"property {name} is {kind}, not {value!r}")
