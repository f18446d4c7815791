"""What carries a lane: a plain socket, or any stream of Trio's (TLS, memory)."""

import os
from typing import Final, Protocol

import trio

# In one write to a stream that takes all or waits: small enough to see that it moves.
STREAM_WRITE_BYTES: Final = 256 * 1024


class Wire(Protocol):
    """Bytes both ways. Writing raises trio.BrokenResourceError once the peer is gone."""

    def write_nowait(self, data: memoryview) -> int:
        """How many bytes were taken at once, perhaps none."""
        ...

    async def write(self, data: memoryview) -> int:
        """How many bytes were taken, at least one."""
        ...

    async def read(self, bytes_max: int) -> bytes:
        """Bytes as soon as there are any; none once the peer is gone."""
        ...

    async def aclose(self) -> None: ...


class SocketWire:
    """Goes around Trio's stream, so that a write that fits the kernel needs no task."""

    __slots__ = ("_fd", "_stream")

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._fd = stream.socket.fileno()

    def write_nowait(self, data: memoryview) -> int:
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError(error.strerror) from error

    async def write(self, data: memoryview) -> int:
        while True:
            await trio.lowlevel.wait_writable(self._fd)
            if count := self.write_nowait(data):
                return count

    async def read(self, bytes_max: int) -> bytes:
        while True:
            await trio.lowlevel.wait_readable(self._fd)
            try:
                return os.read(self._fd, bytes_max)
            except BlockingIOError:
                continue
            except OSError:
                return b""

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)


class StreamWire:
    """All writing is for the lane's task."""

    __slots__ = ("_stream",)

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    def write_nowait(self, data: memoryview) -> int:  # noqa: ARG002 - a Wire
        return 0

    async def write(self, data: memoryview) -> int:
        part = data[:STREAM_WRITE_BYTES]
        await self._stream.send_all(part)
        return len(part)

    async def read(self, bytes_max: int) -> bytes:
        try:
            return bytes(await self._stream.receive_some(bytes_max))
        except trio.BrokenResourceError:
            return b""

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)


def wire_of(stream: trio.abc.Stream) -> Wire:
    return SocketWire(stream) if isinstance(stream, trio.SocketStream) else StreamWire(stream)
