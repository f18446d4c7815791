"""A restart in the middle of every feature: nothing lost, nothing early, order kept.

As in test_restarts.py each scene is a generator: what it does before its `yield` happens in one
life of the broker, the rest in the next. All scenes of an ending share these lives.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.durability.life import ConfirmingChannel, Life, drain
from tests.support.frames import Basic, Content, Queue
from tests.support.waiting import eventually
from tests.support.wire import WireChannel

KINDS = ("classic", "quorum")
HOUR_MS = 3_600_000
LATER_MS = 8000  # as a rule the broker is back by then; nothing depends on it
PATIENCE_S = 30.0
# The clocks of two processes may be set a little in between; broker times are cut to milliseconds.
CLOCK_S = 0.05


class Stage:
    """A life, and queues of one kind in it."""

    def __init__(self, life: Life, kind: str) -> None:
        self.life = life
        self.kind = kind

    def declare(self, name: str, **arguments: Any) -> str:
        named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        name = f"{self.kind}-{name}"
        channel = self.life.channel()
        channel.declare_queue(name, durable=True, arguments={"x-queue-type": self.kind} | named)
        channel.conn.close()
        return name

    def channel(self) -> WireChannel:
        return self.life.channel()

    def confirming(self) -> ConfirmingChannel:
        return self.life.confirming()

    def publish(self, queue: str, *names: str, **properties: Any) -> None:
        """Safe when it returns."""
        publisher = self.confirming()
        for name in names:
            publisher.send("", queue, name.encode(), **properties)
        publisher.wait()


Scene = Callable[[Stage], Iterator[None]]
SCENES: dict[str, Scene] = {}


def scene(function: Scene) -> Scene:
    SCENES[function.__name__] = function
    return function


@pytest.fixture(scope="module", params=["kill", "stop"])
def halfway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Iterator[None] | Exception]]:
    """Every scene, as far as its `yield`, with the broker's death and return behind it."""
    life = Life(tmp_path_factory.mktemp("life"))
    scenes: dict[tuple[str, str], Iterator[None] | Exception] = {}
    for kind in KINDS:
        for name, function in SCENES.items():
            scenes[kind, name] = running = function(Stage(life, kind))
            try:
                next(running)
            except Exception as error:
                scenes[kind, name] = error
    life.confirming().barrier()
    life.restart(request.param)
    yield scenes
    life.end()


def get(channel: WireChannel, queue: str) -> Content:
    """The next message, whenever it comes; unacked."""
    found: list[Content] = []

    def came() -> bool:
        content = channel.get(queue)
        if content is not None:
            found.append(content)
        return bool(found)

    eventually(came, f"a message in {queue}", within_s=PATIENCE_S)
    return found[0]


def take(channel: WireChannel, queue: str) -> str:
    """The same, acked."""
    content = get(channel, queue)
    channel.ack(content.delivery_tag)
    return content.body.decode()


def delivery(channel: WireChannel) -> Content:
    return channel.delivery(timeout=PATIENCE_S)


def assert_not_before(moment_s: float) -> None:
    assert time.time() >= moment_s - CLOCK_S


# -- the rate first: it is the longer the more of it passes before anybody looks

RATE = 150
HELD = 900
UNKNOWN = RATE // 10  # the last so many may have been delivered without a note in the log


@scene
def what_consumers_held_comes_back_at_a_bounded_rate(stage):
    queue = stage.declare("paced", redelivery_rate=RATE, delivery_limit=-1)
    names = [str(number) for number in range(HELD)]
    for start in range(0, HELD, 50):
        stage.publish(queue, *names[start : start + 50])
    channel = stage.channel()
    channel.consume(queue)
    for _ in range(HELD):
        delivery(channel)  # none of which is acked
    stage.publish(queue, "fresh")
    ended_s = time.time()
    yield
    channel = stage.channel()
    channel.consume(queue)
    came = []
    for place in range(1, HELD + 2):
        content = delivery(channel)
        assert content.redelivered
        came.append(content.body.decode())
        assert_not_before(ended_s + (place - RATE - UNKNOWN - 1) / RATE)
    assert [name for name in came if name in names[:-UNKNOWN]] == names[:-UNKNOWN]
    assert sorted(came) == sorted([*names, "fresh"])


# -- delays


@scene
def delayed_messages_come_at_their_time_and_not_before(stage):
    queue = stage.declare("delays")
    due_s = {}
    for delay_ms in (1, 800, LATER_MS, LATER_MS + 500, HOUR_MS):
        due_s[str(delay_ms)] = time.time() + delay_ms / 1000
        stage.publish(queue, str(delay_ms), headers={"x-delay": delay_ms})
    yield
    channel = stage.channel()
    for _ in range(4):
        name = take(channel, queue)
        assert_not_before(due_s.pop(name))
    assert list(due_s) == [str(HOUR_MS)]
    channel.settle(queue)
    assert channel.count(queue) == 0
    assert channel.rpc(Queue.Purge(queue=queue)).message_count == 1


@scene
def a_crowd_that_is_due_together_keeps_its_order(stage):
    queue = stage.declare("crowd")
    names = [str(number) for number in range(1000)]
    stage.publish(queue, *names, headers={"x-delay": LATER_MS})
    yield
    channel = stage.channel()
    channel.consume(queue)
    assert [delivery(channel).body.decode() for _ in names] == names


@scene
def a_message_that_was_due_and_ready_keeps_its_place(stage):
    queue = stage.declare("due", delivery_limit=-1)
    stage.publish(queue, "first", headers={"x-delay": 1})
    stage.publish(queue, "second", "third")
    channel = stage.channel()
    eventually(lambda: channel.count(queue) == 3, "all to be ready")
    yield
    channel = stage.channel()

    def is_first() -> bool:
        other = channel.conn.open_channel()
        content = other.get(queue)
        other.close()
        return content is not None and content.body == b"first"

    eventually(is_first, "it to be read back", within_s=PATIENCE_S)
    assert [take(channel, queue) for _ in range(3)] == ["first", "second", "third"]


@scene
def a_ttl_still_begins_when_the_delay_is_over(stage):
    dead = stage.declare("late-dead")
    queue = stage.declare("late", dead_letter_exchange="", dead_letter_routing_key=dead)
    sent_s = time.time()
    stage.publish(queue, "x", headers={"x-delay": LATER_MS}, expiration="500")
    yield
    letter = get(stage.channel(), dead)
    assert_not_before(sent_s + LATER_MS / 1000 + 0.5)
    assert letter.headers["x-death"][0]["reason"] == "expired"


@scene
def delayed_messages_that_were_purged_do_not_come_back(stage):
    queue = stage.declare("purged")
    stage.publish(queue, "old", headers={"x-delay": 2000})
    stage.publish(queue, "ready")
    assert stage.channel().rpc(Queue.Purge(queue=queue)).message_count == 2
    stage.publish(queue, "new", headers={"x-delay": 2500})
    yield
    channel = stage.channel()
    assert take(channel, queue) == "new"
    assert channel.count(queue) == 0


@scene
def queues_and_exchanges_delay_as_before(stage):
    exchange = f"{stage.kind}-later"
    arguments = {"x-delayed-type": "topic"}
    options = {"durable": True, "arguments": arguments}
    stage.channel().declare_exchange(exchange, "x-delayed-message", **options)
    queue = stage.declare("delaying", message_delay=300)
    stage.channel().bind(queue, exchange, "a.*")
    yield
    stage.channel().declare_exchange(exchange, "x-delayed-message", **options)
    publisher = stage.confirming()
    sent_s = time.time()
    publisher.publish(exchange, "a.b", b"the queue's")
    publisher.publish(exchange, "a.b", b"its own", headers={"x-delay": 600})
    publisher.publish(exchange, "b.b", b"not routed")
    channel = stage.channel()
    assert take(channel, queue) == "the queue's"
    assert_not_before(sent_s + 0.3)
    assert take(channel, queue) == "its own"
    assert_not_before(sent_s + 0.6)


# -- retries and leases


@scene
def a_failed_message_waits_on_and_its_tries_are_counted_on(stage):
    dead = stage.declare("failed-dead")
    queue = stage.declare(
        "failed",
        retry_delay=200,
        retry_backoff="exponential",
        delivery_limit=4,
        dead_letter_exchange="",
        dead_letter_routing_key=dead,
    )
    stage.publish(queue, "hopeless")
    channel = stage.channel()
    for _ in range(3):
        failed_s = time.time()
        channel.nack(get(channel, queue).delivery_tag)
    stage.confirming().barrier()
    yield
    channel = stage.channel()
    content = get(channel, queue)
    assert_not_before(failed_s + 0.8)
    assert content.redelivered
    if stage.kind == "quorum":
        assert content.headers["x-delivery-count"] == 3
    failed_s = time.time()
    channel.nack(content.delivery_tag)
    content = get(channel, queue)
    assert_not_before(failed_s + 1.6)
    channel.nack(content.delivery_tag)
    assert get(channel, dead).headers["x-death"][0]["reason"] == "delivery_limit"


@scene
def a_leased_message_comes_back_and_leases_go_on(stage):
    queue = stage.declare("leased", visibility_timeout=HOUR_MS)
    stage.publish(queue, "held", "fresh")
    channel = stage.channel()
    assert get(channel, queue).body == b"held"
    yield
    channel = stage.channel()
    held = get(channel, queue)
    assert (held.body, held.redelivered) == (b"held", True)
    assert take(channel, queue) == "fresh"
    shorten_lease(channel, held)
    again = get(channel, queue)
    assert (again.body, again.redelivered) == (b"held", True)


def shorten_lease(channel: WireChannel, held: Content) -> None:
    """To a few milliseconds from now."""
    channel.publish("amq.leveret.lease", str(held.delivery_tag), headers={"x-lease-ms": 5})


@scene
def what_is_acked_stays_so_however_it_came(stage):
    """Delayed, failed and leased messages that were acked before the end are gone."""
    queue = stage.declare("acked", retry_delay=20, visibility_timeout=HOUR_MS, delivery_limit=-1)
    stage.publish(queue, "delayed", headers={"x-delay": 20})
    stage.publish(queue, "failed", "leased")
    channel = stage.channel()
    channel.nack(get(channel, queue).delivery_tag)
    shorten_lease(channel, get(channel, queue))
    assert sorted(take(channel, queue) for _ in range(3)) == ["delayed", "failed", "leased"]
    channel.rpc(Basic.Qos())
    stage.confirming().barrier()
    yield
    stage.publish(queue, "marker", headers={"x-delay": 400})
    channel = stage.channel()
    assert take(channel, queue) == "marker"
    assert channel.count(queue) == 0


# -- groups


@scene
def groups_go_on_where_they_were(stage):
    queue = stage.declare("groups", message_groups=True, retry_delay=LATER_MS)
    publisher = stage.confirming()
    for name in ("a1", "a2", "a3", "a4", "b1", "b2", "b3", "c1", "c2"):
        publisher.send("", queue, name.encode(), headers={"x-group-id": name[0]})
    publisher.wait()
    channel = stage.channel()
    channel.consume(queue)
    out = {content.body: content.delivery_tag for content in (delivery(channel) for _ in range(3))}
    assert sorted(out) == [b"a1", b"b1", b"c1"]
    channel.ack(out[b"a1"])
    second = delivery(channel)
    assert second.body == b"a2"
    failed_s = time.time()
    channel.nack(second.delivery_tag)
    stage.confirming().barrier()
    yield
    channel = stage.channel()
    channel.consume(queue)
    seen: dict[str, list[str]] = {"a": [], "b": [], "c": []}
    for _ in range(8):
        content = delivery(channel)
        name = content.body.decode()
        seen[name[0]].append(name)
        if name[0] == "a":
            assert_not_before(failed_s + LATER_MS / 1000)
        channel.ack(content.delivery_tag)
    assert seen == {"a": ["a2", "a3", "a4"], "b": ["b1", "b2", "b3"], "c": ["c1", "c2"]}


@scene
def a_group_of_which_everything_was_acked_is_free(stage):
    queue = stage.declare("free", message_groups=True)
    stage.publish(queue, "a1", headers={"x-group-id": "a"})
    channel = stage.channel()
    assert take(channel, queue) == "a1"
    stage.confirming().barrier()
    yield
    stage.publish(queue, "a2", headers={"x-group-id": "a"})
    assert take(stage.channel(), queue) == "a2"


# -- deduplication


@scene
def ids_are_known_again(stage):
    queue = stage.declare("known")
    by_content = stage.declare("known-content", dedup_content=True)
    forgetful = stage.declare("forgetful", dedup_window=1)
    stage.publish(queue, "consumed", headers={"x-dedup-id": "consumed"})
    assert take(stage.channel(), queue) == "consumed"
    stage.publish(queue, "waiting", headers={"x-dedup-id": "waiting"})
    stage.publish(queue, "delayed", headers={"x-dedup-id": "delayed", "x-delay": 2000})
    stage.publish(by_content, "same")
    stage.publish(forgetful, "x", headers={"x-dedup-id": "x"})
    yield
    for name in ("consumed", "waiting", "delayed", "new", "new"):
        stage.publish(queue, name, headers={"x-dedup-id": name})
    stage.publish(by_content, "same", "other")
    stage.publish(forgetful, "x", headers={"x-dedup-id": "x"})
    channel = stage.channel()
    assert sorted(take(channel, queue) for _ in range(3)) == ["delayed", "new", "waiting"]
    assert [take(channel, by_content) for _ in range(2)] == ["same", "other"]
    assert [take(channel, forgetful) for _ in range(2)] == ["x", "x"]
    for name in (queue, by_content, forgetful):
        assert channel.count(name) == 0


# -- priorities


@scene
def priorities_and_ages_are_as_before(stage):
    strict = stage.declare("strict", max_priority=255)
    aging = stage.declare("aging", max_priority=5, priority_aging_ms=10)
    for queue in (strict, aging):
        for name, priority in (("low", 0), ("high", 5), ("middle", 3)):
            stage.publish(queue, name, priority=priority)
    stage.publish(strict, "delayed", priority=255, headers={"x-delay": 1})
    channel = stage.channel()
    eventually(lambda: channel.count(strict) == 4, "all to be ready")
    yield
    stage.publish(strict, "new", priority=4)
    stage.publish(aging, "new and high", priority=5)
    channel = stage.channel()
    got = drain(channel, strict)
    while len(got) < 5:  # the delayed one is read back by itself
        got.append(take(channel, strict).encode())
    assert [name for name in got if name != b"delayed"] == [b"high", b"new", b"middle", b"low"]
    # A second or so of aging is worth more than all priorities.
    assert [take(channel, aging) for _ in range(4)][-1] == "new and high"


# -- dead letters


@scene
def a_dead_letter_is_in_its_queue_or_in_the_next(stage):
    dead = stage.declare("dead")
    queue = stage.declare("dying", dead_letter_exchange="", dead_letter_routing_key=dead)
    names = [str(number) for number in range(500)]
    stage.publish(queue, *names)
    channel = stage.channel()
    channel.consume(queue)
    for _ in names:
        last = delivery(channel)
    channel.nack(last.delivery_tag, multiple=True, requeue=False)
    yield
    channel = stage.channel()
    found = [int(body) for body in drain(channel, dead) + drain(channel, queue)]
    assert sorted(set(found)) == list(range(500))


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_under_way_goes_on(
    halfway: dict[tuple[str, str], Iterator[None] | Exception], kind: str, name: str
) -> None:
    running = halfway[kind, name]
    if isinstance(running, Exception):
        raise running
    with pytest.raises(StopIteration):
        next(running)
