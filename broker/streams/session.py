"""A connection that speaks the stream protocol, from its header to its end."""

import enum
import math
from typing import Final

import trio

from broker import logs
from broker.connection.transport import Transport
from broker.node import Node
from broker.protocol import stream_messages as wire
from broker.protocol.stream_fields import MalformedError
from broker.protocol.stream_wire import (
    LAST_WORD,
    OPENING_BYTES_MAX,
    PROTOCOL_HEADER,
    REQUEST_BYTES_MAX,
    FrameBuffer,
    FrameTooLargeError,
    Operation,
    Refused,
    Request,
    Status,
    encode_answer,
    encode_refusal,
    read_request,
)
from broker.security.sasl import Origin
from broker.security.user import User
from broker.strangers import nobody
from broker.streams.login import Login, log_in
from broker.streams.requests import REQUESTS_MAX, Requests
from broker.streams.sending import AnswerSender
from broker.streams.service import StreamService
from broker.vhost import VHost

# How long a peer has to take the last word and to close. Longer than any network's round trip.
CLOSE_TIMEOUT_S: Final = 5.0
IDLE_INTERVALS: Final = 2  # of the heartbeat, without a word and without a request in flight


class _State(enum.Enum):
    OPENING = enum.auto()
    RUNNING = enum.auto()
    CLOSING = enum.auto()  # the last word is said
    CLOSED = enum.auto()


class StreamSession:
    """A client's connection; one nursery with the reader and the writer."""

    def __init__(
        self,
        transport: Transport,
        node: Node,
        service: StreamService,
        origin: Origin,
    ) -> None:
        self.name = origin.name
        self._transport = transport
        self._node = node
        self._service = service
        self.origin = origin
        self.stranger = nobody()  # until it has logged in, as its door has it
        self.connected_ms = 0  # when its login was through
        self.reads = 0
        self.received_bytes = 0
        self._login: Login | None = None
        self._state = _State.OPENING
        self._buffer = FrameBuffer(OPENING_BYTES_MAX)
        self._sender = AnswerSender(transport, self._relieved)
        self._requests: Requests | None = None
        self._reading = trio.CancelScope()
        self._room = trio.Event()  # requests may be taken again
        self._log = logs.get("stream").bind(peer=origin.name)

    @property
    def login(self) -> Login | None:
        """Whose it is; None while it is not open."""
        return self._login if self._state is _State.RUNNING else None

    @property
    def sent_bytes(self) -> int:
        return self._sender.sent_bytes

    @property
    def waiting_bytes(self) -> int:
        """To be sent."""
        return self._sender.size_bytes

    # Life

    async def run(self, received: bytes, *, full: bool) -> None:
        """Serve the client, who has sent this much, until either side ends it."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                with self._reading:
                    if await self._open(received, full=full):
                        await self._serve()
                self.stranger.waiting = True
                await self._linger()
                nursery.cancel_scope.cancel()
        finally:
            self._state = _State.CLOSED
            if self._login is not None:
                self._node.headcount.left(self._login.user, self._login.vhost)
            if self._requests is not None:
                self._requests.close()
                self._node.flush()
            await self._transport.aclose()

    async def _write(self) -> None:
        await self._sender.run()
        self._log.warning("lost", reason="the client takes nothing any more")
        self._state = _State.CLOSED
        self._reading.cancel()

    async def _open(self, received: bytes, *, full: bool) -> bool:
        """The login; whether it led to an open session."""
        self.reads, self.received_bytes = 1, len(received)
        header = received[: len(PROTOCOL_HEADER)]
        if header != PROTOCOL_HEADER:
            self._log.warning("handshake_failed", reason="another version of the stream protocol")
            self._sender.write(PROTOCOL_HEADER)
            return False
        self._buffer.feed(received[len(PROTOCOL_HEADER) :])
        with trio.move_on_after(self._node.config.handshake_timeout_s) as scope:
            try:
                request = await self._first_request()
            except MalformedError as error:
                self._say_last(_blame(error))
                return False
            return request is not None and await self._log_in(request, full=full)
        if scope.cancelled_caught:
            self._log.warning("handshake_timeout")
        return False

    async def _first_request(self) -> Request | None:
        while (frame := self._buffer.take()) is None:
            self.stranger.waiting = True
            data = await self._transport.receive()
            self.stranger.waiting = False
            if not data:
                self._log.warning("handshake_failed", reason="the client closed the socket")
                return None
            self._feed(data)
        return read_request(frame)

    def _feed(self, data: bytes) -> None:
        self.reads += 1
        self.received_bytes += len(data)
        self._buffer.feed(data)

    async def _log_in(self, request: Request, *, full: bool) -> bool:
        found = await log_in(request, self._node, self.origin, full=full)
        if isinstance(found, Refused):
            self._log.warning("handshake_refused", code=found.status, reason=found.text)
            self._sender.write(encode_refusal(request.correlation, request.operation, found))
            return False
        self._start(found, request)
        return True

    def _start(self, login: Login, request: Request) -> None:
        self.stranger.leave()
        self._login = login
        self.connected_ms = self._node.timers.now_ms()
        self._node.headcount.entered(login.user, login.vhost)
        if login.client:
            self.name = f"{self.name} - {login.client}"
            self._log = self._log.bind(name=login.client)
        self._requests = Requests(self._service, login, self._node, self._sender, self._has_room)
        self._buffer.frame_bytes_max = REQUEST_BYTES_MAX
        self._state = _State.RUNNING
        idle_ms = IDLE_INTERVALS * self._node.config.heartbeat_s * 1000
        answer = wire.Authenticated(
            self._node.config.node_name, REQUEST_BYTES_MAX, REQUESTS_MAX, idle_ms
        )
        self._sender.write(
            encode_answer(request.correlation, request.operation, wire.encode_body(answer))
        )
        self._log.info("open", user=login.user.name, vhost=login.vhost.name)

    async def _serve(self) -> None:
        """Read, carry out, answer: one turn per read."""
        requests = self._requests
        assert requests is not None
        while self._take_turn(requests):
            host = self._node.host
            if requests.full:
                self._room = trio.Event()
                await self._room.wait()
            elif requests.writes and host is not None and host.overloaded:
                await host.relief()
            else:
                await self._receive(requests)

    async def _receive(self, requests: Requests) -> None:
        idle_s = IDLE_INTERVALS * self._node.config.heartbeat_s or math.inf
        with trio.move_on_after(idle_s) as scope:
            data = await self._transport.receive()
            if not data:
                self._state = _State.CLOSED
                self._log.info("closed", reason="the client closed the socket")
            self._feed(data)
        if scope.cancelled_caught and requests.idle and self._sender.idle:
            self._say_last(Refused(Status.IDLE, f"nothing was heard for {idle_s} s"))

    def _take_turn(self, requests: Requests) -> bool:
        """Carry out what has come, as far as there is room for the answers; whether to go on."""
        try:
            while not requests.full and (frame := self._buffer.take()) is not None:
                requests.handle(read_request(frame))
        except MalformedError as error:
            self._say_last(_blame(error))
        self._node.flush()
        return self._state is _State.RUNNING

    def _say_last(self, refused: Refused) -> None:
        if self._state is _State.CLOSED or self._state is _State.CLOSING:
            return
        log = self._log.info if refused.status == Status.SHUTTING_DOWN else self._log.warning
        log("error", code=refused.status, reason=refused.text)
        self._state = _State.CLOSING
        self._sender.write(encode_refusal(LAST_WORD, Operation.CLOSING, refused))

    async def _linger(self) -> None:
        """Let the last words out: closing with bytes unread would reset them."""
        if self._state is _State.CLOSED:
            return
        with trio.move_on_after(CLOSE_TIMEOUT_S):
            await self._sender.drained()
            self._transport.send_eof()
            while await self._transport.receive():
                pass

    async def shut_down(self) -> None:
        """The node stops: tell the client."""
        if self._state is _State.RUNNING:
            self._say_last(Refused(Status.SHUTTING_DOWN, "broker shutting down"))
        else:
            self._state = _State.CLOSED
        self._reading.cancel()

    def expel(self, what: User | VHost, reason: str) -> None:
        """The user or the vhost is no more."""
        login = self._login
        if login is not None and (what is login.user or what is login.vhost):
            self._say_last(Refused(Status.ACCESS_REFUSED, reason))
            self._reading.cancel()

    def close(self, reason: str) -> None:
        """An operator ends it."""
        self._say_last(Refused(Status.SHUTTING_DOWN, reason))
        self._reading.cancel()

    # What the node and the sender say

    def flush(self) -> None:
        """The writer is a task of its own."""

    def fail(self) -> None:
        self._say_last(Refused(Status.INTERNAL_ERROR, "internal error"))
        self._reading.cancel()

    def unblocked(self) -> None:
        if self._requests is not None:
            self._requests.unblocked()

    def _relieved(self) -> None:
        if self._requests is not None:
            self._requests.relieved()
        self._has_room()

    def _has_room(self) -> None:
        self._room.set()


def _blame(error: MalformedError) -> Refused:
    too_large = isinstance(error, FrameTooLargeError)
    return Refused(Status.FRAME_TOO_LARGE if too_large else Status.MALFORMED, str(error))
