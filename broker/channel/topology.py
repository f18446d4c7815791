"""exchange.* and queue.*: declare, delete, bind, unbind, purge."""

import base64
import os
from typing import TYPE_CHECKING

from pamqp import commands

from broker.auth import Action
from broker.protocol.errors import access_refused, not_found, precondition_failed
from broker.routes import REPLY_TO
from broker.vhost import RESERVED_PREFIX, SERVER_NAMED

if TYPE_CHECKING:
    from pamqp.base import Frame

    from broker.channel.channel import Channel
    from exchanges.exchange import Exchange
    from queues.queue import Queue


def random_name(prefix: str) -> str:
    """A name that nobody has: `amq.gen-` or `amq.ctag-` and 128 random bits."""
    return prefix + base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")


def without_line_ends(name: str) -> str:
    """Declared names lose CR and LF, as in RabbitMQ: they come from files read line by line."""
    return name.replace("\r", "").replace("\n", "")


def authorize(channel: "Channel", action: Action, resource: str, name: str) -> None:
    """Raise 403 unless the user may do this to the queue or exchange."""
    vhost = channel.vhost.name
    if not channel.user.may(vhost, action, name):
        text = f"{action} access to {resource} '{name}' in vhost '{vhost}' refused"
        raise access_refused(f"{text} for user '{channel.user.name}'")


def answer(channel: "Channel", kind: "type[Frame]", **arguments: object) -> None:
    """Say ok; where definitions are on their way to the disk, only when they are safe there."""
    if channel.vhost.definitions_pending:
        channel.when_durable(lambda: channel.send(kind, **arguments))
    else:
        channel.send(kind, **arguments)


def queue_name(channel: "Channel", name: str) -> str:
    """An empty name stands for the queue declared last on this channel."""
    if name:
        return name
    if channel.last_queue is None:
        raise not_found("no previously declared queue")
    return channel.last_queue


def own_queue(channel: "Channel", name: str) -> "Queue":
    """A queue that this connection may use."""
    return channel.vhost.queue(queue_name(channel, name), user_of=channel.link)


# Exchanges


def exchange_declare(channel: "Channel", method: commands.Exchange.Declare) -> None:
    name = without_line_ends(method.exchange)
    if method.passive:
        if not name:
            raise access_refused("operation not permitted on the default exchange")
        channel.vhost.exchange(name)
    else:
        authorize(channel, "configure", "exchange", name)
        alternate = method.arguments.get("alternate-exchange")
        if isinstance(alternate, str):
            authorize(channel, "read", "exchange", name)
            authorize(channel, "write", "exchange", alternate)
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
    channel.vhost.delete_exchange(method.exchange, if_unused=method.if_unused)
    if not method.nowait:
        answer(channel, commands.Exchange.DeleteOk)


def _exchange_pair(
    channel: "Channel", method: commands.Exchange.Bind | commands.Exchange.Unbind
) -> "Exchange":
    authorize(channel, "write", "exchange", method.destination)
    authorize(channel, "read", "exchange", method.source)
    if not method.destination or not method.source:
        raise access_refused("operation not permitted on the default exchange")
    return channel.vhost.exchange(method.destination)


def exchange_bind(channel: "Channel", method: commands.Exchange.Bind) -> None:
    destination = _exchange_pair(channel, method)
    channel.vhost.bind(method.source, destination, method.routing_key, method.arguments)
    if not method.nowait:
        answer(channel, commands.Exchange.BindOk)


def exchange_unbind(channel: "Channel", method: commands.Exchange.Unbind) -> None:
    if method.destination not in channel.vhost.exchanges:
        authorize(channel, "write", "exchange", method.destination)
    else:
        destination = _exchange_pair(channel, method)
        channel.vhost.unbind(method.source, destination, method.routing_key, method.arguments)
    if not method.nowait:
        answer(channel, commands.Exchange.UnbindOk)


# Queues


def queue_declare(channel: "Channel", method: commands.Queue.Declare) -> None:
    if method.queue.startswith(REPLY_TO):
        _declare_reply_to(channel, method)
        return
    if method.passive:
        queue = channel.vhost.queue(method.queue or channel.last_queue or "", user_of=channel.link)
        queue.touch()
    else:
        queue = _make_queue(channel, method)
    channel.last_queue = queue.name
    if not method.nowait:
        answer(
            channel,
            commands.Queue.DeclareOk,
            queue=queue.name,
            message_count=queue.ready,
            consumer_count=queue.consumer_count,
        )


def _make_queue(channel: "Channel", method: commands.Queue.Declare) -> "Queue":
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
    authorize(channel, "configure", "queue", name)
    dead_letters_to = method.arguments.get("x-dead-letter-exchange")
    if isinstance(dead_letters_to, str):
        authorize(channel, "read", "queue", name)
        authorize(channel, "write", "exchange", dead_letters_to)
    return channel.vhost.declare_queue(
        name,
        durable=method.durable,
        auto_delete=method.auto_delete,
        owner=channel.link if method.exclusive else None,
        arguments=method.arguments,
        user_of=channel.link,
    )


def _declare_reply_to(channel: "Channel", method: commands.Queue.Declare) -> None:
    """Asking whether a reply address is alive: clients do that by declaring it."""
    name = method.queue
    if name != REPLY_TO and name not in channel.vhost.reply_targets:
        raise not_found(f"no queue '{name}' in vhost '{channel.vhost.name}'")
    if not method.nowait:
        channel.send(commands.Queue.DeclareOk, queue=name, message_count=0, consumer_count=1)


def queue_bind(channel: "Channel", method: commands.Queue.Bind) -> None:
    queue = own_queue(channel, method.queue)
    authorize(channel, "write", "queue", queue.name)
    authorize(channel, "read", "exchange", method.exchange)
    key = method.routing_key
    if not method.queue and not key:
        key = queue.name  # the specification's default for a queue that was not named either
    channel.vhost.bind(method.exchange, queue, key, method.arguments)
    if not method.nowait:
        answer(channel, commands.Queue.BindOk)


def queue_unbind(channel: "Channel", method: commands.Queue.Unbind) -> None:
    name = queue_name(channel, method.queue)
    authorize(channel, "write", "queue", name)
    authorize(channel, "read", "exchange", method.exchange)
    if not method.exchange:
        raise access_refused("operation not permitted on the default exchange")
    queue = channel.vhost.queues.get(name)
    if queue is not None:
        channel.vhost.unbind(method.exchange, queue, method.routing_key, method.arguments)
    answer(channel, commands.Queue.UnbindOk)


def queue_purge(channel: "Channel", method: commands.Queue.Purge) -> None:
    queue = own_queue(channel, method.queue)
    authorize(channel, "read", "queue", queue.name)
    count = queue.purge()
    if not method.nowait:
        # As with an ack, what was purged must not come back once the client knows it is gone.
        channel.suspend(
            channel.vhost.when_stored,
            lambda: channel.send(commands.Queue.PurgeOk, message_count=count),
        )


def queue_delete(channel: "Channel", method: commands.Queue.Delete) -> None:
    name = queue_name(channel, method.queue)
    authorize(channel, "configure", "queue", name)
    count = channel.vhost.delete_queue(
        name, if_unused=method.if_unused, if_empty=method.if_empty, user_of=channel.link
    )
    if not method.nowait:
        answer(channel, commands.Queue.DeleteOk, message_count=count)
