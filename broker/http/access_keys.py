"""`/api/users/{user}/access-keys`: what SQS clients sign with, made, listed and deleted."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any, Final

from broker.http.admin import Admin, Call, not_found
from broker.http.auth import ADMINISTRATORS
from broker.http.messages import Response, json_response

if TYPE_CHECKING:
    from broker.security.user import User

ID_PREFIX: Final = "LVRT"
ID_BYTES: Final = 10  # 16 letters: no two keys have ever the same
SECRET_BYTES: Final = 30  # 40 letters, as AWS has them


def add_access_keys(admin: Admin) -> None:
    path = "/api/users/{user}/access-keys"
    for method, pattern, handler in (
        ("GET", path, _list),
        ("POST", path, _make),
        ("DELETE", path + "/{id}", _delete),
    ):
        admin.add(method, pattern, handler, tags=ADMINISTRATORS)


def _user(call: Call) -> User:
    user = call.node.registry.users.get(call.parameter("user"))
    if user is None:
        raise not_found(f"there is no user {call.parameter('user')!r}")
    return user


async def _list(call: Call) -> Response:
    """Without the secrets, which are shown once."""
    await call.up_to_date()
    return json_response([_shown(key_id, key.made_ms) for key_id, key in _keys(call).items()])


def _keys(call: Call) -> dict[str, Any]:
    return dict(sorted(_user(call).access_keys.items()))


def _shown(key_id: str, made_ms: int) -> dict[str, Any]:
    return {"access_key_id": key_id, "created_ms": made_ms}


async def _make(call: Call) -> Response:
    await call.up_to_date()
    user = _user(call)
    key_id = ID_PREFIX + base64.b32encode(os.urandom(ID_BYTES)).decode()
    secret = base64.b64encode(os.urandom(SECRET_BYTES)).decode()
    made_ms = call.node.timers.now_ms()
    await call.define(["access-key", user.name, key_id, secret, made_ms])
    shown = {**_shown(key_id, made_ms), "secret_access_key": secret}
    return json_response(shown, status=201)


async def _delete(call: Call) -> Response:
    await call.up_to_date()
    key_id = call.parameter("id")
    if key_id not in _user(call).access_keys:
        raise not_found(f"user {call.parameter('user')!r} has no access key {key_id!r}")
    await call.define(["-access-key", _user(call).name, key_id])
    return Response(status=204)
