"""`GET /api/definitions`: all that is defined, in RabbitMQ's format, for a vhost or for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.connection.handshake import SERVER_PROPERTIES
from broker.http.auth import ADMINISTRATORS, POLICYMAKERS
from broker.http.message_json import plain_value
from broker.http.messages import Response, json_response
from broker.management.accounts import exported_accounts
from broker.management.bindings import bindings_of
from broker.version import VERSION
from broker.vhost import RESERVED_PREFIX
from queues.options import altered
from queues.stream.names import INTERNAL

if TYPE_CHECKING:
    from broker.http.admin import Admin, Call
    from broker.management.listing import Row
    from broker.policies import Policy
    from broker.vhost import VHost


def add_export(admin: Admin) -> None:
    admin.add("GET", "/api/definitions", _all, tags=ADMINISTRATORS)
    admin.add("GET", "/api/definitions/{vhost}", _of_vhost, tags=POLICYMAKERS)


async def _all(call: Call) -> Response:
    vhosts = [call.node.vhosts[name] for name in sorted(call.node.vhosts)]
    parts: Row = {
        "rabbit_version": SERVER_PROPERTIES["version"],
        "rabbitmq_version": SERVER_PROPERTIES["version"],
        "product_name": "Leveret",
        "product_version": VERSION,
        **exported_accounts(call.node),
        "parameters": [row for vhost in vhosts for row in _parameters(vhost)],
        "global_parameters": [
            {"name": name, "value": value} for name, value in call.node.global_parameters.items()
        ],
    }
    for section, rows in _SECTIONS.items():
        parts[section] = [row for vhost in vhosts for row in rows(vhost)]
    return _answer(call, parts)


async def _of_vhost(call: Call) -> Response:
    vhost = call.vhost()
    parts: Row = {"rabbit_version": SERVER_PROPERTIES["version"]}
    parts["parameters"] = _without_vhost(_parameters(vhost))
    for section, rows in _SECTIONS.items():
        parts[section] = _without_vhost(rows(vhost))
    return _answer(call, parts)


def _answer(call: Call, parts: Row) -> Response:
    headers = {}
    names = call.request.query.get("download", [""])
    if names[-1]:
        safe = "".join(c for c in names[-1] if c.isascii() and (c.isalnum() or c in "._-"))
        headers["Content-Disposition"] = f"attachment; filename={safe or 'definitions.json'}"
    return json_response(parts, headers=headers)


def _without_vhost(rows: list[Row]) -> list[Row]:
    return [{key: value for key, value in row.items() if key != "vhost"} for row in rows]


def _parameters(vhost: VHost) -> list[Row]:
    """Operators' policies and limits are among the parameters, in RabbitMQ's files."""
    limits = {"vhost": vhost.name, "component": "vhost-limits", "name": "limits"}
    limited = [{**limits, "value": dict(vhost.limits)}] if vhost.limits else []
    return limited + [
        {
            "vhost": vhost.name,
            "component": "operator_policy",
            "name": policy.name,
            "value": _policy_body(policy),
        }
        for policy in vhost.policies.sets["operator-policy"]
    ]


def _policies(vhost: VHost) -> list[Row]:
    return [
        {"vhost": vhost.name, "name": policy.name, **_policy_body(policy)}
        for policy in vhost.policies.sets["policy"]
    ]


def _policy_body(policy: Policy) -> Row:
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": dict(policy.definition),
        "priority": policy.priority,
    }


def _queues(vhost: VHost) -> list[Row]:
    """Without those of connections, which end with them."""
    return [
        {
            "name": queue.name,
            "vhost": vhost.name,
            "durable": queue.durable,
            "auto_delete": queue.auto_delete,
            "arguments": plain_value(altered(queue.arguments, queue.settings)),
        }
        for _, queue in sorted(vhost.queues.items())
        if queue.owner is None and queue.name not in INTERNAL
    ]


def _exchanges(vhost: VHost) -> list[Row]:
    return [
        {
            "name": exchange.name,
            "vhost": vhost.name,
            "type": exchange.type,
            "durable": exchange.durable,
            "auto_delete": exchange.auto_delete,
            "internal": exchange.internal,
            "arguments": plain_value(dict(exchange.arguments)),
        }
        for _, exchange in sorted(vhost.exchanges.items())
        if exchange.name and not exchange.name.startswith(RESERVED_PREFIX)
    ]


def _bindings(vhost: VHost) -> list[Row]:
    owned = {queue.name for queue in vhost.queues.values() if queue.owner is not None}
    rows: list[dict[str, Any]] = []
    for row in bindings_of(vhost):
        to_owned = row["destination_type"] == "queue" and row["destination"] in owned
        if row["source"] and not to_owned:
            del row["properties_key"]
            rows.append(row)
    return sorted(rows, key=lambda row: (row["source"], row["destination"], row["routing_key"]))


_SECTIONS = {
    "policies": _policies,
    "queues": _queues,
    "exchanges": _exchanges,
    "bindings": _bindings,
}
