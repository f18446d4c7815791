"""What clients of different nodes declare, find, bind and delete; each channel waits its turn."""

import pytest
from pamqp import commands

from tests.cluster_catalog.clients import Client, CountingFront
from tests.cluster_catalog.fakes import Cluster
from tests.protocol.pamqp_frames import unmarshal_all


@pytest.fixture
def cluster():
    cluster = Cluster(3, CountingFront)
    for number in cluster.nodes:
        cluster.start(number)
    cluster.elect(1)
    for number in cluster.nodes:
        cluster.hear_of_leader(number)
    cluster.settle()
    return cluster


@pytest.fixture
def client(cluster):
    return lambda number: Client(cluster, number)


def test_a_queue_declared_on_one_node_is_found_and_bound_on_others(cluster, client):
    assert client(2).declare("q", durable=True).queue == "q"
    assert client(3).declare("q", passive=True).message_count == 0
    bind = commands.Queue.Bind(queue="q", exchange="amq.topic", routing_key="k.#")
    assert client(1).ask(bind).name == "Queue.BindOk"
    for node in cluster.nodes.values():
        topic = node.vhost.exchanges["amq.topic"]
        assert [q.name for q in node.vhost.route(topic, ("k.1",), {})] == ["q"]
    assert cluster.nodes[1].vhost.queues["q"].placement.groups == ((2, 1, 3),)


def test_what_exists_is_compared_and_not_written_again(cluster, client):
    client(2).declare("q", durable=True)
    client(2).ask(commands.Exchange.Declare(exchange="x", exchange_type="topic"))
    bind = commands.Queue.Bind(queue="q", exchange="x", routing_key="k")
    client(2).ask(bind)
    entries = len(cluster.log)
    assert client(3).declare("q", durable=True).queue == "q"
    assert client(3).declare("q", durable=False) == 406
    assert client(3).ask(commands.Exchange.Declare(exchange="x", exchange_type="topic")).name
    assert client(3).ask(commands.Exchange.Declare(exchange="x", exchange_type="fanout")) == 406
    assert client(3).ask(bind).name == "Queue.BindOk"
    assert len(cluster.log) == entries


def test_counts_come_from_the_queues_leader(cluster, client):
    client(2).declare("q", durable=True)
    front = cluster.nodes[3].vhost.queues["q"]
    front.messages, front.consumers = 7, 2
    answer = client(3).declare("q", durable=True)
    assert (answer.message_count, answer.consumer_count) == (7, 2)
    answer = client(3).declare("q", passive=True)
    assert (answer.message_count, answer.consumer_count) == (7, 2)
    assert client(3).ask(commands.Queue.Purge(queue="q")).message_count == 7


def test_what_is_not_there_is_not_found(client):
    assert client(1).declare("q", passive=True) == 404
    assert client(1).ask(commands.Exchange.Declare(exchange="x", passive=True)) == 404
    assert client(1).ask(commands.Queue.Bind(queue="q", exchange="amq.topic")) == 404
    assert client(1).ask(commands.Queue.Purge(queue="q")) == 404
    assert client(1).ask(commands.Queue.Delete(queue="q")).message_count == 0
    assert client(1).ask(commands.Exchange.Delete(exchange="x")).name == "Exchange.DeleteOk"
    assert client(1).ask(commands.Exchange.Delete(exchange="amq.topic")) == 403
    assert client(1).ask(commands.Exchange.Declare(exchange="x", exchange_type="odd")) == 406


def test_a_queue_is_deleted_through_any_node(cluster, client):
    client(2).declare("q", durable=True)
    front = cluster.nodes[3].vhost.queues["q"]
    front.messages, front.consumers = 3, 1
    assert client(3).ask(commands.Queue.Delete(queue="q", if_unused=True)) == 406
    assert client(3).ask(commands.Queue.Delete(queue="q")).message_count == 3
    assert not any(node.vhost.queues for node in cluster.nodes.values())


def test_a_queue_that_nobody_leads_can_be_deleted_but_not_on_a_condition(cluster, client):
    client(2).declare("q", durable=True)
    cluster.nodes[3].vhost.queues["q"].unreachable = True
    assert client(3).ask(commands.Queue.Delete(queue="q", if_empty=True)) == 506
    assert client(3).ask(commands.Queue.Delete(queue="q")).message_count == 0
    assert not any(node.vhost.queues for node in cluster.nodes.values())


def test_an_exclusive_queue_is_its_connections_on_every_node(cluster, client):
    owner = client(2)
    assert owner.declare("mine", exclusive=True).queue == "mine"
    assert owner.declare("mine", exclusive=True).queue == "mine"
    assert owner.ask(commands.Queue.Bind(queue="mine", exchange="amq.topic")).name
    assert owner.ask(commands.Queue.Bind(queue="mine", exchange="amq.topic")).name
    for number in (2, 3):
        assert client(number).declare("mine") == 405
        assert client(number).declare("mine", passive=True) == 405
        assert client(number).ask(commands.Queue.Bind(queue="mine", exchange="amq.fanout")) == 405
        assert client(number).ask(commands.Queue.Bind(queue="mine", exchange="amq.topic")) == 405
        assert client(number).ask(commands.Queue.Delete(queue="mine")) == 405
    owner.channel.release()
    owner.link.vhost.forget_owner(owner.link)
    cluster.settle()
    assert not any(node.vhost.queues for node in cluster.nodes.values())


def test_with_nowait_nothing_is_answered_and_the_next_method_finds_it(client):
    one = client(3)
    one.send(commands.Queue.Declare(queue="q", nowait=True))
    assert one.channel.suspended
    assert one.ask(commands.Queue.Bind(queue="", exchange="amq.topic")).name == "Queue.BindOk"
    assert [frame.name for _, frame in unmarshal_all(one.link.outbox.take())] == []


def test_a_server_named_queue_lives_where_it_was_declared(cluster, client):
    name = client(3).declare("").queue
    assert name.startswith("amq.gen-")
    assert cluster.nodes[1].vhost.queues[name].placement.home == 3


def test_declares_without_a_quorum_close_the_channel(cluster, client):
    one = client(3)
    cluster.disconnect(3, 1)
    cluster.disconnect(3, 2)
    one.send(commands.Queue.Declare(queue="q"))
    cluster.settle()
    cluster.clock.advance(6000)
    assert one.link.closed_with.code == 506
    assert one.channel.closed


def test_an_exchange_that_goes_with_its_last_binding_goes_everywhere(cluster, client):
    client(1).ask(commands.Exchange.Declare(exchange="x", auto_delete=True))
    client(2).declare("q")
    client(3).ask(commands.Queue.Bind(queue="q", exchange="x", routing_key="k"))
    unbind = commands.Queue.Unbind(queue="q", exchange="x", routing_key="k")
    assert client(1).ask(unbind).name == "Queue.UnbindOk"
    assert not any("x" in node.vhost.exchanges for node in cluster.nodes.values())


def test_exchanges_are_bound_to_each_other(cluster, client):
    for number, name in ((1, "x1"), (2, "x2")):
        client(number).ask(commands.Exchange.Declare(exchange=name, exchange_type="fanout"))
    pair = {"destination": "x2", "source": "x1", "routing_key": ""}
    assert client(3).ask(commands.Exchange.Bind(**pair)).name == "Exchange.BindOk"
    assert client(3).ask(commands.Exchange.Delete(exchange="x1", if_unused=True)) == 406
    assert client(3).ask(commands.Exchange.Unbind(**pair)).name == "Exchange.UnbindOk"
    assert client(1).ask(commands.Exchange.Delete(exchange="x1", if_unused=True)).name


def test_the_queues_own_end_is_asked_for_once_everywhere(cluster, client):
    """An auto-delete queue lost its last consumer at its leader."""
    client(2).declare("q", auto_delete=True)
    leader = cluster.nodes[2]
    leader.vhost.queue_unused(leader.vhost.queues["q"])
    cluster.settle()
    assert not any(node.vhost.queues for node in cluster.nodes.values())
