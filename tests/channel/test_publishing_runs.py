"""A run of publishes that are all alike does what they do one by one."""

import pytest
from pamqp import commands

from broker.protocol.errors import ChannelError
from broker.protocol.runs import ContentRun
from tests.channel.fakes import (
    Client,
    FakeLink,
    batches,
    body_of,
    declare,
    declare_exchange,
    fetch,
    properties_of,
    to,
)

COUNT = 20
PROPERTIES = {
    "none": None,
    "a mode": commands.Basic.Properties(delivery_mode=2),
    "headers": commands.Basic.Properties(headers={"a": "b"}, content_type="text/plain"),
    "new ones each time": commands.Basic.Properties(message_id="m", correlation_id="c"),
    "an expiration": commands.Basic.Properties(expiration="60000"),
    "a priority": commands.Basic.Properties(priority=3),
}


@pytest.fixture
def link():
    return FakeLink()


@pytest.fixture
def client(link):
    client = Client(link)
    client.call(commands.Confirm.Select, nowait=True)
    return client


def numbered(**publish):
    return [{**publish, "payload": b"%03d" % number} for number in range(COUNT)]


BODIES = [publish["payload"] for publish in numbered()]


def answers(link):
    return [(value.name, value.delivery_tag) for _, value in link.take()]


def test_publishes_that_are_alike_come_as_a_run():
    (run,) = batches(*numbered(routing_key="q"))
    assert isinstance(run, ContentRun)


@pytest.mark.parametrize("properties", PROPERTIES.values(), ids=PROPERTIES)
def test_all_of_a_run_get_to_the_queue_in_order_and_are_confirmed(link, client, properties):
    queue = declare(link, "q")
    for _ in range(2):  # the second time, what there is to know of the properties is known
        client.publish_read(*numbered(routing_key="q", properties=properties))
    messages = fetch(queue)
    assert [body_of(message) for message in messages] == 2 * BODIES
    wanted = properties or commands.Basic.Properties()
    assert all(properties_of(message) == wanted for message in messages)
    assert {message.priority for message in messages} == {wanted.priority or 0}
    assert {message.expires_at is not None for message in messages} == {bool(wanted.expiration)}
    assert answers(link) == [("Basic.Ack", COUNT), ("Basic.Ack", 2 * COUNT)]
    assert client.channel.publisher.tally.publish == 2 * COUNT


def test_a_run_reaches_each_of_several_queues_and_is_counted(link, client):
    queues = [declare(link, name) for name in "ab"]
    exchange = declare_exchange(link, "x", "fanout")
    for queue in queues:
        link.vhost.bind("x", queue, "", {})
    client.publish_read(*numbered(exchange="x"))
    taken = [fetch(queue) for queue in queues]
    assert [[body_of(m) for m in messages] for messages in taken] == [BODIES] * 2
    assert len({id(m) for messages in taken for m in messages}) == 2 * COUNT
    assert (exchange.published_in, exchange.published_out) == (COUNT, 2 * COUNT)
    assert answers(link) == [("Basic.Ack", COUNT)]


def test_a_run_by_headers_goes_where_they_say(link, client):
    queue = declare(link, "q")
    declare_exchange(link, "h", "headers")
    link.vhost.bind("h", queue, "", {"a": "b"})
    client.publish_read(*numbered(exchange="h", properties=PROPERTIES["headers"]))
    client.publish_read(*numbered(exchange="h", properties=PROPERTIES["a mode"]))
    assert [body_of(message) for message in fetch(queue)] == BODIES


def test_those_of_a_run_that_a_queue_refuses_are_nacked(link, client):
    queue = declare(link, "q", x_max_length=COUNT - 2, x_overflow="reject-publish")
    client.publish_read(to("q", b"first"))
    client.publish_read(*numbered(routing_key="q"))
    nacked = [tag for name, tag in answers(link) if name == "Basic.Nack"]
    assert nacked == [COUNT - 1, COUNT, COUNT + 1]
    assert queue.ready == COUNT - 2


def test_a_run_to_nowhere_comes_back_if_it_is_mandatory(link, client):
    client.publish_read(*numbered(routing_key="nowhere", mandatory=True))
    client.publish_read(*numbered(routing_key="nowhere"))
    names = link.take_names()
    assert names.count("Basic.Return") == COUNT
    assert names.count("Basic.Ack") == 2
    assert client.channel.publisher.tally.drop_unroutable == COUNT


def test_a_run_to_no_exchange_closes_the_channel_and_is_not_confirmed(link, client):
    with pytest.raises(ChannelError):
        client.publish_read(*numbered(exchange="missing"))
    assert link.take() == []


def test_a_run_in_a_transaction_waits_for_the_commit(link):
    client = Client(link)
    queue = declare(link, "q")
    client.call(commands.Tx.Select)
    client.publish_read(*numbered(routing_key="q"))
    assert queue.ready == 0
    client.call(commands.Tx.Commit)
    assert [body_of(message) for message in fetch(queue)] == BODIES
