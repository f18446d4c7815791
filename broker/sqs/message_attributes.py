"""Attributes of messages, and the headers that they are to AMQP clients; their digests.

    SQS                         AMQP header
    String                      long string
    Number, if a 64-bit whole   integer
    any other Number            long string, and its type in the header x-sqs-types
    Binary                      byte array
    String.x, Number.x, …       as above, and the type in x-sqs-types

The other way round: numbers are Number, texts String, booleans String, bytes Binary, tables and
arrays String.json. Headers that the broker itself reads or writes are no attributes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import struct
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.http.message_json import plain_value, readable
from broker.protocol.tables import encode_table, encode_value
from broker.sqs.errors import BAD_PARAMETER, SqsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.protocol.tables import Table

ATTRIBUTES_MAX: Final = 10
NAME_CHARS_MAX: Final = 255  # AWS has one more; the name of a header has a byte for its length
TYPES: Final = "x-sqs-types"
TRACE: Final = "X-Amzn-Trace-Id"
SENT: Final = "timestamp_in_ms"  # as RabbitMQ's timestamp interceptor calls it
BODY_ENCODING: Final = "x-body-encoding"  # an attribute of messages that are no texts

_OWN: Final = frozenset(
    {
        *("CC", "BCC", "x-delay", "x-dedup-id", "x-group-id", "x-death", "x-delivery-count"),
        "x-death-claimed",
        *("x-replay-count", BODY_ENCODING, TYPES, TRACE, SENT),
    }
)
_OWN_PREFIXES: Final = ("x-first-death-", "x-last-death-")
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+\Z")
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\Z", re.ASCII)
_BASE_TYPES: Final = ("String", "Number", "Binary")
# What SQS takes for text: the characters of XML 1.0.
NOT_TEXT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_LENGTH: Final = struct.Struct(">I")
_I64: Final = range(-(2**63), 2**63)


class Attribute(NamedTuple):
    """A value with its type; Binary ones are bytes."""

    type: str
    value: str | bytes

    @property
    def is_binary(self) -> bool:
        return isinstance(self.value, bytes)

    @property
    def raw(self) -> bytes:
        return self.value if isinstance(self.value, bytes) else _raw(self.value)

    def shown(self) -> dict[str, str]:
        if isinstance(self.value, bytes):
            text = base64.b64encode(self.value).decode()
            return {"BinaryValue": text, "DataType": self.type}
        return {"StringValue": self.value, "DataType": self.type}


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "replace")


# From requests


def parse_attributes(table: Mapping[str, Any]) -> dict[str, Attribute]:
    """Attributes as a client sends them; raises SqsError."""
    if len(table) > ATTRIBUTES_MAX:
        text = f"Number of message attributes [{len(table)}] exceeds the allowed maximum"
        raise SqsError(BAD_PARAMETER, f"{text} [{ATTRIBUTES_MAX}].")
    return {name: _parse(name, value) for name, value in table.items()}


def _parse(name: str, value: object) -> Attribute:
    _check_name(name)
    if not isinstance(value, dict):
        raise _bad(name, "is not a structure with DataType and a value")
    data_type = value.get("DataType")
    if not isinstance(data_type, str) or not data_type:
        raise _bad(name, "must contain a non-empty message attribute type")
    base, _, _ = data_type.partition(".")
    if base not in _BASE_TYPES or len(data_type) > NAME_CHARS_MAX or NOT_TEXT.search(data_type):
        raise _bad(name, "has an invalid type; it must be String, Number or Binary, or begin so")
    key = "BinaryValue" if base == "Binary" else "StringValue"
    given = value.get(key)
    if not isinstance(given, str) or not given:
        raise _bad(name, f"must contain a non-empty {key} for type {base}")
    if base == "Binary":
        return Attribute(data_type, _binary(name, given))
    if base == "Number" and not _NUMBER.match(given):
        raise _bad(name, "is not a number")
    if NOT_TEXT.search(given):
        raise _bad(name, "has characters that are not allowed in texts")
    return Attribute(data_type, given)


def _check_name(name: str) -> None:
    if not _NAME.match(name) or len(name) > NAME_CHARS_MAX:
        raise _bad(name, f"can have letters, digits, _, - and . up to {NAME_CHARS_MAX} characters")
    if name.lower().startswith(("aws.", "amazon.")) or is_own(name):
        raise _bad(name, "has a name that is reserved")
    if name.startswith(".") or name.endswith(".") or ".." in name:
        raise _bad(name, "can neither begin nor end with a dot, nor have two in a row")


def _binary(name: str, given: str) -> bytes:
    try:
        return base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raise _bad(name, "is not base64") from None


def _bad(name: str, reason: str) -> SqsError:
    return SqsError(BAD_PARAMETER, f"The message attribute '{name:.100}' {reason}.")


def size_of(attributes: Mapping[str, Attribute]) -> int:
    """What they count against the largest message there may be."""
    return sum(len(n) + len(one.type) + len(one.raw) for n, one in attributes.items())


def digest_of(attributes: Mapping[str, Attribute]) -> str:
    """The MD5 that clients compare."""
    pieces: list[bytes] = []
    for name in sorted(attributes):
        one = attributes[name]
        for part in (_raw(name), _raw(one.type)):
            pieces += (_LENGTH.pack(len(part)), part)
        pieces += (b"\x02" if one.is_binary else b"\x01", _LENGTH.pack(len(one.raw)), one.raw)
    return hashlib.md5(b"".join(pieces), usedforsecurity=False).hexdigest()


# To and from headers


def is_own(name: str) -> bool:
    """Whether a header is the broker's own."""
    return name in _OWN or name.startswith(_OWN_PREFIXES)


def headers_of(attributes: Mapping[str, Attribute]) -> dict[bytes, bytes]:
    """Raw entries of a header table (see broker.protocol.tables.join_table)."""
    entries: dict[bytes, bytes] = {}
    types: dict[str, object] = {}
    for name, one in attributes.items():
        value, plain = _field(one)
        entries[name.encode()] = value
        if one.type != plain:
            types[name] = one.type
    if types:
        entries[TYPES.encode()] = b"F" + encode_table(types)
    return entries


def _field(one: Attribute) -> tuple[bytes, str]:
    """A raw value, and the type that it would be read back as."""
    if isinstance(one.value, bytes):
        return b"x" + _LENGTH.pack(len(one.value)) + one.value, "Binary"
    if one.type.startswith("Number"):
        whole = _whole(one.value)
        if whole is not None:
            return encode_value(whole), "Number"
    return encode_value(one.value), "String"


def _whole(text: str) -> int | None:
    """A number that comes back as the same text, and fits a header."""
    if len(text) > 20 or not text.isascii() or not text.removeprefix("-").isdigit():
        return None
    number = int(text)
    return number if str(number) == text and number in _I64 else None


def attributes_of(headers: Table) -> dict[str, Attribute]:
    """What a message's headers are to SQS."""
    types = headers.get(TYPES)
    if not isinstance(types, dict):
        types = {}
    found: dict[str, Attribute] = {}
    for name, value in headers.items():
        if value is None or is_own(name):
            continue
        one = _attribute(value)
        told = types.get(name)
        if isinstance(told, str) and told.startswith(_BASE_TYPES):
            one = one._replace(type=told) if told.startswith("Binary") == one.is_binary else one
        found[readable(name)] = one
    return found


def _attribute(value: object) -> Attribute:
    if isinstance(value, str):
        return Attribute("String", value)
    if isinstance(value, bool):
        return Attribute("String", "true" if value else "false")
    if isinstance(value, int | Decimal):
        return Attribute("Number", str(value))
    if isinstance(value, float):
        return Attribute("Number" if isfinite(value) else "String", repr(value))
    if isinstance(value, bytes | bytearray):
        return Attribute("Binary", bytes(value))
    if isinstance(value, datetime):
        return Attribute("Number", str(int(value.timestamp())))
    return Attribute("String.json", json.dumps(plain_value(value)))
