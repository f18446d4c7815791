"""Which function answers which method and path."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from broker.http.messages import HttpError, Request, Response, decode_segment

RouteHandler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class _Route:
    """A path pattern, by segments, and its functions by method."""

    segments: tuple[str, ...]
    handlers: dict[str, RouteHandler]

    @property
    def specificity(self) -> tuple[bool, ...]:
        """Sorts a literal segment before a parameter at the same place."""
        return tuple(_is_parameter(segment) for segment in self.segments)

    def match(self, segments: list[str]) -> dict[str, str] | None:
        parameters: dict[str, str] = {}
        for pattern, segment in zip(self.segments, segments, strict=True):
            if _is_parameter(pattern):
                parameters[pattern[1:-1]] = segment
            elif pattern != segment:
                return None
        return parameters


class Router:
    """A table of routes.

    A pattern is a path in which a segment `{name}` stands for any one segment, given to the
    function in `request.parameters`. Where several patterns fit, the most literal one wins.
    A function for GET also answers HEAD.
    """

    def __init__(self) -> None:
        self._routes_by_length: dict[int, list[_Route]] = {}
        self._unlisted: set[tuple[str, str]] = set()

    def add(self, method: str, pattern: str, handler: RouteHandler, *, listed: bool = True) -> None:
        """`listed`: the description of the management API names it."""
        if not listed:
            self._unlisted.add((method, pattern))
        assert pattern.startswith("/"), pattern
        segments = tuple(pattern.split("/"))
        routes = self._routes_by_length.setdefault(len(segments), [])
        route = next((route for route in routes if route.segments == segments), None)
        if route is None:
            route = _Route(segments, {})
            routes.append(route)
            routes.sort(key=lambda route: route.specificity)
        assert method not in route.handlers, f"{method} {pattern} has a route already"
        route.handlers[method] = handler

    def listed(self) -> list[tuple[str, str]]:
        """All methods and patterns, but for those that were added as unlisted."""
        every = [
            (method, "/".join(route.segments))
            for routes in self._routes_by_length.values()
            for route in routes
            for method in route.handlers
        ]
        return [one for one in every if one not in self._unlisted]

    async def dispatch(self, request: Request) -> Response:
        """Answer a request whose path is still percent-encoded; HttpError if there is no route."""
        segments = [decode_segment(segment) for segment in request.path.split("/")]
        in_api = segments[1:2] == ["api"]
        if in_api and not segments[-1]:
            segments.pop()  # with a slash at the end it is the same path, as in RabbitMQ
        method = "GET" if request.method == "HEAD" else request.method
        allowed: set[str] = set()
        for route in self._routes_by_length.get(len(segments), ()):
            parameters = route.match(segments)
            if parameters is None:
                continue
            handler = route.handlers.get(method)
            if handler is not None:
                return await handler(dataclasses.replace(request, parameters=parameters))
            allowed |= route.handlers.keys()
        if allowed:
            raise _method_not_allowed(request.method, allowed)
        error = "Object Not Found" if in_api else None  # RabbitMQ's name for it
        raise HttpError(404, "there is nothing at this path", error=error)


def _is_parameter(segment: str) -> bool:
    return segment.startswith("{") and segment.endswith("}")


def _method_not_allowed(method: str, allowed: set[str]) -> HttpError:
    if "GET" in allowed:
        allowed = allowed | {"HEAD"}
    return HttpError(
        405, f"{method} is not possible here", headers={"Allow": ", ".join(sorted(allowed))}
    )
