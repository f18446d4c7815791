"""A cluster of simulated nodes on which a script runs, without random clients or faults."""

from collections import deque
from collections.abc import Awaitable, Callable
from random import Random

import trio

from tests.cluster_links.harness import MemoryNet
from tests.cluster_simulation.drain import Drain
from tests.cluster_simulation.faults import Faults
from tests.cluster_simulation.ledger import Book
from tests.cluster_simulation.nodes import Home
from tests.cluster_simulation.sessions import ASKING, CONSUMING, Session
from tests.cluster_simulation.world import World
from tests.support.frames import Basic, Queue

CALM = {
    "calm": True,
    "sync_s": 0.002,
    "read_s": 0.001,
    "delay_s": 0.001,
    "hot_bytes": 1 << 26,
    "tunables": {},
}
UNTIL_S = 60.0


class Actor:
    """A client that does as the script says."""

    prefetch = 0

    def __init__(self, world: "Scene", name: str) -> None:
        self.world = world
        self.name = name
        self.random = Random(1)
        self.session: Session | None = None

    def session_lost(self, session: Session) -> None:
        if self.session is session:
            self.session = None

    def __repr__(self) -> str:
        return self.name


class Scene(World):
    def __init__(self, script: "Callable[[Scene], Awaitable[None]]", *, nodes: int = 3) -> None:
        super().__init__(7, None, **CALM, nodes=nodes)
        self._script = script

    async def _main(self) -> None:
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
            await self._script(self)
            for home in self.homes.values():
                if home.life is not None:
                    home.life.end()
            self.nursery.cancel_scope.cancel()

    # What the script does

    async def until(self, done: Callable[[], object], every_s: float = 0.02) -> None:
        with trio.fail_after(UNTIL_S):
            while not done():  # noqa: ASYNC110
                await trio.sleep(every_s)

    async def declare(self, name: str, *, on: Home | None = None, **arguments: object) -> None:
        """On a node of its own where the queue is to live there."""
        table = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        if on is None:
            await self.drain.declare(name, table)
        else:
            session = await self.connect(on)
            wanted = Queue.Declare(queue=name, durable=True, arguments=table)
            assert (await self.ask(session, wanted)).name == "Queue.DeclareOk"
        self.ledger.books[name] = Book(name, "quorum", table)
        await self.until(lambda: all(self.has(home, name) for home in self.homes.values()))
        self.uids[name] = self.front(next(iter(self.homes.values())), name).uid

    def has(self, home: Home, name: str) -> bool:
        return name in home.life.node.vhosts["/"].queues

    def front(self, home: Home, name: str):
        return home.life.node.vhosts["/"].queues[name]

    def members(self, name: str) -> list[Home]:
        storage = next(home for home in self.homes.values() if home.up).life.storage
        numbers = storage.state.placed[self.uids[name]].placement.groups[0]
        by_number = {home.life.storage.me: home for home in self.homes.values() if home.up}
        return [by_number[number] for number in numbers]

    def leader(self, name: str) -> Home | None:
        for home in self.homes.values():
            if home.up and self.front(home, name).queue is not None:
                return home
        return None

    async def connect(self, home: Home, name: str = "c") -> Session:
        actor = Actor(self, name)
        session = actor.session = Session(actor, home.life)
        await self.until(lambda: session.open)
        return session

    async def ask(self, session: Session, method, channel: int = ASKING, wait_s: float = 30.0):
        """The answer, or None if there is none in time."""
        session.asked.setdefault(channel, deque())
        answers: list = []
        session.ask(method, answers.append, channel)
        with trio.move_on_after(wait_s):
            await self.until(lambda: answers)
        return answers[0] if answers else None

    def publish(self, session: Session, queue: str) -> int:
        """The number of the message, by which the ledger knows it."""
        number = self.ledger.publish(queue, "p", None)
        session.publish("", queue, b"<%d>" % number, number)
        return number

    async def publish_confirmed(self, session: Session, queue: str) -> int:
        number = self.publish(session, queue)
        await self.until(lambda: self.ledger.sent[number].confirmed)
        return number

    async def get(self, session: Session, queue: str):
        """Delivery tag and number of a message, or None."""
        answer = await self.ask(session, Basic.Get(queue=queue, no_ack=False), CONSUMING)
        return (answer[0].delivery_tag, answer[1]) if isinstance(answer, tuple) else None

    async def drained(self, queue: str) -> list[int]:
        """The numbers of all messages in a queue, which are taken out of it."""
        session = await self.connect(next(home for home in self.homes.values() if home.up))
        numbers: list[int] = []
        while (found := await self.get(session, queue)) is not None:
            numbers.append(found[1])
            session.send(Basic.Ack(delivery_tag=found[0]), CONSUMING)
        return numbers
