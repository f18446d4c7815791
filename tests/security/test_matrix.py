"""Every operation of AMQP with the permissions that it needs, and without each one of them.

    LEVERET_TEST_URL=amqp://… LEVERET_TEST_API=http://… pytest tests/security/test_matrix.py

checks the same table against a RabbitMQ.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.frames import Basic, Channel, Confirm, Exchange, Queue, Tx, unvalidated
from tests.support.wire import ChannelClosedError, WireChannel

ACTIONS = ("configure", "write", "read")
# What is there before: names that the table uses.
QUEUES, EXCHANGES = ("q", "q-spare", "q-bound"), ("x", "x-spare", "x-bound")
TOPIC = "x-topic"
ALTERNATE = {"alternate-exchange": "x-spare"}
DEAD = {"x-dead-letter-exchange": "x-spare"}


@dataclass(frozen=True)
class Operation:
    """`needs` are names by action; those of queues that the server names begin with amq.gen."""

    name: str
    act: Callable[[WireChannel], object]
    needs: dict[str, list[str]] = field(default_factory=dict)

    def cases(self) -> list[tuple[str, str]]:
        return [(action, name) for action in ACTIONS for name in self.needs.get(action, [])]


def publish(channel: WireChannel, exchange: str, key: str = "k", **properties: Any) -> None:
    channel.rpc(Confirm.Select())
    channel.publish(exchange, key, b"m", **properties)
    channel.expect(Basic.Ack)


def publish_in_tx(channel: WireChannel, exchange: str) -> None:
    channel.rpc(Tx.Select())
    channel.publish(exchange, "k", b"m")
    channel.rpc(Tx.Commit())


def bind_exchange(channel: WireChannel, destination: str, source: str, key: str = "k") -> None:
    channel.rpc(unvalidated(Exchange.Bind, destination=destination, source=source, routing_key=key))


def unbind_exchange(channel: WireChannel, destination: str, source: str) -> None:
    channel.rpc(
        unvalidated(Exchange.Unbind, destination=destination, source=source, routing_key="k")
    )


def unbind(channel: WireChannel, queue: str, exchange: str, key: str = "k") -> None:
    channel.rpc(unvalidated(Queue.Unbind, queue=queue, exchange=exchange, routing_key=key))


def purge(channel: WireChannel, queue: str) -> None:
    channel.rpc(unvalidated(Queue.Purge, queue=queue))


def delete_queue(channel: WireChannel, queue: str) -> None:
    channel.rpc(unvalidated(Queue.Delete, queue=queue))


def delete_exchange(channel: WireChannel, exchange: str) -> None:
    channel.rpc(unvalidated(Exchange.Delete, exchange=exchange))


def consume_replies(channel: WireChannel) -> None:
    channel.consume("amq.rabbitmq.reply-to", no_ack=True)


def take_and_settle(channel: WireChannel, settle: Callable[[WireChannel, int], None]) -> None:
    content = channel.get("q")
    assert content is not None
    settle(channel, content.method.delivery_tag)
    channel.count("q")


TABLE = [
    # Exchanges
    Operation("exchange.declare", lambda c: c.declare_exchange("x-new"), {"configure": ["x-new"]}),
    Operation("exchange.declare again", lambda c: c.declare_exchange("x"), {"configure": ["x"]}),
    Operation("exchange.declare passive", lambda c: c.declare_exchange("x", passive=True)),
    Operation(
        "exchange.declare with an alternate",
        lambda c: c.declare_exchange("x-alt", arguments=ALTERNATE),
        {"configure": ["x-alt"], "read": ["x-alt"], "write": ["x-spare"]},
    ),
    Operation(
        "exchange.declare with an alternate again",
        lambda c: c.declare_exchange("x-with-alt", arguments=ALTERNATE),
        {"configure": ["x-with-alt"]},
    ),
    Operation("exchange.delete", lambda c: delete_exchange(c, "x-gone"), {"configure": ["x-gone"]}),
    Operation(
        "exchange.delete of one that is there",
        lambda c: delete_exchange(c, "x-there"),
        {"configure": ["x-there"]},
    ),
    Operation(
        "exchange.bind",
        lambda c: bind_exchange(c, "x", "x-spare"),
        {"write": ["x"], "read": ["x-spare"]},
    ),
    Operation(
        "exchange.unbind",
        lambda c: unbind_exchange(c, "x-bound", "x-spare"),
        {"write": ["x-bound"], "read": ["x-spare"]},
    ),
    # Queues
    Operation("queue.declare", lambda c: c.declare_queue("q-new"), {"configure": ["q-new"]}),
    Operation("queue.declare again", lambda c: c.declare_queue("q"), {"configure": ["q"]}),
    Operation("queue.declare passive", lambda c: c.declare_queue("q", passive=True)),
    Operation(
        "queue.declare named by the server",
        lambda c: c.declare_queue("", exclusive=True),
        {"configure": ["amq.gen"]},
    ),
    Operation(
        "queue.declare with dead letters",
        lambda c: c.declare_queue("q-dead", arguments=DEAD),
        {"configure": ["q-dead"], "read": ["q-dead"], "write": ["x-spare"]},
    ),
    Operation(
        "queue.declare with dead letters again",
        lambda c: c.declare_queue("q-with-dead", arguments=DEAD),
        {"configure": ["q-with-dead"]},
    ),
    Operation(
        "queue.declare with dead letters to the default exchange",
        lambda c: c.declare_queue("q-dead2", arguments={"x-dead-letter-exchange": ""}),
        {"configure": ["q-dead2"], "read": ["q-dead2"], "write": ["amq.default"]},
    ),
    Operation("queue.delete", lambda c: delete_queue(c, "q-gone"), {"configure": ["q-gone"]}),
    Operation(
        "queue.delete of one that is there",
        lambda c: delete_queue(c, "q-there"),
        {"configure": ["q-there"]},
    ),
    Operation("queue.purge", lambda c: purge(c, "q-spare"), {"read": ["q-spare"]}),
    Operation("queue.bind", lambda c: c.bind("q", "x", "k2"), {"write": ["q"], "read": ["x"]}),
    Operation(
        "queue.bind to a topic exchange",
        lambda c: c.bind("q-spare", TOPIC, "a.b"),
        {"write": ["q-spare"], "read": [TOPIC]},
    ),
    Operation(
        "queue.unbind",
        lambda c: unbind(c, "q-bound", "x"),
        {"write": ["q-bound"], "read": ["x"]},
    ),
    # Messages
    Operation("basic.publish", lambda c: publish(c, "x"), {"write": ["x"]}),
    Operation(
        "basic.publish to the default exchange",
        lambda c: publish(c, "", "q-spare"),
        {"write": ["amq.default"]},
    ),
    Operation("basic.publish in a transaction", lambda c: publish_in_tx(c, "x"), {"write": ["x"]}),
    Operation("basic.consume", lambda c: c.consume("q-spare"), {"read": ["q-spare"]}),
    Operation("basic.get", lambda c: c.get("q-spare"), {"read": ["q-spare"]}),
    Operation("basic.consume of direct replies", consume_replies),
    # What is about the channel, and what it has got
    Operation(
        "basic.ack",
        lambda c: take_and_settle(c, WireChannel.ack),
        {"read": ["q"]},
    ),
    Operation("basic.nack", lambda c: take_and_settle(c, WireChannel.nack), {"read": ["q"]}),
    Operation("basic.reject", lambda c: take_and_settle(c, WireChannel.reject), {"read": ["q"]}),
    Operation("basic.qos", lambda c: c.qos(1)),
    Operation("basic.cancel", lambda c: c.cancel("nobody")),
    Operation("basic.recover", lambda c: c.rpc(Basic.Recover(requeue=True))),
    Operation("channel.flow", lambda c: c.rpc(Channel.Flow(active=True))),
    Operation("confirm.select", lambda c: c.rpc(Confirm.Select())),
    Operation("tx.select", lambda c: c.rpc(Tx.Select())),
]
CASES = [(operation, *case) for operation in TABLE for case in operation.cases()]


def only(names: list[str]) -> str:
    """Matches these names and no others."""
    exact = [re.escape(name) + ("" if name == "amq.gen" else "$") for name in names]
    return f"^({'|'.join(exact)})" if exact else ""


def all_but(name: str) -> str:
    return f"^(?!{re.escape(name)}{'' if name == 'amq.gen' else '$'})"


class Scene:
    """A user whose permissions each case changes, on one connection that stays open."""

    def __init__(self, house: Any) -> None:
        self.house = house
        self.user = house.add_user()
        house.permit(self.user, "", "", "")
        self.connection = house.connect(self.user)
        self._admin = house.admin_channel()
        self._set_up()

    def _set_up(self) -> None:
        for name in EXCHANGES:
            self._admin.declare_exchange(name)
        self._admin.declare_exchange(TOPIC, "topic")
        self._admin.declare_exchange("x-with-alt", arguments=ALTERNATE)
        for name in QUEUES:
            self._admin.declare_queue(name)
        self._admin.declare_queue("q-with-dead", arguments=DEAD)
        self._admin.publish("", "q", b"m")

    def forget_new(self) -> None:
        """What a case made, or is to find, is as if there had been no case before."""
        for queue in ("q-new", "q-dead", "q-dead2"):
            delete_queue(self._admin, queue)
        for exchange in ("x-new", "x-alt"):
            delete_exchange(self._admin, exchange)
        self._admin.declare_queue("q-there")
        self._admin.declare_exchange("x-there")
        self._admin.publish("", "q", b"m")
        self._admin.count("q")

    def permit(self, configure: str, write: str, read: str) -> None:
        self.house.permit(self.user, configure, write, read)

    def channel(self) -> WireChannel:
        return self.connection.open_channel()


@pytest.fixture(scope="module")
def scene(house: Any) -> Scene:
    return Scene(house)


@pytest.mark.parametrize("operation", TABLE, ids=lambda operation: operation.name)
def test_an_operation_succeeds_with_what_it_needs_and_nothing_more(
    scene: Scene, operation: Operation
) -> None:
    scene.forget_new()
    scene.permit(*(only(operation.needs.get(action, [])) for action in ACTIONS))
    channel = scene.channel()
    operation.act(channel)
    channel.close()


@pytest.mark.parametrize(
    ("operation", "action", "name"),
    CASES,
    ids=[f"{operation.name} without {action} on {name}" for operation, action, name in CASES],
)
def test_an_operation_is_refused_without_any_one_thing_that_it_needs(
    scene: Scene, operation: Operation, action: str, name: str
) -> None:
    scene.forget_new()
    patterns = dict.fromkeys(ACTIONS, ".*") | {action: all_but(name)}
    scene.permit(*(patterns[each] for each in ACTIONS))
    channel = scene.channel()
    with pytest.raises(ChannelClosedError) as refusal:
        operation.act(channel)
    close = refusal.value.method
    assert close.reply_code == 403, close.reply_text
    assert close.reply_text.startswith("ACCESS_REFUSED - ")
    assert f"'{name}" in close.reply_text
    assert f"refused for user '{scene.user}'" in close.reply_text
    channel.send(Channel.CloseOk())


@pytest.mark.parametrize(
    "act",
    [
        lambda c: c.consume("missing"),
        lambda c: c.get("missing"),
        lambda c: purge(c, "missing"),
        lambda c: c.bind("missing", "x"),
        lambda c: c.bind("q", "missing"),
        lambda c: publish(c, "missing"),
        lambda c: bind_exchange(c, "missing", "x"),
    ],
    ids=["consume", "get", "purge", "bind", "bind to", "publish", "exchange.bind"],
)
def test_whoever_may_not_use_a_name_does_not_learn_whether_it_is_there(
    scene: Scene, act: Callable[[WireChannel], object]
) -> None:
    for pattern, code in ((all_but("missing"), 403), (".*", 404)):
        scene.permit(".*", pattern, pattern)
        channel = scene.channel()
        with pytest.raises(ChannelClosedError) as refusal:
            act(channel)
        assert refusal.value.method.reply_code == code
        channel.send(Channel.CloseOk())


# Topics

TOPICS = {
    "publish": ("write", lambda c, key: publish(c, TOPIC, key)),
    "bind a queue": ("read", lambda c, key: c.bind("q-spare", TOPIC, key)),
    "unbind a queue": ("read", lambda c, key: unbind(c, "q-spare", TOPIC, key)),
    "bind an exchange": ("read", lambda c, key: bind_exchange(c, "x", TOPIC, key)),
}


@pytest.mark.parametrize("what", TOPICS)
def test_a_topic_permission_is_asked_for_the_key(scene: Scene, what: str) -> None:
    action, act = TOPICS[what]
    scene.permit(".*", ".*", ".*")
    patterns = {"write": "^nothing$", "read": "^nothing$", action: "^{username}\\."}
    where = ("topic-permissions", scene.house.vhost, scene.user)
    body = {"exchange": TOPIC, **patterns}
    assert scene.house.api.call("PUT", *where, body=body).status in (201, 204)
    try:
        good = scene.channel()
        act(good, f"{scene.user}.a")
        bad = scene.channel()
        with pytest.raises(ChannelClosedError) as refusal:
            act(bad, "somebody.a")
        close = refusal.value.method
        assert close.reply_code == 403
        assert f"access to topic 'somebody.a' in exchange '{TOPIC}'" in close.reply_text
        bad.send(Channel.CloseOk())
    finally:
        assert scene.house.api.call("DELETE", *where).status == 204
    act(good, "somebody.a")  # where nothing is said about topics, every key will do
    good.close()


def test_topic_permissions_are_for_topic_exchanges_only(scene: Scene) -> None:
    scene.permit(".*", ".*", ".*")
    where = ("topic-permissions", scene.house.vhost, scene.user)
    body = {"exchange": "x", "write": "^nothing$", "read": "^nothing$"}
    assert scene.house.api.call("PUT", *where, body=body).status in (201, 204)
    channel = scene.channel()
    publish(channel, "x", "k")
    channel.bind("q-spare", "x", "k")
    channel.close()
    assert scene.house.api.call("DELETE", *where).status == 204


@pytest.mark.leveret_only  # RabbitMQ asks since 4.0
@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_keys_of_copies_are_asked_for_too(scene: Scene, header: str) -> None:
    scene.permit(".*", ".*", ".*")
    where = ("topic-permissions", scene.house.vhost, scene.user)
    body = {"exchange": TOPIC, "write": "^mine\\.", "read": ".*"}
    assert scene.house.api.call("PUT", *where, body=body).status in (201, 204)
    channel = scene.channel()
    publish(channel, TOPIC, "mine.a", headers={header: ["mine.b"]})
    channel.publish(TOPIC, "mine.a", b"m", headers={header: ["mine.b", "yours.c"]})
    channel.expect_close(403, "write access to topic 'yours.c'")
    assert scene.house.api.call("DELETE", *where).status == 204


# The user-id of a message


def test_only_an_impersonator_publishes_as_somebody_else(house: Any) -> None:
    for tags, allowed in (((), False), (("impersonator",), True)):
        user = house.add_user(*tags)
        house.permit(user, ".*", ".*", ".*")
        channel = house.connect(user).open_channel()
        publish(channel, "amq.fanout", user_id=user)
        if allowed:
            publish(channel, "amq.fanout", user_id="somebody")
        else:
            channel.publish("amq.fanout", "k", b"m", user_id="somebody")
            channel.expect_close(406, "user_id property set to 'somebody'")
