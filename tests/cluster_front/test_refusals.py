"""What a front refuses reaches whoever published it, however far the message had come."""

from functools import partial
from types import SimpleNamespace

import pytest
import trio

from broker.cluster.front import LEADERLESS_MS, MINORITY_MS
from broker.replay import Undertaker
from broker.sqs.sending import Sent, _publish
from tests.cluster_front.world import UID, World, message
from tests.queues.fakes import FakeContext, new_queue


@pytest.fixture
def world():
    world = World()
    world.elect(1)
    world.settle_down()
    return world


def strand(world):
    """The leader sees nobody, and knows in time that it leads no more."""
    for other in (2, 3):
        world.cut(1, other)
    world.group.step_down(1)
    world.settle_down(2 * MINORITY_MS)


def test_sqs_is_told_what_a_leader_took_and_could_not_keep(world):
    sent = [Sent(message(body), 1, {}) for body in (b"a", b"b")]
    told = []

    async def send():
        done = trio.Event()

        async def happens(when):
            when(done.set)
            strand(world)
            await done.wait()

        call = SimpleNamespace(
            http=SimpleNamespace(happens=happens), holders=SimpleNamespace(duplicates=None)
        )
        told.extend(await _publish(call, world.nodes[1].front, sent))

    trio.run(send)
    assert [refusal is not None for refusal in told] == [True, True]


def test_dead_letters_that_cannot_go_back_stay(world):
    letters = new_queue(FakeContext())
    letters.publish([message(b"a"), message(b"b")], None)
    done = []
    undertaker = Undertaker(SimpleNamespace(), letters)
    undertaker.move([0, 1], world.nodes[1].front, partial(done.append, True))
    strand(world)
    assert done
    assert (undertaker.refused, letters.ready, letters.unacked) == (2, 2, 0)


def depose(world):
    """All see each other, and nobody leads."""
    world.group.step_down(1)
    world.group.leader = None
    world.settle_down()


@pytest.mark.parametrize("node", [1, 2, 3])
def test_what_waits_for_a_leader_that_does_not_come_is_refused(world, node):
    depose(world)
    receipt = world.publish(node, [b"a"])
    world.settle_down(LEADERLESS_MS // 2)
    assert not receipt.told, "an election may take that long"
    world.settle_down(LEADERLESS_MS)
    assert receipt.refused == {b"a"}
    assert world.publish(node, [b"b"]).refused == {b"b"}, "at once, now that this is known"
    world.elect(2)
    world.settle_down()
    late = world.publish(node, [b"c"])
    world.settle_down()
    assert (late.told, late.refused) == (1, set())
    assert not any(node.fronts.pending_bytes for node in world.nodes.values())


def test_a_leader_that_turns_everybody_away_is_none(world):
    """It is said to lead and does not: the home node of a queue that is damaged there."""
    depose(world)
    world.nodes[3].book.heard(UID, 9, 2)
    receipt = world.publish(3, [b"a"])
    world.settle_down(2 * LEADERLESS_MS)
    assert receipt.refused == {b"a"}
    assert world.publish(3, [b"b"]).refused == {b"b"}
    world.group.term = 9
    world.elect(2)
    world.settle_down(1000)
    late = world.publish(3, [b"c"])
    world.settle_down(1000)
    assert (late.told, late.refused) == (1, set())
