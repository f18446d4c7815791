"""Publishing a batch: order, copies, confirms, and a mistake in the middle."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from broker.protocol.errors import ChannelError, ConnectionFailure
from tests.channel.fakes import (
    Client,
    FakeLink,
    body_of,
    contents,
    declare,
    declare_exchange,
    fetch,
    to,
    user_who_may_write,
)


@pytest.fixture
def link():
    return FakeLink()


@pytest.fixture
def client(link):
    return Client(link)


def bodies(queue):
    return [body_of(m) for m in fetch(queue)]


ROUTES = [("", "a"), ("", "b"), ("", "nowhere"), ("both", ""), ("direct", "k"), ("heads", "")]
REACHED = {"a": {0, 3, 4, 5}, "b": {1, 3, 5}}


@settings(derandomize=True, deadline=None)
@given(st.lists(st.lists(st.integers(0, len(ROUTES) - 1), max_size=8), max_size=4), st.booleans())
def test_each_queue_gets_its_messages_in_order_whatever_way_they_took(batches, confirms):
    link = FakeLink()
    queues = {name: declare(link, name) for name in "ab"}
    declare_exchange(link, "both", "fanout")
    declare_exchange(link, "direct")
    declare_exchange(link, "heads", "headers")
    link.vhost.bind("direct", queues["a"], "k", {})
    for name in "ab":
        link.vhost.bind("both", queues[name], "", {})
        link.vhost.bind("heads", queues[name], "", {})
    client = Client(link)
    if confirms:
        client.call(commands.Confirm.Select, nowait=True)
    sent = []
    for batch in batches:
        publishes = []
        for choice in batch:
            exchange, key = ROUTES[choice]
            body = str(len(sent)).encode()
            publishes.append({"exchange": exchange, "routing_key": key, "payload": body})
            sent.append(choice)
        client.publish(*publishes)
    for name, queue in queues.items():
        expected = [str(n).encode() for n, choice in enumerate(sent) if choice in REACHED[name]]
        assert bodies(queue) == expected
    acked = [value.delivery_tag for _, value in link.take()]
    assert acked[-1:] == ([len(sent)] if confirms and sent else [])


def test_messages_of_a_fan_out_are_apart(link, client):
    queues = [declare(link, name) for name in "abc"]
    declare_exchange(link, "x", "fanout")
    for queue in queues:
        link.vhost.bind("x", queue, "", {})
    client.publish({"exchange": "x", "payload": b"one"}, {"exchange": "x", "payload": b"two"})
    taken = [fetch(queue) for queue in queues]
    assert [[body_of(m) for m in messages] for messages in taken] == [[b"one", b"two"]] * 3
    assert len({id(m) for messages in taken for m in messages}) == 6
    assert all([m.sequence for m in messages] == [0, 1] for messages in taken)


MISTAKES = {
    "a missing exchange": (ChannelError, 404, {"exchange": "missing"}),
    "an internal exchange": (ChannelError, 403, {"exchange": "inner"}),
    "an immediate publish": (ConnectionFailure, 540, {"immediate": True}),
    "a bad expiration": (
        ChannelError,
        406,
        {"properties": commands.Basic.Properties(expiration="soon")},
    ),
    "another's user id": (
        ChannelError,
        406,
        {"properties": commands.Basic.Properties(user_id="somebody")},
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("confirms", [False, True], ids=["plain", "confirms"])
def test_what_came_before_a_mistake_is_published_and_what_comes_after_is_not(
    link, client, mistake, confirms
):
    kind, code, publish = MISTAKES[mistake]
    queue = declare(link, "q")
    declare_exchange(link, "inner", internal=True)
    if confirms:
        client.call(commands.Confirm.Select, nowait=True)
    with pytest.raises(kind) as error:
        client.publish(to("q", b"1"), to("q", b"2"), to("q", b"!") | publish, to("q", b"3"))
    assert error.value.code == code
    assert bodies(queue) == [b"1", b"2"]
    acks = [(value.delivery_tag, value.multiple) for _, value in link.take()]
    assert acks == ([(2, True)] if confirms else [])


def test_a_user_publishes_only_to_exchanges_that_are_open_to_them():
    link = FakeLink(user=user_who_may_write("^mine$"))
    declare_exchange(link, "mine")
    declare_exchange(link, "theirs")
    client = Client(link)
    client.publish({"exchange": "mine"})
    for _ in range(2):  # a refusal is not remembered as a route
        with pytest.raises(ChannelError) as error:
            client.publish({"exchange": "theirs"})
        assert error.value.code == 403


def test_a_mandatory_message_that_nobody_takes_is_returned_before_its_ack(link, client):
    declare(link, "q")
    client.call(commands.Confirm.Select, nowait=True)
    client.publish(to("q"), to("nowhere", b"lost", mandatory=True), to("nowhere"), to("q"))
    values = [value for _, value in link.take()]
    assert [value.name for value in values] == [
        "Basic.Return",
        "ContentHeader",
        "ContentBody",
        "Basic.Ack",
    ]
    assert values[2].value == b"lost"
    assert (values[3].delivery_tag, values[3].multiple) == (4, True)


def test_refused_messages_are_nacked_and_the_others_acked(link, client):
    declare(link, "full", x_max_length=1, x_overflow="reject-publish")
    declare(link, "free")
    client.call(commands.Confirm.Select, nowait=True)
    client.publish(to("full"), to("full"), to("free"), to("full"))
    answers = {value.delivery_tag: value.name for _, value in link.take()}
    assert answers == {1: "Basic.Ack", 2: "Basic.Nack", 3: "Basic.Ack", 4: "Basic.Nack"}


def test_a_copy_refused_by_one_of_several_queues_is_nacked(link, client):
    declare_exchange(link, "x", "fanout")
    for queue in (
        declare(link, "a"),
        declare(link, "b", x_max_length=0, x_overflow="reject-publish"),
    ):
        link.vhost.bind("x", queue, "", {})
    client.call(commands.Confirm.Select, nowait=True)
    client.publish({"exchange": "x"})
    assert [(value.name, value.delivery_tag) for _, value in link.take()] == [("Basic.Nack", 1)]


def test_tags_go_on_from_batch_to_batch(link, client):
    declare(link, "q")
    client.call(commands.Confirm.Select, nowait=True)
    client.publish(to("q"))
    client.publish(to("nowhere"), to("q"))
    client.publish(to("q"))
    assert [value.delivery_tag for _, value in link.take()] == [1, 3, 4]


def test_a_route_that_changed_between_batches_is_followed(link, client):
    queue = declare(link, "q")
    other = declare(link, "other")
    declare_exchange(link, "x")
    publish = {"exchange": "x", "routing_key": "k"}
    link.vhost.bind("x", queue, "k", {})
    client.publish(publish | {"payload": b"1"})
    link.vhost.unbind("x", queue, "k", {})
    client.publish(publish | {"payload": b"2"})
    link.vhost.bind("x", other, "k", {})
    client.publish(publish | {"payload": b"3"})
    link.vhost.delete_queue("other", if_unused=False, if_empty=False, user_of=link)
    client.publish(publish | {"payload": b"4"})
    assert bodies(queue) == [b"1"]
    assert bodies(other) == []


def test_a_check_finds_the_mistake_and_publishes_nothing(link, client):
    queue = declare(link, "q")
    client.channel.publisher.check(contents(to("q")))
    with pytest.raises(ChannelError):
        client.channel.publisher.check(contents(to("q"), {"exchange": "missing"}))
    assert queue.ready == 0
