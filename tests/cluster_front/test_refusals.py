"""What a front refuses reaches whoever published it, however far the message had come."""

from functools import partial
from types import SimpleNamespace

import pytest
import trio

from broker.cluster.front import MINORITY_MS
from broker.replay import Undertaker
from broker.sqs.sending import Sent, _publish
from tests.cluster_front.world import World, message
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
