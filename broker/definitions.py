"""A vhost's durable definitions as recorded changes (see broker.journal), and the way back."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from broker.policies import Kind, Policy
from broker.policy_store import change_of
from broker.protocol.tables import Table
from broker.vhost import RESERVED_PREFIX, VHost, is_durable
from exchanges.exchange import Exchange
from queues.declared import parse_arguments
from queues.seams import AnyQueue
from queues.stream.names import INTERNAL


def durable_definitions(vhost: VHost) -> Iterator[list[object]]:
    """Changes that make what is durable in a vhost from nothing."""
    exchanges = [e for e in vhost.exchanges.values() if e.durable and e is not vhost.default]
    for exchange in exchanges:
        if not exchange.name.startswith(RESERVED_PREFIX):
            yield [
                *("exchange", vhost.name, exchange.name, exchange.type),
                *(exchange.auto_delete, exchange.internal, exchange.arguments),
            ]
    for queue in vhost.queues.values():
        if is_durable(queue):
            yield [
                *("queue", vhost.name, queue.name, queue.uid),
                *(queue.auto_delete, queue.options.type, queue.arguments),
            ]
            if queue.settings:
                yield ["settings", vhost.name, queue.name, queue.uid, queue.settings]
    for exchange in exchanges:
        for binding in exchange.bindings():
            destination = cast("AnyQueue | Exchange", binding.destination)
            if is_durable(destination):
                what = "exchange" if isinstance(destination, Exchange) else "queue"
                yield [
                    *("binding", vhost.name, exchange.name, what, destination.name),
                    *(binding.key, binding.arguments),
                ]
    for kind, policies in vhost.policies.sets.items():
        for policy in policies:
            yield [kind, vhost.name, *change_of(policy)]


def replay(vhost: VHost, change: list[Any]) -> None:
    """Make a recorded change again, at a start. Making it twice changes nothing.

    Policies take effect when all changes are made: the caller sees to it.
    """
    kind, _, *details = change
    if kind == "exchange":
        _replay_exchange(vhost, details)
    elif kind == "queue":
        _replay_queue(vhost, details)
    elif kind == "-exchange":
        exchange = vhost.exchanges.get(details[0])
        if exchange is not None:
            _unbind_quietly(vhost, exchange)
            vhost.drop_exchange(exchange)
    elif kind == "-queue":
        queue = vhost.queues.get(details[0])
        if queue is not None:
            _unbind_quietly(vhost, queue)
            vhost.drop_queue(queue)
    elif kind == "settings":
        _replay_settings(vhost, *details)
    elif kind in ("binding", "-binding"):
        _replay_binding(vhost, kind, *details)
    elif kind.removeprefix("-") in vhost.policies.sets:
        _replay_policy(vhost, kind, *details)
    else:
        raise ValueError(f"unknown change {kind!r} among the definitions")


def _unbind_quietly(vhost: VHost, destination: AnyQueue | Exchange) -> None:
    """An auto-delete exchange that went with its last binding is recorded as a change by itself.

    One that did not may have had a binding that is not among the durable ones.
    """
    for exchange in vhost.exchanges.values():
        if exchange.auto_delete:
            exchange.unbind_all(destination)


def _replay_exchange(vhost: VHost, details: list[Any]) -> None:
    name, kind, auto_delete, internal, arguments = details
    if name not in vhost.exchanges:
        vhost.exchanges[name] = Exchange(
            name,
            kind,
            durable=True,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
        )


def _replay_queue(vhost: VHost, details: list[Any]) -> None:
    name, uid, auto_delete, queue_type, arguments = details
    if name not in vhost.queues:
        queue = vhost.make_queue(
            name,
            parse_arguments(arguments, default=queue_type),
            arguments,
            durable=True,
            auto_delete=auto_delete,
            owner=None,
        )
        queue.uid = uid


def _replay_settings(vhost: VHost, name: str, uid: bytes, settings: Table) -> None:
    """They take effect with the policies."""
    queue = vhost.queues.get(name)
    if queue is not None and queue.uid == uid:
        queue.settings = settings


def _replay_binding(
    vhost: VHost, kind: str, source: str, what: str, name: str, key: str, arguments: Table
) -> None:
    exchange = vhost.exchanges.get(source)
    where: Mapping[str, AnyQueue | Exchange] = vhost.queues if what == "queue" else vhost.exchanges
    destination = where.get(name)
    if exchange is None or destination is None or name in INTERNAL:
        return  # older versions could be made to bind one of the broker's own
    if kind == "binding":
        vhost.add_binding(exchange, destination, key, arguments)
    else:
        exchange.unbind(destination, key, arguments)


def _replay_policy(vhost: VHost, change: str, name: str, *details: Any) -> None:
    kind = cast("Kind", change.removeprefix("-"))
    if change == kind:
        vhost.policies.sets[kind].put(Policy.make(name, *details))
    else:
        vhost.policies.sets[kind].remove(name)
