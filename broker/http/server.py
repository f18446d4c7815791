"""HTTP/1.1 on a Trio stream: one request after another, within limits of size and time."""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING

import h11
import trio

from broker import logs
from broker.http.messages import HttpError, Request, Response, split_target
from broker.internal_errors import HTTP, InternalErrors
from broker.strangers import Stranger, Strangers, nobody
from broker.version import VERSION

if TYPE_CHECKING:
    import ssl

    from broker.http.router import Router

LogIn = Callable[[Request], Awaitable[object]]  # raises HttpError; calls `Request.logged_in`

READ_BYTES = 65536
PIECES_A_TURN = 64  # of a body, without giving others a turn: a millisecond
PIECES_FREE = 1000  # of any size
SIGNED = b"AWS4-"  # how an Authorization header begins that holds for the whole request
SIGNED_SHARE = 8  # of the memory for bodies, what those of signed requests may take: one of so many
HTTP_VERSIONS = frozenset({b"1.0", b"1.1"})
BODILESS_STATUSES = frozenset({204, 304})
# What browsers may make of an answer, unless it says otherwise itself: nothing but its data.
SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_log = logs.get("http")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """How much a client may ask for, and how long it may take over it."""

    # Far above any honest request line and headers, cookies included.
    header_bytes_max: int = 16384
    # Clients send a dozen; each costs far more to take apart than to send.
    headers_max: int = 100
    # A body is held in memory. This fits the import of a large set of definitions.
    body_bytes_max: int = 16 * 2**20
    # Chunks of a body beyond the first thousand have at least so many bytes on average: those of a
    # byte each would keep the node busy for minutes.
    chunk_bytes_min: int = 64
    # Of all requests at a time.
    bodies_bytes_max: int = 256 * 2**20
    # The same of one request whose client has not logged in; nothing that it may ask for is larger.
    stranger_body_bytes_max: int = 64 * 2**10
    # And of one that is signed: the largest batch of SQS, in base64.
    signed_body_bytes_max: int = 2 * 2**20
    # Of clients that have logged in: a browser's or a scraper's pool is far below.
    connections_max: int = 1024
    # From connecting, or from the first byte of a request, until a client has logged in.
    login_s: float = 10.0
    # Longer than the usual scrape interval, so that a scraper keeps its connection.
    idle_s: float = 75.0
    # From the first byte of a request to its last; drips of bytes must not hold a slot.
    request_s: float = 30.0
    # For a client to take a response; one that never reads must not hold its memory.
    send_s: float = 30.0
    # After an error, time to read what the client is still sending: closing with bytes unread
    # would reset the connection and could destroy the answer on its way.
    linger_s: float = 2.0


class _Bodies:
    """Those of requests that are under way, together within a limit."""

    def __init__(self, bytes_max: float = math.inf) -> None:
        self._bytes_max = bytes_max
        self._held_bytes = 0

    def take(self, size_bytes: int) -> None:
        self._held_bytes += size_bytes
        if self._held_bytes > self._bytes_max:
            raise HttpError(503, "too much is being sent at the same time")

    def give_back(self, size_bytes: int) -> None:
        self._held_bytes -= size_bytes


class HttpDoor:
    """What the connections of a node's HTTP ports share."""

    def __init__(
        self,
        router: Router,
        limits: HttpLimits,
        *,
        strangers: Strangers,
        log_in: LogIn,
        errors: InternalErrors,
    ) -> None:
        self.router = router
        self.limits = limits
        self.strangers = strangers
        self.log_in = log_in
        self.errors = errors
        self.known = 0  # connections whose clients have logged in
        self.bodies = _Bodies(limits.bodies_bytes_max)
        self.signed_bodies = _Bodies(limits.bodies_bytes_max // SIGNED_SHARE)
        self.small_bodies = _Bodies()  # as many as there are strangers, and no larger than allowed

    async def handle(
        self, stream: trio.abc.Stream, context: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        """Serve one accepted connection; under TLS if there is a context for it."""
        scope = trio.CancelScope()
        stranger = self.strangers.enter(_peer(stream), _descriptor(stream), scope.cancel)
        try:
            with scope:
                async with stream:
                    served: trio.abc.Stream | None = stream
                    if context is not None:
                        served = await self._begin_tls(stream, context())
                    if served is not None:
                        await self._serve(served, stranger)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # The peer is gone: nobody is left to tell.
        except Exception as error:  # noqa: BLE001 - one client must not end the node
            self.errors.note(HTTP, error)
        finally:
            if stranger is not None:
                stranger.end()

    async def _begin_tls(
        self, stream: trio.abc.Stream, context: ssl.SSLContext
    ) -> trio.abc.Stream | None:
        """None if the client does not come through TLS's own handshake."""
        tls = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        try:
            with trio.fail_after(self.limits.login_s):
                await tls.do_handshake()
        except (trio.BrokenResourceError, trio.TooSlowError) as error:
            _log.debug("tls_failed", peer=_peer(stream), reason=str(error.__cause__ or error))
            return None
        return tls

    async def _serve(self, stream: trio.abc.Stream, stranger: Stranger | None) -> None:
        connection = _HttpConnection(stream, self, stranger or nobody())
        try:
            async with stream:
                if stranger is None:
                    await connection.refuse(HttpError(503, "too many connections"))
                else:
                    await connection.serve()
        finally:
            connection.leave()


class _HttpConnection:
    """One client's connection."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        door: HttpDoor,
        stranger: Stranger,
    ) -> None:
        self._door = door
        self._errors = door.errors
        self._stranger = stranger
        self._known = False
        self._bodies = door.small_bodies
        self._body_bytes = 0  # of the request under way
        self._stream = stream
        self._peer = _peer(stream)
        self._router = door.router
        self._limits = limits = door.limits
        self._idle_s = limits.login_s  # until its first request
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.header_bytes_max)

    async def serve(self) -> None:
        """Answer requests until either side has had enough."""
        while True:
            try:
                request = await self._receive_request()
            except HttpError as error:
                await self.refuse(error)
                return
            if request is None:
                return
            self._stranger.waiting = False
            response = await self._answer(request)
            self._stranger.waiting = True
            self._idle_s = self._limits.idle_s
            self.forget_body()
            if not await self._send(response, head_only=request.method == "HEAD"):
                return
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def refuse(self, error: HttpError) -> None:
        """Answer with an error and end the connection."""
        self.forget_body()
        _log.debug("refused", status=int(error.status), reason=error.reason)
        error.headers["Connection"] = "close"
        if self._http.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        if await self._send(error.response(), head_only=False):
            await self._linger()

    async def _receive_request(self) -> Request | None:
        """Wait for a whole request; None if the client leaves or stays idle between two."""
        if not await self._wait_for_first_byte():
            return None
        limits = self._limits
        limit_s = limits.request_s if self._known else min(limits.login_s, limits.request_s)
        with trio.move_on_after(limit_s) as scope:
            try:
                head = await self._next_event()
                if not isinstance(head, h11.Request):
                    return None
                self._check_head(head)
                bytes_max = await self._admit_body(head, scope)
                body = await self._receive_body(head, bytes_max)
                return self._request(head, body)
            except h11.RemoteProtocolError as error:
                raise HttpError(error.error_status_hint, f"malformed request: {error}") from None
        raise HttpError(408, "the request took too long to arrive")

    def _request(self, head: h11.Request, body: bytes) -> Request:
        scheme = "https" if isinstance(self._stream, trio.SSLStream) else "http"
        return _make_request(head, body, self._peer, scheme, self._hangup, self._log_in)

    async def _admit_body(self, head: h11.Request, scope: trio.CancelScope) -> int:
        """How large it may be. Whoever sends a large one has to log in first, and gets more time.

        What is signed is only known to be somebody's when all of it is there.
        """
        limits = self._limits
        self._bodies = self._door.bodies if self._known else self._door.small_bodies
        if self._known:
            return limits.body_bytes_max
        small = min(limits.stranger_body_bytes_max, limits.body_bytes_max)
        headers = dict(head.headers)
        is_small = int(headers.get(b"content-length", b"0")) <= small
        proof = headers.get(b"authorization")
        if proof is None or (is_small and b"transfer-encoding" not in headers):
            return small
        if proof.startswith(SIGNED):
            self._bodies = self._door.signed_bodies
            bytes_max = min(limits.signed_body_bytes_max, limits.body_bytes_max)
        else:
            self._stranger.waiting = False
            await self._door.log_in(self._request(head, b""))
            self._stranger.waiting = True
            self._bodies = self._door.bodies
            bytes_max = limits.body_bytes_max
        scope.deadline = trio.current_time() + limits.request_s
        return bytes_max

    def _log_in(self) -> None:
        """The client is somebody's. Raises HttpError where there are too many of those."""
        if self._known:
            return
        if self._door.known >= self._limits.connections_max:
            raise HttpError(503, "too many connections")
        self._known = True
        self._door.known += 1
        self._stranger.leave()

    def leave(self) -> None:
        self.forget_body()
        if self._known:
            self._door.known -= 1

    async def _wait_for_first_byte(self) -> bool:
        if self._http.trailing_data[0]:
            return True  # The client sent this request together with the one before.
        with trio.move_on_after(self._idle_s):
            await self._receive_some()
            self._stranger.heard = True
            return True
        return False

    def _check_head(self, head: h11.Request) -> None:
        """Refuse a head over the limit that came in one read: h11 counts only unfinished ones."""
        size = len(head.target) + sum(len(name) + len(value) for name, value in head.headers)
        if size > self._limits.header_bytes_max or len(head.headers) > self._limits.headers_max:
            raise HttpError(431, "the request line and headers are too large")
        if head.http_version not in HTTP_VERSIONS:
            raise HttpError(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
        names = {name for name, _ in head.headers}
        if {b"content-length", b"transfer-encoding"} <= names:
            # Whatever is in front of this node may have taken the other one for the end.
            raise HttpError(400, "both Content-Length and Transfer-Encoding are given")

    async def _receive_body(self, head: h11.Request, bytes_max: int) -> bytes:
        announced = dict(head.headers).get(b"content-length", b"0")
        if int(announced) > bytes_max:
            raise _body_too_large(bytes_max)
        body = bytearray()
        pieces = 0
        while isinstance(event := await self._next_event(), h11.Data):
            body += event.data
            pieces += 1
            if not pieces % PIECES_A_TURN:
                await trio.lowlevel.checkpoint()
            if pieces > PIECES_FREE + len(body) // self._limits.chunk_bytes_min:
                raise HttpError(400, "the body comes in chunks that are too small")
            if len(body) > bytes_max:
                raise _body_too_large(bytes_max)
            self._body_bytes += len(event.data)
            self._bodies.take(len(event.data))
        return bytes(body)

    def forget_body(self) -> None:
        """The request is answered, or given up."""
        self._bodies.give_back(self._body_bytes)
        self._body_bytes = 0

    async def _next_event(self) -> object:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                await self._stream.send_all(self._http.send(go_on) or b"")
            await self._receive_some()

    async def _receive_some(self) -> None:
        self._http.receive_data(bytes(await self._stream.receive_some(READ_BYTES)))

    async def _hangup(self) -> None:
        """Return when the client is gone. If it sends more meanwhile, nobody can tell."""
        if isinstance(self._stream, trio.SocketStream) and not self._http.trailing_data[0]:
            with contextlib.suppress(OSError):
                if await self._stream.socket.recv(1, socket.MSG_PEEK):
                    await trio.sleep_forever()
            return
        await trio.sleep_forever()

    async def _answer(self, request: Request) -> Response:
        try:
            response = await self._router.dispatch(request)
        except HttpError as error:
            response = error.response()
        except trio.BrokenResourceError:
            raise  # the route has waited for `Request.hangup`
        except Exception as error:  # noqa: BLE001 - one route's bug must not take the node down
            self._errors.note(HTTP, error, method=request.method, path=request.path)
            response = internal_error()
        _log.debug("answered", method=request.method, path=request.path, status=response.status)
        return response

    async def _send(self, response: Response, *, head_only: bool) -> bool:
        """Send a response; False if the client did not take it in time."""
        try:
            head = _head(response)
        except (h11.LocalProtocolError, UnicodeError) as error:
            self._errors.note(HTTP, error, status=int(response.status))
            response = internal_error()
            head = _head(response)
        data = self._http.send(head) or b""
        if not head_only:
            data += self._http.send(h11.Data(data=response.body)) or b""
        data += self._http.send(h11.EndOfMessage()) or b""
        with trio.move_on_after(self._limits.send_s):
            await self._stream.send_all(data)
            return True
        return False

    async def _linger(self) -> None:
        with trio.move_on_after(self._limits.linger_s):
            if isinstance(self._stream, trio.abc.HalfCloseableStream):
                await self._stream.send_eof()
            left = self._limits.body_bytes_max
            while left > 0 and (data := await self._stream.receive_some(READ_BYTES)):
                left -= len(data)


def _body_too_large(bytes_max: int) -> HttpError:
    return HttpError(413, f"the body is larger than {bytes_max} bytes, which are allowed here")


def internal_error() -> Response:
    """For a bug of ours. What it is stands in the log, and is nobody else's business."""
    return HttpError(500, "internal error, see the node's log").response()


def _head(response: Response) -> h11.Response:
    """Raises what h11 does where a header cannot be sent."""
    headers = {"Date": formatdate(usegmt=True), "Server": f"leveret/{VERSION}"}
    headers |= SECURITY_HEADERS | dict(response.headers)
    if response.status not in BODILESS_STATUSES:
        headers["Content-Length"] = str(len(response.body))
    return h11.Response(
        status_code=response.status, headers=list(headers.items()), reason=_reason(response.status)
    )


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:  # nobody has named it
        return ""


def _descriptor(stream: trio.abc.Stream) -> int:
    return stream.socket.fileno() if isinstance(stream, trio.SocketStream) else 0


def _peer(stream: trio.abc.Stream) -> str:
    if isinstance(stream, trio.SSLStream):
        stream = stream.transport_stream
    if not isinstance(stream, trio.SocketStream):
        return ""
    try:
        return str(stream.socket.getpeername()[0])
    except OSError:  # gone before it was looked at
        return ""


def _make_request(
    head: h11.Request,
    body: bytes,
    peer: str,
    scheme: str,
    hangup: Callable[[], Awaitable[None]],
    logged_in: Callable[[], None],
) -> Request:
    path, query = split_target(head.target)
    headers: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Request(
        method=head.method.decode("ascii"),
        path=path,
        query=query,
        headers=headers,
        body=body,
        peer=peer,
        scheme=scheme,
        hangup=hangup,
        logged_in=logged_in,
    )
