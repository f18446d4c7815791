"""Just enough AMQP to put load on a broker: everything per message is pre-encoded or counted.

The set-up (handshake, declares) goes through pamqp and is not measured. What runs per message:

    publish   `PublishBatch.stamped()` joins pre-encoded pieces with a send time, one join per batch
    delivery  `DeliveryCounter` divides the bytes read by the size of one delivery; the delivery tag
              of the last one must equal the count, so that a miscount cannot go unnoticed
    confirm   `ConfirmCounter` walks 21-byte basic.ack frames, each of which may cover many messages
    ack       `encode_acks()` packs 21-byte frames for a range of tags
"""

from __future__ import annotations

import socket
import struct
from itertools import repeat
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from pamqp import base, body, commands, exceptions, frame, header

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PUBLISH_CHANNEL = 1
STAMP_BYTES = 8
SETUP_TIMEOUT_S = 20.0
# One read may bring this much; larger reads mean fewer system calls for the generator.
READ_BYTES_MAX = 1 << 19

_FRAME_HEAD = struct.Struct(">BHI")
_FRAME_OVERHEAD_BYTES = 8
_TAG = struct.Struct(">Q")
# frame head and method id, delivery tag, multiple, frame end: the same 21 bytes for an ack that
# goes out and for a confirm that comes in.
_ACK = struct.Struct(">11sQBB")
_DELIVER_ID = struct.pack(">HH", 60, 60)
_FRAME_END = 0xCE
# The consumer tag's length byte follows the frame head (7) and the method id (4).
_CONSUMER_TAG_AT = 11

_ORDINARY = (
    commands.Basic.Deliver,
    commands.Basic.Ack,
    header.ContentHeader,
    body.ContentBody,
)

_Reply = TypeVar("_Reply", bound=base.Frame)


def _ack_prefix(channel: int) -> bytes:
    return _FRAME_HEAD.pack(1, channel, 13) + struct.pack(">HH", 60, 80)


_CONFIRM_PREFIX = _ack_prefix(PUBLISH_CHANNEL)


class BrokerError(Exception):
    """The broker refused something or sent what the generator cannot count."""


class Connection:
    """One blocking connection with one open channel."""

    def __init__(self, url: str, *, channel: int = PUBLISH_CHANNEL, heartbeat_s: int = 0) -> None:
        self._channel = channel
        parts = urlsplit(url)
        user = unquote(parts.username or "guest")
        password = unquote(parts.password or "guest")
        address = (parts.hostname or "127.0.0.1", parts.port or 5672)
        self.sock = socket.create_connection(address, timeout=SETUP_TIMEOUT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unread = bytearray()
        self._confirms: ConfirmCounter | None = None
        try:
            self._open(f"\0{user}\0{password}", unquote(parts.path[1:]) or "/", heartbeat_s)
        except BaseException:
            self.sock.close()
            raise

    def _open(self, sasl: str, vhost: str, heartbeat_s: int) -> None:
        self.sock.sendall(header.ProtocolHeader().marshal())
        self._expect(commands.Connection.Start)
        self._send(commands.Connection.StartOk({}, "PLAIN", sasl, "en_US"), channel=0)
        tune = self._expect(commands.Connection.Tune)
        tune_ok = commands.Connection.TuneOk(tune.channel_max, tune.frame_max, heartbeat_s)
        self._send(tune_ok, channel=0)
        self._send(commands.Connection.Open(vhost), channel=0)
        self._expect(commands.Connection.OpenOk)
        self.call(commands.Channel.Open(), commands.Channel.OpenOk)

    def call(self, method: base.Frame, reply: type[_Reply]) -> _Reply:
        """Send a method on the channel and return its answer."""
        self._send(method, channel=self._channel)
        return self._expect(reply)

    def await_confirms(self, count: int) -> None:
        """Read until `count` more messages are confirmed; nothing else may be under way."""
        confirmed = ConfirmCounter() if self._confirms is None else self._confirms
        self._confirms, wanted = confirmed, confirmed.confirmed + count
        while confirmed.confirmed < wanted:
            data = self.sock.recv(1 << 16)
            if not data:
                raise BrokerError(f"publisher cut off: {confirmed.unexplained()}")
            confirmed.feed(data)

    def close(self) -> None:
        """Drop the socket; the broker cleans up as it does for a client that went away."""
        self.sock.close()

    def _send(self, method: base.Frame, *, channel: int) -> None:
        self.sock.sendall(frame.marshal(method, channel))

    def _expect(self, reply: type[_Reply]) -> _Reply:
        while True:
            method = self._read_frame()
            if isinstance(method, reply):
                return method
            if isinstance(method, commands.Connection.Close | commands.Channel.Close):
                raise BrokerError(f"{method.reply_code} {method.reply_text}")

    def _read_frame(self) -> frame.FrameTypes:
        while (size := _first_frame_bytes(self.unread)) is None:
            data = self.sock.recv(1 << 16)
            if not data:
                raise BrokerError("connection closed by the broker")
            self.unread += data
        _, _, value = frame.unmarshal(bytes(self.unread[:size]))
        del self.unread[:size]
        return value


def _first_frame_bytes(data: bytearray | memoryview) -> int | None:
    """Size of the first frame in `data`, or None while it is incomplete."""
    if len(data) < _FRAME_HEAD.size:
        return None
    size = int(_FRAME_HEAD.unpack_from(data)[2]) + _FRAME_OVERHEAD_BYTES
    return size if len(data) >= size else None


def encode_publish(
    *, exchange: str, routing_key: str, body_bytes: int, properties: commands.Basic.Properties
) -> bytes:
    """One whole basic.publish with an all-zero body of `body_bytes`."""
    parts = (
        commands.Basic.Publish(exchange=exchange, routing_key=routing_key),
        header.ContentHeader(body_size=body_bytes, properties=properties),
        body.ContentBody(bytes(body_bytes)),
    )
    return b"".join(frame.marshal(part, PUBLISH_CHANNEL) for part in parts)


class PublishBatch:
    """Pre-encoded messages whose bodies begin with a send time that is filled in per batch."""

    def __init__(self, messages: Sequence[bytes], body_bytes: int) -> None:
        assert body_bytes >= STAMP_BYTES, "a body must have room for the send time"
        self.messages = len(messages)
        self._pieces: list[bytes] = []
        carried = b""
        for message in messages:
            stamp_at = len(message) - 1 - body_bytes
            self._pieces.append(carried + message[:stamp_at])
            carried = message[stamp_at + STAMP_BYTES :]
        self._pieces.append(carried)

    def stamped(self, sent_ns: int) -> bytes:
        """The bytes of all messages, each carrying `sent_ns`."""
        return _TAG.pack(sent_ns).join(self._pieces)


def encode_acks(tags: Iterable[int], *, channel: int, multiple: bool) -> bytes:
    """One basic.ack frame per tag."""
    fields = repeat(_ack_prefix(channel)), tags, repeat(int(multiple)), repeat(_FRAME_END)
    return b"".join(map(_ACK.pack, *fields))


class ConfirmCounter:
    """Counts the messages that the broker has confirmed, whatever the order of its acks."""

    def __init__(self) -> None:
        self._unread = b""
        self._all_up_to = 0
        self._beyond: set[int] = set()

    @property
    def confirmed(self) -> int:
        return self._all_up_to + len(self._beyond)

    def feed(self, data: bytes) -> int:
        """Take bytes as they came; return the number of messages confirmed so far."""
        data = self._unread + data
        whole = len(data) - len(data) % _ACK.size
        for prefix, tag, multiple, _ in _ACK.iter_unpack(memoryview(data)[:whole]):
            if prefix != _CONFIRM_PREFIX:
                raise BrokerError(f"not a confirm: {describe(data)}")
            if multiple:
                self._confirm_up_to(tag)
            else:
                self._confirm_one(tag)
        self._unread = data[whole:]
        return self.confirmed

    def unexplained(self) -> str:
        """What is left when the broker closes in mid-stream, in words."""
        return describe(self._unread)

    def _confirm_up_to(self, tag: int) -> None:
        self._all_up_to = max(self._all_up_to, tag)
        if self._beyond:
            self._beyond = {one for one in self._beyond if one > self._all_up_to}
            self._absorb()

    def _confirm_one(self, tag: int) -> None:
        if tag == self._all_up_to + 1:
            self._all_up_to = tag
            if self._beyond:
                self._absorb()
        elif tag > self._all_up_to:
            self._beyond.add(tag)

    def _absorb(self) -> None:
        while self._all_up_to + 1 in self._beyond:
            self._all_up_to += 1
            self._beyond.remove(self._all_up_to)


class DeliveryCounter:
    """Counts deliveries of one size by the number of bytes that came, without parsing each.

    All deliveries of a channel must be equally long: same consumer tag length, routing key length,
    properties and body size. The first one gives the size.
    """

    def __init__(self, *, body_bytes: int, sample_every: int) -> None:
        self.count = 0
        self.latencies_ns: list[int] = []
        self._body_bytes = body_bytes
        self._sample_every = sample_every
        self._size: int | None = None
        self._buffer = bytearray(READ_BYTES_MAX)
        self._view = memoryview(self._buffer)
        self._filled = 0

    def space(self) -> memoryview:
        """Where the next bytes go; say how many came with `advance()`."""
        return self._view[self._filled :]

    def feed(self, data: bytes | bytearray) -> None:
        """Copy bytes in without counting them yet: what was read along with the set-up."""
        self._view[self._filled : self._filled + len(data)] = data
        self._filled += len(data)

    def advance(self, nbytes: int, *, now_ns: int | None = None) -> int:
        """Count what `nbytes` more bytes complete; with `now_ns`, sample latencies too."""
        self._filled += nbytes
        if self._size is None:
            self._size = self._measure_first()
            if self._size is None:
                return 0
        size = self._size
        new = self._filled // size
        if new == 0:
            return 0
        self._check_last(new, size)
        if now_ns is not None:
            self._sample(new, size, now_ns)
        self.count += new
        used = new * size
        left = self._filled - used
        self._view[:left] = self._buffer[used : self._filled]
        self._filled = left
        return new

    def unexplained(self) -> str:
        """What is left when the broker closes in mid-stream, in words."""
        return describe(self._view[: self._filled])

    def _measure_first(self) -> int | None:
        """Size of the first delivery's three frames, or None while they are incomplete."""
        end = 0
        for _ in ("method", "header", "body"):
            size = _first_frame_bytes(self._view[end : self._filled])
            if size is None:
                return None
            end += size
        return end

    def _check_last(self, new: int, size: int) -> None:
        """The last of `new` deliveries stands where it must and bears the right tag."""
        start = (new - 1) * size
        buffer = self._buffer
        tag_at = start + _CONSUMER_TAG_AT + 1 + buffer[start + _CONSUMER_TAG_AT]
        if (
            buffer[start + 7 : start + 11] != _DELIVER_ID
            or buffer[start + size - 1] != _FRAME_END
            or _TAG.unpack_from(buffer, tag_at)[0] != self.count + new
        ):
            raise BrokerError(
                f"after {self.count} deliveries of {size} bytes: "
                f"{describe(self._view[: self._filled])}"
            )

    def _sample(self, new: int, size: int, now_ns: int) -> None:
        """Note the age of every `sample_every`-th delivery, counted over the whole stream."""
        first = -self.count % self._sample_every
        stamp_at = size - 1 - self._body_bytes
        unpack_from, buffer = _TAG.unpack_from, self._buffer
        self.latencies_ns += [
            now_ns - unpack_from(buffer, index * size + stamp_at)[0]
            for index in range(first, new, self._sample_every)
        ]


def describe(data: bytes | memoryview) -> str:
    """Name the first frame in `data` that belongs to no delivery or confirm."""
    rest = memoryview(data)
    while (size := _first_frame_bytes(rest)) is not None:
        try:
            _, _, value = frame.unmarshal(bytes(rest[:size]))
        except exceptions.PAMQPException as error:
            return f"undecodable frame ({error})"
        if isinstance(value, commands.Connection.Close | commands.Channel.Close):
            return f"{value.name} {value.reply_code} {value.reply_text}"
        if not isinstance(value, _ORDINARY):
            return value.name
        rest = rest[size:]
    return f"only ordinary frames, then {len(rest)} bytes of an incomplete one"
