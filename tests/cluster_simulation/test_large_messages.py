"""Messages far larger than what a link likes to have in line pass through a whole cluster.

The limits are scaled down: eight megabytes are to them what half a gigabyte is to the real ones.
"""

from collections import deque
from functools import partial
from random import Random
from unittest.mock import patch

import pytest
import trio

from broker.cluster.options import PeersOptions
from broker.cluster.peers import Peers
from tests.cluster_links.harness import MemoryNet, until
from tests.cluster_simulation.drain import Drain
from tests.cluster_simulation.faults import Faults, _leads
from tests.cluster_simulation.ledger import Book
from tests.cluster_simulation.nodes import Home
from tests.cluster_simulation.sessions import Session
from tests.cluster_simulation.world import World
from tests.support.frames import Basic, Queue

LARGE_BYTES = 8 << 20
SMALL_LINKS = partial(PeersOptions, high_bytes=128 << 10, low_bytes=32 << 10, brim_bytes=1 << 20)
CALM = {
    "nodes": 3,
    "calm": True,
    "sync_s": 0.002,
    "read_s": 0.001,
    "delay_s": 0.0,
    "hot_bytes": 1 << 26,
    "tunables": {},
}
PATIENCE_S = 20.0


class Client:
    prefetch = 0

    def __init__(self, world):
        self.world = world
        self.name = "client"
        self.random = Random(1)
        self.session = None

    def session_lost(self, session):
        if self.session is session:
            self.session = None


class Scene(World):
    """Three nodes and a quorum queue, without clients and faults of their own."""

    def __init__(self, scenario):
        super().__init__(5, None, **CALM)
        self.scenario = scenario
        self.lost = []  # links, and why

    async def _main(self):
        self.net = MemoryNet()
        self.net.delay_s = self.swarm.delay_s
        self.homes = {name: Home(self, name, self._directory / name) for name in self.names}
        async with trio.open_nursery() as self.nursery:
            for home in self.homes.values():
                home.clock_off_ms = 0
                home.start()
            await self._until_up()
            self.drain = Drain(self)
            self.faults = Faults(self)
            await self.drain.declare("q", {"x-queue-type": "quorum"})
            self.ledger.books["q"] = Book("q", "quorum", {"x-queue-type": "quorum"})
            uid = self.drain.session.life.node.vhosts["/"].queues["q"].uid
            leaders = []
            while not leaders:
                await trio.sleep(0.1)
                leaders = [home for home in self.homes.values() if _leads(home, uid)]
            self.lost.clear()
            await self.scenario(self, leaders[0])
            for home in self.homes.values():
                if home.life is not None:
                    home.life.end()
            self.nursery.cancel_scope.cancel()

    async def session(self, home):
        client = Client(self)
        session = client.session = Session(client, home.life)
        await until(lambda: session.open)
        return session

    async def confirmed(self, session, size_bytes):
        number = self.ledger.publish("q", "client", None)
        session.publish("", "q", b"<%d>" % number + b"." * size_bytes, number)
        sent = self.ledger.sent[number]
        with trio.fail_after(PATIENCE_S):
            await until(lambda: sent.confirmed or sent.refused)
        return sent.confirmed

    async def ask(self, session, method):
        session.asked.setdefault(3, deque())
        got = []
        session.ask(method, got.append, 3)
        with trio.fail_after(PATIENCE_S):
            await until(lambda: bool(got))
        return got[0]


def run(scenario):
    scene = Scene(scenario)
    real = Peers.went_down

    def went_down(self, link, reason):
        if link.up:
            scene.lost.append(reason)
        real(self, link, reason)

    with (
        patch("broker.cluster.cluster.PeersOptions", SMALL_LINKS),
        patch.object(Peers, "went_down", went_down),
    ):
        scene.run()


@pytest.mark.parametrize("where", ["leader", "another"])
def test_a_large_message_passes_from_any_node_to_any_node(where):
    async def scenario(scene, leader):
        others = [home for home in scene.homes.values() if home is not leader]
        publisher = await scene.session(leader if where == "leader" else others[0])
        assert await scene.confirmed(publisher, LARGE_BYTES)
        getter = await scene.session(others[1])
        answer, _ = await scene.ask(getter, Basic.Get(queue="q", no_ack=True))
        assert isinstance(answer, Basic.GetOk)
        assert not scene.lost

    run(scenario)


def test_while_a_large_message_is_on_its_way_the_rest_of_the_cluster_works():
    async def scenario(scene, leader):
        publisher, other = await scene.session(leader), await scene.session(leader)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.confirmed, publisher, LARGE_BYTES)
            fresh = Queue.Declare(queue="fresh", durable=True, arguments={"x-queue-type": "quorum"})
            assert isinstance(await scene.ask(other, fresh), Queue.DeclareOk)
            assert await scene.confirmed(other, 10)
        assert not scene.lost

    run(scenario)


def test_nothing_is_left_of_a_large_message_whose_client_has_gone():
    async def scenario(scene, leader):
        home = next(home for home in scene.homes.values() if home is not leader)
        session = await scene.session(home)
        number = scene.ledger.publish("q", "client", None)
        session.publish("", "q", b"<%d>" % number + b"." * LARGE_BYTES, number)
        await trio.sleep(0.01)
        session.close()
        with trio.fail_after(PATIENCE_S):
            await until(lambda: not home.life.storage.fronts.pending_bytes)
        assert not scene.lost

    run(scenario)
