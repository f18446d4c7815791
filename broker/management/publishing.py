"""`POST /api/exchanges/…/publish`: one message, taken the way that those of AMQP clients take."""

from __future__ import annotations

import base64
import binascii
import struct
from typing import TYPE_CHECKING, Any, Final

from broker.channel.confirms import Receipt
from broker.channel.publisher import Publisher
from broker.http.admin import AMQP_NOT_FOUND, Admin, Call, bad_request
from broker.http.auth import require_entry
from broker.http.messages import HttpError, Response, json_response
from broker.management import fields
from broker.management.bindings import DEFAULT_EXCHANGE, exchange_name
from broker.protocol import constants
from broker.protocol.constants import FRAME_BODY, FRAME_END_BYTE
from broker.protocol.content import join_header
from broker.protocol.errors import AMQPError
from broker.protocol.methods import short_string
from broker.protocol.tables import encode_table
from flow_control.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.channel.channel import Channel
    from broker.protocol.frames import Batch, Content
    from broker.security.user import User
    from broker.vhost import VHost

CHANNEL: Final = 1  # of a client there is none
FRAME_BYTES_MAX: Final = 2**31 - 1
MANDATORY: Final = b"\x01"
_TEXTS: Final = {
    "content_type": constants.FLAG_CONTENT_TYPE,
    "content_encoding": constants.FLAG_CONTENT_ENCODING,
    "correlation_id": constants.FLAG_CORRELATION_ID,
    "reply_to": constants.FLAG_REPLY_TO,
    "expiration": constants.FLAG_EXPIRATION,
    "message_id": constants.FLAG_MESSAGE_ID,
    "type": constants.FLAG_TYPE,
    "user_id": constants.FLAG_USER_ID,
    "app_id": constants.FLAG_APP_ID,
    "cluster_id": constants.FLAG_CLUSTER_ID,
}
_NUMBERS: Final = {
    "delivery_mode": (constants.FLAG_DELIVERY_MODE, struct.Struct(">B"), 2**8 - 1),
    "priority": (constants.FLAG_PRIORITY, struct.Struct(">B"), 2**8 - 1),
    "timestamp": (constants.FLAG_TIMESTAMP, struct.Struct(">Q"), 2**63 - 1),
}


class _Caller:
    """The caller of the API, as a publisher sees its connection (`broker.channel.link.Link`)."""

    def __init__(self, user: User, vhost: VHost) -> None:
        self.name = "HTTP"
        self.user = user
        self.vhost = vhost
        self.outbox = Outbox()  # what is returned goes here
        self.frame_max = FRAME_BYTES_MAX
        self.unacked_max = 0
        self.capabilities: frozenset[str] = frozenset()

    def resume(self, channel: Channel, action: Callable[[], None]) -> None: ...
    def keep_first(self, channel: Channel, batch: Batch) -> None: ...
    def mark_dirty(self) -> None: ...


def add_publishing(admin: Admin) -> None:
    admin.add("POST", "/api/exchanges/{vhost}/{name}/publish", _publish)


async def _publish(call: Call) -> Response:
    vhost, body = call.vhost(), call.json()
    require_entry(call.user, vhost.name)
    fields.need(body, "routing_key", "payload", "payload_encoding", "properties")
    name = exchange_name(call.parameter("name"))
    fields.checked_name(name or DEFAULT_EXCHANGE)
    payload, key = _payload(body), fields.short_text(body, "routing_key")
    bytes_max = call.node.config.message_bytes_max
    if len(payload) > bytes_max:
        raise bad_request(f"payload: it is longer than {bytes_max} bytes")
    content = make_content(name, key, payload, _properties(body))
    if call.node.blocked is not None:
        raise HttpError(503, f"publishing is blocked: {call.node.blocked}")
    routed, refused = await publish(call, vhost, content)
    if refused:
        raise bad_request("rejected")
    return json_response({"routed": routed})


async def publish(call: Call, vhost: VHost, content: Content) -> tuple[bool, bool]:
    """Whether a queue got it, and whether one refused it; once that is safe."""
    caller = _Caller(call.user, vhost)
    publisher = Publisher(CHANNEL, caller, call.node.plain_properties, _no_lease)
    receipts: list[Receipt] = []

    def send(then: Callable[[], None]) -> None:
        def done(receipt: Receipt) -> None:
            receipts.append(receipt)
            then()

        receipt = Receipt(done)
        try:
            publisher.publish_with([content], receipt)
        except AMQPError as error:
            if error.code != AMQP_NOT_FOUND:
                raise
            raise bad_request(f"{error.code} {error.reply_text}") from None
        receipt.stored([])

    try:
        await call.happens(send)
    finally:
        publisher.closed = True
        call.node.past.add(publisher.tally)
        vhost.past.add(publisher.tally)
    return not caller.outbox.pieces, bool(receipts[0].refused)


def _no_lease(_tag: int, _lease_ms: int | None) -> bool:
    return False


def make_content(
    exchange: str, key: str, payload: bytes, properties: Mapping[int, bytes] | None = None
) -> Content:
    """The message, as if a client had sent it."""
    args = b"\0\0" + short_string(exchange) + short_string(key) + MANDATORY
    header, header_bytes, flags = join_header(CHANNEL, len(payload), properties or {})
    frames = header
    if payload:
        frames += struct.pack(">BHI", FRAME_BODY, CHANNEL, len(payload)) + payload + FRAME_END_BYTE
    return args, frames, header_bytes, flags, len(payload)


def _payload(body: Mapping[str, Any]) -> bytes:
    payload, encoding = body["payload"], body["payload_encoding"]
    if not isinstance(payload, str):
        raise bad_request("payload: it must be a text")
    try:
        if encoding == "base64":
            return base64.b64decode(payload, validate=True)
        if encoding == "string":
            return payload.encode()
    except (binascii.Error, ValueError):
        raise bad_request(f"payload: it is not {encoding}") from None
    raise bad_request(f"payload_encoding: {encoding!r} is neither string nor base64")


def _properties(body: Mapping[str, Any]) -> dict[int, bytes]:
    given = body["properties"]
    if given == []:
        given = {}
    if not isinstance(given, dict):
        raise bad_request("properties: it must be an object")
    values: dict[int, bytes] = {}
    for name, value in given.items():
        if value is None:
            continue
        if name in _TEXTS:
            values[_TEXTS[name]] = short_string(fields.short_text(given, name))
        elif name in _NUMBERS:
            flag, layout, most = _NUMBERS[name]
            values[flag] = layout.pack(fields.number(given, name, least=0, most=most))
        elif name == "headers":
            values[constants.FLAG_HEADERS] = encode_table(fields.table(given, "headers"))
    return values
