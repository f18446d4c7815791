"""A run: lives of a node one after another, clients at work in each, everything from one seed."""

from collections.abc import Callable
from random import Random
from unittest.mock import patch
from uuid import UUID

import trio
import trio.testing

import queues.durable
from broker.startup import StartupError
from queues.message import Message
from queues.queue import Queue
from queues.storage.errors import StoreFailedError
from tests.simulation.clients import Client, WatchedReceipt, make_message
from tests.simulation.ledger import Book, Ledger, check
from tests.simulation.life import Life, watched
from tests.simulation.swarm import Swarm, draw, tuned
from tests.support.simdisk import SimDisk, input_output_error

DRAIN_ROUNDS = 400


class PowerFailedError(Exception):
    """Nothing that the node does after this happens."""


class Simulation:
    """`run` it; raises where a promise is broken."""

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None) -> None:
        self.random = Random(seed)
        self.swarm: Swarm = draw(self.random)
        self.disk = SimDisk()
        self.ledger = Ledger()
        self._seed = seed
        self._trace = trace
        self._messages = 0
        self._flipped = False
        self.life: Life

    def say(self, *words: object) -> None:
        if self._trace is not None:
            self._trace(f"{trio.current_time():10.3f}  " + " ".join(map(str, words)))

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
        if closed:
            name = self.random.choice(closed)
            size = len(self.disk.content(name).rstrip(b"\0"))
            offset = self.random.randrange(size) if size else 0
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
        if ending == "power":
            await self._until_power_fails()
        elif ending == "eio":
            await self._until_the_disk_fails()
        elif ending == "stop":
            self._make_room()
            if self.random.random() < 0.7:
                self._disconnect_all()
            await self.life.stop(nursery)
        self.say("end:", ending)
        self.life.end()
        if ending in ("kill", "stop"):
            self.disk.kill()
        else:
            self.disk.crash(self.random)
        self.disk.capacity_bytes = 1 << 40
        return ending != "stop"

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

    # Steps

    async def _step(self) -> None:
        weights = self.swarm.weights
        action = self.random.choices(list(weights), list(weights.values()))[0]
        await trio.lowlevel.checkpoint()
        if action == "sleep":
            await self._sleep()
        else:
            getattr(self, f"_{action}")()
        if self.life.failure is None:
            self.life.node.flush()
        if self.random.random() < self.swarm.flush_chance:
            self.life.store.flush()
        if self.random.random() < self.swarm.settle_chance:
            await trio.testing.wait_all_tasks_blocked()
            self.life.check_counts()

    async def _sleep(self) -> None:
        seconds = self.random.choice([0.001, 0.011, 0.3, 2.0])
        self.say("sleep", seconds)
        await trio.sleep(seconds)

    def _queue(self) -> Queue | None:
        queues = [q for q in self.life.vhost.queues.values() if q.damaged is None]
        return self.random.choice(queues) if queues else None

    def _declare(self) -> None:
        vhost = self.life.vhost
        if len(vhost.queues) >= self.swarm.queues:
            return
        kind = self.random.choice(self.swarm.kinds)
        target = self._queue()
        name = f"{kind}-{self.random.randint(0, 3)}"
        if name in vhost.queues:
            return
        self._make_queue(name, kind, target.name if target is not None else "nowhere")

    def _make_queue(self, name: str, kind: str, target: str) -> None:
        arguments = {
            "classic": {"x-queue-type": "classic"},
            "quorum": {},
            "priority": {"x-max-priority": 3, "x-queue-type": "classic"},
            "ttl": {"x-message-ttl": self.random.choice([5, 500])},
            "short": {"x-max-length": self.random.choice([1, 5, 20])},
            "full": {"x-max-length": 10, "x-overflow": "reject-publish"},
            "dlx": {},
            "limited": {"x-delivery-limit": 1, "x-queue-type": "quorum"},
        }[kind]
        if kind in ("dlx", "ttl", "short", "limited"):
            arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
        queue = self.life.vhost.declare_queue(
            name, durable=True, auto_delete=False, owner=None, arguments=arguments, user_of=self
        )
        self.say("declare", name, arguments)
        in_order = kind != "priority"
        lasting = kind not in ("ttl", "short") and not self.swarm.own_ttl_chance
        self.ledger.books[queue.uid] = Book(name, queue.uid, in_order, notes_fresh=lasting)
        self._changed(("queue", name), queue.uid)

    def _changed(self, thing: tuple[str, ...], value: bytes | None) -> None:
        self.ledger.definitions.change(thing, value)

    def _answer_later(self) -> None:
        life, definitions = self.life, self.ledger.definitions
        number = len(definitions._changes)

        def answered() -> None:
            if not life.over:
                definitions.answered(number)

        life.vhost.when_durable(answered)

    def _delete(self) -> None:
        queue = self._queue()
        if queue is not None:
            self.say("delete", queue.name)
            self.ledger.book(queue).deleted = True
            for thing in self.life.definitions():
                if thing[0] == "binding" and thing[2] == queue.name:
                    self._changed(thing, None)
            self._changed(("queue", queue.name), None)
            self.life.vhost.delete_queue(queue.name, if_unused=False, if_empty=False, user_of=self)
            self._answer_later()

    def _exchange(self) -> None:
        name = f"x{self.random.randint(0, 2)}"
        vhost = self.life.vhost
        if name in vhost.exchanges:
            self.say("delete exchange", name)
            for thing in self.life.definitions():
                if thing[0] == "binding" and thing[1] == name:
                    self._changed(thing, None)
            self._changed(("exchange", name), None)
            vhost.delete_exchange(name, if_unused=False)
        else:
            kind = self.random.choice(["direct", "fanout", "topic"])
            self.say("declare exchange", name, kind)
            vhost.declare_exchange(
                name, kind, durable=True, auto_delete=False, internal=False, arguments={}
            )
            self._changed(("exchange", name), kind.encode())
        self._answer_later()

    def _bind(self) -> None:
        queue = self._queue()
        exchanges = [name for name in self.life.vhost.exchanges if name.startswith("x")]
        if queue is None or not exchanges:
            return
        name = self.random.choice(exchanges)
        key = self.random.choice(["a", "b"])
        if self.random.random() < 0.3:
            self.life.vhost.unbind(name, queue, key, {})
            self._changed(("binding", name, queue.name, key), None)
        else:
            self.life.vhost.bind(name, queue, key, {})
            self._changed(("binding", name, queue.name, key), b"")
        self._answer_later()

    def _publish(self) -> None:
        if self.life.node.blocked or self.life.failure is not None:
            return
        exchanges = ["", *(n for n in self.life.vhost.exchanges if n.startswith("x"))]
        name = self.random.choice(exchanges)
        queue = self._queue()
        if queue is None:
            return
        key = queue.name if not name else self.random.choice(["a", "b"])
        vhost = self.life.vhost
        targets = vhost.route(vhost.exchanges[name], (key,), {})
        messages = [self._message(name, key) for _ in range(self.random.choice([1, 1, 3, 12]))]
        for target in targets:
            self._publish_to(target, [m.copy() for m in messages])

    def _publish_to(self, queue: Queue, messages: list[Message]) -> None:
        numbers = f"{self._messages - len(messages)}-{self._messages - 1}"
        self.say("publish", numbers, "to", queue.name)
        receipt = WatchedReceipt(self.life, queue, messages)
        if self.random.random() < 0.9:
            self.life.receipts.append(receipt)
            queue.publish(messages, receipt)
        else:
            queue.publish(messages, None)

    def _message(self, exchange: str, key: str) -> Message:
        filler = self.random.choice(self.swarm.filler_bytes)
        message = make_message(self._messages, exchange, key, filler)
        message.priority = self.random.randint(0, 4)
        if self.random.random() < self.swarm.own_ttl_chance:
            message.expires_at = self.life.node.timers.now_ms() + self.random.choice([1, 400])
        self._messages += 1
        return message

    def _client(self) -> Client:
        clients = self.life.clients
        if not clients or (len(clients) < 3 and self.random.random() < 0.2):
            prefetch = self.random.choice([0, 0, 20])
            clients.append(Client(self.life, Random(self.random.getrandbits(64)), prefetch))
        return self.random.choice(clients)

    def _consume(self) -> None:
        queue = self._queue()
        if queue is None or queue.consumer_count >= 2:
            return
        self.say("consume", queue.name)
        no_ack = self.random.random() < 0.1
        prefetch = self.random.choice([1, 3, 30])
        self._client().consume(queue, no_ack=no_ack, prefetch=prefetch)

    def _get(self) -> None:
        queue = self._queue()
        if queue is not None:
            message = self._client().get(queue, no_ack=self.random.random() < 0.3)
            self.say("get", queue.name, message and message.sequence)

    def _settle(self) -> None:
        client = self._client()
        if client.unacked:
            how = self.random.choice(["ack"] * 6 + ["requeue"] * 2 + ["discard"])
            share = self.random.choice([0.01, 0.5, 1.0])
            count = client.settle_some(how, share)
            self.say(how, count)

    def _disconnect(self) -> None:
        if self.life.clients:
            self.say("disconnect")
            self.life.clients.pop(self.random.randrange(len(self.life.clients))).disconnect()

    def _disconnect_all(self) -> None:
        while self.life.clients:
            self.life.clients.pop().disconnect()

    def _purge(self) -> None:
        queue = self._queue()
        if queue is not None:
            self.say("purge", queue.name)
            queue.purge()

    def _barrier(self) -> None:
        life = self.life
        durable = self.ledger.barrier()
        life.vhost.when_stored(lambda: None if life.over else durable())

    def _reclaim(self) -> None:
        self.life.reclaim(self.random.choice([1, 5, 50]))

    def _check_space(self) -> None:
        self.life.store.check_space()

    def _fill_disk(self) -> None:
        if self.disk.capacity_bytes == 1 << 40:
            self.say("the disk is full")
            self.disk.capacity_bytes = self.disk.used_bytes()
        else:
            self._make_room()

    def _make_room(self) -> None:
        self.disk.capacity_bytes = 1 << 40
        self.life.store.check_space()

    # The end

    async def _finish(self) -> None:
        """Everything that must be there is delivered, everything is settled, the disk is free."""
        await self._quieten()
        life = self.life
        self._disconnect_all()
        client = Client(life, self.random, 0)
        for queue in life.vhost.queues.values():
            if queue.damaged is None:
                client.consume(queue, no_ack=False, prefetch=0)
        await self._drain(client)
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
        if not self._flipped:
            life.check_disk_use(self.swarm.tunables[queues.durable, "CHECKPOINT_ENTRIES"] + 3)

    async def _drain(self, client: Client) -> None:
        queues = self.life.vhost.queues.values()
        for _ in range(DRAIN_ROUNDS):
            await self._quieten()
            if client.unacked:
                client.settle_some("ack", 1.0)
            elif not any(queue.ready + queue.unacked for queue in queues if not queue.damaged):
                break

    async def _quieten(self) -> None:
        """Wait until nothing is on its way to the disk or from it."""
        self._make_room()
        for _ in range(20):
            self.life.node.flush()
            self.life.store.flush()
            await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(0.25)


def run(seed: int, trace: Callable[[str], None] | None = None) -> None:
    Simulation(seed, trace).run()
