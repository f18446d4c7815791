"""What each property of a published message asks for."""

import struct

import pytest
from pamqp import commands

from broker.channel.inspection import PLAIN_MAX, parse_expiration
from broker.protocol.content import join_header
from broker.protocol.errors import ChannelError, ConnectionFailure
from queues.options import EXPIRES_MS_MAX
from tests.channel.fakes import (
    Client,
    FakeLink,
    body_of,
    contents,
    declare,
    declare_exchange,
    fetch,
    properties_of,
    to,
)
from tests.protocol.pamqp_frames import unmarshal_all

Properties = commands.Basic.Properties


@pytest.fixture
def link():
    return FakeLink()


@pytest.fixture
def client(link):
    return Client(link)


@pytest.fixture
def queue(link):
    return declare(link, "q")


def published(client, queue, properties):
    client.publish(to("q", b"body", properties))
    (message,) = fetch(queue)
    assert body_of(message) == b"body"
    return message


def test_priority_is_taken_from_the_property(client, queue):
    assert published(client, queue, Properties(priority=7)).priority == 7
    assert published(client, queue, Properties(priority=0)).priority == 0
    assert published(client, queue, Properties(delivery_mode=2)).priority == 0


def test_expiration_becomes_a_time(client, queue, link):
    message = published(client, queue, Properties(expiration="1500"))
    assert message.expires_at == link.timers.now + 1500
    assert published(client, queue, Properties(app_id="1500")).expires_at is None


@pytest.mark.parametrize(
    ("text", "ttl_ms"),
    [("0", 0), ("60000", 60_000), ("007", 7), (str(EXPIRES_MS_MAX), EXPIRES_MS_MAX)],
)
def test_an_expiration_is_a_decimal_number(text, ttl_ms):
    assert parse_expiration(text) == ttl_ms


@pytest.mark.parametrize(
    "text",
    ["", "-1", " 5", "5 ", "1.5", "0x1", "soon", "٣", "1e3", str(EXPIRES_MS_MAX + 1), "9" * 99],
)
def test_any_other_expiration_is_refused(text):
    with pytest.raises(ChannelError, match="expiration") as error:
        parse_expiration(text)
    assert error.value.code == 406


def test_the_user_id_must_be_ones_own(client, queue):
    assert properties_of(published(client, queue, Properties(user_id="guest"))).user_id == "guest"
    with pytest.raises(ChannelError, match="'somebody' but authenticated user was 'guest'"):
        client.publish(to("q", b"", Properties(user_id="somebody")))


def test_all_that_is_asked_for_at_once_is_done(client, queue, link):
    properties = Properties(
        priority=3, expiration="10", user_id="guest", reply_to="me", headers={"a": 1}
    )
    message = published(client, queue, properties)
    assert (message.priority, message.expires_at) == (3, link.timers.now + 10)
    assert properties_of(message) == properties


# Direct reply-to


def test_the_pseudo_queue_for_replies_is_replaced_by_the_channels_own_address(client, queue):
    client.call(commands.Basic.Consume, queue="amq.rabbitmq.reply-to", no_ack=True, nowait=True)
    asked = Properties(reply_to="amq.rabbitmq.reply-to", correlation_id="c", message_id="m")
    message = published(client, queue, asked)
    address = properties_of(message).reply_to
    assert address == client.channel.reply_queue.address
    assert properties_of(message).correlation_id == "c"
    assert properties_of(message).message_id == "m"


def test_replies_cannot_be_asked_for_without_a_consumer(client, queue):
    with pytest.raises(ChannelError, match="fast reply consumer does not exist"):
        client.publish(to("q", b"", Properties(reply_to="amq.rabbitmq.reply-to")))


def test_a_reply_goes_to_the_channel_that_asked_and_a_mandatory_one_comes_back_too(client, link):
    client.call(commands.Basic.Consume, queue="amq.rabbitmq.reply-to", no_ack=True, nowait=True)
    address = client.channel.reply_queue.address
    other = FakeLink(vhost=link.vhost)
    answering = Client(other)
    answering.publish(to(address, b"answer", mandatory=True))
    assert link.take_names() == ["Basic.Deliver", "ContentHeader", "ContentBody"]
    assert other.take_names() == ["Basic.Return", "ContentHeader", "ContentBody"]
    answering.publish(to(address + "x", b"answer", mandatory=True))
    assert link.take_names() == []
    assert other.take_names() == ["Basic.Return", "ContentHeader", "ContentBody"]


# CC and BCC


def test_cc_and_bcc_add_queues_and_bcc_is_not_seen(link, client):
    queues = [declare(link, name) for name in "abcd"]
    headers = {"CC": ["b", "a", "nowhere"], "BCC": ["c"], "other": 0.5}
    client.publish(to("a", b"body", Properties(headers=headers, message_id="m")))
    taken = [fetch(queue) for queue in queues]
    assert [len(messages) for messages in taken] == [1, 1, 1, 0]
    for (message,) in taken[:3]:
        seen = properties_of(message)
        assert seen.headers == {"CC": ["b", "a", "nowhere"], "other": 0.5}
        assert (seen.message_id, body_of(message)) == ("m", b"body")


def test_headers_that_merely_contain_the_letters_cc_are_left_alone(link, client, queue):
    headers = {"ACCENT": "CC", "BCCX": ["z"], "x": {"CC": ["z"]}}
    declare(link, "z")
    assert properties_of(published(client, queue, Properties(headers=headers))).headers == headers
    assert link.vhost.queues["z"].ready == 0


@pytest.mark.parametrize("name", ["CC", "BCC"])
@pytest.mark.parametrize("value", ["b", 5, {"b": 1}, None, ["b", 5]])
def test_cc_that_is_not_an_array_of_strings_is_refused(client, queue, name, value):
    with pytest.raises(ChannelError, match=f"'{name}'") as error:
        client.publish(to("q", b"", Properties(headers={name: value})))
    assert error.value.code == 406
    assert queue.ready == 0


def test_a_message_has_a_hundred_more_keys_at_most(client, queue):
    """CC and BCC together: each key is routed by itself."""
    most = {"CC": ["q"] * 60, "BCC": ["nowhere"] * 40}
    client.publish(to("nowhere", b"", Properties(headers=most)))
    assert queue.ready == 1
    with pytest.raises(ChannelError, match="100 CC and BCC keys") as error:
        client.publish(to("nowhere", b"", Properties(headers={**most, "CC": ["q"] * 61})))
    assert error.value.code == 406
    assert queue.ready == 1


def test_copies_of_an_unroutable_message_count_as_routed(link, client, queue):
    client.publish(to("nowhere", b"", Properties(headers={"BCC": ["q"]}), mandatory=True))
    assert (queue.ready, link.take()) == (1, [])


# Headers that decide the route


def test_a_headers_exchange_looks_at_each_message(link, client, queue):
    declare_exchange(link, "h", "headers")
    link.vhost.bind("h", queue, "", {"x-match": "all", "colour": "red"})
    for colour in ("red", "blue", "red"):
        client.publish({"exchange": "h", "properties": Properties(headers={"colour": colour})})
    client.publish({"exchange": "h"})
    assert queue.ready == 2


@pytest.mark.parametrize(
    ("argument", "properties"),
    [
        ("message_id", [Properties(message_id=str(n)) for n in range(40)]),
        ("correlation_id", [Properties(correlation_id=str(n)) for n in range(40)]),
    ],
)
def test_a_consistent_hash_exchange_may_hash_a_property(link, client, argument, properties):
    declare_exchange(link, "c", "x-consistent-hash", **{"hash-property": argument})
    queues = [declare(link, name) for name in "ab"]
    for queue in queues:
        link.vhost.bind("c", queue, "1", {})
    for one in properties * 2:
        client.publish({"exchange": "c", "properties": one})
    found = [[getattr(properties_of(m), argument) for m in fetch(queue)] for queue in queues]
    assert sum(len(values) for values in found) == 80
    assert all(found)
    assert not set(found[0]) & set(found[1])


# Malformed properties


def spoiled(headers=b"", flags=0x2000, behind=b""):
    """A content whose header frame says something else than it holds."""
    args = contents(to("q"))[0][0]
    table = struct.pack(">I", len(headers)) + headers
    values = table + behind
    frame, size, _ = join_header(1, 0, {0x2000: values})
    frames = frame[:19] + struct.pack(">H", flags) + frame[21:]
    return (args, frames, size, flags, 0)


MALFORMED = {
    "flags without values": spoiled(flags=0x3000),
    "values without flags": spoiled(flags=0),
    "values left over": spoiled(behind=b"\x00"),
    "flags beyond the first sixteen": spoiled(flags=0x2001),
    "an unknown type of field": spoiled(b"\x01k?"),
    "a field cut short": spoiled(b"\x01kI\x00"),
    "an unknown type in an array": spoiled(b"\x01kA\x00\x00\x00\x01?"),
    "an unknown type in CC": spoiled(b"\x02CCA\x00\x00\x00\x01?"),
    "an unknown type in x-death": spoiled(b"\x07x-deathA\x00\x00\x00\x01?"),
    "a nested table cut short": spoiled(b"\x01kF\x00\x00\x00\x05\x01kI\x00\x00"),
    "fields nested without end": spoiled(b"\x01kF" + struct.pack(">I", 0xFFFFFF)),
}


@pytest.mark.parametrize("mistake", MALFORMED)
def test_malformed_properties_close_the_connection(client, queue, mistake):
    with pytest.raises(ConnectionFailure) as failure:
        client.channel.publisher.publish([MALFORMED[mistake]])
    assert failure.value.code == 501
    assert queue.ready == 0


# Blocks of properties that are known to ask for nothing


def test_a_plain_block_is_looked_at_once(link, client, queue, monkeypatch):
    looked_at = []
    inspector = client.channel.publisher.inspector
    inspect = type(inspector).inspect

    def counted(self, message, route):
        looked_at.append(message)
        return inspect(self, message, route)

    monkeypatch.setattr(type(inspector), "inspect", counted)
    plain = Properties(content_type="text/plain", headers={"a": 1}, delivery_mode=2)
    client.publish(*[to("q", b"x", plain)] * 10)
    assert len(looked_at) == 1
    client.publish(*[to("q", b"x")] * 5, *[to("q", b"x", Properties(delivery_mode=2))] * 5)
    assert len(looked_at) == 1
    client.publish(to("q", b"x", Properties(content_type="text/html")))
    client.publish(*[to("q", b"x", Properties(priority=1))] * 2)
    assert len(looked_at) == 4
    assert queue.ready == 23


def test_the_memory_of_plain_blocks_is_bounded(client, queue):
    plain = client.channel.publisher.inspector.plain
    for at in range(0, PLAIN_MAX + 500, 100):
        client.publish(*[to("q", b"", Properties(app_id=str(at + n))) for n in range(100)])
        assert len(plain) <= PLAIN_MAX
    client.publish(to("q", b"", Properties(headers={"k": "v" * 1000})))
    assert all(len(block) < 600 for block in plain)


def test_a_message_is_delivered_with_the_properties_it_was_published_with(link, client, queue):
    properties = Properties(
        content_type="a", headers={"k": [1, {"n": None}]}, priority=1, timestamp=None, app_id="z"
    )
    client.publish(to("q", b"body", properties))
    client.call(commands.Basic.Get, queue="q", no_ack=True)
    (_, _), (_, head), (_, body) = unmarshal_all(link.take_raw())
    assert (head.properties, body.value) == (properties, b"body")
