"""One lane of a link: frames out, gathered into few writes; frames in, many from one read.

What is large waits in a line of its own, as views of bytes that somebody else holds anyway. A write
takes all that is small, and about as much of what is large: neither holds the other up, and no more
than that is ever copied.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import trio

from broker.cluster.frames import FRAME_BYTES_MAX, HEADER, FrameReader
from broker.cluster.mail import Key, Piece
from broker.cluster.wire import Wire

# A read that is filled is followed by a large one: little room is cheaper to come by.
SMALL_READ_BYTES: Final = 64 * 1024
LARGE_READ_BYTES: Final = 512 * 1024
# Of what is large in one write, at least: what is small waits for so much.
LARGE_WRITE_BYTES: Final = 512 * 1024


class Pipe:
    """Whoever puts frames in sees to it that `flush` is called."""

    __slots__ = (
        "_carried",
        "_large",
        "_pieces",
        "_read_bytes",
        "_reader",
        "_rest",
        "_wake",
        "delivered",
        "dirty",
        "large_bytes",
        "queued_bytes",
        "received_bytes",
        "turned_away",
        "wire",
        "written_bytes",
    )

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.dirty = False
        self.turned_away = False  # someone had to wait, and must be told when there is room
        self.queued_bytes = 0  # of all times, like those written and received
        self.written_bytes = 0
        self.received_bytes = 0
        self.large_bytes = 0  # in line as something large, not taken out of it yet
        self.delivered = False  # all of a key has been taken since somebody looked
        self._pieces: list[Piece] = []
        self._large: deque[tuple[Key, list[Piece], int]] = deque()  # frames
        self._carried: dict[Key, int] = {}  # frames in line as something large
        self._rest = memoryview(b"")  # taken out of the pieces, not yet by the wire
        self._wake = trio.Event()
        self._reader = FrameReader()
        self._read_bytes = SMALL_READ_BYTES

    @property
    def waiting_bytes(self) -> int:
        return self.queued_bytes - self.written_bytes

    @property
    def small_bytes(self) -> int:
        """That wait, without those in line as something large."""
        return self.queued_bytes - self.written_bytes - self.large_bytes

    @property
    def keys_carried(self) -> int:
        return len(self._carried)

    def carries(self, key: Key) -> bool:
        return key in self._carried

    def put(self, kind: int, pieces: tuple[Piece, ...]) -> None:
        length = sum(map(len, pieces))
        assert length <= FRAME_BYTES_MAX, "whoever has more to say must cut it"
        self._pieces.append(HEADER.pack(length, kind))
        self._pieces += pieces
        self.queued_bytes += length + HEADER.size

    def put_large(self, key: Key, pieces: tuple[Piece, ...]) -> None:
        length = sum(map(len, pieces))
        assert length <= FRAME_BYTES_MAX, "whoever has more to say must cut it"
        size = length + HEADER.size
        self._large.append((key, [HEADER.pack(length, key[0]), *pieces], size))
        self._carried[key] = self._carried.get(key, 0) + 1
        self.large_bytes += size
        self.queued_bytes += size

    def flush(self) -> None:
        """Give the wire what it takes at once; `drain` does the rest."""
        self.dirty = False
        if not self._rest and (self._pieces or self._large):
            self._take()
            self._written(self.wire.write_nowait(self._rest))
        if self._rest or self._large or self.turned_away:
            self._wake.set()

    async def drain(self, on_progress: Callable[[], None]) -> None:
        """The lane's writing task: as fast as the peer reads."""
        while True:
            await self._wake.wait()
            while self._rest or self._pieces or self._large:
                if not self._rest:
                    self._take()
                self._written(await self.wire.write(self._rest))
                on_progress()
            on_progress()
            self._wake = trio.Event()

    def _take(self) -> None:
        if self._large:
            self._take_large(max(self.small_bytes, LARGE_WRITE_BYTES))
        self._rest = memoryview(b"".join(self._pieces))
        self._pieces.clear()

    def _take_large(self, size_bytes: int) -> None:
        """About so much of it, in whole frames, behind what is small."""
        while self._large and size_bytes > 0:
            key, pieces, size = self._large.popleft()
            self._pieces += pieces
            self.large_bytes -= size
            size_bytes -= size
            self._carried[key] -= 1
            if not self._carried[key]:
                del self._carried[key]
                self.delivered = True

    def _written(self, count: int) -> None:
        self._rest = self._rest[count:]
        self.written_bytes += count

    def discard(self) -> None:
        """What waits to be sent is forgotten: the link has ended."""
        self._pieces.clear()
        self._large.clear()
        self._carried.clear()
        self._rest = memoryview(b"")
        self.large_bytes = 0
        self.written_bytes = self.queued_bytes

    async def read(self) -> list[tuple[int, bytes]] | None:
        """The frames of one read, perhaps none; None once the peer is gone."""
        data = await self.wire.read(self._read_bytes)
        if not data:
            return None
        filled = len(data) >= SMALL_READ_BYTES
        self._read_bytes = LARGE_READ_BYTES if filled else SMALL_READ_BYTES
        self.received_bytes += len(data)
        return self._reader.feed(data)
