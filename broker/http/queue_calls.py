"""What calls about one queue's messages have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.cluster.front import QueueFront
from broker.http.admin import Call, LedElsewhereError, bad_request
from queues.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.vhost import VHost
    from queues.message import Message

PAGE_MAX: Final = 1000  # messages in one answer
IDS_MAX: Final = 100_000  # in one request


def find_queue(call: Call) -> Queue:
    """The queue that the path names; an exclusive one is nobody's business."""
    queue = call.vhost().queue(call.parameter("name"), user_of=call)
    if isinstance(queue, QueueFront):
        if queue.queue is None:
            raise LedElsewhereError(f"queue {queue.name!r}", queue.leader)
        return queue.queue
    if not isinstance(queue, Queue):
        raise bad_request(f"queue {queue.name!r} is a stream: its messages stay where they are")
    return queue


def queues_here(vhost: VHost) -> list[Queue]:
    """Those that this node leads; on a node alone, all."""
    here = [q.queue if isinstance(q, QueueFront) else q for q in vhost.queues.values()]
    return [queue for queue in here if isinstance(queue, Queue)]


def query_number(
    call: Call, name: str, default: int, *, least: int = 0, most: int = 2**63 - 1
) -> int:
    """A whole number from the request's query."""
    texts = call.request.query.get(name)
    if not texts:
        return default
    try:
        value = int(texts[-1])
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise bad_request(f"{name}: {texts[-1]!r} is not a number from {least} to {most}")
    return value


def wanted_ids(call: Call) -> list[int] | None:
    """The ids in the request's body; None for all, which has to be said too."""
    body = call.json()
    ids = body.get("ids")
    if ids is None:
        if body.get("all") is not True:
            raise bad_request('either "ids", a list of numbers, or "all": true is needed')
        return None
    if not isinstance(ids, list) or len(ids) > IDS_MAX:
        raise bad_request(f"ids: not a list of up to {IDS_MAX} numbers")
    for one in ids:
        if not isinstance(one, int) or isinstance(one, bool) or one < 0:
            raise bad_request(f"ids: {one!r} is not an id")
    return sorted(set(ids))


async def peek(call: Call, queue: Queue, after: int, count: int) -> list[Message]:
    """The first ready messages behind a sequence."""
    found: list[Message] = []

    def ask(then: Callable[[], None]) -> None:
        def answer(messages: list[Message]) -> None:
            found.extend(messages)
            then()

        queue.browse().peek(after, count, answer)

    await call.happens(ask)
    return found
