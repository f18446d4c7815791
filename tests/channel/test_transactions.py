"""tx.*: nothing happens before the commit, and after a rollback nothing has happened."""

import pytest
from pamqp import commands

from broker.protocol.constants import BASIC_ACK, BASIC_NACK, BASIC_REJECT
from broker.protocol.errors import ChannelError
from tests.channel.fakes import Client, FakeLink, body_of, declare, fetch, to

MULTIPLE, REQUEUE = 1, 2


@pytest.fixture
def link():
    return FakeLink()


@pytest.fixture
def queue(link):
    return declare(link, "q")


@pytest.fixture
def client(link):
    client = Client(link)
    client.call(commands.Tx.Select)
    assert link.take_names() == ["Tx.SelectOk"]
    return client


def consume(client, queue, count):
    """So many deliveries from the queue, tagged from 1 on."""
    Client(client.link, 9).publish(*[to(queue.name, str(n).encode()) for n in range(count)])
    client.call(commands.Basic.Consume, queue=queue.name, consumer_tag="c", nowait=True)
    client.link.take()
    assert list(client.channel.deliveries.unacked) == list(range(1, count + 1))


def test_publishes_wait_for_the_commit(link, client, queue):
    client.publish(to("q", b"1"), to("q", b"2"))
    client.publish(to("q", b"3"))
    assert queue.ready == 0
    client.call(commands.Tx.Commit)
    assert link.take_names() == ["Tx.CommitOk"]
    assert [body_of(m) for m in fetch(queue)] == [b"1", b"2", b"3"]
    client.call(commands.Tx.Commit)
    assert link.take_names() == ["Tx.CommitOk"]
    assert queue.ready == 0


def test_rolled_back_publishes_are_forgotten(link, client, queue):
    client.publish(to("q", b"1"))
    client.call(commands.Tx.Rollback)
    client.publish(to("q", b"2"))
    client.call(commands.Tx.Commit)
    assert link.take_names() == ["Tx.RollbackOk", "Tx.CommitOk"]
    assert [body_of(m) for m in fetch(queue)] == [b"2"]


def test_acknowledgements_wait_for_the_commit(link, client, queue):
    consume(client, queue, 5)
    client.settle(BASIC_ACK, (1, 0), (3, MULTIPLE))
    assert queue.unacked == 5
    client.call(commands.Tx.Commit)
    assert queue.unacked == 2
    assert list(client.channel.deliveries.unacked) == [4, 5]


def test_rolled_back_acknowledgements_are_outstanding_again_in_order(link, client, queue):
    consume(client, queue, 5)
    client.settle(BASIC_ACK, (4, 0))
    client.settle(BASIC_NACK, (2, MULTIPLE | REQUEUE))
    assert list(client.channel.deliveries.unacked) == [3, 5]
    client.call(commands.Tx.Rollback)
    assert list(client.channel.deliveries.unacked) == [1, 2, 3, 4, 5]
    client.settle(BASIC_ACK, (3, MULTIPLE))
    client.call(commands.Tx.Commit)
    assert queue.unacked == 2


def test_each_way_of_settling_takes_effect_at_the_commit(link, client):
    dead = declare(link, "dead")
    queue = declare(link, "q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    consume(client, queue, 3)
    client.settle(BASIC_ACK, (1, 0))
    client.settle(BASIC_REJECT, (2, 0))
    client.settle(BASIC_NACK, (3, REQUEUE))
    client.call(commands.Basic.Cancel, consumer_tag="c", nowait=True)
    assert (queue.ready, dead.ready) == (0, 0)
    client.call(commands.Tx.Commit)
    assert (queue.unacked, queue.ready, dead.ready) == (0, 1, 1)


def test_a_tag_cannot_be_acknowledged_twice_in_a_transaction(client, queue):
    consume(client, queue, 2)
    client.settle(BASIC_ACK, (1, 0))
    with pytest.raises(ChannelError, match="unknown delivery tag 1"):
        client.settle(BASIC_ACK, (1, 0))
    assert list(client.channel.deliveries.unacked) == [2]


def test_a_mistake_in_a_publish_is_told_at_once(client, queue):
    with pytest.raises(ChannelError) as error:
        client.publish(to("q"), {"exchange": "missing"})
    assert error.value.code == 404


def test_a_channel_that_ends_takes_its_open_transaction_back(link, client, queue):
    consume(client, queue, 3)
    client.settle(BASIC_ACK, (2, MULTIPLE))
    client.publish(to("q", b"never"))
    client.channel.release()
    assert (queue.unacked, queue.ready) == (0, 3)
    assert [body_of(m) for m in fetch(queue)] == [b"0", b"1", b"2"]


def test_a_commit_that_fails_loses_no_delivery(link, client, queue):
    """The exchange went away after the publish: the channel closes and all it held goes back."""
    consume(client, queue, 2)
    link.vhost.declare_exchange(
        "x", "direct", durable=True, auto_delete=False, internal=False, arguments={}
    )
    client.publish({"exchange": "x"})
    client.settle(BASIC_ACK, (2, MULTIPLE))
    link.vhost.delete_exchange("x", if_unused=False)
    with pytest.raises(ChannelError):
        client.call(commands.Tx.Commit)
    client.channel.release()
    assert (queue.unacked, queue.ready) == (0, 2)
    assert link.take_names() == []


def test_a_commit_of_which_a_queue_refused_a_part_closes_the_channel(link, client):
    queue = declare(link, "full", x_max_length=1, x_overflow="reject-publish")
    client.publish(to("full", b"1"), to("full", b"2"))
    with pytest.raises(ChannelError, match="partial tx completion") as error:
        client.call(commands.Tx.Commit)
    assert error.value.code == 406
    assert queue.ready == 1
    assert link.take_names() == []


@pytest.mark.parametrize("kind", [commands.Tx.Commit, commands.Tx.Rollback])
def test_there_is_nothing_to_end_outside_a_transaction(link, kind):
    with pytest.raises(ChannelError, match="channel is not transactional"):
        Client(link).call(kind)


def test_transactions_and_confirms_do_not_mix(link, client):
    with pytest.raises(ChannelError, match="cannot switch from tx to confirm mode"):
        client.call(commands.Confirm.Select)
    other = Client(link, 2)
    other.call(commands.Confirm.Select)
    with pytest.raises(ChannelError, match="cannot switch from confirm to tx mode"):
        other.call(commands.Tx.Select)
