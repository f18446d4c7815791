"""Who calls over HTTP, and which of RabbitMQ's tags let them do what: the one place for both.

    user = await log_in(request, node)      # Basic or Bearer; HttpError 401 if it cannot be
    require_tag(user, MONITORS)             # HttpError 401 unless the user has one of the tags
    may_see(user, vhost_name)               # whether to show a vhost, and what is in it
    require_vhost(user, vhost_name, request.method)   # HttpError 401 unless that is allowed there
    require_entry(user, vhost_name)         # the same for what is done as the user, by AMQP's rules

What a user may do to queues and exchanges is checked as for AMQP: broker.security.checks.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final

from broker.http.messages import HttpError
from broker.http.origins import SAFE_METHODS, refuse_other_sites

if TYPE_CHECKING:
    from broker.http.messages import Request
    from broker.node import Node
    from broker.security.user import User

# Who may do what, by tag: any of a set's tags will do.
ADMINISTRATORS: Final = frozenset({"administrator"})
POLICYMAKERS: Final = ADMINISTRATORS | {"policymaker"}
MONITORS: Final = ADMINISTRATORS | {"monitoring"}
MANAGERS: Final = POLICYMAKERS | MONITORS | {"management"}

CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="RabbitMQ Management"'}
# Without the challenge of Basic, at which browsers ask for a password.
TOKEN_CHALLENGE: Final = {"WWW-Authenticate": "Bearer"}
BEARER: Final = "bearer"


async def log_in(request: Request, node: Node) -> User:
    """The user whose name and password, or token, the request carries; HttpError 401 if none."""
    refuse_strange_sites(request, node)
    header = request.headers.get("authorization")
    if header is None:
        # How browsers ask whether a password is needed: no reason to keep them waiting.
        raise login_failed("a name and a password are needed")
    token = bearer_token(request)
    if token is not None:
        user = node.tokens.find(token)
        if user is None or not node.doorkeeper.may_call_from(user.name, request.peer):
            raise login_failed("the token is unknown or has expired", TOKEN_CHALLENGE)
        request.logged_in()
        return user
    name, password = _credentials(header)
    user = await node.doorkeeper.log_in(name, password, request.peer)
    if user is None:
        raise login_failed("Login failed")
    request.logged_in()
    return user


def refuse_strange_sites(request: Request, node: Node) -> None:
    """What a page of another site has a browser send, with a password that it remembers."""
    names = node.config.http_hosts
    refuse_other_sites(request, listens_on=node.config.host, names=names)


def bearer_token(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == BEARER else None


def _credentials(header: str) -> tuple[str, bytes]:
    """Name and password; what is malformed is nobody's."""
    scheme, _, encoded = header.partition(" ")
    try:
        if scheme.lower() != "basic":
            raise ValueError
        name, _, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return name.decode(), password
    except (ValueError, binascii.Error):
        return "", b""


def login_failed(reason: str, challenge: dict[str, str] = CHALLENGE) -> HttpError:
    return HttpError(401, reason, error="not_authorized", headers=challenge)


def require_tag(user: User, tags: frozenset[str]) -> None:
    """HttpError unless the user has one of the tags. As in RabbitMQ that is a 401."""
    if user.tags & tags:
        return
    if not user.tags & MANAGERS:
        raise not_authorised("Not management user")
    if tags == ADMINISTRATORS:
        raise not_authorised("Not administrator user")
    raise not_authorised("User not authorised to access object")


def may_see(user: User, vhost: str) -> bool:
    """Administrators and monitors look at vhosts that they may not use themselves."""
    return bool(user.tags & MONITORS) or user.may_enter(vhost)


def require_vhost(user: User, vhost: str, method: str) -> None:
    """To look at it, or, by any other method, to look after it."""
    looks_after = bool(user.tags & ADMINISTRATORS) or user.may_enter(vhost)
    if not looks_after and not (method in SAFE_METHODS and may_see(user, vhost)):
        raise not_authorised("User not authorised to access virtual host")


def require_entry(user: User, vhost: str) -> None:
    """For what is done as the user: publish, get, declare, bind, delete."""
    if not user.may_enter(vhost):
        raise not_authorised("User not authorised to access virtual host")


def not_authorised(reason: str) -> HttpError:
    return HttpError(401, reason, error="not_authorised")
