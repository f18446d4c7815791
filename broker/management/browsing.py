"""Ours beyond RabbitMQ: looking at messages without consuming them; dropping and moving them.

GET    /api/queues/{vhost}/{name}/messages         after=, count=, body_bytes=, and to search:
       header=name or name:value, routing_key=, exchange=, text= (in the body), regex=true
DELETE /api/queues/{vhost}/{name}/messages/{id}
POST   /api/queues/{vhost}/{name}/messages/{id}/move    {"to": another queue of the vhost}
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from broker.dead_letter import headers_of, split_address
from broker.http.admin import Admin, Call, bad_request, not_found
from broker.http.message_json import message_json
from broker.http.messages import HttpError, Response, json_response
from broker.http.queue_calls import PAGE_MAX, find_queue, peek, query_number
from broker.management.access import must
from broker.management.fields import short_text
from broker.management.patterns import search_pattern
from broker.replay import Undertaker

if TYPE_CHECKING:
    from collections.abc import Callable

    from queues.message import Message

QUERY: Final = (
    *("after", "count", "body_bytes", "header", "routing_key", "exchange", "text", "regex"),
)
BODY_BYTES: Final = 4096  # shown of each, unless told otherwise
BODY_BYTES_MAX: Final = 1024 * 1024
WINDOW: Final = 500  # messages read at a time while searching
LOOKED_AT_MAX: Final = 20_000  # for one answer; it says where to go on
SEARCHED_BYTES_MAX: Final = 64 * 1024  # of each body


def add_browsing(admin: Admin) -> None:
    messages = "/api/queues/{vhost}/{name}/messages"
    admin.add("GET", messages, _browse, query=QUERY)
    admin.add("GET", f"{messages}/{{id}}", _show)
    admin.add("DELETE", f"{messages}/{{id}}", _drop)
    admin.add("POST", f"{messages}/{{id}}/move", _move)


async def _browse(call: Call) -> Response:
    """Messages that fit, where to go on behind them, and whether there is more."""
    must(call, "read", call.parameter("name"))
    queue = find_queue(call)
    count = query_number(call, "count", 50, least=1, most=PAGE_MAX)
    after = query_number(call, "after", -1, least=-1)
    body_bytes = query_number(call, "body_bytes", BODY_BYTES, most=BODY_BYTES_MAX)
    fits = _filter(call)
    found: list[Message] = []
    looked_at, more = 0, True
    while more and len(found) < count and looked_at < LOOKED_AT_MAX:
        size = WINDOW if fits is not None else count - len(found)
        messages = await peek(call, queue, after, size)
        more = bool(messages)
        for message in messages:
            after = message.sequence
            looked_at += 1
            if fits is None or fits(message):
                found.append(message)
                if len(found) == count:
                    break
    rows = [message_json(message, body_bytes_max=body_bytes) for message in found]
    return json_response({"messages": rows, "after": after, "more": more})


async def _show(call: Call) -> Response:
    must(call, "read", call.parameter("name"))
    queue, wanted = find_queue(call), _id(call)
    messages = await peek(call, queue, wanted - 1, 1)
    if not messages or messages[0].sequence != wanted:
        raise _no_such(wanted)
    return json_response(message_json(messages[0], body_bytes_max=BODY_BYTES_MAX))


async def _drop(call: Call) -> Response:
    must(call, "read", call.parameter("name"))
    vhost, queue, wanted = call.vhost(), find_queue(call), _id(call)
    undertaker = Undertaker(vhost, queue)
    await call.happens(partial(undertaker.drop, [wanted]))
    if not undertaker.done:
        raise _no_such(wanted)
    return Response(status=204)


async def _move(call: Call) -> Response:
    """It is safe in the other queue before it leaves this one."""
    to = short_text(call.json(), "to")
    must(call, "read", call.parameter("name"))
    must(call, "write", to)
    vhost, queue, wanted = call.vhost(), find_queue(call), _id(call)
    target = vhost.writable_queue(to, user_of=call)
    if target.name == queue.name:
        raise bad_request("it is in this queue already")
    undertaker = Undertaker(vhost, queue)
    await call.happens(partial(undertaker.move, [wanted], target))
    if undertaker.refused:
        raise HttpError(409, f"queue {to!r} refuses the message")
    if not undertaker.done:
        raise _no_such(wanted)
    return Response(status=204)


def _id(call: Call) -> int:
    text = call.parameter("id")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise bad_request(f"{text!r} is not the id of a message")
    return int(text)


def _no_such(wanted: int) -> HttpError:
    return not_found(f"no message {wanted} is ready in the queue")


# Searching


def _filter(call: Call) -> Callable[[Message], bool] | None:
    """Whether a message fits all that is asked for; None if nothing is."""
    query = {name: texts[-1] for name, texts in call.request.query.items()}
    regex = query.get("regex") == "true"
    tests: list[Callable[[Message], bool]] = []
    if query.get("header"):
        name, _, value = query["header"].partition(":")
        tests.append(partial(_has_header, name, value or None))
    for place, part in enumerate(("exchange", "routing_key")):
        if query.get(part):
            tests.append(partial(_has_address, place, _matcher(query[part], regex=regex)))
    if query.get("text"):
        tests.append(partial(_has_text, _matcher(query["text"], regex=regex)))
    if not tests:
        return None
    return lambda message: all(test(message) for test in tests)


def _matcher(text: str, *, regex: bool) -> Callable[[str], bool]:
    if not regex:
        return lambda value: text in value
    try:
        return search_pattern(text).found_in
    except ValueError as error:
        raise bad_request(f"{text!r} cannot be searched for: {error}") from None


def _has_header(name: str, value: str | None, message: Message) -> bool:
    headers = headers_of(message)
    return name in headers and (value is None or str(headers[name]) == value)


def _has_address(place: int, matches: Callable[[str], bool], message: Message) -> bool:
    return matches(split_address(message.address)[place])


def _has_text(matches: Callable[[str], bool], message: Message) -> bool:
    return matches(bytes(message.body[:SEARCHED_BYTES_MAX]).decode(errors="replace"))
