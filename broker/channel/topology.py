"""exchange.* and queue.*: declare, delete, bind, unbind, purge."""

import base64
import os
from typing import TYPE_CHECKING

from pamqp import commands

from broker.channel import shared_topology as shared
from broker.channel.own_publishes import when_published
from broker.channel.streaming import fifo
from broker.declaring import SERVER_NAMED
from broker.protocol.errors import access_refused, not_found, precondition_failed
from broker.routes import REPLY_TO
from broker.security.checks import (
    Resource,
    check,
    check_binding,
    check_new_exchange,
    check_new_queue,
)
from broker.security.permissions import Action
from broker.vhost import RESERVED_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from pamqp.base import Frame

    from broker.channel.channel import Channel
    from queues.seams import AnyQueue


def random_name(prefix: str) -> str:
    """A name that nobody has: `amq.gen-` or `amq.ctag-` and 128 random bits."""
    return prefix + base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")


def without_line_ends(name: str) -> str:
    """Declared names lose CR and LF, as in RabbitMQ: they come from files read line by line."""
    return name.replace("\r", "").replace("\n", "")


def authorize(channel: "Channel", action: Action, resource: Resource, name: str) -> None:
    """Raise 403 unless the user may do this to the queue or exchange."""
    check(channel.user, channel.vhost.name, action, resource, name)


def _authorize_binding(
    channel: "Channel", source: str, destination: tuple[Resource, str], key: str
) -> None:
    vhost = channel.vhost
    check_binding(channel.user, vhost.name, source, destination, key, vhost.exchanges)


def answer(channel: "Channel", kind: "type[Frame]", **arguments: object) -> None:
    """Say ok; where definitions are on their way to the disk, only when they are safe there."""
    _when_safe(channel, lambda: channel.send(kind, **arguments))


def _when_safe(channel: "Channel", action: "Callable[[], None]") -> None:
    if channel.vhost.definitions_pending:
        channel.when_durable(action)
    else:
        action()


def queue_name(channel: "Channel", name: str) -> str:
    """An empty name stands for the queue declared last on this channel."""
    if name:
        return name
    if channel.last_queue is None:
        raise not_found("no previously declared queue")
    return channel.last_queue


def own_queue(channel: "Channel", name: str) -> "AnyQueue":
    """A queue that this connection may use."""
    return channel.vhost.queue(queue_name(channel, name), user_of=channel.link)


# Exchanges


def exchange_declare(channel: "Channel", method: commands.Exchange.Declare) -> None:
    name = without_line_ends(method.exchange)
    if method.passive:
        if not name:
            raise access_refused("operation not permitted on the default exchange")
        if shared.is_clustered(channel):
            shared.find_exchange(channel, method, name)
            return
        channel.vhost.exchange(name)
    else:
        authorize(channel, "configure", "exchange", name)
        if name not in channel.vhost.exchanges:
            check_new_exchange(channel.user, channel.vhost.name, name, method.arguments)
            channel.vhost.admit_definition()
        if shared.is_clustered(channel):
            shared.declare_exchange(channel, method, name)
            return
        channel.vhost.declare_exchange(
            name,
            method.exchange_type,
            durable=method.durable,
            auto_delete=method.auto_delete,
            internal=method.internal,
            arguments=method.arguments,
        )
    if not method.nowait:
        answer(channel, commands.Exchange.DeclareOk)


def exchange_delete(channel: "Channel", method: commands.Exchange.Delete) -> None:
    authorize(channel, "configure", "exchange", method.exchange)
    if shared.is_clustered(channel):
        shared.delete_exchange(channel, method)
        return
    channel.vhost.delete_exchange(method.exchange, if_unused=method.if_unused)
    if not method.nowait:
        answer(channel, commands.Exchange.DeleteOk)


def _authorize_pair(
    channel: "Channel", method: commands.Exchange.Bind | commands.Exchange.Unbind
) -> None:
    end: tuple[Resource, str] = ("exchange", method.destination)
    _authorize_binding(channel, method.source, end, method.routing_key)
    if not method.destination or not method.source:
        raise access_refused("operation not permitted on the default exchange")


def exchange_bind(channel: "Channel", method: commands.Exchange.Bind) -> None:
    _authorize_pair(channel, method)
    there = channel.vhost.exchanges.get(method.destination)
    channel.vhost.admit_binding(method.source, there, method.routing_key, method.arguments)
    if shared.is_clustered(channel):
        shared.bind_exchange(channel, method)
        return
    destination = channel.vhost.exchange(method.destination)
    channel.vhost.bind(method.source, destination, method.routing_key, method.arguments)
    if not method.nowait:
        answer(channel, commands.Exchange.BindOk)


def exchange_unbind(channel: "Channel", method: commands.Exchange.Unbind) -> None:
    if shared.is_clustered(channel):
        _authorize_pair(channel, method)
        shared.unbind_exchange(channel, method)
        return
    _authorize_pair(channel, method)
    destination = channel.vhost.exchanges.get(method.destination)
    if destination is not None:
        channel.vhost.unbind(method.source, destination, method.routing_key, method.arguments)
    if not method.nowait:
        answer(channel, commands.Exchange.UnbindOk)


# Queues


def queue_declare(channel: "Channel", method: commands.Queue.Declare) -> None:
    if method.queue.startswith(REPLY_TO):
        _declare_reply_to(channel, method)
        return
    if method.passive:
        name = method.queue or channel.last_queue or ""
        if shared.is_clustered(channel):
            shared.find_queue(channel, method, name)
            return
        queue = channel.vhost.queue(name, user_of=channel.link)
        queue.touch()
    else:
        name = _new_name(channel, method)
        if method.exclusive:
            method.durable = False  # it ends with its connection, whatever the client says
        if shared.is_clustered(channel):
            shared.declare_queue(channel, method, name)
            return
        queue = channel.vhost.declare_queue(
            name,
            durable=method.durable,
            auto_delete=method.auto_delete,
            owner=channel.link if method.exclusive else None,
            arguments=method.arguments,
            user_of=channel.link,
        )
    channel.last_queue = queue.name

    def say() -> None:
        answer(
            channel,
            commands.Queue.DeclareOk,
            queue=queue.name,
            message_count=queue.ready,
            consumer_count=queue.consumer_count,
        )

    if not method.nowait:
        when_published(channel, method, queue, say)


def _new_name(channel: "Channel", method: commands.Queue.Declare) -> str:
    """The name to declare, if the user may declare this."""
    name = without_line_ends(method.queue)
    if not name:
        queue_type = method.arguments.get("x-queue-type", "classic")
        if queue_type != "classic":
            raise precondition_failed(
                f"Cannot declare a server-named queue for type {queue_type!s}"
            )
        name = random_name(SERVER_NAMED)
    elif name.startswith(RESERVED_PREFIX):
        raise access_refused(f"queue name '{name}' contains reserved prefix 'amq.*'")
    channel.vhost.refuse_internal(name)
    authorize(channel, "configure", "queue", name)
    if name not in channel.vhost.queues:
        check_new_queue(channel.user, channel.vhost.name, name, method.arguments)
        if not (method.exclusive or method.auto_delete):  # consumers that drain a node need them
            channel.vhost.admit_definition()
    return name


def _declare_reply_to(channel: "Channel", method: commands.Queue.Declare) -> None:
    """Asking whether a reply address is alive: clients do that by declaring it."""
    name = method.queue

    def say(alive: bool) -> None:  # noqa: FBT001 - it may be another node's answer
        if not alive:
            raise not_found(f"no queue '{name}' in vhost '{channel.vhost.name}'")
        if not method.nowait:
            channel.send(commands.Queue.DeclareOk, queue=name, message_count=0, consumer_count=1)

    here = name == REPLY_TO or name in channel.vhost.reply_targets
    if here or channel.vhost.replies is None:
        say(here)
    else:
        shared.find_requester(channel, method, name, say)


def queue_bind(channel: "Channel", method: commands.Queue.Bind) -> None:
    name = queue_name(channel, method.queue)
    channel.vhost.refuse_internal(name)
    key = method.routing_key
    if not method.queue and not key:
        key = name  # the specification's default for a queue that was not named either
    _authorize_binding(channel, method.exchange, ("queue", name), key)
    there = channel.vhost.queues.get(name)
    channel.vhost.admit_binding(method.exchange, there, key, method.arguments)
    if shared.is_clustered(channel):
        shared.bind_queue(channel, method, name, key)
        return
    queue = own_queue(channel, name)
    channel.vhost.bind(method.exchange, queue, key, method.arguments)
    if not method.nowait:
        answer(channel, commands.Queue.BindOk)


def queue_unbind(channel: "Channel", method: commands.Queue.Unbind) -> None:
    name = queue_name(channel, method.queue)
    _authorize_binding(channel, method.exchange, ("queue", name), method.routing_key)
    if not method.exchange:
        raise access_refused("operation not permitted on the default exchange")
    if name in channel.vhost.queues:
        channel.vhost.queue_of(name, user_of=channel.link)  # an exclusive one is its owner's
    if shared.is_clustered(channel):
        shared.unbind_queue(channel, method, name)
        return
    queue = channel.vhost.queues.get(name)
    if queue is not None:
        channel.vhost.unbind(method.exchange, queue, method.routing_key, method.arguments)
    answer(channel, commands.Queue.UnbindOk)


def queue_purge(channel: "Channel", method: commands.Queue.Purge) -> None:
    name = queue_name(channel, method.queue)
    authorize(channel, "read", "queue", name)
    if shared.is_clustered(channel):
        shared.purge_queue(channel, method, name)
        return

    def purge() -> None:
        count = fifo(own_queue(channel, name), "queue.purge").purge()
        if not method.nowait:
            # As with an ack, what was purged must not come back once the client knows it is gone.
            channel.suspend(
                channel.vhost.when_stored,
                lambda: channel.send(commands.Queue.PurgeOk, message_count=count),
            )

    when_published(channel, method, own_queue(channel, name), purge)


def queue_delete(channel: "Channel", method: commands.Queue.Delete) -> None:
    name = queue_name(channel, method.queue)
    channel.vhost.refuse_internal(name)
    authorize(channel, "configure", "queue", name)
    if shared.is_clustered(channel):
        shared.delete_queue(channel, method, name)
        return
    queue = channel.vhost.queues.get(name)

    def delete() -> None:
        channel.hold_cancels()
        count = channel.vhost.delete_queue(
            name, if_unused=method.if_unused, if_empty=method.if_empty, user_of=channel.link
        )

        def say() -> None:
            channel.send(commands.Queue.DeleteOk, message_count=count)
            channel.say_cancels()

        if method.nowait:
            channel.say_cancels()
        else:
            _when_safe(channel, say)

    if queue is None:
        delete()
    else:
        when_published(channel, method, queue, delete)
