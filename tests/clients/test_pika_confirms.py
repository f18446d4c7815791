"""Publisher confirms, returns and transactions as pika's blocking adapter sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pika
import pytest

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

FreshName = Callable[[str], str]


@pytest.fixture
def queue(pika_channel: BlockingChannel, fresh_name: FreshName) -> str:
    name = fresh_name("confirms")
    pika_channel.queue_declare(name)
    return name


def ready_count(channel: BlockingChannel, queue: str) -> int:
    return channel.queue_declare(queue, passive=True).method.message_count


def test_a_confirmed_message_is_in_the_queue_at_once(
    pika_channel: BlockingChannel, queue: str
) -> None:
    pika_channel.confirm_delivery()
    for expected in range(1, 21):
        pika_channel.basic_publish("", queue, b"x", mandatory=True)
        assert ready_count(pika_channel, queue) == expected


def test_a_mandatory_message_that_no_queue_takes_raises_unroutable(
    pika_channel: BlockingChannel, fresh_name: FreshName
) -> None:
    pika_channel.confirm_delivery()
    nowhere = fresh_name("nowhere")
    properties = pika.BasicProperties(message_id="m-1", headers={"n": 1})
    with pytest.raises(pika.exceptions.UnroutableError) as caught:
        pika_channel.basic_publish("", nowhere, b"lost", properties, mandatory=True)
    [returned] = caught.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key) == ("", nowhere)
    assert (returned.properties.message_id, returned.properties.headers) == ("m-1", {"n": 1})
    assert returned.body == b"lost"


def test_an_unroutable_message_that_is_not_mandatory_is_confirmed_and_lost(
    pika_channel: BlockingChannel, queue: str, fresh_name: FreshName
) -> None:
    pika_channel.confirm_delivery()
    pika_channel.basic_publish("", fresh_name("nowhere"), b"lost")
    assert ready_count(pika_channel, queue) == 0


def test_without_confirms_a_return_reaches_the_callback(
    pika_channel: BlockingChannel,
    pika_connection: BlockingConnection,
    fresh_name: FreshName,
    eventually: Callable,
) -> None:
    returned: list[tuple[int, bytes]] = []
    pika_channel.add_on_return_callback(
        lambda channel, method, properties, body: returned.append((method.reply_code, body))
    )
    pika_channel.basic_publish("", fresh_name("nowhere"), b"lost", mandatory=True)
    eventually(
        lambda: pika_connection.process_data_events(time_limit=0.05) or returned, "the return"
    )
    assert returned == [(312, b"lost")]


def test_a_full_queue_that_rejects_publishes_raises_nack(
    pika_channel: BlockingChannel, fresh_name: FreshName
) -> None:
    name = fresh_name("full")
    arguments = {"x-max-length": 2, "x-overflow": "reject-publish"}
    pika_channel.queue_declare(name, arguments=arguments)
    pika_channel.confirm_delivery()
    pika_channel.basic_publish("", name, b"1")
    pika_channel.basic_publish("", name, b"2")
    with pytest.raises(pika.exceptions.NackError):
        pika_channel.basic_publish("", name, b"3")
    method, _, body = pika_channel.basic_get(name, auto_ack=True)
    assert (method.message_count, body) == (1, b"1")
    pika_channel.basic_publish("", name, b"4")


def test_an_alternate_exchange_catches_what_would_be_unroutable(
    pika_channel: BlockingChannel, queue: str, fresh_name: FreshName
) -> None:
    main, spare = fresh_name("main"), fresh_name("spare")
    pika_channel.exchange_declare(spare, "fanout")
    pika_channel.exchange_declare(main, "direct", arguments={"alternate-exchange": spare})
    pika_channel.queue_bind(queue, spare)
    pika_channel.confirm_delivery()
    pika_channel.basic_publish(main, "unbound", b"caught", mandatory=True)
    method, _, body = pika_channel.basic_get(queue, auto_ack=True)
    assert (method.exchange, method.routing_key, body) == (main, "unbound", b"caught")


def test_a_transaction_publishes_only_when_it_is_committed(
    pika_connection: BlockingConnection, pika_channel: BlockingChannel, queue: str
) -> None:
    transaction = pika_connection.channel()
    transaction.tx_select()
    transaction.basic_publish("", queue, b"first")
    transaction.basic_publish("", queue, b"second")
    assert ready_count(transaction, queue) == 0
    transaction.tx_commit()
    assert ready_count(pika_channel, queue) == 2
    transaction.basic_publish("", queue, b"third")
    transaction.tx_rollback()
    transaction.tx_commit()
    assert ready_count(pika_channel, queue) == 2


def test_acks_in_a_transaction_count_only_when_it_is_committed(
    pika_connection: BlockingConnection, pika_channel: BlockingChannel, queue: str
) -> None:
    pika_channel.confirm_delivery()
    for body in (b"kept", b"done"):
        pika_channel.basic_publish("", queue, body)
    transaction = pika_connection.channel()
    transaction.tx_select()
    kept, _, _ = transaction.basic_get(queue)
    done, _, _ = transaction.basic_get(queue)
    transaction.basic_ack(done.delivery_tag)
    transaction.tx_commit()
    transaction.basic_ack(kept.delivery_tag)
    transaction.tx_rollback()
    transaction.close()
    method, _, body = pika_channel.basic_get(queue, auto_ack=True)
    assert (method.redelivered, method.message_count, body) == (True, 0, b"kept")
