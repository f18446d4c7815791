"""`GET /health`: whether the node can be sent work, for load balancers and service managers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.http.messages import Request, Response, json_response

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.http.router import Router


def add_health(router: Router, status: Callable[[], Mapping[str, object]]) -> None:
    """Add the route; the node is healthy while what `status` returns says `"status": "ok"`."""

    async def health(_request: Request) -> Response:
        now = dict(status())
        return json_response(now, status=200 if now["status"] == "ok" else 503)

    router.add("GET", "/health", health)
