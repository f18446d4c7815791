"""Clients at work: each goes to some node, publishes, consumes, declares, and comes back."""

from itertools import count
from random import Random

import trio

from tests.cluster_catalog.linearizable import Operation
from tests.cluster_simulation.ledger import check
from tests.cluster_simulation.sessions import ASKING, CONSUMING, Consuming, Session
from tests.support.frames import Basic, Exchange, Queue

UNACKED_MAX = 200
UNCONFIRMED_MAX = 1000
SETTLED_MAX = 300  # at once, as many as are published at once
COUNTING = "c0"  # the client that uses the queue with counts


class Client:
    """A client has one connection at a time, to whichever node it finds."""

    def __init__(
        self, world, name: str, weights: dict[str, int], *, only: str | None = None
    ) -> None:
        self.world = world
        self.name = name
        self.random = Random(world.random.getrandbits(64))
        self.prefetch = self.random.choice([0, 1, 5, 30])
        self.session: Session | None = None
        self._only = only  # the one queue that it uses
        self._tags = count(1)
        self._names = list(weights)
        self._weights = list(weights.values())

    def __repr__(self) -> str:
        where = self.session.life if self.session is not None else "nowhere"
        return f"{self.name}@{where}"

    async def run(self) -> None:
        while not self.world.finishing:
            await trio.sleep(self.random.expovariate(1 / self.world.swarm.pause_s))
            if self.world.finishing:
                break
            if self.session is None:
                self._connect()
            elif self.session.open:
                action = self.random.choices(self._names, self._weights)[0]
                getattr(self, f"_{action}")(self.session)

    def _connect(self) -> None:
        homes = [home for home in self.world.homes.values() if home.up]
        if homes:
            home = self.random.choice(homes)
            self.session = Session(self, home.life)

    def session_lost(self, session: Session) -> None:
        if self.session is session:
            self.session = None

    # What it does

    def _queue(self) -> str:
        if self._only is not None:
            return self._only
        books = self.world.ledger.books.values()
        return self.random.choice(
            [book.name for book in books if book.kind != "counted" or self.name == COUNTING]
        )

    def _publish(self, session: Session) -> None:
        if len(session.unconfirmed) > UNCONFIRMED_MAX:
            return
        name = self._queue()
        book = self.world.ledger.books[name]
        publisher = (self.name, id(session))
        # Of a group there is one message at a time: a long backlog would take for ever.
        burst = min(
            self.random.choice(self.world.swarm.bursts), 10 if book.kind == "groups" else 1000
        )
        for _ in range(burst):
            properties = {}
            dedup_id = None
            headers = {}
            if book.kind == "dedup":
                dedup_id = str(self.random.randint(1, 60))
                headers["x-dedup-id"] = dedup_id
            if book.kind == "groups":
                headers["x-group-id"] = self.random.choice("ab")
            if book.kind == "priority":
                properties["priority"] = self.random.randint(0, 3)
            if book.kind == "delayed" and self.random.random() < 0.5:
                headers["x-delay"] = self.random.choice([10, 700, 3000])
            if headers:
                properties["headers"] = headers
            number = self.world.ledger.publish(name, publisher, dedup_id, trio.current_time())
            filler = b"." * self.random.choice(self.world.swarm.filler_bytes)
            session.publish("", name, b"<%d>" % number + filler, number, **properties)
        self.world.say(self, "publishes up to", number, "to", name)

    def _consume(self, session: Session) -> None:
        name = self._queue()
        book = self.world.ledger.books[name]
        if len(session.consumers) >= 3:
            return
        alone = (book.kind == "lonely" and self.name != "c0") or book.kind in ("counted", "leased")
        if alone and self._only is None:
            return
        consuming = Consuming(
            session,
            f"t{next(self._tags)}",
            name,
            no_ack=book.kind == "loose" and self.random.random() < 0.5,
        )
        self.world.say(self, "consumes", name)
        session.consume(consuming)

    def _cancel(self, session: Session) -> None:
        known = [one for one in session.consumers.values() if not one.cancelled]
        if known:
            one = self.random.choice(known)
            one.cancelled = True
            self.world.say(self, "cancels", one.queue)
            session.ask(Basic.Cancel(consumer_tag=one.tag), lambda _: None, CONSUMING)

    def _get(self, session: Session) -> None:
        name = self._queue()
        kind = self.world.ledger.books[name].kind
        no_ack = kind == "loose" and self.random.random() < 0.5
        if kind in ("lonely", "leased"):
            return

        began = trio.current_time()
        book = self.world.ledger.books[name]
        surely = len(book.waiting) - book.gets  # so many wait, whatever else is under way
        book.gets += 1
        book.gets_ever += 1

        def answered(answer) -> None:
            if isinstance(answer, tuple):
                book.gets -= 1
                session.fetched(name, *answer, began, no_ack=no_ack)
            elif answer is not None and answer.name == "Basic.GetEmpty":
                book.gets -= 1
                if kind == "counted":
                    check(surely <= 0, self, "hears that", name, "is empty, with", surely, "in it")

        session.ask(Basic.Get(queue=name, no_ack=no_ack), answered, CONSUMING)

    def _settle(self, session: Session) -> None:
        tags = [tag for tag in session.unacked if self._has_lease(session, tag)]
        if not tags:
            return
        tags = tags[:SETTLED_MAX]
        some = tags if self.random.random() < 0.5 else tags[: self.random.randint(1, len(tags))]
        how = self.random.choices(["ack", "requeue", "reject"], self.world.swarm.settle_weights)[0]
        for tag in some:
            queue, _ = session.unacked[tag]
            kind = self.world.ledger.books[queue].kind if queue in self.world.ledger.books else ""
            session.settle(tag, "ack" if kind == "lonely" else how)
        self.world.say(self, how, len(some))

    def _transact(self, session: Session) -> None:
        session.transactions.step(self.random)

    def _purge(self, session: Session) -> None:
        name = self._queue()
        if session.asked[ASKING] or self.world.ledger.books[name].kind == "counted":
            return
        purge = self.world.ledger.purging(name, trio.current_time())
        self.world.say(self, "purges", name)

        def answered(answer) -> None:
            if answer is not None and answer.name == "Queue.PurgeOk":
                purge.answered_at = trio.current_time()
                self.world.say(self, "has purged", name, "of", answer.message_count)
                self.world.moment("settled", name)

        session.ask(Queue.Purge(queue=name), answered)

    def _count(self, session: Session) -> None:
        """The queue that this client alone uses."""
        name = "q-counted"
        if session.asked[ASKING] or self.name != COUNTING or name not in self.world.ledger.books:
            return
        book = self.world.ledger.books[name]
        waiting, gets = len(book.waiting) - book.gets, book.gets_ever

        def answered(answer) -> None:
            if answer is not None and answer.name == "Queue.DeclareOk":
                sent = sum(sent.queue == name for sent in self.world.ledger.sent.values())
                surely = waiting - (book.gets_ever - gets)  # another channel may be faster
                fine = surely <= answer.message_count <= sent
                words = (answer.message_count, "and not", surely, "to", sent)
                check(fine, self, "hears that", name, "has", *words)

        session.ask(Queue.Declare(queue=name, passive=True), answered)

    def _has_lease(self, session: Session, tag: int) -> bool:
        """And will have it when the broker hears of it. Who acks too late loses the channel."""
        book = self.world.ledger.books.get(session.unacked[tag][0])
        if book is None or book.kind != "leased":
            return True
        held_s = trio.current_time() - session.since[tag]
        return held_s < book.arguments["x-visibility-timeout"] / 4000

    def _disconnect(self, session: Session) -> None:
        self.world.say(self, "goes")
        session.close()

    # Definitions

    def _ask(self, session: Session, name: str, what: str, method, meaning) -> None:
        """A question about one thing, for the history of that."""
        if session.asked[ASKING]:
            return
        world = self.world
        operation = Operation(what, None, world.tick())
        world.history[name].append(operation)
        world.say(self, what, name)

        def answered(answer) -> None:
            world.say(self, what, name, "→", answer and answer.name)
            if answer is None:
                return
            meant = meaning(answer)
            if meant is not None:
                operation.returned = world.tick()
                world.moment("answered", name)
                operation.answer = meant

        session.ask(method, answered)

    def _declare(self, session: Session) -> None:
        name = self.random.choice(self.world.passing)
        arguments = {"x-queue-type": "quorum"}
        method = Queue.Declare(queue=name, durable=True, arguments=arguments)
        self._ask(session, name, "declare", method, _found)

    def _look(self, session: Session) -> None:
        name = self.random.choice(self.world.passing)
        self._ask(session, name, "passive", Queue.Declare(queue=name, passive=True), _found)

    def _delete(self, session: Session) -> None:
        name = self.random.choice(self.world.passing)
        self._ask(session, name, "delete", Queue.Delete(queue=name), _done)

    def _bind(self, session: Session) -> None:
        """Of things that may not be there."""
        random = self.random
        if session.asked[ASKING]:
            return
        name, key = random.choice(self.world.passing), random.choice("xy")
        kind = random.choice([Queue.Bind, Queue.Bind, Queue.Unbind])
        session.ask(kind(queue=name, exchange="amq.direct", routing_key=key), lambda _: None)

    def _exchange(self, session: Session) -> None:
        random = self.random
        if session.asked[ASKING]:
            return
        name = random.choice(["e1", "e2"])
        if random.random() < 0.5:
            session.ask(Exchange.Declare(exchange=name, exchange_type="direct"), lambda _: None)
        else:
            session.ask(Exchange.Delete(exchange=name), lambda _: None)

    def _transient(self, session: Session) -> None:
        """Queues that go with their connection."""
        if not session.asked[ASKING]:
            session.ask(Queue.Declare(queue="", exclusive=True), lambda _: None)


def _found(answer) -> str | None:
    if answer.name == "Queue.DeclareOk":
        return "ok"
    if answer.name == "Channel.Close" and answer.reply_code == 404:
        return "missing"
    return None


def _done(answer) -> str | None:
    return "ok" if answer.name == "Queue.DeleteOk" else None


def step(state: bool, operation: Operation):
    """One queue that is there or not (see `is_linearizable`)."""
    answered = operation.answer is not None
    if operation.name == "passive":
        if answered and (operation.answer == "ok") != state:
            return None
        return state
    return operation.name == "declare"
