"""`POST /api/queues/…/get`: messages taken from a queue, and kept in it or not."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from broker.dead_letter import split_address
from broker.http.admin import Admin, Call, bad_request
from broker.http.message_json import properties_json, readable, text_of
from broker.http.messages import Response, json_response
from broker.http.queue_calls import find_queue
from broker.management import fields
from broker.management.access import must
from flow_control.credit import Credit
from queues.consumers import Consumer

if TYPE_CHECKING:
    from queues.message import Message
    from queues.queue import Queue
    from queues.stream.subscription import Records

COUNT_MAX: Final = 10_000  # messages in one answer
ANSWER_BYTES_MAX: Final = 64 * 2**20  # of bodies; with this much, the rest has to wait
ACK_MODES: Final = (
    "ack_requeue_true",
    "ack_requeue_false",
    "reject_requeue_true",
    "reject_requeue_false",
)


class _Hand:
    """Holds messages while they are looked at (`queues.consumers.Sink`)."""

    def __init__(self) -> None:
        self.credit = Credit()

    @property
    def paused(self) -> bool:
        return True

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None: ...
    def deliver_records(self, consumer: Consumer, records: Records) -> None: ...
    def consumer_cancelled(self, consumer: Consumer) -> None: ...
    def revoke(self, consumer: Consumer, messages: list[Message]) -> list[Message]:  # noqa: ARG002
        return []


def add_getting(admin: Admin) -> None:
    admin.add("POST", "/api/queues/{vhost}/{name}/get", _get)


async def _get(call: Call) -> Response:
    must(call, "read", call.parameter("name"))
    body = call.json()
    mode, encoding, _ = fields.need(body, "ackmode", "encoding", "count")
    count = fields.number(body, "count", least=0, most=COUNT_MAX)
    truncate = None
    if body.get("truncate") is not None:
        truncate = fields.number(body, "truncate", least=0, most=2**63 - 1)
    if mode not in ACK_MODES:
        raise bad_request(f"ackmode: {mode!r} is not one of {', '.join(ACK_MODES)}")
    if encoding not in ("auto", "base64"):
        raise bad_request("Unsupported encoding. Please use auto or base64.")
    queue = find_queue(call)
    holder = Consumer("", queue, _Hand(), fetching=True)
    taken: list[tuple[Message, int]] = []
    try:
        await _take(call, queue, holder, count, taken)
        rows = [_shown(message, left, encoding, truncate) for message, left in taken]
    except BaseException:  # the caller is gone, or the disk does not answer
        _put_back(queue, [message for message, _ in taken])
        raise
    messages = [message for message, _ in taken]
    if mode == "ack_requeue_false":
        queue.settle(holder, messages)
    elif mode == "reject_requeue_false":
        queue.discard(holder, messages)
    else:
        _put_back(queue, messages)
    if messages:
        await call.happens(queue.when_stored)
    return json_response(rows)


async def take_one(call: Call, queue: Queue) -> Message | None:
    """The first message, which is gone by that."""
    holder = Consumer("", queue, _Hand(), no_ack=True, fetching=True)
    taken: list[tuple[Message, int]] = []
    await _take(call, queue, holder, 1, taken)
    return taken[0][0] if taken else None


async def _take(
    call: Call, queue: Queue, holder: Consumer, count: int, taken: list[tuple[Message, int]]
) -> None:
    """The first messages, read from disk where they are there."""
    size = 0
    while len(taken) < count and size < ANSWER_BYTES_MAX and not queue.deleted:
        if queue.is_loading:
            await call.happens(queue.when_loaded)
            continue
        message = queue.get(holder)
        if message is None:
            return
        taken.append((message, queue.ready))
        size += message.body_bytes


def _put_back(queue: Queue, messages: list[Message]) -> None:
    """Back to their places. That they were looked at is no failed delivery, so none is counted."""
    for message in messages:
        message.redelivered = True
    queue.let_go(messages)


def _shown(message: Message, left: int, encoding: str, truncate: int | None) -> dict[str, Any]:
    exchange, key = split_address(message.address)
    data = bytes(message.body[:truncate])
    payload, how = text_of(data) if encoding == "auto" else (_base64(data), "base64")
    return {
        "payload_bytes": message.body_bytes,
        "redelivered": message.redelivered,
        "exchange": readable(exchange),
        "routing_key": readable(key),
        "message_count": left,
        "properties": properties_json(message),
        "payload": payload,
        "payload_encoding": how,
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
