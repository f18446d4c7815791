"""A connection from accept to close: a task that reads, and one that writes what must wait."""

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

import trio
from pamqp import commands

from broker import logs
from broker.channel.channel import Channel
from broker.connection.backlogs import Backlogs
from broker.connection.greeting import Greeting
from broker.connection.handshake import (
    HANDSHAKE_FRAME_BYTES,
    HandshakeFailed,
    Session,
    shake_hands,
)
from broker.connection.heartbeat import Heartbeat
from broker.connection.sender import Sender
from broker.connection.transport import SocketTransport
from broker.protocol import methods
from broker.protocol.constants import (
    BASIC_PUBLISH,
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CHANNEL_OPEN,
    CONNECTION_CLOSE,
    CONNECTION_CLOSE_OK,
    CONNECTION_UPDATE_SECRET,
)
from broker.protocol.errors import AMQPError, ChannelError, ConnectionFailure
from broker.protocol.frames import Batch, FrameReader

if TYPE_CHECKING:
    from pamqp.base import Frame

    from broker.auth import User
    from broker.node import Node
    from broker.vhost import VHost

# How long a peer has to take a close and answer it. Longer than any network's round trip.
CLOSE_TIMEOUT_S: Final = 5.0
# A peer that takes nothing for this long, with the outbox brimming, is given up.
STALL_TIMEOUT_S: Final = 60.0


class State(enum.Enum):
    """What may come next from the client."""

    HANDSHAKE = enum.auto()
    RUNNING = enum.auto()
    CLOSING = enum.auto()  # connection.close sent; all but close-ok is ignored
    CLOSED = enum.auto()


class Connection:
    """A client's connection; to its channels it is a `Link`, to its heartbeat it is `Watched`."""

    user: "User"
    vhost: "VHost"

    def __init__(
        self, transport: SocketTransport, node: "Node", *, peer: str, peer_is_loopback: bool
    ) -> None:
        self.name = peer
        self.peer_is_loopback = peer_is_loopback
        self.outbox = transport.outbox
        self.frame_max = node.config.frame_max_bytes
        self.channel_max = node.config.channel_max
        self.capabilities: frozenset[str] = frozenset()
        self.heard = self.spoke = True
        self.state = State.HANDSHAKE
        self._transport = transport
        self._node = node
        self._reader = FrameReader(frame_max=HANDSHAKE_FRAME_BYTES, message_bytes_max=0)
        self._channels: dict[int, Channel] = {}
        self._closing_channels: set[int] = set()  # channel.close sent; waiting for close-ok
        self._heartbeat: Heartbeat | None = None
        self._sender = Sender(transport, self._resume_consumers)
        self._backlogs = Backlogs()
        self._dirty = False
        self._publishes = False
        self._told_blocked = False
        self._log = logs.get("connection").bind(peer=peer)

    # Life

    async def run(self, *, full: bool) -> None:
        """Serve the client until either side ends it."""
        try:
            async with trio.open_nursery() as nursery:
                self._sender.nursery = nursery
                greeting = Greeting(
                    self._sender, self._reader, peer_is_loopback=self.peer_is_loopback
                )
                if await self._open(greeting, full=full):
                    await self._serve(greeting.left_over)
                    await self._linger(half_close=self.state is State.CLOSED)
                nursery.cancel_scope.cancel()
        finally:
            self._release()
            await self._transport.aclose()

    async def _open(self, greeting: Greeting, *, full: bool) -> bool:
        """The handshake; whether it led to an open connection."""
        node = self._node
        try:
            with trio.fail_after(node.config.handshake_timeout_s):
                session = await shake_hands(
                    greeting, node.config, node.users, node.vhosts, full=full
                )
        except trio.TooSlowError:
            self._log.warning("handshake_timeout")
        except HandshakeFailed as failure:
            self._log.warning("handshake_failed", reason=str(failure))
        except ConnectionFailure as failure:
            self._log.warning("handshake_refused", code=failure.code, reason=failure.text)
            self._write_close(failure)
            self.flush()
            await self._linger(half_close=True)
        else:
            self._start(session)
            return True
        return False

    def _start(self, session: Session) -> None:
        self.user = session.user
        self.vhost = session.vhost
        self.frame_max = session.frame_max
        self.channel_max = session.channel_max
        self.capabilities = session.capabilities
        self._reader.set_limits(
            frame_max=session.frame_max, message_bytes_max=self._node.config.message_bytes_max
        )
        if session.client_name:
            self.name = f"{self.name} - {session.client_name}"
            self._log = self._log.bind(name=session.client_name)
        self.state = State.RUNNING
        self._write(commands.Connection.OpenOk)
        if session.heartbeat_s:
            self._heartbeat = Heartbeat(self, session.heartbeat_s, self._node.timers)
        self._log.info(
            "open", user=self.user.name, vhost=self.vhost.name, client=session.client_product
        )

    async def _serve(self, first: list[Batch]) -> None:
        """Read, handle, answer: one turn per read."""
        self._take_turn(first)
        while self.state is State.RUNNING:
            if self.outbox.brimming:
                if not await self._sender.wait_for_relief(STALL_TIMEOUT_S):
                    self.lost("the client took nothing for too long")
                continue
            if self._backlogs.overfull:
                await self._backlogs.wait_for_room()
                continue
            data = await self._transport.receive()
            if not data:
                self.state = State.CLOSED
                self._log.info(
                    "lost", reason="the client closed the socket without connection.close"
                )
                return
            self.heard = True
            self._take_turn(self._reader.feed(data))
            host = self._node.host
            if self._publishes and host is not None and host.overloaded:
                await host.relief()

    def _take_turn(self, batches: list[Batch]) -> None:
        """Handle what one read brought; then everything that this wrote, to anyone, goes out."""
        self._process(batches)
        if self.outbox.pieces:
            self.mark_dirty()
        self._node.flush()

    def lost(self, reason: str) -> None:
        """Give up a client that does not answer any more."""
        self._log.warning("lost", reason=reason)
        self.state = State.CLOSED
        nursery = self._sender.nursery
        self._sender.give_up()
        if nursery is not None:
            nursery.cancel_scope.cancel()

    async def _linger(self, *, half_close: bool) -> None:
        """Let the last words out and the answer in: closing with bytes unread would reset them.

        With `half_close` the client sees the end of the stream right behind our last word.
        """
        with trio.move_on_after(CLOSE_TIMEOUT_S):
            if half_close and self._sender.draining:
                await self._sender.flushed.wait()
            if half_close:
                self._transport.send_eof()
            while not self._transport.broken:
                data = await self._transport.receive()
                if not data or self._closes_with(self._reader.feed(data)):
                    return

    def _closes_with(self, batches: list[Batch]) -> bool:
        """Whether close-ok is among what came after our connection.close."""
        if self.state is State.CLOSING:
            self._process(batches)
        return self.state is State.CLOSED and any(
            key == CONNECTION_CLOSE_OK for _, key, _ in batches
        )

    def _release(self) -> None:
        """Give back what the connection held, whatever way it ended."""
        self.state = State.CLOSED
        if self._heartbeat is not None:
            self._heartbeat.stop()
        for channel in list(self._channels.values()):
            channel.release()
        self._channels.clear()
        if hasattr(self, "vhost"):
            self.vhost.forget_owner(self)
        self._sender.give_up()
        self._node.flush()

    async def shut_down(self) -> None:
        """The node stops: tell the client, and give it time to answer."""
        if self.state is State.RUNNING:
            self._close(ConnectionFailure(320, "broker shutting down"))
            self.flush()
        elif self.state is State.HANDSHAKE:
            self.lost("broker shutting down")

    # Reading

    def _process(self, batches: list[Batch]) -> None:
        """Hand batches to their channels. The one place where a peer's mistakes become closes."""
        try:
            for number, key, items in batches:
                channel = self._channels.get(number)
                if channel is not None and self._holds(channel, key):
                    self._backlogs.keep(channel, (number, key, items))
                elif channel is not None and key not in _CHANNEL_LIFE:
                    try:
                        channel.handle(key, items)
                    except AMQPError as error:
                        self._blame(channel, error, key)
                elif key == CONNECTION_CLOSE and self._waiting_channels():
                    self._backlogs.close = (number, key, items)
                else:
                    self._connection_method(number, key, items)
                if self.state is not State.RUNNING and self.state is not State.CLOSING:
                    return
            if self._reader.failure is not None:
                raise self._reader.failure
        except ConnectionFailure as failure:
            self._close(failure)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not end the node
            self._log.exception("internal_error", error)
            self._close(ConnectionFailure(541, "internal error"))

    def _blame(self, channel: Channel, error: AMQPError, key: int) -> None:
        """A mistake on a channel closes that channel, unless it closes everything."""
        error.method = error.method or key
        if not isinstance(error, ChannelError):
            raise error
        self._close_channel(channel, error)

    def _holds(self, channel: Channel, key: int) -> bool:
        """Whether a method has to wait; a publisher that does so because of an alarm is told."""
        reason = self._node.blocked
        if key == BASIC_PUBLISH:
            self._publishes = True
            if reason is not None and not self._told_blocked:
                self._tell_blocked(reason)
        return self._backlogs.holds(channel, key, blocked=reason is not None)

    def _tell_blocked(self, reason: str) -> None:
        if "connection.blocked" in self.capabilities:
            self._told_blocked = True
            self._write(commands.Connection.Blocked, reason=reason)

    def unblocked(self) -> None:
        """The node takes publishes again."""
        if self._told_blocked:
            self._told_blocked = False
            self._write(commands.Connection.Unblocked)
        for channel in list(self._channels.values()):
            if channel.backlog and not channel.suspended:
                self.resume(channel, lambda: None)

    def resume(self, channel: Channel, action: Callable[[], None]) -> None:
        """A channel that waited acts, then handles what came meanwhile."""
        backlog = self._backlogs.take(channel)
        try:
            action()
        except ChannelError as error:
            self._close_channel(channel, error)
        except ConnectionFailure as failure:
            self._close(failure)
        close = self._backlogs.close
        if close is not None and not self._waiting_channels():
            self._backlogs.close = None
            backlog.append(close)
        self._take_turn(backlog)

    def _waiting_channels(self) -> bool:
        return any(c.suspended or c.backlog for c in self._channels.values())

    def _connection_method(self, number: int, key: int, items: list[object]) -> None:
        if self.state is State.CLOSING:
            if key == CONNECTION_CLOSE_OK and number == 0:
                self.state = State.CLOSED
            elif key == CONNECTION_CLOSE and number == 0:
                self._write(commands.Connection.CloseOk)
            return
        if number == 0:
            self._channel_zero(key, cast("list[bytes]", items))
        elif key == CHANNEL_OPEN:
            self._open_channel(number)
        elif key == CHANNEL_CLOSE:
            self._peer_closes_channel(number)
        elif number in self._closing_channels:
            if key == CHANNEL_CLOSE_OK:
                self._closing_channels.discard(number)
        elif key not in commands.INDEX_MAPPING:
            raise ConnectionFailure(540, f"unknown method {methods.name_of(key)}", method=key)
        elif key != CHANNEL_CLOSE_OK:
            raise ConnectionFailure(504, "expected 'channel.open'", method=key)

    def _channel_zero(self, key: int, items: list[bytes]) -> None:
        if key == CONNECTION_CLOSE:
            close = cast("commands.Connection.Close", methods.decode(key, items[0]))
            self._log.info("closed", code=close.reply_code, reason=close.reply_text)
            self._drop_channels()
            self.vhost.forget_owner(self)
            self.state = State.CLOSED
            self._write(commands.Connection.CloseOk)
        elif key == CONNECTION_UPDATE_SECRET:
            methods.decode(key, items[0])
            self._write(commands.Connection.UpdateSecretOk)
        elif key in commands.INDEX_MAPPING:
            text = f"unexpected method {methods.name_of(key)} in connection state running"
            raise ConnectionFailure(504, text, method=key)
        else:
            raise ConnectionFailure(540, f"unknown method {methods.name_of(key)}", method=key)

    # Channels

    def _open_channel(self, number: int) -> None:
        if number in self._channels:
            raise ConnectionFailure(504, "second 'channel.open' seen", method=CHANNEL_OPEN)
        if number in self._closing_channels:
            return  # sent before the client saw our close
        count = len(self._channels)
        if count >= self.channel_max:
            text = f"number of channels opened ({count}) has reached the negotiated channel_max"
            raise ConnectionFailure(530, f"{text} ({self.channel_max})")
        self._channels[number] = Channel(number, self, self._node.plain_properties)
        self.outbox.write(methods.encode(number, commands.Channel.OpenOk))

    def _peer_closes_channel(self, number: int) -> None:
        channel = self._channels.pop(number, None)
        if channel is None and number not in self._closing_channels:
            raise ConnectionFailure(504, "expected 'channel.open'", method=CHANNEL_CLOSE)
        if channel is not None:
            channel.release()
        self.outbox.write(methods.encode(number, commands.Channel.CloseOk))

    def _close_channel(self, channel: Channel, error: ChannelError) -> None:
        self._log.warning(
            "channel_error", channel=channel.number, code=error.code, reason=error.text
        )
        del self._channels[channel.number]
        self._backlogs.take(channel)
        self._closing_channels.add(channel.number)
        self._reader.abandon(channel.number)
        channel.release()
        self.outbox.write(
            methods.encode(channel.number, commands.Channel.Close, **_close_arguments(error))
        )

    def _drop_channels(self) -> None:
        for channel in list(self._channels.values()):
            channel.release()
        self._channels.clear()

    def _close(self, failure: ConnectionFailure) -> None:
        if self.state is not State.RUNNING:
            return
        log = self._log.info if failure.code == 320 else self._log.warning
        log("error", code=failure.code, reason=failure.text)
        self._drop_channels()
        self._write_close(failure)

    def _write_close(self, failure: ConnectionFailure) -> None:
        self.state = State.CLOSING
        self._reader.failure = None
        self._write(commands.Connection.Close, **_close_arguments(failure))

    # Writing

    def _write(self, kind: "type[Frame]", **arguments: object) -> None:
        self.outbox.write(methods.encode(0, kind, **arguments))
        self.mark_dirty()

    def mark_dirty(self) -> None:
        """Have the outbox flushed at the end of this turn."""
        if not self._dirty:
            self._dirty = True
            self._node.dirty.append(self)

    def flush(self) -> None:
        self._dirty = False
        self.spoke = True
        self._sender.flush()

    def _resume_consumers(self) -> None:
        """There is room in the outbox again."""
        for channel in list(self._channels.values()):
            channel.deliveries.wake_consumers()
        self._node.flush()


_CHANNEL_LIFE: Final = frozenset({CHANNEL_OPEN, CHANNEL_CLOSE, CHANNEL_CLOSE_OK})


def _close_arguments(error: AMQPError) -> dict[str, object]:
    return {
        "reply_code": error.code,
        "reply_text": error.reply_text,
        "class_id": error.method >> 16,
        "method_id": error.method & 0xFFFF,
    }
