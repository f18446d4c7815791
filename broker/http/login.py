"""`/api/login`: a name and a password for a token that stands for them for a while.

The token goes into the header `Authorization: Bearer …`. No browser sends that by itself, so that
pages of other sites can do nothing with it. RabbitMQ's page sends a form here, ours JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from broker.http.admin import bad_request
from broker.http.auth import (
    MANAGERS,
    TOKEN_CHALLENGE,
    bearer_token,
    log_in,
    login_failed,
    refuse_strange_sites,
    require_tag,
)
from broker.http.messages import HttpError, Request, Response, json_response
from broker.http.users import whoami_json
from broker.security.tokens import TOKEN_MS

if TYPE_CHECKING:
    from broker.http.router import Router
    from broker.node import Node
    from broker.security.user import User

BODY_BYTES_MAX = 16 * 1024


def add_login(router: Router, node: Node) -> None:
    async def log_in_for_token(request: Request) -> Response:
        user = await _who(request, node)
        require_tag(user, MANAGERS)
        old = None if request.body else bearer_token(request)
        token = node.tokens.issue(user) if old is None else node.tokens.renew(old)
        if token is None:
            raise login_failed("the token cannot be renewed any more", TOKEN_CHALLENGE)
        answer = {
            "token": token,
            "token_type": "Bearer",
            "expires_in": TOKEN_MS // 1000,
            "user": whoami_json(user),
        }
        return json_response(answer)

    async def log_out(request: Request) -> Response:
        await log_in(request, node)
        token = bearer_token(request)
        if token is None:
            raise bad_request("there is no token in this request")
        node.tokens.revoke(token)
        return Response(status=204)

    router.add("POST", "/api/login", log_in_for_token)
    router.add("DELETE", "/api/login", log_out)


async def _who(request: Request, node: Node) -> User:
    """By what the body says; without one by the header, so that a token can be made anew."""
    if node.stopping:
        raise HttpError(503, "the node is stopping")
    if not request.body:
        return await log_in(request, node)
    refuse_strange_sites(request, node)
    name, password = _credentials(request)
    user = await node.doorkeeper.log_in(name, password, request.peer)
    if user is None:
        raise login_failed("Login failed", TOKEN_CHALLENGE)
    return user


def _credentials(request: Request) -> tuple[str, bytes]:
    if len(request.body) > BODY_BYTES_MAX:
        raise HttpError(413, f"a login has {BODY_BYTES_MAX} bytes at most")
    try:
        if "x-www-form-urlencoded" in request.headers.get("content-type", ""):
            form = parse_qs(request.body.decode(), keep_blank_values=True, max_num_fields=16)
            given = {name: texts[0] for name, texts in form.items()}
        else:
            given = json.loads(request.body)
        name, password = given["username"], given["password"]
        if not isinstance(name, str) or not isinstance(password, str):
            raise ValueError
        return name, password.encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        raise bad_request("username and password are to be texts, and must be given") from None
