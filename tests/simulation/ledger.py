"""What a node promised: which messages must be there, may be there, and must never come back."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from queues.groups import group_of
from queues.message import Message
from tests.support.promises import check


def number_of(message: Message) -> int:
    """The number that the body of every simulated message begins with."""
    body = message.frames[message.header_bytes + 15 :]
    return int(body[1 : body.index(b">")])


class Found(NamedTuple):
    """A message that a restart found in a queue's log."""

    sequence: int
    number: int
    returns: int
    due: int | None = None  # it was delayed until then, if it ever was


@dataclass(slots=True)
class Item:
    """A message in a queue. It is never forgotten while it may still come back."""

    sequence: int
    number: int
    message: int = 0  # identity of what was published
    stored: bool = False  # it was enqueued, which means that it is durable
    promised: bool = False  # confirmed, or found after a restart
    held: bool = False  # out with a consumer
    settled: bool = False  # acked, dropped, purged: it may be gone
    settle_said: bool = False  # to the log; of a dead letter not before its targets have it
    settled_durably: bool = False
    deliveries: int = 0
    returns: int = 0
    returns_durable: int = 0
    revived: bool = False  # it had been settled, and a crash undid that
    suspect: bool = False  # survived a crash: its flag says redelivered, whatever is true
    group: bytes | None = None
    exempt: bool = False  # it was out when its queue got groups, and blocks none
    # Until when it has to wait: as is durable, then what was asked for since.
    dues: list[int | None] = field(default_factory=lambda: [None])

    @property
    def due(self) -> int | None:
        return self.dues[-1]

    @property
    def ready(self) -> bool:
        """Or delayed."""
        return self.stored and not self.held and not self.settled

    @property
    def blocks(self) -> bool:
        """Later ones of its group have to wait for it: it is not delayed before its first try."""
        alive = self.stored and not self.settled and not self.exempt
        return alive and bool(self.due is None or self.held or self.deliveries or self.returns)


class Id(NamedTuple):
    """Who brought an id, and until when nobody else may."""

    item: Item
    until: int


@dataclass
class Book:
    """A queue, from its declaration to its deletion; another of its name has another book."""

    name: str
    uid: bytes
    in_order: bool
    # Nothing is dropped by itself, which may happen behind the note of what was never delivered.
    notes_fresh: bool = True
    items: dict[int, Item] = field(default_factory=dict)
    ids: dict[bytes, Id] = field(default_factory=dict)
    copies: dict[int, Item] = field(default_factory=dict)  # duplicate → the one that was taken
    knows_ids: bool = True
    reordered: bool = False  # in this life
    top: int = -1  # highest sequence that was ever durable
    last_fresh: int = -1  # highest sequence ever delivered
    deleted: bool = False
    damaged: bool = False

    def __str__(self) -> str:
        return f"queue {self.name}:"

    @property
    def is_in_order(self) -> bool:
        return self.in_order and not self.reordered

    def count(self) -> tuple[int, int]:
        """Ready or delayed, and unacked."""
        items = self.items.values()
        return sum(i.ready for i in items), sum(i.held for i in items)

    def scheduled(self, now: int) -> list[tuple[int, int]]:
        """Sequence and time of what is delayed, the next to be due first."""
        waiting = [(i.due, i.sequence) for i in self.items.values() if i.ready and i.due]
        return [(sequence, due) for due, sequence in sorted(waiting) if due > now]

    def _item(self, message: Message) -> Item:
        item = self.items.get(message.sequence)
        check(item, self, "there is no message", message.sequence, number_of(message))
        assert item is not None
        same = item.number == number_of(message)
        check(same, self, "sequence", item.sequence, "was", item.number, "now", number_of(message))
        return item

    # Life

    def arrived(self, messages: list[Message], delayed: Iterable[Message]) -> None:
        for message in messages:
            free = message.sequence > self.top and message.sequence not in self.items
            check(free, self, "sequence", message.sequence, "is given twice")
            self.items[message.sequence] = Item(
                message.sequence, number_of(message), id(message), group=group_of(message)
            )
        for message in delayed:
            self.items[message.sequence].dues = [message.due_ms]

    def known(self, digest: bytes, now: int) -> Item | None:
        """Who brought this id lately."""
        known = self.ids.get(digest)
        return known.item if known is not None and known.until > now else None

    def took(self, message: Message) -> Item | None:
        """This very one, and not another with its number: it may have come as a dead letter."""
        item = self.items.get(message.sequence)
        same = item is not None and (item.number, item.message) == (number_of(message), id(message))
        return item if same else None

    def enqueued(self, messages: list[Message]) -> None:
        for message in messages:
            self._item(message).stored = True
            self.top = max(self.top, message.sequence)

    def delivered(self, messages: list[Message], *, alone: bool, no_ack: bool, now: int) -> None:
        if self.is_in_order:
            prompt = [m.sequence for m in messages if self._item(m).due is None]
            check(prompt == sorted(prompt), self, "out of order:", prompt)
            ready = sorted(i.sequence for i in self.items.values() if i.ready and i.due is None)
            first = ready[: len(prompt)] == prompt
            check(first or not alone, self, "delivered", prompt, "of", ready[:20])
        for message in messages:
            self._delivered(self._item(message), message, now)
            if no_ack:
                self.settled([message])

    def _delivered(self, item: Item, message: Message, now: int) -> None:
        what = f"{self} message {item.number}"
        check(item.ready, what, "is delivered but not ready:", item)
        check(item.due is None or item.due <= now, what, "comes early:", item, now)
        check(message.redelivered or not item.deliveries, what, "looks fresh but is not")
        again = item.deliveries or item.suspect
        check(again or not message.redelivered, what, "looks redelivered but is not")
        counted = message.delivery_count == item.returns
        check(counted, what, "counts", message.delivery_count, "returns of", item.returns)
        on_time = message.expires_at is None or message.expires_at >= now
        check(on_time, what, "had expired")
        item.deliveries += 1
        item.held = True
        item.exempt = False
        if item.due is None:
            self.last_fresh = max(self.last_fresh, item.sequence)

    def check_group(self, message: Message) -> None:
        """It may be delivered: nothing of its group is out, or before it."""
        group = group_of(message)
        if group is not None:
            others = [i for i in self.items.values() if i.group == group and i.blocks]
            wrong = [i for i in others if i.held or i.sequence < message.sequence]
            check(not wrong, self, "group", group, "of", message.sequence, "is blocked by", wrong)

    def settled(self, messages: Iterable[Message]) -> None:
        for message in messages:
            item = self._item(message)
            check(not item.settled, self, "message", item.number, "is settled twice")
            item.settled, item.held = True, False

    def returned(self, messages: Iterable[Message], due: Callable[[int], int | None]) -> None:
        """Each to be delivered again; `due` tells when, by how often it failed."""
        for message in messages:
            item = self._item(message)
            check(item.held, self, "message", item.number, "is returned by nobody")
            item.held = False
            item.returns += 1
            when = due(item.returns)
            if when is not None:
                item.dues.append(when)

    def purged(self) -> int:
        ready = [item for item in self.items.values() if item.ready]
        for item in ready:
            item.settled = item.settle_said = True
        return len(ready)

    def cancelled(self, sequence: int) -> None:
        item = self.items[sequence]
        item.settled = item.settle_said = True

    def settle_said(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._item(message).settle_said = True

    def check_order(self) -> None:
        """Messages that were never delivered stand behind all that were."""
        if self.is_in_order:
            skipped = [
                i.sequence
                for i in self.items.values()
                if i.ready and i.due is None and not (i.deliveries or i.revived)
                if i.sequence < self.last_fresh
            ]
            check(not skipped, self, skipped, "were passed over by", self.last_fresh)

    # Restarts

    def recovered(self, found: list[Found], *, crashed: bool) -> None:
        sequences = {each.sequence for each in found}
        check(len(sequences) == len(found), self, "the same message twice")
        for each in found:
            item = self.items.get(each.sequence)
            same = item is not None and item.number == each.number
            check(same, self, "invented or came back:", each, "for", item)
            assert item is not None
            self._survived(item, each, crashed=crashed)
        for item in [i for i in self.items.values() if i.sequence not in sequences]:
            needed = item.promised and not item.settled and not self.deleted
            check(not needed, self, "lost", item)
            del self.items[item.sequence]
        if self.deleted and not found:
            self.top = self.last_fresh = -1  # its log is gone, and only its definition came back
            self.knows_ids = False  # or it is not, and the ids are known
        self.ids = {digest: each for digest, each in self.ids.items() if each.item.stored}
        self.top = max([self.top, *sequences])
        if self.reordered:
            self.last_fresh = -1
        self.deleted = self.reordered = False

    def _survived(self, item: Item, found: Found, *, crashed: bool) -> None:
        check(not item.settled_durably, self, "came back after its settle was durable:", item)
        known = item.returns_durable <= found.returns <= item.returns
        check(known, self, "counts", found.returns, "returns of", item)
        check(found.due in item.dues, self, "is due", found.due, "and not as asked:", item)
        item.stored = item.promised = True
        item.revived |= item.settled
        item.held = item.settled = item.settle_said = item.exempt = False
        item.returns = item.returns_durable = found.returns
        item.dues = [found.due]
        noted = self.is_in_order and self.notes_fresh and found.due is None
        item.suspect |= crashed or not noted


class Definitions:
    """Queues, exchanges and bindings: as answered, and the changes that were not answered yet."""

    def __init__(self) -> None:
        self._base: dict[tuple[str, ...], bytes] = {}
        self._changes: list[tuple[tuple[str, ...], bytes | None]] = []
        self._answered = 0

    def change(self, thing: tuple[str, ...], value: bytes | None) -> int:
        """A thing is made, or gone if its value is None; the number of the change."""
        self._changes.append((thing, value))
        return len(self._changes)

    def answered(self, number: int) -> None:
        self._answered = max(self._answered, number)

    def recovered(self, found: dict[tuple[str, ...], bytes]) -> None:
        """What is there now must be what was there after some change, at least the answered."""
        state = dict(self._base)
        seen = []
        for number in range(len(self._changes) + 1):
            if number >= self._answered:
                seen.append(dict(state))
            if number < len(self._changes):
                thing, value = self._changes[number]
                state.pop(thing, None)
                if value is not None:
                    state[thing] = value
        if found not in seen:
            wrong = sorted(found.items() ^ seen[0].items())
            check(not "fine", "definitions differ:", wrong)
        self._base = found
        self._changes = []
        self._answered = 0


class Ledger:
    """All queues of a node, and the barriers that make what was said to them final."""

    def __init__(self) -> None:
        self.books: dict[bytes, Book] = {}  # by uid
        self.definitions = Definitions()

    def book(self, queue: Any) -> Book:
        return self.books[queue.uid]

    def barrier(self) -> Callable[[], None]:
        """To be called when all that was said before is durable."""
        items = [item for book in self.books.values() for item in book.items.values()]
        settled = [i for i in items if i.settled and i.settle_said and not i.settled_durably]
        returned = [(i, i.returns) for i in items if i.returns > i.returns_durable]
        delayed = [(i, i.due) for i in items if len(i.dues) > 1]

        def durable() -> None:
            for item in settled:
                item.settled_durably = True
            for item, returns in returned:
                item.returns_durable = max(item.returns_durable, returns)
            for item, due in delayed:
                if due in item.dues:
                    del item.dues[: item.dues.index(due)]

        return durable
