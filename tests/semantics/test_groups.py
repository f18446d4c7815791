"""Message groups: one of a group at a time, in order, whatever fails; groups side by side."""

import base64
import itertools
import json
import urllib.request
from typing import Any

import pytest

from tests.semantics.stage import HOUR_MS, PATIENCE_S, Stage, Stopwatch, delivery
from tests.support.frames import Basic, Content, Queue
from tests.support.process import BrokerProcess
from tests.support.wire import ChannelClosedError, WireChannel

pytestmark = pytest.mark.leveret_only


def in_group(group: object) -> dict[str, Any]:
    return {"headers": {"x-group-id": group}}


def fill(stage: Stage, queue: str, names: str) -> None:
    """`a1 a2 b1` in one turn: each in the group of its letter, `-1` in none."""
    stage.publish_together(
        queue,
        [
            (name.encode(), {} if name[0] == "-" else {"x-group-id": name[0]})
            for name in names.split()
        ],
    )


def taken(channel: WireChannel, count: int) -> dict[str, int]:
    """Names and tags of the next deliveries."""
    contents = [delivery(channel) for _ in range(count)]
    return {content.body.decode(): content.delivery_tag for content in contents}


def test_only_the_first_of_each_group_is_out(stage: Stage) -> None:
    queue = stage.queue(message_groups=True)
    fill(stage, queue, "a1 a2 a3 b1 b2 -1 -2")
    stage.channel.consume(queue)
    out = taken(stage.channel, 4)
    assert sorted(out) == ["-1", "-2", "a1", "b1"]
    stage.channel.assert_quiet(queue)
    assert stage.channel.count(queue) == 3
    stage.channel.ack(out["a1"])
    out |= taken(stage.channel, 1)
    assert "a2" in out
    stage.channel.assert_quiet(queue)


def test_a_group_goes_on_when_its_message_is_acked_fetched_ones_too(stage: Stage) -> None:
    queue = stage.queue(message_groups=True)
    fill(stage, queue, "a1 a2 a3")
    for expected in (b"a1", b"a2", b"a3"):
        content = stage.channel.get(queue)
        assert content.body == expected
        assert stage.channel.get(queue) is None
        stage.channel.ack(content.delivery_tag)
    stage.assert_empty(queue)


@pytest.mark.parametrize("consumers", [2, 5])
def test_many_consumers_take_each_group_in_order_and_never_two_of_it(
    stage: Stage, consumers: int
) -> None:
    queue = stage.queue(message_groups=True)
    names = [f"{group}{number}" for number in range(6) for group in "abcd"]
    fill(stage, queue, " ".join(names))
    channels = [stage.open_channel() for _ in range(consumers)]
    for channel in channels:
        channel.qos(1)
        channel.consume(queue)
    seen: dict[str, list[int]] = {group: [] for group in "abcd"}
    holding: dict[str, tuple[WireChannel, int]] = {}  # by group
    for _ in names:
        channel, content = next_of(channels)
        group, number = content.body.decode()
        assert group not in holding, "two of a group are out"
        seen[group].append(int(number))
        holding[group] = channel, content.delivery_tag
        if len(holding) == min(consumers, 4) or not unfinished(seen, holding):
            first = next(iter(holding))
            channel, tag = holding.pop(first)
            channel.ack(tag)
    assert seen == {group: list(range(6)) for group in "abcd"}


def next_of(channels: list[WireChannel]) -> tuple[WireChannel, Content]:
    """The next delivery on any of these channels."""
    for channel in itertools.cycle(channels):
        channel.rpc(Basic.Qos(prefetch_count=1))
        if channel.pending():
            return channel, delivery(channel)
    raise AssertionError("no channels")


def unfinished(seen: dict[str, list[int]], holding: dict[str, Any]) -> list[str]:
    """Groups of which another message may come now."""
    return [group for group, numbers in seen.items() if len(numbers) < 6 and group not in holding]


@pytest.mark.parametrize("how", ["nack", "reject", "recover", "lost"])
def test_a_requeued_message_is_again_the_first_of_its_group(stage: Stage, how: str) -> None:
    queue = stage.queue(message_groups=True)
    fill(stage, queue, "a1 a2 b1")
    channel = stage.open_channel()
    first = channel.get(queue)
    assert first.body == b"a1"
    if how == "lost":
        channel.conn.close()
    elif how == "recover":
        channel.rpc(Basic.Recover(requeue=True))
    else:
        getattr(channel, how)(first.delivery_tag)
        channel.settle(queue)
    order = [name for name in stage.bodies(queue, 3) if name.startswith(b"a")]
    assert order == [b"a1", b"a2"]


def test_a_failed_message_that_waits_holds_up_its_group_and_no_other(stage: Stage) -> None:
    queue = stage.queue(message_groups=True, retry_delay=200)
    fill(stage, queue, "a1 a2 b1 b2")
    stage.channel.consume(queue)
    out = taken(stage.channel, 2)
    watch = Stopwatch()
    stage.channel.nack(out["a1"])
    stage.channel.ack(out["b1"])
    assert "b2" in taken(stage.channel, 1)
    again = delivery(stage.channel)
    watch.assert_passed(200)
    assert (again.body, again.redelivered) == (b"a1", True)
    stage.channel.ack(again.delivery_tag)
    assert "a2" in taken(stage.channel, 1)


def test_a_lease_that_ends_frees_the_message_before_the_rest_of_its_group(stage: Stage) -> None:
    queue = stage.queue(message_groups=True, visibility_timeout=100)
    fill(stage, queue, "a1 a2")
    assert stage.channel.get(queue).body == b"a1"
    again = stage.take(queue)
    assert (again.body, again.redelivered) == (b"a1", True)


@pytest.mark.parametrize("how", ["rejected", "delivery_limit", "expired"])
def test_a_group_goes_on_when_its_first_message_is_dead_lettered(stage: Stage, how: str) -> None:
    dead, arguments = stage.graveyard()
    queue = stage.queue(message_groups=True, delivery_limit=0, **arguments)
    stage.publish(queue, b"a1", **in_group("a"), expiration="100" if how == "expired" else None)
    stage.publish(queue, b"a2", **in_group("a"))
    if how != "expired":
        stage.channel.nack(stage.take(queue).delivery_tag, requeue=how == "delivery_limit")
    letter = stage.take(dead)
    assert (letter.body, letter.headers["x-death"][0]["reason"]) == (b"a1", how)
    assert letter.headers["x-group-id"] == "a"
    assert stage.bodies(queue, 1) == [b"a2"]


def test_dead_letters_keep_their_groups_where_they_go(stage: Stage) -> None:
    dead = stage.queue(message_groups=True)
    queue = stage.queue(dead_letter_exchange="", dead_letter_routing_key=dead)
    fill(stage, queue, "a1 a2 b1")
    stage.channel.consume(queue)
    last = [delivery(stage.channel) for _ in range(3)][-1]
    stage.channel.nack(last.delivery_tag, multiple=True, requeue=False)
    channel, stage.channel = stage.channel, stage.open_channel()
    assert sorted([stage.take(dead).body, stage.take(dead).body]) == [b"a1", b"b1"]
    stage.channel.settle(dead)
    assert stage.channel.count(dead) == 1
    channel.conn.close()


@pytest.mark.parametrize("waiting", ["in flight", "failed", "paced"])
def test_after_a_purge_a_group_is_blocked_only_by_what_is_in_flight(
    stage: Stage, waiting: str
) -> None:
    arguments = {"retry_delay": HOUR_MS} if waiting == "failed" else {}
    queue = stage.queue(message_groups=True, redelivery_rate=1, **arguments)
    fill(stage, queue, "a1 b1 a2 b2")
    channel = stage.open_channel()
    channel.consume(queue)
    out = taken(channel, 2)
    if waiting == "failed":
        channel.nack(out["a1"])
        channel.nack(out["b1"])
        channel.settle(queue)
    elif waiting == "paced":  # one of them comes back at once, the other one in a second
        channel.conn.close()
    stage.channel.rpc(Queue.Purge(queue=queue))
    fill(stage, queue, "a3 b3")
    if waiting == "in flight":
        channel.assert_quiet(queue)
        channel.ack(out["a1"])
        channel.ack(out["b1"])
    if waiting != "paced":
        assert sorted(taken(channel, 2)) == ["a3", "b3"]
    else:
        assert sorted([stage.take(queue).body, stage.take(queue).body]) == [b"a3", b"b3"]


def test_a_group_goes_on_when_the_retry_that_it_waits_for_is_cancelled(
    stage: Stage, broker: BrokerProcess
) -> None:
    queue = stage.queue(message_groups=True, retry_delay=HOUR_MS)
    fill(stage, queue, "a1 a2")
    stage.channel.consume(queue)
    stage.channel.nack(taken(stage.channel, 1)["a1"])
    stage.channel.assert_quiet(queue)
    [waiting] = call(broker, "GET", f"/api/scheduled/%2F/{queue}")
    call(broker, "DELETE", f"/api/scheduled/%2F/{queue}/{waiting['id']}")
    assert "a2" in taken(stage.channel, 1)


def call(broker: BrokerProcess, method: str, path: str) -> Any:
    password = base64.b64encode(b"guest:guest").decode()
    request = urllib.request.Request(
        broker.http_url(path), method=method, headers={"Authorization": f"Basic {password}"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        body = response.read()
        return json.loads(body) if body else None


def test_messages_delivered_without_acks_block_nothing(stage: Stage) -> None:
    queue = stage.queue(message_groups=True)
    stage.channel.consume(queue, no_ack=True)
    fill(stage, queue, "a1 a2 a3")
    assert [delivery(stage.channel).body for _ in range(3)] == [b"a1", b"a2", b"a3"]


@pytest.mark.parametrize("group", ["", None, bytearray(b"")], ids=repr)
def test_an_empty_group_is_none(stage: Stage, group: object) -> None:
    queue = stage.queue(message_groups=True)
    stage.publish(queue, b"1", **in_group(group))
    stage.publish(queue, b"2", **in_group(group))
    assert [stage.take(queue).body, stage.take(queue).body] == [b"1", b"2"]


@pytest.mark.parametrize("group", ["a" * 1000, 7, True, bytearray(b"\xff"), [1, "x"]], ids=str)
def test_a_group_may_be_any_value(stage: Stage, group: object) -> None:
    queue = stage.queue(message_groups=True)
    stage.publish(queue, b"1", **in_group(group))
    stage.publish(queue, b"2", **in_group(group))
    held = stage.take(queue)
    stage.channel.settle(queue)
    assert stage.channel.get(queue) is None
    stage.channel.ack(held.delivery_tag)
    assert stage.bodies(queue, 1) == [b"2"]


def test_without_the_argument_groups_mean_nothing(stage: Stage) -> None:
    queue = stage.queue()
    fill(stage, queue, "a1 a2")
    assert [stage.take(queue).body, stage.take(queue).body] == [b"a1", b"a2"]


def test_groups_take_turns(stage: Stage) -> None:
    queue = stage.queue(message_groups=True)
    fill(stage, queue, "a1 a2 a3 a4 b1 b2 c1")
    assert stage.bodies(queue, 7) == [b"a1", b"b1", b"c1", b"a2", b"b2", b"a3", b"a4"]


def test_an_expired_message_behind_another_of_its_group_goes_too(stage: Stage) -> None:
    dead, arguments = stage.graveyard()
    queue = stage.queue(message_groups=True, **arguments)
    stage.publish(queue, b"a1", **in_group("a"), expiration="50")
    stage.publish(queue, b"a2", **in_group("a"), expiration="50")
    stage.publish(queue, b"a3", **in_group("a"))
    assert stage.bodies(dead, 2) == [b"a1", b"a2"]
    assert stage.bodies(queue, 1) == [b"a3"]


@pytest.mark.parametrize(
    "arguments", [{"message_groups": 1}, {"message_groups": True, "max_priority": 5}], ids=str
)
def test_groups_that_cannot_be_meant_are_refused(stage: Stage, arguments: dict[str, Any]) -> None:
    with pytest.raises(ChannelClosedError, match=r"406.*x-message-groups"):
        stage.queue(**arguments)
