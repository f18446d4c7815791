"""One connection of the stream protocol, sans-IO: requests become bytes, bytes become answers.

Whoever has the socket reads into `space` as much as comes and says so to `filled`: so the body of
an answer is read straight into memory of its own, which starts at a multiple of eight.
"""

import struct
from typing import Any, Final, NamedTuple, TypeVar, cast

from broker.protocol import stream_messages as wire
from broker.protocol.stream_fields import Cursor, MalformedError
from broker.protocol.stream_wire import (
    ANSWER_BYTES_MAX,
    ANSWER_HEAD_BYTES,
    LENGTH_BYTES,
    PROTOCOL_HEADER,
    Answer,
    Operation,
    Status,
    decode_refusal,
    encode_request,
    read_answer,
)
from clients.stream_address import Address
from clients.stream_errors import ConnectionLostError, NoBrokerError, RefusedError, error_of

M = TypeVar("M")

_OPERATIONS: Final = {
    kinds[0]: operation for operation, kinds in wire.MESSAGES.items() if kinds[0] is not wire.Empty
}
_NOTHING: Final = memoryview(b"")
# What others say first. As the length of an answer these bytes would be out of all bounds.
_OTHERS: Final = {
    b"HTTP": "an HTTP server; the port of AMQP is the right one, 5672 by default",
    b"AMQP": "a broker that does not speak the stream protocol",
    b"\x15\x03\x01\x00": "a server that wants TLS (amqps://)",
    b"\x15\x03\x03\x00": "a server that wants TLS (amqps://)",
}


class Fetched(NamedTuple):
    """The answer to a fetch."""

    head: wire.FetchHead
    data: memoryview  # whole chunks, aligned to eight bytes


class Conversation:
    def __init__(self) -> None:
        self.in_flight: dict[int, int | None] = {}  # correlation → where a fetch starts
        self._correlation = 0
        self._head: memoryview | None = None  # of the answer whose body is being read
        self.is_new = True  # nothing has come on this socket
        self._expect(ANSWER_HEAD_BYTES)

    def reset(self) -> None:
        """For another socket. Numbers go on, so that none means a request on an older one."""
        self.in_flight.clear()
        self._head = None
        self.is_new = True
        self._expect(ANSWER_HEAD_BYTES)

    # Out

    def login(self, address: Address, client: str) -> tuple[int, bytes]:
        """The first request, with what must be in front of it."""
        response = f"\0{address.user}\0{address.password}".encode()
        message = wire.Authenticate("PLAIN", response, address.vhost, client)
        correlation, data = self.request(message)
        return correlation, PROTOCOL_HEADER + data

    def request(self, message: Any, operation: Operation | None = None) -> tuple[int, bytes]:
        """The number under which it will be answered, and the bytes to send."""
        operation = operation if operation is not None else _OPERATIONS[type(message)]
        correlation = self._correlation % (2**32 - 1) + 1
        data = encode_request(correlation, operation, wire.encode_body(message))
        self._correlation = correlation
        self.in_flight[correlation] = message.start if isinstance(message, wire.Fetch) else None
        return correlation, data

    # In

    def space(self) -> memoryview:
        """Where the next bytes go. Never empty."""
        return self._view[self._have :]

    def filled(self, count: int) -> Answer | None:
        """So many bytes came; the answer that they complete. Raises MalformedError.

        NoBrokerError if the first of all are those of somebody else.
        """
        self._have += count
        if self.is_new and self._have >= LENGTH_BYTES:
            self.is_new = False
            other = _OTHERS.get(bytes(self._view[:LENGTH_BYTES]))
            if other is not None:
                raise NoBrokerError(f"that is {other}")
        if self._have < len(self._view):
            return None
        whole, head = self._view, self._head
        if head is None:
            (length,) = struct.unpack_from("<I", whole)
            size = length - (ANSWER_HEAD_BYTES - LENGTH_BYTES)
            if not 0 <= size <= ANSWER_BYTES_MAX:
                raise MalformedError(f"an answer of {length} bytes")
            if size:
                self._head = whole
                self._expect(size)
                return None
            head, whole = whole, _NOTHING
        self._head = None
        self._expect(ANSWER_HEAD_BYTES)
        return read_answer(head[LENGTH_BYTES:])._replace(body=whole)

    def settle(self, correlation: int) -> int | None:
        """It is answered, or nobody cares any more: where the fetch started, if it was one."""
        return self.in_flight.pop(correlation, None)

    def _expect(self, size: int) -> None:
        self._view = memoryview(bytearray(size))
        self._have = 0


def decode(answer: Answer, kind: type[M], start: int | None) -> M:
    """What the answer says; the kind of a fetch is Fetched, and `start` where it did.

    Raises RefusedError if it is an error, OffsetOutOfRangeError if that is the error.
    """
    if answer.status != Status.OK:
        raise error_of(decode_refusal(answer), start)
    if kind is not Fetched:
        return wire.decode_body(kind, answer.body)
    cursor = Cursor(answer.body)
    head = wire.decode_front(wire.FetchHead, cursor)
    return cast("M", Fetched(head, cursor.take(cursor.left)))


def last_word(answer: Answer) -> ConnectionLostError | RefusedError:
    """Why the server closes. Of what the client did wrong it hears as such."""
    refused = decode_refusal(answer)
    if refused.status in (Status.SHUTTING_DOWN, Status.IDLE):
        return ConnectionLostError(refused.text)
    return RefusedError(refused)
