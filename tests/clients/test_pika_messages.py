"""What pika puts into a message comes out unchanged: bodies of every size, all properties."""

from __future__ import annotations

import datetime as dt
import hashlib
import random
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

import pika
import pytest

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

FreshName = Callable[[str], str]

FRAME_PAYLOAD_BYTES_MAX = 131_072 - 8
TIMESTAMP = dt.datetime(2024, 2, 29, 12, 30, 15, tzinfo=dt.UTC)

# pika cannot write floats; py-amqp and aio-pika check them.
HEADER_VALUES = {
    "true": True,
    "false": False,
    "none": None,
    "zero": 0,
    "negative": -1,
    "int32 limits": [2**31 - 1, -(2**31)],
    "int64 limits": [2**63 - 1, -(2**63)],
    "decimals": [Decimal("12.34"), Decimal(-7), Decimal(0)],
    "timestamp": TIMESTAMP,
    "text": "Grüße, 世界 🐇",
    "empty text": "",
    "long text": "x" * 20_000,
    "bytes": b"\x00\xff\xfe not utf-8",
    "empty array": [],
    "array": [1, "two", [3, [4]], {"five": 5}, None, True, b"\x80"],
    "empty table": {},
    "table": {"deep": {"deeper": {"deepest": [{"x": None}, 2**40]}}},
    "x-custom": "kept",
}


@pytest.fixture
def queue(pika_channel: BlockingChannel, fresh_name: FreshName) -> str:
    name = fresh_name("messages")
    pika_channel.queue_declare(name)
    pika_channel.confirm_delivery()
    return name


def round_trip(
    channel: BlockingChannel, queue: str, body: bytes, properties: pika.BasicProperties | None
) -> tuple[pika.BasicProperties, bytes]:
    channel.basic_publish("", queue, body, properties, mandatory=True)
    method, received, received_body = channel.basic_get(queue, auto_ack=True)
    assert method is not None
    return received, received_body


@pytest.mark.parametrize("name", HEADER_VALUES)
def test_a_header_value_of_any_type_comes_back_unchanged(
    pika_channel: BlockingChannel, queue: str, name: str
) -> None:
    value = HEADER_VALUES[name]
    sent = pika.BasicProperties(headers={name: value})
    received, _ = round_trip(pika_channel, queue, b"", sent)
    assert received.headers == {name: value}
    assert type(received.headers[name]) is type(value) or isinstance(value, int)


def test_all_headers_together_come_back_unchanged_to_a_consumer(
    pika_channel: BlockingChannel, queue: str
) -> None:
    sent = pika.BasicProperties(headers=HEADER_VALUES)
    pika_channel.basic_publish("", queue, b"body", sent)
    _, received, body = next(pika_channel.consume(queue, auto_ack=True, inactivity_timeout=20))
    assert (received.headers, body) == (HEADER_VALUES, b"body")


def test_all_fourteen_properties_come_back_unchanged(
    pika_channel: BlockingChannel, queue: str
) -> None:
    sent = pika.BasicProperties(
        content_type="application/json",
        content_encoding="gzip",
        headers={"a": 1},
        delivery_mode=2,
        priority=9,
        correlation_id="correlation",
        reply_to="reply.queue",
        expiration="60000",
        message_id="message",
        timestamp=1_700_000_000,
        type="invoice",
        user_id="guest",
        app_id="application",
        cluster_id="cluster",
    )
    received, _ = round_trip(pika_channel, queue, b"{}", sent)
    assert received == sent


def test_a_message_without_properties_has_none_on_arrival(
    pika_channel: BlockingChannel, queue: str
) -> None:
    received, body = round_trip(pika_channel, queue, b"", None)
    assert received == pika.BasicProperties()
    assert body == b""


@pytest.mark.parametrize(
    "size",
    [
        0,
        1,
        FRAME_PAYLOAD_BYTES_MAX - 1,
        FRAME_PAYLOAD_BYTES_MAX,
        FRAME_PAYLOAD_BYTES_MAX + 1,
        3 * FRAME_PAYLOAD_BYTES_MAX,
        10_000_000,
    ],
)
def test_a_body_of_any_number_of_frames_comes_back_unchanged(
    pika_channel: BlockingChannel, queue: str, size: int
) -> None:
    body = random.Random(size).randbytes(size)
    _, received = round_trip(pika_channel, queue, body, None)
    assert len(received) == size
    assert hashlib.sha256(received).digest() == hashlib.sha256(body).digest()


def test_a_client_with_the_smallest_frames_gets_a_body_sent_in_big_ones(
    pika_channel: BlockingChannel,
    queue: str,
    open_pika: Callable[..., BlockingConnection],
) -> None:
    body = random.Random(4096).randbytes(50_000)
    pika_channel.basic_publish("", queue, body)
    small = open_pika(frame_max=4096)
    assert small._impl.params.frame_max == 4096
    _, _, received = small.channel().basic_get(queue, auto_ack=True)
    assert received == body
