"""The client that is there first and last: it declares queues, and in the end takes all."""

from collections.abc import Callable
from random import Random

import trio

from tests.cluster_simulation.ledger import check
from tests.cluster_simulation.sessions import Consuming, Session
from tests.support.frames import Basic, Queue

WAIT_S = 90.0  # longer than anything that failed waits for its next try
CALM_S = 4.0  # of nothing: longer than any message is delayed


class Drain:
    prefetch = 0

    def __init__(self, world) -> None:
        self.world = world
        self.random = Random(world.random.getrandbits(64))
        self.session: Session | None = None

    def __repr__(self) -> str:
        return "drain"

    def session_lost(self, session: Session) -> None:
        if self.session is session:
            self.session = None

    async def _until(self, done: Callable[[], object], *otherwise: object) -> None:
        ends = trio.current_time() + WAIT_S
        while not done():
            check(trio.current_time() < ends, *otherwise)
            await trio.sleep(0.02)

    async def _connected(self) -> Session:
        def connected() -> bool:
            homes = [home for home in self.world.homes.values() if home.up]
            if self.session is None and homes:
                self.session = Session(self, self.random.choice(homes).life)
            return self.session is not None and self.session.open

        await self._until(connected, "no node takes a client")
        return self.session

    async def _ask(self, session: Session, method):
        answers = []
        session.ask(method, answers.append)
        await self._until(lambda: answers, "no answer to", method.name)
        return answers[0]

    async def declare(self, name: str, arguments: dict) -> None:
        session = await self._connected()
        answer = await self._ask(
            session, Queue.Declare(queue=name, durable=True, arguments=arguments)
        )
        check(
            answer is not None and answer.name == "Queue.DeclareOk", "cannot declare", name, answer
        )

    async def run(self) -> None:
        """Until nothing has come for a while."""
        if self.session is not None:
            self.session.close()
        await trio.sleep(1.0)
        session = await self._connected()
        await self._ask(session, Queue.Declare(queue="last", durable=True))
        await self._ask(session, Queue.Delete(queue="last"))
        await self._consume_all(session)
        await self._until_quiet(session)
        cancelled = [one.queue for one in session.consumers.values() if one.cancelled]
        check(not cancelled, "consumers were cancelled:", cancelled)
        session.close()
        await trio.sleep(2.0)

    async def _until_quiet(self, session: Session) -> None:
        """What failed before is tried again, leases end: all that is missing has its time."""
        ledger, holder = self.world.ledger, self.world.holder
        quiet_since = trio.current_time()
        ends = quiet_since + WAIT_S
        while trio.current_time() < ends:
            check(not session.over, "the drain lost its connection")
            held = holder.session if holder is not None else None
            if session.unacked or held is not None:
                quiet_since = trio.current_time()
            for tag in list(session.unacked):
                session.settle(tag, "ack")
            if trio.current_time() > quiet_since + CALM_S and not ledger.missing():
                return
            if held is not None and not ledger.missing():
                held.close()
            await trio.sleep(0.1)
        ledger.check_leases()
        check(ledger.missing(), "it never ends")

    async def _consume_all(self, session: Session) -> None:
        started = []
        books = self.world.ledger.books.values()
        lost = self.world.has_lost
        names = [book.name for book in books if not (book.on_one_node and lost)]
        for number, name in enumerate(names):
            consuming = Consuming(session, f"d{number}", name, no_ack=False)
            consuming.began = float("inf")  # long after all that it is asked about
            session.consumers[consuming.tag] = consuming
            method = Basic.Consume(queue=name, consumer_tag=consuming.tag)
            session.ask(method, started.append, 2)
        await self._until(lambda: len(started) == len(names), "no answer to basic.consume")
        fine = all(one is not None and one.name == "Basic.ConsumeOk" for one in started)
        check(fine, "cannot consume:", started)
