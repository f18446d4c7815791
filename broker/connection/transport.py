"""A client's socket: large reads; writes that go at once as far as the kernel takes them."""

import contextlib
import os
from typing import Final

import trio

from flow_control.outbox import Outbox

# One read is one batch: large enough to spread the cost of a turn of the loop over hundreds of
# messages, small enough that other connections are served within a few milliseconds.
READ_BYTES: Final = 256 * 1024


class SocketTransport:
    """Plain TCP. Goes around Trio's stream so that `flush_nowait` needs no task switch."""

    __slots__ = ("_fd", "_rest", "_stream", "broken", "outbox")

    def __init__(self, stream: trio.SocketStream, outbox: Outbox) -> None:
        self._stream = stream
        self._fd = stream.socket.fileno()
        self._rest = memoryview(b"")  # taken from the outbox, not yet by the kernel
        self.outbox = outbox
        self.broken = False  # the peer is gone; nothing more can be written

    async def receive(self) -> bytes:
        """Bytes as soon as there are any; none at the end of the stream."""
        while True:
            await trio.lowlevel.wait_readable(self._fd)
            try:
                return os.read(self._fd, READ_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                return b""

    @property
    def idle(self) -> bool:
        """Nothing is waiting to be written."""
        return not self._rest and not self.outbox.pieces

    def flush_nowait(self) -> None:
        """Hand the kernel as much as it takes."""
        if self._rest and not self._write_rest():
            return
        if self.broken:
            self._drop()
        elif self.outbox.pieces:
            self._rest = memoryview(self.outbox.take())
            self._write_rest()

    def _write_rest(self) -> bool:
        """Whether all of it went."""
        if self.broken:
            return self._drop()
        try:
            count = os.write(self._fd, self._rest)
        except BlockingIOError:
            return False
        except OSError:
            self.broken = True
            return self._drop()
        self.outbox.sent(count)
        self._rest = self._rest[count:]
        return not self._rest

    def _drop(self) -> bool:
        self.outbox.pieces.clear()
        self.outbox.size = 0
        self._rest = memoryview(b"")
        return True

    async def wait_writable(self) -> None:
        await trio.lowlevel.wait_writable(self._fd)

    def send_eof(self) -> None:
        """Tell the peer that nothing more will come."""
        with contextlib.suppress(OSError):
            self._stream.socket.shutdown(trio.socket.SHUT_WR)

    def reset(self) -> None:
        """Forget what could not be sent: the connection is given up."""
        self.broken = True
        self._drop()

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)
