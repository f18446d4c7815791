"""Transactions of an AMQP channel: messages are fetched, acked and published, all with a commit."""

from random import Random

import trio

from tests.cluster_simulation.ledger import check
from tests.support.frames import Basic, Tx

CHANNEL = 4
GETS_MAX = 3
# Where anything may happen to a message, and nothing is promised to one client alone.
KINDS = frozenset({"quorum", "dlx", "limited", "delayed", "priority", "dedup", "ruled"})


class Transactions:
    """One after another, on one channel of a session."""

    def __init__(self, session) -> None:
        self._session = session
        self._world = session.world
        self._ledger = session.ledger
        self._begin()

    def _begin(self) -> None:
        self._got: dict[int, tuple[str, int]] = {}  # tag → queue, number
        self._sent: list[int] = []
        self._acked = False
        self._waits = False  # for an answer

    def open(self) -> None:
        """The channel is new: what it had is unknown to the broker by now."""
        for held in self._got.values():
            self._ledger.held.pop(held, None)
        self._begin()
        self._session.send(Tx.Select(), CHANNEL)

    def step(self, random: Random) -> None:
        """The next that a transaction does."""
        books = [book for book in self._ledger.books.values() if book.kind in KINDS]
        if self._waits or self._session.over or not books:
            return
        name = random.choice(books).name
        if len(self._got) < GETS_MAX and random.random() < 0.5:
            self._get(name)
        elif random.random() < 0.3:
            self._publish(name, random)
        elif random.random() < 0.15:
            self._roll_back()
        else:
            self._commit()

    def _get(self, name: str) -> None:
        began = trio.current_time()
        self._waits = True

        def answered(answer) -> None:
            self._waits = False
            if isinstance(answer, tuple):
                method, number = answer
                self._session.delivered(name, number, method, None, began)
                self._got[method.delivery_tag] = (name, number)
                self._ledger.held[name, number] = self._session

        self._session.ask(Basic.Get(queue=name, no_ack=False), answered, CHANNEL)

    def _publish(self, name: str, random: Random) -> None:
        session = self._session
        publisher = (session.client.name, id(session), "tx")
        for _ in range(random.choice([1, 3])):
            number = self._ledger.publish(name, publisher, at=trio.current_time())
            self._sent.append(number)
            session.publish_on(CHANNEL, "", name, b"<%d>" % number)

    def _commit(self) -> None:
        session = self._session
        for tag in () if self._acked else self._got:
            session.send(Basic.Ack(delivery_tag=tag), CHANNEL)
        self._acked = True
        got, sent = dict(self._got), list(self._sent)
        self._world.say(session.client, "commits", list(got.values()), "and", sent)
        for queue, number in got.values():
            self._ledger.sent[number].settled = True  # it may be, even if nobody says so
            self._world.moment("settled", queue)

        def answered(answer) -> None:
            done = answer is not None and answer.name == "Tx.CommitOk"
            self._world.say(session.client, "commit →", done, sent)
            if not done:
                return  # it may have happened or not; the channel is open anew, if any
            now = trio.current_time()
            for held in got.values():
                self._ledger.held.pop(held, None)
                self._ledger.committed(*held, now)
            for number in sent:
                self._ledger.confirmed(number)
                self._world.moment("confirmed", self._ledger.sent[number].queue)
            self._begin()

        self._waits = True
        session.ask(Tx.Commit(), answered, CHANNEL)

    def _roll_back(self) -> None:
        sent = list(self._sent)

        def answered(answer) -> None:
            self._waits = False
            if answer is not None:
                check(answer.name == "Tx.RollbackOk", "cannot roll back:", answer)
                self._sent.clear()
                for number in sent:
                    self._ledger.sent[number].undone = True

        self._waits = True
        self._session.ask(Tx.Rollback(), answered, CHANNEL)
