"""What a restart keeps and what it does not, whether the broker was killed, stopped, or both.

Each scene is a generator: what it does before its `yield` happens in one life of the broker, the
rest in another. All scenes of an ending share these lives.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tests.durability.life import Life, drain
from tests.support.frames import Basic, Channel, Exchange, Queue, Tx
from tests.support.waiting import eventually
from tests.support.wire import ChannelClosedError, WireChannel

ENDINGS = {
    "killed": ("kill",),
    "stopped": ("stop",),
    "killed, stopped and killed": ("kill", "stop", "kill"),
}
Scene = Callable[[Life], Iterator[None]]
SCENES: dict[str, Scene] = {}


def scene(function: Scene) -> Scene:
    SCENES[function.__name__] = function
    return function


@pytest.fixture(scope="module", params=ENDINGS)
def halfway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Iterator[None] | Exception]]:
    """Every scene, as far as its `yield`, with the broker's death and return behind it."""
    life = Life(tmp_path_factory.mktemp("life"))
    life.ending = ENDINGS[request.param]
    scenes: dict[str, Iterator[None] | Exception] = {}
    for name, function in SCENES.items():
        scenes[name] = running = function(life)
        try:
            next(running)
        except Exception as error:
            scenes[name] = error
    life.restart(*life.ending)
    yield scenes
    life.end()


def requeue_once(channel: WireChannel, queue: str) -> None:
    channel.nack(channel.get(queue).delivery_tag)


def is_routed(channel: WireChannel, exchange: str, key: str, **properties: object) -> bool:
    """Whether a message goes anywhere; what comes back is taken off the wire."""
    channel.publish(exchange, key, b"", mandatory=True, **properties)
    channel.rpc(Basic.Qos())
    returned = [item for item in channel.pending() if not isinstance(item, Channel.Close)]
    channel.conn._inbox[channel.number].clear()
    return not returned


def exists(life: Life, *, queue: str | None = None, exchange: str | None = None) -> bool:
    channel = life.channel()
    try:
        if queue is not None:
            channel.declare_queue(queue, passive=True)
        else:
            channel.declare_exchange(exchange, passive=True)
    except ChannelClosedError as error:
        return error.method.reply_code != 404
    return True


# Exchanges and bindings

EXCHANGE_ARGUMENTS = {
    "direct": {"alternate-exchange": "amq.fanout"},
    "fanout": {},
    "topic": {"x-anything": {"nested": [1, "two", None]}},
    "headers": {},
    "x-consistent-hash": {"hash-header": "hash-on"},
}


@scene
def exchanges_of_every_type_keep_their_properties(life):
    channel = life.channel()
    for kind, arguments in EXCHANGE_ARGUMENTS.items():
        options = {"durable": True, "arguments": arguments}
        channel.declare_exchange(f"kept-{kind}", kind, **options)
        channel.declare_exchange(f"kept-internal-{kind}", kind, internal=True, **options)
    yield
    channel = life.channel()
    for kind, arguments in EXCHANGE_ARGUMENTS.items():
        options = {"durable": True, "arguments": arguments}
        channel.declare_exchange(f"kept-{kind}", kind, **options)
        channel.declare_exchange(f"kept-internal-{kind}", kind, internal=True, **options)
    with pytest.raises(ChannelClosedError, match="inequivalent arg 'type'"):
        channel.declare_exchange("kept-direct", "topic", durable=True)
    with pytest.raises(ChannelClosedError, match="inequivalent arg 'durable'"):
        life.channel().declare_exchange("kept-fanout", "fanout")
    with pytest.raises(ChannelClosedError, match="inequivalent arg 'alternate-exchange'"):
        life.channel().declare_exchange("kept-direct", "direct", durable=True)
    refused = life.channel()
    refused.publish("kept-internal-fanout", "", b"")
    refused.expect_close(403)


BINDINGS = [
    ("direct", "key", {}, "key", {}),
    ("fanout", "", {}, "whatever", {}),
    ("topic", "a.*.#", {}, "a.b.c.d", {}),
    ("headers", "", {"x-match": "any", "size": 3, "colour": "red"}, "", {"colour": "red"}),
    ("x-consistent-hash", "3", {}, "anything", {}),
]


@scene
def bindings_of_every_type_route_as_before(life):
    channel = life.channel()
    for kind, key, arguments, _, _ in BINDINGS:
        channel.declare_exchange(f"routes-{kind}", kind, durable=True)
        channel.declare_queue(f"routed-{kind}", durable=True)
        channel.bind(f"routed-{kind}", f"routes-{kind}", key, arguments)
    yield
    channel = life.confirming()
    for kind, _, _, key, headers in BINDINGS:
        channel.publish(f"routes-{kind}", key, b"found", headers=headers)
        assert drain(channel.channel, f"routed-{kind}") == [b"found"], kind
    for kind in ("direct", "topic", "headers"):
        assert not is_routed(life.channel(), f"routes-{kind}", "no.such.key"), kind


@scene
def an_exchange_bound_to_an_exchange_stays_bound(life):
    channel = life.channel()
    for name in ("first", "second", "third"):
        channel.declare_exchange(f"chain-{name}", "topic", durable=True)
    channel.declare_queue("chain-end", durable=True)
    for source, target in (("first", "second"), ("second", "third")):
        channel.rpc(
            Exchange.Bind(
                source=f"chain-{source}", destination=f"chain-{target}", routing_key="a.#"
            )
        )
    channel.bind("chain-end", "chain-third", "#.z")
    channel.bind("chain-end", "amq.topic", "chain.*")
    yield
    channel = life.confirming()
    channel.publish("chain-first", "a.b.z", b"through")
    channel.publish("chain-first", "a.b", b"stopped by the last")
    channel.publish("chain-first", "b.z", b"stopped by the first")
    channel.publish("amq.topic", "chain.x", b"past them")
    assert drain(channel.channel, "chain-end") == [b"through", b"past them"]


@scene
def an_alternate_exchange_still_takes_what_nobody_wanted(life):
    channel = life.channel()
    channel.declare_exchange("spill", "fanout", durable=True)
    arguments = {"alternate-exchange": "spill"}
    channel.declare_exchange("picky", "direct", durable=True, arguments=arguments)
    channel.declare_queue("spilled", durable=True)
    channel.bind("spilled", "spill")
    yield
    channel = life.confirming()
    channel.publish("picky", "unknown", b"x")
    assert drain(channel.channel, "spilled") == [b"x"]


ODD_ARGUMENTS = {
    "x-match": "all-with-x",
    "bytes": bytearray(b"\x00\xff"),
    "text": "ünïcode \u2028",
    "int8": -7,
    "int64": -(2**62),
    "big": 2**62,
    "float": 0.5,
    "decimal": Decimal("12.34"),
    "time": datetime(2020, 2, 29, 12, tzinfo=UTC),
    "nothing": None,
    "flag": True,
    "list": [1, "a", None, {"deep": [Decimal("0.5"), bytearray(b"x")]}],
    "table": {"a": {"b": {"c": 1}}},
}


@scene
def binding_arguments_of_every_kind_of_value_are_still_the_same(life):
    channel = life.channel()
    channel.declare_exchange("odd", "headers", durable=True)
    channel.declare_queue("odd-queue", durable=True)
    channel.bind("odd-queue", "odd", "key", ODD_ARGUMENTS)
    channel.bind("odd-queue", "odd", "other", {"x-match": "all", "never": "matches"})
    yield
    channel = life.channel()
    matching = {name: value for name, value in ODD_ARGUMENTS.items() if name != "x-match"}
    assert is_routed(channel, "odd", "", headers=matching)
    channel.rpc(
        Queue.Unbind(queue="odd-queue", exchange="odd", routing_key="key", arguments=ODD_ARGUMENTS)
    )
    assert not is_routed(channel, "odd", "", headers=matching)


@scene
def what_was_unbound_or_deleted_stays_so(life):
    channel = life.channel()
    for name in ("a", "b", "c"):
        channel.declare_exchange(f"was-{name}", "fanout", durable=True)
        channel.declare_queue(f"was-{name}", durable=True)
        channel.bind(f"was-{name}", f"was-{name}")
    channel.bind("was-a", "was-b")
    channel.rpc(Queue.Unbind(queue="was-a", exchange="was-a", arguments={}))
    channel.rpc(Exchange.Delete(exchange="was-b"))
    channel.rpc(Queue.Delete(queue="was-c"))
    yield
    channel = life.channel()
    assert not is_routed(channel, "was-a", "")
    assert not exists(life, exchange="was-b")
    assert not exists(life, queue="was-c")
    assert exists(life, exchange="was-c")
    assert not is_routed(channel, "was-c", "")
    channel.declare_exchange("was-b", "direct", durable=True)
    channel.declare_queue("was-c", durable=True)
    assert not is_routed(channel, "was-b", "")
    assert not is_routed(channel, "was-c", "")


@scene
def an_exchange_made_anew_has_only_its_new_bindings(life):
    channel = life.channel()
    channel.declare_queue("anew-q", durable=True)
    channel.declare_exchange("anew", "direct", durable=True)
    channel.bind("anew-q", "anew", "old")
    channel.rpc(Exchange.Delete(exchange="anew"))
    channel.declare_exchange("anew", "topic", durable=True)
    channel.bind("anew-q", "anew", "new.*")
    yield
    channel = life.channel()
    channel.declare_exchange("anew", "topic", durable=True)
    assert is_routed(channel, "anew", "new.x")
    assert not is_routed(channel, "anew", "old")


@scene
def what_was_never_durable_is_gone(life):
    channel = life.channel()
    channel.declare_exchange("brief-x", "fanout")
    channel.declare_queue("brief-q")
    channel.declare_queue("brief-auto", auto_delete=True)
    channel.declare_queue("brief-mine", durable=True, exclusive=True)
    channel.declare_queue("lasting-q", durable=True)
    channel.declare_exchange("lasting-x", "fanout", durable=True)
    channel.bind("lasting-q", "brief-x")
    for name in ("brief-q", "brief-auto", "brief-mine"):
        channel.bind(name, "lasting-x")
    yield
    for name in ("brief-q", "brief-auto", "brief-mine"):
        assert not exists(life, queue=name), name
    assert not exists(life, exchange="brief-x")
    channel = life.channel()
    assert not is_routed(channel, "lasting-x", "")
    channel.declare_exchange("brief-x", "fanout")
    assert not is_routed(channel, "brief-x", "")


@scene
def an_auto_delete_exchange_goes_with_its_last_binding(life):
    channel = life.channel()
    channel.declare_queue("auto-q", durable=True)
    for name in ("auto-used", "auto-left"):
        channel.declare_exchange(name, "fanout", durable=True, auto_delete=True)
        channel.bind("auto-q", name)
    channel.rpc(Queue.Unbind(queue="auto-q", exchange="auto-left", arguments={}))
    yield
    assert not exists(life, exchange="auto-left")
    assert exists(life, exchange="auto-used")
    life.channel().rpc(Queue.Unbind(queue="auto-q", exchange="auto-used", arguments={}))
    assert not exists(life, exchange="auto-used")


# Queues

QUEUE_ARGUMENTS = [
    {},
    {"x-queue-type": "classic"},
    {"x-queue-type": "quorum"},
    {"x-message-ttl": 3_600_000},
    {"x-expires": 3_600_000},
    {"x-max-length": 10},
    {"x-max-length": 10, "x-overflow": "reject-publish"},
    {"x-max-length-bytes": 1_000_000},
    {"x-max-priority": 5},
    {"x-dead-letter-exchange": "amq.fanout", "x-dead-letter-routing-key": "dead"},
    {"x-single-active-consumer": True},
    {"x-queue-type": "quorum", "x-delivery-limit": 4},
    {"x-queue-type": "classic", "x-queue-mode": "lazy", "x-anything": [1, {"b": bytearray(b"c")}]},
]
OTHER_VALUES = {
    "x-queue-type": "neither",
    "x-message-ttl": 1000,
    "x-expires": 1000,
    "x-max-length": 99,
    "x-overflow": "drop-head",
    "x-max-length-bytes": 99,
    "x-max-priority": 9,
    "x-dead-letter-exchange": "amq.direct",
    "x-dead-letter-routing-key": "other",
    "x-single-active-consumer": False,
    "x-delivery-limit": 9,
    "x-queue-mode": "default",
}


@scene
def queues_keep_their_arguments(life):
    publisher = life.confirming()
    for number, arguments in enumerate(QUEUE_ARGUMENTS):
        publisher.channel.declare_queue(f"args-{number}", durable=True, arguments=arguments)
        publisher.publish("", f"args-{number}", b"%d" % number)
    yield
    channel = life.channel()
    for number, arguments in enumerate(QUEUE_ARGUMENTS):
        again = channel.declare_queue(f"args-{number}", durable=True, arguments=arguments)
        assert again.message_count == 1
        for name in arguments.keys() & OTHER_VALUES.keys():
            changed = {**arguments, name: OTHER_VALUES[name]}
            with pytest.raises(ChannelClosedError, match="406"):
                life.channel().declare_queue(f"args-{number}", durable=True, arguments=changed)
        assert drain(channel, f"args-{number}") == [b"%d" % number]


@scene
def a_lasting_queue_is_still_a_quorum_queue(life):
    channel = life.channel()
    channel.declare_queue("plain-durable", durable=True)
    yield
    quorum, classic = ({"x-queue-type": kind} for kind in ("quorum", "classic"))
    life.channel().declare_queue("plain-durable", durable=True, arguments=quorum)
    with pytest.raises(ChannelClosedError, match="inequivalent arg 'x-queue-type'"):
        life.channel().declare_queue("plain-durable", durable=True, arguments=classic)


@scene
def names_of_all_lengths_and_letters_survive(life):
    channel = life.confirming()
    for name in ("q" * 255, "größe ✓ " * 10, "a b\tc", "%2f/../x"):
        channel.channel.declare_queue(name, durable=True)
        channel.channel.declare_exchange(name, "fanout", durable=True)
        channel.channel.bind(name, name, name)
        channel.publish(name, name, name.encode())
    yield
    channel = life.confirming()
    for name in ("q" * 255, "größe ✓ " * 10, "a b\tc", "%2f/../x"):
        channel.publish(name, "", b"again")
        assert drain(channel.channel, name) == [name.encode(), b"again"]


@scene
def a_length_limit_holds_on(life):
    publisher = life.confirming()
    for name, overflow in (("short-drop", "drop-head"), ("short-refuse", "reject-publish")):
        arguments = {"x-max-length": 3, "x-overflow": overflow}
        publisher.channel.declare_queue(name, durable=True, arguments=arguments)
        for body in (b"1", b"2", b"3"):
            publisher.publish("", name, body)
    publisher.publish("", "short-drop", b"4")
    yield
    publisher = life.confirming()
    assert publisher.channel.count("short-drop") == 3
    publisher.publish("", "short-drop", b"5")
    assert drain(publisher.channel, "short-drop") == [b"3", b"4", b"5"]
    publisher.send("", "short-refuse", b"4")
    publisher.channel.expect(Basic.Nack)
    assert drain(publisher.channel, "short-refuse") == [b"1", b"2", b"3"]


@scene
def a_limit_in_bytes_that_is_just_met_drops_nothing(life):
    publisher = life.confirming()
    arguments = {"x-max-length-bytes": 2500 * 4}
    publisher.channel.declare_queue("bytes-limit", durable=True, arguments=arguments)
    publisher.publish_all("bytes-limit", [b"%04d" % n for n in range(2500)])
    yield
    assert drain(life.channel(), "bytes-limit") == [b"%04d" % n for n in range(2500)]


@scene
def priorities_decide_the_order_again(life):
    publisher = life.confirming()
    arguments = {"x-max-priority": 9}
    publisher.channel.declare_queue("prio", durable=True, arguments=arguments)
    for number, priority in enumerate((0, 5, 9, 5, 0, 9, 200)):
        publisher.publish("", "prio", b"%d" % number, priority=priority)
    yield
    assert drain(life.channel(), "prio") == [b"2", b"5", b"6", b"1", b"3", b"0", b"4"]


# Messages

EVERY_PROPERTY = {
    "content_type": "application/x-thing",
    "content_encoding": "gzip",
    "headers": {**{k: v for k, v in ODD_ARGUMENTS.items() if k != "x-match"}, "": "empty"},
    "delivery_mode": 2,
    "priority": 7,
    "correlation_id": "corr",
    "reply_to": "somewhere",
    "expiration": "3600000",
    "message_id": "id-1",
    "timestamp": datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
    "message_type": "kind",
    "user_id": "guest",
    "app_id": "app",
}


@scene
def a_message_keeps_every_property_and_byte(life):
    publisher = life.confirming()
    body = bytes(range(256)) * 3
    publisher.channel.declare_queue("whole", durable=True)
    publisher.publish("amq.direct", "nowhere", body)
    publisher.channel.bind("whole", "amq.direct", "the key")
    publisher.publish("amq.direct", "the key", body, **EVERY_PROPERTY)
    publisher.publish("amq.direct", "the key", b"", delivery_mode=2)
    yield
    channel = life.channel()
    channel.consume("whole")
    full, bare = channel.deliveries(2)
    assert (full.exchange, full.routing_key, full.body) == ("amq.direct", "the key", body)
    for name, value in EVERY_PROPERTY.items():
        assert getattr(full.properties, name) == value, name
    assert (bare.body, bare.properties.headers, bare.properties.delivery_mode) == (b"", None, 2)
    channel.assert_quiet("whole")


@scene
def messages_come_in_the_order_they_were_published(life):
    publisher = life.confirming()
    for kind in ("classic", "quorum"):
        arguments = {"x-queue-type": kind}
        publisher.channel.declare_queue(f"order-{kind}", durable=True, arguments=arguments)
        publisher.publish_all(f"order-{kind}", [b"%d" % n for n in range(1500)])
    for number in range(1500, 1520):
        publisher.publish("", "order-quorum", b"%d" % number)
    yield
    channel = life.channel()
    assert drain(channel, "order-classic") == [b"%d" % n for n in range(1500)]
    assert drain(channel, "order-quorum") == [b"%d" % n for n in range(1520)]


@scene
def large_messages_survive(life):
    publisher = life.confirming()
    publisher.channel.declare_queue("large", durable=True)
    publisher.publish_all("large", [bytes([n]) * 5_000_000 for n in range(4)] + [b"small"])
    yield
    channel = life.channel()
    for number in range(4):
        assert channel.get("large", no_ack=True).body == bytes([number]) * 5_000_000
    assert drain(channel, "large") == [b"small"]


@scene
def what_was_acked_does_not_come_back(life):
    publisher = life.confirming()
    channel = life.channel()
    for kind in ("classic", "quorum"):
        queue = f"acked-{kind}"
        channel.declare_queue(queue, durable=True, arguments={"x-queue-type": kind})
        publisher.publish_all(queue, [b"%d" % n for n in range(10)])
        got = [channel.get(queue) for _ in range(6)]
        channel.ack(got[1].delivery_tag)
        channel.ack(got[4].delivery_tag)
        channel.reject(got[5].delivery_tag, requeue=False)
        channel.get(queue, no_ack=True)
        channel.consume(queue, f"taker-{kind}", no_ack=True)
        assert [d.body for d in channel.deliveries(3)] == [b"7", b"8", b"9"]
        channel.cancel(f"taker-{kind}")
        channel.count(queue)
    publisher.barrier()
    yield
    channel = life.channel()
    for kind in ("classic", "quorum"):
        assert drain(channel, f"acked-{kind}") == [b"0", b"2", b"3"]


@scene
def a_purged_queue_stays_empty(life):
    publisher = life.confirming()
    publisher.channel.declare_queue("purged", durable=True)
    for number in range(50):
        publisher.publish("", "purged", b"%d" % number)
    held = publisher.channel.get("purged")
    assert publisher.channel.rpc(Queue.Purge(queue="purged")).message_count == 49
    publisher.publish("", "purged", b"after")
    assert held.body == b"0"
    yield
    assert drain(life.channel(), "purged") == [b"0", b"after"]


@scene
def a_queue_made_anew_under_an_old_name_is_empty(life):
    publisher = life.confirming()
    for name in ("reborn", "reborn-empty"):
        publisher.channel.declare_queue(name, durable=True)
        publisher.publish_all(name, [b"old"] * 10)
        publisher.channel.rpc(Queue.Delete(queue=name))
        publisher.channel.declare_queue(name, durable=True, arguments={"x-queue-type": "classic"})
    publisher.publish("", "reborn", b"new")
    yield
    channel = life.channel()
    assert drain(channel, "reborn") == [b"new"]
    assert drain(channel, "reborn-empty") == []


@scene
def a_transaction_survives_if_it_was_committed(life):
    publisher = life.confirming()
    publisher.channel.declare_queue("tx-in", durable=True)
    publisher.channel.declare_queue("tx-out", durable=True)
    publisher.publish_all("tx-in", [b"1", b"2", b"3"])
    channel = life.channel()
    channel.rpc(Tx.Select())
    first, second = channel.get("tx-in"), channel.get("tx-in")
    channel.ack(first.delivery_tag)
    channel.publish("", "tx-out", b"one", delivery_mode=2)
    channel.publish("", "tx-out", b"two", delivery_mode=2)
    channel.rpc(Tx.Commit())
    channel.ack(second.delivery_tag)
    channel.publish("", "tx-out", b"three", delivery_mode=2)
    channel.count("tx-out")
    yield
    channel = life.channel()
    assert drain(channel, "tx-in") == [b"2", b"3"]
    assert drain(channel, "tx-out") == [b"one", b"two"]


@scene
def delivery_counts_go_on_where_they_were(life):
    publisher = life.confirming()
    channel = life.channel()
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "counted-dead"}
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 3, **to_dead}
    channel.declare_queue("counted", durable=True, arguments=arguments)
    channel.declare_queue("counted-dead", durable=True)
    publisher.publish_all("counted", [b"twice", b"never"])
    requeue_once(channel, "counted")
    requeue_once(channel, "counted")
    publisher.barrier()
    yield
    channel = life.channel()
    first, second = channel.get("counted"), channel.get("counted")
    assert (first.body, first.headers["x-delivery-count"]) == (b"twice", 2)
    assert (second.body, second.headers.get("x-delivery-count", 0)) == (b"never", 0)
    channel.ack(second.delivery_tag)
    channel.nack(first.delivery_tag)
    requeue_once(channel, "counted")
    eventually(lambda: channel.count("counted-dead"), "the message to be given up")
    [death] = channel.get("counted-dead").headers["x-death"]
    assert death["reason"] == "delivery_limit"


@scene
def redelivered_is_said_of_what_may_have_been_delivered(life):
    publisher = life.confirming()
    channel = life.channel()
    for kind in ("classic", "quorum"):
        queue = f"flags-{kind}"
        channel.declare_queue(queue, durable=True, arguments={"x-queue-type": kind})
        publisher.publish_all(queue, [b"held", b"returned", b"fresh", b"fresh too"])
        channel.get(queue)
        requeue_once(channel, queue)
    publisher.barrier()
    yield
    channel = life.channel()
    for kind in ("classic", "quorum"):
        flags = {}
        while (content := channel.get(f"flags-{kind}")) is not None:
            flags[content.body] = content.redelivered
        assert list(flags) == [b"held", b"returned", b"fresh", b"fresh too"]
        fresh = "kill" in life.ending  # nobody knows what was delivered before a crash
        assert list(flags.values()) == [True, True, fresh, fresh], kind


@scene
def a_dead_letter_and_its_history_survive(life):
    publisher = life.confirming()
    channel = life.channel()
    around = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "morgue"}
    back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "ward"}
    channel.declare_queue("ward", durable=True, arguments=around)
    channel.declare_queue("morgue", durable=True, arguments=back)
    publisher.publish("", "ward", b"x")
    channel.reject(channel.get("ward").delivery_tag, requeue=False)
    eventually(lambda: channel.count("morgue"), "the dead letter")
    publisher.barrier()
    yield
    channel = life.channel()
    assert channel.count("ward") == 0
    letter = channel.get("morgue")
    assert [(d["queue"], d["count"]) for d in letter.headers["x-death"]] == [("ward", 1)]
    channel.reject(letter.delivery_tag, requeue=False)
    eventually(lambda: channel.count("ward"), "the letter to come round")
    deaths = channel.get("ward", no_ack=True).headers["x-death"]
    assert [(d["queue"], d["count"]) for d in deaths] == [("morgue", 1), ("ward", 1)]


# Time goes on while the broker is down: these begin last, so that it dies soon after


@scene
def messages_expire_in_their_time_and_are_dead_lettered(life):
    publisher = life.confirming()
    declare = publisher.channel.declare_queue
    declare("expired", durable=True)
    to_expired = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "expired"}
    declare("expire-queue", durable=True, arguments={"x-message-ttl": 2000, **to_expired})
    declare("expire-message", durable=True, arguments=to_expired)
    publisher.publish("", "expire-queue", b"by the queue")
    publisher.publish("", "expire-message", b"by itself", expiration="2000")
    publisher.publish("", "expire-message", b"stays", expiration="3600000")
    yield
    channel = life.channel()
    letters = []

    def both_expired():
        while (letter := channel.get("expired", no_ack=True)) is not None:
            letters.append(letter)
        return {letter.body for letter in letters} == {b"by the queue", b"by itself"}

    eventually(both_expired, "both messages to expire", within_s=60)
    # A kill between the dead letter's arrival and the end of the message that died: it dies again
    assert len(letters) == 2 or "kill" in life.ending
    for letter in letters:
        [death] = letter.headers["x-death"]
        assert (death["reason"], death["count"]) == ("expired", 1)
    assert drain(channel, "expire-message") == [b"stays"]


@scene
def an_unused_queue_still_expires(life):
    life.channel().declare_queue("unused", durable=True, arguments={"x-expires": 1500})
    yield
    eventually(lambda: "unused" not in queues_of(life, "unused"), "the queue to expire")


def queues_of(life, name):
    """Asking for a queue by declaring it passively counts as use; a bind to nowhere does not."""
    channel = life.channel()
    channel.send(Queue.Bind(queue=name, exchange="no such exchange", routing_key=""))
    close = channel.expect(Channel.Close)
    channel.conn.abort()
    return [] if "no queue" in close.reply_text else [name]


@pytest.mark.parametrize("name", SCENES)
def test_after_a_restart(name, halfway):
    running = halfway[name]
    if isinstance(running, Exception):
        raise running
    with pytest.raises(StopIteration):
        next(running)
