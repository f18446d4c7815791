"""`GET /metrics`: the node for Prometheus, under RabbitMQ's names, as sums over all that it has.

What it costs depends on connections and on queues that hold messages, not on how many queues there
are. Names of single queues need a login: see metric_objects.
"""

from __future__ import annotations

import platform
from importlib import metadata
from typing import TYPE_CHECKING, Final
from uuid import NAMESPACE_URL, uuid5

import psutil
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest

from broker.connection.handshake import SERVER_PROPERTIES
from broker.etl_jobs.series import series
from broker.http.messages import Request, Response
from broker.management.nodes import SOCKETS_SHARE, files_max
from broker.management.totals import connections_of, node_tally, sessions_of
from queues.queue import Queue
from queues.stream.names import INTERNAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from broker.etl_jobs.jobs import Jobs
    from broker.http.router import Router
    from broker.management.sampler import Sampler
    from broker.management.site import Site
    from broker.node import Node

AMQP: Final = "amqp091"
ENDPOINT: Final = "aggregated"  # what RabbitMQ calls sums, as newer dashboards ask for them
CLIENT_VERSION: Final = metadata.version("prometheus-client")
# Counters of channels: RabbitMQ's name → of the tally.
CHANNEL_COUNTERS: Final = {
    "messages_published": ("publish", "Messages published into an exchange on a channel"),
    "messages_confirmed": ("confirm", "Messages published and confirmed on the channel"),
    "messages_unroutable_returned": (
        "return_unroutable",
        "Messages published as mandatory into an exchange and returned as unroutable",
    ),
    "messages_unroutable_dropped": (
        "drop_unroutable",
        "Messages published as non-mandatory into an exchange and dropped as unroutable",
    ),
    "get_ack": ("get", "Messages fetched with basic.get in manual acknowledgement mode"),
    "get": ("get_no_ack", "Messages fetched with basic.get in automatic acknowledgement mode"),
    "get_empty": ("get_empty", "Times basic.get operations fetched no message"),
    "messages_delivered_ack": (
        "deliver",
        "Messages delivered to consumers in manual acknowledgement mode",
    ),
    "messages_delivered": (
        "deliver_no_ack",
        "Messages delivered to consumers in automatic acknowledgement mode",
    ),
    "messages_redelivered": ("redeliver", "Messages redelivered to consumers"),
    "messages_acked": ("ack", "Messages acknowledged by consumers"),
}
GLOBAL_COUNTERS: Final = {
    "messages_received": ("publish",),
    "messages_received_confirm": ("expecting",),
    "messages_confirmed": ("confirm",),
    "messages_unroutable_returned": ("return_unroutable",),
    "messages_unroutable_dropped": ("drop_unroutable",),
    "messages_acknowledged": ("ack",),
    "messages_redelivered": ("redeliver",),
    "messages_get_empty": ("get_empty",),
    "messages_delivered_consume_auto_ack": ("deliver_no_ack",),
    "messages_delivered_consume_manual_ack": ("deliver",),
    "messages_delivered_get_auto_ack": ("get_no_ack",),
    "messages_delivered_get_manual_ack": ("get",),
    "messages_delivered": ("deliver", "deliver_no_ack", "get", "get_no_ack"),
}


def add_metrics(router: Router, node: Node, sampler: Sampler, site: Site, jobs: Jobs) -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(node, sampler, site, jobs))
    ProcessCollector(registry=registry)

    async def metrics(_request: Request) -> Response:
        headers = {"Content-Type": CONTENT_TYPE_LATEST, "Cache-Control": "no-cache"}
        return Response(headers=headers, body=generate_latest(registry))

    router.add("GET", "/metrics", metrics)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"rabbitmq_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"rabbitmq_{name}", text, value=value)


class _Collector:
    """A collector of prometheus_client."""

    def __init__(self, node: Node, sampler: Sampler, site: Site, jobs: Jobs) -> None:
        self._node = node
        self._sampler = sampler
        self._site = site
        self._jobs = jobs

    def _internal_errors(self) -> Metric:
        text = "Bugs of the broker that ended a connection, a request or a task; 0 in good health"
        family = CounterMetricFamily("leveret_internal_errors", text, labels=["where"])
        for where, count in self._node.errors.counts.items():
            family.add_metric([where], count)
        return family

    def collect(self) -> Iterator[Metric]:
        yield from self._identity()
        yield from self._alarms()
        yield self._internal_errors()
        yield from self._machine()
        yield from self._churn()
        yield from self._queues()
        yield from self._connections()
        yield from series(self._jobs, self._node.timers.now_ms())

    def _identity(self) -> Iterator[Metric]:
        build = GaugeMetricFamily(
            "rabbitmq_build_info",
            "RabbitMQ & Erlang/OTP version info",
            labels=(
                *("rabbitmq_version", "prometheus_plugin_version"),
                *("prometheus_client_version", "erlang_version", "leveret_version"),
            ),
        )
        version = str(SERVER_PROPERTIES["version"])
        python = platform.python_version()
        build.add_metric((version, version, CLIENT_VERSION, python, self._site.version), 1)
        yield build
        identity = GaugeMetricFamily(
            "rabbitmq_identity_info",
            "RabbitMQ node & cluster identity info",
            labels=(
                *("rabbitmq_node", "rabbitmq_cluster", "rabbitmq_cluster_permanent_id"),
                "rabbitmq_endpoint",
            ),
        )
        name = self._site.cluster_name()
        permanent = self._site.where.cluster_id or str(uuid5(NAMESPACE_URL, self._site.node_name))
        permanent = f"leveret-{permanent}"
        identity.add_metric((self._site.node_name, name, permanent, ENDPOINT), 1)
        yield identity

    def _alarms(self) -> Iterator[Metric]:
        own = {name for name in self._node.alarms if "@" not in name}
        for name, alarm in (
            ("file_descriptor_limit", "files"),
            ("free_disk_space_watermark", "disk"),
            ("memory_used_watermark", "memory"),
        ):
            yield _gauge(f"alarms_{name}", f"is 1 if the {name} alarm is in effect", alarm in own)

    def _machine(self) -> Iterator[Metric]:
        statistics, files = self._node.statistics(), files_max()
        disk = statistics.storage
        process = psutil.Process()
        for name, text, value in (
            ("process_open_fds", "Open file descriptors", process.num_fds()),
            ("process_max_fds", "Open file descriptors limit", files),
            ("process_open_tcp_sockets", "Open TCP sockets", statistics.connections),
            (
                "process_max_tcp_sockets",
                "Open TCP sockets limit",
                int(files * SOCKETS_SHARE),
            ),
            (
                "process_resident_memory_bytes",
                "Memory used in bytes",
                process.memory_info().rss,
            ),
            (
                "resident_memory_limit_bytes",
                "Memory high watermark in bytes",
                statistics.memory_limit_bytes,
            ),
            (
                "disk_space_available_bytes",
                "Disk space available in bytes",
                0 if disk is None else disk.disk_free_bytes,
            ),
            (
                "disk_space_available_limit_bytes",
                "Free disk space low watermark in bytes",
                0 if disk is None else disk.disk_free_bytes_min,
            ),
        ):
            yield _gauge(name, text, value)
        uptime_ms = self._node.timers.now_ms() - self._site.started_ms
        yield _gauge("erlang_uptime_seconds", "Node uptime", uptime_ms / 1000)

    def _churn(self) -> Iterator[Metric]:
        churn = self._node.churn
        for name, value in (
            ("connections_opened", churn.connection_created),
            ("connections_closed", churn.connection_closed),
            ("channels_opened", churn.channel_created),
            ("channels_closed", churn.channel_closed),
            ("queues_declared", churn.queue_declared),
            ("queues_created", churn.queue_created),
            ("queues_deleted", churn.queue_deleted),
        ):
            what, verb = name.split("_")
            yield _counter(name, f"Total number of {what} {verb}", value)

    def _queues(self) -> Iterator[Metric]:
        ready, unacked = self._sampler.lengths()
        held = self._sampler.holding()
        queues = [queue for queue in held if isinstance(queue, Queue)]
        in_streams = sum([queue.ready for queue in held if not isinstance(queue, Queue)])
        size = sum([queue.ready_bytes for queue in queues])
        on_disk = sum([queue.on_disk for queue in queues])
        in_memory = ready - in_streams - on_disk
        vhosts = self._node.vhosts.values()
        count = sum(
            len(vhost.queues) - sum(name in vhost.queues for name in INTERNAL) for vhost in vhosts
        )
        for name, text, value in (
            ("queues", "Queues available", count),
            ("queue_messages_ready", "Messages ready to be delivered to consumers", ready),
            (
                "queue_messages_unacked",
                "Messages delivered to consumers but not yet acknowledged",
                unacked,
            ),
            (
                "queue_messages",
                "Sum of ready and unacknowledged messages - total queue depth",
                ready + unacked,
            ),
            (
                "queue_messages_dlx",
                "Messages that died and wait for their dead letters to be safe",
                sum([queue.dying for queue in queues]),
            ),
            ("queue_messages_bytes", "Size in bytes of ready messages", size),
            ("queue_messages_ready_bytes", "Size in bytes of ready messages", size),
            ("queue_messages_ram", "Ready messages stored in memory", in_memory),
            ("queue_messages_paged_out", "Messages paged out to disk", on_disk),
        ):
            yield _gauge(name, text, value)

    def _connections(self) -> Iterator[Metric]:
        node = self._node
        connections = connections_of(node)
        channels = [channel for connection in connections for channel in connection.channels]
        consumers = [c for channel in channels for c in channel.deliveries.consumers.values()]
        trackers = [c.publisher.confirms for c in channels if c.publisher.confirms is not None]
        for name, text, value in (
            (
                "connections",
                "Connections currently open",
                len(connections) + len(sessions_of(node)),
            ),
            ("channels", "Channels currently open", len(channels)),
            ("consumers", "Consumers currently connected", len(consumers)),
            ("channel_consumers", "Consumers on a channel", len(consumers)),
            ("queue_consumers", "Consumers on a queue", len(consumers)),
            (
                "channel_messages_unacked",
                "Delivered but not yet acknowledged messages",
                sum(len(channel.deliveries.unacked) for channel in channels),
            ),
            (
                "channel_messages_unconfirmed",
                "Published but not yet confirmed messages",
                sum(tracker.unconfirmed for tracker in trackers),
            ),
            (
                "channel_prefetch",
                "Total limit of unacknowledged messages for all consumers on a channel",
                sum(channel.deliveries.credit.limit for channel in channels),
            ),
            (
                "consumer_prefetch",
                "Limit of unacknowledged messages for each consumer",
                sum(consumer.credit.limit for consumer in consumers),
            ),
            ("connection_channels", "Channels on a connection", len(channels)),
            (
                "connection_pending_packets",
                "Number of packets waiting to be sent on a connection",
                sum(bool(connection.outbox.size) for connection in connections),
            ),
        ):
            yield _gauge(name, text, value)
        received = sum(connection.received_bytes for connection in connections)
        sent = sum(connection.outbox.sent_bytes for connection in connections)
        text = "Total number of bytes {} on a connection"
        past = (node.past_received_bytes, node.past_sent_bytes)
        yield _counter("connection_incoming_bytes", text.format("received"), received + past[0])
        yield _counter("connection_outgoing_bytes", text.format("sent"), sent + past[1])
        publishers = sum(channel.tally().publish > 0 for channel in channels)
        for name, value in (("consumers", len(consumers)), ("publishers", publishers)):
            text = f"Current number of {name}"
            gauge = GaugeMetricFamily(f"rabbitmq_global_{name}", text, labels=("protocol",))
            gauge.add_metric((AMQP,), value)
            yield gauge
        yield from self._messages()

    def _messages(self) -> Iterator[Metric]:
        tally = node_tally(self._node)
        for name, (field, text) in CHANNEL_COUNTERS.items():
            yield _counter(f"channel_{name}", text, getattr(tally, field))
        routed = tally.publish - tally.return_unroutable - tally.drop_unroutable
        text = "Messages published to queues"
        yield _counter("queue_messages_published", text, routed)
        globals_ = {
            name: sum(getattr(tally, field) for field in fields)
            for name, fields in GLOBAL_COUNTERS.items()
        }
        for name, value in (globals_ | {"messages_routed": routed}).items():
            total = CounterMetricFamily(f"rabbitmq_global_{name}", name, labels=("protocol",))
            total.add_metric((AMQP,), value)
            yield total
