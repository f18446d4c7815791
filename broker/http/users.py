"""`/api/users`, `/api/whoami` and `/api/user-limits`, as RabbitMQ's management API has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.http.admin import Admin, Call, bad_request, not_found
from broker.http.auth import ADMINISTRATORS
from broker.http.limits import limit_value, limits_row
from broker.http.messages import Response, json_response
from broker.http.permissions import permissions_of, topic_permissions_of
from broker.security.passwords import NO_PASSWORD, SHA256, PasswordHash

if TYPE_CHECKING:
    from broker.security.user import User

BULK_MAX = 10_000  # users deleted by one request


def add_users(admin: Admin) -> None:
    routes = (
        ("GET", "/api/users", _list),
        ("GET", "/api/users/without-permissions", _list_without_permissions),
        ("POST", "/api/users/bulk-delete", _delete_many),
        ("GET", "/api/users/{user}", _get),
        ("PUT", "/api/users/{user}", _put),
        ("DELETE", "/api/users/{user}", _delete),
        ("GET", "/api/users/{user}/permissions", _permissions),
        ("GET", "/api/users/{user}/topic-permissions", _topic_permissions),
        ("GET", "/api/user-limits", _list_limits),
        ("GET", "/api/user-limits/{user}", _limits),
        ("PUT", "/api/user-limits/{user}/{name}", _put_limit),
        ("DELETE", "/api/user-limits/{user}/{name}", _delete_limit),
    )
    for method, pattern, handler in routes:
        admin.add(method, pattern, handler, tags=ADMINISTRATORS)
    admin.add("GET", "/api/whoami", _whoami)


def whoami_json(user: User) -> dict[str, Any]:
    return {"name": user.name, "tags": sorted(user.tags)}


def user_json(user: User) -> dict[str, Any]:
    """A user as RabbitMQ shows, exports and imports them."""
    return {
        "name": user.name,
        "password_hash": user.password.text,
        "hashing_algorithm": user.password.algorithm,
        "tags": sorted(user.tags),
        "limits": dict(user.limits),
    }


def _users(call: Call) -> list[User]:
    return [user for _, user in sorted(call.node.registry.users.items())]


def _user(call: Call) -> User:
    """The one that the path names."""
    user = call.node.registry.users.get(call.parameter("user"))
    if user is None:
        raise not_found(f"there is no user {call.parameter('user')!r}")
    return user


async def _whoami(call: Call) -> Response:
    return json_response(whoami_json(call.user))


# Users


async def _list(call: Call) -> Response:
    return json_response([user_json(user) for user in _users(call)])


async def _list_without_permissions(call: Call) -> Response:
    return json_response([user_json(user) for user in _users(call) if not user.permissions])


async def _get(call: Call) -> Response:
    await call.up_to_date()
    return json_response(user_json(_user(call)))


async def _put(call: Call) -> Response:
    name, body = call.parameter("user"), call.json()
    tags = read_tags(body.get("tags"))
    stored = await read_password(call, body)
    await call.up_to_date()
    is_new = name not in call.node.registry.users
    await call.define(["user", name, stored.text, stored.algorithm, tags])
    return Response(status=201 if is_new else 204)


async def _delete(call: Call) -> Response:
    await call.up_to_date()
    await call.define(["-user", _user(call).name])
    return Response(status=204)


async def _delete_many(call: Call) -> Response:
    names = call.json().get("users")
    if not isinstance(names, list) or len(names) > BULK_MAX:
        raise bad_request(f"users is to be a list of {BULK_MAX} names at most")
    await call.up_to_date()
    for name in names:
        if not isinstance(name, str) or name not in call.node.registry.users:
            raise bad_request(f"there is no user {name!r}")
    for name in names:
        await call.define(["-user", name])
    return Response(status=204)


def read_tags(value: object) -> list[str]:
    """A list, or a text with commas, as RabbitMQ takes either."""
    if value is None:
        raise bad_request("tags are not given")
    if isinstance(value, str):
        value = [tag.strip() for tag in value.split(",") if tag.strip()]
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise bad_request("tags are to be a list of texts, or a text with commas")
    return value


async def read_password(call: Call, body: dict[str, Any]) -> PasswordHash:
    """What a body says of a password: itself, its hash, or nothing at all, for none."""
    if "password" in body and "password_hash" in body:
        raise bad_request("both password and password_hash are given")
    if body.get("password_hash"):
        text, algorithm = body["password_hash"], body.get("hashing_algorithm") or SHA256
        if not isinstance(text, str) or not isinstance(algorithm, str):
            raise bad_request("password_hash and hashing_algorithm are to be texts")
        try:
            return PasswordHash.parse(algorithm, text)
        except ValueError as error:
            raise bad_request(f"the password hash is {error}") from None
    password = body.get("password", "")
    if not isinstance(password, str):
        raise bad_request("password is to be a text")
    try:
        return await call.node.doorkeeper.hash(password) if password else NO_PASSWORD
    except UnicodeEncodeError:
        raise bad_request("password is not a text that can be written in UTF-8") from None


async def _permissions(call: Call) -> Response:
    return json_response(permissions_of(_user(call)))


async def _topic_permissions(call: Call) -> Response:
    return json_response(topic_permissions_of(_user(call)))


# Limits


async def _list_limits(call: Call) -> Response:
    return json_response([limits_row("user", user) for user in _users(call) if user.limits])


async def _limits(call: Call) -> Response:
    user = _user(call)
    return json_response([limits_row("user", user)] if user.limits else [])


async def _put_limit(call: Call) -> Response:
    await call.up_to_date()
    name, number = call.parameter("name"), limit_value(call.json())
    await call.define(["user-limit", _user(call).name, name, number])
    return Response(status=204)


async def _delete_limit(call: Call) -> Response:
    await call.up_to_date()
    await call.define(["-user-limit", _user(call).name, call.parameter("name")])
    return Response(status=204)
