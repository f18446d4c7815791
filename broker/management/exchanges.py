"""`GET /api/exchanges`: exchanges, and the bindings from and to them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.http.admin import Admin, Call, not_found
from broker.http.message_json import plain_value
from broker.http.messages import Response, json_response
from broker.management.bindings import answer_bindings, exchange_name
from broker.management.listing import (
    MISSING,
    Columns,
    answer,
    check_page,
    in_order,
    make_row,
    make_rows,
    sort_key,
    value_at,
    wanted,
)
from broker.management.rates import Age, View, ages_of
from broker.management.sampler import EXCHANGE_FIELDS

if TYPE_CHECKING:
    from broker.management.sampler import Sampler
    from broker.vhost import VHost
    from exchanges.exchange import Exchange


class Item(NamedTuple):
    vhost: VHost
    exchange: Exchange
    sampler: Sampler
    age: Age | None


def _message_stats(item: Item) -> Any:
    exchange = item.exchange
    if not exchange.published_in:
        return MISSING
    sampler = item.sampler
    view = View(sampler.other(exchange), EXCHANGE_FIELDS, sampler.tick, item.age)
    return {
        "publish_in": exchange.published_in,
        "publish_in_details": view.details("publish_in"),
        "publish_out": exchange.published_out,
        "publish_out_details": view.details("publish_out"),
    }


COLUMNS: Final[Columns[Item]] = {
    "arguments": lambda item: plain_value(dict(item.exchange.arguments)),
    "auto_delete": lambda item: item.exchange.auto_delete,
    "durable": lambda item: item.exchange.durable,
    "internal": lambda item: item.exchange.internal,
    "message_stats": _message_stats,
    "name": lambda item: item.exchange.name,
    "policy": lambda item: item.exchange.policy or MISSING,
    "type": lambda item: item.exchange.type,
    "user_who_performed_action": lambda _: "",  # is not kept
    "vhost": lambda item: item.vhost.name,
}


DETAILS: Final[Columns[Item]] = {  # by channel and queue: not kept
    "incoming": lambda _: [],
    "outgoing": lambda _: [],
}


def add_exchanges(admin: Admin, sampler: Sampler) -> None:
    one = "/api/exchanges/{vhost}/{name}"

    def items(call: Call, vhosts: list[VHost]) -> list[Item]:
        age = ages_of(call.request).messages
        return [Item(vhost, x, sampler, age) for vhost in vhosts for x in vhost.exchanges.values()]

    async def list_all(call: Call) -> Response:
        return await _list(call, items(call, call.vhosts()))

    async def list_vhost(call: Call) -> Response:
        return await _list(call, items(call, [call.vhost()]))

    async def get(call: Call) -> Response:
        item = Item(call.vhost(), find(call), sampler, ages_of(call.request).messages)
        ask = dataclasses.replace(wanted(call.request), page=None)
        return json_response(make_row(item, {**COLUMNS, **DETAILS}, ask))

    admin.add("GET", "/api/exchanges", list_all, lists=True)
    admin.add("GET", "/api/exchanges/{vhost}", list_vhost, lists=True)
    admin.add("GET", one, get)
    admin.add("GET", f"{one}/bindings/source", _from_it)
    admin.add("GET", f"{one}/bindings/destination", _to_it)


def find(call: Call) -> Exchange:
    """The exchange that the path names."""
    exchange = call.vhost().exchanges.get(exchange_name(call.parameter("name")))
    if exchange is None:
        raise not_found("Not Found")
    return exchange


async def _list(call: Call, items: list[Item]) -> Response:
    ask = wanted(call.request)
    total = len(items)
    if ask.name is not None:
        items = [item for item in items if ask.name.found_in(item.exchange.name)]
    check_page(ask, len(items))

    def key(item: Item) -> Any:
        place = (item.vhost.name, item.exchange.name)
        return (sort_key(value_at(item, COLUMNS, ask.sort)), place) if ask.sort else place

    chosen = in_order(items, key, ask)[ask.first :]
    rows = await make_rows(chosen, lambda item: make_row(item, COLUMNS, ask))
    return await answer(ask, rows, filtered=len(items), total=total)


async def _from_it(call: Call) -> Response:
    return await answer_bindings(call, call.vhost(), source=find(call))


async def _to_it(call: Call) -> Response:
    return await answer_bindings(call, call.vhost(), destination=find(call))
