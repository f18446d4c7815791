"""Records of a stream as deliveries: method, content header with the offset, body, in bytes.

    delivery   method frame up to the tag | tag | address; header frame up to the body size
               | size | flags … up to the offset | offset | … end of header; start of body frame
               | size | body | end

What is constant for all records of the same properties is made once; the rest is put between by
loops that run in C, so that a record costs well under a microsecond here.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.protocol.constants import (
    BASIC_DELIVER,
    CLASS_BASIC,
    FRAME_BODY,
    FRAME_END_BYTE,
    FRAME_HEADER,
    FRAME_OVERHEAD_BYTES,
)
from broker.protocol.content import method_head
from broker.protocol.methods import short_string
from queues.stream.content import delivery_parts

if TYPE_CHECKING:
    from queues.stream.subscription import Records

# Heads remembered per channel; with ever new properties the memory starts anew.
HEADS_MAX: Final = 1024

_U32 = struct.Struct(">I").pack
_U64 = struct.Struct(">Q").pack
_HEADER_START = struct.Struct(">BHIHH").pack
_BODY_START = struct.Struct(">BH").pack
_FRAME = struct.Struct(">BHI").pack


class Head(NamedTuple):
    """What is written between the numbers of a record."""

    method: bytes  # before the delivery tag
    address: bytes  # before the body size, first of all the flag whether it is redelivered
    flags: bytes  # before the offset
    rest: bytes  # before the size of the body frame


class RecordWriter:
    """For one channel."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._body_start = _BODY_START(FRAME_BODY, channel)
        self._heads: dict[tuple[str, int, bool], dict[bytes, Head]] = {}
        self._count = 0

    def write(
        self, tag: str, first: int, records: "Records", frame_max: int
    ) -> tuple[Iterable[bytes], int]:
        """Pieces of the deliveries with tags from `first` on, and about how long they are."""
        bodies: list[bytes] = [value or b"" for value in records.values]
        sizes = list(map(len, bodies))
        heads = self._heads_of(tag, records)
        columns: Sequence[Iterable[bytes]]
        if len(heads) == 1:
            columns = [repeat(piece) for piece in heads[0]]
            length = len(bodies) * sum(map(len, heads[0]))
        else:
            columns = list(zip(*heads, strict=True))
            length = sum([sum(map(len, column)) for column in columns])
        methods, addresses, flags, rests = columns
        tags = map(_U64, range(first, first + len(bodies)))
        rows = zip(
            methods,
            tags,
            addresses,
            map(_U64, sizes),
            flags,
            map(_U64, records.offsets),
            rests,
            map(_U32, sizes),
            bodies,
            repeat(FRAME_END_BYTE),
            strict=False,  # some repeat for ever
        )
        length += sum(sizes) + 29 * len(bodies)
        if min(sizes) > 0 and max(sizes) <= frame_max - FRAME_OVERHEAD_BYTES:
            return chain.from_iterable(rows), length
        return chain.from_iterable([self._reframed(row, frame_max) for row in rows]), length

    def _reframed(self, row: tuple[bytes, ...], frame_max: int) -> list[bytes]:
        """A body that takes no frame, or more than one."""
        *before, rest, _, body, _ = row
        most = frame_max - FRAME_OVERHEAD_BYTES
        pieces = [*before, rest[: -len(self._body_start)]]
        for start in range(0, len(body), most):
            piece = body[start : start + most]
            pieces += (_FRAME(FRAME_BODY, self._channel, len(piece)), piece, FRAME_END_BYTE)
        return pieces

    def _heads_of(self, tag: str, records: "Records") -> list[Head]:
        """The head of each record; a single one if it is the same for all."""
        kind = (tag, records.partition, records.redelivered)
        heads = self._heads.get(kind)
        if heads is None or self._count > HEADS_MAX:
            if self._count > HEADS_MAX:
                self._heads.clear()
                self._count = 0
            heads = self._heads[kind] = {}
        properties = records.properties
        first = properties[0]
        if properties.count(first) == len(properties):
            properties = [first]
        found = []
        for one in properties:
            head = heads.get(one)
            if head is None:
                head = heads[one] = self._head(one, *kind)
                self._count += 1
            found.append(head)
        return found

    def _head(self, properties: bytes, tag: str, partition: int, redelivered: bool) -> Head:  # noqa: FBT001 - as its key
        address, flags, rest = delivery_parts(properties, partition)
        name = short_string(tag)
        method = method_head(self._channel, BASIC_DELIVER, len(name) + 9 + len(address), name)
        size = 12 + len(flags) + 8 + len(rest)
        header = _HEADER_START(FRAME_HEADER, self._channel, size, CLASS_BASIC, 0)
        return Head(
            method,
            b"".join((bytes((redelivered,)), address, FRAME_END_BYTE, header)),
            flags,
            b"".join((rest, FRAME_END_BYTE, self._body_start)),
        )
