"""The properties of a stream's record: where it was published to, and its AMQP properties.

    0           1          …             …+1           …              …+2
    +-----------+----------+-------------+-------------+--------------+------------------+
    |length u8  | exchange | length u8   | routing key | flags u16    | property values  |
    +-----------+----------+-------------+-------------+--------------+------------------+

as AMQP writes them in a content header (big-endian; see broker.protocol.content). A record without
any has no bytes.
"""

import struct
from collections.abc import Mapping
from typing import Final

from broker.protocol.constants import FLAG_HEADERS
from broker.protocol.content import split_properties
from broker.protocol.tables import Table, decode_table, encode_table

_FLAGS: Final = struct.Struct(">H")
_BEFORE_FLAGS: Final = bytes(19)  # stands for the start of the header frame: body size and so on
_FRAME_HEAD_BYTES: Final = 7


def encode_properties(headers: Mapping[str, object], *, routing_key: str = "") -> bytes:
    """Properties that have headers only, of a record published to the default exchange."""
    key = routing_key.encode()
    if len(key) > 255:
        raise ValueError(f"a routing key of {len(key)} bytes")
    flags = FLAG_HEADERS if headers else 0
    table = encode_table(dict(headers)) if headers else b""
    return b"".join((b"\0", bytes([len(key)]), key, _FLAGS.pack(flags), table))


def decode_headers(properties: bytes) -> Table:
    """The headers among a record's properties. Raises ValueError for what is not drawn above."""
    if not properties:
        return {}
    content = _content(properties)
    if len(content) < _FLAGS.size:
        raise ValueError("a record's properties are cut short")
    frame = _BEFORE_FLAGS + content
    (flags,) = _FLAGS.unpack_from(content)
    table = split_properties(flags, frame, len(frame) - _FRAME_HEAD_BYTES).get(FLAG_HEADERS)
    return {} if table is None else decode_table(table)[0]


def _content(properties: bytes) -> bytes:
    """From the flags on."""
    exchange_end = 1 + properties[0]
    if exchange_end >= len(properties):
        raise ValueError("a record's properties are cut short")
    return properties[exchange_end + 1 + properties[exchange_end] :]
