"""Channels on a queue of the cluster: consume-ok, get-ok and confirms wait for its leader."""

import pytest
from pamqp import commands

from broker.channel.deliveries import Settlement
from broker.protocol.constants import BASIC_ACK
from broker.protocol.errors import ChannelError
from broker.vhost import VHost
from tests.channel.fakes import Client, FakeLink, to
from tests.cluster_front.world import World

Basic = commands.Basic


class Link(FakeLink):
    """A connection to one node of a world, which closes channels as a real one does."""

    def __init__(self, node):
        vhost = VHost("/", node.world.clock)
        super().__init__(vhost=vhost, capabilities=("consumer_cancel_notify",))
        vhost.queues["q"] = node.front
        vhost.add_binding(vhost.default, node.front, "q", {})
        self.closed = []

    def resume(self, channel, action):
        try:
            action()
        except ChannelError as error:
            self.closed.append((error.code, error.method))
            channel.release()


@pytest.fixture
def world():
    world = World()
    world.elect(1)
    world.settle_down()
    return world


@pytest.fixture(params=[1, 2])
def link(world, request):
    """To the leader, and to another node."""
    return Link(world.nodes[request.param])


def test_a_message_goes_round(world, link):
    client = Client(link)
    client.call(commands.Confirm.Select)
    client.call(Basic.Qos, prefetch_count=1)
    client.call(Basic.Consume, queue="q", consumer_tag="t")
    world.settle_down()
    assert link.take_names() == ["Confirm.SelectOk", "Basic.QosOk", "Basic.ConsumeOk"]
    client.publish(to("q", b"a"), to("q", b"b"))
    assert link.take_names() == []
    world.settle_down()
    frames = link.take()
    assert {"Basic.Ack", "Basic.Deliver"} == {f.name for _, f in frames if "Basic" in f.name}
    assert [f.value for _, f in frames if f.name == "ContentBody"] == [b"a"]
    client.settle(BASIC_ACK, (1, 0))
    world.settle_down()
    assert [f.value for _, f in link.take() if f.name == "ContentBody"] == [b"b"]
    client.settle(BASIC_ACK, (2, 0))
    world.settle_down(1000)
    assert world.leader.replica.messages == 0
    assert client.channel.deliveries.credit.used == 0


def test_the_channel_handles_nothing_more_before_the_leader_has_answered(world):
    client = Client(Link(world.nodes[2]))
    client.call(Basic.Consume, queue="q")
    assert client.channel.suspended
    world.settle_down()
    assert not client.channel.suspended


def test_get(world, link):
    client = Client(link)
    client.call(Basic.Get, queue="q")
    client.publish(to("q", b"a"))
    world.settle_down()
    client.call(Basic.Get, queue="q")
    world.settle_down()
    assert link.take_names() == ["Basic.GetEmpty", "Basic.GetOk", "ContentHeader", "ContentBody"]
    client.channel.deliveries.settle([(1, 0)], Settlement.REQUEUE)
    client.call(Basic.Get, queue="q", no_ack=True)
    world.settle_down(1000)
    answers = [frame for _, frame in link.take()]
    assert answers[0].redelivered
    assert world.leader.replica.messages == 0


def test_exclusive_use_closes_the_channel_that_comes_second(world, link):
    other = Link(world.nodes[3])
    Client(other).call(Basic.Consume, queue="q", exclusive=True)
    world.settle_down()
    client = Client(link)
    try:
        client.call(Basic.Consume, queue="q")
    except ChannelError as error:
        link.closed.append((error.code, error.method))
    world.settle_down()
    assert link.closed == [(403, Basic.Consume.index)]


def test_a_channel_that_is_closed_gives_back_what_comes_for_it(world):
    link = Link(world.nodes[2])
    Client(link).publish(to("q", b"a"), to("q", b"b"), to("q", b"c"))
    world.settle_down()
    for kind in (Basic.Get, Basic.Consume):
        client = Client(link)
        client.call(kind, queue="q")
        client.channel.release()
    world.settle_down()
    queue = world.leader.front.queue
    assert (queue.ready, queue.unacked, queue.consumer_count) == (3, 0, 0)
    assert not link.closed


def test_a_deleted_queue_cancels_the_consumer(world, link):
    Client(link).call(Basic.Consume, queue="q", consumer_tag="t")
    world.settle_down()
    for node in world.nodes.values():
        node.front.delete()
    assert link.take_names() == ["Basic.ConsumeOk", "Basic.Cancel"]


def test_acks_of_an_open_transaction_survive_another_leader(world):
    link = Link(world.nodes[2])
    client = Client(link)
    client.call(commands.Tx.Select)
    client.call(Basic.Consume, queue="q", consumer_tag="t")
    world.publish(3, [b"a"])
    world.settle_down()
    client.settle(BASIC_ACK, (1, 0))
    world.elect(3)
    world.settle_down(3000)
    client.call(commands.Tx.Commit)
    world.settle_down(1000)
    assert link.take_names().count("Basic.Deliver") == 1
    assert world.leader.replica.messages == 0
