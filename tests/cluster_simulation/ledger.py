"""What clients saw and did, and which promises that breaks."""

from collections import defaultdict
from dataclasses import dataclass, field

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


@dataclass
class Book:
    """A queue that lasts as long as the run."""

    name: str
    kind: str
    arguments: dict
    last_fresh: dict = field(default_factory=dict)  # publisher → number, where one alone consumes
    consumers: set = field(default_factory=set)


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

    def publish(self, queue: str, publisher: object, dedup_id: str | None) -> int:
        number = len(self.sent) + 1
        self.sent[number] = Sent(number, queue, publisher, dedup_id=dedup_id)
        self.counts["published"] += 1
        return number

    def confirmed(self, number: int) -> None:
        sent = self.sent[number]
        check(not sent.confirmed and not sent.refused, "message", number, "is answered twice")
        sent.confirmed = True
        self.counts["confirmed"] += 1

    def refused(self, number: int) -> None:
        sent = self.sent[number]
        check(not sent.confirmed and not sent.refused, "message", number, "is answered twice")
        sent.refused = True
        self.counts["refused"] += 1

    def _may_be_in(self, sent: Sent, queue: str) -> bool:
        """In the queue that it was sent to, or where the dead letters of that go."""
        source = self.books.get(sent.queue)
        target = source.arguments.get("x-dead-letter-routing-key") if source is not None else None
        return queue in (sent.queue, target)

    def delivered(self, queue: str, number: int, consumer: object, now: float, *, again: bool):
        """To a consumer, or for basic.get (`consumer` is None then)."""
        sent = self.sent.get(number)
        check(sent is not None, "message", number, "in", queue, "was never published")
        check(self._may_be_in(sent, queue), "message", number, "for", sent.queue, "is in", queue)
        self.counts["delivered"] += 1
        book = self.books.get(queue)
        if book is None or queue != sent.queue:
            return
        sent.seen += 1
        holder = self.held.get((queue, number))
        steady = self.calm and book.kind != "classic"  # which has nobody to take over
        if steady and holder is not None:
            check(holder.over, "message", number, "in", queue, "is at", holder.client, "and comes")
        if not again:
            check(not sent.fresh, "message", number, "in", queue, "comes twice as if it were new")
            sent.fresh = True
            self._check_order(book, sent, consumer)
        if steady and again:
            for life, at in sent.acks:
                lived_on = life.died_at > at + 1.5
                check(not lived_on, "message", number, "in", queue, "comes after its ack at", at)

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
        if book is None or "x-dead-letter-exchange" not in book.arguments:
            sent.settled = True

    # Logs

    def leads(self, uid: bytes, term: int, node: object) -> None:
        known = self.leaders.setdefault((uid, term), node)
        check(known == node, "nodes", known, "and", node, "both lead", uid.hex(), "in term", term)

    def state(self, uid: bytes, index: int, state: bytes, node: object) -> None:
        known, other = self.states.setdefault((uid, index), (state, node))
        check(known == state, uid.hex(), "at", index, "differs on", other, "and", node)

    # The end

    def check_all_accounted_for(self) -> None:
        for sent in self.sent.values():
            book = self.books.get(sent.queue)
            if not sent.confirmed or sent.settled or book is None or book.kind in self.leaky:
                continue
            if sent.dedup_id is not None:
                continue
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
            if any(sent.confirmed for sent in some):
                check(any(sent.settled for sent in some), "all messages with id", key, "are lost")
