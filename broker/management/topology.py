"""Queues, exchanges and bindings made and deleted over HTTP: on this node, or through the catalog.

Permissions are those that AMQP asks for, and so are the mistakes: ChannelError, with its text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from broker.cluster.front import QueueFront
from broker.http.auth import require_entry
from broker.management.access import must
from broker.protocol.errors import ChannelError, access_refused, precondition_failed
from broker.security.checks import (
    Resource,
    check_binding,
    check_new_exchange,
    check_new_queue,
)
from broker.vhost import RESERVED_PREFIX
from exchanges.exchange import Exchange
from exchanges.kinds import is_known
from queues.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.cluster.seams import Definitions
    from broker.http.admin import Call
    from broker.protocol.tables import Table
    from broker.vhost import VHost
    from exchanges.exchange import Binding
    from queues.seams import AnyQueue


async def up_to_date(call: Call, vhost: VHost) -> None:
    """What another node of a cluster has answered is known here."""
    if vhost.catalog is not None:
        await call.succeeds(vhost.catalog.read)


async def declare_queue(
    call: Call, name: str, *, durable: bool, auto_delete: bool, arguments: Table
) -> bool:
    """Whether it is new."""
    vhost = call.vhost()
    vhost.refuse_internal(name)
    if name.startswith(RESERVED_PREFIX):
        raise access_refused(f"queue name '{name}' contains reserved prefix 'amq.*'")
    must(call, "configure", name)
    await up_to_date(call, vhost)
    is_new = name not in vhost.queues
    if is_new:
        check_new_queue(call.user, vhost.name, name, arguments)
        vhost.admit_definition()
    if is_new and vhost.catalog is not None:
        await _place(call, vhost, vhost.catalog, name, durable, auto_delete, arguments)
    else:
        vhost.declare_queue(  # which only compares, where it is there
            name,
            durable=durable,
            auto_delete=auto_delete,
            owner=None,
            arguments=arguments,
            user_of=call,
        )
        await call.happens(vhost.when_durable)
    return is_new


async def _place(
    call: Call,
    vhost: VHost,
    catalog: Definitions,
    name: str,
    durable: bool,  # noqa: FBT001 - fields of a change
    auto_delete: bool,  # noqa: FBT001
    arguments: Table,
) -> None:
    options = vhost.options_for_new(
        name, arguments, durable=durable, auto_delete=auto_delete, exclusive=False
    )
    placement = catalog.place(options, arguments, lasting=durable)
    change = [
        *("queue", vhost.name, name, uuid4().bytes, auto_delete, options.type, arguments),
        *(durable, None, placement.encode()),
    ]
    await call.changes(catalog, change)


async def delete_queue(call: Call, queue: AnyQueue, *, if_unused: bool, if_empty: bool) -> None:
    vhost = call.vhost()
    vhost.refuse_internal(queue.name)
    must(call, "configure", queue.name)
    if vhost.catalog is None:
        vhost.delete_queue(queue.name, if_unused=if_unused, if_empty=if_empty, user_of=call)
        await call.happens(vhost.when_durable)
        return
    vhost.queue_of(queue.name, user_of=call)
    if isinstance(queue, QueueFront) and queue.damaged is None:
        await _check_delete(call, queue, if_unused=if_unused, if_empty=if_empty)
    else:
        _check_here(vhost, queue, if_unused=if_unused, if_empty=if_empty)
    await call.changes(vhost.catalog, ["-queue", vhost.name, queue.name, queue.uid])


async def _check_delete(call: Call, front: QueueFront, *, if_unused: bool, if_empty: bool) -> None:
    answers: list[int | ChannelError] = []

    def ask(then: Callable[[], None]) -> None:
        def answered(answer: int | ChannelError) -> None:
            answers.append(answer)
            then()

        front.check_delete(if_unused=if_unused, if_empty=if_empty, then=answered)

    await call.happens(ask)
    if isinstance(answers[0], ChannelError) and (if_unused or if_empty):
        raise answers[0]


def _check_here(vhost: VHost, queue: AnyQueue, *, if_unused: bool, if_empty: bool) -> None:
    thing = f"queue '{queue.name}' in vhost '{vhost.name}'"
    if if_unused and queue.consumer_count:
        raise precondition_failed(f"{thing} in use")
    if if_empty and (queue.damaged is not None or not queue.is_empty):
        raise precondition_failed(f"{thing} not empty")


async def purge_queue(call: Call, queue: AnyQueue) -> None:
    must(call, "read", queue.name)
    call.vhost().queue(queue.name, user_of=call)
    if isinstance(queue, QueueFront):
        front = queue
        answers: list[int | ChannelError] = []

        def ask(then: Callable[[], None]) -> None:
            def purged(answer: int | ChannelError) -> None:
                answers.append(answer)
                then()

            front.purge(purged)

        await call.happens(ask)
        if isinstance(answers[0], ChannelError):
            raise answers[0]
    elif isinstance(queue, Queue):
        queue.purge()
        await call.happens(call.vhost().when_stored)
    else:
        thing = f"queue '{queue.name}' in vhost '{call.vhost().name}'"
        raise precondition_failed(f"queue.purge not supported by stream queues {thing}")


# Exchanges


async def declare_exchange(
    call: Call,
    name: str,
    kind: str,
    *,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Table,
) -> bool:
    """Whether it is new."""
    vhost = call.vhost()
    if not is_known(kind):
        raise precondition_failed(f"invalid exchange type '{kind}'")
    must(call, "configure", name, kind="exchange")
    await up_to_date(call, vhost)
    is_new = name not in vhost.exchanges
    if is_new:
        check_new_exchange(call.user, vhost.name, name, arguments)
        vhost.admit_definition()
    if is_new and vhost.catalog is not None:
        details = (name, kind, auto_delete, internal, arguments, durable)
        await call.changes(vhost.catalog, ["exchange", vhost.name, *details])
    else:
        vhost.declare_exchange(
            name,
            kind,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
        )
        await call.happens(vhost.when_durable)
    return is_new


async def delete_exchange(call: Call, name: str, *, if_unused: bool) -> None:
    vhost = call.vhost()
    must(call, "configure", name, kind="exchange")
    if vhost.catalog is not None:
        await call.changes(vhost.catalog, ["-exchange", vhost.name, name, if_unused])
    else:
        vhost.delete_exchange(name, if_unused=if_unused)
        await call.happens(vhost.when_durable)


# Bindings


async def bind(
    call: Call, source: str, destination: AnyQueue | Exchange, key: str, arguments: Table
) -> None:
    vhost = call.vhost()
    end = _end_of(call, source, destination, key)
    vhost.admit_binding(source, destination, key, arguments)
    if vhost.catalog is not None:
        await call.changes(
            vhost.catalog, ["binding", vhost.name, source, *end, key, arguments, None]
        )
    else:
        vhost.bind(source, destination, key, arguments)
        await call.happens(vhost.when_durable)


async def unbind(call: Call, source: Exchange, binding: Binding) -> None:
    vhost = call.vhost()
    destination = cast("AnyQueue | Exchange", binding.destination)
    end = _end_of(call, source.name, destination, binding.key)
    arguments: Any = dict(binding.arguments)
    if vhost.catalog is not None:
        change = ["-binding", vhost.name, source.name, *end, binding.key, arguments]
        await call.changes(vhost.catalog, change)
    else:
        vhost.unbind(source.name, destination, binding.key, arguments)
        await call.happens(vhost.when_durable)


def _end_of(
    call: Call, source: str, destination: AnyQueue | Exchange, key: str
) -> tuple[Resource, str]:
    """What a binding leads to, if the caller may change it."""
    kind: Resource = "exchange" if isinstance(destination, Exchange) else "queue"
    vhost = call.vhost()
    if not source or not destination.name:
        raise access_refused("operation not permitted on the default exchange")
    if not isinstance(destination, Exchange):
        vhost.refuse_internal(destination.name)
        vhost.queue(destination.name, user_of=call)
    require_entry(call.user, vhost.name)
    end = (kind, destination.name)
    check_binding(call.user, vhost.name, source, end, key, vhost.exchanges)
    return end
