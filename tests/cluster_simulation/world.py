"""A run: nodes, clients and faults from one seed, and what must be true in the end."""

import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from random import Random
from unittest.mock import patch
from uuid import UUID

import trio
import trio.testing

from broker.cluster.leaders import LeaderBook
from broker.cluster.state import State
from broker.journal import DEFINITIONS_UID
from broker.logs import Log
from tests.cluster_catalog.linearizable import is_linearizable
from tests.cluster_links.harness import MemoryNet
from tests.cluster_simulation.clients import Client, step
from tests.cluster_simulation.drain import Drain
from tests.cluster_simulation.faults import Faults
from tests.cluster_simulation.kinds import DEAD, arguments_of
from tests.cluster_simulation.ledger import Book, Ledger, broken, check
from tests.cluster_simulation.nodes import Home
from tests.cluster_simulation.swarm import draw, tuned
from tests.cluster_simulation.turns import Turns

START_S = 30.0
PASSING = 2  # queues that come and go
ON_ONE_NODE = frozenset({"classic", "dead-classic", "dlx_classic"})
HOLDING = {"consume": 4, "settle": 1, "disconnect": 0}


class World:
    def __init__(
        self, seed: int, trace: Callable[[str], None] | None = None, **changes: object
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.trace = trace
        self.swarm = replace(draw(self.random), **changes)
        self.ledger = Ledger(calm=self.swarm.calm)
        self.turns = Turns()
        self.finishing = False
        self.names = "abcde"[: self.swarm.nodes]
        self.passing = [f"p{number}" for number in range(PASSING)]
        self.history = defaultdict(list)  # of each of those
        # Logs that are never deleted. Others may be begun again by nodes that do not know it yet.
        self.lasting = {DEFINITIONS_UID}
        self.uids = {}  # of queues that last, by name
        self.armed = None  # what waits for its moment, and is told where that is
        self._ticks = count(1)
        self.holder: Client | None = None  # goes on holding what it has a lease of
        self.nursery: trio.Nursery

    def say(self, *words: object) -> None:
        if self.trace is not None:
            self.trace(f"{trio.current_time():8.3f} " + " ".join(map(str, words)))

    def moment(self, name: str, where: str) -> None:
        """Something has just happened, about that queue."""
        if self.armed is not None and self.armed[0] == name and not self.armed[2]:
            self.armed[2].append(where)
            self.armed[1].set()

    def tick(self) -> int:
        return next(self._ticks)

    def run(self) -> None:
        chance = Random(self.seed)
        scheduler = trio._core._run
        scheduler._r.seed(self.seed)

        def uuid4() -> UUID:
            return UUID(int=chance.getrandbits(128))

        with (
            tempfile.TemporaryDirectory() as directory,
            tuned(self.swarm),
            patch("broker.vhost.uuid4", uuid4),
            patch("broker.channel.shared_topology.uuid4", uuid4),
            patch("os.urandom", chance.randbytes),
            patch("os.fsync", lambda _: None),
            patch.object(LeaderBook, "i_lead", self._watched(LeaderBook.i_lead)),
            patch.object(State, "apply_asked", self._made_once(State.apply_asked)),
            patch.object(Log, "exception", _note_exception),
            patch.object(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING", new=True),
        ):
            self._directory = Path(directory)
            broken.clear()
            try:
                clock = trio.testing.MockClock(autojump_threshold=0)
                with self.turns.watched():
                    trio.run(self._main, clock=clock, instruments=[self.turns])
            except BaseException as error:
                raise broken[0] if broken else error from None
            if broken:
                raise broken[0]
            self.turns.check()

    def _watched(self, real):
        def i_lead(book, uid, term):
            if uid in self.lasting:
                self.ledger.leads(uid, term, book.me)
            real(book, uid, term)

        return i_lead

    def _made_once(self, real):
        """No node makes what was asked for twice, however often it comes."""
        made = set()

        def apply_asked(state, node, boot, number, *rest):
            result = real(state, node, boot, number, *rest)
            if result is not None:
                asked = (id(state), node, boot, number)
                check(asked not in made, "request", number, "of node", node, "is made twice")
                made.add(asked)
                states.append(state)  # so that no other has its id
            return result

        states = []
        return apply_asked

    async def _main(self) -> None:
        self.net = MemoryNet()
        self.net.delay_s = self.swarm.delay_s
        self.homes = {name: Home(self, name, self._directory / name) for name in self.names}
        async with trio.open_nursery() as self.nursery:
            for home in self.homes.values():
                home.start()
            await self._until_up()
            drain = Drain(self)
            await self._declare(drain)
            clients = [Client(self, f"c{n}", self.swarm.weights) for n in range(self.swarm.clients)]
            if "leased" in self.swarm.kinds:
                self.holder = Client(self, "holder", HOLDING, only="q-leased")
                self.nursery.start_soon(self.holder.run)
            for client in clients:
                self.nursery.start_soon(client.run)
            faults = Faults(self)
            self.nursery.start_soon(faults.run)
            self.nursery.start_soon(self._compare_often)
            await trio.sleep(self.swarm.seconds)
            await self._heal(faults, clients)
            if self.has_lost:
                self.ledger.leaky |= ON_ONE_NODE
            await drain.run()
            self._check_end()
            for home in self.homes.values():
                if home.life is not None:
                    home.life.end()
            self.nursery.cancel_scope.cancel()

    async def _until_up(self) -> None:
        with trio.move_on_after(START_S):
            while not all(home.up or home.out for home in self.homes.values()):  # noqa: ASYNC110
                await trio.sleep(0.05)
            return
        late = [home.name for home in self.homes.values() if not home.up and not home.out]
        check(not late, "nodes", late, "do not start")

    async def _declare(self, drain: Drain) -> None:
        kinds = dict.fromkeys(self.swarm.kinds)
        for kind in kinds:
            await self._declare_one(drain, f"q-{kind}", kind)
        for target in dict.fromkeys(DEAD[kind] for kind in kinds if kind in DEAD):
            await self._declare_one(drain, target, target)

    async def _declare_one(self, drain: Drain, name: str, kind: str) -> None:
        arguments = arguments_of(kind, self.random)
        await drain.declare(name, arguments)
        self.ledger.books[name] = Book(name, kind, arguments)
        self.uids[name] = drain.session.life.node.vhosts["/"].queues[name].uid
        self.lasting.add(self.uids[name])
        self.say("there is", name, arguments)

    # Comparing

    async def _compare_often(self) -> None:
        while True:
            await trio.sleep(0.5)
            if broken:
                raise broken[0]
            self.compare()

    def compare(self) -> None:
        """Replicas that have applied as much are the same."""
        for home in self.homes.values():
            storage = home.life.storage if home.life is not None else None
            for uid, replica in storage._replicas.items() if storage is not None else ():
                if replica.damage is None and replica.applied_index:
                    state = sha256(replica.state()).digest()
                    self.ledger.state(uid, replica.applied_index, state, home.life)

    # The end

    async def _heal(self, faults: Faults, clients: list[Client]) -> None:
        self.say("all is well again")
        self.finishing = True
        await trio.sleep(0.5)
        for client in clients:
            if client.session is not None:
                client.session.close()
        self.net.delay_s = self.swarm.delay_s
        for _ in range(40):
            faults.heal()
            for home in self.homes.values():
                home.disk.capacity_bytes = 1 << 40
                if home.life is None:
                    home.disk.kill()
                    home.start()
            await trio.sleep(0.5)
            if all(home.out or (home.up and not home.failing) for home in self.homes.values()):
                break
        await self._until_up()

    def _check_end(self) -> None:
        self.compare()
        self.ledger.check_all_accounted_for()
        self._check_definitions()
        for name, history in self.history.items():
            fine = is_linearizable(history, step, False)
            check(fine, "what clients saw of", name, "cannot be:", history)
        for home in self._alive():
            self._check_nothing_left(home)

    def _alive(self) -> list[Home]:
        return [home for home in self.homes.values() if not home.out]

    def _check_definitions(self) -> None:
        found = {home.name: _definitions(home.life.node.vhosts["/"]) for home in self._alive()}
        one, first = next(iter(found.items()))
        for name, other in found.items():
            check(other == first, name, "has", other, "and", one, "has", first)
        check(not any(key[0] == "owned" for key in first), "left over:", first)

    @property
    def has_lost(self) -> bool:
        """Whether a disk did: what is on one node alone may be gone, or damaged for good."""
        return any(home.flipped or home.wiped or home.out for home in self.homes.values())

    def _check_nothing_left(self, home: Home) -> None:
        vhost = home.life.node.vhosts["/"]
        lost = self.has_lost
        for name, book in self.ledger.books.items():
            front = vhost.queues[name]
            if front.damaged is not None or (book.on_one_node and lost):
                continue
            check(not front.keeps, home.life, name, "keeps", front.keeps)
            queue = front.queue
            if queue is not None and queue.damaged is None:
                found = (queue.ready, queue.unacked, queue.consumer_count)
                check(found == (0, 0, 0), home.life, name, "has", found)
        check(not home.life.storage.fronts.pending_bytes, home.life, "has bytes pending")


def _note_exception(_log, _event, error, /, **_fields) -> None:
    """Something went wrong that the node survives: no client's fault."""
    broken.append(error)


def _definitions(vhost) -> dict:
    found = {}
    for queue in vhost.queues.values():
        found["queue", queue.name] = (queue.uid, dict(queue.arguments))
        if queue.owner is not None:
            found["owned", queue.name] = True
    for policy in vhost.policies.sets["policy"]:
        found["policy", policy.name] = dict(policy.definition)
    for exchange in vhost.exchanges.values():
        found["exchange", exchange.name] = exchange.type
        if exchange.name:
            for binding in exchange.bindings():
                found["binding", exchange.name, binding.destination.name, binding.key] = True
    return found


def run(seed: int, trace: Callable[[str], None] | None = None, **changes: object) -> World:
    """One run; `changes` of what its seed would have drawn."""
    world = World(seed, trace, **changes)
    world.run()
    return world
