"""Dead letters as pika sees them: every reason, the x-death header, cycles, several targets."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pika
import pytest

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel

FreshName = Callable[[str], str]
Declare = Callable[..., str]
Letter = tuple[Any, pika.BasicProperties, bytes]
NEVER_MS = 3_600_000

KINDS: dict[str, dict[str, Any]] = {
    "transient": {"arguments": {}},
    "classic": {"durable": True, "arguments": {"x-queue-type": "classic"}},
    "quorum": {"durable": True, "arguments": {"x-queue-type": "quorum"}},
}


@pytest.fixture(params=KINDS)
def declare(
    request: pytest.FixtureRequest, pika_channel: BlockingChannel, fresh_name: FreshName
) -> Declare:
    """Declare a queue of one kind, under a fresh name unless one is given."""
    options = KINDS[request.param]
    pika_channel.confirm_delivery()

    def make(name: str = "", **arguments: Any) -> str:
        name = name or fresh_name(request.param)
        named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        pika_channel.queue_declare(name, **options | {"arguments": options["arguments"] | named})
        return name

    return make


@pytest.fixture
def take(pika_channel: BlockingChannel, eventually: Callable) -> Callable[[str], Letter]:
    """The next message of a queue, whenever it comes; unacked."""

    def get(queue: str) -> Letter:
        found: list[Letter] = []

        def came() -> bool:
            letter = pika_channel.basic_get(queue)
            if letter[0] is not None:
                found.append(letter)
            return bool(found)

        eventually(came, f"a message in {queue}")
        return found[0]

    return get


def to(queue: str) -> dict[str, str]:
    """Arguments that send dead letters to a queue."""
    return {"dead_letter_exchange": "", "dead_letter_routing_key": queue}


def die(channel: BlockingChannel, queue: str, reason: str) -> None:
    """Publish a message to a queue that was declared for this, and have it die there."""
    properties = pika.BasicProperties(
        delivery_mode=2, expiration="1" if reason == "expired" else None, headers={"mine": "kept"}
    )
    channel.basic_publish("amq.direct", queue, b"victim", properties)
    if reason == "maxlen":
        channel.basic_publish("amq.direct", queue, b"successor")
    elif reason in ("rejected", "delivery_limit"):
        method, _, _ = channel.basic_get(queue)
        channel.basic_nack(method.delivery_tag, requeue=reason == "delivery_limit")


REASONS = {
    "rejected": {},
    "expired": {},
    "maxlen": {"max_length": 1},
    "delivery_limit": {"delivery_limit": 0},
}


@pytest.mark.leveret_only  # RabbitMQ 3.10 has no x-last-death-*, and limits in quorum queues only
@pytest.mark.parametrize("reason", REASONS)
def test_a_dead_letter_tells_why_where_when_and_whence(
    declare: Declare, pika_channel: BlockingChannel, take: Callable, reason: str
) -> None:
    dead = declare()
    queue = declare(**REASONS[reason], **to(dead))
    pika_channel.queue_bind(queue, "amq.direct", queue)
    before = int(time.time())
    die(pika_channel, queue, reason)
    method, properties, body = take(dead)
    assert (method.exchange, method.routing_key, body) == ("", dead, b"victim")
    headers = dict(properties.headers)
    (death,) = headers.pop("x-death")
    died = death.pop("time").replace(tzinfo=UTC)
    assert datetime.fromtimestamp(before - 1, UTC) <= died <= datetime.now(UTC)
    expected = {
        "count": 1,
        "reason": reason,
        "queue": queue,
        "exchange": "amq.direct",
        "routing-keys": [queue],
    }
    if reason == "expired":
        expected["original-expiration"] = "1"
    assert death == expected
    story = {"reason": reason, "queue": queue, "exchange": "amq.direct"}
    assert headers == {
        "mine": "kept",
        **{f"x-first-death-{name}": value for name, value in story.items()},
        **{f"x-last-death-{name}": value for name, value in story.items()},
    }
    assert properties.expiration is None
    assert properties.delivery_mode == 2


def test_the_property_expiration_is_taken_off_whatever_the_reason(
    declare: Declare, pika_channel: BlockingChannel, take: Callable
) -> None:
    dead = declare()
    queue = declare(**to(dead))
    properties = pika.BasicProperties(expiration=str(NEVER_MS))
    pika_channel.basic_publish("", queue, b"", properties)
    pika_channel.basic_reject(take(queue)[0].delivery_tag, requeue=False)
    _, properties, _ = take(dead)
    assert properties.expiration is None
    (death,) = properties.headers["x-death"]
    assert (death["reason"], death["original-expiration"]) == ("rejected", str(NEVER_MS))


def test_the_queues_own_ttl_leaves_no_original_expiration(
    declare: Declare, pika_channel: BlockingChannel, take: Callable
) -> None:
    dead = declare()
    queue = declare(message_ttl=1, **to(dead))
    pika_channel.basic_publish("", queue, b"")
    (death,) = take(dead)[1].headers["x-death"]
    assert death["reason"] == "expired"
    assert "original-expiration" not in death


@pytest.mark.leveret_only  # RabbitMQ 3.10 turns the order of the earlier ones round
def test_the_latest_death_comes_first_and_each_queue_and_reason_has_one_entry(
    declare: Declare, pika_channel: BlockingChannel, take: Callable
) -> None:
    last = declare()
    second = declare(**to(last))
    first = declare(**to(second))
    pika_channel.basic_publish("", first, b"", pika.BasicProperties(expiration="1"))
    method, _, _ = take(second)
    pika_channel.basic_reject(method.delivery_tag, requeue=False)
    method, properties, _ = take(last)
    story = [(d["queue"], d["reason"], d["count"]) for d in properties.headers["x-death"]]
    assert story == [(second, "rejected", 1), (first, "expired", 1)]
    pika_channel.basic_publish("", first, b"", properties)  # round again, by hand
    pika_channel.basic_reject(take(first)[0].delivery_tag, requeue=False)
    _, properties, _ = take(second)
    headers = properties.headers
    story = [(d["queue"], d["reason"], d["count"]) for d in headers["x-death"]]
    assert story == [(first, "rejected", 1), (second, "rejected", 1), (first, "expired", 1)]
    assert (headers["x-first-death-queue"], headers["x-first-death-reason"]) == (first, "expired")
    assert (headers["x-last-death-queue"], headers["x-last-death-reason"]) == (first, "rejected")


def test_the_same_death_again_is_counted_and_keeps_its_first_time(
    declare: Declare, pika_channel: BlockingChannel, take: Callable, fresh_name: FreshName
) -> None:
    work = fresh_name("work")
    declare(work, **to(work))
    pika_channel.basic_publish("", work, b"again and again")
    times = set()
    for count in range(5):
        method, properties, _ = take(work)
        if count:
            (death,) = properties.headers["x-death"]
            assert death["count"] == count
            times.add(death["time"])
        pika_channel.basic_reject(method.delivery_tag, requeue=False)
    assert len(times) == 1


def test_keys_of_cc_are_told_and_those_of_bcc_are_not(
    declare: Declare, pika_channel: BlockingChannel, take: Callable
) -> None:
    dead, copied, blind = declare(), declare(), declare()
    queue = declare(**to(dead))
    headers = {"CC": [copied], "BCC": [blind]}
    pika_channel.basic_publish("", queue, b"", pika.BasicProperties(headers=headers))
    pika_channel.basic_reject(take(queue)[0].delivery_tag, requeue=False)
    _, properties, _ = take(dead)
    assert properties.headers["x-death"][0]["routing-keys"] == [queue, copied]
    assert "BCC" not in properties.headers
    assert "CC" not in properties.headers, "the new routing key replaces them all"
    assert "BCC" not in take(blind)[1].headers


def test_without_a_new_routing_key_the_old_ones_lead_on(
    declare: Declare, pika_channel: BlockingChannel, take: Callable, fresh_name: FreshName
) -> None:
    exchange = fresh_name("dead")
    pika_channel.exchange_declare(exchange, "direct", durable=True)
    by_key, by_copy = declare(), declare()
    queue, other = declare(dead_letter_exchange=exchange), declare()
    for target, key in ((by_key, queue), (by_copy, other)):
        pika_channel.queue_bind(target, exchange, key)
    headers = {"CC": [other]}
    pika_channel.basic_publish("", queue, b"", pika.BasicProperties(headers=headers))
    pika_channel.basic_reject(take(queue)[0].delivery_tag, requeue=False)
    for target in (by_key, by_copy):
        method, properties, _ = take(target)
        assert (method.exchange, method.routing_key) == (exchange, queue)
        assert properties.headers["CC"] == [other]


def test_a_dead_letter_goes_to_every_queue_of_its_exchange(
    declare: Declare, pika_channel: BlockingChannel, take: Callable, fresh_name: FreshName
) -> None:
    exchange = fresh_name("dead")
    pika_channel.exchange_declare(exchange, "fanout", durable=True)
    targets = [declare() for _ in range(3)]
    for target in targets:
        pika_channel.queue_bind(target, exchange)
    queue = declare(dead_letter_exchange=exchange)
    for number in range(5):
        pika_channel.basic_publish("", queue, b"%d" % number)
    for _ in range(5):
        pika_channel.basic_reject(take(queue)[0].delivery_tag, requeue=False)
    for target in targets:
        assert [take(target)[2] for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]


CYCLES = {"expired": ({"message_ttl": 20}, 1), "maxlen": ({"max_length": 1}, 3)}


@pytest.mark.parametrize("reason", CYCLES)
def test_a_cycle_in_which_nobody_rejected_it_drops_the_message(
    declare: Declare,
    pika_channel: BlockingChannel,
    take: Callable,
    fresh_name: FreshName,
    reason: str,
) -> None:
    """It dies in the first queue, then in the second, and goes on to a witness, but not round."""
    arguments, count = CYCLES[reason]
    back = fresh_name("back")
    pika_channel.exchange_declare(back, "fanout", durable=True)
    second = declare(**arguments, dead_letter_exchange=back)
    first, witness = declare(**arguments, **to(second)), declare()
    pika_channel.queue_bind(first, back)
    pika_channel.queue_bind(witness, back)
    bodies = [b"%d" % number for number in range(count)]
    for body in bodies:
        pika_channel.basic_publish("", first, body)
    _, properties, body = take(witness)
    story = [(death["queue"], death["reason"]) for death in properties.headers["x-death"]]
    assert (body, story) == (b"0", [(second, reason), (first, reason)])
    left = [pika_channel.basic_get(first)[2], pika_channel.basic_get(first)[2]]
    assert left == [*bodies[2:], None, None][:2]


def test_a_cycle_with_a_rejection_in_it_goes_on(
    declare: Declare, pika_channel: BlockingChannel, take: Callable, fresh_name: FreshName
) -> None:
    wait = fresh_name("wait")
    work = declare(**to(wait))
    declare(wait, message_ttl=20, **to(work))
    pika_channel.basic_publish("", work, b"try")
    for attempt in range(4):
        method, properties, _ = take(work)
        deaths = (properties.headers or {}).get("x-death", [])
        story = {(d["queue"], d["reason"]): d["count"] for d in deaths}
        expected = {(wait, "expired"): attempt, (work, "rejected"): attempt} if attempt else {}
        assert story == expected
        pika_channel.basic_reject(method.delivery_tag, requeue=False)


def test_a_missing_exchange_or_target_drops_the_letter_and_not_the_queue(
    declare: Declare, pika_channel: BlockingChannel, take: Callable, fresh_name: FreshName
) -> None:
    nowhere = declare(dead_letter_exchange=fresh_name("missing"))
    unrouted = declare(dead_letter_exchange="", dead_letter_routing_key=fresh_name("missing"))
    for queue in (nowhere, unrouted):
        pika_channel.basic_publish("", queue, b"gone")
        pika_channel.basic_reject(take(queue)[0].delivery_tag, requeue=False)
        pika_channel.basic_publish("", queue, b"next")
        assert take(queue)[2] == b"next"


@pytest.mark.leveret_only  # RabbitMQ 3.10 loses such a message
def test_a_made_up_x_death_does_no_harm(
    declare: Declare, pika_channel: BlockingChannel, take: Callable
) -> None:
    dead = declare()
    queue = declare(**to(dead))
    for made_up in ("text", 5, [1, 2], [{"count": "x"}], {"a": 1}, [{"queue": queue}], None):
        headers = {"x-death": made_up}
        pika_channel.basic_publish("", queue, b"", pika.BasicProperties(headers=headers))
        pika_channel.basic_reject(take(queue)[0].delivery_tag, requeue=False)
        death = take(dead)[1].headers["x-death"][0]
        assert (death["queue"], death["reason"], death["count"]) == (queue, "rejected", 1)


def test_a_queue_for_dead_letters_that_is_full_does_as_it_says(
    declare: Declare, pika_channel: BlockingChannel, take: Callable
) -> None:
    last = declare()
    dead = declare(max_length=1, **to(last))
    queue = declare(**to(dead))
    for body in (b"first", b"second"):
        pika_channel.basic_publish("", queue, body)
        pika_channel.basic_reject(take(queue)[0].delivery_tag, requeue=False)
    _, properties, body = take(last)
    story = [(death["queue"], death["reason"]) for death in properties.headers["x-death"]]
    assert (body, story) == (b"first", [(dead, "maxlen"), (queue, "rejected")])
    assert take(dead)[2] == b"second"
