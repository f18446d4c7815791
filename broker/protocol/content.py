"""Message content as raw bytes: finding and replacing properties, and framing it for a peer.

Content is kept the way it came, as a header frame and one body frame (none for an empty body) with
the publisher's channel number. The body frame may be larger than any frame_max.

    header frame payload   0          2          4             12            14
                           +----------+----------+-------------+-------------+------------------+
                           | class 60 | weight 0 | body size   | flags u16   | property values  |
                           +----------+----------+-------------+-------------+------------------+
"""

import struct
from collections.abc import Mapping
from typing import Final

from broker.protocol.constants import (
    CLASS_BASIC,
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
    FRAME_BODY,
    FRAME_END_BYTE,
    FRAME_HEADER,
    FRAME_METHOD,
    FRAME_OVERHEAD_BYTES,
)

_FRAME = struct.Struct(">BHI")
_METHOD = struct.Struct(">BHII")
_HEADER = struct.Struct(">BHIHHQH")
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")

_FLAGS_CONTINUE: Final = 0x0001
_VALUES_AT: Final = _HEADER.size  # where property values start in a header frame

_SHORT_STRING: Final = 0
_TABLE: Final = -1
# In the order in which the values stand on the wire, with their size or kind.
_PROPERTIES: Final = (
    (FLAG_CONTENT_TYPE, _SHORT_STRING),
    (FLAG_CONTENT_ENCODING, _SHORT_STRING),
    (FLAG_HEADERS, _TABLE),
    (FLAG_DELIVERY_MODE, 1),
    (FLAG_PRIORITY, 1),
    (FLAG_CORRELATION_ID, _SHORT_STRING),
    (FLAG_REPLY_TO, _SHORT_STRING),
    (FLAG_EXPIRATION, _SHORT_STRING),
    (FLAG_MESSAGE_ID, _SHORT_STRING),
    (FLAG_TIMESTAMP, 8),
    (FLAG_TYPE, _SHORT_STRING),
    (FLAG_USER_ID, _SHORT_STRING),
    (FLAG_APP_ID, _SHORT_STRING),
    (FLAG_CLUSTER_ID, _SHORT_STRING),
)


class Layout:
    """Which properties a set of flags announces, worked out once per set that is met."""

    __slots__ = ("flags", "sizes", "where")

    def __init__(self, flags: int) -> None:
        if flags & _FLAGS_CONTINUE:
            raise ValueError("property flags beyond the first sixteen")
        present = [(flag, size) for flag, size in _PROPERTIES if flags & flag]
        self.flags = tuple(flag for flag, _ in present)
        self.sizes = tuple(size for _, size in present)
        self.where = {flag: position for position, flag in enumerate(self.flags)}


_layouts: dict[int, Layout] = {}  # at most one for each of the 2**14 sets of flags


def layout_of(flags: int) -> Layout:
    layout = _layouts.get(flags)
    if layout is None:
        layout = _layouts[flags] = Layout(flags)
    return layout


def property_bounds(layout: Layout, frames: bytes, header_bytes: int) -> list[int]:
    """Where each property value starts, in wire order, and at last where they end.

    Raises ValueError where the values do not fit the layout.
    """
    pos = _VALUES_AT
    bounds = [pos]
    try:
        for size in layout.sizes:
            if size > 0:
                pos += size
            elif size == _SHORT_STRING:
                pos += 1 + frames[pos]
            else:
                pos += 4 + _U32.unpack_from(frames, pos)[0]
            bounds.append(pos)
    except (IndexError, struct.error):
        pos = -1
    if pos != 7 + header_bytes:
        raise ValueError("property values do not fill the content header")
    return bounds


def split_properties(flags: int, frames: bytes, header_bytes: int) -> dict[int, bytes]:
    """The raw value of each property by its flag: short strings with length, headers as a table.

    Raises ValueError where the values do not fit the flags.
    """
    layout = layout_of(flags)
    bounds = property_bounds(layout, frames, header_bytes)
    return {
        flag: frames[bounds[position] : bounds[position + 1]]
        for position, flag in enumerate(layout.flags)
    }


def join_header(
    channel: int, body_bytes: int, values: Mapping[int, bytes]
) -> tuple[bytes, int, int]:
    """A header frame from raw property values: the frame, its payload size, the flags."""
    flags = 0
    pieces: list[bytes] = []
    for flag, _ in _PROPERTIES:
        value = values.get(flag)
        if value is not None:
            flags |= flag
            pieces.append(value)
    body = b"".join(pieces)
    size = len(body) + 14
    head = _HEADER.pack(FRAME_HEADER, channel, size, CLASS_BASIC, 0, body_bytes, flags)
    return head + body + FRAME_END_BYTE, size, flags


def reframe(
    frames: bytes, header_bytes: int, body_bytes: int, *, channel: int, frame_max: int
) -> bytes:
    """The same content for another channel number, in frames no larger than `frame_max`."""
    number = _U16.pack(channel)
    body_at = header_bytes + FRAME_OVERHEAD_BYTES  # the body frame, that is
    most = frame_max - FRAME_OVERHEAD_BYTES
    if body_bytes == 0:
        return b"".join((frames[:1], number, frames[3:]))
    if body_bytes <= most:
        return b"".join(
            (frames[:1], number, frames[3 : body_at + 1], number, frames[body_at + 3 :])
        )
    pieces: list[bytes | memoryview] = [frames[:1], number, frames[3:body_at]]
    body = memoryview(frames)[body_at + 7 : -1]
    for start in range(0, body_bytes, most):
        piece = body[start : start + most]
        pieces += (_FRAME.pack(FRAME_BODY, channel, len(piece)), piece, FRAME_END_BYTE)
    return b"".join(pieces)


def method_head(channel: int, key: int, args_bytes: int, first_args: bytes) -> bytes:
    """The start of a method frame whose arguments take `args_bytes` in all.

    Deliveries are written as such a head, the delivery tag and flag, and the address, because
    head and address are the same for most messages of a consumer.
    """
    return _METHOD.pack(FRAME_METHOD, channel, args_bytes + 4, key) + first_args
