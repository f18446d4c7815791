"""Deliveries, get-ok and returns: byte for byte what pamqp writes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from broker.channel.deliveries import Deliveries
from broker.channel.publisher import Publisher
from queues.consumers import Consumer
from tests.channel.fakes import (
    Client,
    FakeLink,
    contents,
    declare,
    properties_of,
    stored_message,
)
from tests.protocol.pamqp_frames import (
    NAME,
    PROPERTIES,
    body_frame,
    header_frame,
    method_frame,
    unmarshal_all,
)


def pamqp_content(channel, payload, properties, frame_max):
    """Header and body frames as pamqp writes them, cut to frame_max."""
    most = frame_max - 8
    pieces = [body_frame(channel, payload[at : at + most]) for at in range(0, len(payload), most)]
    return header_frame(channel, len(payload), properties) + b"".join(pieces)


MESSAGE = st.tuples(
    NAME, NAME, st.binary(max_size=30) | st.just(bytes(9000)), PROPERTIES, st.sampled_from([1, 7])
)
SETTINGS = settings(derandomize=True, deadline=None, max_examples=60)


@SETTINGS
@given(
    NAME,
    st.lists(MESSAGE, max_size=5),
    st.booleans(),
    st.sampled_from([1, 7, 65535]),
    st.sampled_from([4096, 4097, 131072]),
)
def test_deliveries_are_what_pamqp_writes(tag, messages, no_ack, number, frame_max):
    link = FakeLink(frame_max=frame_max)
    deliveries = Deliveries(number, link, lambda consumer: None)
    consumer = Consumer(tag, declare(link, "q"), deliveries, no_ack=no_ack)
    made = [
        stored_message(payload, properties, exchange=exchange, key=key, channel=publisher)
        for exchange, key, payload, properties, publisher in messages
    ]
    deliveries.deliver(consumer, made[:2])
    deliveries.deliver(consumer, made[2:])
    expected = [
        method_frame(
            number,
            commands.Basic.Deliver,
            consumer_tag=tag,
            delivery_tag=at,
            redelivered=False,
            exchange=exchange,
            routing_key=key,
        )
        + pamqp_content(number, payload, properties, frame_max)
        for at, (exchange, key, payload, properties, _) in enumerate(messages, 1)
    ]
    assert link.take_raw() == b"".join(expected)
    held = {} if no_ack else {at: (consumer, m) for at, m in enumerate(made, 1)}
    assert deliveries.unacked == held


@SETTINGS
@given(MESSAGE, st.booleans(), st.integers(0, 2**32 - 1), st.sampled_from([4096, 131072]))
def test_get_ok_is_what_pamqp_writes(message, no_ack, left, frame_max):
    exchange, key, payload, properties, publisher = message
    link = FakeLink(frame_max=frame_max)
    deliveries = Deliveries(5, link, lambda consumer: None)
    holder = Consumer("", declare(link, "q"), deliveries, no_ack=no_ack, fetching=True)
    made = stored_message(payload, properties, exchange=exchange, key=key, channel=publisher)
    deliveries.deliver_get(holder, made, left)
    expected = method_frame(
        5,
        commands.Basic.GetOk,
        delivery_tag=1,
        redelivered=False,
        exchange=exchange,
        routing_key=key,
        message_count=left,
    ) + pamqp_content(5, payload, properties, frame_max)
    assert link.take_raw() == expected
    assert len(deliveries.unacked) == (0 if no_ack else 1)


@SETTINGS
@given(
    NAME.filter(lambda key: not key.startswith("amq.rabbitmq")),
    st.binary(max_size=30) | st.just(bytes(9000)),
    st.none() | st.text(max_size=5),
    st.sampled_from([4096, 131072]),
)
def test_returns_are_what_pamqp_writes(key, payload, message_id, frame_max):
    link = FakeLink(frame_max=frame_max)
    properties = commands.Basic.Properties(message_id=message_id)
    publisher = Publisher(3, link, set(), lambda tag, lease_ms: False)
    publish = {"payload": payload, "properties": properties, "routing_key": key, "mandatory": True}
    publisher.publish(contents(publish, channel=3))
    expected = method_frame(
        3,
        commands.Basic.Return,
        reply_code=312,
        reply_text="NO_ROUTE",
        exchange="",
        routing_key=key,
    ) + pamqp_content(3, payload, properties, frame_max)
    assert link.take_raw() == expected


@pytest.mark.parametrize("by_get", [False, True], ids=["delivered", "fetched"])
@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_redeliveries_are_flagged_and_quorum_queues_say_how_often(queue_type, by_get):
    link = FakeLink()
    queue = declare(link, "q", x_queue_type=queue_type)
    deliveries = Deliveries(2, link, lambda consumer: None)
    consumer = Consumer("c", queue, deliveries, fetching=by_get)
    properties = commands.Basic.Properties(headers={"k": 0.5}, message_id="m")
    made = stored_message(b"body", properties)
    made.redelivered, made.delivery_count = True, 3
    if by_get:
        deliveries.deliver_get(consumer, made, 0)
    else:
        deliveries.deliver(consumer, [made])
    (_, method), (_, head), (_, body) = unmarshal_all(link.take_raw())
    assert method.redelivered is True
    counted = {"x-delivery-count": 3} if queue_type == "quorum" else {}
    assert head.properties.headers == {"k": 0.5} | counted
    assert (head.properties.message_id, body.value) == ("m", b"body")
    assert properties_of(made).headers == {"k": 0.5}, "the message itself is not changed"


def test_ever_new_routing_keys_do_not_fill_the_memory():
    link = FakeLink()
    deliveries = Deliveries(1, link, lambda consumer: None)
    consumer = Consumer("c", declare(link, "q"), deliveries, no_ack=True)
    for n in range(1000):
        deliveries.deliver(consumer, [stored_message(b"", key=f"key {n}")])
    assert len(consumer.heads) <= 256
    keys = [value.routing_key for _, value in link.take() if value.name == "Basic.Deliver"]
    assert keys == [f"key {n}" for n in range(1000)]


def test_confirms_are_what_pamqp_writes():
    client = Client(FakeLink(), 4)
    client.channel._confirm(7, multiple=True, positive=True)
    client.channel._confirm(8, multiple=False, positive=False)
    assert client.link.take_raw() == method_frame(
        4, commands.Basic.Ack, delivery_tag=7, multiple=True
    ) + method_frame(4, commands.Basic.Nack, delivery_tag=8, multiple=False, requeue=False)
