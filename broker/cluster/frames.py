"""Frames between nodes.

frame := length u32 of the body | kind u8 | body
"""

import struct
from typing import Final

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
HEADER: Final = struct.Struct(">IB")
_HEADER_BYTES: Final = HEADER.size


class FrameError(Exception):
    """The peer sends what is no frame."""


class FrameReader:
    """Bytes in, frames out. A frame that comes in many reads is put together once."""

    __slots__ = ("_chunks", "_have", "_need")

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._have = 0
        self._need = 0  # bytes till there can be another frame

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames that are complete now: kind and body of each."""
        if self._have:
            self._chunks.append(data)
            self._have += len(data)
            if self._have < self._need:
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
        frames = []
        unpack = HEADER.unpack_from
        position, end = 0, len(data)
        need = _HEADER_BYTES
        while end - position >= _HEADER_BYTES:
            length, kind = unpack(data, position)
            if length > FRAME_BYTES_MAX:
                raise FrameError(f"a frame of {length} bytes is above {FRAME_BYTES_MAX}")
            body = position + _HEADER_BYTES
            after = body + length
            if after > end:
                need = after - position
                break
            frames.append((kind, data[body:after]))
            position = after
        self._have = end - position
        self._need = need
        if self._have:
            self._chunks.append(data[position:])
        return frames
