"""`GET /metrics/per-object`: the same for each queue, channel and connection, on request.

Written in slices, so that many queues do not hold up the node; their number is limited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio
from prometheus_client import CONTENT_TYPE_LATEST

from broker.http.auth import MONITORS
from broker.http.messages import Response
from broker.management.connection_rows import channel_name, connection_name
from broker.management.metrics import CHANNEL_COUNTERS
from broker.management.sampler import dying
from broker.management.totals import connections_of
from broker.management.whereabouts import led_here
from queues.queue import Queue
from queues.stream.names import INTERNAL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.channel.channel import Channel
    from broker.connection.connection import Connection
    from broker.http.admin import Admin, Call
    from broker.management.whereabouts import Led

SLICE: Final = 500  # things written without giving others a turn
OBJECTS_MAX: Final = 100_000  # of a kind; the first ones, where there are more
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

_QUEUES: Final[dict[str, tuple[str, Callable[[Led], float]]]] = {
    "queue_messages_ready": ("gauge", lambda queue: queue.ready),
    "queue_messages_unacked": ("gauge", lambda queue: queue.unacked),
    "queue_messages": ("gauge", lambda queue: queue.ready + queue.unacked),
    "queue_messages_dlx": ("gauge", dying),
    "queue_consumers": ("gauge", lambda queue: queue.consumer_count),
    "queue_messages_ready_bytes": (
        "gauge",
        lambda queue: queue.ready_bytes if isinstance(queue, Queue) else 0,
    ),
    "queue_messages_published_total": ("counter", lambda queue: queue.tally.publish),
}
_CHANNELS: Final[dict[str, tuple[str, Callable[[Channel], float]]]] = {
    "channel_consumers": ("gauge", lambda channel: len(channel.deliveries.consumers)),
    "channel_messages_unacked": ("gauge", lambda channel: len(channel.deliveries.unacked)),
    "channel_prefetch": ("gauge", lambda channel: channel.deliveries.credit.limit),
}
_CONNECTIONS: Final[dict[str, tuple[str, Callable[[Connection], float]]]] = {
    "connection_incoming_bytes_total": ("counter", lambda one: one.received_bytes),
    "connection_outgoing_bytes_total": ("counter", lambda one: one.outbox.sent_bytes),
    "connection_channels": ("gauge", lambda one: len(one.channels)),
}


def add_metric_objects(admin: Admin) -> None:
    admin.add("GET", "/metrics/per-object", _per_object, tags=MONITORS)


async def _per_object(call: Call) -> Response:
    lines: list[str] = []
    queues = [
        (_labels(vhost=vhost.name, queue=name), queue)
        for vhost in call.vhosts()
        for name, named in vhost.queues.items()
        if name not in INTERNAL and (queue := led_here(named)) is not None
    ]
    await _write(lines, _QUEUES, queues)
    connections = connections_of(call.node)
    channels = [
        (_labels(channel=channel_name(connection, channel)), channel)
        for connection in connections
        for channel in connection.channels
    ]
    counters = {
        f"channel_{name}_total": ("counter", _counted(field))
        for name, (field, _) in CHANNEL_COUNTERS.items()
    }
    await _write(lines, _CHANNELS | counters, channels)
    named = [(_labels(connection=connection_name(one)), one) for one in connections]
    await _write(lines, _CONNECTIONS, named)
    headers = {"Content-Type": CONTENT_TYPE_LATEST, "Cache-Control": "no-cache"}
    return Response(headers=headers, body="".join(lines).encode())


def _counted(field: str) -> Callable[[Channel], float]:
    return lambda channel: getattr(channel.tally(), field)


async def _write(
    lines: list[str], families: dict[str, Any], things: Sequence[tuple[str, Any]]
) -> None:
    for name, (kind, value) in families.items():
        lines.append(f"# TYPE rabbitmq_{name} {kind}\n")
        for start in range(0, min(len(things), OBJECTS_MAX), SLICE):
            some = things[start : start + SLICE]
            lines += [f"rabbitmq_{name}{labels} {value(one)}\n" for labels, one in some]
            await trio.lowlevel.checkpoint()


def _labels(**labels: str) -> str:
    pairs = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()]
    return "{" + ",".join(pairs) + "}"
