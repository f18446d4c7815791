"""Streams at the wire: declaring, publishing by key, reading from anywhere, settling."""

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

import pytest

from tests.support.frames import Basic, Queue, Tx, unvalidated
from tests.support.scene import Scene
from tests.support.streams import (
    STREAM,
    Publishing,
    bodies,
    declare_stream,
    fill,
    numbers,
    offsets,
    partitions,
    read,
)
from tests.support.waiting import eventually
from tests.support.wire import ChannelClosedError, WireChannel

# Declaring


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("x-message-ttl", 1000),
        ("x-max-length", 10),
        ("x-max-priority", 3),
        ("x-expires", 1000),
        ("x-dead-letter-exchange", "amq.fanout"),
        ("x-single-active-consumer", True),
        ("x-max-age", 7),
        ("x-max-length-bytes", -1),
    ],
)
def test_a_stream_refuses_what_it_cannot_do(
    scene: Scene, channel: WireChannel, argument: str, value: object
) -> None:
    arguments = {**STREAM, argument: value}
    channel.send(
        unvalidated(Queue.Declare, queue=scene.queue_name(), durable=True, arguments=arguments)
    )
    channel.expect_close(406, argument)


@pytest.mark.leveret_only
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("x-max-age", "a week"),
        ("x-partitions", 0),
        ("x-partitions", 1025),
        ("x-partitions", "two"),
        ("x-compact", 1),
        ("x-stream-max-segment-size-bytes", 0),
    ],
)
def test_a_stream_refuses_values_without_meaning(
    scene: Scene, channel: WireChannel, argument: str, value: object
) -> None:
    with pytest.raises(ChannelClosedError, match=argument):
        declare_stream(scene, channel, **{argument[2:]: value})


@pytest.mark.parametrize(
    "options",
    [
        {"durable": False},
        {"durable": True, "exclusive": True},
        {"durable": True, "auto_delete": True},
    ],
    ids=str,
)
def test_a_stream_is_durable_and_nobodys_own(
    scene: Scene, channel: WireChannel, options: dict[str, Any]
) -> None:
    with pytest.raises(ChannelClosedError, match="PRECONDITION_FAILED"):
        channel.declare_queue(scene.queue_name(), arguments=STREAM, **options)


def test_a_stream_is_not_named_by_the_broker(channel: WireChannel) -> None:
    with pytest.raises(ChannelClosedError, match="server-named"):
        channel.declare_queue("", durable=True, arguments=STREAM)


def test_declaring_a_stream_again_takes_the_same_arguments(
    scene: Scene, channel: WireChannel
) -> None:
    given = {**STREAM, "x-max-age": "1h", "x-max-length-bytes": 1 << 30}
    name = scene.queue(channel, durable=True, arguments=given)
    assert channel.declare_queue(name, durable=True, arguments=given).queue == name
    assert channel.declare_queue(name, passive=True).queue == name
    with pytest.raises(ChannelClosedError, match="inequivalent arg 'x-max-age'"):
        channel.declare_queue(name, durable=True, arguments={**given, "x-max-age": "2h"})


@pytest.mark.leveret_only
def test_the_number_of_partitions_stays(scene: Scene, channel: WireChannel) -> None:
    name = declare_stream(scene, channel, partitions=3)
    with pytest.raises(ChannelClosedError, match="inequivalent arg 'x-partitions'"):
        channel.declare_queue(name, durable=True, arguments={**STREAM, "x-partitions": 4})


@pytest.mark.parametrize("age", ["10s", "30m", "12h", "7D", "1M", "1Y"])
def test_ages_are_written_as_in_rabbitmq(scene: Scene, channel: WireChannel, age: str) -> None:
    declare_stream(scene, channel, max_age=age)


@pytest.mark.leveret_only
def test_arguments_of_rabbitmqs_clients_are_accepted(scene: Scene, channel: WireChannel) -> None:
    given = {"initial_cluster_size": 3, "queue_leader_locator": "balanced"}
    segment = {"stream_max_segment_size_bytes": 1_000_000}
    declare_stream(scene, channel, compact=True, **given, **segment)


# Publishing and reading


def test_every_reader_gets_all_records_in_order_with_their_offsets(
    scene: Scene, channel: WireChannel
) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(50), content_type="text/plain", headers={"a": 1})
    for reader in (channel, scene.channel()):
        records = read(reader, stream, 50)
        assert bodies(records) == numbers(50)
        assert offsets(records) == list(range(50))
        assert {record.properties.content_type for record in records} == {"text/plain"}
        assert all(record.headers["a"] == 1 for record in records)
        assert not any(record.redelivered for record in records)
        assert {record.routing_key for record in records} == {stream}


@pytest.mark.leveret_only
def test_deliveries_tell_their_partition(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel, partitions=2)
    fill(scene, stream, numbers(4))
    assert sorted(partitions(read(channel, stream, 4))) == [0, 0, 1, 1]


def test_a_stream_counts_its_records(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(7))
    read(channel, stream, 3)
    eventually(lambda: channel.count(stream) == 7, "the count of seven")


def test_records_with_empty_and_large_bodies_come_whole(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    payloads = [b"", b"x" * 300_000, b"", b"small", bytes(131_072 - 8), bytes(131_072 - 7)]
    fill(scene, stream, payloads)
    assert bodies(read(channel, stream, len(payloads))) == payloads


@pytest.mark.leveret_only  # RabbitMQ 3.10 does not
def test_properties_of_all_kinds_pass_through(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    given: dict[str, Any] = {
        "content_type": "a/b",
        "content_encoding": "utf-8",
        "headers": {"text": "t", "number": 3, "table": {"n": [1, "x", None]}},
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "reply_to": "r",
        "message_id": "m",
        "timestamp": datetime(2024, 2, 29, tzinfo=UTC),
        "message_type": "kind",
        "app_id": "app",
    }
    fill(scene, stream, [b"all"], **given)
    fill(scene, stream, [b"none"])
    both = read(channel, stream, 2)
    for name, value in given.items():
        if name != "headers":
            assert getattr(both[0].properties, name) == value, name
    assert given["headers"].items() <= both[0].headers.items()
    assert both[1].properties.content_type is None
    assert offsets(both) == [0, 1]


@pytest.mark.leveret_only
def test_a_record_that_is_published_again_gets_its_new_place(
    scene: Scene, channel: WireChannel
) -> None:
    one, other = declare_stream(scene, channel), declare_stream(scene, channel)
    fill(scene, one, numbers(3))
    last = read(channel, one, 3)[-1]
    fill(scene, other, [last.body], headers=last.headers)
    again = read(channel, other, 1)
    assert offsets(again) == [0]
    assert set(again[0].headers) == {"x-stream-offset", "x-stream-partition"}


def test_a_reader_at_the_end_gets_what_is_published_then(
    scene: Scene, channel: WireChannel
) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(5))
    channel.qos(10)
    channel.consume(stream)
    fill(scene, stream, [b"new"])
    record = channel.delivery()
    assert (record.body, offsets([record])) == (b"new", [5])


# Keys and partitions


@pytest.mark.leveret_only
def test_a_key_decides_the_partition_as_sparks_crc32_does(
    scene: Scene, channel: WireChannel
) -> None:
    stream = declare_stream(scene, channel, partitions=5)
    publishing = Publishing(scene.channel())
    keys = [f"key{number}" for number in range(40)]
    for key in keys:
        publishing.publish("", stream, key.encode(), headers={"x-partition-key": key})
    for record in read(channel, stream, 40):
        assert partitions([record]) == [crc32(record.body) % 5]


@pytest.mark.leveret_only
@pytest.mark.parametrize("key", ["text", 7, True])
def test_a_key_may_stand_among_other_headers_and_be_no_text(
    scene: Scene, channel: WireChannel, key: object
) -> None:
    stream = declare_stream(scene, channel, partitions=7)
    fill(scene, stream, [b"x"], headers={"a": "x-partition-key", "x-partition-key": key, "z": 1})
    assert partitions(read(channel, stream, 1)) == [crc32(str(key).encode()) % 7]


@pytest.mark.leveret_only
def test_the_routing_key_counts_where_it_came_through_an_exchange(
    scene: Scene, channel: WireChannel
) -> None:
    stream = declare_stream(scene, channel, partitions=5)
    exchange = scene.exchange(channel, "topic")
    channel.bind(stream, exchange, "#")
    publishing = Publishing(scene.channel())
    for number in range(20):
        publishing.publish(exchange, f"k.{number}", b"k.%d" % number)
    records = read(channel, stream, 20)
    assert partitions(records) == [crc32(body) % 5 for body in bodies(records)]


@pytest.mark.leveret_only
def test_records_without_a_key_go_round(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel, partitions=4)
    fanout = scene.exchange(channel, "fanout")
    channel.bind(stream, fanout)
    fill(scene, stream, numbers(10))
    Publishing(scene.channel()).publish(fanout, "", *numbers(10, 10))
    records = read(channel, stream, 20)
    assert Counter(partitions(records)) == dict.fromkeys(range(4), 5)
    for number in range(4):
        mine = [r for r in records if partitions([r]) == [number]]
        assert offsets(mine) == list(range(5))
        assert bodies(mine) == [b"%d" % n for n in range(number, 20, 4)]


@pytest.mark.leveret_only
def test_records_of_a_key_stay_in_order(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel, partitions=3)
    publishing = Publishing(scene.channel())
    for number in range(60):
        headers = {"x-partition-key": f"k{number % 6}"} if number % 7 else {}
        publishing.send("", stream, b"%d" % number, headers=headers)
    publishing.wait()
    by_key: dict[str, list[int]] = {}
    for record in read(channel, stream, 60):
        by_key.setdefault(record.headers.get("x-partition-key", ""), []).append(int(record.body))
    assert all(found == sorted(found) for key, found in by_key.items() if key)
    assert len(by_key) == 7


@pytest.mark.leveret_only
def test_a_consumer_may_choose_its_partitions(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel, partitions=4)
    fill(scene, stream, numbers(12))
    records = read(channel, stream, 6, partitions=[3, 1])
    assert Counter(partitions(records)) == {1: 3, 3: 3}
    channel.assert_quiet(stream)


@pytest.mark.leveret_only
@pytest.mark.parametrize("wanted", [[], [4], [-1], ["0"], [1, 1], [True]], ids=str)
def test_partitions_that_are_not_there_cannot_be_chosen(
    scene: Scene, channel: WireChannel, wanted: list[object]
) -> None:
    stream = declare_stream(scene, channel, partitions=4)
    channel.qos(1)
    with pytest.raises(ChannelClosedError, match="x-stream-partitions"):
        channel.consume(stream, arguments={"x-stream-partitions": wanted})


@pytest.mark.leveret_only
def test_no_partition_waits_for_another(scene: Scene, channel: WireChannel) -> None:
    """One has thousands of records and the others a few: with little room, all get their turn."""
    stream = declare_stream(scene, channel, partitions=4)
    keys = {crc32(b"%d" % n) % 4: str(n) for n in range(64)}
    fill(scene, stream, numbers(3000), headers={"x-partition-key": keys[2]})
    for partition in (0, 1, 3):
        fill(scene, stream, numbers(3), headers={"x-partition-key": keys[partition]})
    channel.qos(1)
    channel.consume(stream, arguments={"x-stream-offset": "first"})
    seen: list[int] = []
    for _ in range(12):
        record = channel.delivery()
        seen += partitions([record])
        channel.ack(record.delivery_tag)
    assert Counter(seen) == dict.fromkeys(range(4), 3)


# Where to begin


@pytest.mark.parametrize(("offset", "first"), [("first", 0), ("last", 9), (4, 4), (0, 0)], ids=str)
def test_a_reader_begins_where_it_says(
    scene: Scene, channel: WireChannel, offset: object, first: int
) -> None:
    stream = declare_stream(scene, channel)
    publishing = Publishing(scene.channel())
    for payload in numbers(10):
        publishing.publish("", stream, payload)
    assert offsets(read(channel, stream, 10 - first, offset)) == list(range(first, 10))


def test_a_reader_ahead_of_the_stream_waits_for_its_offset(
    scene: Scene, channel: WireChannel
) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(3))
    channel.qos(10)
    channel.consume(stream, arguments={"x-stream-offset": 7})
    fill(scene, stream, numbers(6, 3))
    assert offsets(channel.deliveries(2)) == [7, 8]


def test_a_reader_begins_at_a_time(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(3))
    now = datetime.now(UTC)
    assert len(read(channel, stream, 3, now - timedelta(hours=1))) == 3
    channel.qos(10)
    channel.consume(stream, arguments={"x-stream-offset": now + timedelta(hours=1)})
    fill(scene, stream, [b"later"])
    assert channel.delivery().body == b"later"


@pytest.mark.leveret_only
def test_a_time_falls_between_records(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel, partitions=2)
    fill(scene, stream, numbers(4))
    between = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    # A second on either side, since the broker has a clock of its own.
    later = between + timedelta(seconds=1)
    eventually(lambda: datetime.now(UTC) > later, "three seconds to pass")
    fill(scene, stream, [b"new", b"newer"])
    assert sorted(bodies(read(channel, stream, 2, between))) == [b"new", b"newer"]


@pytest.mark.parametrize("ago", ["1h", "7D", "1Y"])
def test_a_reader_begins_so_long_ago(scene: Scene, channel: WireChannel, ago: str) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(3))
    assert len(read(channel, stream, 3, ago)) == 3


@pytest.mark.leveret_only
@pytest.mark.parametrize("offset", ["sometime", "7", -1, True, 1.5, None], ids=str)
def test_a_beginning_without_meaning_is_refused(
    scene: Scene, channel: WireChannel, offset: object
) -> None:
    stream = declare_stream(scene, channel)
    channel.qos(1)
    with pytest.raises(ChannelClosedError, match="x-stream-offset"):
        channel.consume(stream, arguments={"x-stream-offset": offset})


# Filters


@pytest.mark.leveret_only
def test_a_filter_lets_through_what_has_all_its_headers(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel, partitions=2)
    publishing = Publishing(scene.channel())
    for number in range(40):
        headers: dict[str, Any] = {"color": ("red", "blue")[number % 2], "size": number % 4}
        publishing.publish("", stream, b"%d" % number, headers=headers)
        publishing.publish("", stream, b"plain")
    channel.qos(3)
    wanted = {"color": "red", "size": 2}
    tag = channel.consume(stream, arguments={"x-stream-offset": "first", "x-stream-filter": wanted})
    got = []
    for _ in range(10):
        got.append(channel.delivery())
        channel.ack(got[-1].delivery_tag)
    channel.cancel(tag)
    assert sorted(int(body) for body in bodies(got)) == list(range(2, 40, 4))
    channel.assert_quiet(stream)


@pytest.mark.leveret_only
def test_a_filter_knows_a_number_however_it_is_written(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    for value in (5, 2**40, True, "5", 5.0):
        fill(scene, stream, [str(value).encode()], headers={"n": value})
    arguments = {"x-stream-offset": "first", "x-stream-filter": {"n": 5}}
    channel.qos(10)
    channel.consume(stream, arguments=arguments)
    assert bodies(channel.deliveries(2)) == [b"5", b"5.0"]
    channel.assert_quiet(stream)


@pytest.mark.leveret_only
@pytest.mark.parametrize("wanted", ["red", {}, {"a": [1]}], ids=str)
def test_a_filter_is_a_table_of_plain_values(
    scene: Scene, channel: WireChannel, wanted: object
) -> None:
    stream = declare_stream(scene, channel)
    channel.qos(1)
    with pytest.raises(ChannelClosedError, match="x-stream-filter"):
        channel.consume(stream, arguments={"x-stream-filter": wanted})


# Credit


def test_a_consumer_gets_no_more_than_its_prefetch(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(20))
    channel.qos(4)
    channel.consume(stream, arguments={"x-stream-offset": "first"})
    held = channel.deliveries(4)
    channel.assert_quiet(stream)
    channel.ack(held[2].delivery_tag)  # in any order
    assert offsets([channel.delivery()]) == [4]
    channel.ack(held[1].delivery_tag, multiple=True)
    assert offsets(channel.deliveries(2)) == [5, 6]
    channel.assert_quiet(stream)


@pytest.mark.parametrize("requeue", [True, False])
def test_a_refused_record_is_as_good_as_acked(
    scene: Scene, channel: WireChannel, requeue: bool
) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(6))
    channel.qos(2)
    channel.consume(stream, arguments={"x-stream-offset": "first"})
    one, other = channel.deliveries(2)
    channel.nack(one.delivery_tag, requeue=requeue)
    channel.reject(other.delivery_tag, requeue=requeue)
    assert offsets(channel.deliveries(2)) == [2, 3]


def test_a_tag_cannot_be_acked_twice(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(2))
    channel.qos(1)
    channel.consume(stream, arguments={"x-stream-offset": "first"})
    tag = channel.delivery().delivery_tag
    channel.ack(tag)
    channel.ack(tag)
    channel.expect_close(406, "unknown delivery tag")


@pytest.mark.leveret_only
def test_credit_that_a_channel_shares_holds_for_streams_too(
    scene: Scene, channel: WireChannel
) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(10))
    channel.qos(5)
    channel.qos(3, global_=True)
    channel.consume(stream, arguments={"x-stream-offset": "first"})
    held = channel.deliveries(3)
    channel.assert_quiet(stream)
    channel.ack(held[0].delivery_tag)
    assert offsets([channel.delivery()]) == [3]


@pytest.mark.leveret_only  # RabbitMQ 3.10 does not
def test_acks_in_a_transaction_count_when_it_commits(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(4))
    channel.rpc(Tx.Select())
    channel.qos(2)
    channel.consume(stream, arguments={"x-stream-offset": "first"})
    held = channel.deliveries(2)
    channel.ack(held[1].delivery_tag, multiple=True)
    channel.publish("", stream, b"in the transaction")
    channel.assert_quiet(stream)
    channel.rpc(Tx.Commit())
    assert offsets(channel.deliveries(2)) == [2, 3]
    eventually(lambda: channel.count(stream) == 5, "the committed record")


# What streams do not do


@pytest.mark.parametrize(
    "mistake",
    [
        lambda name: unvalidated(Basic.Get, queue=name),
        lambda name: unvalidated(Queue.Purge, queue=name),
        lambda name: unvalidated(Basic.Consume, queue=name, no_ack=True),
    ],
    ids=["get", "purge", "no-ack"],
)
def test_what_takes_records_away_is_not_implemented(
    scene: Scene, channel: WireChannel, mistake: Any
) -> None:
    stream = declare_stream(scene, channel)
    channel.qos(1)
    channel.send(mistake(stream))
    channel.conn.expect_close(540)


def test_a_consumer_without_prefetch_is_refused(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    with pytest.raises(ChannelClosedError, match="prefetch count is not set"):
        channel.consume(stream)


# Consumers come and go


def test_exclusive_consumers_do_not_keep_others_out(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, [b"x"])
    for reader in (channel, scene.channel()):
        reader.qos(1)
        reader.consume(stream, exclusive=True, arguments={"x-stream-offset": "first"})
        assert reader.delivery().body == b"x"


def test_nothing_comes_after_cancel_and_the_rest_may_be_acked(
    scene: Scene, channel: WireChannel
) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(10))
    channel.qos(2)
    tag = channel.consume(stream, arguments={"x-stream-offset": "first"})
    held = channel.deliveries(2)
    channel.cancel(tag)
    for record in held:
        channel.ack(record.delivery_tag)
    channel.assert_quiet(stream)
    assert channel.declare_queue(stream, passive=True).consumer_count == 0


def test_a_lost_reader_leaves_the_stream_as_it_was(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(5))
    lost = scene.channel()
    lost.qos(3)
    lost.consume(stream, arguments={"x-stream-offset": "first"})
    lost.deliveries(3)
    lost.conn.abort()
    eventually(
        lambda: channel.declare_queue(stream, passive=True).consumer_count == 0, "the reader to go"
    )
    records = read(channel, stream, 5)
    assert offsets(records) == list(range(5))
    assert not any(record.redelivered for record in records)


def test_deleting_a_stream_tells_its_consumers(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(3))
    reader = scene.channel()
    reader.qos(5)
    tag = reader.consume(stream, arguments={"x-stream-offset": "first"})
    held = reader.deliveries(3)
    channel.rpc(Queue.Delete(queue=stream))
    assert reader.expect(Basic.Cancel).consumer_tag == tag
    reader.ack(held[-1].delivery_tag, multiple=True)
    with pytest.raises(ChannelClosedError, match="no queue"):
        reader.count(stream)


def test_a_stream_of_the_same_name_begins_anew(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    fill(scene, stream, numbers(3))
    channel.rpc(Queue.Delete(queue=stream))
    channel.declare_queue(stream, durable=True, arguments=STREAM)
    fill(scene, stream, [b"new"])
    records = read(channel, stream, 1)
    assert (offsets(records), bodies(records)) == ([0], [b"new"])


@pytest.mark.leveret_only
def test_delete_minds_whether_a_stream_is_used_or_empty(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    reader = scene.channel()
    reader.qos(1)
    tag = reader.consume(stream)
    with pytest.raises(ChannelClosedError, match="in use"):
        channel.rpc(Queue.Delete(queue=stream, if_unused=True))
    reader.cancel(tag)
    fill(scene, stream, numbers(2))
    channel = channel.conn.open_channel()
    with pytest.raises(ChannelClosedError, match="not empty"):
        channel.rpc(Queue.Delete(queue=stream, if_empty=True))
    channel = channel.conn.open_channel()
    assert channel.rpc(Queue.Delete(queue=stream, if_unused=True)).message_count == 2


# Exchanges


def test_a_stream_may_be_bound_and_unbound(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    exchange = scene.exchange(channel)
    channel.bind(stream, exchange, "k")
    publishing = Publishing(scene.channel())
    publishing.publish(exchange, "k", b"bound")
    channel.rpc(Queue.Unbind(queue=stream, exchange=exchange, routing_key="k"))
    publishing.publish(exchange, "k", b"unbound")
    channel.bind(stream, exchange, "other")
    publishing.publish(exchange, "other", b"bound again")
    assert bodies(read(channel, stream, 2)) == [b"bound", b"bound again"]


def test_a_fanout_to_queue_and_stream_is_confirmed_by_both(
    scene: Scene, channel: WireChannel
) -> None:
    stream, queue = declare_stream(scene, channel), scene.queue(channel, durable=True)
    exchange = scene.exchange(channel, "fanout")
    for name in (stream, queue):
        channel.bind(name, exchange)
    Publishing(scene.channel()).publish(exchange, "", *numbers(20))
    assert channel.count(queue) == 20
    assert bodies(read(channel, stream, 20)) == numbers(20)


@pytest.mark.leveret_only  # RabbitMQ 3.10 does not
def test_dead_letters_may_go_to_a_stream(scene: Scene, channel: WireChannel) -> None:
    stream = declare_stream(scene, channel)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": stream}
    queue = scene.queue(channel, durable=True, arguments=dead)
    Publishing(scene.channel()).publish("", queue, b"doomed")
    channel.reject(channel.get(queue).delivery_tag, requeue=False)
    (letter,) = read(channel, stream, 1)
    assert letter.body == b"doomed"
    assert letter.headers["x-death"][0]["queue"] == queue


def test_a_reader_that_does_not_read_gets_everything_in_the_end(
    scene: Scene, channel: WireChannel
) -> None:
    """More than fits into any buffer, and no ack before all of it has come."""
    stream = declare_stream(scene, channel)
    payloads = [b"%06d" % n + bytes(20_000) for n in range(600)]
    fill(scene, stream, payloads)
    channel.qos(1000)
    channel.consume(stream, arguments={"x-stream-offset": "first"})
    scene.channel().count(stream)  # the broker serves others, whatever this one does
    time.sleep(0.2)  # lets the buffers fill; too short a time only makes the test easier
    records = channel.deliveries(600)
    assert offsets(records) == list(range(600))
    assert bodies(records) == payloads


def test_a_connection_may_publish_to_and_read_the_same_stream(
    scene: Scene, connection: Any
) -> None:
    sender, reader = connection.open_channel(), connection.open_channel()
    stream = declare_stream(scene, sender)
    reader.qos(2)
    reader.consume(stream, arguments={"x-stream-offset": "first"})
    publishing = Publishing(sender)
    for number in range(30):
        publishing.publish("", stream, b"%d" % number)
        record = reader.delivery()
        assert record.body == b"%d" % number
        reader.ack(record.delivery_tag)
