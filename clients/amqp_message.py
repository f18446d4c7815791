"""A message that came: delivered, fetched or returned. Decoded where somebody looks."""

import struct
from collections.abc import Mapping
from typing import Final, Protocol

from broker.protocol.frames import Content
from broker.protocol.tables import FieldValue, text
from clients.amqp_properties import Properties, decode_properties

_FRAME_EDGES: Final = 15  # end of the header frame, head of the body frame
_U64 = struct.Struct(">Q")
_NO_HEADERS: Final[Mapping[str, FieldValue]] = {}


class Settler(Protocol):
    """Where the message is acked."""

    @property
    def live(self) -> bool: ...
    def ack(self, tag: int, *, multiple: bool = False) -> None: ...
    def nack(self, tag: int, *, requeue: bool, multiple: bool = False) -> None: ...
    def reject(self, tag: int, *, requeue: bool) -> None: ...


class Message:
    """`body` and `properties` are what was published, `exchange` and `routing_key` where to.

    `ack`, `nack` and `reject` are plain calls: they go out with what is sent next, at once. For
    messages from before a reconnect they do nothing, because those messages come again.
    """

    __slots__ = ("_address_at", "_body", "_content", "_properties", "_settler", "delivery_tag")

    def __init__(
        self, content: Content, settler: Settler, delivery_tag: int, address_at: int
    ) -> None:
        self._content = content
        self._settler = settler
        self._address_at = address_at  # where redelivered, exchange and routing key are
        self._body: bytes | None = None
        self._properties: Properties | None = None
        self.delivery_tag = delivery_tag

    @property
    def body(self) -> bytes:
        if self._body is None:
            _, frames, header_bytes, _, body_bytes = self._content
            self._body = frames[header_bytes + _FRAME_EDGES : -1] if body_bytes else b""
        return self._body

    @property
    def properties(self) -> Properties:
        if self._properties is None:
            _, frames, header_bytes, flags, _ = self._content
            self._properties = decode_properties(flags, frames, header_bytes)
        return self._properties

    @property
    def headers(self) -> Mapping[str, FieldValue]:
        headers = self.properties.headers
        return headers if headers is not None else _NO_HEADERS

    @property
    def redelivered(self) -> bool:
        """It was delivered before, to this consumer or to another."""
        return bool(self._content[0][self._address_at])

    @property
    def exchange(self) -> str:
        args = self._content[0]
        start = self._address_at + 1
        return text(args[start + 1 : start + 1 + args[start]])

    @property
    def routing_key(self) -> str:
        args = self._content[0]
        start = self._address_at + 1
        start += 1 + args[start]
        return text(args[start + 1 : start + 1 + args[start]])

    @property
    def raw_size(self) -> int:
        """The bytes it takes in memory, more or less."""
        return len(self._content[1])

    @property
    def live(self) -> bool:
        """Its channel is still there. If not, an ack does nothing, and the message comes again."""
        return self._settler.live

    def ack(self, *, multiple: bool = False) -> None:
        """It is done; with `multiple`, so are all that the channel received before it."""
        self._settler.ack(self.delivery_tag, multiple=multiple)

    def nack(self, *, requeue: bool = True, multiple: bool = False) -> None:
        """It is not done: to the queue again, or to the dead letters."""
        self._settler.nack(self.delivery_tag, requeue=requeue, multiple=multiple)

    def reject(self, *, requeue: bool = False) -> None:
        """It is not wanted: to the dead letters, or to the queue again."""
        self._settler.reject(self.delivery_tag, requeue=requeue)

    def __repr__(self) -> str:
        return (
            f"<Message {self.delivery_tag} from {self.exchange!r} under {self.routing_key!r}, "
            f"{self._content[4]} bytes>"
        )


def fetched(content: Content, settler: Settler) -> tuple[Message, int]:
    """Of a get-ok: the message, and how many are left in the queue."""
    args = content[0]
    (tag,) = _U64.unpack_from(args)
    message = Message(content, settler, tag, 8)
    return message, int.from_bytes(args[-4:], "big")


def returned(content: Content, settler: Settler) -> tuple[Message, int, str]:
    """Of a basic.return: the message, why it came back as code and text."""
    args = content[0]
    code = int.from_bytes(args[:2], "big")
    # The octet before the exchange is the last of the text here, not the redelivered bit.
    message = Message(content, settler, 0, 2 + args[2])
    return message, code, text(args[3 : 3 + args[2]])
