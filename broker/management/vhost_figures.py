"""`GET /api/vhosts`: vhosts, with what is in their queues and what went through them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from broker.http.auth import may_see, not_authorised
from broker.http.messages import Response, json_response
from broker.http.vhosts import find_vhost, vhost_json
from broker.management.asking import ask_all
from broker.management.overview import merged
from broker.management.rates import OF_CHANNELS, View, ages_of, message_stats
from broker.management.totals import BYTE_FIELDS, LENGTH_FIELDS, VHOST_FIELDS, vhost_figures
from queues.tally import FIELDS, Tally

if TYPE_CHECKING:
    from broker.http.admin import Admin, Call
    from broker.management.sampler import Sampler
    from broker.vhost import VHost

FIGURES: Final = "/api/internal/vhosts"


def add_vhost_figures(admin: Admin, sampler: Sampler) -> None:
    async def list_all(call: Call) -> Response:
        return json_response(await rows(call, call.vhosts()))

    async def get(call: Call) -> Response:
        await call.up_to_date()
        vhost = find_vhost(call)
        if not may_see(call.user, vhost.name):
            raise not_authorised("User not authorised to access virtual host")
        (row,) = await rows(call, [vhost])
        return json_response(row)

    async def rows(call: Call, vhosts: list[VHost]) -> list[dict[str, Any]]:
        """Figures are sums over all nodes."""
        found = _figures(call, sampler, vhosts)
        for answer in await ask_all(call, FIGURES, [vhost.name for vhost in vhosts]):
            for name, figures in answer.items():
                found[name] = merged(found[name], figures) if name in found else figures
        return [vhost_json(call.node, vhost) | found[vhost.name] for vhost in vhosts]

    async def asked(call: Call) -> Response:
        known = call.node.vhosts
        named = [known[name] for name in json.loads(call.request.body) if name in known]
        return json_response(_figures(call, sampler, named))

    admin.add("GET", "/api/vhosts", list_all)
    admin.add("GET", "/api/vhosts/{vhost}", get)
    admin.add_internal("POST", FIGURES, asked)


def _figures(call: Call, sampler: Sampler, vhosts: list[VHost]) -> dict[str, dict[str, Any]]:
    """What this node adds, by name."""
    counts, lengths = vhost_figures(call.node), sampler.lengths_of(vhosts)
    return {
        vhost.name: _row(call, sampler, vhost, [*counts[vhost], *held])
        for vhost, held in zip(vhosts, lengths, strict=True)
    }


def _row(call: Call, sampler: Sampler, vhost: VHost, values: list[int]) -> dict[str, Any]:
    ages, series = ages_of(call.request), sampler.other(vhost)
    counted = dict(zip(VHOST_FIELDS, values, strict=True))
    tally = Tally()
    for name in FIELDS:
        setattr(tally, name, counted[name])
    messages = View(series, VHOST_FIELDS, sampler.tick, ages.messages)
    lengths = View(series, VHOST_FIELDS, sampler.tick, ages.lengths)
    data = View(series, VHOST_FIELDS, sampler.tick, ages.data)
    row: dict[str, Any] = {
        "message_stats": message_stats(tally, messages, OF_CHANNELS),
        "messages": sum(counted[name] for name in LENGTH_FIELDS),
        "messages_details": lengths.details(*LENGTH_FIELDS),
    }
    for names, view in ((LENGTH_FIELDS, lengths), (BYTE_FIELDS, data)):
        for name in names:
            row |= {name: counted[name], f"{name}_details": view.details(name)}
    return row
