"""Clients whose messages are numbered: each must be confirmed, and must come exactly once."""

from __future__ import annotations

import selectors
import struct
import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pamqp import commands, frame

from benchmarks.wire import (
    READ_BYTES_MAX,
    SETUP_TIMEOUT_S,
    BrokerError,
    ConfirmCounter,
    Connection,
    encode_acks,
    encode_publish,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

NUMBER_BYTES = 8
_CHANNEL = 1
_TAG = "c"
_NUMBER = struct.Struct(">Q")
_WRITE_MESSAGES = 64


class Publisher:
    """Publishes numbers from `first` on, with at most `window` of them unconfirmed."""

    def __init__(
        self, url: str, queue: str, *, first: int, body_bytes: int, durable: bool, window: int
    ) -> None:
        self._connection = Connection(url)
        self._connection.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        self.sock = self._connection.sock
        self.sock.settimeout(0)
        properties = commands.Basic.Properties(delivery_mode=2 if durable else 1)
        message = encode_publish(
            exchange="", routing_key=queue, body_bytes=body_bytes, properties=properties
        )
        at = len(message) - 1 - body_bytes
        self._head, self._rest = message[:at], message[at + NUMBER_BYTES :]
        self._first = first
        self._window = window
        self._unsent = memoryview(b"")
        self._confirms = ConfirmCounter()
        self.sent = 0
        self.stop_at: int | None = None  # after so many

    @property
    def confirmed(self) -> int:
        return self._confirms.confirmed

    @property
    def done(self) -> bool:
        return self.confirmed == self.stop_at and not self._unsent

    def readable(self) -> None:
        data = self.sock.recv(READ_BYTES_MAX)
        if not data:
            raise BrokerError(f"a publisher was cut off: {self._confirms.unexplained()}")
        self._confirms.feed(data)

    def writable(self) -> bool:
        """Send what may be sent; whether there was anything."""
        if not self._unsent:
            self._encode()
        if not self._unsent:
            return False
        try:
            self._unsent = self._unsent[self.sock.send(self._unsent) :]
        except BlockingIOError:
            return False
        return True

    def _encode(self) -> None:
        room = self._window - (self.sent - self.confirmed)
        if self.stop_at is not None:
            room = min(room, self.stop_at - self.sent)
        count = min(room, _WRITE_MESSAGES)
        if count > 0:
            first = self._first + self.sent
            pieces = [
                self._head + _NUMBER.pack(number) + self._rest
                for number in range(first, first + count)
            ]
            self._unsent = memoryview(b"".join(pieces))
            self.sent += count

    def close(self) -> None:
        self._connection.close()


class Collector:
    """Consumes, notes each number, and acks at most so many a second (None: all at once)."""

    def __init__(
        self, url: str, queue: str, *, body_bytes: int, prefetch: int, acks: bool = True
    ) -> None:
        self._connection = Connection(url)
        call = self._connection.call
        call(commands.Basic.Qos(prefetch_count=prefetch), commands.Basic.QosOk)
        self.sock = self._connection.sock
        consume = commands.Basic.Consume(queue=queue, consumer_tag=_TAG)
        call(consume, commands.Basic.ConsumeOk)
        self._body_bytes = body_bytes
        self._acks = acks
        self._buffer = bytearray(self._connection.unread)
        self._layout: struct.Struct | None = None
        self._acked = 0
        self._began = time.monotonic()
        self.rate_per_s: float | None = None
        self.numbers: deque[int] = deque()
        self.received = 0
        self.sock.settimeout(0)
        self._parse()

    def readable(self) -> None:
        data = self.sock.recv(READ_BYTES_MAX)
        if not data:
            raise BrokerError("the consumer was cut off")
        self._buffer += data
        self._parse()

    def _parse(self) -> None:
        if self._layout is None:
            self._layout = self._measure()
        if self._layout is None:
            return
        whole = len(self._buffer) - len(self._buffer) % self._layout.size
        found = [number for (number,) in self._layout.iter_unpack(self._buffer[:whole])]
        del self._buffer[:whole]
        self.numbers.extend(found)
        self.received += len(found)

    def _measure(self) -> struct.Struct | None:
        """Where the number stands in a delivery; all of them are equally long."""
        size = 0
        for _ in range(3):  # method, header, body
            if len(self._buffer) < size + 7:
                return None
            size += int.from_bytes(self._buffer[size + 3 : size + 7], "big") + 8
        if len(self._buffer) < size:
            return None
        value = frame.unmarshal(bytes(self._buffer[:size]))[2]
        if not isinstance(value, commands.Basic.Deliver):
            raise BrokerError(f"{value.name} where a delivery was expected")
        before = size - 1 - self._body_bytes
        return struct.Struct(f">{before}xQ{size - before - NUMBER_BYTES}x")

    def settle(self) -> None:
        """Ack what the rate allows."""
        if not self._acks:
            return
        due = self.received
        if self.rate_per_s is not None:
            due = min(due, int((time.monotonic() - self._began) * self.rate_per_s))
        if due > self._acked:
            self._acked = due
            self.sock.settimeout(SETUP_TIMEOUT_S)
            self.sock.sendall(encode_acks([due], channel=_CHANNEL, multiple=True))
            self.sock.settimeout(0)

    def close(self) -> None:
        self._connection.close()


def drive(
    publishers: Iterable[Publisher],
    collector: Collector | None,
    until: Callable[[], bool],
    *,
    within_s: float,
) -> None:
    """Let all of them work until the condition holds; BrokerError if that takes too long."""
    deadline = time.monotonic() + within_s
    publishers = list(publishers)
    with selectors.DefaultSelector() as selector:
        for publisher in publishers:
            selector.register(publisher.sock, selectors.EVENT_READ, publisher)
        if collector is not None:
            selector.register(collector.sock, selectors.EVENT_READ, collector)
        while not until():
            if time.monotonic() > deadline:
                raise BrokerError(f"not done after {within_s:.0f} s")
            busy = [publisher.writable() for publisher in publishers]
            for key, _ in selector.select(0 if any(busy) else 0.002):
                key.data.readable()
            if collector is not None:
                collector.settle()


@contextmanager
def declared(url: str, queue: str, *, durable: bool) -> Iterator[None]:
    """The queue is there, and gone in the end with whatever is in it."""
    connection = Connection(url)
    declare = commands.Queue.Declare(queue=queue, durable=durable)
    connection.call(declare, commands.Queue.DeclareOk)
    try:
        yield
        connection.call(commands.Queue.Delete(queue=queue), commands.Queue.DeleteOk)
    finally:
        connection.close()
