"""A connection, sans-IO: bytes in, bytes out; whoever has a socket carries them.

Handshake, channels, connection.blocked, and the end of it, whoever ends it. Both clients are thin
around this: they differ in how they wait.
"""

import platform
import struct
from collections.abc import Callable
from typing import Any, Final, cast

from pamqp.base import Frame
from pamqp.commands import Channel, Connection

from broker.protocol.constants import (
    CONNECTION_CLOSE,
    CONNECTION_CLOSE_OK,
    FRAME_MIN_BYTES,
    HEARTBEAT_FRAME,
    PROTOCOL_HEADER,
)
from broker.protocol.errors import ConnectionFailure
from broker.protocol.frames import FrameReader
from broker.protocol.methods import decode, encode, name_of
from clients.amqp_channel import ChannelCore
from clients.amqp_errors import (
    AMQPClientError,
    AuthenticationError,
    ClosedByUsError,
    ConnectionClosedError,
    ConnectionLostError,
)
from clients.amqp_promise import Promise
from clients.amqp_url import Target

FRAME_BYTES_MAX: Final = 1024 * 1024  # what we ask for; the broker may offer less
CHANNELS_MAX: Final = 2047
MESSAGE_BYTES_MAX: Final = 512 * 1024 * 1024  # RabbitMQ's own limit
_ACCESS_REFUSED: Final = 403
_NOT_ALLOWED: Final = 530
_CAPABILITIES: Final = {
    "publisher_confirms": True,
    "consumer_cancel_notify": True,
    "basic.nack": True,
    "connection.blocked": True,
    "exchange_exchange_bindings": True,
    "authentication_failure_close": True,
}


class ConnectionCore:
    """`on_output` is called when there is something to send and there was nothing before."""

    def __init__(
        self,
        target: Target,
        *,
        name: str = "",
        on_output: Callable[[], None] = lambda: None,
        on_blocked: Callable[[], None] = lambda: None,
    ) -> None:
        self.target = target
        self.opened = Promise()
        self.closed = Promise()  # by us; resolved when the broker has agreed
        self.error: Exception | None = None  # why it has ended
        self.blocked: str | None = None  # the broker's reason to hold publishers back
        self.heartbeat_s = 0
        self.frame_max = FRAME_MIN_BYTES
        self.server_properties: dict[str, object] = {}
        self.channels: dict[int, ChannelCore] = {}
        self.out_bytes = 0
        self._name = name
        self._on_output = on_output
        self._on_blocked = on_blocked
        self._channels_max = CHANNELS_MAX
        self._last_channel = 0
        self._out: list[bytes] = []
        self._settled: list[ChannelCore] = []  # channels with acks to write
        self._reader = FrameReader(frame_max=FRAME_BYTES_MAX, message_bytes_max=MESSAGE_BYTES_MAX)
        self._state = Connection.Start.index  # what is to come next, until it is open
        self._closing = False
        self._write(PROTOCOL_HEADER)

    # Bytes

    def data_to_send(self) -> bytes:
        for channel in self._settled:
            self._out.append(channel.settling.take())
        self._settled.clear()
        data = b"".join(self._out)
        self._out.clear()
        self.out_bytes = 0
        return data

    def feed(self, data: bytes) -> None:
        """What one read brought. After this, look at `error`."""
        if self.error is not None:
            return
        try:
            for channel, key, items in self._reader.feed(data):
                if channel:
                    found = self.channels.get(channel)
                    if found is None:
                        raise ConnectionFailure(504, f"{name_of(key)} on channel {channel}")
                    found.handle(key, items)
                else:
                    for item in items:
                        self._handle(key, cast("bytes", item))
        except ConnectionFailure as failure:
            self._give_up(failure)
        except (ValueError, IndexError, struct.error) as error:
            self._give_up(ConnectionFailure(501, f"malformed arguments: {error}"))
        if self._reader.failure is not None:
            self._give_up(self._reader.failure)

    def lost(self, error: Exception) -> None:
        """The socket is gone, or nothing came for too long."""
        if self.error is None:
            self._end(ClosedByUsError("the connection is closed") if self._closing else error)

    def heartbeat(self) -> None:
        self._write(HEARTBEAT_FRAME)

    @property
    def expects_answers(self) -> bool:
        """Somebody waits for what can only come through the socket."""
        return self._closing or any(channel.expects_answers for channel in self.channels.values())

    def _write(self, *pieces: bytes) -> None:
        quiet = not self._out and not self._settled
        self._out += pieces
        self.out_bytes += sum(map(len, pieces))
        if quiet:
            self._on_output()

    def _settles(self, channel: ChannelCore) -> None:
        quiet = not self._out and not self._settled
        self._settled.append(channel)
        if quiet:
            self._on_output()

    # Channels

    def open_channel(self, number: int = 0) -> tuple[ChannelCore, Promise]:
        """The channel may be used at once; the promise says whether that was right."""
        if self.error is not None:
            raise self.error
        number = number or self._free_number()
        channel = ChannelCore(
            number,
            self.frame_max,
            write=self._write,
            settles=self._settles,
            abandon=lambda channel: self._reader.abandon(channel.number),
            gone=self._forget,
        )
        self.channels[number] = channel
        return channel, channel.request(Channel.Open, Channel.OpenOk)

    def _free_number(self) -> int:
        """The one after the last, so that a number rests before it is used again."""
        for step in range(1, self._channels_max + 1):
            number = (self._last_channel + step - 1) % self._channels_max + 1
            if number not in self.channels:
                self._last_channel = number
                return number
        raise AMQPClientError(f"all {self._channels_max} channels are open")

    def _forget(self, channel: ChannelCore) -> None:
        del self.channels[channel.number]

    # The connection itself

    def close(self) -> Promise:
        """Say goodbye. What the broker has not confirmed by now stays unknown."""
        if self.error is None and not self._closing:
            self._send(Connection.Close, reply_code=200, reply_text="bye", class_id=0, method_id=0)
            self._closing = True
        return self.closed

    def _send(self, kind: type[Frame], **arguments: object) -> None:
        self._write(encode(0, kind, **arguments))

    def _handle(self, key: int, args: bytes) -> None:
        method: Any = decode(key, args)
        if key == CONNECTION_CLOSE:
            self._send(Connection.CloseOk)
            self._end(self._reason(method.reply_code, method.reply_text))
        elif key == CONNECTION_CLOSE_OK and self._closing:
            self._end(ClosedByUsError("the connection is closed"))
        elif isinstance(method, Connection.Blocked):
            self.blocked = method.reason
            self._on_blocked()
        elif isinstance(method, Connection.Unblocked):
            self.blocked = None
            self._on_blocked()
        elif isinstance(method, Connection.UpdateSecretOk):
            pass
        elif key == self._state:
            self._advance(method)
        else:
            raise ConnectionFailure(503, f"unexpected {name_of(key)}", method=key)

    def _reason(self, code: int, text: str) -> ConnectionClosedError:
        if not self.opened.done and code in (_ACCESS_REFUSED, _NOT_ALLOWED):
            return AuthenticationError(code, text)
        return ConnectionClosedError(code, text)

    def _advance(self, method: Any) -> None:
        """One step of the handshake."""
        if isinstance(method, Connection.Start):
            self._start(method)
            self._state = Connection.Tune.index
        elif isinstance(method, Connection.Tune):
            self._tune(method)
            self._state = Connection.OpenOk.index
        else:
            self._state = 0
            self.opened.resolve()

    def _start(self, method: Any) -> None:
        self.server_properties = dict(method.server_properties)
        if b"PLAIN" not in method.mechanisms.split():
            raise ConnectionFailure(530, "the broker does not take PLAIN")
        properties: dict[str, object] = {
            "product": "leveret-client",
            "platform": f"Python {platform.python_version()}",
            "capabilities": dict(_CAPABILITIES),
        }
        if self._name:
            properties["connection_name"] = self._name
        self._send(
            Connection.StartOk,
            client_properties=properties,
            mechanism="PLAIN",
            response=f"\0{self.target.user}\0{self.target.password}",
            locale="en_US",
        )

    def _tune(self, method: Any) -> None:
        self.frame_max = min(method.frame_max or FRAME_BYTES_MAX, FRAME_BYTES_MAX)
        self._channels_max = min(method.channel_max or CHANNELS_MAX, CHANNELS_MAX)
        self.heartbeat_s = min(method.heartbeat or 0xFFFF, self.target.heartbeat_s)
        self._reader.set_limits(frame_max=self.frame_max, message_bytes_max=MESSAGE_BYTES_MAX)
        self._send(
            Connection.TuneOk,
            channel_max=self._channels_max,
            frame_max=self.frame_max,
            heartbeat=self.heartbeat_s,
        )
        self._send(Connection.Open, virtual_host=self.target.vhost)

    # The end

    def _give_up(self, failure: ConnectionFailure) -> None:
        """The broker said what no broker may say."""
        if self.error is None:
            if self.opened.done:
                self._send(
                    Connection.Close,
                    reply_code=failure.code,
                    reply_text=failure.reply_text,
                    class_id=failure.method >> 16,
                    method_id=failure.method & 0xFFFF,
                )
            self._end(ConnectionLostError(f"broken by the peer: {failure.text}"))

    def _end(self, error: Exception) -> None:
        self.error = error
        for channel in list(self.channels.values()):
            channel.fail(error)
        self.channels.clear()
        if not self.opened.done:
            self.opened.fail(error)
        self.closed.resolve()
        self._on_blocked()
        self._on_output()
