"""The things that answers of the management API are made of.

Fields are those of RabbitMQ 3.10. None is required where `columns` may ask for a few of them only.
"""

from __future__ import annotations

from typing import Final

from broker.management.api.words import (
    ANY,
    COUNT,
    OBJECT,
    REAL,
    TEXT,
    TRUTH,
    WHOLE,
    Schema,
    choice,
    each,
    many,
    maybe,
    record,
    ref,
)

_RATES: Final = ref("Details")
_SAMPLE: Final = record("sample timestamp", sample=WHOLE, timestamp=WHOLE)
_STATS: Final = ref("MessageStats")
_LENGTHS: Final = {
    **each("messages messages_ready messages_unacknowledged", COUNT),
    **each(
        "messages_details messages_ready_details messages_unacknowledged_details",
        _RATES,
    ),
}
_NAMED: Final = {"name": TEXT, "vhost": TEXT}
_FLAGS: Final = each("durable auto_delete", TRUTH)

COMPONENTS: Final[dict[str, Schema]] = {
    "Error": record("error reason", error=TEXT, reason=ANY),
    "Problem": record(
        "type title status detail code",
        **each("type title detail code", TEXT),
        status=WHOLE,
    ),
    "Page": record(
        "filtered_count item_count items page page_count page_size total_count",
        **each("filtered_count item_count page page_count page_size total_count", COUNT),
        items=many(ANY),
    ),
    "Details": record("rate", rate=REAL, samples=many(_SAMPLE), avg=REAL, avg_rate=REAL),
    "MessageStats": {
        "type": "object",
        "additionalProperties": {"anyOf": [COUNT, _RATES]},
    },
    "Arguments": OBJECT,
    "Queue": record(
        **_NAMED,
        **_FLAGS,
        **_LENGTHS,
        arguments=ref("Arguments"),
        exclusive=TRUTH,
        type=choice("classic", "quorum", "stream"),
        state=choice("running", "down", "crashed"),
        consumers=COUNT,
        node=maybe(TEXT),
        policy=maybe(TEXT),
        operator_policy=maybe(TEXT),
        effective_policy_definition=OBJECT,
        message_stats=_STATS,
        **each("message_bytes message_bytes_ready messages_ram memory", COUNT),
        **each("members online", many(TEXT)),
        consumer_details=many(ref("Consumer")),
    ),
    "Exchange": record(
        **_NAMED,
        **_FLAGS,
        arguments=ref("Arguments"),
        internal=TRUTH,
        message_stats=_STATS,
        policy=TEXT,
        type=TEXT,
        user_who_performed_action=TEXT,
    ),
    "Binding": record(
        **each("source vhost destination routing_key properties_key", TEXT),
        destination_type=choice("queue", "exchange"),
        arguments=ref("Arguments"),
    ),
    "Connection": record(
        **_NAMED,
        **each("node user host peer_host protocol state type", TEXT),
        **each("port peer_port channels channel_max frame_max timeout connected_at", COUNT),
        **each("recv_cnt recv_oct send_cnt send_oct send_pend", COUNT),
        **each("recv_oct_details send_oct_details", _RATES),
        ssl=TRUTH,
        client_properties=OBJECT,
        user_provided_name=TEXT,
    ),
    "Channel": record(
        **_NAMED,
        **each("node user state", TEXT),
        **each("number consumer_count messages_unacknowledged messages_unconfirmed", COUNT),
        **each("messages_uncommitted acks_uncommitted prefetch_count", COUNT),
        **each("confirm transactional", TRUTH),
        connection_details=OBJECT,
        message_stats=_STATS,
    ),
    "Consumer": record(
        consumer_tag=TEXT,
        **each("ack_required active exclusive", TRUTH),
        prefetch_count=COUNT,
        arguments=ref("Arguments"),
        channel_details=OBJECT,
        queue=record("name vhost", **_NAMED),
    ),
    "Node": record(
        **each("name type os_pid db_dir", TEXT),
        **each("running mem_alarm disk_free_alarm", TRUTH),
        **each("mem_used mem_limit disk_free disk_free_limit fd_used fd_total", COUNT),
        **each("sockets_used sockets_total uptime processors", COUNT),
        **each("mem_used_details disk_free_details fd_used_details", _RATES),
    ),
    "Overview": record(
        "node cluster_name rabbitmq_version object_totals queue_totals message_stats listeners",
        **each("node cluster_name rabbitmq_version product_name product_version", TEXT),
        message_stats=_STATS,
        churn_rates=_STATS,
        queue_totals=record(**_LENGTHS),
        object_totals=record(**each("channels connections consumers exchanges queues", COUNT)),
        listeners=many(OBJECT),
    ),
    "Vhost": record(
        "name description tags metadata cluster_state",
        **each("name description default_queue_type", TEXT),
        tags=many(TEXT),
        metadata=OBJECT,
        tracing=TRUTH,
        cluster_state=OBJECT,
        **_LENGTHS,
        message_stats=_STATS,
        **each("recv_oct send_oct", COUNT),
        **each("recv_oct_details send_oct_details", _RATES),
    ),
    "User": record(
        "name password_hash hashing_algorithm tags limits",
        **each("name password_hash hashing_algorithm", TEXT),
        tags=many(TEXT),
        limits=OBJECT,
    ),
    "Whoami": record("name tags", name=TEXT, tags=many(TEXT)),
    "Token": record(
        "token token_type expires_in user",
        **each("token token_type", TEXT),
        expires_in=COUNT,
        user=ref("Whoami"),
    ),
    "Permission": record(
        "user vhost configure write read", **each("user vhost configure write read", TEXT)
    ),
    "TopicPermission": record(
        "user vhost exchange write read", **each("user vhost exchange write read", TEXT)
    ),
    "UserLimits": record("user value", user=TEXT, value=OBJECT),
    "VhostLimits": record("vhost value", vhost=TEXT, value=OBJECT),
    "Policy": record(
        "vhost name pattern apply-to definition priority",
        **{**_NAMED, "pattern": TEXT, "apply-to": TEXT},
        definition=OBJECT,
        priority=WHOLE,
    ),
    "Parameter": record(name=TEXT, value=ANY),
    "Definitions": record(
        **each("users vhosts permissions topic_permissions parameters", many(OBJECT)),
        **each("global_parameters policies queues exchanges bindings", many(OBJECT)),
    ),
    "Message": record(
        "exchange routing_key payload payload_encoding payload_bytes properties redelivered",
        **each("exchange routing_key payload", TEXT),
        payload_encoding=choice("string", "base64"),
        **each("payload_bytes message_count id delivery_count", COUNT),
        properties=OBJECT,
        redelivered=TRUTH,
    ),
    "Health": record("status", status=TEXT, reason=TEXT),
    "Stream": record(
        **_NAMED,
        partitions={"anyOf": [COUNT, many(OBJECT)]},
        **each("messages size_bytes", COUNT),
        readers={"anyOf": [COUNT, many(OBJECT)]},
        damaged=maybe(TEXT),
    ),
    "Offset": record("partition offset", partition=COUNT, offset=COUNT),
    "Topic": record(
        "name vhost partitions replicationFactor retentionMs",
        **_NAMED,
        **each("partitions replicationFactor", COUNT),
        retentionMs=WHOLE,
        offsets=many(OBJECT),
        damaged=maybe(TEXT),
    ),
}
