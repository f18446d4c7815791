"""The everyday life of a pika ``BlockingConnection``: declare, publish, consume, settle."""

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
    name = fresh_name("queue")
    pika_channel.queue_declare(name)
    return name


def publish_numbers(channel: BlockingChannel, queue: str, count: int) -> None:
    for number in range(count):
        channel.basic_publish("", queue, b"%d" % number)


def collect(channel: BlockingChannel, queue: str, count: int, *, auto_ack: bool) -> list:
    """Consume exactly ``count`` messages and cancel the consumer."""
    got = []
    for method, _, body in channel.consume(queue, auto_ack=auto_ack, inactivity_timeout=20):
        assert method is not None, f"only {len(got)} of {count} messages came"
        got.append((method, body))
        if len(got) == count:
            break
    channel.cancel()
    return got


def ready_count(channel: BlockingChannel, queue: str) -> int:
    return channel.queue_declare(queue, passive=True).method.message_count


def test_the_server_announces_the_capabilities_pika_asks_for(
    pika_connection: BlockingConnection,
) -> None:
    assert pika_connection.basic_nack_supported
    assert pika_connection.consumer_cancel_notify_supported
    assert pika_connection.exchange_exchange_bindings_supported
    assert pika_connection.publisher_confirms_supported
    assert pika_connection._impl.server_capabilities["connection.blocked"]
    assert pika_connection._impl.server_capabilities["authentication_failure_close"]


def test_a_message_sent_through_a_bound_exchange_is_consumed_and_acknowledged(
    pika_channel: BlockingChannel, queue: str, fresh_name: FreshName
) -> None:
    exchange = fresh_name("exchange")
    pika_channel.exchange_declare(exchange, "direct")
    pika_channel.queue_bind(queue, exchange, "red")
    pika_channel.basic_publish(exchange, "blue", b"nobody listens")
    pika_channel.basic_publish(exchange, "red", b"hello")
    got = []

    def on_message(channel, method, properties, body):
        got.append((method.exchange, method.routing_key, method.redelivered, body))
        channel.basic_ack(method.delivery_tag)
        channel.stop_consuming()

    pika_channel.basic_consume(queue, on_message)
    pika_channel.start_consuming()
    assert got == [(exchange, "red", False, b"hello")]
    pika_channel.queue_unbind(queue, exchange, "red")
    pika_channel.basic_publish(exchange, "red", b"no longer bound")
    assert pika_channel.queue_delete(queue).method.message_count == 0


def test_basic_get_tells_how_many_are_left_and_then_that_the_queue_is_empty(
    pika_channel: BlockingChannel, queue: str
) -> None:
    pika_channel.confirm_delivery()
    publish_numbers(pika_channel, queue, 2)
    answers = [pika_channel.basic_get(queue, auto_ack=True) for _ in range(3)]
    assert [(method.message_count, body) for method, _, body in answers[:2]] == [
        (1, b"0"),
        (0, b"1"),
    ]
    assert answers[2] == (None, None, None)


def test_nacked_messages_regain_their_places_flagged_as_redelivered(
    pika_channel: BlockingChannel, queue: str
) -> None:
    publish_numbers(pika_channel, queue, 5)
    fetched = collect(pika_channel, queue, 5, auto_ack=False)
    assert fetched[0][0].redelivered is False
    pika_channel.basic_nack(fetched[2][0].delivery_tag, multiple=True, requeue=True)
    pika_channel.basic_nack(fetched[4][0].delivery_tag, requeue=False)
    pika_channel.basic_ack(fetched[3][0].delivery_tag)
    again = collect(pika_channel, queue, 3, auto_ack=True)
    assert [(method.redelivered, body) for method, body in again] == [
        (True, b"0"),
        (True, b"1"),
        (True, b"2"),
    ]


def test_a_rejected_message_is_dropped_unless_it_is_requeued(
    pika_channel: BlockingChannel, queue: str
) -> None:
    pika_channel.confirm_delivery()
    publish_numbers(pika_channel, queue, 2)
    first, _, _ = pika_channel.basic_get(queue)
    second, _, _ = pika_channel.basic_get(queue)
    pika_channel.basic_reject(first.delivery_tag, requeue=False)
    pika_channel.basic_reject(second.delivery_tag, requeue=True)
    again = collect(pika_channel, queue, 1, auto_ack=True)
    assert [(method.redelivered, body) for method, body in again] == [(True, b"1")]
    assert ready_count(pika_channel, queue) == 0


def test_recover_brings_back_all_that_was_not_acknowledged(
    pika_channel: BlockingChannel, queue: str
) -> None:
    publish_numbers(pika_channel, queue, 3)
    fetched = collect(pika_channel, queue, 3, auto_ack=False)
    pika_channel.basic_ack(fetched[1][0].delivery_tag)
    pika_channel.basic_recover(requeue=True)
    again = collect(pika_channel, queue, 2, auto_ack=True)
    assert [(method.redelivered, body) for method, body in again] == [(True, b"0"), (True, b"2")]


def test_what_a_closed_channel_held_goes_to_the_next_consumer_in_order(
    pika_connection: BlockingConnection, pika_channel: BlockingChannel, queue: str
) -> None:
    publish_numbers(pika_channel, queue, 4)
    with pika_connection.channel() as doomed:
        for _ in range(3):
            doomed.basic_get(queue)
    again = collect(pika_channel, queue, 4, auto_ack=True)
    assert [(method.redelivered, body) for method, body in again] == [
        (True, b"0"),
        (True, b"1"),
        (True, b"2"),
        (False, b"3"),
    ]


def test_no_more_messages_than_the_prefetch_are_out_at_once(
    pika_connection: BlockingConnection,
    pika_channel: BlockingChannel,
    queue: str,
    eventually: Callable,
) -> None:
    publish_numbers(pika_channel, queue, 10)
    consumer = pika_connection.channel()
    consumer.basic_qos(prefetch_count=3)
    got: list[tuple[int, bytes]] = []
    consumer.basic_consume(queue, lambda c, m, p, body: got.append((m.delivery_tag, body)))
    eventually(lambda: ready_count(pika_channel, queue) == 7, "3 of 10 to be delivered")
    eventually(lambda: pika_connection.process_data_events() or len(got) == 3, "all 3 to arrive")
    consumer.basic_ack(got[1][0], multiple=True)
    eventually(lambda: ready_count(pika_channel, queue) == 5, "2 more to be delivered")
    eventually(lambda: pika_connection.process_data_events() or len(got) == 5, "all 5 to arrive")
    assert [body for _, body in got] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_prefetch_for_the_whole_channel_can_be_raised_while_it_consumes(
    pika_connection: BlockingConnection,
    pika_channel: BlockingChannel,
    queue: str,
    eventually: Callable,
) -> None:
    publish_numbers(pika_channel, queue, 10)
    consumer = pika_connection.channel()
    consumer.basic_qos(prefetch_count=2, global_qos=True)
    consumer.basic_consume(queue, lambda *_: None)
    eventually(lambda: ready_count(pika_channel, queue) == 8, "2 of 10 to be delivered")
    consumer.basic_qos(prefetch_count=6, global_qos=True)
    eventually(lambda: ready_count(pika_channel, queue) == 4, "4 more to be delivered")


def test_the_consume_generator_reports_idleness_and_cancel_requeues_what_it_held(
    pika_channel: BlockingChannel, queue: str, eventually: Callable
) -> None:
    publish_numbers(pika_channel, queue, 3)
    bodies: list[bytes] = []
    for method, _, body in pika_channel.consume(queue, inactivity_timeout=0.2):
        if method is None and len(bodies) == 3:
            break
        if method is not None:
            bodies.append(body)
            pika_channel.basic_ack(method.delivery_tag)
    assert bodies == [b"0", b"1", b"2"]
    publish_numbers(pika_channel, queue, 2)
    eventually(
        lambda: (
            pika_channel.connection.process_data_events()
            or pika_channel.get_waiting_message_count() == 2
        ),
        "both messages to wait in the generator",
    )
    pika_channel.cancel()
    eventually(lambda: ready_count(pika_channel, queue) == 2, "both messages to be requeued")


def test_an_auto_delete_queue_goes_with_its_last_consumer(
    pika_connection: BlockingConnection, fresh_name: FreshName
) -> None:
    name = fresh_name("auto-delete")
    channel = pika_connection.channel()
    channel.queue_declare(name, auto_delete=True)
    channel.basic_publish("", name, b"one")
    first = channel.basic_consume(name, lambda *_: None)
    second = channel.basic_consume(name, lambda *_: None)
    channel.basic_cancel(first)
    assert channel.queue_declare(name, passive=True).method.consumer_count == 1
    channel.basic_cancel(second)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare(name, passive=True)
    assert caught.value.reply_code == 404


def test_an_exclusive_queue_is_locked_for_others_and_goes_with_its_connection(
    open_pika: Callable[[], BlockingConnection], fresh_name: FreshName
) -> None:
    name = fresh_name("exclusive")
    owner, other = open_pika(), open_pika()
    owner.channel().queue_declare(name, exclusive=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        other.channel().queue_declare(name, passive=True)
    assert caught.value.reply_code == 405
    other.channel().basic_publish("", name, b"publishing is allowed")
    owner.close()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        other.channel().queue_declare(name, passive=True)
    assert caught.value.reply_code == 404


def test_a_server_named_queue_is_what_the_empty_name_means_afterwards(
    pika_channel: BlockingChannel,
) -> None:
    name = pika_channel.queue_declare("", exclusive=True).method.queue
    assert name.startswith("amq.gen-")
    pika_channel.queue_bind("", "amq.topic", "a.#")
    pika_channel.basic_publish("amq.topic", "a.b", b"to the last queue declared")
    [(method, body)] = collect(pika_channel, "", 1, auto_ack=True)
    assert (method.exchange, body) == ("amq.topic", b"to the last queue declared")


def test_deleting_a_queue_cancels_its_consumer_and_ends_the_generator(
    pika_connection: BlockingConnection, pika_channel: BlockingChannel, queue: str
) -> None:
    consumer = pika_connection.channel()
    cancelled = []
    consumer.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = consumer.basic_consume(queue, lambda *_: None)
    pika_channel.queue_delete(queue)
    consumer.start_consuming()
    assert cancelled == [tag]
    assert consumer.is_open


def test_purge_and_delete_answer_with_the_number_of_messages(
    pika_channel: BlockingChannel, queue: str
) -> None:
    pika_channel.confirm_delivery()
    publish_numbers(pika_channel, queue, 4)
    assert pika_channel.queue_purge(queue).method.message_count == 4
    publish_numbers(pika_channel, queue, 2)
    assert pika_channel.queue_delete(queue).method.message_count == 2


def test_exchanges_bound_to_exchanges_pass_messages_on(
    pika_channel: BlockingChannel, queue: str, fresh_name: FreshName
) -> None:
    source, target = fresh_name("source"), fresh_name("target")
    pika_channel.exchange_declare(source, "topic")
    pika_channel.exchange_declare(target, "fanout", internal=True)
    pika_channel.exchange_bind(destination=target, source=source, routing_key="*.eu.#")
    pika_channel.queue_bind(queue, target)
    pika_channel.confirm_delivery()
    pika_channel.basic_publish(source, "orders.eu.paid", b"in", mandatory=True)
    pika_channel.exchange_unbind(destination=target, source=source, routing_key="*.eu.#")
    with pytest.raises(pika.exceptions.UnroutableError):
        pika_channel.basic_publish(source, "orders.eu.paid", b"out", mandatory=True)
    assert [body for _, body in collect(pika_channel, queue, 1, auto_ack=True)] == [b"in"]


def test_one_hundred_channels_of_one_connection_work_side_by_side(
    pika_connection: BlockingConnection, pika_channel: BlockingChannel, queue: str
) -> None:
    channels = [pika_connection.channel() for _ in range(100)]
    for number, channel in enumerate(channels):
        channel.basic_publish("", queue, b"%d" % number)
    bodies = {body for _, body in collect(pika_channel, queue, 100, auto_ack=True)}
    assert bodies == {b"%d" % number for number in range(100)}
    for channel in channels:
        channel.close()


def test_a_connection_with_one_second_heartbeats_lives_on_while_idle(
    open_pika: Callable[..., BlockingConnection],
) -> None:
    connection = open_pika(heartbeat=1)
    assert connection._impl.params.heartbeat == 1
    connection.process_data_events(time_limit=3.5)
    assert connection.channel().is_open


def test_blocked_callbacks_can_be_registered_and_stay_silent_without_an_alarm(
    open_pika: Callable[..., BlockingConnection], fresh_name: FreshName
) -> None:
    connection = open_pika(blocked_connection_timeout=30)
    events: list[str] = []
    connection.add_on_connection_blocked_callback(lambda *_: events.append("blocked"))
    connection.add_on_connection_unblocked_callback(lambda *_: events.append("unblocked"))
    channel = connection.channel()
    name = fresh_name("unblocked")
    channel.queue_declare(name)
    channel.confirm_delivery()
    publish_numbers(channel, name, 3)
    connection.process_data_events()
    assert events == []


def test_a_new_secret_is_accepted_on_a_live_connection(
    pika_connection: BlockingConnection, pika_channel: BlockingChannel
) -> None:
    pika_connection.update_secret("guest", "rotation")
    assert pika_channel.queue_declare("", exclusive=True).method.message_count == 0
