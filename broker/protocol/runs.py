"""A run: publishes that follow each other on a channel and differ in what their bodies say alone.

    publish   | method frame | header frame | start of body frame | body | end |
              '-------------------- the same bytes --------------'

One client that publishes much mostly sends the same exchange, key and properties, and bodies of one
size, again and again. Such publishes are all of one length: they are found, and taken apart, by
loops that run in C, and whatever depends on method and properties alone is done once for all.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import chain, repeat, takewhile
from typing import TYPE_CHECKING, Final, overload

from broker.protocol.constants import FRAME_END

if TYPE_CHECKING:
    from broker.protocol.frames import Content

RUN_MIN: Final = 8  # fewer are not worth the trouble

_METHOD_START: Final = 11  # frame type, channel, size; method
_FLAGS_AT: Final = 19  # in a header frame: type, channel, size; class, weight, body size


class ContentRun(Sequence["Content"]):
    """The publishes of a run, as a sequence of what they would be each by itself."""

    __slots__ = (
        "_content_at",
        "_count",
        "_data",
        "_size",
        "args",
        "body_bytes",
        "channel",
        "flags",
        "header_bytes",
    )

    def __init__(
        self,
        data: memoryview,
        size: int,
        content_at: int,
        *,
        channel: int,
        header_bytes: int,
        flags: int,
        body_bytes: int,
    ) -> None:
        """`data` is all of them, each so many bytes long; its header frame is at `content_at`."""
        assert len(data) % size == 0
        self._data = data
        self._size = size
        self._count = len(data) // size
        self._content_at = content_at
        self.channel = channel
        self.args = bytes(data[_METHOD_START : content_at - 1])
        self.header_bytes = header_bytes
        self.flags = flags
        self.body_bytes = body_bytes

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> "Content": ...
    @overload
    def __getitem__(self, place: slice) -> "Sequence[Content]": ...
    def __getitem__(self, place: int | slice) -> "Content | Sequence[Content]":
        if isinstance(place, slice):
            return list(self)[place]
        start = range(0, len(self._data), self._size)[place]
        frames = bytes(self._data[start + self._content_at : start + self._size])
        return self.args, frames, self.header_bytes, self.flags, self.body_bytes

    def __iter__(self) -> "Iterator[Content]":
        return zip(
            repeat(self.args),
            self.contents(),
            repeat(self.header_bytes),
            repeat(self.flags),
            repeat(self.body_bytes),
            strict=False,  # some repeat for ever
        )

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    @property
    def properties(self) -> bytes:
        """Flags and values, as in the content header of each."""
        return bytes(self._data[self._content_at :][_FLAGS_AT : 7 + self.header_bytes])

    def contents(self) -> Iterator[bytes]:
        """Header frame and body frame of each."""
        return self._column(self._content_at, self._size - self._content_at)

    def bodies(self) -> list[bytes]:
        return list(self._column(self._size - 1 - self.body_bytes, self.body_bytes))

    def _column(self, at: int, length: int) -> Iterator[bytes]:
        """So many bytes of each, from there on."""
        rows = struct.Struct(f"{at}x{length}s{self._size - at - length}x").iter_unpack(self._data)
        return chain.from_iterable(rows)


def run_length(data: bytes, start: int, body_at: int, end: int) -> int:
    """How many publishes like the one between `start` and `end` there are from there on.

    Its body begins at `body_at`. Fewer than RUN_MIN count as one.
    """
    size = end - start
    most = (len(data) - start) // size
    head = data[start:body_at]
    if most < RUN_MIN or not data.startswith(head, end):
        return 1
    rows = struct.Struct(f"{len(head)}s{end - body_at - 1}xB")
    wanted = (head, FRAME_END)
    found = list(rows.iter_unpack(memoryview(data)[start : start + most * size]))
    if found.count(wanted) < most:
        found = list(takewhile(wanted.__eq__, found))
    return len(found) if len(found) >= RUN_MIN else 1
