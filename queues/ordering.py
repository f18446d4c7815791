"""In which order a queue delivers: which ready list its options ask for."""

from collections.abc import Iterable

from queues.groups import GroupReady, group_of
from queues.message import Message
from queues.options import QueueOptions
from queues.ready import FifoReady, PriorityReady, Ready


def make_ready(options: QueueOptions) -> Ready:
    if options.message_groups:
        return GroupReady()
    if options.max_priority:
        return PriorityReady(options.max_priority, options.priority_aging_ms)
    return FifoReady()


def is_in_order(options: QueueOptions) -> bool:
    """Whether messages leave in the order in which they came."""
    return not options.message_groups and not options.max_priority


def is_same_order(one: QueueOptions, other: QueueOptions) -> bool:
    return (one.message_groups, one.max_priority or 0, one.priority_aging_ms) == (
        other.message_groups,
        other.max_priority or 0,
        other.priority_aging_ms,
    )


def mark_anew(messages: Iterable[Message], options: QueueOptions, now_ms: int) -> None:
    """The order has changed: from now on these wait in the new one."""
    for message in messages:
        message.enqueued_ms = now_ms
        message.group = group_of(message) if options.message_groups else None


def mark_returned(messages: list[Message], options: QueueOptions, now_ms: int) -> None:
    """The order may have changed while they were out: give them what they lack."""
    if options.message_groups:
        for message in messages:
            message.group = group_of(message)
    elif options.priority_aging_ms is not None:
        for message in messages:
            if not hasattr(message, "enqueued_ms"):
                message.enqueued_ms = now_ms
