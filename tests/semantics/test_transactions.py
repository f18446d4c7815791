"""tx: publishes and acks that count only when committed."""

import pytest

from tests.support.frames import Basic, Tx
from tests.support.scene import Scene
from tests.support.wire import WireChannel


@pytest.fixture
def transaction(channel: WireChannel) -> WireChannel:
    channel.rpc(Tx.Select())
    return channel


def test_publishes_are_seen_after_commit_only(scene: Scene, transaction: WireChannel) -> None:
    queue = scene.queue(transaction)
    transaction.publish_all(queue, [b"1", b"2"])
    assert transaction.count(queue) == 0
    transaction.rpc(Tx.Commit())
    assert transaction.get_all(queue) == [b"1", b"2"]


def test_rollback_forgets_publishes(scene: Scene, transaction: WireChannel) -> None:
    queue = scene.queue(transaction)
    transaction.publish("", queue, b"never")
    transaction.rpc(Tx.Rollback())
    transaction.publish("", queue, b"then")
    transaction.rpc(Tx.Commit())
    assert transaction.get_all(queue) == [b"then"]


def test_closing_the_channel_rolls_back(scene: Scene, transaction: WireChannel) -> None:
    queue = scene.queue(transaction)
    transaction.publish("", queue, b"never")
    transaction.close()
    assert transaction.conn.open_channel().count(queue) == 0


def test_acks_count_after_commit_only(scene: Scene, transaction: WireChannel) -> None:
    queue = scene.queue(transaction)
    transaction.publish_all(queue, [b"1", b"2"])
    transaction.rpc(Tx.Commit())
    transaction.ack(transaction.get(queue).delivery_tag)
    transaction.rpc(Tx.Commit())
    transaction.ack(transaction.get(queue).delivery_tag)
    transaction.close()
    fresh = transaction.conn.open_channel()
    fresh.settle(queue)
    assert fresh.get_all(queue) == [b"2"]


def test_rollback_forgets_acks_but_does_not_requeue(scene: Scene, transaction: WireChannel) -> None:
    queue = scene.queue(transaction)
    transaction.publish("", queue, b"1")
    transaction.rpc(Tx.Commit())
    tag = transaction.get(queue).delivery_tag
    transaction.ack(tag)
    transaction.rpc(Tx.Rollback())
    assert transaction.count(queue) == 0
    transaction.ack(tag)
    transaction.rpc(Tx.Commit())
    transaction.close()
    assert transaction.conn.open_channel().count(queue) == 0


def test_rejects_wait_for_commit(scene: Scene, transaction: WireChannel) -> None:
    queue = scene.queue(transaction)
    transaction.publish("", queue, b"1")
    transaction.rpc(Tx.Commit())
    transaction.reject(transaction.get(queue).delivery_tag, requeue=True)
    assert transaction.count(queue) == 0
    transaction.rpc(Tx.Commit())
    transaction.settle(queue)
    assert transaction.count(queue) == 1


def test_an_unroutable_mandatory_message_is_returned_before_commit_ok(
    transaction: WireChannel,
) -> None:
    transaction.publish("", "nowhere", b"x", mandatory=True)
    transaction.send(Tx.Commit())
    assert transaction.expect(Basic.Return).reply_code == 312
    transaction.expect(Tx.CommitOk)


def test_an_empty_commit_and_rollback_are_fine(transaction: WireChannel) -> None:
    transaction.rpc(Tx.Commit())
    transaction.rpc(Tx.Rollback())
    transaction.rpc(Tx.Select())


def test_an_unknown_tag_fails_at_once_and_not_at_commit(transaction: WireChannel) -> None:
    transaction.ack(5)
    transaction.expect_close(406, "unknown delivery tag 5")


def test_a_missing_exchange_fails_at_once_and_not_at_commit(
    scene: Scene, transaction: WireChannel
) -> None:
    queue = scene.queue(transaction)
    transaction.publish("", queue, b"lost with the channel")
    transaction.publish(scene.exchange_name(), "k")
    transaction.expect_close(404, "no exchange")
    assert transaction.conn.open_channel(1).count(queue) == 0
