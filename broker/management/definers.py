"""PUT, POST and DELETE of queues, exchanges and bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from broker.http.admin import Admin, Call, bad_request
from broker.http.messages import HttpError, Response
from broker.management import bindings, exchanges, queues, topology
from broker.management.fields import checked_name, short_text, table, truth

if TYPE_CHECKING:
    from exchanges.exchange import Exchange
    from queues.seams import AnyQueue

DEFAULT_TYPE = "direct"  # of an exchange


def add_definers(admin: Admin) -> None:
    queue = "/api/queues/{vhost}/{name}"
    admin.add("PUT", queue, _declare_queue)
    admin.add("DELETE", queue, _delete_queue, query=("if-unused", "if-empty"))
    admin.add("DELETE", f"{queue}/contents", _purge)
    admin.add("POST", f"{queue}/actions", _act)
    exchange = "/api/exchanges/{vhost}/{name}"
    admin.add("PUT", exchange, _declare_exchange)
    admin.add("DELETE", exchange, _delete_exchange, query=("if-unused",))
    for kind in ("q", "e"):
        between = f"/api/bindings/{{vhost}}/e/{{source}}/{kind}/{{destination}}"
        admin.add("POST", between, _bind)
        admin.add("DELETE", f"{between}/{{key}}", _unbind)


def _flag(call: Call, name: str) -> bool:
    return call.request.query.get(name, [""])[-1] == "true"


def _made(*, is_new: bool) -> Response:
    return Response(status=201 if is_new else 204)


async def _declare_queue(call: Call) -> Response:
    call.vhost()
    body = call.json()
    is_new = await topology.declare_queue(
        call,
        checked_name(call.parameter("name")),
        durable=truth(body, "durable", default=True),
        auto_delete=truth(body, "auto_delete", default=False),
        arguments=table(body),
    )
    return _made(is_new=is_new)


async def _delete_queue(call: Call) -> Response:
    await topology.up_to_date(call, call.vhost())
    await topology.delete_queue(
        call,
        queues.find(call),
        if_unused=_flag(call, "if-unused"),
        if_empty=_flag(call, "if-empty"),
    )
    return Response(status=204)


async def _purge(call: Call) -> Response:
    await topology.purge_queue(call, queues.find(call))
    return Response(status=204)


async def _act(call: Call) -> Response:
    """Mirrors are made in step, or not, in RabbitMQ: here they always are."""
    queues.find(call)
    action = call.json().get("action")
    if action not in ("sync", "cancel_sync"):
        raise bad_request(f"unknown action {action!r}")
    return Response(status=204)


async def _declare_exchange(call: Call) -> Response:
    call.vhost()
    body = call.json()
    is_new = await topology.declare_exchange(
        call,
        checked_name(bindings.exchange_name(call.parameter("name")) or bindings.DEFAULT_EXCHANGE),
        short_text(body, "type", DEFAULT_TYPE),
        durable=truth(body, "durable", default=True),
        auto_delete=truth(body, "auto_delete", default=False),
        internal=truth(body, "internal", default=False),
        arguments=table(body),
    )
    return _made(is_new=is_new)


async def _delete_exchange(call: Call) -> Response:
    await topology.up_to_date(call, call.vhost())
    found = exchanges.find(call)
    await topology.delete_exchange(call, found.name, if_unused=_flag(call, "if-unused"))
    return Response(status=204)


async def _bind(call: Call) -> Response:
    vhost = call.vhost()
    await topology.up_to_date(call, vhost)
    body = call.json()
    source = bindings.exchange_name(call.parameter("source"))
    name = call.parameter("destination")
    to_queue = bindings.is_to_queue(call)
    destination: AnyQueue | Exchange | None
    if to_queue:
        destination = vhost.queues.get(name)
    else:
        destination = vhost.exchanges.get(bindings.exchange_name(name))
    if destination is None:
        kind = "queue" if to_queue else "exchange"
        raise HttpError(404, f"no {kind} '{name}' in vhost '{vhost.name}'", error="not_found")
    key, arguments = short_text(body, "routing_key", ""), table(body)
    await topology.bind(call, source, destination, key, arguments)
    place = quote(bindings.properties_key(key, arguments), safe="")
    return Response(status=201, headers={"Location": f"{quote(name, safe='')}/{place}"})


async def _unbind(call: Call) -> Response:
    await topology.up_to_date(call, call.vhost())
    await topology.unbind(call, *bindings.find_binding(call))
    return Response(status=204)
