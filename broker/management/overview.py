"""`GET /api/overview`: sums over all nodes, and what this cluster is."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any, Final

from broker.connection.handshake import SERVER_PROPERTIES
from broker.http.messages import Response, json_response
from broker.management.asking import ask_all
from broker.management.exchange_types import EXCHANGE_TYPES
from broker.management.rates import OF_CHANNELS, View, ages_of, message_stats
from broker.management.totals import (
    CHURN_FIELDS,
    LENGTH_FIELDS,
    NODE_FIELDS,
    TOTAL_FIELDS,
    connections_of,
    node_tally,
    sessions_of,
)
from queues.stream.names import INTERNAL

if TYPE_CHECKING:
    from broker.http.admin import Admin, Call
    from broker.management.listing import Row
    from broker.management.sampler import Sampler
    from broker.management.site import Site

NODE_PART: Final = "/api/internal/overview"
RETENTION_S: Final = {
    "global": [600, 3600, 28800, 86400],
    "basic": [600],
    "detailed": [600],
}


def add_overview(admin: Admin, sampler: Sampler, site: Site) -> None:
    async def overview(call: Call) -> Response:
        part = node_part(call, sampler)
        for other in await ask_all(call, NODE_PART):
            part = merged(part, other)
        stats = part.pop("message_stats")
        totals = part.pop("object_totals") | {
            "exchanges": sum(len(vhost.exchanges) for vhost in call.vhosts()),
            "queues": sum(
                len(vhost.queues) - sum(name in vhost.queues for name in INTERNAL)
                for vhost in call.vhosts()
            ),
        }
        about = _about(site) | {"message_stats": stats} | part | {"object_totals": totals}
        return json_response(about, headers={"Cache-Control": "no-cache"})

    async def part(call: Call) -> Response:
        return json_response(node_part(call, sampler))

    admin.add("GET", "/api/overview", overview)
    admin.add_internal("POST", NODE_PART, part)


def _about(site: Site) -> Row:
    version = SERVER_PROPERTIES["version"]
    return {
        "management_version": version,
        "rates_mode": "basic",
        "sample_retention_policies": RETENTION_S,
        "exchange_types": EXCHANGE_TYPES,
        "product_version": site.version,
        "product_name": "Leveret",
        "rabbitmq_version": version,
        "cluster_name": site.cluster_name(),
        "erlang_version": platform.python_version(),
        "erlang_full_version": f"{platform.python_implementation()} {platform.python_version()}",
        "release_series_support_status": "supported",
        "disable_stats": False,
        "enable_queue_totals": False,
        "statistics_db_event_queue": 0,
        "node": site.node_name,
        "listeners": site.listeners(),
        "contexts": site.contexts(),
    }


def node_part(call: Call, sampler: Sampler) -> Row:
    """What this node adds to the sums."""
    ages = ages_of(call.request)
    view = View(sampler.totals, TOTAL_FIELDS, sampler.tick, ages.messages)
    lengths = View(sampler.totals, TOTAL_FIELDS, sampler.tick, ages.lengths)
    churn = View(sampler.node, NODE_FIELDS, sampler.tick, ages.messages)
    ready, unacked = sampler.lengths()
    stats = message_stats(node_tally(call.node), view, OF_CHANNELS)
    for name in ("disk_reads", "disk_writes"):
        stats |= {name: 0, f"{name}_details": {"rate": 0.0}}
    connections = connections_of(call.node)
    channels = [channel for connection in connections for channel in connection.channels]
    return {
        "message_stats": stats,
        "churn_rates": {
            key: value
            for name in CHURN_FIELDS
            for key, value in (
                (name, getattr(call.node.churn, name)),
                (f"{name}_details", churn.details(name)),
            )
        },
        "queue_totals": {
            "messages": ready + unacked,
            "messages_details": lengths.details(*LENGTH_FIELDS),
            "messages_ready": ready,
            "messages_ready_details": lengths.details("messages_ready"),
            "messages_unacknowledged": unacked,
            "messages_unacknowledged_details": lengths.details("messages_unacknowledged"),
        },
        "object_totals": {
            "channels": len(channels),
            "connections": len(connections) + len(sessions_of(call.node)),
            "consumers": sum(len(channel.deliveries.consumers) for channel in channels),
        },
    }


def merged(one: Any, other: Any) -> Any:
    """The sum of two parts: number by number, and samples by their times."""
    if isinstance(one, dict) and isinstance(other, dict):
        if "timestamp" in one:
            return {"sample": one["sample"] + other["sample"], "timestamp": one["timestamp"]}
        return {key: merged(value, other.get(key, value)) for key, value in one.items()}
    if isinstance(one, list):
        theirs = {sample["timestamp"]: sample for sample in other}
        empty = {"sample": 0}
        return [merged(sample, theirs.get(sample["timestamp"], empty)) for sample in one]
    return one + other
