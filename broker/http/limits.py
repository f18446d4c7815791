"""Limits of users and of vhosts, as RabbitMQ's management API has them."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from broker.http.admin import bad_request


class Limited(Protocol):
    """A user or a vhost."""

    name: str
    limits: dict[str, int]


def limits_row(kind: Literal["user", "vhost"], limited: Limited) -> dict[str, Any]:
    return {kind: limited.name, "value": dict(limited.limits)}


def limit_value(body: dict[str, Any]) -> int:
    """The `value` of a body that sets a limit."""
    value = body.get("value")
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_request("value is to be a whole number; a negative one is no limit")
    return max(value, -1)
