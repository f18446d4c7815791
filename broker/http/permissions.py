"""`/api/permissions` and `/api/topic-permissions`, as RabbitMQ's management API has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.http.admin import Admin, Call, bad_request, not_found
from broker.http.auth import ADMINISTRATORS
from broker.http.messages import Response, json_response
from broker.security.permissions import check_patterns

if TYPE_CHECKING:
    from broker.security.user import User


def add_permissions(admin: Admin) -> None:
    one, topics = "/api/permissions/{vhost}/{user}", "/api/topic-permissions/{vhost}/{user}"
    routes = (
        ("GET", "/api/permissions", _list),
        ("GET", one, _get),
        ("PUT", one, _put),
        ("DELETE", one, _delete),
        ("GET", "/api/topic-permissions", _list_topics),
        ("GET", topics, _get_topics),
        ("PUT", topics, _put_topics),
        ("DELETE", topics, _delete_topics),
        ("DELETE", topics + "/{exchange}", _delete_topics),
    )
    for method, pattern, handler in routes:
        admin.add(method, pattern, handler, tags=ADMINISTRATORS)


def permissions_of(user: User) -> list[dict[str, Any]]:
    """By vhost."""
    return [
        {"user": user.name, "vhost": vhost, **permission.texts()}
        for vhost, permission in sorted(user.permissions.items())
    ]


def topic_permissions_of(user: User) -> list[dict[str, Any]]:
    """By vhost and exchange."""
    return [
        {
            "user": user.name,
            "vhost": vhost,
            "exchange": exchange,
            "write": topics.write,
            "read": topics.read,
        }
        for (vhost, exchange), topics in sorted(user.topic_permissions().items())
    ]


def _everybody(call: Call) -> list[User]:
    return [user for _, user in sorted(call.node.registry.users.items())]


def _user(call: Call) -> User | None:
    return call.node.registry.users.get(call.parameter("user"))


def _of_path(call: Call) -> tuple[str, str]:
    """Vhost and user that the path names, for a change: RabbitMQ answers 400 if one is missing."""
    vhost, user = call.parameter("vhost"), call.parameter("user")
    if vhost not in call.node.vhosts:
        raise bad_request(f"there is no vhost {vhost!r}")
    if user not in call.node.registry.users:
        raise bad_request(f"there is no user {user!r}")
    return vhost, user


def _texts(body: dict[str, Any], *names: str) -> list[str]:
    for name in names:
        if not isinstance(body.get(name), str):
            raise bad_request(f"{name} is to be a text, and must be given")
    return [body[name] for name in names]


def require_patterns(*patterns: str) -> None:
    """HttpError 400 unless these can be the patterns of a permission."""
    try:
        check_patterns(*patterns)
    except ValueError as error:
        raise bad_request(f"not a regular expression: {error}") from None


# Names of queues and exchanges


async def _list(call: Call) -> Response:
    rows = [row for user in _everybody(call) for row in permissions_of(user)]
    return json_response(sorted(rows, key=lambda row: (row["vhost"], row["user"])))


def _row(call: Call) -> dict[str, Any]:
    vhost, user = call.parameter("vhost"), _user(call)
    rows = permissions_of(user) if user is not None else []
    for row in rows:
        if row["vhost"] == vhost:
            return row
    raise not_found(f"user {call.parameter('user')!r} has no permissions in vhost {vhost!r}")


async def _get(call: Call) -> Response:
    await call.up_to_date()
    return json_response(_row(call))


async def _put(call: Call) -> Response:
    patterns = _texts(call.json(), "configure", "write", "read")
    require_patterns(*patterns)
    await call.up_to_date()
    vhost, user = _of_path(call)
    is_new = not call.node.registry.users[user].may_enter(vhost)
    await call.define(["permission", vhost, user, *patterns])
    return Response(status=201 if is_new else 204)


async def _delete(call: Call) -> Response:
    await call.up_to_date()
    row = _row(call)
    await call.define(["-permission", row["vhost"], row["user"]])
    return Response(status=204)


# Topics


async def _list_topics(call: Call) -> Response:
    rows = [row for user in _everybody(call) for row in topic_permissions_of(user)]
    return json_response(sorted(rows, key=lambda row: (row["vhost"], row["user"])))


def _topic_rows(call: Call) -> list[dict[str, Any]]:
    vhost, user = call.parameter("vhost"), _user(call)
    rows = topic_permissions_of(user) if user is not None else []
    rows = [row for row in rows if row["vhost"] == vhost]
    if not rows:
        name = call.parameter("user")
        raise not_found(f"nothing is said about topics of user {name!r} in vhost {vhost!r}")
    return rows


async def _get_topics(call: Call) -> Response:
    await call.up_to_date()
    return json_response(_topic_rows(call))


async def _put_topics(call: Call) -> Response:
    details = _texts(call.json(), "exchange", "write", "read")
    require_patterns(*details[1:])
    await call.up_to_date()
    vhost, user = _of_path(call)
    topics = call.node.registry.users[user].topic_permissions()
    is_new = not any(where == vhost for where, _ in topics)
    await call.define(["topic-permission", vhost, user, *details])
    return Response(status=201 if is_new else 204)


async def _delete_topics(call: Call) -> Response:
    await call.up_to_date()
    row = _topic_rows(call)[0]
    exchange = call.request.parameters.get("exchange")
    await call.define(["-topic-permission", row["vhost"], row["user"], exchange])
    return Response(status=204)
