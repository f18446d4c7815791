"""Consumer groups over AMQP: who gets what, from where, and what becomes of it."""

from typing import Any

import pytest

from tests.support.frames import Basic, Content, Queue, unvalidated
from tests.support.scene import Scene
from tests.support.streams import (
    Publishing,
    bodies,
    declare_stream,
    fill,
    join,
    numbers,
    offsets,
    partitions,
    take,
)
from tests.support.wire import ChannelClosedError, WireChannel

pytestmark = pytest.mark.leveret_only

OFFSETS = "__consumer_offsets"


def places(records: list[Content]) -> list[tuple[int, int]]:
    return list(zip(partitions(records), offsets(records), strict=True))


# Where it begins


def test_a_group_begins_where_its_first_consumer_asks(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(5))
    join(channel, stream, stream_offset="first")
    assert bodies(take(channel, 5)) == numbers(5)


def test_a_group_begins_with_what_is_published_next_if_nobody_says_otherwise(
    scene: Scene, channel: WireChannel
) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(5))
    join(channel, stream)
    fill(scene, stream, [b"new"])
    assert bodies(take(channel, 1)) == [b"new"]


def test_a_group_goes_on_where_it_was(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(6))
    tag = join(channel, stream, stream_offset="first", prefetch=4)
    take(channel, 4)
    channel.cancel(tag)
    other = scene.channel()
    join(other, stream, stream_offset="first")
    assert bodies(take(other, 2)) == numbers(2, 4)


def test_what_came_before_the_first_ack_is_not_lost_with_its_consumer(
    scene: Scene, channel: WireChannel
) -> None:
    """It began with what came next, and whoever follows begins there, not after that."""
    stream = declare_stream(scene, channel)
    first = scene.channel()
    join(first, stream)
    fill(scene, stream, numbers(3))
    assert bodies(take(first, 3, ack=False)) == numbers(3)
    first.conn.abort()
    join(channel, stream)
    again = take(channel, 3)
    assert bodies(again) == numbers(3)
    assert all(record.redelivered for record in again)


def test_groups_do_not_know_each_other(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(3))
    other = scene.channel()
    join(channel, stream, group=f"{stream}-a", stream_offset="first")
    join(other, stream, group=f"{stream}-b", stream_offset="first")
    assert bodies(take(channel, 3)) == bodies(take(other, 3)) == numbers(3)


# Acks


def test_the_first_record_without_an_ack_is_where_the_next_consumer_begins(
    scene: Scene, channel: WireChannel
) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(6))
    first = scene.channel()
    tag = join(first, stream, stream_offset="first")
    got = take(first, 6, ack=False)
    for place in (0, 1, 3, 5):
        first.ack(got[place].delivery_tag)
    first.cancel(tag)
    join(channel, stream)
    again = take(channel, 4)
    assert offsets(again) == [2, 3, 4, 5]
    assert all(record.redelivered for record in again)


def test_what_is_given_back_comes_again_in_order_before_anything_new(
    scene: Scene, channel: WireChannel
) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(8))
    join(channel, stream, stream_offset="first", prefetch=4)
    got = take(channel, 4, ack=False)
    channel.ack(got[1].delivery_tag)
    assert offsets(take(channel, 1, ack=False)) == [4]
    channel.send(Basic.Reject(got[2].delivery_tag, requeue=True))
    channel.send(Basic.Nack(got[0].delivery_tag, requeue=True))
    again = take(channel, 2, ack=False)
    assert sorted(offsets(again)) == [0, 2]
    assert all(record.redelivered for record in again)
    for record in (*again, got[3]):
        channel.ack(record.delivery_tag)
    rest = take(channel, 3)
    assert offsets(rest) == [5, 6, 7]
    assert not any(record.redelivered for record in rest)


def test_a_record_that_is_rejected_for_good_does_not_come_again(
    scene: Scene, channel: WireChannel
) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(3))
    first = scene.channel()
    tag = join(first, stream, stream_offset="first")
    got = take(first, 3, ack=False)
    first.send(Basic.Reject(got[0].delivery_tag, requeue=False))
    first.ack(got[1].delivery_tag)
    first.cancel(tag)
    join(channel, stream)
    assert offsets(take(channel, 1)) == [2]


def test_records_that_a_filter_kept_back_are_done_with(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    publishing = Publishing(scene.channel())
    publishing.publish("", stream, *numbers(4), headers={"kind": "dull"})
    publishing.publish("", stream, b"one", headers={"kind": "fine"})
    publishing.publish("", stream, *numbers(4), headers={"kind": "dull"})
    first = scene.channel()
    tag = join(first, stream, stream_offset="first", stream_filter={"kind": "fine"})
    assert bodies(take(first, 1)) == [b"one"]
    publishing.publish("", stream, b"two", headers={"kind": "fine"})
    assert bodies(take(first, 1)) == [b"two"]
    first.cancel(tag)
    join(channel, stream)
    publishing.publish("", stream, b"three", headers={"kind": "dull"})
    assert offsets(take(channel, 1)) == [10]


# Sharing


def test_the_members_of_a_group_share_its_partitions(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel, partitions=4)
    members = [scene.channel() for _ in range(2)]
    for member in members:
        join(member, stream, stream_offset="first")
    fill(scene, stream, numbers(80))
    got = [take(member, 40) for member in members]
    assert [len(set(partitions(records))) for records in got] == [2, 2]
    assert set(partitions(got[0])).isdisjoint(partitions(got[1]))
    assert sorted(map(int, bodies(got[0] + got[1]))) == list(range(80))


def test_consumers_of_one_connection_are_members_of_their_own(
    scene: Scene, channel: WireChannel
) -> None:
    stream = declare_stream(scene, channel, partitions=2)
    tags = [join(channel, stream, stream_offset="first") for _ in range(2)]
    fill(scene, stream, numbers(20))
    got = take(channel, 20)
    found = {(record.consumer_tag, at) for record, (at, _) in zip(got, places(got), strict=True)}
    assert len(found) == 2
    assert {tag for tag, _ in found} == set(tags)


def test_a_member_that_comes_takes_only_its_share(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel, partitions=6)
    members = [scene.channel() for _ in range(3)]
    shares: list[set[int]] = []
    for count, member in enumerate(members, 1):
        before, shares = shares, []
        join(member, stream, stream_offset="first")
        fill(scene, stream, numbers(60))
        for each in members[:count]:
            shares.append(set(partitions(take(each, 60 // count))))
            assert len(shares[-1]) == 6 // count
        for old, new in zip(before, shares, strict=False):
            assert new <= old


def test_partitions_of_a_member_that_is_lost_go_to_the_others(
    scene: Scene, channel: WireChannel
) -> None:
    stream = declare_stream(scene, channel, partitions=2)
    lost, left = scene.channel(), scene.channel()
    for member in (lost, left):
        join(member, stream, stream_offset="first")
    fill(scene, stream, numbers(20))
    unacked = take(lost, 10, ack=False)
    mine = take(left, 10)
    lost.conn.reset()
    again = take(left, 10)
    assert places(again) == places(unacked)
    assert all(record.redelivered for record in again)
    assert not any(record.redelivered for record in mine)


def test_what_a_partition_had_unacked_when_it_moved_is_delivered_again(
    scene: Scene, channel: WireChannel
) -> None:
    """Its holder had a while to ack it, and did not."""
    stream = declare_stream(scene, channel, partitions=2)
    fill(scene, stream, numbers(20))
    join(channel, stream, stream_offset="first")
    held = take(channel, 20, ack=False)
    acked = [record for record in held if record.headers["x-stream-offset"] < 4]
    for record in acked:
        channel.ack(record.delivery_tag)
    other = scene.channel()
    join(other, stream)
    again = take(other, 6)
    assert offsets(again) == [4, 5, 6, 7, 8, 9]
    assert len(set(partitions(again))) == 1
    assert all(record.redelivered for record in again)
    # An ack that comes too late only returns credit.
    for record in held[len(acked) :]:
        if record not in acked:
            channel.ack(record.delivery_tag)
    fill(scene, stream, numbers(20))
    assert set(partitions(take(other, 10))) == set(partitions(again))
    assert set(partitions(take(channel, 10))).isdisjoint(partitions(again))


def test_a_partition_moves_as_soon_as_its_holder_has_acked_it(
    scene: Scene, channel: WireChannel
) -> None:
    stream = declare_stream(scene, channel, partitions=2)
    fill(scene, stream, numbers(20))
    join(channel, stream, stream_offset="first")
    take(channel, 20)
    other = scene.channel()
    join(other, stream)
    fill(scene, stream, numbers(20, 20))
    fresh = take(other, 10)
    assert not any(record.redelivered for record in fresh)
    assert offsets(fresh) == list(range(10, 20))
    take(channel, 10)


def test_a_static_member_that_comes_back_has_what_it_had(
    scene: Scene, channel: WireChannel
) -> None:
    stream = declare_stream(scene, channel, partitions=4)
    lasting, other = scene.channel(), scene.channel()
    join(lasting, stream, stream_offset="first", group_instance="a")
    join(other, stream, stream_offset="first", group_instance="b")
    fill(scene, stream, numbers(40))
    mine = set(partitions(take(lasting, 20)))
    take(other, 20)
    lasting.conn.abort()
    fill(scene, stream, numbers(40))
    assert set(partitions(take(other, 20))).isdisjoint(mine)
    join(channel, stream, group_instance="a")
    assert set(partitions(take(channel, 20))) == mine


def test_a_second_consumer_with_the_same_instance_takes_the_place_of_the_first(
    scene: Scene, channel: WireChannel
) -> None:
    stream = declare_stream(scene, channel)
    first = scene.channel()
    tag = join(first, stream, stream_offset="first", group_instance="a")
    join(channel, stream, group_instance="a")
    assert first.expect(Basic.Cancel).consumer_tag == tag
    fill(scene, stream, numbers(3))
    assert bodies(take(channel, 3)) == numbers(3)


# What is refused


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"group": 7}, "x-group"),
        ({"group": ""}, "x-group"),
        ({"group": "g" * 256}, "x-group"),
        ({"group_instance": 3}, "x-group-instance"),
        ({"stream_partitions": [0]}, "x-stream-partitions"),
        ({"stream_offset": "middle"}, "x-stream-offset"),
    ],
    ids=str,
)
def test_a_group_refuses_arguments_without_meaning(
    scene: Scene, channel: WireChannel, arguments: dict[str, Any], text: str
) -> None:
    stream = declare_stream(scene, channel)
    with pytest.raises(ChannelClosedError, match=text):
        join(channel, stream, **arguments)


def test_an_instance_needs_a_group(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    channel.qos(1)
    with pytest.raises(ChannelClosedError, match="x-group-instance"):
        channel.consume(stream, arguments={"x-group-instance": "a"})


def test_members_of_a_deleted_stream_are_told_and_a_new_one_begins_anew(
    scene: Scene, channel: WireChannel
) -> None:
    stream = declare_stream(scene, channel, partitions=2)
    members = [scene.channel() for _ in range(2)]
    tags = [join(member, stream, stream_offset="first") for member in members]
    fill(scene, stream, numbers(10))
    for member in members:
        take(member, 5)
    channel.rpc(unvalidated(Queue.Delete, queue=stream))
    for member, tag in zip(members, tags, strict=True):
        assert member.expect(Basic.Cancel).consumer_tag == tag
    channel.declare_queue(
        stream, durable=True, arguments={"x-queue-type": "stream", "x-partitions": 1}
    )
    fill(scene, stream, numbers(3))
    join(channel, stream, stream_offset="first")
    assert offsets(take(channel, 3)) == [0, 1, 2]


# The stream of offsets


@pytest.fixture
def offsets_stream(scene: Scene, channel: WireChannel) -> str:
    """Made when the first group needs it."""
    stream = declare_stream(scene, channel)
    other = scene.channel()
    other.cancel(join(other, stream, stream_offset="first"))
    return OFFSETS


def test_the_offsets_of_groups_can_be_read(scene: Scene, offsets_stream: str) -> None:
    reader = scene.channel()
    reader.qos(10)
    reader.consume(offsets_stream, arguments={"x-stream-offset": "first"})
    assert take(reader, 1)[0].body


@pytest.mark.usefixtures("offsets_stream")
@pytest.mark.parametrize(
    "act",
    [
        lambda channel: channel.publish("", OFFSETS, b"mine"),
        lambda channel: channel.rpc(unvalidated(Queue.Delete, queue=OFFSETS)),
        lambda channel: channel.bind(OFFSETS, "amq.fanout", ""),
        lambda channel: channel.declare_queue(
            OFFSETS, durable=True, arguments={"x-queue-type": "stream"}
        ),
    ],
    ids=["publish", "delete", "bind", "declare"],
)
def test_clients_may_not_touch_the_offsets_of_groups(channel: WireChannel, act: Any) -> None:
    def try_it() -> None:
        act(channel)
        channel.qos(1)

    with pytest.raises(ChannelClosedError, match="ACCESS_REFUSED"):
        try_it()
