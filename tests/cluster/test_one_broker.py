"""What a client cannot tell: which node it is connected to, and which has what it uses."""

import time
from collections.abc import Iterator

import pytest

from tests.cluster.nodes import Cluster
from tests.support.admin import Api
from tests.support.frames import Basic, Confirm, Exchange, Queue
from tests.support.waiting import eventually
from tests.support.wire import ChannelClosedError, WireChannel, WireConnection

pytestmark = [pytest.mark.leveret_only, pytest.mark.timeout(400)]

QUORUM = {"x-queue-type": "quorum"}
REPLY_TO = "amq.rabbitmq.reply-to"
PATIENCE_S = 60.0  # a bound for what never comes, not a promise


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, WireConnection]]:
    """A connection to each of three nodes, by name."""
    with Cluster(tmp_path_factory.mktemp("one-broker")) as cluster:
        cluster.start()
        connections = {name: WireConnection.connect(n.url) for name, n in cluster.nodes.items()}
        connections["cluster"] = cluster  # type: ignore[assignment]
        yield connections
        assert not cluster.tracebacks()


@pytest.fixture
def cluster(nodes: dict[str, WireConnection]) -> Cluster:
    """All tests here share one; none of them harms it."""
    return nodes["cluster"]  # type: ignore[return-value]


@pytest.fixture
def a(nodes: dict[str, WireConnection]) -> WireChannel:
    return nodes["a"].open_channel()


@pytest.fixture
def b(nodes: dict[str, WireConnection]) -> WireChannel:
    return nodes["b"].open_channel()


@pytest.fixture
def c(nodes: dict[str, WireConnection]) -> WireChannel:
    return nodes["c"].open_channel()


def exists(channel: WireChannel, queue: str) -> bool:
    probe = channel.conn.open_channel()
    try:
        probe.rpc(Queue.Declare(queue=queue, passive=True))
    except ChannelClosedError as closed:
        if closed.method.reply_code != 404:
            raise
        return False
    return True


def code_of(channel: WireChannel, method: object) -> int:
    probe = channel.conn.open_channel()
    with pytest.raises(ChannelClosedError) as closed:
        probe.rpc(method)
    return closed.value.method.reply_code


# Queues that end with something


def test_an_exclusive_queue_is_locked_for_others_on_every_node(
    cluster: Cluster, a: WireChannel, b: WireChannel, c: WireChannel
) -> None:
    owner = WireConnection.connect(cluster.nodes["b"].url)
    owner.open_channel().rpc(Queue.Declare(queue="mine", exclusive=True))
    for other in (a, b, c):
        assert code_of(other, Queue.Declare(queue="mine", passive=True)) == 405
        assert code_of(other, Queue.Declare(queue="mine", exclusive=True)) == 405
        assert code_of(other, Basic.Consume(queue="mine")) == 405
        assert code_of(other, Queue.Delete(queue="mine")) == 405
        other.publish("", "mine", b"publishing is for all")
    owner.close()
    for other in (a, b, c):
        assert not exists(other, "mine")


def test_an_auto_delete_queue_goes_with_the_last_consumer_on_any_node(
    a: WireChannel, b: WireChannel, c: WireChannel
) -> None:
    a.rpc(Queue.Declare(queue="passing", auto_delete=True))
    one = b.rpc(Basic.Consume(queue="passing")).consumer_tag
    two = c.rpc(Basic.Consume(queue="passing")).consumer_tag
    b.rpc(Basic.Cancel(consumer_tag=one))
    assert all(exists(node, "passing") for node in (a, b, c))
    c.rpc(Basic.Cancel(consumer_tag=two))
    assert not any(exists(node, "passing") for node in (a, b, c))


@pytest.mark.parametrize("whole", ["channel", "connection"])
def test_an_auto_delete_queue_is_gone_when_its_consumer_has_closed(
    cluster: Cluster, a: WireChannel, b: WireChannel, whole: str
) -> None:
    a.rpc(Queue.Declare(queue="passing", auto_delete=True))
    consumer = WireConnection.connect(cluster.nodes["b"].url)
    channel = consumer.open_channel()
    channel.rpc(Basic.Consume(queue="passing"))
    if whole == "channel":
        channel.close()
    else:
        consumer.close()
    assert not any(exists(node, "passing") for node in (a, b))


def test_an_auto_delete_exchange_goes_with_its_last_binding_on_any_node(
    a: WireChannel, b: WireChannel, c: WireChannel
) -> None:
    a.rpc(Exchange.Declare(exchange="passing", exchange_type="fanout", auto_delete=True))
    for channel, queue in ((a, "one"), (b, "two")):
        channel.rpc(Queue.Declare(queue=queue))
        channel.rpc(Queue.Bind(queue=queue, exchange="passing"))
    c.rpc(Queue.Unbind(queue="one", exchange="passing", routing_key=""))
    assert c.rpc(Exchange.Declare(exchange="passing", passive=True)).name == "Exchange.DeclareOk"
    c.rpc(Queue.Delete(queue="two"))
    for channel in (a, b, c):
        assert code_of(channel, Exchange.Declare(exchange="passing", passive=True)) == 404
    a.rpc(Queue.Delete(queue="one"))


def test_a_server_named_queue_can_be_used_from_every_node(a: WireChannel, b: WireChannel) -> None:
    name = a.rpc(Queue.Declare(queue="")).queue
    assert name.startswith("amq.gen-")
    b.publish("", name, b"x")
    assert b.get(name, no_ack=True).body == b"x"
    b.rpc(Queue.Delete(queue=name))
    assert not exists(a, name)


@pytest.mark.parametrize("arguments", [{}, QUORUM], ids=["classic", "quorum"])
def test_a_queue_expires_when_nobody_on_any_node_has_used_it(
    a: WireChannel, b: WireChannel, c: WireChannel, arguments: dict[str, object]
) -> None:
    expires_ms = 2000
    arguments = {**arguments, "x-expires": expires_ms}
    a.rpc(Queue.Declare(queue="unused", durable=True, arguments=arguments))
    tag = b.rpc(Basic.Consume(queue="unused")).consumer_tag
    time.sleep(1.5 * expires_ms / 1000)  # it is used
    before = time.monotonic()
    assert exists(c, "unused")
    b.rpc(Basic.Cancel(consumer_tag=tag))
    # Looking at it would count as use.
    publisher = c.conn.open_channel()
    publisher.rpc(Confirm.Select())

    def gone() -> bool:
        publisher.publish("", "unused", b"x", mandatory=True)
        item = publisher.conn.next_item(publisher.number, timeout=PATIENCE_S)
        if isinstance(item, Basic.Ack):
            return False
        publisher.expect(Basic.Ack)
        return True

    eventually(gone, "the end of the queue", within_s=PATIENCE_S)
    assert time.monotonic() - before >= expires_ms / 1000
    assert not any(exists(node, "unused") for node in (a, b, c))


# Direct reply-to


def test_a_reply_finds_its_requester_on_another_node(a: WireChannel, b: WireChannel) -> None:
    b.rpc(Queue.Declare(queue="requests", auto_delete=False))
    a.rpc(Basic.Consume(queue=REPLY_TO, no_ack=True))
    a.publish("", "requests", b"question", reply_to=REPLY_TO, correlation_id="c1")
    eventually(
        lambda: b.rpc(Queue.Declare(queue="requests", passive=True)).message_count == 1,
        "the question",
        within_s=PATIENCE_S,
    )
    address = b.get("requests", no_ack=True).properties.reply_to
    assert b.rpc(Queue.Declare(queue=address, passive=True)).consumer_count == 1
    for body in (b"", b"answer", b"x" * 1_000_000):
        b.publish("", address, body, correlation_id="c1")
        got = a.delivery()
        assert (got.body, got.properties.correlation_id) == (body, "c1")
    b.rpc(Queue.Delete(queue="requests"))


def test_a_requester_who_is_gone_gets_no_reply_from_another_node(
    cluster: Cluster, a: WireChannel, b: WireChannel
) -> None:
    requester = WireConnection.connect(cluster.nodes["a"].url).open_channel()
    a.rpc(Queue.Declare(queue="requests"))
    requester.rpc(Basic.Consume(queue=REPLY_TO, no_ack=True))
    requester.publish("", "requests", b"question", reply_to=REPLY_TO)
    requester.close()
    address = a.get("requests", no_ack=True).properties.reply_to
    b.publish("", address, b"too late")
    assert code_of(b, Queue.Declare(queue=address, passive=True)) == 404
    nowhere = address.replace(f"{REPLY_TO}.1.", f"{REPLY_TO}.77.")
    assert nowhere != address
    b.publish("", nowhere, b"to nobody")
    assert code_of(b, Queue.Declare(queue=nowhere, passive=True)) == 404
    a.rpc(Queue.Delete(queue="requests"))


# The management API


def test_calls_about_messages_are_answered_by_whichever_node_is_asked(
    cluster: Cluster, a: WireChannel
) -> None:
    a.rpc(Confirm.Select())
    a.rpc(Exchange.Declare(exchange="dead", exchange_type="fanout"))
    for name in "xyz":  # their leaders are on different nodes
        arguments = {**QUORUM, "x-dead-letter-exchange": "dead"}
        a.rpc(Queue.Declare(queue=f"work-{name}", durable=True, arguments=arguments))
        a.rpc(Queue.Declare(queue=f"dlq-{name}", durable=True, arguments=QUORUM))
        a.rpc(Queue.Bind(queue=f"dlq-{name}", exchange="dead"))
        a.publish("", f"work-{name}", b"later", delivery_mode=2, headers={"x-delay": 3_600_000})
        a.expect(Basic.Ack)
    a.publish("", "work-x", b"bad", delivery_mode=2)
    a.expect(Basic.Ack)
    a.send(Basic.Reject(delivery_tag=a.get("work-x").delivery_tag, requeue=False))
    for node in cluster.nodes.values():
        api = Api("127.0.0.1", node.ports["http"])
        eventually(
            lambda api=api: (
                [row["messages_ready"] for row in api.call("GET", "dlq").json] == [1] * 3
            ),
            "a dead letter in each queue",
            within_s=PATIENCE_S,
        )
        for name in "xyz":
            (shown,) = api.call("GET", "dlq", "/", f"dlq-{name}").json
            assert shown["death"]["queue"] == "work-x"
            (scheduled,) = api.call("GET", "scheduled", "/", f"work-{name}").json
            assert scheduled["payload"] == "later"
        listed = api.call("GET", "scheduled", "/").json
        assert [(row["name"], row["messages_delayed"]) for row in listed] == [
            (f"work-{name}", 1) for name in "xyz"
        ]
        assert api.call("GET", "dlq", "/", "nowhere").status == 404
        assert api.call("POST", "dlq", "/", "dlq-x", "drop", body={}).status == 400
        api.close()
    for name, node in zip("xyz", cluster.nodes.values(), strict=True):
        api = Api("127.0.0.1", node.ports["http"])
        dropped = api.call("POST", "dlq", "/", f"dlq-{name}", "drop", body={"all": True})
        assert dropped.json == {"dropped": 1, "left": 0}
        api.close()
    for name in "xyz":
        assert a.rpc(Queue.Declare(queue=f"dlq-{name}", passive=True)).message_count == 0
        a.rpc(Queue.Delete(queue=f"work-{name}"))
        a.rpc(Queue.Delete(queue=f"dlq-{name}"))


def test_a_user_is_the_same_on_the_node_that_answers(cluster: Cluster, a: WireChannel) -> None:
    for name in "xyz":
        a.rpc(Queue.Declare(queue=name, durable=True, arguments=QUORUM))
    api = Api("127.0.0.1", cluster.nodes["a"].ports["http"], password="wrong")
    for name in "xyz":
        assert api.call("GET", "dlq", "/", name).status == 401
        a.rpc(Queue.Delete(queue=name))
    api.close()


def test_a_message_of_a_hundred_megabytes_passes_from_any_node_to_any_node(
    cluster: Cluster, a: WireChannel, b: WireChannel
) -> None:
    """More than a link likes to have in line. What a get brings is counted, not parsed."""
    a.rpc(Queue.Declare(queue="large", durable=True, arguments=QUORUM))
    publisher, getter = (WireConnection.connect(cluster.nodes[n].url) for n in "bc")
    channel = publisher.open_channel()
    channel.rpc(Confirm.Select())
    size = 100 << 20
    channel.publish("", "large", bytes(size))
    assert isinstance(channel.expect(Basic.Ack, timeout=PATIENCE_S), Basic.Ack)
    assert b.count("large") == 1
    getter.open_channel().send(Basic.Get(queue="large", no_ack=True))
    getter.sock.settimeout(PATIENCE_S)
    received = 0
    while received < size:
        data = getter.sock.recv(1 << 20)
        assert data, "the connection ended"
        received += len(data)
    for connection in (publisher, getter):
        connection.abort()
    a.rpc(Queue.Delete(queue="large"))
