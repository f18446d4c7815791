"""Published messages become records: one append for each partition that a batch concerns."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

from broker.protocol.constants import FLAG_HEADERS
from broker.protocol.runs import ContentRun
from queues.message import Message
from queues.seams import Receipt
from queues.stream.content import FLAGS_AT, header_key, is_tombstone, routing_key
from queues.stream.verdict import Verdict


class Columns(NamedTuple):
    """Records of a batch, or what one partition gets of them."""

    keys: list[bytes | None]
    values: list[bytes | None]
    properties: list[bytes]


class Confirmation:
    """Tells the publisher when all the partitions that its batch went to have it."""

    __slots__ = ("_messages", "_open", "_receipt", "_refused")

    def __init__(self, receipt: Receipt, parts: int, messages: Callable[[], list[Message]]) -> None:
        self._receipt = receipt
        self._open = parts
        self._messages = messages
        self._refused = False

    def appended(self, verdict: Verdict, first_offset: int | None) -> None:  # noqa: ARG002
        assert verdict is Verdict.NEW, "an AMQP publisher is no producer with a sequence"
        self.dropped()

    def dropped(self) -> None:
        self._open -= 1
        if not self._open:
            self._receipt.stored(self._messages() if self._refused else [])

    def lost(self) -> None:
        """Some of it may not be stored: the publisher may send all of it again."""
        self._refused = True
        self.dropped()


def partition_of(key: bytes, partitions: int) -> int:
    """Where records of a key go. Spark's crc32 gives the same."""
    return crc32(key) % partitions


def records_of(messages: Sequence[Message]) -> Columns:
    """The messages as records, in order. The hot loop of publishing."""
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    properties: list[bytes] = []
    for message in messages:
        frames, address = message.frames, message.address
        # The body frame follows the end of the header frame, and has seven bytes of its own first.
        body_at = message.header_bytes + 15
        kept = address + frames[FLAGS_AT : body_at - 8]
        value: bytes | None = frames[body_at : body_at + message.body_bytes]
        key = None
        if message.flags & FLAG_HEADERS:
            key = header_key(kept)
            if is_tombstone(kept):
                value = None
        if key is None and address[0]:
            key = routing_key(address)
        keys.append(key)
        values.append(value)
        properties.append(kept)
    return Columns(keys, values, properties)


def records_of_run(run: ContentRun, address: bytes) -> Columns:
    """The same for publishes that are all alike, as records with one key."""
    kept = address + run.properties
    values: list[bytes | None] = [*run.bodies()]
    key = None
    if run.flags & FLAG_HEADERS:
        key = header_key(kept)
        if is_tombstone(kept):
            values = [None] * len(run)
    if key is None:
        key = routing_key(address)
    return Columns([key] * len(run), values, [kept] * len(run))


def divide(records: Columns, partitions: int, turn: int) -> Iterable[tuple[int, Columns]]:
    """What goes to which partition; records without a key go to all of them in turn."""
    keys, values, properties = records
    if partitions == 1:
        yield 0, records
        return
    first = keys[0] if keys else None
    if keys.count(first) == len(keys) and first is not None:
        yield partition_of(first, partitions), records
        return
    if keys.count(None) == len(keys):
        for place in range(min(partitions, len(keys))):
            some = slice(place, None, partitions)
            share = Columns(keys[some], values[some], properties[some])
            yield (turn + place) % partitions, share
        return
    shares: dict[int, Columns] = {}
    for key, value, property_ in zip(keys, values, properties, strict=True):
        if key is None:
            number = turn % partitions
            turn += 1
        else:
            number = partition_of(key, partitions)
        if number not in shares:
            shares[number] = Columns([], [], [])
        share = shares[number]
        share.keys.append(key)
        share.values.append(value)
        share.properties.append(property_)
    yield from shares.items()
