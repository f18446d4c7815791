"""A part of a chunk: replicas make theirs by themselves, and one's may end within another's."""

from collections.abc import Iterable, Iterator
from typing import Final

from broker.protocol.chunk import Chunk
from queues.stream.merging import ChunkBuilder

NO_END: Final = 2**63


def cut(chunk: Chunk, first: int, end: int = NO_END) -> bytes:
    """The records between two offsets, some of which the chunk covers: as it is if that is all."""
    header = chunk.header
    first, end = max(first, header.base_offset), min(end, header.end_offset)
    if (first, end) == (header.base_offset, header.end_offset):
        return chunk.encode()
    builder = ChunkBuilder(first)
    builder.add(chunk.slice(first, end), end, header.latest_ms)
    made = builder.build()
    assert made is not None, "the offsets are the chunk's"
    return made


def between(chunks: Iterable[Chunk], first: int, end: int = NO_END) -> Iterator[bytes]:
    """The chunks, or parts of them, that cover these offsets."""
    for chunk in chunks:
        if chunk.header.end_offset > first and chunk.header.base_offset < end:
            yield cut(chunk, first, end)
