"""The checkpoint of a live set, made from its arrays a slice at a time.

    checkpoint   0         8              16           24        28       32
                 +---------+--------------+------------+---------+--------+
                 | version | next seq u64 | delivered  | entries | counts |
                 | u64     |              | u64        | u32     | u32    |
                 +---------+--------------+------------+---------+--------+
                 | index u64 of each entry | first sequence u64 of each | count u32 of each |
                 +----------------+--------+----------------------------+-------------------+
                 | live u64, partly | each: index u64, bytes u32, bitmap | counts, each:    |
                 | settled u32      | of what is settled                 | seq u64, n u32   |
                 +-----------+------+-----+------------------------+-----+------+-----------+
                 | taken u64 | delays u32 | each: seq u64, due u64 | publishers | ids seen  |
                 +-----------+------------+------------------------+------------+-----------+

All numbers are big-endian. For publishers see queues.publishers, for the ids queues.dedup. Up to
version 3 the second row was entries, each: index u64, first u64, count u32, bytes u32, bitmap; and
counts. Version 1 had nothing after them, and version 2 no publishers.
"""

import struct
import sys
from array import array
from collections.abc import Iterator
from itertools import compress, islice
from typing import Final

CHECKPOINT_VERSION: Final = 4
# What is encoded in one go: about a millisecond, so that others have their turn in between.
SLICE_ENTRIES: Final = 16 * 1024

HEAD: Final = struct.Struct(">QQQII")
OLD_ENTRY: Final = struct.Struct(">QQII")  # index, first sequence, count, bytes of the bitmap
PARTLY: Final = struct.Struct(">QI")
COUNT: Final = struct.Struct(">QI")
MORE: Final = struct.Struct(">QI")  # taken, number of delays
DUE: Final = struct.Struct(">QQ")
SETTLED: Final = struct.Struct(">QI")  # live messages, number of entries that are partly settled


class Columns:
    """Entries of a live set, slot by slot; those with nothing remaining are dead."""

    __slots__ = ("first", "index", "live", "remaining", "size")

    def __init__(
        self,
        index: "array[int]",
        first: "array[int]",
        size: "array[int]",
        remaining: "array[int]",
        live: int,
    ) -> None:
        """`live` is what remains in all of them."""
        self.live = live
        self.index = index
        self.first = first
        self.size = size
        self.remaining = remaining


class FrozenLiveSet:
    """A live set as it was, to be encoded while it goes on."""

    def __init__(
        self,
        columns: Columns,
        settled: dict[int, int],
        counts: dict[int, int],
        due: dict[int, int],
        *,
        next_sequence: int,
        delivered: int,
        taken: int,
        tail: bytes,
    ) -> None:
        """`tail` is what follows the delays."""
        self._columns = columns
        self._settled = settled
        self._counts = counts
        self._due = due
        self._next_sequence = next_sequence
        self._delivered = delivered
        self._taken = taken
        self._tail = tail
        self.state = b""  # when all slices are done

    @property
    def is_small(self) -> bool:
        """Whether it takes no longer than one slice."""
        of_dicts = len(self._settled) + len(self._counts) + len(self._due)
        return len(self._columns.index) + of_dicts <= SLICE_ENTRIES

    def slices(self) -> Iterator[None]:
        """Encode it; each step looks at SLICE_ENTRIES entries at most."""
        index, first, size = array("Q"), array("Q"), array("I")
        columns = self._columns
        for start in range(0, len(columns.index), SLICE_ENTRIES):
            part = slice(start, start + SLICE_ENTRIES)
            alive = columns.remaining[part]
            index.extend(compress(columns.index[part], alive))
            first.extend(compress(columns.first[part], alive))
            size.extend(compress(columns.size[part], alive))
            yield
        entries, counts = len(index), len(self._counts)
        pieces = [
            HEAD.pack(CHECKPOINT_VERSION, self._next_sequence, self._delivered, entries, counts)
        ]
        for column in (index, first, size):
            pieces.append(_big_endian(column))
            yield
        pieces.append(SETTLED.pack(columns.live, len(self._settled)))
        for some in _sorted_slices(self._settled):
            pieces.append(b"".join([_partly(at, self._settled[at]) for at in some]))
            yield
        for some in _sorted_slices(self._counts):
            pieces.append(b"".join([COUNT.pack(at, self._counts[at]) for at in some]))
            yield
        pieces.append(MORE.pack(self._taken, len(self._due)))
        for some in _sorted_slices(self._due):
            pieces.append(b"".join([DUE.pack(at, self._due[at]) for at in some]))
            yield
        pieces.append(self._tail)
        self.state = b"".join(pieces)


def _partly(index: int, settled: int) -> bytes:
    bitmap = settled.to_bytes((settled.bit_length() + 7) // 8, "big")
    return PARTLY.pack(index, len(bitmap)) + bitmap


def _sorted_slices(keys: dict[int, int]) -> Iterator[list[int]]:
    ordered = iter(sorted(keys))
    while some := list(islice(ordered, SLICE_ENTRIES)):
        yield some


def _big_endian(column: "array[int]") -> bytes:
    if sys.byteorder == "little":
        column.byteswap()
    return column.tobytes()


def read_entries(
    checkpoint: bytes, version: int, entries: int
) -> tuple[Columns, dict[int, int], int]:
    """The entries of a checkpoint, what is settled of them, and where it goes on."""
    if version < 4:
        return _read_old_entries(checkpoint, entries)
    index, first, size = array("Q"), array("Q"), array("I")
    view = memoryview(checkpoint)
    pos = HEAD.size
    for column in (index, first, size):
        end = pos + entries * column.itemsize
        column.frombytes(view[pos:end])
        if sys.byteorder == "little":
            column.byteswap()
        pos = end
    live, partly = SETTLED.unpack_from(checkpoint, pos)
    pos += SETTLED.size
    columns = Columns(index, first, size, size[:], live)
    settled: dict[int, int] = {}
    slot = 0
    for _ in range(partly):
        at, length = PARTLY.unpack_from(checkpoint, pos)
        pos += PARTLY.size
        bitmap = int.from_bytes(checkpoint[pos : pos + length], "big")
        pos += length
        settled[at] = bitmap
        slot = index.index(at, slot)
        columns.remaining[slot] -= bitmap.bit_count()
    return columns, settled, pos


def _read_old_entries(checkpoint: bytes, entries: int) -> tuple[Columns, dict[int, int], int]:
    columns = Columns(array("Q"), array("Q"), array("I"), array("I"), 0)
    settled: dict[int, int] = {}
    pos = HEAD.size
    for _ in range(entries):
        index, first, size, length = OLD_ENTRY.unpack_from(checkpoint, pos)
        pos += OLD_ENTRY.size
        bitmap = int.from_bytes(checkpoint[pos : pos + length], "big")
        pos += length
        columns.index.append(index)
        columns.first.append(first)
        columns.size.append(size)
        columns.remaining.append(size - bitmap.bit_count())
        columns.live += size - bitmap.bit_count()
        if bitmap:
            settled[index] = bitmap
    return columns, settled, pos
