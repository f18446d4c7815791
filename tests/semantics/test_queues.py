"""Queues as things: names, counts, lifetime, exclusivity, no-wait and passive declares."""

import pytest

from tests.support.frames import (
    Basic,
    Channel,
    Confirm,
    Connection,
    Exchange,
    Queue,
    Tx,
    unvalidated,
)
from tests.support.scene import Scene
from tests.support.waiting import eventually
from tests.support.wire import ChannelClosedError, WireChannel, WireConnection


def test_the_broker_names_queues_declared_without_a_name(channel: WireChannel) -> None:
    names = {channel.declare_queue("", exclusive=True).queue for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("amq.gen-") for name in names)


def test_a_server_named_queue_may_be_declared_again_only_passively(channel: WireChannel) -> None:
    name = channel.declare_queue("", exclusive=True).queue
    assert channel.declare_queue(name, passive=True).queue == name
    channel.send(unvalidated(Queue.Declare, queue=name, exclusive=True))
    channel.expect_close(403, "contains reserved prefix 'amq.*'")


def test_the_empty_name_means_the_last_queue_declared_on_the_channel(
    scene: Scene, channel: WireChannel
) -> None:
    scene.queue(channel, exclusive=True)
    last = scene.queue(channel, exclusive=True)
    channel.rpc(Queue.Bind(queue="", exchange="amq.direct", routing_key=last))
    channel.publish("amq.direct", last, b"a")
    channel.publish("", last, b"b")
    assert channel.get("").body == b"a"
    assert channel.rpc(Queue.Purge(queue="")).message_count == 1
    channel.consume("")
    channel.publish("", last, b"c")
    assert channel.delivery().routing_key == last
    channel.rpc(Queue.Unbind(queue="", exchange="amq.direct", routing_key=last))
    channel.rpc(Queue.Delete(queue=""))
    with pytest.raises(ChannelClosedError, match="no queue"):
        channel.count(last)


def test_binding_with_neither_name_nor_key_uses_the_queues_name_as_key(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.rpc(Queue.Bind(queue="", exchange="amq.direct", routing_key=""))
    channel.publish("amq.direct", queue, b"by name")
    channel.settle(queue)
    assert channel.get_all(queue) == [b"by name"]


def test_declaring_again_tells_ready_messages_and_consumers(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel)
    channel.publish_all(queue, [b"1", b"2", b"3"])
    channel.get(queue)
    other = scene.channel()
    other.qos(1)
    other.consume(queue)
    other.delivery()
    answer = channel.declare_queue(queue)
    assert (answer.queue, answer.message_count, answer.consumer_count) == (queue, 1, 1)


def test_purge_takes_the_ready_and_leaves_the_unacked(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.publish_all(queue, [b"1", b"2", b"3"])
    held = channel.get(queue)
    assert channel.rpc(Queue.Purge(queue=queue)).message_count == 2
    channel.nack(held.delivery_tag)
    channel.settle(queue)
    assert channel.get_all(queue) == [b"1"]


def test_delete_counts_the_ready_messages(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel)
    channel.publish_all(queue, [b"1", b"2", b"3"])
    assert channel.rpc(Queue.Delete(queue=queue)).message_count == 3
    channel.declare_queue(queue)
    assert channel.count(queue) == 0


def test_delete_if_unused_and_if_empty_succeed_when_true(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel)
    channel.rpc(Queue.Delete(queue=queue, if_unused=True, if_empty=True))
    exchange = scene.exchange(channel)
    channel.rpc(Exchange.Delete(exchange=exchange, if_unused=True))
    with pytest.raises(ChannelClosedError, match="no exchange"):
        channel.declare_exchange(exchange, passive=True)


def test_deleting_a_queue_removes_its_bindings(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel)
    channel.bind(queue, "amq.direct", queue)
    channel.rpc(Queue.Delete(queue=queue))
    channel.declare_queue(queue)
    channel.publish("amq.direct", queue, b"lost", mandatory=True)
    assert channel.expect(Basic.Return).reply_code == 312


def test_an_exclusive_queue_serves_all_channels_of_its_connection(
    scene: Scene, connection: WireConnection
) -> None:
    one, other = connection.open_channel(), connection.open_channel()
    queue = scene.queue(one, exclusive=True)
    one.close()
    other.publish("", queue, b"still here")
    assert other.get(queue).body == b"still here"


@pytest.mark.parametrize("how", ["close", "abort"])
def test_an_exclusive_queue_goes_with_its_connection(
    scene: Scene, channel: WireChannel, how: str
) -> None:
    owner = scene.channel()
    queue = scene.queue(owner, exclusive=True, durable=True)
    getattr(owner.conn, how)()

    def gone() -> bool:
        with pytest.raises(ChannelClosedError) as closed:
            channel.conn.open_channel().count(queue)
        return closed.value.method.reply_code == 404

    eventually(gone, "the exclusive queue to go")


def test_after_a_polite_close_the_exclusive_queue_is_gone_at_once(
    scene: Scene, channel: WireChannel
) -> None:
    owner = scene.channel()
    queue = scene.queue(owner, exclusive=True)
    owner.conn.close()
    channel.declare_queue(queue, exclusive=True)


@pytest.mark.parametrize("answered", [True, False])
def test_a_client_that_hears_a_close_can_declare_its_exclusive_queue_again_at_once(
    scene: Scene, channel: WireChannel, answered: bool
) -> None:
    owner = scene.channel()
    queue = scene.queue(owner, exclusive=True)
    owner.consume(queue)
    owner.conn.send(Channel.Open(), 1)  # a mistake, as it is open: the broker closes all
    owner.conn.expect(Connection.Close)
    if answered:
        owner.conn.send(Connection.CloseOk())
    channel.declare_queue(queue, exclusive=True)


@pytest.mark.parametrize("durable", [True, False])
def test_an_exclusive_queue_is_the_same_whether_called_durable_or_not(
    scene: Scene, channel: WireChannel, durable: bool
) -> None:
    queue = scene.queue(channel, exclusive=True, durable=durable)
    channel.declare_queue(queue, exclusive=True, durable=not durable)


def test_nowait_declares_binds_and_deletes_are_not_answered(
    scene: Scene, channel: WireChannel
) -> None:
    queue, exchange = scene.queue_name(), scene.exchange_name()
    channel.send(unvalidated(Exchange.Declare, exchange=exchange, nowait=True))
    channel.send(unvalidated(Queue.Declare, queue=queue, nowait=True))
    channel.send(unvalidated(Queue.Bind, queue=queue, exchange=exchange, nowait=True))
    channel.publish(exchange, "", b"in")
    channel.settle(queue)
    assert channel.get(queue).body == b"in"
    channel.send(unvalidated(Exchange.Bind, destination=exchange, source="amq.fanout", nowait=True))
    channel.send(
        unvalidated(Exchange.Unbind, destination=exchange, source="amq.fanout", nowait=True)
    )
    channel.send(unvalidated(Queue.Purge, queue=queue, nowait=True))
    channel.assert_quiet(queue)
    channel.send(unvalidated(Queue.Delete, queue=queue, nowait=True))
    channel.send(unvalidated(Exchange.Delete, exchange=exchange, nowait=True))
    channel.send(Confirm.Select(nowait=True))
    channel.qos(1)
    assert not channel.pending()
    channel.send(unvalidated(Queue.Declare, queue=queue, passive=True))
    channel.expect_close(404, "no queue")


def test_a_nowait_mistake_still_closes_the_channel(scene: Scene, channel: WireChannel) -> None:
    channel.send(unvalidated(Queue.Declare, queue=scene.queue_name(), passive=True, nowait=True))
    channel.expect_close(404, "no queue")


def test_passive_declare_ignores_properties(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, arguments={"x-max-length": 3})
    assert channel.declare_queue(queue, passive=True, durable=True, auto_delete=True).queue == queue


def test_equal_arguments_in_any_order_are_equivalent(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, arguments={"x-max-length": 3, "x-overflow": "drop-head"})
    channel.declare_queue(queue, arguments={"x-overflow": "drop-head", "x-max-length": 3})


def test_topology_methods_work_inside_a_transaction_channel(
    scene: Scene, channel: WireChannel
) -> None:
    channel.rpc(Tx.Select())
    queue = scene.queue(channel, exclusive=True)
    channel.bind(queue, "amq.fanout")
