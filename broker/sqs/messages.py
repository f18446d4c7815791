"""A message of SQS as content of AMQP, and content of AMQP as a message of SQS."""

from __future__ import annotations

import base64
import hashlib
import struct
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from broker.http.message_json import readable
from broker.protocol.constants import (
    FLAG_DELIVERY_MODE,
    FLAG_HEADERS,
    FLAG_MESSAGE_ID,
    FLAG_TIMESTAMP,
    FLAG_USER_ID,
    FRAME_BODY,
    FRAME_END_BYTE,
)
from broker.protocol.content import join_header
from broker.protocol.methods import short_string
from broker.protocol.tables import decode_table, encode_long, encode_value, join_table, text
from broker.sqs.message_attributes import (
    BODY_ENCODING,
    NOT_TEXT,
    SENT,
    TRACE,
    Attribute,
    attributes_of,
    digest_of,
    headers_of,
)
from broker.sqs.names import arn_of
from queues.message import PERSISTENT, Message

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from broker.protocol.tables import Table

CHANNEL: Final = 1  # in frames that came from no channel
SYSTEM_ATTRIBUTES: Final = (
    "SenderId",
    "SentTimestamp",
    "ApproximateReceiveCount",
    "ApproximateFirstReceiveTimestamp",
    "SequenceNumber",
    "MessageDeduplicationId",
    "MessageGroupId",
    "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
)

_FRAME: Final = struct.Struct(">BHI")
_U64: Final = struct.Struct(">Q")
_GROUP: Final = b"x-group-id"
_DEDUP: Final = b"x-dedup-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message that a client sends, checked."""

    id: str
    body: bytes  # UTF-8
    sender: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    trace: str | None = None
    group: str | None = None
    dedup_id: str | None = None


def make_message(draft: Draft, queue: str, now_ms: int) -> Message:
    """The message to be published to a queue, without what it wishes of that."""
    headers = headers_of(draft.attributes) if draft.attributes else {}
    headers[SENT.encode()] = encode_long(now_ms)
    for name, value in (
        (_GROUP, draft.group),
        (_DEDUP, draft.dedup_id),
        (TRACE.encode(), draft.trace),
    ):
        if value is not None:
            headers[name] = encode_value(value)
    values = {
        FLAG_HEADERS: join_table(headers),
        FLAG_DELIVERY_MODE: PERSISTENT,
        FLAG_MESSAGE_ID: short_string(draft.id),
        FLAG_TIMESTAMP: _U64.pack(now_ms // 1000),
        FLAG_USER_ID: short_string(draft.sender),
    }
    size = len(draft.body)
    header, header_bytes, flags = join_header(CHANNEL, size, values)
    frame = _FRAME.pack(FRAME_BODY, CHANNEL, size) + draft.body + FRAME_END_BYTE
    address = short_string("") + short_string(queue)
    return Message(address, header + frame, header_bytes, flags, size, CHANNEL)


class Reading:
    """A message, whoever published it, as a receiver is shown it."""

    def __init__(self, message: Message, uid: bytes) -> None:
        self._message = message
        self._uid = uid  # of its queue
        self._properties = message.properties()

    @cached_property
    def headers(self) -> Table:
        raw = self._properties.get(FLAG_HEADERS)
        return decode_table(raw)[0] if raw is not None else {}

    @property
    def id(self) -> str:
        """Its own, or one made from its place in the queue, which is always the same."""
        raw = self._properties.get(FLAG_MESSAGE_ID)
        if raw is not None and len(raw) > 1:
            return readable(text(raw[1:]))
        return _id_by_place(self._message, self._uid)

    def body(self) -> tuple[str, bool]:
        """The text, and whether that is base64 because the body is none that SQS could show."""
        raw = bytes(self._message.body)
        try:
            found = raw.decode()
        except UnicodeDecodeError:
            found = None
        if found is None or NOT_TEXT.search(found):
            return base64.b64encode(raw).decode(), True
        return found, False

    def attributes(self, wanted: Collection[str], *, encoded: bool) -> dict[str, Attribute]:
        """Those that are asked for by name, by prefix (`p.*`) or as `All`."""
        found: dict[str, Attribute] = {}
        if wanted:
            every = "All" in wanted or ".*" in wanted
            prefixes = tuple(name[:-2] for name in wanted if name.endswith(".*"))
            found = {
                name: one
                for name, one in attributes_of(self.headers).items()
                if every or name in wanted or (prefixes and name.startswith(prefixes))
            }
        if encoded:  # asked for or not: nobody could tell otherwise
            found[BODY_ENCODING] = Attribute("String", "base64")
        return found

    def system(self, wanted: Collection[str], seen: Seen) -> dict[str, str]:
        if not wanted:
            return {}
        return {
            name: value
            for name, value in self._system(seen).items()
            if value is not None and ("All" in wanted or name in wanted)
        }

    def _system(self, seen: Seen) -> dict[str, str | None]:
        message, headers, properties = self._message, self.headers, self._properties
        group, dedup = headers.get("x-group-id"), headers.get("x-dedup-id")
        if dedup is None and seen.dedup_content:
            dedup = hashlib.sha256(message.body).hexdigest()
        sender = properties.get(FLAG_USER_ID)
        trace = headers.get(TRACE)
        return {
            "SenderId": readable(text(sender[1:])) if sender is not None else "",
            "SentTimestamp": str(self._sent_ms(seen.now_ms)),
            "ApproximateReceiveCount": str(message.delivery_count + 1),
            "ApproximateFirstReceiveTimestamp": str(seen.first_ms),
            "SequenceNumber": sequence_number(message) if seen.grouped else None,
            "MessageDeduplicationId": None if dedup is None else str(dedup),
            "MessageGroupId": None if group is None else str(group),
            "AWSTraceHeader": trace if isinstance(trace, str) else None,
            "DeadLetterQueueSourceArn": _source(headers, seen),
        }

    def _sent_ms(self, now_ms: int) -> int:
        """When it was sent; now, if nobody has written that down."""
        exact = self.headers.get(SENT)
        if isinstance(exact, int):
            return exact
        stamp = self._properties.get(FLAG_TIMESTAMP)
        if stamp is not None:
            return int(_U64.unpack(stamp)[0]) * 1000
        return getattr(self._message, "enqueued_ms", now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a receiver is told beside what is in a message."""

    now_ms: int
    first_ms: int  # when it was received first
    region: str
    queue: str
    grouped: bool  # its queue is a FIFO queue
    dedup_content: bool


def show(
    message: Message,
    uid: bytes,
    handle: str,
    seen: Seen,
    *,
    system: Collection[str],
    attributes: Collection[str],
) -> dict[str, Any]:
    """The message as ReceiveMessage answers it, with the attributes that were asked for."""
    reading = Reading(message, uid)
    body, encoded = reading.body()
    shown: dict[str, Any] = {
        "MessageId": reading.id,
        "ReceiptHandle": handle,
        "MD5OfBody": md5(body.encode()),
        "Body": body,
    }
    about = reading.system(system, seen)
    if about:
        shown["Attributes"] = about
    found = reading.attributes(attributes, encoded=encoded)
    if found:
        shown["MD5OfMessageAttributes"] = digest_of(found)
        shown["MessageAttributes"] = {name: one.shown() for name, one in found.items()}
    return shown


def bare(message: Message, uid: bytes, handle: str) -> dict[str, Any]:
    """A message that cannot be shown: its receiver can delete it all the same."""
    body = base64.b64encode(message.body).decode()
    return {
        "MessageId": _id_by_place(message, uid),
        "ReceiptHandle": handle,
        "MD5OfBody": md5(body.encode()),
        "Body": body,
    }


def _id_by_place(message: Message, uid: bytes) -> str:
    seed = uid + _U64.pack(message.sequence)
    return str(UUID(bytes=hashlib.md5(seed, usedforsecurity=False).digest(), version=4))


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def sequence_number(message: Message) -> str:
    """Twenty digits, as AWS has them, so that texts compare as numbers do."""
    return f"{message.sequence + 1:020d}"


def _source(headers: Table, seen: Seen) -> str | None:
    """The queue that a dead letter died in, unless it is back there."""
    queue = headers.get("x-last-death-queue")
    if not isinstance(queue, str) or queue == seen.queue:
        return None
    return arn_of(queue, seen.region)
