"""Mistakes that close the channel and leave the connection alone: code, text and method."""

from collections.abc import Callable

import pytest
from pamqp import base

from tests.semantics.mistakes import ChannelMistake, ChannelMistakes, declare, declare_exchange
from tests.support.frames import Basic, Confirm, Exchange, Queue, Tx
from tests.support.scene import Scene
from tests.support.wire import WireChannel

MISTAKES = ChannelMistakes()
mistake = MISTAKES.add


# -- acknowledgements


@mistake("ack of a tag never delivered", 406, "unknown delivery tag 7", Basic.Ack)
def _(scene, ch, q, x):
    ch.ack(7)


@mistake("ack of the same tag twice", 406, "unknown delivery tag 1", Basic.Ack)
def _(scene, ch, q, x):
    one_unacked(ch, q)
    ch.ack(1)
    ch.ack(1)


@mistake("ack of tag 0 that is not multiple", 406, "unknown delivery tag 0", Basic.Ack)
def _(scene, ch, q, x):
    one_unacked(ch, q)
    ch.ack(0)


@mistake("multiple ack above any outstanding tag", 406, "unknown delivery tag 9", Basic.Ack)
def _(scene, ch, q, x):
    one_unacked(ch, q)
    ch.ack(9, multiple=True)


@mistake("multiple ack with nothing outstanding", 406, "unknown delivery tag 1", Basic.Ack)
def _(scene, ch, q, x):
    ch.ack(1, multiple=True)


@mistake("multiple ack of a tag already acked", 406, "unknown delivery tag 1", Basic.Ack)
def _(scene, ch, q, x):
    one_unacked(ch, q)
    ch.ack(1, multiple=True)
    ch.ack(1, multiple=True)


@mistake("ack of a message taken without ack", 406, "unknown delivery tag 1", Basic.Ack)
def _(scene, ch, q, x):
    ch.declare_queue(q, exclusive=True)
    ch.publish("", q)
    assert ch.get(q, no_ack=True)
    ch.ack(1)


@mistake("nack of an unknown tag", 406, "unknown delivery tag 3", Basic.Nack)
def _(scene, ch, q, x):
    ch.nack(3)


@mistake("reject of an unknown tag", 406, "unknown delivery tag 4", Basic.Reject)
def _(scene, ch, q, x):
    ch.reject(4)


def one_unacked(ch: WireChannel, q: str) -> None:
    ch.declare_queue(q, exclusive=True)
    ch.publish("", q)
    assert ch.get(q)


# -- publishing


@mistake(
    "publish to a missing exchange", 404, "NOT_FOUND - no exchange '{x}' in vhost '/'",
    Basic.Publish,
)  # fmt: skip
def _(scene, ch, q, x):
    ch.publish(x, "k")


@mistake("publish to an internal exchange", 403, "ACCESS_REFUSED", Basic.Publish)
def _(scene, ch, q, x):
    ch.declare_exchange(x, internal=True)
    ch.publish(x, "k")


@mistake("expiration that is not a number", 406, "invalid expiration 'soon'", Basic.Publish)
def _(scene, ch, q, x):
    ch.publish("", "k", expiration="soon")


@mistake("negative expiration", 406, "invalid expiration '-1'", Basic.Publish)
def _(scene, ch, q, x):
    ch.publish("", "k", expiration="-1")


@mistake("expiration with trailing garbage", 406, "invalid expiration '10s'", Basic.Publish)
def _(scene, ch, q, x):
    ch.publish("", "k", expiration="10s")


@mistake(
    "user-id of somebody else", 406,
    "user_id property set to 'mallory' but authenticated user was 'guest'", Basic.Publish,
)  # fmt: skip
def _(scene, ch, q, x):
    ch.publish("", "k", user_id="mallory")


@mistake("CC header that is no array", 406, "CC", Basic.Publish)
def _(scene, ch, q, x):
    ch.publish("", "k", headers={"CC": "other"})


@mistake("BCC header that is no array", 406, "BCC", Basic.Publish)
def _(scene, ch, q, x):
    ch.publish("", "k", headers={"BCC": 7})


# -- names that belong to the broker


@mistake("declare of a new queue named amq.*", 403, "amq.mine", Queue.Declare)
def _(scene, ch, q, x):
    ch.send(declare("amq.mine"))


@mistake("declare of a new exchange named amq.*", 403, "amq.mine", Exchange.Declare)
def _(scene, ch, q, x):
    ch.send(declare_exchange("amq.mine"))


@mistake("delete of the exchange amq.direct", 403, "amq.direct", Exchange.Delete)
def _(scene, ch, q, x):
    ch.send(Exchange.Delete(exchange="amq.direct"))


@mistake("declare of the default exchange", 403, "default exchange", Exchange.Declare)
def _(scene, ch, q, x):
    ch.send(declare_exchange(""))


@mistake("passive declare of the default exchange", 403, "default exchange", Exchange.Declare)
def _(scene, ch, q, x):
    ch.send(declare_exchange("", passive=True))


@mistake("delete of the default exchange", 403, "default exchange", Exchange.Delete)
def _(scene, ch, q, x):
    ch.send(Exchange.Delete(exchange=""))


@mistake("bind of a queue to the default exchange", 403, "default exchange", Queue.Bind)
def _(scene, ch, q, x):
    ch.declare_queue(q, exclusive=True)
    ch.send(Queue.Bind(queue=q, exchange="", routing_key="k"))


@mistake("unbind of a queue from the default exchange", 403, "default exchange", Queue.Unbind)
def _(scene, ch, q, x):
    ch.declare_queue(q, exclusive=True)
    ch.send(Queue.Unbind(queue=q, exchange="", routing_key=q))


@mistake("bind of an exchange to the default exchange", 403, "default exchange", Exchange.Bind)
def _(scene, ch, q, x):
    ch.declare_exchange(x)
    ch.send(Exchange.Bind(destination=x, source="", routing_key="k"))


# -- things that are missing


@mistake("unknown exchange type", 406, "x-nonsense", Exchange.Declare, leveret_only=True)
def _(scene, ch, q, x):
    ch.send(declare_exchange(x, "x-nonsense"))


@mistake("bind of a missing queue", 404, "no queue '{q}' in vhost '/'", Queue.Bind)
def _(scene, ch, q, x):
    ch.send(Queue.Bind(queue=q, exchange="amq.direct", routing_key="k"))


@mistake("bind to a missing exchange", 404, "no exchange '{x}' in vhost '/'", Queue.Bind)
def _(scene, ch, q, x):
    ch.declare_queue(q, exclusive=True)
    ch.send(Queue.Bind(queue=q, exchange=x, routing_key="k"))


@mistake("exchange bind from a missing source", 404, "no exchange '{x}'", Exchange.Bind)
def _(scene, ch, q, x):
    ch.send(Exchange.Bind(destination="amq.direct", source=x, routing_key="k"))


@mistake("exchange bind to a missing destination", 404, "no exchange '{x}'", Exchange.Bind)
def _(scene, ch, q, x):
    ch.send(Exchange.Bind(destination=x, source="amq.direct", routing_key="k"))


@mistake("consume from a missing queue", 404, "no queue '{q}' in vhost '/'", Basic.Consume)
def _(scene, ch, q, x):
    ch.send(Basic.Consume(queue=q))


@mistake("get from a missing queue", 404, "no queue '{q}' in vhost '/'", Basic.Get)
def _(scene, ch, q, x):
    ch.send(Basic.Get(queue=q))


@mistake("purge of a missing queue", 404, "no queue '{q}' in vhost '/'", Queue.Purge)
def _(scene, ch, q, x):
    ch.send(Queue.Purge(queue=q))


@mistake("passive declare of a missing queue", 404, "no queue '{q}' in vhost '/'", Queue.Declare)
def _(scene, ch, q, x):
    ch.send(declare(q, passive=True))


@mistake(
    "passive declare of a missing exchange", 404, "no exchange '{x}' in vhost '/'",
    Exchange.Declare,
)  # fmt: skip
def _(scene, ch, q, x):
    ch.send(declare_exchange(x, passive=True))


@mistake("consume with no name before any declare", 404, "no previously declared", Basic.Consume)
def _(scene, ch, q, x):
    ch.send(Basic.Consume(queue=""))


@mistake("get with no name before any declare", 404, "no previously declared", Basic.Get)
def _(scene, ch, q, x):
    ch.send(Basic.Get(queue=""))


@mistake("passive declare with no name before any declare", 404, "no queue ''", Queue.Declare)
def _(scene, ch, q, x):
    ch.send(declare("", passive=True))


# -- exclusivity

LOCKED = "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{q}' in vhost '/'"
TOUCHES: list[tuple[str, Callable[[str], base.Frame]]] = [
    ("declare", lambda q: declare(q, exclusive=True)),
    ("declare as shared", declare),
    ("passive declare", lambda q: declare(q, passive=True)),
    ("consume", lambda q: Basic.Consume(queue=q)),
    ("get", lambda q: Basic.Get(queue=q)),
    ("bind", lambda q: Queue.Bind(queue=q, exchange="amq.direct", routing_key="k")),
    ("delete", lambda q: Queue.Delete(queue=q)),
    ("purge", lambda q: Queue.Purge(queue=q)),
]


def refuses_touch(words: str, method: Callable[[str], base.Frame]) -> None:
    at = (
        type(method("q")).__mro__[1] if words.endswith(("declare", "shared")) else type(method("q"))
    )

    @mistake(f"{words} on another connection's exclusive queue", 405, LOCKED, at)
    def _(scene, ch, q, x):
        scene.channel().declare_queue(q, exclusive=True)
        ch.send(method(q))


for _words, _method in TOUCHES:
    refuses_touch(_words, _method)


@mistake(
    "exclusive consume where somebody consumes", 403,
    "ACCESS_REFUSED - queue '{q}' in vhost '/' in exclusive use", Basic.Consume,
)  # fmt: skip
def _(scene, ch, q, x):
    ch.declare_queue(q)
    scene.channel().consume(q)
    ch.send(Basic.Consume(queue=q, exclusive=True))


@mistake(
    "consume where somebody consumes exclusively", 403,
    "ACCESS_REFUSED - queue '{q}' in vhost '/' in exclusive use", Basic.Consume,
)  # fmt: skip
def _(scene, ch, q, x):
    ch.declare_queue(q)
    scene.channel().consume(q, exclusive=True)
    ch.send(Basic.Consume(queue=q))


@mistake("exclusive consume on a single-active queue", 403, "exclusive", Basic.Consume)
def _(scene, ch, q, x):
    ch.declare_queue(q, arguments={"x-single-active-consumer": True})
    ch.send(Basic.Consume(queue=q, exclusive=True))


# -- conditional deletes


@mistake("delete if-unused of a consumed queue", 406, "'{q}' in vhost '/' in use", Queue.Delete)
def _(scene, ch, q, x):
    ch.declare_queue(q)
    ch.consume(q)
    ch.send(Queue.Delete(queue=q, if_unused=True))


@mistake(
    "delete if-empty of a queue with messages", 406, "'{q}' in vhost '/' not empty", Queue.Delete
)
def _(scene, ch, q, x):
    ch.declare_queue(q)
    ch.publish("", q)
    ch.send(Queue.Delete(queue=q, if_empty=True))


@mistake("delete if-unused of a bound exchange", 406, "'{x}' in vhost '/' in use", Exchange.Delete)
def _(scene, ch, q, x):
    ch.declare_queue(q)
    ch.declare_exchange(x)
    ch.bind(q, x)
    ch.send(Exchange.Delete(exchange=x, if_unused=True))


# -- transactions and confirms


@mistake("tx.select on a confirm channel", 406, "cannot switch from confirm to tx", Tx.Select)
def _(scene, ch, q, x):
    ch.rpc(Confirm.Select())
    ch.send(Tx.Select())


@mistake("confirm.select on a tx channel", 406, "cannot switch from tx to confirm", Confirm.Select)
def _(scene, ch, q, x):
    ch.rpc(Tx.Select())
    ch.send(Confirm.Select())


@mistake("commit outside a transaction", 406, "channel is not transactional", Tx.Commit)
def _(scene, ch, q, x):
    ch.send(Tx.Commit())


@mistake("rollback outside a transaction", 406, "channel is not transactional", Tx.Rollback)
def _(scene, ch, q, x):
    ch.send(Tx.Rollback())


# -- direct reply-to


@mistake("reply-to consumed with acks", 406, "reply consumer cannot acknowledge", Basic.Consume)
def _(scene, ch, q, x):
    ch.send(Basic.Consume(queue="amq.rabbitmq.reply-to"))


@mistake("reply-to consumed twice on a channel", 406, "reply consumer already set", Basic.Consume)
def _(scene, ch, q, x):
    ch.consume("amq.rabbitmq.reply-to", no_ack=True)
    ch.send(Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True))


@mistake(
    "reply-to published without its consumer", 406, "fast reply consumer does not exist",
    Basic.Publish,
)  # fmt: skip
def _(scene, ch, q, x):
    ch.publish("", "k", reply_to="amq.rabbitmq.reply-to")


@pytest.mark.parametrize("case", MISTAKES.parameters())
def test_closes_only_the_channel(scene: Scene, case: ChannelMistake) -> None:
    case.check(scene)
