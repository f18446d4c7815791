"""Sums over all that a node has: what happened, what is there, what it uses of its machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psutil

from broker.connection.connection import Connection
from broker.streams.session import StreamSession
from queues.tally import FIELDS, Tally

if TYPE_CHECKING:
    from broker.node import Node
    from broker.streams.login import Login
    from broker.vhost import VHost

CHURN_FIELDS: Final = (
    "connection_created",
    "connection_closed",
    "channel_created",
    "channel_closed",
    "queue_declared",
    "queue_created",
    "queue_deleted",
)
LENGTH_FIELDS: Final = ("messages_ready", "messages_unacknowledged")
TOTAL_FIELDS: Final = (*FIELDS, *LENGTH_FIELDS)
BYTE_FIELDS: Final = ("recv_oct", "send_oct")
VHOST_FIELDS: Final = (*FIELDS, *BYTE_FIELDS, *LENGTH_FIELDS)
USAGE_FIELDS: Final = ("mem_used", "disk_free", "sockets_used", "fd_used")
NODE_FIELDS: Final = (*CHURN_FIELDS, *USAGE_FIELDS)


def connections_of(node: Node) -> list[Connection]:
    """Those of AMQP clients that are logged in."""
    return [one for one in node.connections if isinstance(one, Connection) and one.is_open]


def sessions_of(node: Node) -> list[tuple[StreamSession, Login]]:
    """Those of clients of the stream protocol that are logged in, and as whom."""
    sessions = [one for one in node.connections if isinstance(one, StreamSession)]
    return [(one, login) for one in sessions if (login := one.login) is not None]


def node_tally(node: Node) -> Tally:
    """All that happened on channels, open and closed."""
    total = Tally()
    total.add(node.past)
    for connection in connections_of(node):
        for channel in connection.channels:
            total.add(channel.tally())
    return total


def vhost_figures(node: Node) -> dict[VHost, list[int]]:
    """What happened in each, on channels and connections open and closed; without the lengths."""
    found = {
        vhost: [
            *(getattr(vhost.past, name) for name in FIELDS),
            *(vhost.past_received_bytes, vhost.past_sent_bytes),
        ]
        for vhost in node.vhosts.values()
    }
    for connection in connections_of(node):
        figures = found.get(connection.vhost)
        if figures is None:
            continue
        for channel in connection.channels:
            tally = channel.tally()
            for place, name in enumerate(FIELDS):
                figures[place] += getattr(tally, name)
        figures[-2] += connection.received_bytes
        figures[-1] += connection.outbox.sent_bytes
    return found


def node_values(node: Node) -> list[int]:
    churn = [getattr(node.churn, name) for name in CHURN_FIELDS]
    storage = node.storage() if node.storage is not None else None
    disk_free = 0 if storage is None else storage.disk_free_bytes
    files = psutil.Process().num_fds()
    return [*churn, node.memory_used_bytes, disk_free, len(node.connections), files]
