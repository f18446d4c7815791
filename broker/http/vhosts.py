"""`/api/vhosts` and `/api/vhost-limits`, as RabbitMQ's management API has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from broker.http.admin import Admin, Call, bad_request, not_found
from broker.http.auth import ADMINISTRATORS
from broker.http.limits import limit_value, limits_row
from broker.http.messages import Response, json_response
from broker.http.permissions import permissions_of, topic_permissions_of
from broker.http.users import read_tags

if TYPE_CHECKING:
    from broker.node import Node
    from broker.vhost import VHost

DESCRIPTION_CHARS_MAX = 4096


def add_vhosts(admin: Admin) -> None:
    routes = (
        ("PUT", "/api/vhosts/{vhost}", _put),
        ("DELETE", "/api/vhosts/{vhost}", _delete),
        ("GET", "/api/vhosts/{vhost}/permissions", _permissions),
        ("GET", "/api/vhosts/{vhost}/topic-permissions", _topic_permissions),
        ("PUT", "/api/vhost-limits/{vhost}/{name}", _put_limit),
        ("DELETE", "/api/vhost-limits/{vhost}/{name}", _delete_limit),
    )
    for method, pattern, handler in routes:
        admin.add(method, pattern, handler, tags=ADMINISTRATORS)
    admin.add("GET", "/api/vhost-limits", _list_limits)
    admin.add("GET", "/api/vhost-limits/{vhost}", _limits)


def vhost_json(node: Node, vhost: VHost) -> dict[str, Any]:
    """A vhost as RabbitMQ shows it, without its figures (broker.management.vhost_figures)."""
    about = {
        "description": vhost.details.get("description", ""),
        "tags": vhost.details.get("tags", []),
    }
    return {
        "name": vhost.name,
        **about,
        "default_queue_type": "undefined",
        "metadata": about,
        "tracing": False,
        "cluster_state": {node.config.node_name: "running"},
    }


def find_vhost(call: Call) -> VHost:
    """The vhost that the path names."""
    name = call.parameter("vhost")
    vhost = call.node.vhosts.get(name)
    if vhost is None:
        raise not_found(f"there is no vhost {name!r}")
    return vhost


async def _put(call: Call) -> Response:
    """Whoever makes a vhost may use it, as in RabbitMQ."""
    name, body = call.parameter("vhost"), call.json()
    await call.up_to_date()
    known = call.node.vhosts.get(name)
    details = {**(known.details if known is not None else {}), **_details(body)}
    await call.define(["vhost", name, uuid4().bytes, call.node.members(), details])
    if known is None:
        await call.define(["permission", name, call.user.name, ".*", ".*", ".*"])
    return Response(status=201 if known is None else 204)


def _details(body: dict[str, Any]) -> dict[str, Any]:
    details: dict[str, Any] = {}
    description = body.get("description")
    if description is not None:
        if not isinstance(description, str) or len(description) > DESCRIPTION_CHARS_MAX:
            raise bad_request(
                f"description is to be a text of {DESCRIPTION_CHARS_MAX} characters at most"
            )
        details["description"] = description
    if body.get("tags") is not None:
        details["tags"] = read_tags(body["tags"])
    return details


async def _delete(call: Call) -> Response:
    await call.up_to_date()
    await call.define(["-vhost", find_vhost(call).name])
    return Response(status=204)


async def _permissions(call: Call) -> Response:
    name = find_vhost(call).name
    users = sorted(call.node.registry.users.items())
    rows = [row for _, user in users for row in permissions_of(user)]
    return json_response([row for row in rows if row["vhost"] == name])


async def _topic_permissions(call: Call) -> Response:
    name = find_vhost(call).name
    users = sorted(call.node.registry.users.items())
    rows = [row for _, user in users for row in topic_permissions_of(user)]
    return json_response([row for row in rows if row["vhost"] == name])


# Limits


async def _list_limits(call: Call) -> Response:
    return json_response([limits_row("vhost", vhost) for vhost in call.vhosts() if vhost.limits])


async def _limits(call: Call) -> Response:
    vhost = call.vhost()
    return json_response([limits_row("vhost", vhost)] if vhost.limits else [])


async def _put_limit(call: Call) -> Response:
    await call.up_to_date()
    name, number = call.parameter("name"), limit_value(call.json())
    await call.define(["vhost-limit", find_vhost(call).name, name, number])
    return Response(status=204)


async def _delete_limit(call: Call) -> Response:
    await call.up_to_date()
    await call.define(["-vhost-limit", find_vhost(call).name, call.parameter("name")])
    return Response(status=204)
