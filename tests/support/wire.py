"""A small blocking AMQP 0-9-1 client at frame level, for tests that look at the wire.

It does nothing by itself: no acks, no reconnects, no heartbeats. Content (deliver, get-ok,
return) is assembled into one `Content`; everything else arrives as the pamqp method.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

from pamqp import body, commands, frame, header, heartbeat

from tests.support.frames import (
    CONTENT_METHODS,
    FRAME_END,
    FRAME_OVERHEAD_BYTES,
    PROTOCOL_HEADER,
    Basic,
    Channel,
    Connection,
    Content,
    Exchange,
    Item,
    Properties,
    Queue,
    amqplain,
    content_bytes,
    describe,
    kind_of,
    unvalidated,
)

if TYPE_CHECKING:
    from pamqp import base

TIMEOUT_S = 10.0
READ_BYTES = 1 << 18

ALL_CAPABILITIES = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


class PeerClosedError(AssertionError):
    """The broker closed a channel or the connection where a test expected something else."""

    def __init__(self, method: base.Frame) -> None:
        super().__init__(f"{method.name} {method.reply_code} {method.reply_text!r}")
        self.method = method


class ChannelClosedError(PeerClosedError):
    """channel.close came instead."""


class ConnectionClosedError(PeerClosedError):
    """connection.close came instead."""


class ConnectionLostError(AssertionError):
    """The socket ended where a test expected a frame."""


class WireConnection:
    """One socket to a broker; frames are sorted by channel as they arrive."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.frame_max = 131072
        self.start: Connection.Start | None = None
        self.tune: Connection.Tune | None = None
        self.heartbeats: list[float] = []
        self.largest_frame = 0
        self.eof = False
        self._buffer = bytearray()
        self._inbox: dict[int, deque[Item]] = defaultdict(deque)
        self._open_content: dict[int, Content] = {}
        self._last_channel = 0

    # -- opening and closing

    @classmethod
    def dial(cls, url: str) -> Self:
        """Connect the socket and say nothing yet."""
        parts = urlsplit(url)
        return cls(socket.create_connection((parts.hostname, parts.port), timeout=TIMEOUT_S))

    @classmethod
    def connect(cls, url: str, **options: Any) -> Self:
        """Dial and shake hands; see `handshake` for the options."""
        conn = cls.dial(url)
        parts = urlsplit(url)
        options.setdefault("user", unquote(parts.username or "guest"))
        options.setdefault("password", unquote(parts.password or "guest"))
        options.setdefault("vhost", unquote(parts.path[1:]) or "/")
        try:
            conn.handshake(**options)
        except BaseException:
            conn.abort()
            raise
        return conn

    def handshake(
        self,
        *,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        mechanism: str = "PLAIN",
        frame_max: int = 131072,
        channel_max: int = 2047,
        heartbeat_s: int = 0,
        capabilities: dict[str, bool] | None = None,
        client_properties: dict[str, Any] | None = None,
        protocol_header: bytes = PROTOCOL_HEADER,
    ) -> None:
        self.send_start_ok(
            user=user,
            password=password,
            mechanism=mechanism,
            capabilities=capabilities,
            client_properties=client_properties,
            protocol_header=protocol_header,
        )
        self.tune = self.expect(Connection.Tune)
        self.frame_max = frame_max or self.tune.frame_max
        self.send(
            Connection.TuneOk(channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat_s)
        )
        self.send(unvalidated(Connection.Open, virtual_host=vhost))
        self.expect(Connection.OpenOk)

    def send_start_ok(
        self,
        *,
        user: str = "guest",
        password: str = "guest",
        mechanism: str = "PLAIN",
        capabilities: dict[str, bool] | None = None,
        client_properties: dict[str, Any] | None = None,
        protocol_header: bytes = PROTOCOL_HEADER,
    ) -> None:
        """The handshake up to start-ok."""
        self.send_raw(protocol_header)
        self.start = self.expect(Connection.Start)
        response = amqplain(user, password) if mechanism == "AMQPLAIN" else f"\0{user}\0{password}"
        properties: dict[str, Any] = {
            "product": "wire-test",
            "capabilities": ALL_CAPABILITIES if capabilities is None else capabilities,
        }
        properties.update(client_properties or {})
        self.send(
            Connection.StartOk(
                client_properties=properties, mechanism=mechanism, response=response, locale="en_US"
            )
        )

    def close(self) -> None:
        """Close politely; a connection already closed stays closed."""
        try:
            if not self.eof:
                self.send(Connection.Close(200, "bye", 0, 0))
                self._wait_for(0, Connection.CloseOk, time.monotonic() + TIMEOUT_S)
        except (OSError, ConnectionLostError, ConnectionClosedError):
            pass
        finally:
            self.abort()

    def abort(self) -> None:
        """Drop the socket without a word."""
        self.eof = True
        self.sock.close()

    def reset(self) -> None:
        """Drop the socket with a TCP reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def open_channel(self, number: int | None = None) -> WireChannel:
        if number is None:
            self._last_channel += 1
            number = self._last_channel
        channel = WireChannel(self, number)
        channel.rpc(Channel.Open())
        return channel

    # -- sending

    def send_raw(self, data: bytes) -> None:
        self.sock.settimeout(TIMEOUT_S)
        self.sock.sendall(data)

    def send(self, value: frame.FrameTypes, channel: int = 0) -> None:
        self.send_raw(frame.marshal(value, channel))

    def send_heartbeat(self) -> None:
        self.send(heartbeat.Heartbeat())

    # -- receiving

    def expect(
        self, kind: type[base.Frame], *, channel: int = 0, timeout: float = TIMEOUT_S
    ) -> Any:
        """The very next thing on this channel, which must be of this kind."""
        item = self.next_item(channel, timeout=timeout)
        if isinstance(item, Channel.Close) and kind is not Channel.Close:
            raise ChannelClosedError(item)
        if isinstance(item, Connection.Close) and kind is not Connection.Close:
            raise ConnectionClosedError(item)
        assert kind_of(item) is kind, f"expected {kind.name}, got {describe(item)}"
        return item

    def next_item(self, channel: int, *, timeout: float = TIMEOUT_S) -> Item:
        inbox = self._inbox[channel]
        deadline = time.monotonic() + timeout
        while not inbox:
            self._refuse_to_wait_on_a_closed_connection(channel)
            self._read(deadline)
        return inbox.popleft()

    def expect_close(self, code: int, text: str = "") -> Connection.Close:
        """connection.close with this code, then our close-ok, then the end of the stream."""
        close = self.expect(Connection.Close)
        assert close.reply_code == code, describe(close)
        assert text in close.reply_text, describe(close)
        self.send(Connection.CloseOk())
        self.expect_eof()
        return close

    def expect_eof(self, timeout: float = TIMEOUT_S) -> None:
        """The broker ends the stream; whatever it sends before that is an error."""
        assert self.read_until_eof(timeout) == b""

    def read_until_eof(self, timeout: float = TIMEOUT_S) -> bytes:
        """Raw bytes up to the end of the stream."""
        deadline = time.monotonic() + timeout
        data = bytes(self._buffer)
        self._buffer.clear()
        while True:
            chunk = self._receive(deadline)
            if not chunk:
                self.eof = True
                return data
            data += chunk

    def pending(self, channel: int) -> list[Item]:
        """What has arrived on the channel and was not asked for yet."""
        return list(self._inbox[channel])

    def await_heartbeats(self, count: int, timeout: float) -> None:
        """Read until this many heartbeats have come."""
        deadline = time.monotonic() + timeout
        while len(self.heartbeats) < count:
            self._read(deadline)

    def _wait_for(self, channel: int, kind: type[base.Frame], deadline: float) -> Any:
        """The first item of this kind on the channel; earlier others stay in the inbox."""
        inbox = self._inbox[channel]
        seen = 0
        while True:
            for position in range(seen, len(inbox)):
                item = inbox[position]
                if kind_of(item) is kind:
                    del inbox[position]
                    return item
                if isinstance(item, Channel.Close):
                    del inbox[position]
                    raise ChannelClosedError(item)
            seen = len(inbox)
            if channel or kind is not Connection.CloseOk:
                self._refuse_to_wait_on_a_closed_connection(channel)
            self._read(deadline)

    def _refuse_to_wait_on_a_closed_connection(self, channel: int) -> None:
        for item in self._inbox[0]:
            if isinstance(item, Connection.Close) and channel:
                raise ConnectionClosedError(item)
        if self.eof:
            raise ConnectionLostError("the broker has ended the stream")

    def _receive(self, deadline: float) -> bytes:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("nothing came in time")
        self.sock.settimeout(remaining)
        try:
            return self.sock.recv(READ_BYTES)
        except ConnectionResetError:
            return b""

    def _read(self, deadline: float) -> None:
        chunk = self._receive(deadline)
        if not chunk:
            self.eof = True
            raise ConnectionLostError("the broker has ended the stream")
        self._buffer += chunk
        offset = 0
        view = self._buffer
        while len(view) - offset >= FRAME_OVERHEAD_BYTES:
            if view[offset : offset + 4] == b"AMQP":
                raise AssertionError("the broker answered with a protocol header")
            kind, channel, size = struct.unpack_from(">BHI", view, offset)
            end = offset + size + FRAME_OVERHEAD_BYTES
            if len(view) < end:
                break
            assert view[end - 1] == FRAME_END, "bad frame end from the broker"
            self._frame_came(kind, channel, bytes(view[offset:end]))
            offset = end
        del self._buffer[:offset]

    def _frame_came(self, kind: int, channel: int, data: bytes) -> None:
        self.largest_frame = max(self.largest_frame, len(data))
        if kind == 8:
            assert channel == 0
            assert len(data) == FRAME_OVERHEAD_BYTES
            self.heartbeats.append(time.monotonic())
            return
        value = frame.unmarshal(data)[2]
        if isinstance(value, CONTENT_METHODS):
            assert channel not in self._open_content, "content interleaved on one channel"
            self._open_content[channel] = Content(value)
        elif isinstance(value, header.ContentHeader):
            content = self._open_content[channel]
            content.properties, content.body_size = value.properties, value.body_size
        elif isinstance(value, body.ContentBody):
            content = self._open_content[channel]
            content.body += value.value
        else:
            assert channel not in self._open_content, f"{value} in the middle of content"
            self._inbox[channel].append(value)
            return
        content = self._open_content[channel]
        if content.complete:
            assert len(content.body) == content.body_size
            self._inbox[channel].append(self._open_content.pop(channel))


class WireChannel:
    """One channel of a `WireConnection`, with a word for each common method."""

    def __init__(self, conn: WireConnection, number: int) -> None:
        self.conn = conn
        self.number = number

    def send(self, value: frame.FrameTypes) -> None:
        self.conn.send(value, self.number)

    def send_raw(self, data: bytes) -> None:
        self.conn.send_raw(data)

    def rpc(self, method: base.Frame, *, timeout: float = TIMEOUT_S) -> Any:
        """Send and wait for its reply; deliveries that come in between stay in the inbox."""
        self.send(method)
        return self.reply_to(method, timeout=timeout)

    def reply_to(self, method: base.Frame, *, timeout: float = TIMEOUT_S) -> Any:
        name = method.valid_responses[0]
        class_name, method_name = name.split(".")
        kind = getattr(getattr(commands, class_name), method_name)
        return self.conn._wait_for(self.number, kind, time.monotonic() + timeout)

    def expect(self, kind: type[base.Frame], *, timeout: float = TIMEOUT_S) -> Any:
        return self.conn.expect(kind, channel=self.number, timeout=timeout)

    def expect_close(self, code: int, text: str = "") -> Channel.Close:
        """channel.close with this code and this in its text; answers close-ok."""
        close = self.conn._wait_for(self.number, Channel.Close, time.monotonic() + TIMEOUT_S)
        assert close.reply_code == code, describe(close)
        assert text in close.reply_text, describe(close)
        self.send(Channel.CloseOk())
        return close

    def pending(self) -> list[Item]:
        return self.conn.pending(self.number)

    def close(self) -> None:
        self.rpc(Channel.Close(200, "done", 0, 0))

    # -- topology

    def declare_queue(self, queue: str = "", **options: Any) -> Queue.DeclareOk:
        return self.rpc(unvalidated(Queue.Declare, queue=queue, **options))

    def declare_exchange(self, exchange: str, kind: str = "direct", **options: Any) -> None:
        self.rpc(unvalidated(Exchange.Declare, exchange=exchange, exchange_type=kind, **options))

    def bind(
        self, queue: str, exchange: str, key: str = "", arguments: dict[str, Any] | None = None
    ) -> None:
        self.rpc(
            unvalidated(
                Queue.Bind, queue=queue, exchange=exchange, routing_key=key, arguments=arguments
            )
        )

    def count(self, queue: str) -> int:
        """Ready messages of the queue."""
        return self.declare_queue(queue, passive=True).message_count

    # -- messages

    def publish(
        self,
        exchange: str,
        key: str,
        payload: bytes = b"",
        *,
        mandatory: bool = False,
        immediate: bool = False,
        **properties: Any,
    ) -> None:
        self.send_raw(
            content_bytes(
                self.number,
                unvalidated(
                    Basic.Publish,
                    exchange=exchange,
                    routing_key=key,
                    mandatory=mandatory,
                    immediate=immediate,
                ),
                Properties(**properties),
                payload,
                self.conn.frame_max,
            )
        )

    def publish_all(self, queue: str, payloads: list[bytes]) -> None:
        for payload in payloads:
            self.publish("", queue, payload)

    def get(self, queue: str, *, no_ack: bool = False) -> Content | None:
        self.send(unvalidated(Basic.Get, queue=queue, no_ack=no_ack))
        item = self.conn.next_item(self.number)
        if isinstance(item, Channel.Close):
            raise ChannelClosedError(item)
        if isinstance(item, Basic.GetEmpty):
            return None
        assert kind_of(item) is Basic.GetOk, describe(item)
        return item

    def get_all(self, queue: str) -> list[bytes]:
        """Drain the queue and acknowledge."""
        bodies = []
        while (content := self.get(queue, no_ack=True)) is not None:
            bodies.append(content.body)
        return bodies

    def consume(self, queue: str, tag: str = "", **options: Any) -> str:
        return self.rpc(
            unvalidated(Basic.Consume, queue=queue, consumer_tag=tag, **options)
        ).consumer_tag

    def cancel(self, tag: str) -> None:
        self.rpc(Basic.Cancel(consumer_tag=tag))

    def qos(self, prefetch_count: int, *, global_: bool = False) -> None:
        self.rpc(Basic.Qos(prefetch_count=prefetch_count, global_=global_))

    def delivery(self, *, timeout: float = TIMEOUT_S) -> Content:
        return self.expect(Basic.Deliver, timeout=timeout)

    def deliveries(self, count: int) -> list[Content]:
        return [self.delivery() for _ in range(count)]

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        self.send(Basic.Ack(delivery_tag=tag, multiple=multiple))

    def nack(self, tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        self.send(Basic.Nack(delivery_tag=tag, multiple=multiple, requeue=requeue))

    def reject(self, tag: int, *, requeue: bool = True) -> None:
        self.send(Basic.Reject(delivery_tag=tag, requeue=requeue))

    def settle(self, queue: str) -> None:
        """Return only when all that the queue had to say to this channel has arrived.

        The first round trip passes through the queue; the second follows what the first caused.
        """
        self.count(queue)
        self.count(queue)

    def assert_quiet(self, queue: str) -> None:
        """Nothing more arrives on this channel for what was done to the queue so far."""
        self.settle(queue)
        assert not self.pending(), [describe(item) for item in self.pending()]
