"""Limits of a broker that was given small ones: each is told in words, and hurts nobody else."""

from collections.abc import Iterator

import pytest
from pamqp import frame

from tests.support.frames import Basic, Confirm, Properties, Queue, content_bytes
from tests.support.process import BrokerProcess
from tests.support.scene import Scene
from tests.support.wire import ChannelClosedError, ConnectionClosedError, WireChannel

pytestmark = pytest.mark.leveret_only

QUEUES_MAX = 3
UNACKED_MAX = 5
CHANNEL_MAX = 4
RATE = 10
FLAGS = {
    "queues-max": QUEUES_MAX,
    "unacked-max": UNACKED_MAX,
    "publish-rate": RATE,
}


@pytest.fixture(scope="module")
def small_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    flags = [text for name, limit in FLAGS.items() for text in (f"--{name}", str(limit))]
    process = BrokerProcess(tmp_path_factory.mktemp("small"), *flags)
    yield process
    process.assert_sound()
    assert process.stop() == 0, process.log_text()


@pytest.fixture
def scene(small_broker: BrokerProcess) -> Iterator[Scene]:
    scene = Scene(small_broker.amqp_url())
    yield scene
    scene.clean_up()


@pytest.fixture
def channel(scene: Scene) -> WireChannel:
    return scene.channel()


def filled_queue(scene: Scene, channel: WireChannel, count: int) -> str:
    queue = scene.queue(channel, exclusive=True)
    channel.publish_all(queue, [b"%d" % number for number in range(count)])
    return queue


def delivered(channel: WireChannel, queue: str) -> list[int]:
    """Numbers of all that arrives before the broker stops sending."""
    channel.settle(queue)
    return [int(content.body) for content in channel.deliveries(len(channel.pending()))]


def test_a_queue_over_the_limit_closes_the_channel(scene: Scene, channel: WireChannel) -> None:
    names = [scene.queue(channel) for _ in range(QUEUES_MAX)]
    again = scene.channel()
    with pytest.raises(ChannelClosedError) as refusal:
        channel.declare_queue("one-more")
    assert refusal.value.method.reply_code == 406
    assert refusal.value.method.reply_text == (
        "PRECONDITION_FAILED - cannot declare queue 'one-more' in vhost '/': "
        f"queue limit in vhost '/' ({QUEUES_MAX}) is reached"
    )
    again.declare_queue(names[0])  # it is there: that is no declaration of one more
    again.rpc(Queue.Delete(queue=names[0]))
    again.declare_queue(names[0])


def test_a_channel_without_prefetch_holds_no_more_than_the_limit(
    scene: Scene, channel: WireChannel
) -> None:
    queue = filled_queue(scene, channel, 9)
    channel.consume(queue)
    assert delivered(channel, queue) == [0, 1, 2, 3, 4]
    channel.ack(2, multiple=True)
    assert delivered(channel, queue) == [5, 6]
    channel.reject(3, requeue=True)
    assert delivered(channel, queue) == [2]
    channel.ack(0, multiple=True)
    assert delivered(channel, queue) == [7, 8]


def test_consumers_of_one_channel_share_the_limit_and_all_go_on_after_an_ack(
    scene: Scene, channel: WireChannel
) -> None:
    one, two = filled_queue(scene, channel, 5), filled_queue(scene, channel, 5)
    channel.consume(one, "one")
    channel.consume(two, "two")
    assert delivered(channel, two) == [0, 1, 2, 3, 4]
    channel.ack(5, multiple=True)
    assert delivered(channel, two) == [0, 1, 2, 3, 4]


def test_a_consumer_that_does_not_ack_is_not_limited(scene: Scene, channel: WireChannel) -> None:
    queue = filled_queue(scene, channel, 9)
    channel.consume(queue, no_ack=True)
    assert len(delivered(channel, queue)) == 9


def test_a_prefetch_under_the_limit_is_what_counts(scene: Scene, channel: WireChannel) -> None:
    queue = filled_queue(scene, channel, 9)
    channel.qos(2)
    channel.consume(queue)
    assert delivered(channel, queue) == [0, 1]


def test_a_get_over_the_limit_closes_the_channel_and_all_comes_back(
    scene: Scene, channel: WireChannel
) -> None:
    queue = filled_queue(scene, channel, 9)
    fetching = channel.conn.open_channel()
    for number in range(UNACKED_MAX):
        assert fetching.get(queue).body == b"%d" % number
    assert fetching.get(queue, no_ack=True).body == b"5"
    fetching.send(Basic.Get(queue=queue))
    fetching.expect_close(406, f"limit of unacked messages on a channel ({UNACKED_MAX})")
    assert channel.count(queue) == 8


def test_what_was_fetched_counts_for_consumers_of_the_channel_too(
    scene: Scene, channel: WireChannel
) -> None:
    queue = filled_queue(scene, channel, 9)
    first = channel.get(queue)
    channel.consume(queue)
    assert delivered(channel, queue) == [1, 2, 3, 4]
    channel.ack(first.delivery_tag)
    assert delivered(channel, queue) == [5]


def test_a_channel_over_the_limit_closes_the_connection(scene: Scene) -> None:
    conn = scene.connect(channel_max=CHANNEL_MAX)
    for _ in range(CHANNEL_MAX):
        conn.open_channel()
    with pytest.raises(ConnectionClosedError) as refusal:
        conn.open_channel()
    assert refusal.value.method.reply_code == 530
    assert f"has reached the negotiated channel_max ({CHANNEL_MAX})" in (
        refusal.value.method.reply_text
    )


def test_a_publisher_over_the_rate_waits_and_goes_on_with_the_rest(
    scene: Scene, channel: WireChannel
) -> None:
    queue = scene.queue(channel, exclusive=True)
    channel.rpc(Confirm.Select())
    bodies = [b"%d" % number for number in range(RATE + 3)]
    publishes = [
        content_bytes(channel.number, Basic.Publish(routing_key=queue), Properties(), body, 4096)
        for body in bodies
    ]
    qos = frame.marshal(Basic.Qos(prefetch_count=1), channel.number)
    channel.send_raw(b"".join(publishes) + qos)  # at once, so that it is read at once
    assert channel.expect(Basic.Ack).delivery_tag == RATE
    channel.expect(Basic.QosOk)  # the rest is held back, this is not
    while channel.expect(Basic.Ack).delivery_tag < len(bodies):
        pass
    assert channel.get_all(queue) == bodies
    assert channel.conn.pending(0) == []
