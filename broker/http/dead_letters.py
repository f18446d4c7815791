"""`/api/dlq`: dead letters listed, looked at, sent back to where they died, and dropped."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.cluster.front import QueueFront
from broker.http.message_json import message_json
from broker.http.messages import Response, json_response
from broker.http.queue_calls import (
    PAGE_MAX,
    find_queue,
    peek,
    query_number,
    wanted_ids,
)
from broker.management.access import must
from broker.management.listing import answer_rows, by_place
from broker.replay import Undertaker, dead_letter_queues, death_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker.http.admin import Admin, Call
    from broker.vhost import VHost
    from queues.message import Message
    from queues.queue import Queue

# Messages out of their queue at a time: a few reads' worth, so that a long queue costs little.
WINDOW: Final = 500
BODY_BYTES: Final = 4096  # shown of each, unless told otherwise
BODY_BYTES_MAX: Final = 1024 * 1024


def add_dead_letters(admin: Admin) -> None:
    admin.add("GET", "/api/dlq", _list_all, lists=True)
    admin.add("GET", "/api/dlq/{vhost}", _list, lists=True)
    admin.add("GET", "/api/dlq/{vhost}/{name}", _peek)
    admin.add("POST", "/api/dlq/{vhost}/{name}/replay", _replay)
    admin.add("POST", "/api/dlq/{vhost}/{name}/drop", _drop)


async def _list_all(call: Call) -> Response:
    return await _answer(call, [row for vhost in call.vhosts() for row in _rows(call, vhost)])


async def _list(call: Call) -> Response:
    return await _answer(call, _rows(call, call.vhost()))


async def _answer(call: Call, rows: list[dict[str, Any]]) -> Response:
    if call.passed_on:
        return json_response(rows)
    return await answer_rows(call.request, await call.everywhere(rows), by_place)


def _rows(call: Call, vhost: VHost) -> list[dict[str, Any]]:
    """Of all such queues; for another node, of those that this one leads."""
    found = dead_letter_queues(vhost)
    return [
        {
            "vhost": vhost.name,
            "name": queue.name,
            "messages_ready": queue.ready,
            "messages_unacknowledged": queue.unacked,
            "sources": sorted(sources),
        }
        for queue, sources in sorted(found.items(), key=lambda item: item[0].name)
        if not call.passed_on or (isinstance(queue, QueueFront) and queue.queue is not None)
    ]


async def _peek(call: Call) -> Response:
    """The first messages behind `after`, without consuming them."""
    must(call, "read", call.parameter("name"))
    queue = find_queue(call)
    count = query_number(call, "count", 50, most=PAGE_MAX)
    after = query_number(call, "after", -1, least=-1)
    body_bytes = query_number(call, "body_bytes", BODY_BYTES, most=BODY_BYTES_MAX)
    messages = await peek(call, queue, after, count)
    return json_response([_shown(message, body_bytes) for message in messages])


def _shown(message: Message, body_bytes: int) -> dict[str, Any]:
    death = death_of(message)
    shown = message_json(message, body_bytes_max=body_bytes)
    shown["death"] = None if death is None else asdict(death)
    return shown


async def _replay(call: Call) -> Response:
    """Messages of the given ids, or all, go back to those queues they died in that are theirs."""
    must(call, "read", call.parameter("name"))
    vhost, queue = call.vhost(), find_queue(call)
    undertaker = Undertaker(vhost, queue, partial(call.user.may, vhost.name, "write"))
    seen = 0
    async for window in _windows(call, queue):
        seen += len(window)
        await call.happens(partial(undertaker.replay, window))
    return json_response({"replayed": undertaker.done, "left": seen - undertaker.done})


async def _drop(call: Call) -> Response:
    """Messages of the given ids, or all of them, go for good."""
    must(call, "read", call.parameter("name"))
    vhost, queue = call.vhost(), find_queue(call)
    undertaker = Undertaker(vhost, queue)
    seen = 0
    async for window in _windows(call, queue):
        seen += len(window)
        await call.happens(partial(undertaker.drop, window))
    return json_response({"dropped": undertaker.done, "left": seen - undertaker.done})


async def _windows(call: Call, queue: Queue) -> AsyncIterator[list[int]]:
    """Ids as asked for; or of all messages that were there at the beginning."""
    ids = wanted_ids(call)
    if ids is not None:
        for start in range(0, len(ids), WINDOW):
            yield ids[start : start + WINDOW]
        return
    after, end = -1, queue.next_sequence
    while True:
        messages = await peek(call, queue, after, WINDOW)
        window = [message.sequence for message in messages if message.sequence < end]
        if not window:
            return
        after = window[-1]
        yield window
