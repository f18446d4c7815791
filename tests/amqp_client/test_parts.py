"""The parts without a socket: URLs, properties, publishes, acks, confirms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from broker.protocol.constants import BASIC_ACK, BASIC_NACK, BASIC_PUBLISH, BASIC_REJECT
from broker.protocol.frames import FrameReader
from broker.protocol.methods import decode
from clients.amqp_errors import AlreadySettledError, ConnectionLostError, NackedError
from clients.amqp_promise import Promise
from clients.amqp_properties import Properties, decode_properties
from clients.amqp_publishing import Confirms, Publish, PublishEncoder
from clients.amqp_settling import Settling
from clients.amqp_topology import DeclaredQueue, Topology
from clients.amqp_url import Endpoint, Target
from clients.tls import Tls

short = st.text(max_size=60).filter(lambda text: len(text.encode()) < 256)
properties = st.builds(
    Properties,
    content_type=st.none() | short,
    content_encoding=st.none() | short,
    headers=st.none()
    | st.dictionaries(short, st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | short),
    delivery_mode=st.none() | st.sampled_from([1, 2]),
    priority=st.none() | st.integers(0, 255),
    correlation_id=st.none() | short,
    reply_to=st.none() | short,
    expiration=st.none() | short,
    message_id=st.none() | short,
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    type=st.none() | short,
    user_id=st.none() | short,
    app_id=st.none() | short,
    cluster_id=st.none() | short,
)
publishes = st.builds(
    Publish,
    body=st.binary(max_size=10_000),
    exchange=short,
    routing_key=short,
    properties=properties,
    mandatory=st.booleans(),
    resend=st.just(value=False),
)


@given(st.lists(publishes, max_size=5), st.integers(1, 5000))
def test_publishes_are_read_as_they_were_written(sent: list[Publish], cut: int) -> None:
    encoder = PublishEncoder(7, 4096)
    reader = FrameReader(frame_max=4096, message_bytes_max=1 << 20)
    twice = [publish for publish in sent for _ in range(2)]  # the second one is from the cache
    data = b"".join([b"".join(encoder.pieces(publish)) for publish in twice])
    batches = reader.feed(data[:cut]) + reader.feed(data[cut:])
    assert reader.failure is None
    contents = [content for _, _, items in batches for content in items]
    assert {(channel, key) for channel, key, _ in batches} <= {(7, BASIC_PUBLISH)}
    found = []
    for args, frames, header_bytes, flags, body_bytes in contents:
        method = decode(BASIC_PUBLISH, args)
        body = frames[header_bytes + 15 : -1] if body_bytes else b""
        read = decode_properties(flags, frames, header_bytes)
        found.append(Publish(body, method.exchange, method.routing_key, read, method.mandatory))
    assert found == twice


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("akmnr"), st.booleans())))
def test_every_delivery_is_settled_as_it_was_told(steps: list[tuple[int, str, bool]]) -> None:
    """Against a broker that knows what is outstanding and takes nothing twice."""
    asked = [0]
    settling = Settling(1, lambda: asked.__setitem__(0, asked[0] + 1))
    outstanding = set(range(1, 11))
    fate: dict[int, str] = {}
    wanted: dict[int, str] = {}
    reader = FrameReader(frame_max=4096, message_bytes_max=1)

    def write() -> None:
        for _, key, items in reader.feed(settling.take()):
            for tag, bits in items:
                multiple = bits & 1 and key != BASIC_REJECT
                assert tag in outstanding, "the broker would close the channel"
                for each in [n for n in outstanding if n <= tag] if multiple else [tag]:
                    outstanding.remove(each)
                    fate[each] = {BASIC_ACK: "a", BASIC_NACK: "n", BASIC_REJECT: "r"}[key]

    for position, what, flush in steps:
        tag = position + 1
        told = {
            "a": settling.ack,
            "m": lambda tag: settling.ack(tag, multiple=True),
            "n": lambda tag: settling.nack(tag, requeue=True),
            "k": lambda tag: settling.nack(tag, requeue=False, multiple=True),
            "r": lambda tag: settling.reject(tag, requeue=False),
        }[what]
        if tag in wanted:
            with pytest.raises(AlreadySettledError):
                told(tag)
        else:
            before = asked[0]
            told(tag)
            assert asked[0] > before or before > 0
            several = [n for n in range(1, tag) if n not in wanted] if what in "mk" else []
            kind = {"m": "a", "k": "n"}.get(what, what)
            wanted.update(dict.fromkeys([*several, tag], kind))
        if flush:
            write()
            asked[0] = 0
            assert fate == wanted
    write()
    assert fate == wanted


def test_acks_in_order_are_one_frame() -> None:
    settling = Settling(1, lambda: None)
    for tag in range(1, 501):
        settling.ack(tag)
    batches = FrameReader(frame_max=4096, message_bytes_max=1).feed(settling.take())
    assert batches == [(1, BASIC_ACK, [(500, 1)])]
    settling.end()
    settling.ack(501)
    assert settling.take() == b""


def test_direct_replies_that_share_a_delivery_tag_need_no_ack() -> None:
    settling = Settling(1, lambda: None)
    for tag in (1, 1, 3, 3, 2):
        settling.skip(tag)
    assert (settling.floor, settling.take()) == (3, b"")
    with pytest.raises(AlreadySettledError):
        settling.ack(3)


def test_replies_may_have_the_tag_of_the_next_delivery() -> None:
    """As those of RabbitMQ, which count for nothing."""
    settling = Settling(1, lambda: None)
    settling.skip(1)
    settling.skip(1)
    settling.delivered(1)
    settling.ack(1)
    settling.delivered(2)
    settling.delivered(3)
    settling.skip(4)
    settling.delivered(4)
    for tag in (4, 3, 2):
        settling.ack(tag)
    assert settling.floor == 4
    with pytest.raises(AlreadySettledError):
        settling.ack(4)


@given(st.data())
def test_every_publish_hears_of_its_confirm_once(data: st.DataObject) -> None:
    confirms = Confirms()
    count = data.draw(st.integers(1, 20))
    promises = [Promise() for _ in range(count)]
    for number, promise in enumerate(promises):
        resend = number % 3 == 0
        confirms.add(promise, Publish(b"", "", "", Properties(), mandatory=False, resend=resend))
    fate: dict[int, str] = {}
    while data.draw(st.booleans()):
        tag = data.draw(st.integers(1, count))
        multiple = data.draw(st.booleans())
        nacked = data.draw(st.booleans())
        confirms.settle([(tag, int(multiple))], nacked=nacked)
        for each in range(1, tag + 1) if multiple else [tag]:
            fate.setdefault(each, "nack" if nacked else "ack")
    again = confirms.fail(ConnectionLostError("gone"))
    for number, promise in enumerate(promises):
        if fate.get(number + 1) == "ack":
            promise.result()
        elif fate.get(number + 1) == "nack":
            with pytest.raises(NackedError):
                promise.result()
        elif number % 3 == 0:
            assert not promise.done
            assert any(receipt is promise for receipt, _ in again)
        else:
            with pytest.raises(ConnectionLostError):
                promise.result()
    assert not confirms


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("amqp://", Target((Endpoint("127.0.0.1", 5672),))),
        ("amqps://h", Target((Endpoint("h", 5671),), tls=Tls())),
        ("AMQP://[::1]", Target((Endpoint("::1", 5672),))),
        ("amqp://:7/#there", Target((Endpoint("127.0.0.1", 7),))),
        (
            "amqps://h?cacertfile=ca%2Fa.pem&certfile=me.pem&keyfile=me.key",
            Target((Endpoint("h", 5671),), tls=Tls("ca/a.pem", "me.pem", "me.key")),
        ),
        (
            "amqp://u:p%40ss@a:1,b,[::1]:3/my%2Fhost?heartbeat=7",
            Target(
                (Endpoint("a", 1), Endpoint("b", 5672), Endpoint("::1", 3)),
                "u",
                "p@ss",
                "my/host",
                heartbeat_s=7,
            ),
        ),
    ],
)
def test_urls(url: str, target: Target) -> None:
    assert Target.of_url(url) == target
    assert "p@ss" not in repr(target)


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "amqp:h",
        "h:5672",
        "amqp://h\n",
        "amqp://a b",
        "amqp://::1",
        "amqp://[::1",
        "amqp://[::1]x:3",
        "amqp://h:0",
        "amqp://h:65536",
        "amqp://h:\N{SUPERSCRIPT TWO}",
        "amqp://h:x",
        "amqp://h?heartbeat=x",
        "amqp://h?nonsense=1",
        "amqp://h?cacertfile=ca.pem",
        "amqps://h?keyfile=me.key",
    ],
)
def test_urls_that_are_wrong(url: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Target.of_url(url)


def test_a_topology_follows_the_names_that_the_broker_chooses() -> None:
    topology = Topology()
    handle = topology.queue_declared(DeclaredQueue("amq.gen-1"), {"queue": ""})
    binding = {"queue": "amq.gen-1", "exchange": "e", "routing_key": "", "arguments": None}
    topology.bound(commands.Queue.Bind, binding)
    names = []
    for step in topology.steps():
        if step.queue is not None:
            step.queue.name = "amq.gen-2"
        names.append(step.arguments["queue"])
    topology.renamed()
    assert names == ["", "amq.gen-2"]
    topology.unbound(commands.Queue.Bind, {**binding, "queue": "amq.gen-2"})
    topology.queue_deleted(handle.name)
    assert list(topology.steps()) == []
