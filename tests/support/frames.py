"""AMQP frames for tests: pamqp's methods by short names, and bytes pamqp would refuse to make."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from pamqp import base, commands, encode, frame, header

Basic = commands.Basic
Channel = commands.Channel
Confirm = commands.Confirm
Connection = commands.Connection
Exchange = commands.Exchange
Queue = commands.Queue
Tx = commands.Tx
Properties = commands.Basic.Properties

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
FRAME_END = 0xCE
FRAME_OVERHEAD_BYTES = 8


@dataclass
class Content:
    """A method that carries a message, with the message."""

    method: base.Frame
    properties: Properties = field(default_factory=Properties)
    body: bytes = b""
    body_size: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)

    @property
    def headers(self) -> dict[str, Any]:
        return self.properties.headers or {}

    @property
    def complete(self) -> bool:
        return self.body_size is not None and len(self.body) >= self.body_size


CONTENT_METHODS = (Basic.Deliver, Basic.GetOk, Basic.Return)
Item = base.Frame | Content


def kind_of(item: Item) -> type[base.Frame]:
    return type(item.method if isinstance(item, Content) else item)


def unvalidated(method_class: type[base.Frame], **fields: Any) -> base.Frame:
    """Build a method that pamqp would refuse to encode (odd names, reserved fields)."""

    class Lax(method_class):  # type: ignore[misc,valid-type]
        def validate(self) -> None:
            pass

    return Lax(**fields)


def raw_frame(kind: int, channel: int, payload: bytes, end: int = FRAME_END) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes([end])


def raw_method(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    return raw_frame(1, channel, struct.pack(">HH", class_id, method_id) + arguments)


def raw_header(
    channel: int, body_size: int, *, class_id: int = 60, flags: bytes = b"\0\0"
) -> bytes:
    return raw_frame(2, channel, struct.pack(">HHQ", class_id, 0, body_size) + b"\0\0")


def raw_body(channel: int, payload: bytes) -> bytes:
    return raw_frame(3, channel, payload)


def amqplain(user: str, password: str) -> str:
    """The AMQPLAIN response: a field table without its length, as text for pamqp."""
    table = encode.field_table({"LOGIN": user, "PASSWORD": password})
    return table[4:].decode("latin-1")


def content_bytes(
    channel: int, method: base.Frame, properties: Properties, payload: bytes, frame_max: int
) -> bytes:
    """A whole message as frames, the body cut to frame_max."""
    room = frame_max - FRAME_OVERHEAD_BYTES
    pieces = [
        frame.marshal(method, channel),
        frame.marshal(header.ContentHeader(0, len(payload), properties), channel),
    ]
    pieces += [
        raw_body(channel, payload[start : start + room]) for start in range(0, len(payload), room)
    ]
    return b"".join(pieces)


def describe(item: Item) -> str:
    if isinstance(item, Content):
        return f"{describe(item.method)} {dict(item.properties)} {item.body[:80]!r}"
    return f"{item.name} {dict(item)}"
