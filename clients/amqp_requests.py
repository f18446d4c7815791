"""The arguments of requests, as both clients take them."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from clients.amqp_properties import Properties, PropertyArguments
from clients.amqp_publishing import Publish
from clients.amqp_topology import DeclaredQueue

Table: TypeAlias = Mapping[str, Any]
QueueName: TypeAlias = str | DeclaredQueue
PLAIN: Final = Properties()


def prepare(
    body: bytes,
    exchange: str,
    routing_key: QueueName,
    properties: Properties | None,
    others: PropertyArguments,
    *,
    mandatory: bool,
    resend: bool,
) -> Publish:
    """Raises TypeError for what is no body, and for properties that are given twice."""
    if isinstance(routing_key, DeclaredQueue):
        routing_key = routing_key.name
    if properties is None:
        properties = Properties(**others) if others else PLAIN
    elif others:
        raise TypeError("give `properties`, or properties one by one, but not both")
    if type(body) is not bytes:
        body = _as_bytes(body)
    return Publish(body, exchange, routing_key, properties, mandatory, resend)


def _as_bytes(body: object) -> bytes:
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    raise TypeError(f"a body is bytes, not {type(body).__name__}")


def queue_declaration(
    queue: str,
    *,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    passive: bool,
    arguments: Table | None,
) -> dict[str, Any]:
    """A queue without a name is for this connection only, and such a queue is not durable."""
    exclusive = exclusive or not queue
    return {
        "queue": queue,
        "durable": durable and not exclusive,
        "exclusive": exclusive,
        "auto_delete": auto_delete,
        "passive": passive,
        "arguments": arguments,
    }


def queue_binding(
    queue: QueueName, exchange: str, routing_key: str, arguments: Table | None
) -> dict[str, Any]:
    return {
        "queue": str(queue),
        "exchange": exchange,
        "routing_key": routing_key,
        "arguments": arguments,
    }


def exchange_binding(
    destination: str, source: str, routing_key: str, arguments: Table | None
) -> dict[str, Any]:
    return {
        "destination": destination,
        "source": source,
        "routing_key": routing_key,
        "arguments": arguments,
    }
