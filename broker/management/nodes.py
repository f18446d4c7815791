"""`/api/nodes`: what each node has and uses of its machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import psutil

from broker.http.admin import Admin, Call, not_found
from broker.http.auth import MONITORS
from broker.http.messages import Response, json_response
from broker.management.asking import ask_all
from broker.management.exchange_types import EXCHANGE_TYPES
from broker.management.listing import answer_rows
from broker.management.rates import ZERO, View, ages_of
from broker.management.totals import CHURN_FIELDS, NODE_FIELDS, node_values

if TYPE_CHECKING:
    from broker.management.listing import Row
    from broker.management.sampler import Sampler
    from broker.management.site import Site

NODE_ROW: Final = "/api/internal/node"
SOCKETS_SHARE: Final = 0.9  # of the files, as in RabbitMQ
# What Erlang or its message store counts; here it is nothing.
_NOTHING: Final = (
    *("gc_num", "gc_bytes_reclaimed", "context_switches", "proc_used"),
    *("io_read_count", "io_read_bytes", "io_read_avg_time"),
    *("io_write_count", "io_write_bytes", "io_write_avg_time"),
    *("io_sync_count", "io_sync_avg_time", "io_seek_count", "io_seek_avg_time"),
    *("io_reopen_count", "mnesia_ram_tx_count", "mnesia_disk_tx_count"),
    *("msg_store_read_count", "msg_store_write_count"),
    *("queue_index_write_count", "queue_index_read_count"),
)
_GONE: Final = (
    *("connection_closed", "channel_closed", "consumer_deleted", "exchange_deleted"),
    *("queue_deleted", "vhost_deleted", "node_node_deleted", "channel_consumer_deleted"),
)
MECHANISMS: Final = [
    {"name": name, "description": f"SASL {name} authentication mechanism", "enabled": True}
    for name in ("PLAIN", "AMQPLAIN")
]


def add_nodes(admin: Admin, sampler: Sampler, site: Site) -> None:
    async def list_all(call: Call) -> Response:
        return await answer_rows(call.request, await rows(call), lambda row: row["name"])

    async def rows(call: Call) -> list[Row]:
        here = [node_row(call, sampler, site), *await ask_all(call, NODE_ROW)]
        known = {row["name"] for row in here}
        away = [name for name in site.where.nodes() if name not in known]
        return here + [{"name": name, "type": "disc", "running": False} for name in away]

    async def get(call: Call) -> Response:
        return json_response(await find(call))

    async def find(call: Call) -> Row:
        for row in await rows(call):
            if row["name"] == call.parameter("name"):
                return row
        raise not_found("Not Found")

    async def memory(call: Call) -> Response:
        row = await find(call)
        used = row.get("mem_used", 0)
        return json_response({"memory": {"total": {"rss": used}, "strategy": "rss"}})

    async def row(call: Call) -> Response:
        return json_response(node_row(call, sampler, site))

    admin.add("GET", "/api/nodes", list_all, tags=MONITORS, lists=True)
    admin.add("GET", "/api/nodes/{name}", get, tags=MONITORS)
    admin.add("GET", "/api/nodes/{name}/memory", memory, tags=MONITORS)
    admin.add_internal("POST", NODE_ROW, row)


def node_row(call: Call, sampler: Sampler, site: Site) -> Row:
    node = call.node
    values = dict(zip(NODE_FIELDS, node_values(node), strict=True))
    view = View(sampler.node, NODE_FIELDS, sampler.tick, ages_of(call.request).node)
    row: Row = dict.fromkeys(_NOTHING, 0)
    row |= {f"{name}_details": ZERO for name in _NOTHING}
    for name in (*CHURN_FIELDS, "mem_used", "disk_free", "sockets_used", "fd_used"):
        row |= {name: values[name], f"{name}_details": view.details(name)}
    return row | _standing(call, site) | _limits(call)


def _standing(call: Call, site: Site) -> Row:
    config = call.node.config
    return {
        "partitions": [],
        "os_pid": str(os.getpid()),
        "rates_mode": "basic",
        "uptime": call.node.timers.now_ms() - site.started_ms,
        "run_queue": 0,
        "processors": os.cpu_count() or 1,
        "exchange_types": EXCHANGE_TYPES,
        "auth_mechanisms": MECHANISMS,
        "applications": [
            {"name": "leveret", "description": "AMQP 0-9-1 broker", "version": site.version}
        ],
        "contexts": site.contexts(),
        "log_files": [],
        "db_dir": str(config.data_dir),
        "config_files": [],
        "net_ticktime": 60,
        "enabled_plugins": ["rabbitmq_management", "rabbitmq_prometheus"],
        "mem_calculation_strategy": "rss",
        "ra_open_file_metrics": {"ra_log_wal": 1, "ra_log_segment_writer": 0},
        "name": site.node_name,
        "type": "disc",
        "running": True,
        "cluster_links": [],
        "metrics_gc_queue_length": dict.fromkeys(_GONE, 0),
    }


def _limits(call: Call) -> Row:
    statistics = call.node.statistics()
    storage = statistics.storage
    files = files_max()
    own = {name for name in statistics.alarms if "@" not in name}
    return {
        "fd_total": files,
        "sockets_total": int(files * SOCKETS_SHARE),
        "mem_limit": statistics.memory_limit_bytes,
        "mem_alarm": "memory" in own,
        "disk_free_limit": 0 if storage is None else storage.disk_free_bytes_min,
        "disk_free_alarm": "disk" in own,
        "proc_total": files,
    }


def files_max() -> int:
    """How many files, sockets included, the node may have open."""
    soft: Any = psutil.Process().rlimit(psutil.RLIMIT_NOFILE)[0]
    return int(soft)
