"""py-amqp, the library under kombu and Celery, used on its own."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from urllib.parse import urlsplit

import amqp
import pytest

FreshName = Callable[[str], str]
OpenConnection = Callable[..., amqp.Connection]
DEADLINE_S = 30


@pytest.fixture
def connect(amqp_url: str, fresh_name: FreshName) -> Iterator[OpenConnection]:
    parts = urlsplit(amqp_url)
    opened: list[amqp.Connection] = []

    def open_connection(**settings: object) -> amqp.Connection:
        settings = {"userid": parts.username, "password": parts.password, **settings}
        connection = amqp.Connection(f"{parts.hostname}:{parts.port}", **settings)
        opened.append(connection)
        connection.connect()
        return connection

    yield open_connection
    for connection in opened:
        connection.close() if connection.connected else connection.collect()


@pytest.fixture
def channel(connect: OpenConnection) -> amqp.Channel:
    return connect().channel()


def test_the_server_introduces_itself_as_a_rabbitmq_compatible_broker(
    connect: OpenConnection,
) -> None:
    connection = connect()
    assert (connection.version_major, connection.version_minor) == (0, 9)
    assert b"PLAIN" in connection.mechanisms
    assert b"AMQPLAIN" in connection.mechanisms
    assert connection.server_properties["product"] == "RabbitMQ"
    version = connection.server_properties["version"].split(".")
    assert (int(version[0]), int(version[1])) >= (3, 10)
    assert {
        "basic.nack",
        "connection.blocked",
        "consumer_cancel_notify",
        "consumer_priorities",
        "direct_reply_to",
        "exchange_exchange_bindings",
        "per_consumer_qos",
        "publisher_confirms",
    } <= {name for name, on in connection.server_capabilities.items() if on}


@pytest.mark.parametrize("method", ["PLAIN", "AMQPLAIN"])
def test_both_sasl_mechanisms_log_in(connect: OpenConnection, method: str) -> None:
    assert connect(login_method=method).channel().is_open


@pytest.mark.parametrize("method", ["PLAIN", "AMQPLAIN"])
def test_both_sasl_mechanisms_refuse_a_wrong_password(connect: OpenConnection, method: str) -> None:
    with pytest.raises(amqp.AccessRefused) as caught:
        connect(login_method=method, password="wrong")
    assert caught.value.reply_code == 403


def test_an_unknown_vhost_is_not_allowed(connect: OpenConnection, fresh_name: FreshName) -> None:
    with pytest.raises(amqp.NotAllowed) as caught:
        connect(virtual_host=fresh_name("vhost"))
    assert caught.value.reply_code == 530


def test_messages_are_consumed_in_order_and_acknowledged_together(
    channel: amqp.Channel, fresh_name: FreshName
) -> None:
    name = fresh_name("order")
    channel.queue_declare(name, auto_delete=False)
    for number in range(30):
        channel.basic_publish(amqp.Message(str(number)), routing_key=name)
    got: list[amqp.Message] = []
    channel.basic_qos(0, 10, a_global=False)
    channel.basic_consume(name, callback=got.append)
    while len(got) < 30:
        channel.connection.drain_events(timeout=DEADLINE_S)
        if len(got) % 10 == 0:
            channel.basic_ack(got[-1].delivery_tag, multiple=True)
    assert [message.body for message in got] == [str(number) for number in range(30)]
    assert channel.queue_declare(name, passive=True) == (name, 0, 1)


def test_headers_of_every_type_come_back_unchanged(
    channel: amqp.Channel, fresh_name: FreshName
) -> None:
    name = fresh_name("headers")
    headers = {
        "floats": [0.1, -1.5e300, 5e-324],
        "ints": [0, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)],
        "bools": [True, False],
        "none": None,
        "decimal": Decimal("-12.345"),
        "time": dt.datetime(2024, 2, 29, 23, 59, 59),  # noqa: DTZ001 - py-amqp reads it naive
        "text": "Grüße, 世界 🐇",
        "table": {"array": [{"deep": [[], {}]}]},
    }
    channel.queue_declare(name)
    message = amqp.Message(b"\x00\xff", application_headers=headers, content_encoding="binary")
    channel.basic_publish_confirm(message, routing_key=name)
    received = channel.basic_get(name, no_ack=True)
    assert received.headers == headers
    assert received.body == b"\x00\xff"


def test_a_confirmed_publish_to_a_full_queue_raises_nacked(
    channel: amqp.Channel, fresh_name: FreshName
) -> None:
    name = fresh_name("full")
    channel.queue_declare(name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.basic_publish_confirm(amqp.Message("fits"), routing_key=name)
    with pytest.raises(amqp.exceptions.MessageNacked):
        channel.basic_publish_confirm(amqp.Message("refused"), routing_key=name)


def test_a_mandatory_message_without_a_route_is_returned(
    channel: amqp.Channel, fresh_name: FreshName
) -> None:
    returned: list[tuple] = []
    channel.events["basic_return"].add(
        lambda exception, exchange, key, message: returned.append((exception.reply_code, message))
    )
    nowhere = fresh_name("nowhere")
    channel.basic_publish_confirm(amqp.Message("lost"), routing_key=nowhere, mandatory=True)
    [(code, message)] = returned
    assert (code, message.body) == (312, "lost")


def test_immediate_is_not_implemented_and_closes_the_connection(
    channel: amqp.Channel, fresh_name: FreshName
) -> None:
    with pytest.raises(amqp.AMQPNotImplementedError) as caught:
        channel.basic_publish_confirm(
            amqp.Message("now"), routing_key=fresh_name("now"), immediate=True
        )
    assert caught.value.reply_code == 540


def test_a_consumer_tag_used_twice_closes_the_connection(
    channel: amqp.Channel, fresh_name: FreshName
) -> None:
    name = fresh_name("tag")
    channel.queue_declare(name)
    channel.basic_consume(name, consumer_tag="mine")
    with pytest.raises(amqp.NotAllowed) as caught:
        channel.basic_consume(name, consumer_tag="mine")
    assert caught.value.reply_code == 530


def test_methods_sent_without_waiting_take_effect_in_order(
    channel: amqp.Channel, fresh_name: FreshName
) -> None:
    exchange, name = fresh_name("exchange"), fresh_name("nowait")
    channel.exchange_declare(exchange, "direct", nowait=True)
    channel.queue_declare(name, nowait=True, auto_delete=False)
    channel.queue_bind(name, exchange, "key", nowait=True)
    channel.basic_publish(amqp.Message("here"), exchange, "key")
    got: list[str] = []
    channel.basic_consume(
        name, consumer_tag="t", no_ack=True, nowait=True, callback=lambda m: got.append(m.body)
    )
    while not got:
        channel.connection.drain_events(timeout=DEADLINE_S)
    channel.basic_cancel("t", nowait=True)
    channel.queue_delete(name, nowait=True)
    with pytest.raises(amqp.NotFound):
        channel.queue_declare(name, passive=True)
    assert got == ["here"]


def test_the_server_sends_heartbeats_and_drops_a_client_that_sends_none(
    connect: OpenConnection,
) -> None:
    connection = connect(heartbeat=1)
    received_before = connection.bytes_recv
    with pytest.raises(connection.connection_errors) as caught:
        connection.drain_events(timeout=DEADLINE_S)
    assert not isinstance(caught.value, TimeoutError), "the silent client was kept"
    assert connection.bytes_recv > received_before
