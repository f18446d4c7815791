"""A run: lives of a node one after another, clients at work in each, everything from one seed."""

from collections.abc import Callable
from random import Random
from unittest.mock import patch
from uuid import UUID

import trio
import trio.testing

import queues.live_log
from broker.startup import StartupError
from queues.queue import Queue
from queues.storage.errors import StoreFailedError
from tests.simulation.clients import Client
from tests.simulation.ledger import check
from tests.simulation.life import Life, watched
from tests.simulation.steps import Steps
from tests.simulation.swarm import tuned
from tests.support.simdisk import input_output_error

DRAIN_ROUNDS = 400
DRAIN_LEASE_MS = 60_000  # a round takes five seconds


class PowerFailedError(Exception):
    """Nothing that the node does after this happens."""


class Simulation(Steps):
    """`run` it; raises where a promise is broken."""

    def __init__(
        self,
        seed: int,
        trace: Callable[[str], None] | None = None,
        kinds: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(Random(seed), trace, kinds)
        self._seed = seed
        self._flipped = False

    def run(self) -> None:
        def uuid4() -> UUID:
            return UUID(int=self.random.getrandbits(128))

        scheduler = trio._core._run
        scheduler._r.seed(self._seed)  # type: ignore[attr-defined]
        low = self.random.choice([1, 10, 1024])
        with (
            tuned(self.swarm, low),
            patch("broker.vhost.uuid4", uuid4),
            patch("os.urandom", Random(self._seed).randbytes),
            patch.object(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING", new=True),
        ):
            trio.run(self._main, clock=trio.testing.MockClock(autojump_threshold=0))

    # Lives

    async def _main(self) -> None:
        crashed = False
        for number in range(self.swarm.lives + 1):
            last = number == self.swarm.lives
            ending = "stop" if last else self.random.choice(self.swarm.endings)
            self.say(f"== life {number}, ends with {ending}")
            await trio.sleep(self.random.choice([0.0, 0.0, 0.1, 5.0]))
            with watched(self._new_life()):
                if last and self.swarm.flips:
                    self._flip()
                async with trio.open_nursery() as nursery:
                    try:
                        await self.life.start(nursery, crashed=crashed)
                    except StartupError as error:
                        check(self._flipped, "the node does not start:", error)
                        return
                    if last:
                        await self._finish()
                    crashed = await self._live(nursery, ending)
                    nursery.cancel_scope.cancel()

    def _new_life(self) -> Life:
        swarm = self.swarm
        self.life = Life(
            self.disk,
            self.ledger,
            Random(self.random.getrandbits(64)),
            swarm.options,
            hot_bytes=swarm.hot_bytes,
            read_delays_s=swarm.read_delays_s,
            flipped=self._flipped,
        )
        return self.life

    def _flip(self) -> None:
        """One bit of a file that nothing will be written to any more."""
        names = sorted(n for n in self.disk.list() if n.startswith(("wal-", "seg-")))
        closed = [name for name in names if name != max(n for n in names if n[0] == "w")]
        sizes = {name: len(self.disk.content(name).rstrip(b"\0")) for name in closed}
        filled = [name for name in closed if sizes[name]]
        if filled:
            name = self.random.choice(filled)
            offset = self.random.randrange(sizes[name])
            self.say("flip a bit of", name, "at", offset)
            self.disk.flip(name, offset, self.random.randrange(8))
            self.life.flipped = self._flipped = True

    async def _live(self, nursery: trio.Nursery, ending: str) -> bool:
        """Whether it ended in a crash."""
        steps = self.random.randint(1, self.swarm.steps)
        for _ in range(steps):
            self.life.dropped_files = False
            await self._step()
            if ending == "crash" and self.life.dropped_files:
                break  # the best of moments
        if self.life.failure is None and self.random.random() < 0.2:
            await self._empty()
        if ending == "power":
            await self._until_power_fails()
        elif ending == "eio":
            await self._until_the_disk_fails()
        elif ending == "stop":
            self._make_room()
            if self.random.random() < 0.7 or self._is_out_of_order():
                self._disconnect_all()
            for client in self.life.clients:
                client.paused = True  # the server delivers nothing any more once it stops
            await self.life.stop(nursery)
        self.say("end:", ending)
        self.life.end()
        if ending in ("kill", "stop"):
            self.disk.kill()
        else:
            self.disk.crash(self.random)
        self.disk.capacity_bytes = 1 << 40
        return ending != "stop"

    def _is_out_of_order(self) -> bool:
        """Messages may be out that the note of a clean stop says were never delivered.

        The server sees to it that no message is out when it stops; in order there is no such one.
        """
        books = self.ledger.books.values()
        return any(b.reordered or any(i.held and i.due for i in b.items.values()) for b in books)

    async def _until_power_fails(self) -> None:
        left = self.random.randint(1, 30)

        def fault(operation: str, name: str) -> None:
            nonlocal left
            if operation in ("read", "open"):
                return  # leaves nothing half done
            left -= 1
            if left <= 0:
                raise PowerFailedError(operation, name)

        self.disk.fault = fault
        try:
            while left > 0 and self.life.failure is None:
                await self._step()
                self.life.store.flush()
                self.life.store.check_space()
                self._publish()
        except (PowerFailedError, StoreFailedError):
            pass

    async def _until_the_disk_fails(self) -> None:
        """One operation fails; the node must end, and confirm nothing from then on."""
        left = self.random.randint(1, 10)
        bad = self.random.choice(["write", "sync", "sync", "read"])

        def fault(operation: str, name: str) -> None:
            nonlocal left
            left -= operation == bad
            if left == 0 and operation == bad:
                input_output_error(operation, name)

        self.disk.fault = fault
        self._make_room()
        for _ in range(200):
            try:
                await self._step()
                self._publish()
                self.life.node.flush()
                self.life.store.flush()
            except StoreFailedError:
                pass
            await trio.testing.wait_all_tasks_blocked()
            if self.life.failure is not None:
                return
        quiet = left > 0  # nothing was read from the disk
        check(quiet or not self.life.vhost.queues, "the node goes on with a failed disk")

    # The end

    async def _finish(self) -> None:
        """Everything that must be there is delivered, everything is settled, the disk is free."""
        client = await self._empty()
        life = self.life
        for queue in life.vhost.queues.values():  # a log is tidied when something happens to it
            if queue.damaged is None:
                self._publish_to(queue, [self._message("", queue.name)])
        await self._drain(client)
        life.check_counts()
        for book in self.ledger.books.values():
            left = [i for i in book.items.values() if i.promised and not i.settled]
            check(not left or book.deleted or book.damaged, book, "never gave", left)
        check(all(r.answered for r in life.receipts), "a batch was never answered")
        life.check_refusals()
        life.check_memory()
        if not self._flipped:
            life.check_disk_use(self.swarm.tunables[queues.live_log, "CHECKPOINT_ENTRIES"] + 3)

    async def _empty(self) -> Client:
        """One client takes and acks all there is."""
        self.say("take all")
        await self._quieten()
        self._disconnect_all()
        client = Client(self.life, self.random, 0)
        self.life.clients.append(client)
        for queue in self.life.vhost.queues.values():
            if queue.damaged is None:
                client.consume(queue, no_ack=False, prefetch=0, lease_ms=DRAIN_LEASE_MS)
        await self._drain(client)
        return client

    async def _drain(self, client: Client) -> None:
        queues = list(self.life.vhost.queues.values())
        for _ in range(DRAIN_ROUNDS):
            await self._quieten()
            if client.unacked:
                client.settle_some("ack", 1.0)
            elif not any(self._count(queue) for queue in queues if queue.damaged is None):
                return
        left = [queue.name for queue in queues if queue.damaged is None and self._count(queue)]
        check(not left, "messages are stuck in", left)

    def _count(self, queue: Queue) -> int:
        return queue.ready + queue.unacked + queue.away.delayed_count

    async def _quieten(self) -> None:
        """Wait until nothing is on its way to the disk or from it."""
        self._make_room()
        for _ in range(20):
            self.life.node.flush()
            self.life.store.flush()
            await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(0.25)


def run(
    seed: int,
    trace: Callable[[str], None] | None = None,
    kinds: tuple[str, ...] | None = None,
) -> None:
    """One run; with queues of these kinds only, if any are named."""
    Simulation(seed, trace, kinds).run()
