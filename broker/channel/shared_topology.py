"""exchange.* and queue.* in a cluster: asked of the catalog while the channel waits.

What exists is only looked at, behind a read barrier, so that a client that declares everything
anew whenever it connects writes nothing. With nowait the channel waits too: what follows must find
what was declared.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import uuid4

from pamqp import commands

from broker.channel.own_publishes import when_published
from broker.protocol.errors import AMQPError, ChannelError, not_implemented, precondition_failed
from broker.protocol.tables import Table
from queues.stream.stream import Stream

if TYPE_CHECKING:
    from pamqp.base import Frame

    from broker.channel.channel import Channel
    from broker.cluster.seams import Change, Definitions, Front
    from exchanges.exchange import Exchange
    from queues.seams import AnyQueue

T = TypeVar("T")


def is_clustered(channel: "Channel") -> bool:
    return channel.vhost.catalog is not None


def _catalog(channel: "Channel") -> "Definitions":
    catalog = channel.vhost.catalog
    assert catalog is not None
    return catalog


def _ask(
    channel: "Channel",
    method: "Frame",
    call: Callable[[Callable[[T | ChannelError], None]], None],
    then: Callable[[T], None],
) -> None:
    """Have the channel wait until `call` calls back, and go on with what it was given."""
    answers: list[T | ChannelError] = []

    def wait(resume: Callable[[], None]) -> None:
        def answered(answer: T | ChannelError) -> None:
            answers.append(answer)
            resume()

        call(answered)

    def go_on() -> None:
        (answer,) = answers
        if isinstance(answer, ChannelError):
            raise ChannelError(answer.code, answer.text, method=method.index)
        try:
            then(answer)
        except AMQPError as error:
            error.method = error.method or method.index
            raise

    channel.suspend(wait, go_on)


def _read(channel: "Channel", method: "Frame", then: Callable[[], None]) -> None:
    _ask(channel, method, _catalog(channel).read, lambda _: then())


def _change(
    channel: "Channel", method: "Frame", change: "Change", then: Callable[[], None]
) -> None:
    call = partial(_catalog(channel).request, change)
    _ask(channel, method, call, lambda _: then())


def _say(
    channel: "Channel", method: Any, kind: "type[Frame]", **arguments: object
) -> Callable[[], None]:
    """What to do at the end: answer, unless the client does not want that."""

    def say() -> None:
        if not getattr(method, "nowait", False):
            channel.send(kind, **arguments)

    return say


# Exchanges


def find_exchange(channel: "Channel", method: commands.Exchange.Declare, name: str) -> None:
    def found() -> None:
        channel.vhost.exchange(name)
        _say(channel, method, commands.Exchange.DeclareOk)()

    _read(channel, method, found)


def declare_exchange(channel: "Channel", method: commands.Exchange.Declare, name: str) -> None:
    vhost = channel.vhost
    say = _say(channel, method, commands.Exchange.DeclareOk)

    def declare() -> None:
        if name in vhost.exchanges:
            vhost.declare_exchange(  # which only compares
                name,
                method.exchange_type,
                durable=method.durable,
                auto_delete=method.auto_delete,
                internal=method.internal,
                arguments=method.arguments,
            )
            say()
        else:
            change = [
                *("exchange", vhost.name, name, method.exchange_type, method.auto_delete),
                *(method.internal, method.arguments, method.durable),
            ]
            _change(channel, method, change, say)

    if name in vhost.exchanges:
        _read(channel, method, declare)
    else:
        declare()


def delete_exchange(channel: "Channel", method: commands.Exchange.Delete) -> None:
    change = ["-exchange", channel.vhost.name, method.exchange, method.if_unused]
    _change(channel, method, change, _say(channel, method, commands.Exchange.DeleteOk))


def bind_exchange(channel: "Channel", method: commands.Exchange.Bind) -> None:
    say = _say(channel, method, commands.Exchange.BindOk)
    end = ("exchange", method.destination)
    _bind(channel, method, method.source, end, method.routing_key, say)


def unbind_exchange(channel: "Channel", method: commands.Exchange.Unbind) -> None:
    say = _say(channel, method, commands.Exchange.UnbindOk)
    end = ("exchange", method.destination)
    _unbind(channel, method, method.source, end, say)


# Bindings


def bind_queue(channel: "Channel", method: commands.Queue.Bind, name: str, key: str) -> None:
    say = _say(channel, method, commands.Queue.BindOk)
    _bind(channel, method, method.exchange, ("queue", name), key, say)


def unbind_queue(channel: "Channel", method: commands.Queue.Unbind, name: str) -> None:
    say = _say(channel, method, commands.Queue.UnbindOk)
    _unbind(channel, method, method.exchange, ("queue", name), say)


def _bind(
    channel: "Channel",
    method: Any,
    source: str,
    end: tuple[str, str],
    key: str,
    say: Callable[[], None],
) -> None:
    owner = _catalog(channel).owner_of(channel.link)
    user = None if owner is None else list(owner)
    change = ["binding", channel.vhost.name, source, *end, key, method.arguments, user]

    def bind() -> None:
        if _is_bound(channel, source, end, key, method.arguments):
            say()
        else:
            _change(channel, method, change, say)

    if _is_bound(channel, source, end, key, method.arguments):
        _read(channel, method, bind)
    else:
        bind()


def _is_bound(
    channel: "Channel", source: str, end: tuple[str, str], key: str, arguments: Table
) -> bool:
    vhost = channel.vhost
    what, name = end
    where: Mapping[str, AnyQueue | Exchange]
    where = vhost.queues if what == "queue" else vhost.exchanges
    exchange, destination = vhost.exchanges.get(source), where.get(name)
    if not source or exchange is None or destination is None:
        return False
    if what == "queue":
        vhost.queue_of(name, user_of=channel.link)
    return exchange.has_binding(destination, key, arguments)


def _unbind(
    channel: "Channel", method: Any, source: str, end: tuple[str, str], say: Callable[[], None]
) -> None:
    details = (channel.vhost.name, source, *end, method.routing_key, method.arguments)
    _change(channel, method, ["-binding", *details], say)


# Queues


def find_requester(
    channel: "Channel", method: commands.Queue.Declare, address: str, then: Callable[[bool], None]
) -> None:
    """Whether anybody, on whatever node, takes replies at this address."""
    replies = channel.vhost.replies
    assert replies is not None
    call = partial(replies.ask, channel.vhost.name, address)
    _ask(channel, method, call, then)


def find_queue(channel: "Channel", method: commands.Queue.Declare, name: str) -> None:
    def found() -> None:
        queue = channel.vhost.queue(name, user_of=channel.link)
        queue.touch()
        _tell_counts(channel, method, queue)

    _read(channel, method, found)


def declare_queue(channel: "Channel", method: commands.Queue.Declare, name: str) -> None:
    vhost, catalog = channel.vhost, _catalog(channel)
    owner = catalog.claim(channel.link) if method.exclusive else None

    def declare() -> None:
        if name not in vhost.queues:
            _make_queue(channel, method, name)
            return
        queue = vhost.declare_queue(  # which only compares
            name,
            durable=method.durable,
            auto_delete=method.auto_delete,
            owner=owner,
            arguments=method.arguments,
            user_of=catalog.owner_of(channel.link),
        )
        _tell_counts(channel, method, queue)

    if name in vhost.queues:
        _read(channel, method, declare)
    else:
        declare()


def _make_queue(channel: "Channel", method: commands.Queue.Declare, name: str) -> None:
    vhost, catalog = channel.vhost, _catalog(channel)
    exclusive = bool(method.exclusive)
    options = vhost.options_for_new(
        name,
        method.arguments,
        durable=method.durable,
        auto_delete=method.auto_delete,
        exclusive=exclusive,
    )
    lasting = method.durable and not exclusive
    placement = catalog.place(options, method.arguments, lasting=lasting)
    owner = list(catalog.claim(channel.link)) if exclusive else None
    uid = uuid4().bytes
    change = [
        *("queue", vhost.name, name, uid, method.auto_delete, options.type, method.arguments),
        *(method.durable, owner, placement.encode()),
    ]

    def made() -> None:
        queue = vhost.queues.get(name)
        if queue is None or queue.uid == uid:  # new, or deleted again since
            _declared(channel, method, name, 0, 0)
        else:  # somebody else was first
            _tell_counts(channel, method, queue)

    _change(channel, method, change, made)


def _tell_counts(channel: "Channel", method: commands.Queue.Declare, queue: "AnyQueue") -> None:
    name = queue.name
    if method.nowait:
        channel.last_queue = name
    elif isinstance(queue, Stream):
        _declared(channel, method, name, queue.ready, queue.consumer_count)
    else:
        front = cast("Front", queue)

        def call(then: Callable[[tuple[int, int] | ChannelError], None]) -> None:
            front.counts(lambda ready, consumers: then((ready, consumers)))

        def look() -> None:
            _ask(channel, method, call, lambda counts: _declared(channel, method, name, *counts))

        when_published(channel, method, queue, look)


def _declared(
    channel: "Channel", method: commands.Queue.Declare, name: str, ready: int, consumers: int
) -> None:
    channel.last_queue = name
    counts = {"message_count": ready, "consumer_count": consumers}
    _say(channel, method, commands.Queue.DeclareOk, queue=name, **counts)()


def purge_queue(channel: "Channel", method: commands.Queue.Purge, name: str) -> None:
    def purged(count: int) -> None:
        _say(channel, method, commands.Queue.PurgeOk, message_count=count)()

    def purge() -> None:
        queue = channel.vhost.queue(name, user_of=channel.link)
        if isinstance(queue, Stream):
            raise not_implemented("queue.purge not supported by stream queues")

        def look() -> None:
            _ask(channel, method, cast("Front", queue).purge, purged)

        when_published(channel, method, queue, look)

    _read(channel, method, purge)


def delete_queue(channel: "Channel", method: commands.Queue.Delete, name: str) -> None:
    vhost = channel.vhost
    conditional = bool(method.if_unused or method.if_empty)

    def delete() -> None:
        if name not in vhost.queues:  # deleting what is not there is fine
            _say(channel, method, commands.Queue.DeleteOk, message_count=0)()
            return
        queue = vhost.queue_of(name, user_of=channel.link)
        if isinstance(queue, Stream) or queue.damaged is not None:
            _check_here(channel, method, queue)
            drop(queue, 0 if queue.damaged is not None else queue.ready)
            return

        def check(then: Callable[[int | ChannelError], None]) -> None:
            def checked(answer: int | ChannelError) -> None:
                # A queue that nobody can reach, or is gone meanwhile, can be deleted all the same.
                unanswered = isinstance(answer, ChannelError)
                gone = vhost.queues.get(name) is not queue
                then(0 if unanswered and (gone or not conditional) else answer)

            cast("Front", queue).check_delete(
                if_unused=bool(method.if_unused), if_empty=bool(method.if_empty), then=checked
            )

        def look() -> None:
            _ask(channel, method, check, lambda count: drop(queue, count))

        when_published(channel, method, queue, look)

    def drop(queue: "AnyQueue", count: int) -> None:
        change = ["-queue", vhost.name, name, queue.uid]
        answer = _say(channel, method, commands.Queue.DeleteOk, message_count=count)

        def say() -> None:
            answer()
            channel.say_cancels()

        channel.hold_cancels()
        _change(channel, method, change, say)

    _read(channel, method, delete)


def _check_here(channel: "Channel", method: commands.Queue.Delete, queue: "AnyQueue") -> None:
    thing = f"queue '{queue.name}' in vhost '{channel.vhost.name}'"
    if method.if_unused and queue.consumer_count:
        raise precondition_failed(f"{thing} in use")
    if method.if_empty and (queue.damaged is not None or not queue.is_empty):
        raise precondition_failed(f"{thing} not empty")
