"""Receipts: what names one delivery of one message, and is worth nothing after the next.

handle    base64url of   0          8          16         24           28             32
                         +----------+----------+----------+------------+--------------+
                         | queue    | sequence | session  | number     | failures     |
                         | 8 bytes  | u64      | 8 bytes  | u32        | u32          |
                         +----------+----------+----------+------------+--------------+
          queue: the first bytes of its uid
          session: random, new whenever a queue begins to be served by a node
          number: of the delivery, within the session
          failures: how often the message had been returned when it was delivered
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from broker.sqs.errors import BAD_HANDLE, SqsError, bad_parameter

if TYPE_CHECKING:
    from queues.consumers import Consumer
    from queues.message import Message

K = TypeVar("K")
V = TypeVar("V")

SESSION_BYTES: Final = 8
FIRSTS_MAX: Final = 100_000  # messages that came back, of which it is known when they went first
# Deletes that may come again, because their answer was lost: some seconds' worth.
DELETED_MAX: Final = 10_000

_HANDLE: Final = struct.Struct(f">8sQ{SESSION_BYTES}sII")
_NUMBER_MAX: Final = 2**32 - 1


class Receipt(NamedTuple):
    """One delivery."""

    queue: bytes
    sequence: int
    session: bytes
    number: int
    failures: int

    def encode(self) -> str:
        return base64.urlsafe_b64encode(_HANDLE.pack(*self)).decode()


def decode_handle(handle: str, uid: bytes) -> Receipt:
    """Raises SqsError for what never was a handle of the queue with this uid."""
    try:
        raw = base64.b64decode(handle.encode("ascii"), altchars=b"-_", validate=True)
        receipt = Receipt(*_HANDLE.unpack(raw))
    except (binascii.Error, ValueError, struct.error):
        receipt = None
    if receipt is None or receipt.queue != uid[:8]:
        text = f'The input receipt handle "{handle:.100}" is not a valid receipt handle.'
        raise SqsError(BAD_HANDLE, text)
    return receipt


def expired(handle: str) -> SqsError:
    return bad_parameter("ReceiptHandle", handle, "The receipt handle has expired.")


class Held(NamedTuple):
    """A message that somebody has received."""

    receipt: Receipt
    consumer: Consumer
    message: Message
    received_ms: int
    first_ms: int


class Receipts:
    """Of one queue: who has which message. Nothing here survives; the messages do."""

    def __init__(self, uid: bytes, session: bytes) -> None:
        assert len(session) == SESSION_BYTES
        self._queue = uid[:8]
        self.session = session
        self._number = 0
        self._held: dict[int, Held] = {}  # by sequence
        self._firsts: dict[int, int] = {}  # when messages that came back were received first
        self._deleted: dict[Receipt, None] = {}  # lately

    def __len__(self) -> int:
        return len(self._held)

    def issue(self, consumer: Consumer, message: Message, now_ms: int) -> Held:
        """It was just delivered; whatever was issued for it before is worth nothing."""
        self._number = self._number % _NUMBER_MAX + 1
        failures = min(message.delivery_count, _NUMBER_MAX)
        receipt = Receipt(self._queue, message.sequence, self.session, self._number, failures)
        first_ms = self._firsts.pop(message.sequence, now_ms)
        held = Held(receipt, consumer, message, now_ms, first_ms)
        self._held[message.sequence] = held
        return held

    def find(self, receipt: Receipt) -> Held | None:
        """What is held on just this receipt."""
        held = self._held.get(receipt.sequence)
        return held if held is not None and held.receipt == receipt else None

    def supersedes(self, receipt: Receipt) -> bool:
        """Whether somebody has the message on another receipt."""
        held = self._held.get(receipt.sequence)
        return held is not None and held.receipt != receipt

    def settled(self, held: Held) -> None:
        del self._held[held.receipt.sequence]

    def deleted(self, receipt: Receipt) -> None:
        """For good."""
        _remember(self._deleted, receipt, None, DELETED_MAX)

    def was_deleted(self, receipt: Receipt) -> bool:
        return receipt in self._deleted

    def came_back(self, messages: list[Message]) -> list[Message]:
        """Their time is over: those of them that were held, and are no more."""
        back: list[Message] = []
        for message in messages:
            held = self._held.get(message.sequence)
            if held is not None and held.message is message:
                del self._held[message.sequence]
                _remember(self._firsts, message.sequence, held.first_ms, FIRSTS_MAX)
                back.append(message)
        return back

    def all(self) -> list[Held]:
        return list(self._held.values())

    def still_good(self, receipt: Receipt, message: Message) -> bool:
        """Whether a message that waits again was not delivered to anybody since this receipt.

        Within a session it has been returned once since, when its time was over. In another one
        nobody may have got round to writing that down.
        """
        since = message.delivery_count - receipt.failures
        return since == (1 if receipt.session == self.session else 0)


def _remember(table: dict[K, V], key: K, value: V, most: int) -> None:
    """The oldest goes where there are too many."""
    if len(table) >= most:
        del table[next(iter(table))]
    table[key] = value
