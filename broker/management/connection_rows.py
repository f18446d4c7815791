"""What the management API says of connections, their channels and consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.cluster.front import QueueFront
from broker.http.message_json import plain_value
from broker.management.listing import MISSING
from broker.management.queue_rows import NO_COLLECTOR
from broker.management.rates import OF_CHANNELS, OF_QUEUES, ZERO, View, message_stats
from broker.management.sampler import CONNECTION_FIELDS, tally_values
from broker.protocol.stream_wire import REQUEST_BYTES_MAX
from queues.queue import Queue
from queues.tally import FIELDS

if TYPE_CHECKING:
    from broker.channel.channel import Channel
    from broker.connection.connection import Connection
    from broker.management.listing import Row
    from broker.management.rates import Ages
    from broker.management.sampler import Sampler
    from broker.streams.login import Login
    from broker.streams.session import StreamSession
    from queues.consumers import Consumer

NO_TLS: Final = dict.fromkeys(
    (
        "peer_cert_issuer",
        "peer_cert_subject",
        "peer_cert_validity",
        "ssl_cipher",
        "ssl_hash",
        "ssl_key_exchange",
        "ssl_protocol",
    )
)
_OF_PUBLISHERS: Final = ("publish", "confirm", "return_unroutable", "drop_unroutable")


class Watch(NamedTuple):
    """What rows are made with, beside what they are about."""

    node: str
    sampler: Sampler
    ages: Ages


def connection_name(connection: Connection | StreamSession) -> str:
    """As RabbitMQ names them: client's address -> this node's."""
    return f"{connection.origin.name} -> {connection.origin.local}"


def channel_name(connection: Connection, channel: Channel) -> str:
    return f"{connection_name(connection)} ({channel.number})"


def connection_row(connection: Connection, watch: Watch) -> Row:
    profile, statistics = connection.profile, connection.statistics()
    peer_host, peer_port = _split(connection.peer)
    host, port = _split(connection.origin.local)
    sampler = watch.sampler
    view = View(sampler.other(connection), CONNECTION_FIELDS, sampler.tick, watch.ages.data)
    blocked = statistics.blocked is not None
    return {
        **NO_TLS,
        "auth_mechanism": profile.mechanism,
        "channel_max": connection.channel_max,
        "channels": statistics.channels,
        "client_properties": plain_value(dict(profile.client_properties)),
        "connected_at": profile.connected_ms,
        "frame_max": connection.frame_max,
        "garbage_collection": NO_COLLECTOR,
        "host": host,
        "name": connection_name(connection),
        "node": watch.node,
        "peer_host": peer_host,
        "peer_port": peer_port,
        "port": port,
        "protocol": "AMQP 0-9-1",
        "recv_cnt": connection.reads,
        "recv_oct": connection.received_bytes,
        "recv_oct_details": view.details("recv_oct"),
        "reductions": 0,
        "reductions_details": ZERO,
        "send_cnt": connection.outbox.writes,
        "send_oct": connection.outbox.sent_bytes,
        "send_oct_details": view.details("send_oct"),
        "send_pend": statistics.outbox_bytes,
        "ssl": connection.origin.encrypted,
        "state": "blocked" if blocked else "flow" if statistics.over_rate else statistics.state,
        "timeout": profile.heartbeat_s,
        "type": "network",
        "user": connection.user.name,
        **({"user_provided_name": profile.client_name} if profile.client_name else {}),
        "user_who_performed_action": connection.user.name,
        "vhost": connection.vhost.name,
    }


def session_row(session: StreamSession, login: Login, watch: Watch) -> Row:
    """A client of the stream protocol, which has no channels."""
    host, port = _split(session.origin.local)
    sampler = watch.sampler
    view = View(sampler.other(session), CONNECTION_FIELDS, sampler.tick, watch.ages.data)
    return {
        **NO_TLS,
        "auth_mechanism": "PLAIN",
        "channel_max": 0,
        "channels": 0,
        "client_properties": {},
        "connected_at": session.connected_ms,
        "frame_max": REQUEST_BYTES_MAX,
        "garbage_collection": NO_COLLECTOR,
        "host": host,
        "name": connection_name(session),
        "node": watch.node,
        "peer_host": session.origin.host,
        "peer_port": session.origin.port,
        "port": port,
        "protocol": "stream",
        "recv_cnt": session.reads,
        "recv_oct": session.received_bytes,
        "recv_oct_details": view.details("recv_oct"),
        "reductions": 0,
        "reductions_details": ZERO,
        "send_cnt": 0,
        "send_oct": session.sent_bytes,
        "send_oct_details": view.details("send_oct"),
        "send_pend": session.waiting_bytes,
        "ssl": session.origin.encrypted,
        "state": "running",
        "timeout": 0,
        "type": "network",
        "user": login.user.name,
        **({"user_provided_name": login.client} if login.client else {}),
        "user_who_performed_action": login.user.name,
        "vhost": login.vhost.name,
    }


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port or 0)


def channel_row(connection: Connection, channel: Channel, watch: Watch) -> Row:
    statistics = channel.statistics()
    confirms, transaction = channel.publisher.confirms, channel.transaction
    row: Row = {
        "acks_uncommitted": 0 if transaction is None else len(list(transaction.in_doubt())),
        "confirm": confirms is not None,
        "connection_details": _connection_details(connection),
        "consumer_count": len(statistics.consumers),
        "garbage_collection": NO_COLLECTOR,
        "global_prefetch_count": statistics.prefetch_global,
        "idle_since": _idle_since(channel, watch),
        "message_stats": _channel_stats(channel, watch),
        "messages_unacknowledged": statistics.unacked,
        "messages_uncommitted": 0 if transaction is None else len(transaction.publishes),
        "messages_unconfirmed": 0 if confirms is None else confirms.unconfirmed,
        "name": channel_name(connection, channel),
        "node": watch.node,
        "number": channel.number,
        "pending_raft_commands": 0,
        "prefetch_count": statistics.prefetch,
        "reductions": 0,
        "reductions_details": ZERO,
        "state": "running",
        "transactional": transaction is not None,
        "user": connection.user.name,
        "user_who_performed_action": connection.user.name,
        "vhost": connection.vhost.name,
    }
    return {name: value for name, value in row.items() if value is not MISSING}


def _connection_details(connection: Connection) -> Row:
    host, port = _split(connection.peer)
    return {"name": connection_name(connection), "peer_host": host, "peer_port": port}


def _idle_since(channel: Channel, watch: Watch) -> Any:
    """When a sample last differed; nothing while there is something to do."""
    series = watch.sampler.other(channel)
    if series is None or series.last_tick >= watch.sampler.tick:
        return MISSING
    return watch.sampler.time_of(series.last_tick)


def _channel_stats(channel: Channel, watch: Watch) -> Any:
    tally = channel.tally()
    if not any(tally_values(tally)):
        return MISSING
    sampler = watch.sampler
    view = View(sampler.other(channel), FIELDS, sampler.tick, watch.ages.messages)
    published = any(getattr(tally, name) for name in _OF_PUBLISHERS)
    return message_stats(tally, view, OF_CHANNELS if published else OF_QUEUES[:5] + OF_QUEUES[6:])


def consumer_row(connection: Connection, channel: Channel, consumer: Consumer, watch: Watch) -> Row:
    host, port = _split(connection.peer)
    active = _is_active(consumer)
    return {
        "arguments": plain_value(dict(consumer.arguments)),
        "ack_required": not consumer.no_ack,
        "active": active,
        "activity_status": "up" if active else "waiting",
        "channel_details": {
            "connection_name": connection_name(connection),
            "name": channel_name(connection, channel),
            "node": watch.node,
            "number": channel.number,
            "peer_host": host,
            "peer_port": port,
            "user": connection.user.name,
        },
        "consumer_tag": consumer.tag,
        "exclusive": consumer.exclusive,
        "prefetch_count": consumer.credit.limit,
        "queue": {"name": consumer.queue.name, "vhost": connection.vhost.name},
    }


def _is_active(consumer: Consumer) -> bool:
    """With a single active consumer that is the one; what another node knows is not asked for."""
    queue = consumer.queue.queue if isinstance(consumer.queue, QueueFront) else consumer.queue
    if not isinstance(queue, Queue) or not queue.options.single_active_consumer:
        return True
    first = next(iter(queue.consumers), None)
    return first is consumer or getattr(first, "tag", None) == consumer.tag
