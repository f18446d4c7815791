"""Routes: which pattern answers which path."""

from __future__ import annotations

import pytest

from broker.http.messages import HttpError, Request, Response, json_response
from broker.http.router import RouteHandler, Router


def answering(name: str) -> RouteHandler:
    async def handler(request: Request) -> Response:
        return json_response({"route": name, **request.parameters})

    return handler


def make_router() -> Router:
    router = Router()
    for pattern in (
        "/api/queues/{vhost}/{name}",
        "/api/queues/{vhost}",
        "/api/{kind}/{vhost}",
        "/api/queues/special",
    ):
        router.add("GET", pattern, answering(pattern))
    router.add("PUT", "/api/queues/{vhost}/{name}", answering("put"))
    router.add("DELETE", "/api/{kind}/{vhost}", answering("delete"))
    return router


async def ask(path: str, method: str = "GET") -> bytes:
    return (await make_router().dispatch(Request(method=method, path=path))).body


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/api/queues/v/q", b'{"route": "/api/queues/{vhost}/{name}", "vhost": "v", "name": "q"}'),
        (
            "/api/queues/%2F/a%2Fb%20c",
            b'{"route": "/api/queues/{vhost}/{name}", "vhost": "/", "name": "a/b c"}',
        ),
        ("/api/queues/v/", b'{"route": "/api/queues/{vhost}", "vhost": "v"}'),
        ("/api/queues//q", b'{"route": "/api/queues/{vhost}/{name}", "vhost": "", "name": "q"}'),
        ("/api/queues/special", b'{"route": "/api/queues/special"}'),
        ("/api/other/v", b'{"route": "/api/{kind}/{vhost}", "kind": "other", "vhost": "v"}'),
        ("/%61pi/queues/special", b'{"route": "/api/queues/special"}'),
    ],
)
async def test_the_most_literal_pattern_answers_with_its_parameters_decoded(
    path: str, answer: bytes
) -> None:
    assert await ask(path) == answer + b"\n"


async def test_a_method_is_looked_for_in_every_pattern_that_fits() -> None:
    assert b'"route": "delete"' in await ask("/api/queues/special", "DELETE")


async def test_a_method_that_no_fitting_pattern_has_is_405_with_all_that_they_have() -> None:
    with pytest.raises(HttpError) as caught:
        await ask("/api/queues/special", "POST")
    assert caught.value.status == 405
    assert caught.value.headers["Allow"] == "DELETE, GET, HEAD"


@pytest.mark.parametrize("path", ["/", "", "/api", "/api/queues/a/b/c", "api/queues/v", "//"])
async def test_a_path_without_a_route_is_404(path: str) -> None:
    with pytest.raises(HttpError) as caught:
        await ask(path)
    assert caught.value.status == 404


def test_a_route_cannot_be_added_twice() -> None:
    router = make_router()
    with pytest.raises(AssertionError, match="has a route already"):
        router.add("GET", "/api/queues/{vhost}", answering("again"))
