"""A channel's requests see what the channel published before them, confirmed or not."""

import pytest

from tests.semantics.stage import Stage
from tests.support.frames import Basic, Queue
from tests.support.wire import ChannelClosedError

ROUNDS = 20  # each of them may be lucky
BODIES = [b"%d" % n for n in range(5)]


def publish(stage: Stage, queue: str) -> None:
    """One after the other, without waiting for anything."""
    for body in BODIES:
        stage.channel.publish("", queue, body, delivery_mode=2)


def test_a_get_sees_what_was_published_before_it(stage: Stage) -> None:
    queue = stage.queue()
    for _ in range(ROUNDS):
        publish(stage, queue)
        for left, body in zip(reversed(range(len(BODIES))), BODIES, strict=True):
            content = stage.channel.get(queue, no_ack=True)
            assert content is not None
            assert (content.body, content.method.message_count) == (body, left)
        assert stage.channel.get(queue) is None


def test_gets_that_were_sent_without_waiting_see_it_too(stage: Stage) -> None:
    queue = stage.queue()
    for _ in range(ROUNDS):
        for body in BODIES:
            stage.channel.publish("", queue, body, delivery_mode=2)
            stage.channel.send(Basic.Get(queue=queue, no_ack=True))
        assert [stage.channel.expect(Basic.GetOk).body for _ in BODIES] == BODIES


def test_a_purge_takes_all_that_was_published_before_it(stage: Stage) -> None:
    queue = stage.queue()
    for _ in range(ROUNDS):
        publish(stage, queue)
        assert stage.channel.rpc(Queue.Purge(queue=queue)).message_count == len(BODIES)
        assert stage.channel.get(queue) is None


@pytest.mark.parametrize("passive", [True, False])
def test_a_declare_counts_what_was_published_before_it(stage: Stage, *, passive: bool) -> None:
    for _ in range(ROUNDS):
        queue = stage.queue()
        publish(stage, queue)
        if passive:
            assert stage.channel.count(queue) == len(BODIES)
        else:
            assert stage.declare(queue).message_count == len(BODIES)


def test_a_delete_counts_what_was_published_before_it(stage: Stage) -> None:
    for _ in range(ROUNDS):
        queue = stage.queue()
        publish(stage, queue)
        assert stage.channel.rpc(Queue.Delete(queue=queue)).message_count == len(BODIES)


def test_a_queue_is_not_deleted_as_empty_that_was_published_to(stage: Stage) -> None:
    queue = stage.queue()
    publish(stage, queue)
    with pytest.raises(ChannelClosedError, match="not empty"):
        stage.channel.rpc(Queue.Delete(queue=queue, if_empty=True))


def test_publishes_through_an_exchange_and_to_another_queue_count_as_well(stage: Stage) -> None:
    queue, other = stage.queue(), stage.queue()
    stage.channel.bind(queue, "amq.fanout")
    stage.channel.bind(other, "amq.fanout")
    for _ in range(ROUNDS):
        stage.channel.publish("amq.fanout", "", b"a", delivery_mode=2)
        assert stage.channel.count(queue) == 1
        assert stage.channel.rpc(Queue.Purge(queue=other)).message_count == 1
        assert stage.channel.rpc(Queue.Purge(queue=queue)).message_count == 1
