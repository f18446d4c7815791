"""`GET /api/bindings`: from which exchange to which queue or exchange, by which key."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import cbor2

from broker.http.admin import Admin, Call, not_found
from broker.http.message_json import plain_value
from broker.http.messages import Response, json_response
from broker.management.listing import (
    Row,
    answer,
    answer_rows,
    check_page,
    in_order,
    make_rows,
    wanted,
)
from exchanges.exchange import Exchange
from queues.stream.names import INTERNAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from broker.vhost import VHost
    from exchanges.exchange import Binding
    from queues.seams import AnyQueue

DEFAULT_EXCHANGE = "amq.default"  # how paths name the one whose name is empty


def add_bindings(admin: Admin) -> None:
    admin.add("GET", "/api/bindings", _list_all)
    admin.add("GET", "/api/bindings/{vhost}", _list)
    for kind in ("q", "e"):
        path = f"/api/bindings/{{vhost}}/e/{{source}}/{kind}/{{destination}}"
        admin.add("GET", path, _between)
        admin.add("GET", f"{path}/{{key}}", _get)


async def _list_all(call: Call) -> Response:
    rows = [row for vhost in call.vhosts() for row in bindings_of(vhost)]
    return await _answer(call, rows)


async def _list(call: Call) -> Response:
    return await _answer(call, list(bindings_of(call.vhost())))


async def _answer(call: Call, rows: list[Row]) -> Response:
    return await answer_rows(call.request, rows, _place, paged=False)


def _place(row: Row) -> Any:
    return [row[key] for key in ("vhost", "source", "destination_type", "destination")] + [
        row["properties_key"]
    ]


async def _between(call: Call) -> Response:
    source, destination = ends(call)
    rows = bindings_of(call.vhost(), source=source, destination=destination)
    return await _answer(call, rows)


async def _get(call: Call) -> Response:
    return json_response(binding_row(call.vhost(), *find_binding(call)))


def exchange_name(name: str) -> str:
    """As a path has it."""
    return "" if name == DEFAULT_EXCHANGE else name


def ends(call: Call) -> tuple[Exchange, AnyQueue | Exchange]:
    """What the path names; 404 where one of them is not there."""
    vhost = call.vhost()
    source = vhost.exchanges.get(exchange_name(call.parameter("source")))
    name = call.parameter("destination")
    destination: AnyQueue | Exchange | None
    if is_to_queue(call):
        destination = vhost.queues.get(name)
    else:
        destination = vhost.exchanges.get(exchange_name(name))
    if source is None or destination is None:
        raise not_found("Not Found")
    return source, destination


def is_to_queue(call: Call) -> bool:
    """Whether the path is …/q/… or …/e/…."""
    return call.request.path.split("/")[6] == "q"


def find_binding(call: Call) -> tuple[Exchange, Binding]:
    """The one whose properties key the path names."""
    source, destination = ends(call)
    wanted = call.parameter("key")
    for binding in source.bindings_to(destination):
        if wanted == properties_key(binding.key, binding.arguments) or (
            wanted == binding.key and not binding.arguments
        ):
            return source, binding
    raise not_found("Not Found")


def bindings_of(
    vhost: VHost,
    *,
    source: Exchange | None = None,
    destination: AnyQueue | Exchange | None = None,
) -> list[Row]:
    """All, or those from here, or to there."""
    pairs = _pairs(vhost, source=source, destination=destination)
    return [binding_row(vhost, exchange, binding) for exchange, binding in pairs]


async def answer_bindings(
    call: Call,
    vhost: VHost,
    *,
    source: Exchange | None = None,
    destination: AnyQueue | Exchange | None = None,
) -> Response:
    """Those from here, or to there, by the name at the other end; a page of them if one is asked.

    RabbitMQ has no such pages. They are for an exchange with tens of thousands of bindings.
    """
    end = "source" if source is None else "destination"
    ask = wanted(call.request)
    if ask.page is None:
        rows = bindings_of(vhost, source=source, destination=destination)
        return await answer_rows(call.request, rows, lambda row: row[end], paged=False)

    def other_end(pair: tuple[Exchange, Binding]) -> str:
        return pair[0].name if source is None else pair[1].destination.name

    pairs = list(_pairs(vhost, source=source, destination=destination))
    total = len(pairs)
    if ask.name is not None:
        search = ask.name.found_in
        pairs = [pair for pair in pairs if search(other_end(pair)) or search(pair[1].key)]
    check_page(ask, len(pairs))
    chosen = in_order(pairs, lambda pair: (other_end(pair), pair[1].key), ask)[ask.first :]
    rows = await make_rows(chosen, lambda pair: binding_row(vhost, *pair))
    return await answer(ask, rows, filtered=len(pairs), total=total)


def _pairs(
    vhost: VHost,
    *,
    source: Exchange | None = None,
    destination: AnyQueue | Exchange | None = None,
) -> Iterator[tuple[Exchange, Binding]]:
    if source is not None:
        sources = [source]
    elif destination is not None:
        sources = vhost.bound_to(destination)
    else:
        sources = list(vhost.exchanges.values())
    for exchange in sources:
        for binding in _of(exchange, destination):
            if binding.destination.name not in INTERNAL:
                yield exchange, binding


def _of(exchange: Exchange, destination: AnyQueue | Exchange | None) -> Iterator[Binding]:
    return exchange.bindings() if destination is None else exchange.bindings_to(destination)


def binding_row(vhost: VHost, exchange: Exchange, binding: Binding) -> Row:
    to_exchange = isinstance(binding.destination, Exchange)
    return {
        "source": exchange.name,
        "vhost": vhost.name,
        "destination": binding.destination.name,
        "destination_type": "exchange" if to_exchange else "queue",
        "routing_key": binding.key,
        "arguments": plain_value(dict(binding.arguments)),
        "properties_key": properties_key(binding.key, binding.arguments),
    }


def properties_key(key: str, arguments: Mapping[str, object]) -> str:
    """What names a binding among those between the same two: "~" for none at all, key, key~hash."""
    quoted = quote(key, safe="").replace("~", "%7E")
    if not arguments:
        return quoted or "~"
    packed = cbor2.dumps(dict(arguments), canonical=True)
    digest = base64.urlsafe_b64encode(zlib.crc32(packed).to_bytes(4, "big"))
    return f"{quoted}~{digest.decode().rstrip('=')}"
