"""The sections of a chunk's body, as they are written: buffers that fill up to eight bytes each."""

import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | memoryview

_PADDING: Final = (b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0")


def add_section(pieces: list[Buffer], section: Buffer) -> None:
    pieces.append(section)
    if len(section) % 8:
        pieces.append(_PADDING[len(section) % 8])


def add_column(pieces: list[Buffer], items: Sequence[bytes | None]) -> bool:
    """Validity if it takes one, offsets and blob; whether there are nulls."""
    count = len(items)
    first = items[0] if items else b""
    if items.count(first) == count:  # the keys and properties of most chunks
        _add_same(pieces, first, count)
        return first is None
    nulls = items.count(None)
    present: Iterable[bytes] = items  # type: ignore[assignment]
    if nulls:
        bits = "".join(["0" if item is None else "1" for item in reversed(items)])
        add_section(pieces, int(bits, 2).to_bytes((count + 7) // 8, "little"))
        present = [item or b"" for item in items]
    ends = accumulate(map(len, present))
    add_section(pieces, struct.pack(f"<{count + 1}i", 0, *ends))
    add_section(pieces, b"".join(present))
    return bool(nulls)


def _add_same(pieces: list[Buffer], item: bytes | None, count: int) -> None:
    if item is None:
        add_section(pieces, bytes((count + 7) // 8))
    if not item:
        add_section(pieces, bytes(4 * (count + 1)))
        return
    ends = range(0, len(item) * count + 1, len(item))
    add_section(pieces, struct.pack(f"<{count + 1}i", *ends))
    add_section(pieces, item * count)


def size_of(items: Sequence[bytes | None]) -> int:
    """Bytes of a column's blob."""
    first = items[0] if items else None
    if items.count(first) == len(items):
        return len(first) * len(items) if first is not None else 0
    return sum(map(len, filter(None, items)))
