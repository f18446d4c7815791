"""What may happen in a life, one step at a time: clients, operators, definitions, the disk."""

from collections.abc import Callable
from random import Random

import trio
import trio.testing

from queues.dedup import digest_of_id
from queues.message import Message, Wishes
from queues.options import parse_options
from queues.ordering import is_same_order
from queues.queue import Queue
from tests.simulation.clients import Client, WatchedReceipt, make_message
from tests.simulation.kinds import IN_ORDER, LASTING, arguments_of, with_policy
from tests.simulation.ledger import Book, Id, Item, Ledger, check, number_of
from tests.simulation.life import Life
from tests.simulation.swarm import Swarm, draw
from tests.support.simdisk import SimDisk

DELAYS_MS = (1, 20, 400, 3000, 60_000)


class Steps:
    """Everything is drawn from one seed."""

    life: Life

    def __init__(
        self,
        random: Random,
        trace: Callable[[str], None] | None,
        kinds: tuple[str, ...] | None,
    ) -> None:
        self.random = random
        self.swarm: Swarm = draw(random, kinds)
        self.disk = SimDisk()
        self.ledger = Ledger()
        self._trace = trace
        self._messages = 0
        self._ids: dict[int, bytes] = {}  # number of a message → digest of its id

    def say(self, *words: object) -> None:
        if self._trace is not None:
            self._trace(f"{trio.current_time():10.3f}  " + " ".join(map(str, words)))

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
        seconds = self.random.choice([0.001, 0.011, 0.3, 2.0, 70.0])
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
        arguments = arguments_of(kind, target, self.random)
        queue = self.life.vhost.declare_queue(
            name, durable=True, auto_delete=False, owner=None, arguments=arguments, user_of=self
        )
        self.say("declare", name, arguments)
        lasting = kind in LASTING and not self.swarm.own_ttl_chance
        in_order = kind in IN_ORDER
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
        known = self._known(queue, messages)
        if self.random.random() < 0.9:
            self.life.receipts.append(receipt)
            queue.publish(messages, receipt)
        else:
            queue.publish(messages, None)
        if not queue.deleted and queue.damaged is None:
            self._check_duplicates(queue, messages, known)

    def _digest(self, queue: Queue, message: Message) -> bytes | None:
        """The id of a message, where the queue heeds it."""
        return self._ids.get(number_of(message)) if queue.options.dedup_window_ms else None

    def _is_unsure(self, queue: Queue) -> bool:
        """Whether a duplicate is taken hangs on whether the first was refused, or is known."""
        return queue.options.overflow != "drop-head" or not self.ledger.book(queue).knows_ids

    def _known(self, queue: Queue, messages: list[Message]) -> dict[bytes, Item]:
        """Who brought the ids of these before."""
        book, now = self.ledger.book(queue), self.life.now_ms()
        known: dict[bytes, Item] = {}
        for message in messages:
            if self._is_unsure(queue):
                message.wishes = None
            digest = self._digest(queue, message)
            if digest is not None and (original := book.known(digest, now)) is not None:
                known[digest] = original
                book.copies[number_of(message)] = original
        return known

    def _check_duplicates(
        self, queue: Queue, messages: list[Message], known: dict[bytes, Item]
    ) -> None:
        """No message was taken whose id was known, and all others were."""
        book, now = self.ledger.book(queue), self.life.now_ms()
        for message in messages if not self._is_unsure(queue) else ():
            number, item = number_of(message), book.took(message)
            digest = self._digest(queue, message)
            if digest is not None and digest in known:
                check(item is None, book, "took", number, "which repeats", known[digest])
                book.copies[number] = known[digest]
                continue
            check(item is not None, book, number, "is swallowed")
            if digest is not None and item is not None:
                known[digest] = item
                book.ids[digest] = Id(item, now + queue.options.dedup_window_ms)

    def _message(self, exchange: str, key: str) -> Message:
        random, number = self.random, self._messages
        self._messages += 1
        filler = random.choice(self.swarm.filler_bytes)
        group = random.choice("abc") if random.random() < self.swarm.group_chance else None
        message = make_message(number, exchange, key, filler, group)
        message.priority = random.randint(0, 4)
        if random.random() < self.swarm.own_ttl_chance:
            message.expires_at = self.life.now_ms() + random.choice([1, 400])
        delay_ms = random.choice(DELAYS_MS) if random.random() < self.swarm.delay_chance else 0
        if random.random() < self.swarm.id_chance:
            self._ids[number] = digest_of_id(b"%d" % random.randint(0, 20))
        digest = self._ids.get(number)
        if delay_ms or digest is not None:
            message.wishes = Wishes(delay_ms, digest)
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

    def _extend(self) -> None:
        client = self._client()
        if client.unacked:
            lease_ms = self.random.choice([None, 1, 200, 5000])
            self.say("extend", client.extend_lease(lease_ms), lease_ms)

    def _scheduled(self) -> tuple[Queue, int] | None:
        """A delayed message, with its queue."""
        queue = self._queue()
        waiting = queue.away.delays.first(5) if queue is not None else []
        if queue is None or not waiting:
            return None
        now = self.life.now_ms()
        expected = self.ledger.book(queue).scheduled(now)[:5]
        check(waiting == expected, queue.name, "schedules", waiting, "and not", expected)
        return queue, self.random.choice(waiting)[0]

    def _reschedule(self) -> None:
        if (chosen := self._scheduled()) is not None:
            queue, sequence = chosen
            due_ms = self.life.now_ms() + self.random.choice([0, *DELAYS_MS])
            self.say("reschedule", queue.name, sequence, "to", due_ms)
            self.ledger.book(queue).items[sequence].dues.append(due_ms)
            check(queue.away.delays.move(sequence, due_ms), queue.name, "does not move", sequence)

    def _cancel(self) -> None:
        if (chosen := self._scheduled()) is not None:
            queue, sequence = chosen
            self.say("cancel", queue.name, sequence)
            self.ledger.book(queue).cancelled(sequence)
            check(queue.away.delays.cancel(sequence), queue.name, "does not cancel", sequence)

    def _configure(self) -> None:
        """As a policy does it, which is gone after a restart."""
        queue = self._queue()
        if queue is None:
            return
        declared = dict(queue.arguments)
        arguments = with_policy(declared, self.random, reorder=self.swarm.reorders)
        options = parse_options(arguments, default=queue.options.type)
        self.say("configure", queue.name, arguments)
        book = self.ledger.book(queue)
        if not is_same_order(queue.options, options):
            book.reordered = True
            paced = queue.away._pacer._waiting if queue.away._pacer is not None else []
            coming = {sequence for sequence, _ in paced}
            for item in book.items.values():
                item.exempt = item.held or item.sequence in coming
        queue.configure(options)

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
