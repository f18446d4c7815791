"""Whether a queue may be declared as it is, and whether it is the one that exists."""

from typing import Final

from broker.equivalence import check_arguments, check_property
from broker.protocol.errors import ChannelError, precondition_failed, resource_locked
from broker.protocol.tables import Table
from queues.arguments import InvalidArgumentError
from queues.declared import EQUIVALENCE_ARGUMENTS, Options, parse_arguments
from queues.options import altered, default_type
from queues.seams import AnyQueue

SERVER_NAMED: Final = "amq.gen-"

_LOCKED: Final = (
    "cannot obtain exclusive access to locked {}. It could be originally declared on another "
    "connection or the exclusive property value does not match that of the original declaration."
)


def is_server_named(queue: str) -> bool:
    return queue.startswith(SERVER_NAMED)


def locked(thing: str) -> Exception:
    """`thing` is e.g. `queue 'q' in vhost '/'`; another connection owns it."""
    return resource_locked(_LOCKED.format(thing))


def options_for(
    name: str,
    thing: str,
    arguments: Table,
    *,
    durable: bool,
    auto_delete: bool,
    exclusive: bool,
) -> Options:
    """What a new queue is to do. Raises ChannelError if it cannot be so."""
    lasting = durable and not exclusive and not auto_delete and not is_server_named(name)
    default = default_type(arguments, lasting=lasting)
    try:
        options = parse_arguments(arguments, default=default)
    except InvalidArgumentError as error:
        text = f"invalid arg '{error.name}' for {thing}: {error.reason}"
        raise precondition_failed(text) from None
    if options.type != "classic":
        for wrong, label in (
            (auto_delete, "auto-delete"),
            (exclusive, "exclusive-owner"),
            (not durable, "non-durable"),
        ):
            if wrong:
                raise precondition_failed(f"invalid property '{label}' for {thing}")
    return options


def check_same(
    queue: AnyQueue,
    thing: str,
    *,
    durable: bool,
    auto_delete: bool,
    owner: object | None,
    arguments: Table,
    user_of: object,
) -> None:
    """Raise ChannelError unless a declare asks for the queue as it is, or as it was declared."""
    if queue.owner != owner or (queue.owner is not None and queue.owner != user_of):
        raise locked(thing)
    check_property("durable", thing, received=durable, current=queue.durable)
    check_property("auto_delete", thing, received=auto_delete, current=queue.auto_delete)
    received = {"x-queue-type": queue.options.type, **arguments}
    current = {"x-queue-type": queue.options.type, **queue.arguments}
    try:
        check_arguments(EQUIVALENCE_ARGUMENTS, thing, received=received, current=current)
    except ChannelError:
        if not queue.settings:
            raise
        current = altered(current, queue.settings)
        check_arguments(EQUIVALENCE_ARGUMENTS, thing, received=received, current=current)


# What decides where and how a queue's messages are kept, and so stays as it was declared.
_FIXED: Final = (
    "x-queue-type",
    "x-partitions",
    "x-single-active-consumer",
    "x-quorum-initial-group-size",
    "x-initial-cluster-size",
    "x-compact",
)


def check_altered(queue: AnyQueue, thing: str, arguments: Table) -> None:
    """Raise ChannelError unless a queue can go by these arguments instead of its own."""
    for name in _FIXED:
        if arguments.get(name) != queue.arguments.get(name):
            raise precondition_failed(f"argument '{name}' of {thing} cannot be altered")
    try:
        parse_arguments(arguments, default=queue.options.type)
    except InvalidArgumentError as error:
        text = f"invalid arg '{error.name}' for {thing}: {error.reason}"
        raise precondition_failed(text) from None
