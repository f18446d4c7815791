"""The client during the handshake: one method at a time, each the one that is expected."""

from collections import deque
from typing import TYPE_CHECKING, TypeVar, cast

import trio

from broker.connection.handshake import SPOKEN_HEADERS, HandshakeFailed
from broker.connection.sender import Sender
from broker.protocol import methods
from broker.protocol.constants import PROTOCOL_HEADER
from broker.protocol.frames import Batch, FrameReader
from broker.security.sasl import Origin
from broker.strangers import Stranger

if TYPE_CHECKING:
    from pamqp.base import Frame

FrameT = TypeVar("FrameT", bound="Frame")


class Greeting:
    """A `handshake.Peer`."""

    def __init__(
        self, sender: Sender, reader: FrameReader, origin: Origin, stranger: Stranger
    ) -> None:
        self.origin = origin
        self._stranger = stranger
        self._sender = sender
        self._transport = sender.transport
        self._reader = reader
        self._batches: deque[Batch] = deque()
        self.received = b""  # the header and what came with it

    @property
    def left_over(self) -> list[Batch]:
        """What came behind the handshake in the same read."""
        return list(self._batches)

    async def receive_header(self) -> bytes:
        data = b""
        while len(data) < len(PROTOCOL_HEADER):
            received = await self._receive()
            if not received:
                raise HandshakeFailed("the client closed the socket before its protocol header")
            data += received
        self.received = data
        rest = data[len(PROTOCOL_HEADER) :]
        if rest and data.startswith(SPOKEN_HEADERS):
            self._batches.extend(self._reader.feed(rest))
        return data[: len(PROTOCOL_HEADER)]

    async def expect(self, kind: type[FrameT]) -> FrameT:
        while not self._batches:
            if self._reader.failure is not None:
                raise self._reader.failure
            data = await self._receive()
            if not data:
                raise HandshakeFailed(f"the client closed the socket before {kind.name}")
            self._batches.extend(self._reader.feed(data))
        number, key, items = self._batches.popleft()
        if number or key != kind.index or len(items) != 1:
            raise HandshakeFailed(f"{methods.name_of(key)} where {kind.name} was expected")
        return cast("FrameT", methods.decode(key, cast("bytes", items[0])))

    async def _receive(self) -> bytes:
        """While nothing comes, it may have to go for another."""
        stranger = self._stranger
        stranger.waiting = True
        data = await self._transport.receive()
        stranger.waiting, stranger.heard = False, True
        return data

    async def send(self, kind: "type[Frame]", **arguments: object) -> None:
        await self.send_raw(methods.encode(0, kind, **arguments))

    async def send_raw(self, data: bytes) -> None:
        self._sender.outbox.write(data)
        self._sender.flush()
        await trio.lowlevel.checkpoint()
