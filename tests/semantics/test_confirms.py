"""Publisher confirms and mandatory returns: what is acked, when, and in which order."""

import pytest

from tests.support.frames import Basic, Confirm
from tests.support.scene import Scene
from tests.support.wire import WireChannel


@pytest.fixture
def publisher(channel: WireChannel) -> WireChannel:
    channel.rpc(Confirm.Select())
    return channel


def confirmed(channel: WireChannel, count: int) -> list[int]:
    """Tags in the order the broker acked them, multiples spelled out."""
    tags: list[int] = []
    while len(tags) < count:
        ack = channel.expect(Basic.Ack)
        first = len(tags) + 1 if ack.multiple else ack.delivery_tag
        tags += [tag for tag in range(first, ack.delivery_tag + 1) if tag not in tags]
    return tags


def test_every_publish_is_confirmed_once(scene: Scene, publisher: WireChannel) -> None:
    queue = scene.queue(publisher, exclusive=True)
    for number in range(1000):
        publisher.publish("", queue, b"%d" % number)
    assert sorted(confirmed(publisher, 1000)) == list(range(1, 1001))
    publisher.assert_quiet(queue)
    assert publisher.count(queue) == 1000


def test_counting_starts_with_select(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.publish("", queue)
    channel.rpc(Confirm.Select())
    channel.publish("", queue)
    assert channel.expect(Basic.Ack).delivery_tag == 1


def test_select_twice_does_not_start_anew(scene: Scene, publisher: WireChannel) -> None:
    queue = scene.queue(publisher, exclusive=True)
    publisher.publish("", queue)
    assert publisher.expect(Basic.Ack).delivery_tag == 1
    publisher.rpc(Confirm.Select())
    publisher.publish("", queue)
    assert publisher.expect(Basic.Ack).delivery_tag == 2


def test_an_unroutable_message_is_confirmed(publisher: WireChannel) -> None:
    publisher.publish("", "no-such-queue-anywhere")
    assert publisher.expect(Basic.Ack).delivery_tag == 1


def test_an_unroutable_mandatory_message_is_returned_and_then_confirmed(
    publisher: WireChannel,
) -> None:
    publisher.publish("amq.direct", "nowhere", b"body", mandatory=True, message_id="m", priority=3)
    returned = publisher.expect(Basic.Return)
    assert (returned.reply_code, returned.reply_text) == (312, "NO_ROUTE")
    assert (returned.exchange, returned.routing_key) == ("amq.direct", "nowhere")
    assert returned.body == b"body"
    assert (returned.properties.message_id, returned.properties.priority) == ("m", 3)
    assert publisher.expect(Basic.Ack).delivery_tag == 1


def test_a_mandatory_message_is_returned_without_confirms_too(channel: WireChannel) -> None:
    channel.publish("", "nowhere", b"", mandatory=True)
    assert channel.expect(Basic.Return).body == b""


def test_a_routed_mandatory_message_is_not_returned(scene: Scene, publisher: WireChannel) -> None:
    queue = scene.queue(publisher, exclusive=True)
    publisher.publish("", queue, mandatory=True)
    publisher.expect(Basic.Ack)
    publisher.assert_quiet(queue)


def test_routing_by_the_alternate_exchange_counts_as_routed(
    scene: Scene, publisher: WireChannel
) -> None:
    spare = scene.exchange(publisher, "fanout")
    queue = scene.bound_queue(publisher, spare)
    main = scene.exchange(publisher, "direct", arguments={"alternate-exchange": spare})
    publisher.publish(main, "unbound", b"saved", mandatory=True)
    publisher.expect(Basic.Ack)
    assert publisher.get(queue).body == b"saved"


def test_a_failed_publish_is_not_confirmed(scene: Scene, publisher: WireChannel) -> None:
    publisher.publish(scene.exchange_name(), "k")
    publisher.expect_close(404, "no exchange")
    assert not publisher.pending()


def test_a_message_to_many_queues_is_confirmed_once(scene: Scene, publisher: WireChannel) -> None:
    exchange = scene.exchange(publisher, "fanout")
    queues = [scene.bound_queue(publisher, exchange) for _ in range(5)]
    publisher.publish(exchange, "", b"all")
    assert publisher.expect(Basic.Ack).delivery_tag == 1
    for queue in queues:
        publisher.assert_quiet(queue)
        assert publisher.count(queue) == 1


def test_reject_publish_nacks_what_does_not_fit(scene: Scene, publisher: WireChannel) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    queue = scene.queue(publisher, arguments=arguments)
    publisher.publish("", queue, b"fits")
    publisher.expect(Basic.Ack)
    publisher.publish("", queue, b"does not")
    assert publisher.expect(Basic.Nack).delivery_tag == 2
    assert publisher.get_all(queue) == [b"fits"]


def test_one_refusing_queue_is_enough_for_a_nack(scene: Scene, publisher: WireChannel) -> None:
    exchange = scene.exchange(publisher, "fanout")
    arguments = {"x-max-length": 0, "x-overflow": "reject-publish"}
    full = scene.queue(publisher, arguments=arguments)
    publisher.bind(full, exchange)
    willing = scene.bound_queue(publisher, exchange)
    publisher.publish("", full, b"filler")
    publisher.conn.next_item(publisher.number)
    publisher.publish(exchange, "", b"x")
    assert publisher.expect(Basic.Nack).delivery_tag == 2
    assert publisher.count(willing) == 1


def test_persistent_messages_to_durable_queues_are_confirmed(
    scene: Scene, publisher: WireChannel
) -> None:
    queue = scene.queue(publisher, durable=True)
    for _ in range(50):
        publisher.publish("", queue, b"keep", delivery_mode=2)
    assert sorted(confirmed(publisher, 50)) == list(range(1, 51))


def test_confirms_and_deliveries_share_a_channel(scene: Scene, publisher: WireChannel) -> None:
    queue = scene.queue(publisher, exclusive=True)
    publisher.consume(queue, no_ack=True)
    for number in range(20):
        publisher.publish("", queue, b"%d" % number)
    publisher.settle(queue)
    items = [publisher.conn.next_item(publisher.number) for _ in publisher.pending()]
    acks = [item for item in items if isinstance(item, Basic.Ack)]
    assert max(ack.delivery_tag for ack in acks) == 20
    deliveries = [item.body for item in items if not isinstance(item, Basic.Ack)]
    assert deliveries == [b"%d" % number for number in range(20)]
