"""Publisher confirms: which publishes of a channel are safe in all their queues."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from queues.message import Message


class Answer(Protocol):
    """Sends basic.ack or, not positive, basic.nack."""

    def __call__(self, tag: int, *, multiple: bool, positive: bool) -> None: ...


class Receipt:
    """One read's publishes, tags `first` to `last`, and how many queues have yet to answer."""

    __slots__ = ("_done", "first", "last", "open", "refused")

    def __init__(self, done: "Callable[[Receipt], None]", first: int = 1) -> None:
        self._done = done
        self.first = first
        self.last = first - 1
        self.open = 1  # the publisher itself, until it has handed everything over
        self.refused: set[int] = set()

    def stored(self, refused: "list[Message]") -> None:
        """A queue (or the publisher) is through with its part."""
        for message in refused:
            self.refused.add(message.sequence)  # refused before the queue gave it a sequence
        self.open -= 1
        if not self.open:
            self._done(self)


class ConfirmTracker:
    """Turns receipts into as few acks and nacks as their order allows."""

    __slots__ = ("_answer", "_open", "confirmed", "next_tag")

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._open: dict[Receipt, None] = {}  # in order of tags
        self.next_tag = 1
        self.confirmed = 0  # publishes that were acked

    @property
    def unconfirmed(self) -> int:
        return sum([receipt.last - receipt.first + 1 for receipt in self._open])

    def begin(self) -> Receipt:
        receipt = Receipt(self._resolve, self.next_tag)
        self._open[receipt] = None
        return receipt

    def _resolve(self, receipt: Receipt) -> None:
        """`multiple` covers everything up to a tag, so only the oldest open receipt may use it."""
        oldest = next(iter(self._open)) is receipt
        del self._open[receipt]
        if receipt.last < receipt.first:
            return
        self.confirmed += receipt.last - receipt.first + 1 - len(receipt.refused)
        if oldest and not receipt.refused:
            several = receipt.last > receipt.first
            self._answer(receipt.last, multiple=several, positive=True)
            return
        for tag in range(receipt.first, receipt.last + 1):
            self._answer(tag, multiple=False, positive=tag not in receipt.refused)
