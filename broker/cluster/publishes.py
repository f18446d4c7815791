"""What a front has published and not heard of: kept in order, and said again to a new leader."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from broker.cluster.queue_wire import encode_batch
from queues.message import Message, Wishes
from queues.seams import Receipt

MESSAGE_OVERHEAD_BYTES: Final = 512  # about what a message costs beyond its frames
PUBLISH_BYTES: Final = 256 * 1024  # in one message to the leader, if it can be cut there


class Kept:
    """A batch on its way into the queue: also the receipt that a queue on this node is given."""

    __slots__ = ("_publishes", "_saved", "messages", "number", "receipt", "size_bytes")

    def __init__(
        self, publishes: "Publishes", number: int, messages: list[Message], receipt: Receipt | None
    ) -> None:
        self._publishes = publishes
        self._saved: list[tuple[int, int | None, Wishes | None]] | None = None
        self.number = number
        self.messages = messages
        self.receipt = receipt
        self.size_bytes = 0  # what it costs, while it waits for another node

    def save(self) -> None:
        """A queue on this node changes these: another one may have to be told what they were."""
        if self._saved is None:
            self._saved = [(m.sequence, m.expires_at, m.wishes) for m in self.messages]
        else:
            self.restore()

    def restore(self) -> None:
        if self._saved is not None:
            for message, (tag, expires_at, wishes) in zip(self.messages, self._saved, strict=True):
                message.sequence = tag  # the publisher's own, by which it knows what was refused
                message.expires_at = expires_at
                message.wishes = wishes

    def as_published(self) -> list[Message]:
        """Twins that have the publisher's numbers, where a queue here may still want its own."""
        if self._saved is None:
            return self.messages
        twins = [message.copy() for message in self.messages]
        for twin, (tag, _, _) in zip(twins, self._saved, strict=True):
            twin.sequence = tag
        return twins

    def stored(self, refused: list[Message]) -> None:
        self._publishes.stored(self, refused)


class Publishes:
    """Numbered batches of one front, until they are stored or refused."""

    __slots__ = ("_kept", "_next", "_pending", "_unsent", "_waiting", "session")

    def __init__(self, session: bytes, pending: Callable[[int], None]) -> None:
        self.session = session  # names this front to the queue's log
        self._pending = pending  # told how many bytes more, or less, wait for another node
        self._kept: dict[int, Kept] = {}  # by number, ascending
        self._next = 1
        self._unsent: list[Kept] = []
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()  # for all before a number

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def add(self, messages: list[Message], receipt: Receipt | None) -> Kept:
        number = self._next
        self._next = number + 1
        kept = self._kept[number] = Kept(self, number, messages, receipt)
        return kept

    def wait(self, kept: Kept) -> None:
        """It has to go to another node."""
        size = MESSAGE_OVERHEAD_BYTES * len(kept.messages)
        size += sum([len(m.frames) for m in kept.messages])
        self._pending(size - kept.size_bytes)
        kept.size_bytes = size
        self._unsent.append(kept)

    def all_unsent(self) -> None:
        """Whoever had them is gone: all of them are to be sent, from the oldest on."""
        self._unsent = []
        for kept in self._kept.values():
            kept.restore()
            self.wait(kept)

    def all_here(self) -> Iterator[Kept]:
        """All of them, from the oldest on, for a queue on this node."""
        self._unsent = []
        for kept in list(self._kept.values()):
            self._pending(-kept.size_bytes)
            kept.size_bytes = 0
            kept.save()
            yield kept

    def encode(self) -> Iterator[tuple[list[bytes], int]]:
        """What is unsent, as bodies of PUBLISH and about how long those are; then it is sent."""
        unsent, self._unsent = self._unsent, []
        pieces: list[bytes] = []
        size = 0
        for kept in unsent:
            if kept.number not in self._kept:
                continue  # refused meanwhile
            encode_batch(pieces, kept.number, kept.messages)
            size += kept.size_bytes
            if size >= PUBLISH_BYTES:
                yield pieces, size
                pieces, size = [], 0
        if pieces:
            yield pieces, size

    def stored(self, kept: Kept, refused: list[Message]) -> None:
        """What became of a batch; the first word counts."""
        if self._kept.pop(kept.number, None) is None:
            return
        if kept.size_bytes:
            self._pending(-kept.size_bytes)
        if kept.receipt is not None:
            kept.receipt.stored(refused)
        if self._waiting:
            self._wake()

    def when_done(self, then: Callable[[], None]) -> None:
        """Call back when it is known what became of each that is kept now."""
        self._waiting.append((self._next, then))
        self._wake()

    def _wake(self) -> None:
        oldest = next(iter(self._kept), self._next)
        while self._waiting and self._waiting[0][0] <= oldest:
            _, then = self._waiting.popleft()
            then()

    def told_stored(self, number: int, places: list[int]) -> None:
        """The same from another node, which refused the messages at these places."""
        kept = self._kept.get(number)
        if kept is not None:
            self.stored(kept, [kept.messages[place] for place in places])

    def refuse_all(self) -> None:
        for kept in list(self._kept.values()):
            self.stored(kept, kept.as_published())

    def forget_all(self) -> None:
        """The queue is deleted: nothing of it is wanted any more, and nobody is to wait."""
        for kept in list(self._kept.values()):
            self.stored(kept, [])
