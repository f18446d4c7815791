"""What clients saw and did, and which promises that breaks."""

from collections import defaultdict
from dataclasses import dataclass, field

from tests.cluster_simulation.kinds import DEAD
from tests.support.promises import BrokenPromiseError

# What was found broken, in places where the broker itself may swallow an exception.
broken: list[BaseException] = []


def check(fine: object, *words: object) -> None:
    if not fine:
        broken.append(BrokenPromiseError(" ".join(map(str, words))))
        raise broken[-1]


@dataclass
class Sent:
    """A message that a client published."""

    number: int
    queue: str
    publisher: object  # client and connection
    confirmed: bool = False
    refused: bool = False
    dedup_id: str | None = None
    settled: bool = False  # acked, rejected, or dead-lettered and acked there
    fresh: bool = False  # was delivered as if for the first time
    acks: list = field(default_factory=list)  # (life, time)
    seen: int = 0
    at: float = 0.0  # when it was sent
    rejected: int = 0
    letters: int = 0  # dead ones that came as if for the first time
    committed_at: float | None = None  # its ack, by a transaction that was answered
    undone: bool = False  # it was published in a transaction that was rolled back


@dataclass
class Purge:
    """A purge that was asked for. Unanswered, it may happen for as long as a front asks."""

    asked_at: float
    waiting: set[int]  # confirmed by then, and never delivered
    answered_at: float | None = None

    @property
    def until(self) -> float:
        return self.asked_at + ASKING_S if self.answered_at is None else self.answered_at


@dataclass
class Book:
    """A queue that lasts as long as the run."""

    name: str
    kind: str
    arguments: dict
    last_fresh: dict = field(default_factory=dict)  # publisher → number, where one alone consumes
    consumers: set = field(default_factory=set)
    purges: list[Purge] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)  # confirmed, and not delivered so far
    gets: int = 0  # that were asked for and brought nothing so far, or never will
    gets_ever: int = 0

    @property
    def on_one_node(self) -> bool:
        return self.arguments["x-queue-type"] == "classic"

    @property
    def dead(self) -> str | None:
        """Where its dead letters go."""
        return DEAD.get(self.kind)


# A leader that is cut off, or was paused, may go on for so long with what it knew.
STALE_S = 6.0
ASKING_S = 15.0  # a front asks for at most ten seconds, and the answer has its way
# Kinds whose messages may go without anybody having seen them.
LEAKY = frozenset({"ttl", "short", "loose"})
# Kinds that deliver in the order of publishing, to a consumer that is alone.
IN_ORDER = frozenset({"quorum", "dlx", "lonely"})


class Ledger:
    def __init__(self, *, calm: bool) -> None:
        self.calm = calm  # links hold, so that whoever lives is heard
        self.leaky = LEAKY
        self.sent: dict[int, Sent] = {}
        self.books: dict[str, Book] = {}
        self.leaders: dict[tuple[bytes, int], object] = {}  # log and term → node
        self.states: dict[tuple[bytes, int], tuple[bytes, object]] = {}  # log and index → state
        self.counts: dict[str, int] = defaultdict(int)
        self.held: dict[tuple[str, int], object] = {}  # queue and message → who has it unacked

    def publish(
        self, queue: str, publisher: object, dedup_id: str | None = None, at: float = 0.0
    ) -> int:
        number = len(self.sent) + 1
        self.sent[number] = Sent(number, queue, publisher, dedup_id=dedup_id, at=at)
        self.counts["published"] += 1
        return number

    def confirmed(self, number: int) -> None:
        sent = self.sent[number]
        check(not sent.confirmed and not sent.refused, "message", number, "is answered twice")
        sent.confirmed = True
        if not sent.seen and sent.queue in self.books:
            self.books[sent.queue].waiting.add(number)
        self.counts["confirmed"] += 1

    def refused(self, number: int) -> None:
        sent = self.sent[number]
        check(not sent.confirmed and not sent.refused, "message", number, "is answered twice")
        sent.refused = True
        self.counts["refused"] += 1

    def _may_be_in(self, sent: Sent, queue: str) -> bool:
        """In the queue that it was sent to, or where the dead letters of that go."""
        source = self.books.get(sent.queue)
        return queue == sent.queue or (source is not None and queue == source.dead)

    def delivered(self, queue: str, number: int, consumer: object, began: float, *, again: bool):
        """To a consumer that began then, or for basic.get (`consumer` is None then)."""
        sent = self.sent.get(number)
        check(sent is not None, "message", number, "in", queue, "was never published")
        check(self._may_be_in(sent, queue), "message", number, "for", sent.queue, "is in", queue)
        check(not sent.undone, "message", number, "in", queue, "was never committed")
        self.counts["delivered"] += 1
        book = self.books.get(queue)
        if book is None:
            return
        if queue != sent.queue:
            self._check_letter(sent, book, again=again)
            return
        sent.seen += 1
        self._check_over(sent, book, began, again=again)
        book.waiting.discard(number)
        holder = self.held.get((queue, number))
        steady = self.calm and not book.on_one_node  # which has nobody to take over
        if steady and holder is not None and book.kind != "leased":
            life = holder.life
            over = holder.over or life.home.failing or not life.serving  # its node is about to end
            check(over, "message", number, "in", queue, "is at", holder.client, "and comes")
        if not again:
            check(not sent.fresh, "message", number, "in", queue, "comes twice as if it were new")
            sent.fresh = True
            self._check_order(book, sent, consumer)
        if steady and again and book.kind != "leased":  # where an ack may come too late
            for life, at in sent.acks:
                lived_on = life.died_at > at + 1.5
                check(not lived_on, "message", number, "in", queue, "comes after its ack at", at)

    def _check_letter(self, sent: Sent, dead: Book, *, again: bool) -> None:
        """One rejection is one dead letter."""
        sent.letters += not again
        if self.books[sent.queue].kind in ("dlx", "dlx_classic"):
            few = sent.letters <= sent.rejected
            times = f"{sent.letters} letters of {sent.rejected} rejections"
            check(few, "message", sent.number, "is in", dead.name, "as", times)

    def _check_over(self, sent: Sent, book: Book, began: float, *, again: bool) -> None:
        """What was answered as done stays done, for whoever asks after that."""
        at = sent.committed_at
        if at is not None:
            words = ("comes after a transaction acked it at", at)
            check(began < at + STALE_S, "message", sent.number, "in", book.name, *words)
        for purge in book.purges:
            at = purge.answered_at
            if at is not None and began > at + STALE_S and not again:
                gone = sent.number not in purge.waiting
                check(gone, "message", sent.number, "in", book.name, "was purged at", at)

    def _check_order(self, book: Book, sent: Sent, consumer: object) -> None:
        book.consumers.add(consumer)
        if book.kind in IN_ORDER and len(book.consumers) == 1 and consumer is not None:
            last = book.last_fresh.get(sent.publisher, 0)
            check(sent.number > last, book.name, "gives", sent.number, "after", last)
            book.last_fresh[sent.publisher] = sent.number

    def acked(self, number: int, queue: str, life: object, now: float) -> None:
        sent = self.sent[number]
        sent.settled = True
        if queue == sent.queue:
            sent.acks.append((life, now))

    def discarded(self, number: int, queue: str) -> None:
        """Rejected: gone where there is nowhere to go."""
        sent, book = self.sent[number], self.books.get(queue)
        sent.rejected += queue == sent.queue
        if book is None or "x-dead-letter-exchange" not in book.arguments:
            sent.settled = True

    # Transactions and purges

    def committed(self, queue: str, number: int, now: float) -> None:
        """An ack, by tx.commit-ok."""
        sent = self.sent[number]
        if queue == sent.queue:
            sent.committed_at = now

    def purging(self, queue: str, now: float) -> Purge:
        book = self.books[queue]
        purge = Purge(now, set(book.waiting))
        book.purges.append(purge)
        return purge

    def _may_be_purged(self, sent: Sent) -> bool:
        source = self.books[sent.queue]
        books = [source, *([self.books[source.dead]] if source.dead is not None else ())]
        return any(sent.at <= purge.until for book in books for purge in book.purges)

    # Logs

    def leads(self, uid: bytes, term: int, node: object) -> None:
        known = self.leaders.setdefault((uid, term), node)
        check(known == node, "nodes", known, "and", node, "both lead", uid.hex(), "in term", term)

    def state(self, uid: bytes, index: int, state: bytes, node: object) -> None:
        known, other = self.states.setdefault((uid, index), (state, node))
        check(known == state, uid.hex(), "at", index, "differs on", other, "and", node)

    # The end

    def missing(self) -> list[Sent]:
        """What was confirmed and has not come out."""
        return [
            sent
            for sent in self.sent.values()
            if sent.confirmed
            and not sent.settled
            and sent.queue in self.books
            and self.books[sent.queue].kind not in self.leaky
            and sent.dedup_id is None
            and not self._may_be_purged(sent)
        ]

    def check_leases(self) -> None:
        """Whoever still holds one of these has had it for much longer than its lease."""
        for sent in self.missing():
            holder = self.held.get((sent.queue, sent.number))
            if self.books[sent.queue].kind == "leased" and holder is not None:
                words = ("in", sent.queue, "stays with", holder.client)
                check(holder.over, "message", sent.number, *words)

    def check_all_accounted_for(self) -> None:
        for sent in self.missing():
            book = self.books[sent.queue]
            check(
                not "fine",
                f"message {sent.number} was confirmed by {sent.queue} ({book.kind}) and is lost;",
                f"seen {sent.seen} times",
            )
        self._check_ids()

    def _check_ids(self) -> None:
        """Of messages with the same id one was delivered, if any was confirmed."""
        by_id: dict[tuple[str, str], list[Sent]] = defaultdict(list)
        for sent in self.sent.values():
            book = self.books.get(sent.queue)
            if sent.dedup_id is not None and book is not None and book.kind not in self.leaky:
                by_id[sent.queue, sent.dedup_id].append(sent)
        for key, some in by_id.items():
            if any(self._may_be_purged(sent) for sent in some):
                continue  # others were taken as repeating it
            if any(sent.confirmed for sent in some):
                check(any(sent.settled for sent in some), "all messages with id", key, "are lost")
