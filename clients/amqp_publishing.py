"""Publishes on their way: encoded for one channel, and remembered until they are confirmed."""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from broker.protocol.constants import (
    BASIC_PUBLISH,
    CLASS_BASIC,
    FRAME_BODY,
    FRAME_END_BYTE,
    FRAME_HEADER,
    FRAME_METHOD,
    FRAME_OVERHEAD_BYTES,
)
from broker.protocol.frames import Content
from clients.amqp_errors import NackedError, ReturnedError
from clients.amqp_message import Message, Settler, returned
from clients.amqp_properties import Properties, encode_properties, encode_short

ROUTES_MAX: Final = 1024  # encoded addresses that are kept; most programs use a handful
_FRAME = struct.Struct(">BHI")
_METHOD = struct.Struct(">BHIIH")  # up to and with the reserved short of basic.publish
_HEADER = struct.Struct(">BHIHHQH")
_MULTIPLE: Final = 1


class Receipt(Protocol):
    """Who wants to know what became of a publish."""

    def resolve(self) -> None: ...
    def fail(self, error: Exception) -> None: ...


class Publish(NamedTuple):
    """A message to be sent, and perhaps to be sent again."""

    body: bytes
    exchange: str
    routing_key: str
    properties: Properties
    mandatory: bool = False
    resend: bool = False


class PublishEncoder:
    """Writes publishes of one channel as pieces to be joined. What repeats is encoded once."""

    __slots__ = ("_body_max", "_channel", "_encoded", "_head", "_head_bytes", "_last", "_routes")

    def __init__(self, channel: int, frame_max: int) -> None:
        self._channel = channel
        self._body_max = frame_max - FRAME_OVERHEAD_BYTES
        self._routes: dict[tuple[str, str, bool], bytes] = {}
        self._last: Properties | None = None
        self._encoded = (0, b"")
        self._head = b""  # header frame and head of the body frame, for the last properties
        self._head_bytes = -1  # and for a body of this size

    def pieces(self, publish: Publish) -> tuple[bytes, ...]:
        """Raises ValueError for names or properties that do not fit."""
        body, exchange, routing_key, properties, mandatory, _ = publish
        route = self._routes.get((exchange, routing_key, mandatory))
        if route is None:
            route = self._route(exchange, routing_key, mandatory=mandatory)
        size = len(body)
        if properties is not self._last or size != self._head_bytes:
            self._encode_head(properties, size)
        if size == 0:
            return (route, self._head)
        if size <= self._body_max:
            return (route, self._head, body, FRAME_END_BYTE)
        return (route, self._head, *self._many_frames(body))

    def _route(self, exchange: str, routing_key: str, *, mandatory: bool) -> bytes:
        names = encode_short(exchange, "exchange") + encode_short(routing_key, "routing_key")
        head = _METHOD.pack(FRAME_METHOD, self._channel, len(names) + 7, BASIC_PUBLISH, 0)
        route = head + names + bytes((mandatory,)) + FRAME_END_BYTE
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[exchange, routing_key, mandatory] = route
        return route

    def _encode_head(self, properties: Properties, size: int) -> None:
        if properties is not self._last:
            self._encoded = encode_properties(properties)
            self._last = properties
        flags, values = self._encoded
        if len(values) + 14 > self._body_max:
            self._last = None
            raise ValueError(f"{len(values)} bytes of properties do not fit a frame")
        head = _HEADER.pack(
            FRAME_HEADER, self._channel, len(values) + 14, CLASS_BASIC, 0, size, flags
        )
        body_head = b""
        if 0 < size <= self._body_max:
            body_head = _FRAME.pack(FRAME_BODY, self._channel, size)
        self._head = head + values + FRAME_END_BYTE + body_head
        self._head_bytes = size

    def _many_frames(self, body: bytes) -> Iterable[bytes]:
        for start in range(0, len(body), self._body_max):
            piece = body[start : start + self._body_max]
            yield _FRAME.pack(FRAME_BODY, self._channel, len(piece))
            yield piece
            yield FRAME_END_BYTE


class Confirms:
    """Publishes of one channel that are not confirmed, by their number."""

    __slots__ = ("_kept", "_next", "_open", "_returned")

    def __init__(self) -> None:
        self._next = 1
        self._open: dict[int, Receipt] = {}  # in order
        self._kept: dict[int, Publish] = {}  # those that may come back or be sent again
        self._returned: dict[int, ReturnedError] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, receipt: Receipt, publish: Publish) -> None:
        tag = self._next
        self._next = tag + 1
        self._open[tag] = receipt
        if publish.mandatory or publish.resend:
            self._kept[tag] = publish

    def settle(self, items: Sequence[tuple[int, int]], *, nacked: bool) -> None:
        """The broker's acks or nacks, as (tag, bits)."""
        receipts = self._open
        for tag, bits in items:
            if bits & _MULTIPLE:
                first = next(iter(receipts), tag + 1)
                for each in range(first, tag + 1):
                    receipt = receipts.pop(each, None)
                    if receipt is not None:
                        self._tell(each, receipt, nacked=nacked)
            else:
                receipt = receipts.pop(tag, None)
                if receipt is not None:
                    self._tell(tag, receipt, nacked=nacked)

    def _tell(self, tag: int, receipt: Receipt, *, nacked: bool) -> None:
        error: Exception | None = None
        if self._kept:
            self._kept.pop(tag, None)
            error = self._returned.pop(tag, None)
        if nacked:
            error = NackedError("the broker refused the message")
        if error is None:
            receipt.resolve()
        else:
            receipt.fail(error)

    def take_return(self, content: Content, settler: Settler) -> None:
        """A mandatory message came back; its confirm follows. A return does not name its publish:
        it is the first open one that looks the same (of two that do, either will do).
        """
        message, code, text = returned(content, settler)
        for tag, publish in self._kept.items():
            if publish.mandatory and tag not in self._returned and _is_same(publish, message):
                self._returned[tag] = ReturnedError(code, text, message)
                return

    def fail(self, error: Exception) -> list[tuple[Receipt, Publish]]:
        """The channel is gone. What may be sent again is handed back, the others are told."""
        again: list[tuple[Receipt, Publish]] = []
        receipts, self._open = self._open, {}
        for tag, receipt in receipts.items():
            publish = self._kept.get(tag)
            if publish is not None and publish.resend and tag not in self._returned:
                again.append((receipt, publish))
            else:
                receipt.fail(self._returned.get(tag, error))
        self._kept.clear()
        self._returned.clear()
        return again


def _is_same(publish: Publish, message: Message) -> bool:
    return (
        publish.body == message.body
        and publish.routing_key == message.routing_key
        and publish.exchange == message.exchange
        and publish.properties.message_id == message.properties.message_id
        and publish.properties.correlation_id == message.properties.correlation_id
    )
