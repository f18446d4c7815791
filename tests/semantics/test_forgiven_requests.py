"""Requests that look like mistakes and are none: existing clients send them."""

import pytest

from tests.support.frames import Basic, Exchange, Queue, unvalidated
from tests.support.scene import Scene
from tests.support.wire import WireChannel


def test_ack_multiple_of_tag_zero_with_nothing_outstanding_is_fine(channel: WireChannel) -> None:
    channel.ack(0, multiple=True)
    channel.qos(1)


def test_nack_multiple_of_tag_zero_with_nothing_outstanding_is_fine(channel: WireChannel) -> None:
    channel.nack(0, multiple=True)
    channel.qos(1)


def test_deleting_a_missing_queue_counts_no_messages(scene: Scene, channel: WireChannel) -> None:
    assert channel.rpc(Queue.Delete(queue=scene.queue_name())).message_count == 0


def test_deleting_a_missing_exchange_is_fine(scene: Scene, channel: WireChannel) -> None:
    channel.rpc(Exchange.Delete(exchange=scene.exchange_name()))


def test_unbinding_a_missing_binding_is_fine(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.rpc(Queue.Unbind(queue=queue, exchange="amq.direct", routing_key="never bound"))
    channel.rpc(Queue.Unbind(queue=queue, exchange=scene.exchange_name(), routing_key="k"))
    channel.rpc(Queue.Unbind(queue=scene.queue_name(), exchange="amq.direct", routing_key="k"))
    channel.rpc(
        Exchange.Unbind(source="amq.direct", destination="amq.fanout", routing_key="never bound")
    )


def test_cancelling_an_unknown_tag_is_answered(channel: WireChannel) -> None:
    assert channel.rpc(Basic.Cancel(consumer_tag="nobody")).consumer_tag == "nobody"


def test_unknown_arguments_are_ignored(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True, arguments={"x-fancy": "yes"})
    channel.consume(queue, arguments={"x-fancy": [1, {"deep": True}]})
    scene.exchange(channel, "fanout", auto_delete=True, arguments={"x-fancy": 1})


@pytest.mark.parametrize(
    ("exchange", "kind"),
    [
        ("amq.direct", "direct"),
        ("amq.fanout", "fanout"),
        ("amq.topic", "topic"),
        ("amq.headers", "headers"),
        ("amq.match", "headers"),
    ],
)
def test_predeclared_exchanges_may_be_declared_again(
    channel: WireChannel, exchange: str, kind: str
) -> None:
    channel.declare_exchange(exchange, kind, durable=True)
    channel.declare_exchange(exchange, passive=True)


def test_publishing_to_another_connections_exclusive_queue_is_allowed(
    scene: Scene, channel: WireChannel
) -> None:
    owner = scene.channel()
    queue = scene.queue(owner, exclusive=True)
    owner.consume(queue, no_ack=True)
    channel.publish("", queue, b"hello")
    assert owner.delivery().body == b"hello"


def test_odd_queue_names_are_allowed(channel: WireChannel) -> None:
    for name in ("with space", "nul\0", "grüße 🐇", "x" * 255):
        assert channel.declare_queue(name, exclusive=True).queue == name
        channel.publish("", name, b"in")
        assert channel.get(name, no_ack=True).routing_key == name


def test_an_exchange_declared_again_with_equal_properties_is_fine(
    scene: Scene, channel: WireChannel
) -> None:
    arguments = {"alternate-exchange": "amq.fanout"}
    name = scene.exchange(channel, "topic", auto_delete=True, arguments=arguments)
    channel.declare_exchange(name, "topic", auto_delete=True, arguments=arguments)


def test_the_type_is_ignored_in_a_passive_declare(scene: Scene, channel: WireChannel) -> None:
    name = scene.exchange(channel, "fanout")
    channel.declare_exchange(name, "direct", passive=True, durable=True)


def test_integer_arguments_are_equal_whatever_their_width(
    scene: Scene, channel: WireChannel
) -> None:
    name = scene.queue(channel, arguments={"x-message-ttl": 60_000})
    channel.declare_queue(name, arguments={"x-message-ttl": 60_000})
    wide = b"\x0dx-message-ttll" + (60_000).to_bytes(8, "big")
    arguments = len(wide).to_bytes(4, "big") + wide
    method = b"\0\x32\0\x0a\0\0" + bytes([len(name)]) + name.encode() + b"\0" + arguments
    channel.send_raw(b"\1\0\1" + len(method).to_bytes(4, "big") + method + b"\xce")
    assert channel.reply_to(unvalidated(Queue.Declare)).queue == name


def test_line_ends_are_taken_out_of_declared_names(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue_name()
    assert channel.declare_queue(f"{queue}\r\n", exclusive=True).queue == queue
