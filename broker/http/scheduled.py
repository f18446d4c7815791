"""`/api/scheduled`: messages that wait for their time, listed, moved and cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.http.admin import Admin, Call, bad_request, not_found
from broker.http.message_json import message_json
from broker.http.messages import Response, json_response
from broker.http.queue_calls import PAGE_MAX, find_queue, query_number, queues_here
from broker.management.access import must
from broker.management.listing import answer_rows, by_place
from queues.options import DELAY_MS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.vhost import VHost
    from queues.message import Message
    from queues.queue import Queue

BODY_BYTES: Final = 1024  # shown of each


def add_scheduled(admin: Admin) -> None:
    admin.add("GET", "/api/scheduled", _list_all, lists=True)
    admin.add("GET", "/api/scheduled/{vhost}", _list, lists=True)
    admin.add("GET", "/api/scheduled/{vhost}/{name}", _show)
    admin.add("PUT", "/api/scheduled/{vhost}/{name}/{id}", _move)
    admin.add("DELETE", "/api/scheduled/{vhost}/{name}/{id}", _cancel)


async def _list_all(call: Call) -> Response:
    return await _answer(call, [row for vhost in call.vhosts() for row in _rows(vhost)])


async def _list(call: Call) -> Response:
    return await _answer(call, _rows(call.vhost()))


async def _answer(call: Call, rows: list[dict[str, Any]]) -> Response:
    if call.passed_on:
        return json_response(rows)
    return await answer_rows(call.request, await call.everywhere(rows), by_place)


def _rows(vhost: VHost) -> list[dict[str, Any]]:
    return [
        {"vhost": vhost.name, "name": queue.name, "messages_delayed": queue.away.delayed_count}
        for queue in queues_here(vhost)
        if queue.away.delayed_count
    ]


async def _show(call: Call) -> Response:
    """The next to be due, with what is in them."""
    must(call, "read", call.parameter("name"))
    queue = find_queue(call)
    count = query_number(call, "count", 50, most=PAGE_MAX)
    due = dict(queue.away.delays.first(count)) if queue.away.delayed_count else {}
    messages = {message.sequence: message for message in await _read(call, queue, list(due))}
    shown = []
    for sequence, due_ms in due.items():
        row: dict[str, Any] = {"id": sequence, "due_ms": due_ms}
        if sequence in messages:
            row |= message_json(messages[sequence], body_bytes_max=BODY_BYTES)
        shown.append(row)
    return json_response(shown)


async def _read(call: Call, queue: Queue, sequences: list[int]) -> list[Message]:
    """The messages themselves; on disk they are read in as many steps as it takes."""
    found: list[Message] = []
    while sequences:
        some: list[Message] = []

        def ask(then: Callable[[], None]) -> None:
            def answer(messages: list[Message]) -> None:
                some.extend(messages)  # noqa: B023 - it is called before the next round
                then()

            queue.read_delayed(sequences, answer)  # noqa: B023

        await call.happens(ask)
        if not some:
            break
        found += some
        read = {message.sequence for message in some}
        sequences = [sequence for sequence in sequences if sequence not in read]
    return found


def _id(call: Call) -> int:
    text = call.parameter("id")
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        raise bad_request(f"{text!r} is not the id of a message")
    return int(text)


async def _move(call: Call) -> Response:
    """Give a message another time: `due_ms`, since the epoch, or `delay_ms`, from now."""
    must(call, "read", call.parameter("name"))
    vhost, queue, body = call.vhost(), find_queue(call), call.json()
    now = vhost.now_ms()
    given = [key for key in ("due_ms", "delay_ms") if key in body]
    if len(given) != 1:
        raise bad_request("either due_ms or delay_ms is needed")
    value = body[given[0]]
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_request(f"{given[0]}: {value!r} is not a number of milliseconds")
    due_ms = value if given[0] == "due_ms" else now + value
    if due_ms > now + DELAY_MS_MAX:
        raise bad_request(f"{given[0]}: more than {DELAY_MS_MAX} ms from now")
    if not queue.away.delays.move(_id(call), max(due_ms, now)):
        raise not_found(f"no message {_id(call)} is scheduled in queue {queue.name!r}")
    await call.happens(queue.when_stored)
    return Response(status=204)


async def _cancel(call: Call) -> Response:
    must(call, "read", call.parameter("name"))
    queue = find_queue(call)
    if not queue.away.delays.cancel(_id(call)):
        raise not_found(f"no message {_id(call)} is scheduled in queue {queue.name!r}")
    await call.happens(queue.when_stored)
    return Response(status=204)
