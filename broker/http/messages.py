"""What a route takes and gives: requests, responses, and errors that become responses."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from broker.security.user import User


class HttpError(Exception):
    """A request that is answered with an error status; raised by routes and by the server."""

    def __init__(
        self,
        status: int,
        reason: str,
        *,
        error: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`error` is the short name of it that RabbitMQ has, where that is not the status's."""
        super().__init__(reason)
        self.status = HTTPStatus(status)
        self.reason = reason
        self.error = error or self.status.phrase
        self.headers = dict(headers or {})

    def response(self) -> Response:
        return json_response(
            {"error": self.error, "reason": self.reason},
            status=self.status,
            headers=self.headers,
        )


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A whole request. Names of headers are in lower case."""

    method: str
    path: str  # still percent-encoded
    query: Mapping[str, list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    peer: str = ""  # the client's address; empty if it has none
    scheme: str = "http"
    # What the route's pattern named in the path, percent-decoded.
    parameters: Mapping[str, str] = field(default_factory=dict)
    # Who asks, where another node has found that out and passed the request on.
    caller: User | None = None
    # Returns when the client is gone, for routes that wait long for something.
    hangup: Callable[[], Awaitable[None]] = trio.sleep_forever
    # To be called when it is known who asks. Raises HttpError where too many are connected.
    logged_in: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer; the server adds Content-Length, Date and Server."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def json_response(
    value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response whose body is a value as JSON."""
    return Response(
        status=status,
        headers={"Content-Type": "application/json", **(headers or {})},
        body=json.dumps(value).encode() + b"\n",
    )


def split_target(target: bytes) -> tuple[str, dict[str, list[str]]]:
    """Split a request's target into its path, not yet decoded, and its query.

    The path stays encoded because `%2F` is how a vhost called "/" is named within one.
    """
    try:
        text = target.decode("ascii")
        if not text.startswith("/"):
            parts = urlsplit(text)
            if parts.scheme not in {"http", "https"}:
                raise ValueError
            text = f"{parts.path or '/'}?{parts.query}"
        path, _, query = text.partition("?")
        return path, parse_qs(query, keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError:
        raise HttpError(400, "the request's target is not a valid path") from None


def decode_segment(segment: str) -> str:
    """Percent-decode one segment of a path."""
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise HttpError(400, "the request's path is not UTF-8") from None
