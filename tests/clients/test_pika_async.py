"""pika's callback adapters, driven through a whole life: connect, confirm, consume, close."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pika
import pytest
from pika.adapters.asyncio_connection import AsyncioConnection

FreshName = Callable[[str], str]

MESSAGES = 50
DEADLINE_S = 30


class Publisher:
    """Declares, publishes with confirms, consumes its own messages, cancels and closes."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.steps: list[str] = []
        self.confirmed: set[int] = set()
        self.received: list[bytes] = []

    def attach(self, connection: pika.connection.Connection) -> None:
        self.connection = connection

    def on_open(self, connection: pika.connection.Connection) -> None:
        self.steps.append("connected")
        connection.channel(on_open_callback=self.on_channel)

    def on_channel(self, channel: pika.channel.Channel) -> None:
        self.steps.append("channel")
        self.channel = channel
        channel.add_on_close_callback(lambda _, reason: self.steps.append("channel closed"))
        channel.queue_declare(self.queue, exclusive=True, callback=self.on_declared)

    def on_declared(self, frame: pika.frame.Method) -> None:
        self.steps.append("declared")
        self.channel.confirm_delivery(self.on_confirmation, callback=self.on_confirm_mode)

    def on_confirm_mode(self, frame: pika.frame.Method) -> None:
        self.steps.append("confirm mode")
        for number in range(MESSAGES):
            self.channel.basic_publish("", self.queue, b"%d" % number)

    def on_confirmation(self, frame: pika.frame.Method) -> None:
        assert isinstance(frame.method, pika.spec.Basic.Ack)
        tag = frame.method.delivery_tag
        smallest = min(self.confirmed ^ set(range(1, MESSAGES + 1)))
        first = smallest if frame.method.multiple else tag
        self.confirmed.update(range(first, tag + 1))
        if len(self.confirmed) == MESSAGES:
            self.steps.append("all confirmed")
            self.channel.basic_qos(prefetch_count=7, callback=self.on_qos)

    def on_qos(self, frame: pika.frame.Method) -> None:
        self.tag = self.channel.basic_consume(self.queue, self.on_message)

    def on_message(self, channel, method, properties, body: bytes) -> None:
        self.received.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(self.received) == MESSAGES:
            self.steps.append("all received")
            channel.basic_cancel(self.tag, callback=self.on_cancelled)

    def on_cancelled(self, frame: pika.frame.Method) -> None:
        self.steps.append("cancelled")
        self.channel.queue_delete(self.queue, callback=self.on_deleted)

    def on_deleted(self, frame: pika.frame.Method) -> None:
        self.steps.append(f"deleted with {frame.method.message_count}")
        self.connection.close()


def run_on_select(
    url: str, on_open: Callable[[pika.connection.Connection], None], attach: Callable
) -> BaseException:
    """Run a SelectConnection until it is closed, and say why it was."""
    reasons: list[BaseException] = []

    def on_closed(connection: pika.SelectConnection, reason: BaseException) -> None:
        reasons.append(reason)
        connection.ioloop.stop()

    connection = pika.SelectConnection(
        pika.URLParameters(url),
        on_open_callback=on_open,
        on_open_error_callback=on_closed,
        on_close_callback=on_closed,
    )
    attach(connection)
    connection.ioloop.call_later(DEADLINE_S, connection.ioloop.stop)
    connection.ioloop.start()
    assert reasons, f"not closed within {DEADLINE_S} s"
    return reasons[0]


def run_on_asyncio(
    url: str, on_open: Callable[[pika.connection.Connection], None], attach: Callable
) -> BaseException:
    """Run an AsyncioConnection until it is closed, and say why it was."""

    async def main() -> BaseException:
        closed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        connection = AsyncioConnection(
            pika.URLParameters(url),
            on_open_callback=on_open,
            on_open_error_callback=lambda _, reason: closed.set_result(reason),
            on_close_callback=lambda _, reason: closed.set_result(reason),
        )
        attach(connection)
        return await asyncio.wait_for(closed, DEADLINE_S)

    return asyncio.run(main())


ADAPTERS = pytest.mark.parametrize("run", [run_on_select, run_on_asyncio])


@ADAPTERS
def test_a_publisher_and_consumer_runs_from_connect_to_close(
    amqp_url: str, fresh_name: FreshName, run: Callable
) -> None:
    publisher = Publisher(fresh_name("async"))
    reason = run(amqp_url, publisher.on_open, publisher.attach)
    assert isinstance(reason, pika.exceptions.ConnectionClosedByClient)
    assert publisher.steps == [
        "connected",
        "channel",
        "declared",
        "confirm mode",
        "all confirmed",
        "all received",
        "cancelled",
        "deleted with 0",
        "channel closed",
    ]
    assert publisher.received == [b"%d" % number for number in range(MESSAGES)]


@ADAPTERS
def test_a_channel_error_is_told_to_the_callback_and_the_connection_lives(
    amqp_url: str, fresh_name: FreshName, run: Callable
) -> None:
    missing = fresh_name("missing")
    codes: list[int] = []
    held: list[pika.connection.Connection] = []

    def on_open(connection: pika.connection.Connection) -> None:
        connection.channel(on_open_callback=fail)

    def fail(channel: pika.channel.Channel) -> None:
        channel.add_on_close_callback(failed)
        channel.queue_declare(missing, passive=True)

    def failed(channel: pika.channel.Channel, reason: Exception) -> None:
        codes.append(reason.reply_code)
        held[0].channel(on_open_callback=lambda _: held[0].close())

    reason = run(amqp_url, on_open, held.append)
    assert isinstance(reason, pika.exceptions.ConnectionClosedByClient)
    assert codes == [404]


@ADAPTERS
def test_a_consumer_is_told_when_its_queue_is_deleted(
    amqp_url: str, fresh_name: FreshName, run: Callable
) -> None:
    queue = fresh_name("deleted")
    cancelled: list[str] = []
    held: list[pika.connection.Connection] = []

    def on_open(connection: pika.connection.Connection) -> None:
        connection.channel(on_open_callback=declare)

    def declare(channel: pika.channel.Channel) -> None:
        channel.add_on_cancel_callback(on_cancel)
        channel.queue_declare(queue, callback=lambda _: consume(channel))

    def consume(channel: pika.channel.Channel) -> None:
        channel.basic_consume(
            queue,
            lambda *_: None,
            consumer_tag="watcher",
            callback=lambda _: channel.queue_delete(queue),
        )

    def on_cancel(frame: pika.frame.Method) -> None:
        cancelled.append(frame.method.consumer_tag)
        held[0].close()

    run(amqp_url, on_open, held.append)
    assert cancelled == ["watcher"]


@ADAPTERS
def test_returned_messages_come_before_their_confirms(
    amqp_url: str, fresh_name: FreshName, run: Callable
) -> None:
    nowhere = fresh_name("nowhere")
    events: list[tuple[str, object]] = []
    held: list[pika.connection.Connection] = []

    def on_open(connection: pika.connection.Connection) -> None:
        connection.channel(on_open_callback=confirm)

    def confirm(channel: pika.channel.Channel) -> None:
        channel.add_on_return_callback(
            lambda _, method, properties, body: events.append(("return", body))
        )
        channel.confirm_delivery(on_confirmation)
        channel.basic_publish("", nowhere, b"lost", mandatory=True)

    def on_confirmation(frame: pika.frame.Method) -> None:
        events.append(("ack", frame.method.delivery_tag))
        held[0].close()

    run(amqp_url, on_open, held.append)
    assert events == [("return", b"lost"), ("ack", 1)]
