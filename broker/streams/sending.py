"""The way out of a stream session: answers in memory, and parts of files by sendfile.

A task writes as the kernel takes it. Files are sent in a thread, since they may have to be read
from disk; the socket does not block, so that a peer that does not read holds no thread.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import trio

from broker.connection.transport import Transport
from queues.stream.ranges import ByteRange

# Fetches are answered up to HIGH, and again under LOW: a link is kept busy, and a thousand clients
# that do not read hold few gigabytes, of which most is in files.
HIGH_BYTES: Final = 8 * 1024 * 1024
LOW_BYTES: Final = 4 * 1024 * 1024
# Beyond this no request is read any more; what is in flight still adds its answers.
BRIM_BYTES: Final = 16 * 1024 * 1024
# A peer that takes nothing for this long while something waits for it is given up.
STALL_TIMEOUT_S: Final = 60.0
BUFFERS_MAX: Final = 64  # in one writev

Done: TypeAlias = Callable[[], None]


class AnswerSender:
    """Pieces in sending order. `size_bytes` is what the kernel has not taken."""

    def __init__(self, transport: Transport, on_relief: Callable[[], None]) -> None:
        self._transport = transport
        self._pieces: deque[memoryview | ByteRange | Done] = deque()
        self._on_relief = on_relief
        self._wake = trio.Event()
        self._drained = trio.Event()
        self.size_bytes = 0
        self.sent_bytes = 0  # since it began
        self.broken = False

    def write(self, data: bytes) -> None:
        if not self.broken:
            self._pieces.append(memoryview(data))
            self.size_bytes += len(data)
            self._wake.set()

    def write_ranges(
        self, head: bytes, pieces: Iterable[ByteRange | memoryview], size_bytes: int, done: Done
    ) -> None:
        """`done` is called when they are sent or given up."""
        if self.broken:
            done()
            return
        self._pieces.append(memoryview(head))
        self._pieces.extend(pieces)
        self._pieces.append(done)
        self.size_bytes += len(head) + size_bytes
        self._wake.set()

    @property
    def idle(self) -> bool:
        return not self._pieces and self._transport.idle

    @property
    def congested(self) -> bool:
        """Fetches have to wait."""
        return self.size_bytes > HIGH_BYTES

    @property
    def brimming(self) -> bool:
        return self.size_bytes > BRIM_BYTES

    async def run(self) -> None:
        """Send until the peer is gone or takes nothing any more."""
        try:
            while not self.broken:
                if not self._pieces:
                    self._drained.set()
                    self._wake = trio.Event()
                    await self._wake.wait()
                await self._send()
        finally:
            self._let_go()

    async def drained(self) -> None:
        """Wait until everything is sent or given up."""
        if not self.idle and not self.broken:
            self._drained = trio.Event()
            await self._drained.wait()

    def give_up(self) -> None:
        """Send nothing more. Files are let go when no thread is in them any more."""
        self.broken = True
        self._wake.set()

    def _let_go(self) -> None:
        self.broken = True
        pieces, self._pieces = self._pieces, deque()
        self.size_bytes = 0
        for piece in pieces:
            if not isinstance(piece, memoryview | ByteRange):
                piece()
        self._drained.set()

    async def _send(self) -> None:
        while (self._pieces or not self._transport.idle) and not self.broken:
            try:
                before = self.size_bytes
                await self._send_some()
            except BlockingIOError:
                with trio.move_on_after(STALL_TIMEOUT_S) as scope:
                    await self._transport.wait_writable()
                self.broken = self.broken or scope.cancelled_caught
            except OSError:  # the socket's, or a file that cannot be read: the peer must ask anew
                self.broken = True
            if before > LOW_BYTES >= self.size_bytes:
                self._on_relief()

    async def _send_some(self) -> None:
        if not self._pieces:  # what is encrypted already
            self._transport.flush_nowait()
            if not self._transport.idle:
                raise BlockingIOError
            return
        first = self._pieces[0]
        if isinstance(first, ByteRange):
            await self._send_file(first)
        elif isinstance(first, memoryview):
            self._send_memory()
        else:
            self._pieces.popleft()
            first()

    async def _send_file(self, part: ByteRange) -> None:
        sent = await self._transport.send_file(part)
        if self.broken:
            return  # given up meanwhile
        self.size_bytes -= sent
        self.sent_bytes += sent
        if sent == part.length:
            self._pieces.popleft()
        else:
            self._pieces[0] = part._replace(
                position=part.position + sent, length=part.length - sent
            )

    def _send_memory(self) -> None:
        pieces = self._pieces
        views: list[memoryview] = []
        for piece in pieces:
            if not isinstance(piece, memoryview) or len(views) == BUFFERS_MAX:
                break
            views.append(piece)
        sent = self._transport.send_now(views)
        self.size_bytes -= sent
        self.sent_bytes += sent
        for view in views:
            if sent < len(view):
                pieces[0] = view[sent:]
                return
            sent -= len(view)
            pieces.popleft()
