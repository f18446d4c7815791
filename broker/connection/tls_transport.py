"""A client's socket under TLS: the same as `SocketTransport`, with bytes encrypted in between.

Bytes pass through two buffers in memory, so that nothing here waits but for the socket itself, and
a turn's answers go out with one write as without TLS.
"""

import contextlib
import os
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import trio

from broker.connection.transport import READ_BYTES
from flow_control.outbox import Outbox
from queues.stream.ranges import ByteRange

# Of a stream's answer encrypted in one go: the loop is held up for a fraction of a millisecond.
PIECE_BYTES: Final = 256 * 1024


class TlsFailed(Exception):  # noqa: N818 - it ends the connection without a word to the peer
    """The client does not speak TLS, or not as it must."""


class TlsTransport:
    """See `broker.connection.transport.Transport`."""

    __slots__ = (
        "_encrypted",
        "_incoming",
        "_outgoing",
        "_plain",
        "_rest",
        "_stream",
        "_tls",
        "broken",
        "fd",
        "outbox",
    )

    def __init__(self, stream: trio.SocketStream, outbox: Outbox, context: ssl.SSLContext) -> None:
        self._stream = stream
        self.fd = stream.socket.fileno()
        self.outbox = outbox
        self.broken = False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._rest = memoryview(b"")  # encrypted, not yet taken by the kernel
        self._encrypted = 0  # bytes of what `_rest` was at first
        self._plain = 0  # bytes out of the outbox that are in it, and still count there

    async def shake_hands(self) -> None:
        """Raises TlsFailed."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._send_rest()
            except ssl.SSLError as error:
                await self._send_rest()  # the alert says what is wrong
                raise TlsFailed(error.reason or str(error)) from None
            else:
                await self._send_rest()
                return
            if not await self._receive_raw():
                raise TlsFailed("the client closed the socket")

    def peer_certificate(self) -> dict[str, Any]:
        """As `ssl` decodes it; empty if the client showed none."""
        return dict(self._tls.getpeercert() or {})

    # Reading

    async def receive(self, bytes_max: Callable[[], int] = lambda: READ_BYTES) -> bytes:
        """Bytes as soon as there are any, and no more than are wanted then; none at the end."""
        while True:
            data = self._decrypt(bytes_max())
            if data is not None:
                await trio.lowlevel.checkpoint()  # others have their turn, whatever is buffered
                return data
            self.flush_nowait()  # TLS itself may have something to say
            if not await self._receive_raw():
                return b""

    def _decrypt(self, bytes_max: int) -> bytes | None:
        """What has come; none at the end; None if nothing has."""
        pieces: list[bytes] = []
        left = bytes_max
        while left > 0:
            try:
                piece = self._tls.read(left)
            except ssl.SSLWantReadError:
                return b"".join(pieces) or None
            except ssl.SSLError:  # the end, in good order or not
                piece = b""
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    async def _receive_raw(self) -> bool:
        """Whether there was something."""
        while True:
            await trio.lowlevel.wait_readable(self.fd)
            try:
                raw = os.read(self.fd, READ_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                return False
            self._incoming.write(raw)
            return bool(raw)

    # Writing

    @property
    def idle(self) -> bool:
        """Nothing is waiting to be written."""
        return not self._rest and not self.outbox.pieces and not self._outgoing.pending

    def flush_nowait(self) -> None:
        """Hand the kernel as much as it takes."""
        if self._rest and not self._write_rest():
            return
        if self.broken:
            self._drop()
        elif self.outbox.pieces or self._outgoing.pending:
            data = self.outbox.take()
            self._encrypt(data)
            self._plain = len(data)
            self._write_rest()

    def _encrypt(self, data: bytes) -> None:
        """Into `_rest`, which is empty.

        After the end of TLS, ours or the peer's, there is no way to send anything any more.
        """
        try:
            if data:
                self._tls.write(data)
        except ssl.SSLError:
            self.broken = True
        raw = self._outgoing.read()
        self._rest, self._encrypted = memoryview(raw), len(raw)

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
        self._rest = self._rest[count:]
        left = self._plain * len(self._rest) // self._encrypted if self._encrypted else 0
        self.outbox.sent(self._plain - left)
        self._plain, self._encrypted = left, len(self._rest)
        return not self._rest

    def _drop(self) -> bool:
        self.outbox.pieces.clear()
        self.outbox.size = self._plain = 0
        self._rest = memoryview(b"")
        return True

    async def _send_rest(self) -> None:
        """What TLS has to say before there is anything else to send."""
        self.flush_nowait()
        while not self.idle and not self.broken:
            await self.wait_writable()
            self.flush_nowait()

    # Answers of the stream protocol, which go by themselves and not through the outbox

    def send_now(self, views: list[memoryview]) -> int:
        """How many bytes were taken. Raises BlockingIOError, or OSError if the peer is gone."""
        if self._rest and not self._write_rest():
            raise BlockingIOError
        if self.broken:
            raise BrokenPipeError
        data = b"".join(views)[:PIECE_BYTES]
        self._encrypt(data)
        if self.broken:
            raise BrokenPipeError
        self._write_rest()
        return len(data)

    async def send_file(self, part: ByteRange) -> int:
        """The same for some of a file. Raises OSError too if that cannot be read."""
        count = min(part.length, PIECE_BYTES)
        if self._rest and not self._write_rest():
            raise BlockingIOError
        read = partial(os.pread, part.file.fileno(), count, part.position)
        data = await trio.to_thread.run_sync(read)
        if not data:
            raise OSError("a file is shorter than it was")
        return self.send_now([memoryview(data)])

    # The end

    async def wait_writable(self) -> None:
        await trio.lowlevel.wait_writable(self.fd)

    def send_eof(self) -> None:
        """Tell the peer that nothing more will come."""
        with contextlib.suppress(ssl.SSLError):  # it wants to hear the peer's end first
            self._tls.unwrap()
        self.flush_nowait()
        with contextlib.suppress(OSError):
            self._stream.socket.shutdown(trio.socket.SHUT_WR)

    def reset(self) -> None:
        """Forget what could not be sent: the connection is given up."""
        self.broken = True
        self._drop()

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)
