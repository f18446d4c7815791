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
_U32 = struct.Struct(">I")

_FLAGS_CONTINUE: Final = 0x0001
_VALUES_AT: Final = _HEADER.size  # where property values start in a header frame

# In the order in which the values stand on the wire; the size is None for short strings.
_PROPERTIES: Final[tuple[tuple[int, int | None], ...]] = (
    (FLAG_CONTENT_TYPE, None),
    (FLAG_CONTENT_ENCODING, None),
    (FLAG_HEADERS, -1),
    (FLAG_DELIVERY_MODE, 1),
    (FLAG_PRIORITY, 1),
    (FLAG_CORRELATION_ID, None),
    (FLAG_REPLY_TO, None),
    (FLAG_EXPIRATION, None),
    (FLAG_MESSAGE_ID, None),
    (FLAG_TIMESTAMP, 8),
    (FLAG_TYPE, None),
    (FLAG_USER_ID, None),
    (FLAG_APP_ID, None),
    (FLAG_CLUSTER_ID, None),
)


def split_properties(flags: int, frames: bytes, header_bytes: int) -> dict[int, bytes]:
    """The raw value of each property by its flag: short strings with length, headers as a table.

    Raises ValueError where the values do not fit the flags.
    """
    if flags & _FLAGS_CONTINUE:
        raise ValueError("property flags beyond the first sixteen")
    pos = _VALUES_AT
    end = 7 + header_bytes
    values: dict[int, bytes] = {}
    for flag, size in _PROPERTIES:
        if not flags & flag:
            continue
        if size is None:
            after = pos + 1 + (frames[pos] if pos < end else 0)
        elif size == -1:
            after = pos + 4 + (int(_U32.unpack_from(frames, pos)[0]) if pos + 4 <= end else 0)
        else:
            after = pos + size
        if after > end:
            raise ValueError("property values run past the content header")
        values[flag] = frames[pos:after]
        pos = after
    if pos != end:
        raise ValueError("content header is longer than its properties")
    return values


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
    pieces: list[bytes | memoryview] = [
        _FRAME.pack(FRAME_HEADER, channel, header_bytes),
        frames[7 : header_bytes + FRAME_OVERHEAD_BYTES],
    ]
    body_at = header_bytes + FRAME_OVERHEAD_BYTES + 7
    most = frame_max - FRAME_OVERHEAD_BYTES
    if body_bytes <= most:
        if body_bytes:
            pieces += (_FRAME.pack(FRAME_BODY, channel, body_bytes), frames[body_at:])
        return b"".join(pieces)
    body = memoryview(frames)[body_at : body_at + body_bytes]
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
