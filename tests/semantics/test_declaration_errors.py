"""Declarations, bindings and arguments the broker refuses, with what it says about them."""

from typing import Any

import pytest

from tests.semantics.mistakes import ChannelMistake, ChannelMistakes, declare, declare_exchange
from tests.support.frames import Basic, Exchange, Queue
from tests.support.scene import Scene

MISTAKES = ChannelMistakes()
mistake = MISTAKES.add

# -- declarations that do not agree

LOCKED = "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{q}' in vhost '/'"
DIFFERENT_QUEUE = (
    "PRECONDITION_FAILED - inequivalent arg '{arg}' for queue '{{q}}' in vhost '/': {how}"
)
DIFFERENT_EXCHANGE = (
    "PRECONDITION_FAILED - inequivalent arg '{arg}' for exchange '{{x}}' in vhost '/': {how}"
)
BECOMES_TRUE = "received 'true' but current is 'false'"
BECOMES_FALSE = "received 'false' but current is 'true'"


def refuses_other_queue(
    words: str, first: dict[str, Any], second: dict[str, Any], arg: str, how: str
) -> None:
    text = DIFFERENT_QUEUE.format(arg=arg, how=how)

    @mistake(f"queue declared again {words}", 406, text, Queue.Declare)
    def _(scene, ch, q, x):
        ch.declare_queue(q, **first)
        ch.send(declare(q, **second))


def refuses_other_exchange(words: str, second: dict[str, Any], arg: str, how: str) -> None:
    text = DIFFERENT_EXCHANGE.format(arg=arg, how=how)

    @mistake(f"exchange declared again {words}", 406, text, Exchange.Declare)
    def _(scene, ch, q, x):
        ch.declare_exchange(x)
        ch.send(declare_exchange(x, **second))


refuses_other_queue("as not durable", {"durable": True}, {}, "durable", BECOMES_FALSE)
refuses_other_queue("as durable", {}, {"durable": True}, "durable", BECOMES_TRUE)
refuses_other_queue("as auto-delete", {}, {"auto_delete": True}, "auto_delete", BECOMES_TRUE)
refuses_other_queue(
    "with another x-message-ttl",
    {"arguments": {"x-message-ttl": 1000}},
    {"arguments": {"x-message-ttl": 2000}},
    "x-message-ttl",
    "received '2000' but current is '1000'",
)
refuses_other_queue(
    "without its x-max-length",
    {"arguments": {"x-max-length": 5}},
    {},
    "x-max-length",
    "received none but current is the value '5'",
)
refuses_other_queue(
    "with an x-dead-letter-exchange it had not",
    {},
    {"arguments": {"x-dead-letter-exchange": "amq.fanout"}},
    "x-dead-letter-exchange",
    "received the value 'amq.fanout' of type 'longstr' but current is none",
)
refuses_other_queue(
    "with another x-max-priority",
    {"arguments": {"x-max-priority": 5}},
    {"arguments": {"x-max-priority": 9}},
    "x-max-priority",
    "received '9' but current is '5'",
)
refuses_other_exchange(
    "with another type", {"kind": "fanout"}, "type", "received 'fanout' but current is 'direct'"
)
refuses_other_exchange("as durable", {"durable": True}, "durable", BECOMES_TRUE)
refuses_other_exchange("as auto-delete", {"auto_delete": True}, "auto_delete", BECOMES_TRUE)
refuses_other_exchange("as internal", {"internal": True}, "internal", BECOMES_TRUE)
refuses_other_exchange(
    "with an alternate-exchange it had not",
    {"arguments": {"alternate-exchange": "amq.fanout"}},
    "alternate-exchange",
    "received the value 'amq.fanout' of type 'longstr' but current is none",
)


@mistake(
    "amq.direct declared again with another type",
    406,
    "inequivalent arg 'type' for exchange 'amq.direct' in vhost '/'",
    Exchange.Declare,
)
def _(scene, ch, q, x):
    ch.send(declare_exchange("amq.direct", "topic", durable=True))


@mistake("own exclusive queue declared again as shared", 405, LOCKED, Queue.Declare)
def _(scene, ch, q, x):
    ch.declare_queue(q, exclusive=True)
    ch.send(declare(q))


@mistake("shared queue declared again as exclusive", 405, LOCKED, Queue.Declare)
def _(scene, ch, q, x):
    ch.declare_queue(q)
    ch.send(declare(q, exclusive=True))


# -- values of arguments

BAD_ARGUMENTS: list[tuple[str, Any]] = [
    ("x-message-ttl", -1),
    ("x-message-ttl", "soon"),
    ("x-expires", 0),
    ("x-expires", "never"),
    ("x-max-length", -1),
    ("x-max-length-bytes", -1),
    ("x-max-length-bytes", True),
    ("x-dead-letter-exchange", 7),
    ("x-dead-letter-routing-key", 7),
    ("x-overflow", "explode"),
    ("x-max-priority", -1),
    ("x-max-priority", 256),
    ("x-single-active-consumer", "yes"),
    ("x-queue-mode", "sleepy"),
    ("x-queue-type", "hexagonal"),
]


def refuses_argument(name: str, value: Any) -> None:
    @mistake(f"queue declared with {name}={value!r}", 406, name, Queue.Declare)
    def _(scene, ch, q, x):
        ch.send(declare(q, durable=True, arguments={name: value}))


for _name, _value in BAD_ARGUMENTS:
    refuses_argument(_name, _value)


@mistake(
    "dead-letter routing key without a dead-letter exchange", 406, "x-dead-letter-routing-key",
    Queue.Declare,
)  # fmt: skip
def _(scene, ch, q, x):
    ch.send(declare(q, arguments={"x-dead-letter-routing-key": "k"}))


@mistake("quorum argument on a classic queue", 406, "x-quorum-initial-group-size", Queue.Declare)
def _(scene, ch, q, x):
    arguments = {"x-queue-type": "classic", "x-quorum-initial-group-size": 3}
    ch.send(declare(q, durable=True, arguments=arguments))


@mistake("classic argument on a quorum queue", 406, "x-queue-mode", Queue.Declare)
def _(scene, ch, q, x):
    arguments = {"x-queue-type": "quorum", "x-queue-mode": "lazy"}
    ch.send(declare(q, durable=True, arguments=arguments))


@mistake("stream argument on a classic queue", 406, "x-max-age", Queue.Declare)
def _(scene, ch, q, x):
    arguments = {"x-queue-type": "classic", "x-max-age": "7D"}
    ch.send(declare(q, durable=True, arguments=arguments))


def refuses_replicated(kind: str, words: str, **options: Any) -> None:
    @mistake(f"{kind} queue declared {words}", 406, f"'{words}' for queue '{{q}}'", Queue.Declare)
    def _(scene, ch, q, x):
        ch.send(declare(q, arguments={"x-queue-type": kind}, **options))


for _kind in ("quorum", "stream"):
    refuses_replicated(_kind, "non-durable", durable=False)
    refuses_replicated(_kind, "exclusive-owner", durable=True, exclusive=True)
    refuses_replicated(_kind, "auto-delete", durable=True, auto_delete=True)


@mistake("quorum queue declared without a name", 406, "server-named", Queue.Declare)
def _(scene, ch, q, x):
    ch.send(declare("", durable=True, arguments={"x-queue-type": "quorum"}))


@mistake("stream queue declared without a name", 406, "server-named", Queue.Declare)
def _(scene, ch, q, x):
    ch.send(declare("", durable=True, arguments={"x-queue-type": "stream"}))


@mistake("consumer priority that is no integer", 406, "x-priority", Basic.Consume)
def _(scene, ch, q, x):
    ch.declare_queue(q, exclusive=True)
    ch.send(Basic.Consume(queue=q, arguments={"x-priority": "high"}))


@mistake("headers binding with an unknown x-match", 406, "x-match", Queue.Bind)
def _(scene, ch, q, x):
    ch.declare_queue(q, exclusive=True)
    ch.send(Queue.Bind(queue=q, exchange="amq.headers", arguments={"x-match": "some"}))


@mistake("headers binding whose x-match is no string", 406, "x-match", Queue.Bind)
def _(scene, ch, q, x):
    ch.declare_queue(q, exclusive=True)
    ch.send(Queue.Bind(queue=q, exchange="amq.headers", arguments={"x-match": 4}))


@mistake("alternate-exchange that is no string", 406, "alternate-exchange", Exchange.Declare)
def _(scene, ch, q, x):
    ch.send(declare_exchange(x, arguments={"alternate-exchange": 7}))


@mistake("consistent-hash binding whose weight is no number", 406, "", Queue.Bind)
def _(scene, ch, q, x):
    ch.declare_queue(q, exclusive=True)
    ch.declare_exchange(x, "x-consistent-hash")
    ch.send(Queue.Bind(queue=q, exchange=x, routing_key="heavy"))


@pytest.mark.parametrize("case", MISTAKES.parameters())
def test_closes_only_the_channel(scene: Scene, case: ChannelMistake) -> None:
    case.check(scene)
