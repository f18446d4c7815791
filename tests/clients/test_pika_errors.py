"""Each mistake a pika program can make closes the right thing with the right code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pika
import pytest

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

FreshName = Callable[[str], str]
Mistake = Callable[["BlockingChannel", str], object]


def redeclare_as_durable(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    channel.queue_declare(name, durable=True)


def redeclare_with_another_type(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, "direct")
    channel.exchange_declare(name, "topic")


def delete_a_queue_in_use(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    channel.basic_consume(name, lambda *_: None)
    channel.queue_delete(name, if_unused=True)


def delete_a_queue_with_messages(channel: BlockingChannel, name: str) -> None:
    channel.confirm_delivery()
    channel.queue_declare(name)
    channel.basic_publish("", name, b"x")
    channel.queue_delete(name, if_empty=True)


def delete_an_exchange_in_use(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    channel.exchange_declare(name, "fanout")
    channel.queue_bind(name, name)
    channel.exchange_delete(name, if_unused=True)


def ack_twice(channel: BlockingChannel, name: str) -> None:
    channel.confirm_delivery()
    channel.queue_declare(name)
    channel.basic_publish("", name, b"x")
    method, _, _ = channel.basic_get(name)
    channel.basic_ack(method.delivery_tag)
    channel.basic_ack(method.delivery_tag)
    channel.queue_declare(name, passive=True)


def ack_the_unknown(channel: BlockingChannel, name: str) -> None:
    channel.basic_ack(42)
    channel.queue_declare(name)


def publish_to_no_exchange(channel: BlockingChannel, name: str) -> None:
    channel.confirm_delivery()
    channel.basic_publish(name, "key", b"x")


def publish_to_an_internal_exchange(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, "fanout", internal=True)
    channel.confirm_delivery()
    channel.basic_publish(name, "key", b"x")


def consume_beside_an_exclusive_consumer(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    channel.basic_consume(name, lambda *_: None, exclusive=True)
    channel.basic_consume(name, lambda *_: None)


def mix_confirms_into_a_transaction(channel: BlockingChannel, name: str) -> None:
    channel.tx_select()
    channel.confirm_delivery()


def publish_with_a_bad_expiration(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    channel.confirm_delivery()
    channel.basic_publish("", name, b"x", pika.BasicProperties(expiration="soon"))


def publish_as_somebody_else(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    channel.confirm_delivery()
    channel.basic_publish("", name, b"x", pika.BasicProperties(user_id="somebody-else"))


CHANNEL_MISTAKES: list[tuple[int, str, Mistake]] = [
    (404, "no queue", lambda channel, name: channel.queue_declare(name, passive=True)),
    (404, "no exchange", lambda channel, name: channel.exchange_declare(name, passive=True)),
    (404, "no queue", lambda channel, name: channel.basic_get(name)),
    (404, "no queue", lambda channel, name: channel.basic_consume(name, lambda *_: None)),
    (404, "no queue", lambda channel, name: channel.queue_purge(name)),
    (404, "no queue", lambda channel, name: channel.queue_bind(name, "amq.direct", "k")),
    (404, "no exchange", publish_to_no_exchange),
    (403, "", publish_to_an_internal_exchange),
    (403, "amq.", lambda channel, name: channel.queue_declare("amq.mine")),
    (403, "amq.", lambda channel, name: channel.exchange_declare("amq.mine")),
    (403, "", lambda channel, name: channel.exchange_delete("amq.direct")),
    (403, "", lambda channel, name: channel.exchange_bind("amq.direct", "", "k")),
    (403, "", consume_beside_an_exclusive_consumer),
    (406, "inequivalent arg 'durable' for queue", redeclare_as_durable),
    (406, "inequivalent arg 'type' for exchange", redeclare_with_another_type),
    (406, "in use", delete_a_queue_in_use),
    (406, "not empty", delete_a_queue_with_messages),
    (406, "in use", delete_an_exchange_in_use),
    (406, "unknown delivery tag 1", ack_twice),
    (406, "unknown delivery tag 42", ack_the_unknown),
    (406, "", mix_confirms_into_a_transaction),
    (406, "", lambda channel, name: channel.tx_commit()),
    (406, "", publish_with_a_bad_expiration),
    (406, "", publish_as_somebody_else),
    (
        406,
        "x-max-length",
        lambda channel, name: channel.queue_declare(name, arguments={"x-max-length": -1}),
    ),
]


@pytest.mark.parametrize(("code", "text", "mistake"), CHANNEL_MISTAKES)
def test_a_soft_mistake_closes_only_the_channel_with_its_code(
    pika_connection: BlockingConnection,
    fresh_name: FreshName,
    code: int,
    text: str,
    mistake: Mistake,
) -> None:
    bystander = pika_connection.channel()
    channel = pika_connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        mistake(channel, fresh_name("mistake"))
    assert caught.value.reply_code == code
    assert text in caught.value.reply_text
    assert channel.is_closed
    assert bystander.queue_declare("", exclusive=True).method.message_count == 0
    reopened = pika_connection.channel(channel.channel_number)
    assert reopened.channel_number == channel.channel_number


CONNECTION_MISTAKES: list[tuple[int, Mistake]] = [
    (540, lambda channel, name: channel.basic_qos(prefetch_size=1000)),
    (540, lambda channel, name: channel.basic_recover(requeue=False)),
    (540, lambda channel, name: channel.flow(active=False)),
]


@pytest.mark.parametrize(("code", "mistake"), CONNECTION_MISTAKES)
def test_a_hard_mistake_closes_the_connection_with_its_code(
    pika_connection: BlockingConnection, fresh_name: FreshName, code: int, mistake: Mistake
) -> None:
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        mistake(pika_connection.channel(), fresh_name("mistake"))
    assert caught.value.reply_code == code
    assert pika_connection.is_closed


def test_deleting_what_does_not_exist_is_no_mistake(
    pika_channel: BlockingChannel, fresh_name: FreshName
) -> None:
    name = fresh_name("missing")
    pika_channel.queue_delete(name)
    pika_channel.exchange_delete(name)
    pika_channel.queue_declare(name, exclusive=True)
    pika_channel.queue_unbind(name, "amq.direct", "never bound")
    assert pika_channel.is_open


def test_a_wrong_password_is_reported_as_an_authentication_error(
    open_pika: Callable[..., BlockingConnection],
) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match="403"):
        open_pika(credentials=pika.PlainCredentials("guest", "wrong"))


def test_an_unknown_vhost_is_reported_as_denied_access(
    open_pika: Callable[..., BlockingConnection], fresh_name: FreshName
) -> None:
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="530"):
        open_pika(virtual_host=fresh_name("vhost"))


def test_closing_a_connection_with_open_consumers_and_unacked_messages_is_clean(
    open_pika: Callable[..., BlockingConnection], fresh_name: FreshName
) -> None:
    name = fresh_name("closing")
    connection = open_pika()
    channel = connection.channel()
    channel.queue_declare(name)
    for _ in range(5):
        channel.basic_publish("", name, b"x")
    next(channel.consume(name, inactivity_timeout=20))
    connection.close()
    assert connection.is_closed
    with open_pika() as after:
        declared = after.channel().queue_declare(name, passive=True).method
        assert (declared.message_count, declared.consumer_count) == (5, 0)
