"""A client's socket: large reads; writes that go at once as far as the kernel takes them."""

import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import trio

from flow_control.outbox import Outbox
from queues.stream.ranges import ByteRange

READ_BYTES: Final = 64 * 1024  # unless the caller says otherwise
SENDFILE_BYTES: Final = 4 * 1024 * 1024  # in one call in a thread


class Transport(Protocol):
    """What connections see of a socket: `SocketTransport`, or `TlsTransport` around one."""

    outbox: Outbox
    broken: bool  # the peer is gone; nothing more can be written

    @property
    def idle(self) -> bool: ...
    async def receive(self, bytes_max: Callable[[], int] = ...) -> bytes: ...
    def flush_nowait(self) -> None: ...
    async def wait_writable(self) -> None: ...
    def send_now(self, views: list[memoryview]) -> int: ...
    async def send_file(self, part: ByteRange) -> int: ...
    def send_eof(self) -> None: ...
    def reset(self) -> None: ...
    async def aclose(self) -> None: ...


class SocketTransport:
    """Plain TCP. Goes around Trio's stream so that `flush_nowait` needs no task switch."""

    __slots__ = ("_rest", "_stream", "broken", "fd", "outbox")

    def __init__(self, stream: trio.SocketStream, outbox: Outbox) -> None:
        self._stream = stream
        self.fd = stream.socket.fileno()
        self._rest = memoryview(b"")  # taken from the outbox, not yet by the kernel
        self.outbox = outbox
        self.broken = False  # the peer is gone; nothing more can be written

    async def receive(self, bytes_max: Callable[[], int] = lambda: READ_BYTES) -> bytes:
        """Bytes as soon as there are any, and no more than are wanted then; none at the end."""
        while True:
            await trio.lowlevel.wait_readable(self.fd)
            try:
                return os.read(self.fd, bytes_max())
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
            count = os.write(self.fd, self._rest)
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

    # Answers of the stream protocol, which go by themselves and not through the outbox

    def send_now(self, views: list[memoryview]) -> int:
        """How many bytes were taken. Raises BlockingIOError, or OSError if the peer is gone."""
        return os.writev(self.fd, views)

    async def send_file(self, part: ByteRange) -> int:
        """The same for some of a file, in a thread: it may have to be read from disk."""
        count = min(part.length, SENDFILE_BYTES)
        sent = await trio.to_thread.run_sync(
            partial(os.sendfile, self.fd, part.file.fileno(), part.position, count)
        )
        if not sent:
            raise OSError("a file is shorter than it was")
        return sent

    async def wait_writable(self) -> None:
        await trio.lowlevel.wait_writable(self.fd)

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
