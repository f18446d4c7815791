"""A connection from accept to close: a task that reads, and one that writes what must wait."""

import enum
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import trio
from pamqp import commands

from broker import logs
from broker.channel.channel import Channel
from broker.channel.farewell import when_owner_is_gone
from broker.connection.backlogs import Backlogs
from broker.connection.channels import LIFE_METHODS, Channels, close_arguments
from broker.connection.gate import Gate
from broker.connection.greeting import Greeting
from broker.connection.handshake import (
    HANDSHAKE_FRAME_BYTES,
    HandshakeFailed,
    OtherProtocol,
    Session,
    shake_hands,
)
from broker.connection.heartbeat import Heartbeat
from broker.connection.profile import Profile
from broker.connection.sender import Sender
from broker.connection.throttle import Throttle
from broker.connection.transport import Transport
from broker.internal_errors import CONNECTION, TIMER
from broker.protocol import methods
from broker.protocol.constants import (
    BASIC_PUBLISH,
    CONNECTION_CLOSE,
    CONNECTION_CLOSE_OK,
    CONNECTION_UPDATE_SECRET,
)
from broker.protocol.errors import AMQPError, ChannelError, ConnectionFailure
from broker.protocol.frames import Batch, FrameReader
from broker.statistics import ChannelStatistics, ConnectionStatistics
from broker.strangers import nobody
from flow_control.outbox import HIGH_BYTES

if TYPE_CHECKING:
    from pamqp.base import Frame

    from broker.node import Node
    from broker.security.sasl import Origin
    from broker.security.user import User
    from broker.vhost import VHost

T = TypeVar("T")

# How long a peer has to take a close and answer it. Longer than any network's round trip.
CLOSE_TIMEOUT_S: Final = 5.0


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

    def __init__(self, transport: Transport, node: "Node", origin: "Origin") -> None:
        self.name = origin.name
        self.origin = origin
        self.peer = origin.name
        self.outbox = transport.outbox
        self.frame_max = node.config.frame_max_bytes
        self.unacked_max = node.config.unacked_max
        self.channel_max = node.config.channel_max
        self.capabilities: frozenset[str] = frozenset()
        self.heard = self.listening = True
        self.state = State.HANDSHAKE
        # What came first from a client of the stream protocol: its socket is left open for that.
        self.handed_over: bytes | None = None
        self._transport = transport
        self._node = node
        self._reader = FrameReader(frame_max=HANDSHAKE_FRAME_BYTES, message_bytes_max=0)
        self._heartbeat: Heartbeat | None = None
        self._sender = Sender(transport, self._resume_consumers)
        self._backlogs = Backlogs(node.kept_back)
        self._gate = Gate(node, self._backlogs, self._tell_blocked, self._go_on)
        self._throttle = Throttle(node, self._sender, self._backlogs, self._gate)
        self._channels = Channels(self, self._reader, self._backlogs, node)
        self.stranger = nobody()  # until it has logged in, as its door has it
        self.profile = Profile()  # from the handshake on
        self.received_bytes = 0
        self.reads = 0
        self._first = 0  # the channel whose publishes go first, among those that had to wait
        self._dirty = False
        self._told_blocked = False
        self._parting: trio.Event | None = None  # set when the client's close is answered
        self._log = logs.get("connection").bind(peer=origin.name)

    # Life

    async def run(self, *, full: bool) -> None:
        """Serve the client until either side ends it."""
        try:
            async with trio.open_nursery() as nursery:
                self._sender.nursery = nursery
                try:
                    await self._live(full=full)
                finally:  # before the nursery closes: until then others may still write to it
                    self._release()
                nursery.cancel_scope.cancel()
        finally:
            if self.handed_over is None:
                await self._transport.aclose()

    async def _live(self, *, full: bool) -> None:
        greeting = Greeting(self._sender, self._reader, self.origin, self.stranger)
        if await self._open(greeting, full=full):
            await self._serve(greeting.left_over)
            if self._parting is not None:
                await self._parting.wait()
            await self._linger(half_close=self.state is State.CLOSED)

    async def _open(self, greeting: Greeting, *, full: bool) -> bool:
        """The handshake; whether it led to an open connection."""
        node = self._node
        try:
            with trio.fail_after(node.config.handshake_timeout_s):
                session = await shake_hands(greeting, node, full=full)
        except OtherProtocol:
            self.handed_over = greeting.received
        except trio.TooSlowError:
            self._log.warning("handshake_timeout")
        except HandshakeFailed as failure:
            self._log.warning("handshake_failed", reason=str(failure))
        except ConnectionFailure as failure:
            self._log.warning("handshake_refused", code=failure.code, reason=failure.text)
            self.stranger.waiting = True
            self.state = State.CLOSING
            self._reader.failure = None
            self._tell_close(failure)
            self.flush()
            await self._linger(half_close=True)
        else:
            self._start(session)
            return True
        self.stranger.waiting = True  # for its end
        return False

    def _start(self, session: Session) -> None:
        self.stranger.leave()
        self.user = session.user
        self.vhost = session.vhost
        self._node.headcount.entered(self.user, self.vhost)
        self.frame_max = session.frame_max
        self.channel_max = session.channel_max
        self.capabilities = session.capabilities
        self.profile = Profile(
            connected_ms=self._node.timers.now_ms(),
            mechanism=session.mechanism,
            heartbeat_s=session.heartbeat_s,
            client_name=session.client_name,
            client_properties=session.client_properties,
        )
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
            if self._throttle.closed:
                await self._pause()
                continue
            data = await self._transport.receive(self._throttle.read_bytes)
            if not data:
                self._note_end_of_stream()
                self.state = State.CLOSED
                return
            self.heard = True
            self.received_bytes += len(data)
            self.reads += 1
            self._node.received(len(data))
            self._take_turn(self._reader.feed(data))
            if self._node.blocked is not None:
                self._backlogs.note_partial(self._reader.partial_bytes)

    def _note_end_of_stream(self) -> None:
        """A client that has said connection.close, or was told it, may close its socket."""
        if self._backlogs.close is not None:
            self._log.info("closed", reason="the client closed the socket behind connection.close")
        elif self.state is State.RUNNING:
            self._log.info("lost", reason="the client closed the socket without connection.close")

    async def _pause(self) -> None:
        """Do not read for a while; silence is not the client's fault then."""
        self.listening = False
        if not await self._throttle.wait():
            self.lost("the client took nothing for too long")
        self.listening = True

    def _take_turn(self, batches: list[Batch]) -> None:
        """Handle what one read brought; then everything that this wrote, to anyone, goes out."""
        self._process(batches)
        self._end_turn()

    def _end_turn(self) -> None:
        if self.outbox.pieces:
            self.mark_dirty()
        self._node.flush()

    def lost(self, reason: str) -> None:
        """Give up a client that does not answer any more."""
        if self.state is not State.CLOSED:
            self._log.warning("lost", reason=reason)
        self.state = State.CLOSED
        nursery = self._sender.nursery
        self._sender.give_up()
        if nursery is not None:
            nursery.cancel_scope.cancel()

    def fail(self) -> None:
        self.lost("internal error")

    def failed(self, error: Exception) -> None:
        self._node.fail(self, TIMER, error)

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
        self._node.past_received_bytes += self.received_bytes
        self._node.past_sent_bytes += self.outbox.sent_bytes
        self.state = State.CLOSED
        self._stop_heartbeat()
        self._gate.stop()
        self._channels.drop_all()
        if hasattr(self, "vhost"):
            self._node.headcount.left(self.user, self.vhost)
            self.vhost.past_received_bytes += self.received_bytes
            self.vhost.past_sent_bytes += self.outbox.sent_bytes
            self.vhost.forget_owner(self)
        if self.handed_over is None:
            self._sender.give_up()
        else:
            self._sender.leave()
        self._node.flush()

    async def shut_down(self) -> None:
        """The node stops: tell the client, and give it time to answer."""
        if self.state is State.RUNNING:
            self._close(ConnectionFailure(320, "broker shutting down"))
            self.flush()
        elif self.state is State.HANDSHAKE:
            self.lost("broker shutting down")

    def expel(self, what: "User | VHost", reason: str) -> None:
        """The user or the vhost is no more."""
        if self.state is State.RUNNING and (what is self.user or what is self.vhost):
            self._close(ConnectionFailure(320, reason))

    def _end_unless_closed(self) -> None:
        if self.state is State.CLOSING:
            self.lost("the client did not answer connection.close")

    # Reading

    def _process(self, batches: list[Batch]) -> None:
        """Hand batches to their channels."""
        self._answer_mistakes(self._handle_all, batches)

    def _answer_mistakes(self, work: Callable[[T], None], argument: T) -> None:
        """The one place where a peer's mistakes become closes."""
        try:
            work(argument)
        except ConnectionFailure as failure:
            self._close(failure)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not end the node
            self._node.errors.note(CONNECTION, error, peer=self.name)
            self._close(ConnectionFailure(541, "internal error"))

    def _handle_all(self, batches: list[Batch]) -> None:
        for batch in batches:
            channel = self._channels.get(batch[0])
            if channel is not None and self._gate.holds(channel, batch[1]):
                self._backlogs.keep(channel, batch)
            else:
                self._handle(channel, *batch)
            if self.state is not State.RUNNING and self.state is not State.CLOSING:
                return
        if self._reader.failure is not None:
            raise self._reader.failure

    def _handle(self, channel: Channel | None, number: int, key: int, items: Sequence[Any]) -> None:
        if channel is not None and key not in LIFE_METHODS:
            if key == BASIC_PUBLISH:
                items = self._gate.admit(channel, items)
            try:
                channel.handle(key, items)
            except AMQPError as error:
                self._blame(channel, error, key)
        elif key == CONNECTION_CLOSE and self._waiting_channels():
            self._backlogs.close = (number, key, items)
        else:
            self._connection_method(number, key, items)

    def _blame(self, channel: Channel, error: AMQPError, key: int) -> None:
        """A mistake on a channel closes that channel, unless it closes everything."""
        error.method = error.method or key
        if not isinstance(error, ChannelError):
            raise error
        self._close_channel(channel, error)

    # What has to wait

    def _tell_blocked(self, reason: str) -> None:
        """A publisher has to wait because of an alarm, and wants to know."""
        if not self._told_blocked and "connection.blocked" in self.capabilities:
            self._told_blocked = True
            self._write(commands.Connection.Blocked, reason=reason)

    def unblocked(self) -> None:
        """The node takes publishes again."""
        if self._told_blocked and self.state is State.RUNNING:
            self._told_blocked = False
            self._write(commands.Connection.Unblocked)
        self._backlogs.note_partial(0)
        self._go_on()

    def _go_on(self) -> None:
        """Publishes that were kept back may go, as far as the rate allows: each channel in turn."""
        channels = list(self._channels)
        self._first = self._first + 1 if self._first + 1 < len(channels) else 0
        for channel in channels[self._first :] + channels[: self._first]:
            self._answer_mistakes(self._work_off, channel)
        self._end_wait()

    def keep_first(self, channel: Channel, batch: Batch) -> None:
        self._backlogs.keep_first(channel, batch)

    def resume(self, channel: Channel, action: Callable[[], None]) -> None:
        """A channel that waited acts, then handles what came meanwhile."""
        try:
            self._resume(channel, action)
        except Exception as error:  # noqa: BLE001 - whoever calls back has no part in it
            self._node.fail(self, CONNECTION, error)

    def _resume(self, channel: Channel, action: Callable[[], None]) -> None:
        try:
            action()
        except ChannelError as error:
            self._close_channel(channel, error)
        except ConnectionFailure as failure:
            self._close(failure)
        self._answer_mistakes(self._work_off, channel)
        if channel.backlog and not channel.suspended:  # publishes that have to wait even now
            self._process(self._backlogs.take_overtaking(channel))
        self._end_wait()

    def _work_off(self, channel: Channel) -> None:
        """Handle what was kept back, in order, up to the first that has to wait."""
        while channel.backlog and not channel.suspended:
            if channel.backlog[0][1] == BASIC_PUBLISH and self._gate.closed:
                return
            self._handle(channel, *self._backlogs.take_first(channel))

    def _end_wait(self) -> None:
        close = self._backlogs.close
        if close is not None and not self._waiting_channels():
            self._backlogs.close = None
            self._process([close])
        self._end_turn()

    def _waiting_channels(self) -> bool:
        return any(channel.suspended or channel.backlog for channel in self._channels)

    def _connection_method(self, number: int, key: int, items: Sequence[object]) -> None:
        if self.state is State.CLOSING:
            if key == CONNECTION_CLOSE_OK and number == 0:
                self.state = State.CLOSED
            elif key == CONNECTION_CLOSE and number == 0:
                self._write(commands.Connection.CloseOk)
            return
        if number == 0:
            self._channel_zero(key, cast("list[bytes]", items))
        else:
            self._channels.life_method(number, key, self.channel_max)

    def _channel_zero(self, key: int, items: list[bytes]) -> None:
        if key == CONNECTION_CLOSE:
            close = cast("commands.Connection.Close", methods.decode(key, items[0]))
            self._log.info("closed", code=close.reply_code, reason=close.reply_text)
            left = self._channels.consumed()
            self._channels.drop_all()
            self.state = State.CLOSED
            self._stop_heartbeat()
            self._parting = trio.Event()
            when_owner_is_gone(self.vhost, self, left, partial(self._part, self._parting))
        elif key == CONNECTION_UPDATE_SECRET:
            methods.decode(key, items[0])
            self._write(commands.Connection.UpdateSecretOk)
        elif key in commands.INDEX_MAPPING:
            text = f"unexpected method {methods.name_of(key)} in connection state running"
            raise ConnectionFailure(504, text, method=key)
        else:
            raise ConnectionFailure(540, f"unknown method {methods.name_of(key)}", method=key)

    # Closing

    def _part(self, parting: trio.Event) -> None:
        self._write(commands.Connection.CloseOk)
        parting.set()

    def _close_channel(self, channel: Channel, error: ChannelError) -> None:
        self._log.warning(
            "channel_error", channel=channel.number, code=error.code, reason=error.text
        )
        self._channels.close(channel, error)

    def _close(self, failure: ConnectionFailure) -> None:
        if self.state is not State.RUNNING:
            return
        log = self._log.info if failure.code == 320 else self._log.warning
        log("error", code=failure.code, reason=failure.text)
        left = self._channels.consumed()
        self._channels.drop_all()
        self.state = State.CLOSING
        self._stop_heartbeat()
        self._reader.failure = None
        # Its queues first: a client that recovers declares them anew as soon as it hears the close.
        when_owner_is_gone(self.vhost, self, left, partial(self._tell_close, failure))
        limit_ms = self._node.timers.now_ms() + int(CLOSE_TIMEOUT_S * 1000)
        self._node.timers.call_at(limit_ms, self._end_unless_closed)

    def _tell_close(self, failure: ConnectionFailure) -> None:
        if self.state is State.CLOSING:  # and not ended by the client in the meantime
            self._write(commands.Connection.Close, **close_arguments(failure))

    def _stop_heartbeat(self) -> None:
        """Behind the last word nothing is said any more; how long to wait has its own limit."""
        if self._heartbeat is not None:
            self._heartbeat.stop()

    def statistics(self) -> ConnectionStatistics:
        channels = list(self._channels)
        waiting = self._backlogs.size_bytes > 0
        return ConnectionStatistics(
            name=self.name,
            state=self.state.name.lower(),
            channels=len(channels),
            unacked=sum([len(channel.deliveries.unacked) for channel in channels]),
            outbox_bytes=self.outbox.size,
            congested=self.outbox.size > HIGH_BYTES,
            kept_back=sum([len(channel.backlog) for channel in channels]),
            kept_back_bytes=self._backlogs.size_bytes,
            publishes=self._gate.publishes,
            blocked=self._node.blocked if waiting else None,
            reading=self.listening,
            publish_rate=self._gate.rate_per_s,
            over_rate=self._gate.over_rate,
        )

    @property
    def is_open(self) -> bool:
        """Its user is known, and it has not begun to end."""
        return self.state is State.RUNNING

    @property
    def channels(self) -> list[Channel]:
        return list(self._channels)

    def close(self, reason: str) -> None:
        """An operator wants it to end: tell the client why."""
        if self.state is State.RUNNING:
            self._close(ConnectionFailure(320, reason))
            self._node.flush()

    def channel_statistics(self) -> list[ChannelStatistics]:
        return [channel.statistics() for channel in self._channels]

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
        self._sender.flush()

    def _resume_consumers(self) -> None:
        """There is room in the outbox again."""
        for channel in self._channels:
            channel.deliveries.wake_consumers()
        self._node.flush()
