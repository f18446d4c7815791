"""An AMQP message as a record of a stream, and back.

    properties   exchange (short string), routing key (short string), property flags u16, values

The last two are those of the content header; the body is the record's value and says its own size.
Records of other origin may have no properties at all.
"""

import struct
from typing import Final, NamedTuple

from broker.protocol.constants import FLAG_CONTENT_ENCODING, FLAG_CONTENT_TYPE, FLAG_HEADERS
from broker.protocol.content import layout_of, property_bounds
from broker.protocol.tables import (
    check_table,
    decode_table,
    encode_long,
    join_table,
    raw_text,
    split_table,
)

PARTITION_KEY: Final = b"x-partition-key"
TOMBSTONE: Final = b"x-tombstone"
STREAM_OFFSET: Final = b"x-stream-offset"
STREAM_PARTITION: Final = b"x-stream-partition"

FLAGS_AT: Final = 19  # in a header frame: type, channel, size; class, weight, body size
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_NONE: Final = b"\0\0\0\0"  # no exchange, no key, no flags
_FIRST_KEY: Final = b"\x0fx-partition-keyS"
_YES: Final = b"t\x01"
_BEFORE_OFFSET: Final = b"\x0fx-stream-offsetl"
_FRAME_START: Final = bytes(FLAGS_AT)  # stands for what is before the flags


class Kept(NamedTuple):
    """A record's properties, taken apart."""

    address: bytes
    flags: int
    before: bytes  # values before the headers
    headers: bytes  # without the length; empty if there are none
    behind: bytes


def take_apart(properties: bytes) -> Kept:
    properties = properties or _NONE
    key_at = 1 + properties[0]
    flags_at = key_at + 1 + properties[key_at]
    flags = _U16.unpack_from(properties, flags_at)[0]
    layout = layout_of(flags)
    frame = _FRAME_START + properties[flags_at:]
    bounds = property_bounds(layout, frame, len(frame) - 7)
    place = layout.where.get(FLAG_HEADERS)
    if place is None:
        # Headers would stand behind the content type and encoding, which are the highest flags.
        place = sum(1 for flag in layout.flags if flag > FLAG_HEADERS)
        start = end = bounds[place]
        headers = b""
    else:
        start, end = bounds[place], bounds[place + 1]
        headers = frame[start + 4 : end]
    return Kept(properties[:flags_at], flags, frame[21:start], headers, frame[end:])


def split_headers(properties: bytes) -> dict[bytes, bytes]:
    """The headers of a record, their values raw (see `split_table`)."""
    headers = take_apart(properties).headers
    return split_table(_U32.pack(len(headers)) + headers)[0]


# Publishing


def routing_key(address: bytes) -> bytes | None:
    """The key that a message came to a named exchange with; not an empty one, as for a fanout."""
    return address[2 + address[0] :] or None if address[0] else None


def _headers_at(properties: bytes) -> int:
    """Where the first header stands, of properties that have some and were checked."""
    key_at = 1 + properties[0]
    flags_at = key_at + 1 + properties[key_at]
    flags = _U16.unpack_from(properties, flags_at)[0]
    at = flags_at + 2
    if flags & FLAG_CONTENT_TYPE:
        at += 1 + properties[at]
    if flags & FLAG_CONTENT_ENCODING:
        at += 1 + properties[at]
    return at + 4


def header_key(properties: bytes) -> bytes | None:
    """The value of the header `x-partition-key`, as text if it is a number or the like.

    Of a message with headers.
    """
    if PARTITION_KEY not in properties:
        return None
    at = _headers_at(properties)
    some = _U32.unpack_from(properties, at - 4)[0] > 0
    if some and properties.startswith(_FIRST_KEY, at):  # as most send it: no need of the others
        at += len(_FIRST_KEY) + 4
        return properties[at : at + _U32.unpack_from(properties, at - 4)[0]]
    raw = split_headers(properties).get(PARTITION_KEY)
    if raw is None:
        return None
    value = decode_table(join_table({b"k": raw}))[0]["k"]
    if value is None:
        return None
    return bytes(value) if isinstance(value, bytes | bytearray) else raw_text(str(value))


def is_tombstone(properties: bytes) -> bool:
    """Whether a message with headers deletes its key: header `x-tombstone`, a true boolean."""
    if TOMBSTONE not in properties:
        return False
    return split_headers(properties).get(TOMBSTONE) == _YES


# Delivering


def _sound(properties: bytes) -> Kept:
    """Properties that an AMQP client can read; none, where whoever made the chunk made them up."""
    try:
        kept = take_apart(properties)
        check_table(_U32.pack(len(kept.headers)) + kept.headers, 0, 4 + len(kept.headers))
    except (ValueError, IndexError, struct.error):
        return take_apart(_NONE)
    return kept


def delivery_parts(properties: bytes, partition: int) -> tuple[bytes, bytes, bytes]:
    """The address, and the content header from its flags on, before and behind the offset.

    The offset, eight bytes big-endian, is the value of the header `x-stream-offset`.
    """
    kept = _sound(properties)
    others = kept.headers
    if STREAM_OFFSET in others or STREAM_PARTITION in others:  # it was in a stream before
        table = split_table(_U32.pack(len(others)) + others)[0]
        table.pop(STREAM_OFFSET, None)
        table.pop(STREAM_PARTITION, None)
        others = join_table(table)[4:]
    number = bytes((len(STREAM_PARTITION),)) + STREAM_PARTITION + encode_long(partition)
    size = len(_BEFORE_OFFSET) + 8 + len(number) + len(others)
    flags = _U16.pack(kept.flags | FLAG_HEADERS)
    before = b"".join((flags, kept.before, _U32.pack(size), _BEFORE_OFFSET))
    return kept.address, before, b"".join((number, others, kept.behind))
