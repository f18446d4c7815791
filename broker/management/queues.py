"""`GET /api/queues`: the queues of all nodes, a page at a time, and single ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from broker.http.admin import Admin, Call, not_found
from broker.http.messages import Response, json_response
from broker.management.asking import ask_all
from broker.management.bindings import answer_bindings
from broker.management.connections import consumers_of
from broker.management.listing import (
    Row,
    Wanted,
    answer,
    check_page,
    pick_columns,
    wanted,
)
from broker.management.queue_gathering import Gathering
from queues.stream.names import INTERNAL

if TYPE_CHECKING:
    from broker.management.sampler import Sampler
    from broker.management.whereabouts import Whereabouts
    from broker.vhost import VHost
    from queues.seams import AnyQueue


STATS: Final = ("disable_stats", "enable_queue_totals")
CONSUMERS: Final = "/api/internal/consumers"


def add_queues(admin: Admin, where: Whereabouts, sampler: Sampler) -> None:
    gathering = Gathering(where, sampler)

    async def list_all(call: Call) -> Response:
        return await _list(call, call.vhosts(), gathering)

    async def list_vhost(call: Call) -> Response:
        return await _list(call, [call.vhost()], gathering)

    async def get(call: Call) -> Response:
        vhost, queue = call.vhost(), find(call)
        consumers = await _consumers(call, sampler, vhost.name, queue.name)
        (row,) = await gathering.rows(call, [(vhost.name, queue.name)], Wanted())
        details = {"consumer_details": consumers, "deliveries": [], "incoming": []}
        picked = pick_columns(row | details, wanted(call.request))
        return json_response(picked, headers={"Cache-Control": "no-cache"})

    async def consumers_asked(call: Call) -> Response:
        return json_response(consumers_of(call, sampler, *json.loads(call.request.body)))

    admin.add("GET", "/api/queues", list_all, lists=True, query=STATS)
    admin.add("GET", "/api/queues/{vhost}", list_vhost, lists=True, query=STATS)
    admin.add("GET", "/api/queues/{vhost}/{name}", get)
    admin.add("GET", "/api/queues/{vhost}/{name}/bindings", _bindings)
    admin.add_internal("POST", CONSUMERS, consumers_asked)
    gathering.add(admin)


def find(call: Call) -> AnyQueue:
    """The queue that the path names."""
    queue = call.vhost().queues.get(call.parameter("name"))
    if queue is None:
        raise not_found("Not Found")
    return queue


async def _consumers(call: Call, sampler: Sampler, vhost: str, name: str) -> list[Row]:
    """Those of a queue, on whatever nodes they are."""
    rows = consumers_of(call, sampler, vhost, name)
    for others in await ask_all(call, CONSUMERS, [vhost, name]):
        rows += others
    return rows


async def _list(call: Call, vhosts: list[VHost], gathering: Gathering) -> Response:
    ask = wanted(call.request)
    keys = [(vhost.name, name) for vhost in vhosts for name in vhost.queues if name not in INTERNAL]
    total = len(keys)
    if ask.name is not None:
        search = ask.name.found_in
        keys = [key for key in keys if search(key[1])]
    check_page(ask, len(keys))
    chosen = (await gathering.ordered(call, keys, ask))[ask.first :]
    rows = await gathering.rows(call, chosen, ask)
    return await answer(ask, rows, filtered=len(keys), total=total)


async def _bindings(call: Call) -> Response:
    return await answer_bindings(call, call.vhost(), destination=find(call))
