"""HTTP/1.1 on a Trio stream: one request after another, within limits of size and time."""

from __future__ import annotations

import contextlib
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
from broker.version import VERSION

if TYPE_CHECKING:
    import ssl

    from broker.http.router import Router

StreamHandler = Callable[[trio.abc.Stream], Awaitable[None]]

READ_BYTES = 65536
PIECES_A_TURN = 64  # of a body, without giving others a turn: a millisecond
PIECES_FREE = 1000  # of any size
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
    # Of all requests at a time: whoever has not even logged in may send one.
    bodies_bytes_max: int = 256 * 2**20
    # A browser's or a scraper's pool of open connections; beyond it something is leaking.
    connections_max: int = 1024
    # Longer than the usual scrape interval, so that a scraper keeps its connection.
    idle_s: float = 75.0
    # From the first byte of a request to its last; drips of bytes must not hold a slot.
    request_s: float = 30.0
    # For a client to take a response; one that never reads must not hold its memory.
    send_s: float = 30.0
    # After an error, time to read what the client is still sending: closing with bytes unread
    # would reset the connection and could destroy the answer on its way.
    linger_s: float = 2.0


def make_handler(
    router: Router, limits: HttpLimits | None = None, errors: InternalErrors | None = None
) -> StreamHandler:
    """Return what `trio.serve_listeners` runs for each connection."""
    limits = limits or HttpLimits()
    errors = errors or InternalErrors()
    open_count = 0
    bodies = _Bodies()

    async def handle(stream: trio.abc.Stream) -> None:
        nonlocal open_count
        connection = _HttpConnection(stream, router, limits, bodies, errors)
        open_count += 1
        try:
            async with stream:
                if open_count > limits.connections_max:
                    await connection.refuse(HttpError(503, "too many connections"))
                else:
                    await connection.serve()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # The peer is gone: nobody is left to tell.
        except Exception as error:  # noqa: BLE001 - one client must not end the node
            errors.note(HTTP, error)
        finally:
            open_count -= 1
            connection.forget_body()

    return handle


def make_tls_handler(
    handle: StreamHandler,
    context: Callable[[], ssl.SSLContext],
    limits: HttpLimits | None = None,
) -> StreamHandler:
    """The same under TLS, by the certificate that there is when a client comes."""
    limits = limits or HttpLimits()
    shaking_hands = trio.CapacityLimiter(limits.connections_max)

    async def handle_tls(stream: trio.abc.Stream) -> None:
        if not shaking_hands.available_tokens:
            await trio.aclose_forcefully(stream)
            return
        tls = trio.SSLStream(stream, context(), server_side=True, https_compatible=True)
        try:
            async with shaking_hands:
                with trio.fail_after(limits.request_s):
                    await tls.do_handshake()
        except (trio.BrokenResourceError, trio.TooSlowError) as error:
            _log.debug("tls_failed", peer=_peer(stream), reason=str(error.__cause__ or error))
            await trio.aclose_forcefully(stream)
        else:
            await handle(tls)

    return handle_tls


class _Bodies:
    """Those of all requests that are under way."""

    def __init__(self) -> None:
        self.held_bytes = 0


class _HttpConnection:
    """One client's connection."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        router: Router,
        limits: HttpLimits,
        bodies: _Bodies,
        errors: InternalErrors,
    ) -> None:
        self._errors = errors
        self._bodies = bodies
        self._body_bytes = 0  # of the request under way
        self._stream = stream
        self._peer = _peer(stream)
        self._router = router
        self._limits = limits
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
            response = await self._answer(request)
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
        with trio.move_on_after(self._limits.request_s):
            try:
                head = await self._next_event()
                if not isinstance(head, h11.Request):
                    return None
                self._check_head(head)
                body = await self._receive_body(head)
                scheme = "https" if isinstance(self._stream, trio.SSLStream) else "http"
                return _make_request(head, body, self._peer, scheme, self._hangup)
            except h11.RemoteProtocolError as error:
                raise HttpError(error.error_status_hint, f"malformed request: {error}") from None
        raise HttpError(408, "the request took too long to arrive")

    async def _wait_for_first_byte(self) -> bool:
        if self._http.trailing_data[0]:
            return True  # The client sent this request together with the one before.
        with trio.move_on_after(self._limits.idle_s):
            await self._receive_some()
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

    async def _receive_body(self, head: h11.Request) -> bytes:
        announced = dict(head.headers).get(b"content-length", b"0")
        if int(announced) > self._limits.body_bytes_max:
            raise self._body_too_large()
        body = bytearray()
        pieces = 0
        while isinstance(event := await self._next_event(), h11.Data):
            body += event.data
            pieces += 1
            if not pieces % PIECES_A_TURN:
                await trio.lowlevel.checkpoint()
            if pieces > PIECES_FREE + len(body) // self._limits.chunk_bytes_min:
                raise HttpError(400, "the body comes in chunks that are too small")
            self._body_bytes += len(event.data)
            self._bodies.held_bytes += len(event.data)
            if len(body) > self._limits.body_bytes_max:
                raise self._body_too_large()
            if self._bodies.held_bytes > self._limits.bodies_bytes_max:
                raise HttpError(503, "too much is being sent at the same time")
        return bytes(body)

    def forget_body(self) -> None:
        """The request is answered, or given up."""
        self._bodies.held_bytes -= self._body_bytes
        self._body_bytes = 0

    def _body_too_large(self) -> HttpError:
        return HttpError(413, f"the body is larger than {self._limits.body_bytes_max} bytes")

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
    head: h11.Request, body: bytes, peer: str, scheme: str, hangup: Callable[[], Awaitable[None]]
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
    )
