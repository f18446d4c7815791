"""Chunks that publishers made: checked before they get anywhere, stamped by the leader.

entry   the chunk; behind it the leader's time: ms, i64, little-endian
"""

import struct
from typing import Final

from broker.protocol.chunk import GAPS, Chunk, Header
from broker.protocol.stream_errors import CorruptChunkError

# The rest of a publisher's data takes another chunk.
CHUNK_BYTES_MAX: Final = 8 * 1024 * 1024
# How far a publisher's clock may be ahead: times decide when retention takes the records.
AHEAD_MS_MAX: Final = 60 * 60 * 1000

_TIME: Final = struct.Struct("<q")


def check_made(chunk: bytes, now_ms: int) -> None:
    """Raises CorruptChunkError for what must not be stored as it is."""
    if len(chunk) > CHUNK_BYTES_MAX:
        raise CorruptChunkError(f"a chunk of more than {CHUNK_BYTES_MAX} bytes")
    made = Chunk(chunk)
    made.check()
    if made.header.size_bytes != len(chunk):
        raise CorruptChunkError("there are bytes behind the chunk")
    if made.header.flags & GAPS and made.header.records:
        raise CorruptChunkError("a new chunk has a record at each of its offsets")
    if made.header.latest_ms > now_ms + AHEAD_MS_MAX:
        raise CorruptChunkError("a chunk with records from the future")


def stamped(chunk: bytes, now_ms: int) -> bytes:
    """The entry for a chunk."""
    return chunk + _TIME.pack(now_ms)


def proposed_at(entry: bytes, header: Header) -> int:
    """By the leader's clock; that is also what stamps the records that it gathers itself."""
    if len(entry) == header.size_bytes:
        return header.latest_ms
    (at_ms,) = _TIME.unpack_from(entry, header.size_bytes)
    return int(at_ms)
