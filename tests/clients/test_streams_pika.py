"""Streams as pika's users see them: blocking consumers, generators, confirms."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pika
import pytest

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel

FreshName = Callable[[str], str]
OpenConnection = Callable[..., pika.BlockingConnection]


@pytest.fixture
def stream(pika_channel: BlockingChannel, fresh_name: FreshName) -> str:
    name = fresh_name("stream")
    pika_channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    return name


def publish(channel: BlockingChannel, stream: str, count: int) -> None:
    channel.confirm_delivery()
    for number in range(count):
        properties = pika.BasicProperties(headers={"number": number}, message_id=str(number))
        channel.basic_publish("", stream, b"%d" % number, properties)


def collect(channel: BlockingChannel, stream: str, count: int, offset: object) -> list:
    """Consume so many records, acking each, and cancel the consumer."""
    channel.basic_qos(prefetch_count=10)
    got = []
    arguments = {"x-stream-offset": offset}
    for method, properties, body in channel.consume(
        stream, arguments=arguments, inactivity_timeout=60
    ):
        assert method is not None, f"only {len(got)} of {count} records came"
        channel.basic_ack(method.delivery_tag)
        got.append((properties, body))
        if len(got) == count:
            break
    channel.cancel()
    return got


def test_a_stream_is_read_again_and_again(pika_channel: BlockingChannel, stream: str) -> None:
    publish(pika_channel, stream, 30)
    for _ in range(3):
        got = collect(pika_channel, stream, 30, "first")
        assert [body for _, body in got] == [b"%d" % number for number in range(30)]
        assert [properties.headers["x-stream-offset"] for properties, _ in got] == list(range(30))
        assert [properties.message_id for properties, _ in got] == [str(n) for n in range(30)]


def test_a_reader_goes_on_where_it_stopped(pika_channel: BlockingChannel, stream: str) -> None:
    publish(pika_channel, stream, 30)
    first = collect(pika_channel, stream, 12, "first")
    resumed = first[-1][0].headers["x-stream-offset"] + 1
    rest = collect(pika_channel, stream, 18, resumed)
    assert [body for _, body in first + rest] == [b"%d" % number for number in range(30)]


def test_two_connections_read_the_same_stream_at_their_own_pace(
    open_pika: OpenConnection, pika_channel: BlockingChannel, stream: str
) -> None:
    publish(pika_channel, stream, 20)
    slow, fast = open_pika().channel(), open_pika().channel()
    assert len(collect(slow, stream, 5, "first")) == 5
    assert len(collect(fast, stream, 20, "first")) == 20
    assert [body for _, body in collect(slow, stream, 15, 5)] == [b"%d" % n for n in range(5, 20)]


def test_callbacks_get_records_as_they_are_published(
    open_pika: OpenConnection, pika_channel: BlockingChannel, stream: str
) -> None:
    got = []
    reader = open_pika().channel()
    reader.basic_qos(prefetch_count=3)

    def take(channel: BlockingChannel, method: object, _: object, body: bytes) -> None:
        channel.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]
        got.append(body)
        if len(got) == 10:
            channel.stop_consuming()

    reader.basic_consume(stream, take)
    publish(pika_channel, stream, 10)
    reader.start_consuming()
    assert got == [b"%d" % number for number in range(10)]


@pytest.mark.leveret_only
def test_keys_keep_their_order_over_partitions(
    pika_channel: BlockingChannel, fresh_name: FreshName
) -> None:
    name = fresh_name("stream")
    arguments = {"x-queue-type": "stream", "x-partitions": 4}
    pika_channel.queue_declare(name, durable=True, arguments=arguments)
    pika_channel.confirm_delivery()
    for number in range(40):
        headers = {"x-partition-key": f"key{number % 8}"}
        properties = pika.BasicProperties(headers=headers)
        pika_channel.basic_publish("", name, b"%d" % number, properties)
    got = collect(pika_channel, name, 40, "first")
    assert len({properties.headers["x-stream-partition"] for properties, _ in got}) > 1
    for key in range(8):
        mine = [int(body) for p, body in got if p.headers["x-partition-key"] == f"key{key}"]
        assert mine == list(range(key, 40, 8))
