"""Queues, exchanges, bindings, connections and what else RabbitMQ's management API shows."""

from __future__ import annotations

from typing import Final

from broker.management.api.words import (
    AGES,
    ANY,
    COUNT,
    NAME,
    NOTHING,
    OBJECT,
    SORTING,
    TEXT,
    TRUTH,
    Doc,
    Docs,
    choice,
    deletes,
    each,
    many,
    pages,
    puts,
    record,
    ref,
    shows,
    sorts,
    whole,
)

_ARGUMENTS: Final = ref("Arguments")
_QUEUE: Final = ref("Queue")
_EXCHANGE: Final = ref("Exchange")
_BINDING: Final = ref("Binding")
_STATS: Final = each("disable_stats enable_queue_totals", TRUTH)
_QUEUE_BODY: Final = record(**each("durable auto_delete", TRUTH), arguments=_ARGUMENTS)
_EXCHANGE_BODY: Final = record(
    type=TEXT, **each("durable auto_delete internal", TRUTH), arguments=_ARGUMENTS
)
_BINDING_BODY: Final = record(routing_key=TEXT, arguments=_ARGUMENTS)
_GET_BODY: Final = record(
    "count ackmode encoding",
    count=whole(0),
    ackmode=choice(
        *("ack_requeue_true", "reject_requeue_true", "ack_requeue_false", "reject_requeue_false")
    ),
    encoding=choice("auto", "base64"),
    truncate=COUNT,
)
_PUBLISH_BODY: Final = record(
    "properties routing_key payload payload_encoding",
    properties=OBJECT,
    routing_key=TEXT,
    payload=TEXT,
    payload_encoding=choice("string", "base64"),
)

QUEUES: Final[Docs] = {
    "/api/queues": {"GET": pages("Queues of all vhosts", _QUEUE, **_STATS)},
    "/api/queues/{vhost}": {"GET": pages("Queues of a vhost", _QUEUE, **_STATS)},
    "/api/queues/{vhost}/{name}": {
        "GET": shows("A queue", _QUEUE, **{**AGES, "columns": TEXT}),
        "PUT": puts("Declare a queue", _QUEUE_BODY),
        "PATCH": Doc(
            summary="Give a queue other arguments while it is in use; null takes one away",
            body=record("arguments", arguments=_ARGUMENTS),
            answers={200: record("arguments", arguments=_ARGUMENTS)},
        ),
        "DELETE": deletes("Delete a queue", **each("if-unused if-empty", TRUTH)),
    },
    "/api/queues/{vhost}/{name}/bindings": {"GET": pages("Bindings to a queue", _BINDING)},
    "/api/queues/{vhost}/{name}/contents": {"DELETE": deletes("Purge a queue")},
    "/api/queues/{vhost}/{name}/actions": {
        "POST": Doc(
            summary="For mirrors of RabbitMQ; nothing is to be done here",
            body=record("action", action=choice("sync", "cancel_sync")),
            answers={204: NOTHING},
        )
    },
    "/api/queues/{vhost}/{name}/get": {
        "POST": Doc(
            summary="Get messages, and put them back or not",
            body=_GET_BODY,
            answers={200: many(ref("Message"))},
        )
    },
}
EXCHANGES: Final[Docs] = {
    "/api/exchanges": {"GET": pages("Exchanges of all vhosts", _EXCHANGE)},
    "/api/exchanges/{vhost}": {"GET": pages("Exchanges of a vhost", _EXCHANGE)},
    "/api/exchanges/{vhost}/{name}": {
        "GET": shows("An exchange", _EXCHANGE, **{**AGES, "columns": TEXT}),
        "PUT": puts("Declare an exchange", _EXCHANGE_BODY),
        "DELETE": deletes("Delete an exchange", **{"if-unused": TRUTH}),
    },
    "/api/exchanges/{vhost}/{name}/bindings/source": {
        "GET": pages("Bindings from an exchange", _BINDING)
    },
    "/api/exchanges/{vhost}/{name}/bindings/destination": {
        "GET": pages("Bindings to an exchange", _BINDING)
    },
    "/api/exchanges/{vhost}/{name}/publish": {
        "POST": Doc(
            summary="Publish a message",
            body=_PUBLISH_BODY,
            answers={200: record("routed", routed=TRUTH)},
        )
    },
}
BINDINGS: Final[Docs] = {
    "/api/bindings": {"GET": sorts("Bindings of all vhosts", _BINDING)},
    "/api/bindings/{vhost}": {"GET": sorts("Bindings of a vhost", _BINDING)},
}
for _kind, _what in (("q", "a queue"), ("e", "another exchange")):
    _between = f"/api/bindings/{{vhost}}/e/{{source}}/{_kind}/{{destination}}"
    BINDINGS[_between] = {
        "GET": sorts(f"Bindings of an exchange and {_what}", _BINDING),
        "POST": Doc(
            summary=f"Bind {_what} to an exchange", body=_BINDING_BODY, answers={201: NOTHING}
        ),
    }
    BINDINGS[f"{_between}/{{key}}"] = {
        "GET": shows("A binding, by its properties_key", _BINDING),
        "DELETE": deletes("Unbind, by properties_key"),
    }
_CONNECTION: Final = ref("Connection")
_CHANNEL: Final = ref("Channel")
CONNECTIONS: Final[Docs] = {
    "/api/connections": {"GET": pages("Open connections", _CONNECTION)},
    "/api/connections/{name}": {
        "GET": shows("A connection", _CONNECTION, **AGES),
        "DELETE": deletes("Close a connection; the header X-Reason says why"),
    },
    "/api/connections/{name}/channels": {"GET": pages("Channels of a connection", _CHANNEL)},
    "/api/connections/username/{user}": {
        "GET": pages("Connections of a user", _CONNECTION),
        "DELETE": deletes("Close all connections of a user"),
    },
    "/api/vhosts/{vhost}/connections": {"GET": pages("Connections to a vhost", _CONNECTION)},
    "/api/channels": {"GET": pages("Open channels", _CHANNEL)},
    "/api/channels/{name}": {"GET": shows("A channel", _CHANNEL, **AGES)},
    "/api/vhosts/{vhost}/channels": {"GET": pages("Channels in a vhost", _CHANNEL)},
    "/api/consumers": {"GET": pages("Consumers", ref("Consumer"))},
    "/api/consumers/{vhost}": {"GET": pages("Consumers in a vhost", ref("Consumer"))},
}
_HEALTH: Final = ref("Health")


def _check(summary: str, **query: dict[str, object]) -> Doc:
    answers = {200: _HEALTH}
    return Doc(summary=summary, answers=answers, query=query, unhealthy=_HEALTH)


_CHECKS: Final = "/api/health/checks"
NODES: Final[Docs] = {
    "/api/overview": {"GET": shows("Sums over all nodes", ref("Overview"), **AGES)},
    "/api/nodes": {"GET": pages("Nodes", ref("Node"))},
    "/api/nodes/{name}": {"GET": shows("A node", ref("Node"), **AGES)},
    "/api/nodes/{name}/memory": {
        "GET": shows("What a node's memory is used for", record("memory", memory=OBJECT))
    },
    f"{_CHECKS}/alarms": {"GET": _check("Whether any node has an alarm")},
    f"{_CHECKS}/local-alarms": {"GET": _check("Whether this node has an alarm")},
    f"{_CHECKS}/port-listener/{{port}}": {"GET": _check("Whether this node listens at a port")},
    f"{_CHECKS}/protocol-listener/{{protocol}}": {
        "GET": _check("Whether this node speaks a protocol")
    },
    f"{_CHECKS}/certificate-expiration/{{within}}/{{unit}}": {
        "GET": _check("Whether certificates end soon")
    },
    f"{_CHECKS}/virtual-hosts": {"GET": _check("Whether all vhosts run")},
    f"{_CHECKS}/node-is-quorum-critical": {
        "GET": _check("Whether queues would lose their majority without this node")
    },
    f"{_CHECKS}/node-is-mirror-sync-critical": {
        "GET": _check("For mirrors of RabbitMQ: there are none")
    },
    "/api/healthchecks/node": {"GET": _check("Whether any node has an alarm")},
    "/api/healthchecks/node/{node}": {"GET": _check("The same, naming a node")},
    "/api/aliveness-test/{vhost}": {
        "GET": shows("Send a message through a queue of the vhost", _HEALTH)
    },
    "/api/extensions": {"GET": shows("Plugins of RabbitMQ: none", many(OBJECT))},
    "/api/feature-flags": {"GET": shows("Feature flags of RabbitMQ: none", many(OBJECT))},
    "/api/auth": {"GET": shows("How to log in", OBJECT)},
    "/api/reset": {"DELETE": deletes("Forget all samples")},
    "/api/openapi.json": {"GET": shows("This document", OBJECT)},
    "/health": {
        "GET": Doc(
            summary="Whether the node is up",
            answers={200: _HEALTH},
            unhealthy=_HEALTH,
            open=True,
        )
    },
    "/metrics": {
        "GET": Doc(
            summary="The node's sums for Prometheus",
            answers={200: TEXT},
            media="text/plain",
            open=True,
        )
    },
    "/metrics/per-object": {
        "GET": Doc(
            summary="The same of each queue, channel and connection",
            answers={200: TEXT},
            media="text/plain",
        )
    },
}
_POLICY: Final = ref("Policy")
_POLICY_BODY: Final = record(
    "pattern definition",
    **{
        "pattern": TEXT,
        "definition": OBJECT,
        "priority": {"type": "integer"},
        "apply-to": choice("all", "queues", "exchanges"),
    },
)
_PARAMETER: Final = ref("Parameter")
_DEFINITIONS: Final = ref("Definitions")
_IMPORT: Final = Doc(
    summary="Make what a file of definitions says", body=_DEFINITIONS, answers={204: NOTHING}
)
SETTINGS: Final[Docs] = {
    "/api/global-parameters": {
        "GET": Doc(summary="Global parameters", answers={200: many(_PARAMETER)}, query=SORTING)
    },
    "/api/global-parameters/{name}": {
        "GET": shows("A global parameter", _PARAMETER),
        "PUT": puts("Set a global parameter", record("value", value=ANY)),
        "DELETE": deletes("Delete a global parameter"),
    },
    "/api/cluster-name": {
        "GET": shows("What the cluster is called", record("name", name=TEXT)),
        "PUT": Doc(
            summary="Call the cluster something else",
            body=record("name", name=NAME),
            answers={204: NOTHING},
        ),
    },
    "/api/parameters": {"GET": shows("Parameters of components: none", many(_PARAMETER))},
    "/api/parameters/{component}": {"GET": shows("Those of one component", many(_PARAMETER))},
    "/api/parameters/{component}/{vhost}": {
        "GET": shows("Those of one component in a vhost", many(_PARAMETER))
    },
    "/api/parameters/{component}/{vhost}/{name}": {
        "GET": shows("A parameter", _PARAMETER),
        "PUT": puts("Set a parameter; there is no component that has any", OBJECT),
        "DELETE": deletes("Delete a parameter"),
    },
    "/api/definitions": {
        "GET": shows("Everything that is defined", _DEFINITIONS),
        "POST": _IMPORT,
        "PUT": _IMPORT,
    },
    "/api/definitions/{vhost}": {
        "GET": shows("What is defined in a vhost", _DEFINITIONS),
        "POST": _IMPORT,
        "PUT": _IMPORT,
    },
}
for _path, _whose in (("/api/policies", "policy"), ("/api/operator-policies", "operator policy")):
    SETTINGS[_path] = {"GET": shows(f"Each {_whose} of all vhosts", many(_POLICY))}
    SETTINGS[f"{_path}/{{vhost}}"] = {"GET": shows(f"Each {_whose} of a vhost", many(_POLICY))}
    SETTINGS[f"{_path}/{{vhost}}/{{name}}"] = {
        "GET": shows(f"One {_whose}", _POLICY),
        "PUT": puts(f"Set one {_whose}", _POLICY_BODY),
        "DELETE": deletes(f"Delete one {_whose}"),
    }
