"""Message bodies over many frames, channels in number, and frames on closing channels."""

import struct
from typing import Any

import pytest

from tests.support.frames import Basic, Channel, Connection, Properties, Queue, raw_body, raw_header
from tests.support.scene import Scene
from tests.support.wire import WireChannel

PATTERN = bytes(range(256)) * 16


def body_of(size: int) -> bytes:
    return (PATTERN * (size // len(PATTERN) + 1))[:size]


@pytest.mark.parametrize(
    "size", [0, 1, 4087, 4088, 4089, 8176, 131063, 131064, 131065, 1_000_000, 4_000_000]
)
@pytest.mark.parametrize(("publisher_max", "consumer_max"), [(4096, 131072), (131072, 4096)])
def test_a_body_of_any_size_crosses_different_frame_sizes(
    scene: Scene, size: int, publisher_max: int, consumer_max: int
) -> None:
    reader = scene.channel(frame_max=consumer_max)
    queue = scene.queue(reader, auto_delete=True)
    reader.consume(queue, no_ack=True)
    writer = scene.channel(frame_max=publisher_max)
    writer.publish("", queue, body_of(size))
    got = reader.delivery()
    assert got.body == body_of(size)
    assert reader.conn.largest_frame <= consumer_max


def test_a_large_message_can_be_got_and_returned_in_small_frames(scene: Scene) -> None:
    channel = scene.channel(frame_max=4096)
    queue = scene.queue(channel, exclusive=True)
    channel.publish("", queue, body_of(100_000))
    assert channel.get(queue).body == body_of(100_000)
    channel.publish("", "nowhere", body_of(100_000), mandatory=True)
    assert channel.expect(Basic.Return).body == body_of(100_000)
    assert channel.conn.largest_frame <= 4096


def test_a_body_may_be_cut_into_frames_of_any_size(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.send(Basic.Publish(routing_key=queue))
    channel.send_raw(raw_header(channel.number, 6))
    for piece in (b"a", b"", b"bc", b"def"):
        channel.send_raw(raw_body(channel.number, piece))
    assert channel.get(queue).body == b"abcdef"


def test_channels_may_interleave_their_content(scene: Scene, connection: Any) -> None:
    one, other = connection.open_channel(), connection.open_channel()
    queue = scene.queue(one, exclusive=True)
    one.send(Basic.Publish(routing_key=queue))
    other.send(Basic.Publish(routing_key=queue))
    one.send_raw(raw_header(one.number, 4) + raw_body(one.number, b"on"))
    other.send_raw(raw_header(other.number, 5) + raw_body(other.number, b"other"))
    other.settle(queue)
    one.send_raw(raw_body(one.number, b"e!"))
    one.settle(queue)
    assert one.get_all(queue) == [b"other", b"one!"]


def test_every_property_arrives_as_sent(scene: Scene, channel: WireChannel) -> None:
    queue = scene.queue(channel, exclusive=True)
    sent = Properties(
        content_type="application/json",
        content_encoding="gzip",
        headers={"s": "text", "n": 5, "neg": -7, "big": 2**40, "t": True, "l": [1, "a", {"x": 1}]},
        delivery_mode=2,
        priority=7,
        correlation_id="corr",
        reply_to="reply",
        expiration="60000",
        message_id="id",
        message_type="type",
        user_id="guest",
        app_id="app",
    )
    values = {name: value for name, value in sent if value not in (None, "")}
    channel.publish("", queue, b"x", **values)
    got = channel.get(queue).properties
    assert {name: getattr(got, name) for name in values} == values


def test_all_2047_channels_can_be_open_at_once(scene: Scene) -> None:
    conn = scene.connect()
    channels = [WireChannel(conn, number) for number in range(1, 2048)]
    for channel in channels:
        channel.send(Channel.Open())
    for channel in channels:
        channel.expect(Channel.OpenOk)
    queue = scene.queue(channels[0], exclusive=True)
    for channel in channels:
        channel.publish("", queue, struct.pack(">H", channel.number))
    for channel in channels:
        channel.rpc(Channel.Flow(active=True))
    bodies = channels[-1].get_all(queue)
    assert sorted(bodies) == [struct.pack(">H", number) for number in range(1, 2048)]


def test_a_channel_number_can_be_used_again_after_close(scene: Scene) -> None:
    conn = scene.connect()
    for _ in range(50):
        channel = conn.open_channel(7)
        channel.qos(1)
        channel.close()


def test_a_channel_number_can_be_used_again_after_the_broker_closed_it(scene: Scene) -> None:
    conn = scene.connect()
    for _ in range(20):
        channel = conn.open_channel(3)
        channel.ack(1)
        channel.expect_close(406)


def test_frames_on_a_channel_the_broker_is_closing_are_discarded(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel)
    channel.ack(99)
    for number in range(20):
        channel.publish("", queue, b"%d" % number)
    channel.send(Queue.Delete(queue=queue))
    channel.send(Basic.Get(queue=queue))
    channel.expect_close(406)
    fresh = channel.conn.open_channel()
    assert fresh.count(queue) == 0
    assert not channel.pending()


def test_a_close_crossing_the_brokers_close_is_answered(scene: Scene, channel: WireChannel) -> None:
    channel.ack(99)
    channel.send(Channel.Close(200, "", 0, 0))
    channel.expect(Channel.Close)
    channel.expect(Channel.CloseOk)
    channel.send(Channel.CloseOk())
    channel.conn.open_channel(channel.number).qos(1)


def test_closing_one_channel_leaves_the_others_alone(scene: Scene, connection: Any) -> None:
    one, other = connection.open_channel(), connection.open_channel()
    queue = scene.queue(other, exclusive=True)
    other.consume(queue)
    one.ack(1)
    one.expect_close(406)
    other.publish("", queue, b"fine")
    assert other.delivery().body == b"fine"


def test_flow_that_starts_the_broker_is_answered(channel: WireChannel) -> None:
    assert channel.rpc(Channel.Flow(active=True)).active is True


@pytest.mark.parametrize("size", [4088, 4089, 4096])
def test_a_frame_whose_payload_is_as_long_as_frame_max_is_accepted(scene: Scene, size: int) -> None:
    channel = scene.channel(frame_max=4096)
    queue = scene.queue(channel, exclusive=True)
    channel.send(Basic.Publish(routing_key=queue))
    channel.send_raw(raw_header(channel.number, size) + raw_body(channel.number, bytes(size)))
    assert channel.get(queue).body == bytes(size)
    assert channel.conn.largest_frame <= 4096


@pytest.mark.leveret_only
def test_a_message_over_the_limit_closes_the_channel(start_broker: Any) -> None:
    scene = Scene(start_broker("--message-bytes-max", "1000").amqp_url())
    channel = scene.channel()
    queue = scene.queue(channel)
    channel.publish("", queue, bytes(1000))
    assert len(channel.get(queue).body) == 1000
    channel.publish("", queue, bytes(1001))
    channel.expect_close(406, "message size 1001 is larger than")
    channel.conn.send(Connection.Close(200, "", 0, 0))
    channel.conn.expect(Connection.CloseOk)
    scene.clean_up()
