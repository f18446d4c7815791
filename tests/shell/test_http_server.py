"""The HTTP server: framing, keep-alive, limits of size and time, and answers to nonsense."""

from __future__ import annotations

import contextlib
import json
import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import h11
import pytest
import trio
import trio.testing

from broker.http.health import add_health
from broker.http.messages import HttpError, Request, Response, json_response
from broker.http.router import Router
from broker.http.server import HttpLimits
from broker.version import VERSION
from tests.support.http_door import make_door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

LIMITS = HttpLimits(
    header_bytes_max=2048,
    body_bytes_max=1000,
    stranger_body_bytes_max=500,
    login_s=15,
    bodies_bytes_max=1500,
    connections_max=2,
    idle_s=50,
    request_s=20,
    send_s=30,
    linger_s=3,
)

GET_HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def large_request(body: bytes) -> bytes:
    """With proof of who sends it."""
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nAuthorization: Basic eDp5\r\nContent-Length: %d"
    return head % len(body) + b"\r\n\r\n" + body


@dataclass
class Answer:
    """One response as a client sees it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """The other end of a connection, with h11 to check what the server sends."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._http = h11.Connection(h11.CLIENT)

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def receive(self, method: str = "GET") -> Answer:
        """Read one response to a request that was sent as raw bytes."""
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        # h11 needs to know the method to frame the response; the bytes of this go nowhere.
        self._http.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        self._http.send(h11.EndOfMessage())
        head, body = None, b""
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(bytes(await self.stream.receive_some(65536)))
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
        assert head is not None
        headers = {name.decode(): value.decode() for name, value in head.headers}
        return Answer(head.status_code, headers, body)

    async def ask(self, data: bytes, method: str = "GET") -> Answer:
        await self.send(data)
        return await self.receive(method)

    async def is_closed_by_server(self) -> bool:
        return await self.stream.receive_some(1) == b""


def make_router() -> Router:
    router = Router()
    add_health(router, lambda: {"status": "ok", "node": "leveret@here", "version": VERSION})

    async def echo(request: Request) -> Response:
        return json_response(
            {
                "method": request.method,
                "query": dict(request.query),
                "headers": dict(request.headers),
                "body": request.body.decode(),
            }
        )

    async def broken(request: Request) -> Response:
        raise RuntimeError("a bug")

    async def refused(request: Request) -> Response:
        raise HttpError(409, "it is there already")

    async def empty(request: Request) -> Response:
        return Response(status=204)

    async def large(request: Request) -> Response:
        return Response(body=b"x" * 1_000_000)

    async def header(request: Request) -> Response:
        return Response(headers={"Location": request.query["value"][0]})

    router.add("GET", "/header", header)
    router.add("GET", "/echo", echo)
    router.add("POST", "/echo", echo)
    router.add("GET", "/broken", broken)
    router.add("PUT", "/refused", refused)
    router.add("DELETE", "/empty", empty)
    router.add("GET", "/large", large)
    return router


Connect = Any


@pytest.fixture
async def connect(nursery: trio.Nursery) -> Callable[[], Client]:
    handler = make_door(make_router(), LIMITS).handle

    def open_connection() -> Client:
        ours, theirs = trio.testing.memory_stream_pair()
        nursery.start_soon(handler, theirs)
        return Client(ours)

    return open_connection


async def test_health_is_ok_and_the_headers_are_complete(connect: Connect) -> None:
    answer = await connect().ask(GET_HEALTH)
    assert answer.status == 200
    assert answer.json == {"status": "ok", "node": "leveret@here", "version": VERSION}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["server"] == f"leveret/{VERSION}"
    assert answer.headers["date"].endswith("GMT")


async def test_health_of_a_stopping_node_is_503(nursery: trio.Nursery) -> None:
    router = Router()
    add_health(router, lambda: {"status": "stopping"})
    ours, theirs = trio.testing.memory_stream_pair()
    nursery.start_soon(make_door(router).handle, theirs)
    answer = await Client(ours).ask(GET_HEALTH)
    assert (answer.status, answer.json) == (503, {"status": "stopping"})


async def test_a_connection_serves_one_request_after_another(connect: Connect) -> None:
    client = connect()
    for _ in range(3):
        assert (await client.ask(GET_HEALTH)).status == 200


async def test_pipelined_requests_are_answered_in_order(connect: Connect) -> None:
    client = connect()
    await client.send(
        b"GET /echo?n=1 HTTP/1.1\r\nHost: x\r\n\r\n"
        b"POST /echo?n=2 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"
        b"GET /echo?n=3 HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    answers = [await client.receive() for _ in range(3)]
    assert [answer.json["query"]["n"] for answer in answers] == [["1"], ["2"], ["3"]]
    assert answers[1].json["body"] == "hi"


async def test_a_request_may_arrive_byte_by_byte(connect: Connect) -> None:
    client = connect()
    request = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
    for position in range(len(request)):
        await client.send(request[position : position + 1])
        await trio.testing.wait_all_tasks_blocked()
    assert (await client.receive()).json["body"] == "hello"


async def test_a_chunked_body_is_put_together(connect: Connect) -> None:
    answer = await connect().ask(
        b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    assert answer.json["body"] == "abcde"


async def test_query_and_headers_reach_the_route_decoded(connect: Connect) -> None:
    answer = await connect().ask(
        b"GET /echo?a=1&a=%C3%A9&b= HTTP/1.1\r\nHost: x\r\nX-Two: 1\r\nx-two: 2\r\n\r\n"
    )
    assert answer.json["query"] == {"a": ["1", "é"], "b": [""]}
    assert answer.json["headers"]["x-two"] == "1, 2"


async def test_a_target_may_be_a_whole_url(connect: Connect) -> None:
    answer = await connect().ask(b"GET http://x/echo?a=1 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.json["query"] == {"a": ["1"]}


async def test_head_answers_like_get_without_the_body(connect: Connect) -> None:
    client = connect()
    length = len((await client.ask(GET_HEALTH)).body)
    answer = await client.ask(b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n", "HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-length"] == str(length)
    assert (await client.ask(GET_HEALTH)).status == 200, "the connection is still in step"


async def test_a_response_without_content_keeps_the_connection_in_step(connect: Connect) -> None:
    client = connect()
    answer = await client.ask(b"DELETE /empty HTTP/1.1\r\nHost: x\r\n\r\n", "DELETE")
    assert (answer.status, answer.body) == (204, b"")
    assert "content-length" not in answer.headers
    assert (await client.ask(GET_HEALTH)).status == 200


async def test_a_client_that_waits_for_100_continue_gets_it(connect: Connect) -> None:
    client = connect()
    await client.send(
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    )
    go_on = bytes(await client.stream.receive_some(1000))
    assert go_on.startswith(b"HTTP/1.1 100 ")
    assert (await client.ask(b"hi")).json["body"] == "hi"


@pytest.mark.parametrize(
    "head", [b"GET /health HTTP/1.0\r\n\r\n", GET_HEALTH[:-2] + b"Connection: close\r\n\r\n"]
)
async def test_a_client_that_does_not_keep_connections_gets_a_close(
    connect: Connect, head: bytes
) -> None:
    client = connect()
    assert (await client.ask(head)).status == 200
    assert await client.is_closed_by_server()


@pytest.mark.parametrize(
    ("request_line", "status", "error"),
    [
        (b"GET /nothing", 404, "Not Found"),
        (b"GET /health/", 404, "Not Found"),
        (b"GET /", 404, "Not Found"),
        (b"DELETE /health", 405, "Method Not Allowed"),
        (b"PUT /refused", 409, "Conflict"),
        pytest.param(
            *(b"GET /broken", 500, "Internal Server Error"),
            marks=pytest.mark.provokes_internal_errors,
        ),
    ],
)
async def test_an_error_of_a_route_is_json_and_keeps_the_connection(
    connect: Connect, request_line: bytes, status: int, error: str
) -> None:
    client = connect()
    answer = await client.ask(request_line + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.status == status
    assert answer.json["error"] == error
    assert "bug" not in answer.json["reason"]
    assert (await client.ask(GET_HEALTH)).status == 200


@pytest.mark.provokes_internal_errors
@pytest.mark.parametrize("value", ["größe", "a\r\nX-Evil: 1", "日本"])
async def test_a_header_that_cannot_be_sent_is_an_error_of_one_answer(
    connect: Connect, internal_errors: list[str], value: str
) -> None:
    client = connect()
    target = b"GET /header?value=" + quote(value).encode()
    answer = await client.ask(target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.status == 500
    assert "x-evil" not in answer.headers
    assert internal_errors == ["http"]
    assert (await client.ask(GET_HEALTH)).status == 200


async def test_answers_have_a_reason_phrase(connect: Connect) -> None:
    client = connect()
    await client.send(GET_HEALTH)
    said = bytes(await client.stream.receive_some(65536))
    assert said.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_wrong_method_is_told_the_right_ones(connect: Connect) -> None:
    answer = await connect().ask(b"DELETE /echo HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.headers["allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"complete nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"AMQP\x00\x00\x09\x01\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET health HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /echo?a=%FF HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /echo?" + b"a&" * 500 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 3000 + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * 3000, 431),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 100 + b"\r\n", 431),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 1000, 431),
        (b"GET /health HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n Host: x\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET /health HTTP/2.0\r\nHost: x\r\n\r\n", 505),
        # What two servers could take for the ends of different requests.
        (CHUNKED[:-2] + b"Content-Length: 5\r\n\r\n0\r\n\r\n", 400),
        (CHUNKED[:-2] + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n", 501),
        (CHUNKED.replace(b"chunked", b"chunked, identity") + b"0\r\n\r\n", 501),
        (CHUNKED.replace(b"chunked", b"\x0bchunked") + b"0\r\n\r\n", 400),
        (CHUNKED + b"-1\r\nx\r\n0\r\n\r\n", 400),
        (CHUNKED + b"0x1\r\nx\r\n0\r\n\r\n", 400),
        (CHUNKED + b"1\r\nxy\r\n0\r\n\r\n", 400),
        (CHUNKED + b"f" * 30 + b"\r\nx", 400),
        (CHUNKED + b"1;" + b"e" * 3000, 431),  # an extension without end
        (CHUNKED + b"0\r\n" + b"a: b\r\n" * 1000, 431),  # trailers without end
        (CHUNKED + b"1\r\nx\r\n" * 1100, 413),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello", 400),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 6\r\n\r\nhello", 400),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %s\r\n\r\n" % (b"9" * 30), 400),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n", 413),
        (
            b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"64\r\n%s\r\n" % (b"x" * 100) * 11,
            413,
        ),
    ],
)
async def test_what_is_malformed_or_too_large_is_refused_and_the_connection_closed(
    connect: Connect, data: bytes, status: int, autojump_clock: trio.testing.MockClock
) -> None:
    client = connect()
    answer = await client.ask(data)
    assert answer.status == status
    assert set(answer.json) == {"error", "reason"}
    assert answer.headers["connection"] == "close"
    assert await client.is_closed_by_server()


async def test_many_tiny_chunks_are_refused_before_they_cost_much(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    limits = HttpLimits(body_bytes_max=10**6, stranger_body_bytes_max=10**6)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(make_door(make_router(), limits).handle, theirs)
        client = Client(ours)
        answer = await client.ask(CHUNKED + b"1\r\nx\r\n" * 5000)
        assert (answer.status, answer.json["error"]) == (400, "Bad Request")
        assert "too small" in answer.json["reason"]
        nursery.cancel_scope.cancel()


async def test_chunks_of_a_usual_size_may_be_as_many_as_the_body_needs() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    limits = HttpLimits(body_bytes_max=10**6, stranger_body_bytes_max=10**6)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(make_door(make_router(), limits).handle, theirs)
        body = b"40\r\n%s\r\n" % (b"x" * 64) * 3000 + b"0\r\n\r\n"
        answer = await Client(ours).ask(CHUNKED + body)
        assert len(answer.json["body"]) == 64 * 3000
        nursery.cancel_scope.cancel()


async def test_a_folded_header_is_one_header(connect: Connect) -> None:
    """As the standard has servers replace it, so that nobody in front sees another request."""
    answer = await connect().ask(
        b"POST /echo HTTP/1.1\r\nHost: x\r\nX-Long: a\r\n  b\r\nContent-Length: 2\r\n\r\nhi"
    )
    assert (answer.json["headers"]["x-long"], answer.json["body"]) == ("a b", "hi")


async def test_what_follows_a_request_that_was_refused_is_not_looked_at(
    connect: Connect, autojump_clock: trio.testing.MockClock
) -> None:
    """A request hidden in another one's body stays hidden."""
    client = connect()
    hidden = b"GET /echo?hidden=1 HTTP/1.1\r\nHost: x\r\n\r\n"
    both = CHUNKED[:-2] + b"Content-Length: 4\r\n\r\n0\r\n\r\n"
    assert (await client.ask(both + hidden)).status == 400
    assert await client.is_closed_by_server()


async def test_a_body_of_exactly_the_limit_is_taken(connect: Connect) -> None:
    answer = await connect().ask(large_request(b"x" * LIMITS.body_bytes_max))
    assert len(answer.json["body"]) == LIMITS.body_bytes_max


async def test_path_segments_that_are_not_utf8_are_refused(connect: Connect) -> None:
    answer = await connect().ask(b"GET /%FF HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.status == 400


async def test_an_idle_connection_is_closed_in_time(
    connect: Connect, autojump_clock: trio.testing.MockClock
) -> None:
    client = connect()
    assert (await client.ask(GET_HEALTH)).status == 200
    start = trio.current_time()
    assert await client.is_closed_by_server()
    assert trio.current_time() - start == pytest.approx(LIMITS.idle_s)


@pytest.mark.parametrize("drip", [b"G", GET_HEALTH[:-2], b"POST /echo HTTP/1.1\r\nHost: x\r\n"])
async def test_a_request_that_drips_in_is_given_up_in_time(
    connect: Connect, autojump_clock: trio.testing.MockClock, drip: bytes
) -> None:
    client = connect()
    start = trio.current_time()
    await client.send(drip)
    await trio.sleep(LIMITS.login_s - 1)
    await client.send(b"X")
    answer = await client.receive()
    assert answer.status == 408
    assert trio.current_time() - start == pytest.approx(LIMITS.login_s)
    assert await client.is_closed_by_server()
    assert trio.current_time() - start <= LIMITS.login_s + LIMITS.linger_s


async def test_a_body_that_drips_in_is_given_up_in_time(
    connect: Connect, autojump_clock: trio.testing.MockClock
) -> None:
    client = connect()
    await client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(drip_forever, client)
        answer = await client.receive()
        assert answer.status == 408
        assert trio.current_time() == pytest.approx(LIMITS.login_s)
        assert await client.is_closed_by_server()
        nursery.cancel_scope.cancel()


async def drip_forever(client: Client) -> None:
    with contextlib.suppress(trio.BrokenResourceError):
        while True:
            await client.send(b"x")
            await trio.sleep(1)


async def test_a_client_that_never_reads_is_given_up_in_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()
    handler = make_door(make_router(), LIMITS).handle
    async with trio.open_nursery() as nursery:
        nursery.start_soon(handler, theirs)
        await ours.send_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    assert trio.current_time() == pytest.approx(LIMITS.send_s)


async def test_a_stranger_who_comes_when_all_places_are_taken_gets_that_of_a_silent_one(
    connect: Connect,
) -> None:
    spoke, silent = connect(), connect()
    assert (await spoke.ask(GET_HEALTH)).status == 200
    await trio.testing.wait_all_tasks_blocked()
    assert (await connect().ask(GET_HEALTH)).status == 200
    assert await silent.is_closed_by_server()
    assert (await spoke.ask(GET_HEALTH)).status == 200


async def test_clients_that_have_logged_in_keep_their_places_and_have_a_limit_of_their_own(
    connect: Connect,
) -> None:
    known = [connect() for _ in range(LIMITS.connections_max)]
    for client in known:
        assert (await client.ask(large_request(b"x" * 600))).status == 200
    for _ in range(5):
        assert (await connect().ask(GET_HEALTH)).status == 200
    one_more = connect()
    assert (await one_more.ask(large_request(b"x" * 600))).status == 503
    for client in known:
        assert (await client.ask(GET_HEALTH)).status == 200
    await known[0].stream.aclose()
    await trio.testing.wait_all_tasks_blocked()
    assert (await connect().ask(large_request(b"x" * 600))).status == 200


@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_a_large_body_needs_a_login_before_any_of_it_is_taken(
    connect: Connect, autojump_clock: trio.testing.MockClock, framing: str
) -> None:
    body = b"x" * 600
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 600\r\n\r\n"
    if framing == "chunks":
        head, body = CHUNKED, b"258\r\n" + body + b"\r\n0\r\n\r\n"
    assert (await connect().ask(head + body)).status == 413
    with_proof = head.replace(b"\r\n\r\n", b"\r\nAuthorization: Basic eDp5\r\n\r\n")
    assert (await connect().ask(with_proof + body)).status == 200
    stranger = head.replace(b"\r\n\r\n", b"\r\nAuthorization: Basic bm86\r\n\r\n")
    assert (await connect().ask(stranger)).status == 401


@pytest.mark.parametrize("sent", [b"", b"GET /he", GET_HEALTH])
async def test_a_client_that_leaves_at_any_point_ends_its_handler(sent: bytes) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(make_door(make_router(), LIMITS).handle, theirs)
        await ours.send_all(sent)
        await ours.aclose()


async def test_random_bytes_end_in_an_answer_or_a_close_and_never_in_a_crash(
    autojump_clock: trio.testing.MockClock,
) -> None:
    seeded = random.Random(20261116)
    handler = make_door(make_router(), LIMITS).handle
    for _ in range(200):
        data = bytearray(GET_HEALTH * seeded.randint(1, 3))
        for _ in range(seeded.randint(1, 12)):
            data[seeded.randrange(len(data))] = seeded.randrange(256)
        ours, theirs = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(handler, theirs)
            await ours.send_all(bytes(data))
            await ours.send_eof()
            received = b""
            while more := await ours.receive_some(65536):
                received += bytes(more)
            assert received.startswith(b"HTTP/1.1 ")


async def test_bodies_of_all_clients_together_have_a_limit_that_is_free_again_after_them(
    connect: Connect,
) -> None:
    request = large_request(b"x" * 1000)
    slow, other = connect(), connect()
    await slow.send(request[:-1])
    await trio.testing.wait_all_tasks_blocked()
    assert (await other.ask(request)).status == 503
    await slow.send(b"x")
    assert (await slow.receive("POST")).status == 200
    assert (await slow.ask(request)).status == 200


async def test_a_refused_upload_may_still_be_sent_for_a_while_so_that_its_answer_is_not_lost(
    connect: Connect, autojump_clock: trio.testing.MockClock
) -> None:
    client = connect()
    answer = await client.ask(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n")
    assert answer.status == 413
    await trio.sleep(LIMITS.linger_s - 1)
    await client.send(b"still sending")
    await trio.sleep(2)
    with pytest.raises(trio.BrokenResourceError):
        await client.send(b"for too long")


@contextlib.asynccontextmanager
async def on_a_socket(router: Router) -> AsyncIterator[int]:
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, make_door(router, LIMITS).handle, 0, host="127.0.0.1")
        listeners = await nursery.start(serve)
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def test_over_a_real_socket_a_refused_upload_still_gets_its_answer() -> None:
    async with on_a_socket(make_router()) as port:
        client = Client(await trio.open_tcp_stream("127.0.0.1", port))
        body = b"x" * 200_000
        await client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n")
        with contextlib.suppress(trio.BrokenResourceError):
            await client.send(body)
        assert (await client.receive()).status == 413
        await client.stream.aclose()


async def test_over_a_real_socket_many_clients_are_served_at_once() -> None:
    async def ask(port: int) -> None:
        client = Client(await trio.open_tcp_stream("127.0.0.1", port))
        assert (await client.ask(GET_HEALTH)).status == 200
        await client.stream.aclose()

    async with on_a_socket(make_router()) as port, trio.open_nursery() as nursery:
        for _ in range(LIMITS.connections_max):
            nursery.start_soon(ask, port)
