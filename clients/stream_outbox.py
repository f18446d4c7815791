"""What a producer has still to get to the broker, sans-IO: what to send now, and what became of it.

Each partition is a lane: its chunks are sent in order, a few at a time. A chunk that was lost on
the way, or that nobody could take, holds its lane up until those behind it are answered too; then
all that is not confirmed goes again, in order. Of a numbered producer the broker drops what it has.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import Producer as ProducerPlace
from broker.protocol.stream_errors import StreamError
from broker.protocol.stream_wire import UNKNOWN_OFFSET, Status
from clients.stream_batches import BATCH_BYTES, Batch, Batches
from clients.stream_errors import ConnectionLostError, RefusedError
from clients.stream_plans import Again, Plan, asked

# A partition remembers the offsets of this many batches of a producer (queues.stream.producers).
IN_FLIGHT_MAX: Final = 5
SEQUENCES: Final = 2**32  # in one epoch; the field of a chunk


@dataclass(slots=True, eq=False)
class Sent:
    """A batch that is closed."""

    partition: int
    batch: Batch
    chunk: bytes = b""  # empty: it has no number yet
    under_way: bool = False
    leads: bool = False  # it was the first of its lane when it was sent

    @property
    def numbered(self) -> bool:
        return bool(self.chunk)


@dataclass(slots=True)
class _Lane:
    sent: deque[Sent] = field(default_factory=deque)
    held_up: bool = False

    @property
    def under_way(self) -> bool:
        return any(each.under_way for each in self.sent)


class Outbox:
    """Of one stream. `failure` is why it takes and sends nothing any more."""

    def __init__(
        self, stream: str, partitions: int, *, idempotent: bool, batch_bytes: int = BATCH_BYTES
    ) -> None:
        self.stream = stream
        self.confirmed = 0  # records
        self.next_offsets: dict[int, int] = {}  # behind the last confirmed record, by partition
        self.failure: StreamError | None = None
        self.trouble: StreamError | None = None  # why something must be sent again
        self.sequences: dict[int, int] = {}
        self._idempotent = idempotent
        self._batches = Batches(partitions, batch_bytes)
        self._lanes: dict[int, _Lane] = {}
        self._identity: wire.ProducerAllocated | None = None
        self._used_up = False
        self._numbered = 0  # that are not confirmed
        self._closed_bytes = 0
        self._troubles = 0  # since something was confirmed

    # Records

    def add(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Mapping[str, object] | None,
        partition: int | None,
    ) -> int | None:
        """The partition whose batch is full now, if one is."""
        return self._batches.add(value, key, headers, partition)

    def partition_of(self, key: bytes | None) -> int:
        return self._batches.partition_of(key)

    def batch(self, partition: int) -> Batch:
        """The open one."""
        return self._batches.batch(partition)

    @property
    def unconfirmed_bytes(self) -> int:
        """Of values, keys and properties."""
        return self._batches.size_bytes + self._closed_bytes

    @property
    def open_partitions(self) -> list[int]:
        return self._batches.open_partitions()

    def is_busy(self, partition: int) -> bool:
        """A batch that is closed now could not be sent yet, so it may as well grow."""
        lane = self._lanes.get(partition)
        return lane is not None and len(lane.sent) >= IN_FLIGHT_MAX

    def close_batch(self, partition: int) -> None:
        batch = self._batches.take(partition)
        self._closed_bytes += batch.size_bytes
        self._lanes.setdefault(partition, _Lane()).sent.append(Sent(partition, batch))

    def __len__(self) -> int:
        """Closed batches that are not confirmed."""
        return sum(len(lane.sent) for lane in self._lanes.values())

    # Numbers

    @property
    def needs_number(self) -> bool:
        """A new one is to be allocated before anything more can be sent."""
        lacks = self._identity is None or self._used_up
        return self._idempotent and lacks and not self._numbered and self.failure is None

    def allocate(self, name: str) -> Plan[None]:
        """A producer of that name that was before is fenced by it."""
        request = wire.AllocateProducer(name)
        self._identity = yield from asked(request, wire.ProducerAllocated)
        self._used_up = False
        self.sequences.clear()

    def _number(self, sent: Sent) -> bool:
        """False: the numbers of this epoch are used up."""
        place = None
        if self._idempotent:
            identity = self._identity
            sequence = self.sequences.get(sent.partition, 0)
            self._used_up = self._used_up or sequence + len(sent.batch) > SEQUENCES
            if identity is None or self._used_up:
                return False
            self.sequences[sent.partition] = sequence + len(sent.batch)
            place = ProducerPlace(identity.producer_id, identity.epoch, sequence)
        sent.chunk = sent.batch.chunk(place)
        self._numbered += 1
        return True

    # Sending

    def due(self) -> Iterator[Sent]:
        """What is to be sent now, in this order; each counts as under way."""
        for lane in self._lanes.values():
            if lane.held_up and lane.under_way:
                continue
            lane.held_up = False
            for place, sent in enumerate(lane.sent):
                if place == IN_FLIGHT_MAX or not (sent.numbered or self._number(sent)):
                    break
                if not sent.under_way:
                    sent.under_way, sent.leads = True, place == 0
                    yield sent

    def request(self, sent: Sent) -> wire.Append:
        return wire.Append(self.stream, sent.partition, sent.chunk)

    def confirm(self, sent: Sent, answer: wire.Appended) -> int | None:
        """The offset of its first record, as far as that is known any more."""
        self._lanes[sent.partition].sent.remove(sent)
        self._numbered -= 1
        self._closed_bytes -= sent.batch.size_bytes
        self._troubles = 0
        self.confirmed += len(sent.batch)
        if answer.offset == UNKNOWN_OFFSET:
            return None
        end = answer.offset + len(sent.batch)
        self.next_offsets[sent.partition] = max(end, self.next_offsets.get(sent.partition, 0))
        return answer.offset

    def fail(self, sent: Sent, error: ConnectionLostError | RefusedError) -> None:
        """It goes again if that may help and does no harm; else this is the end."""
        sent.under_way = False
        if self._may_go_again(sent, error):
            self._lanes[sent.partition].held_up = True
            if self.trouble is None:
                self.trouble = error
        else:
            self.give_up(error)

    def catch_breath(self) -> Plan[None]:
        """After trouble, before anything is sent again."""
        assert self.trouble is not None
        error, self.trouble = self.trouble, None
        self._troubles += 1
        yield Again(self._troubles - 1, error)

    def give_up(self, error: StreamError) -> StreamError:
        """The first failure counts."""
        if self.failure is None:
            self.failure = error
        return self.failure

    @property
    def pending(self) -> list[Batch]:
        """All that is not confirmed."""
        closed = [each.batch for lane in self._lanes.values() for each in lane.sent]
        return closed + [self._batches.batch(each) for each in self.open_partitions]

    def _may_go_again(self, sent: Sent, error: ConnectionLostError | RefusedError) -> bool:
        if not self._idempotent:
            return False
        if isinstance(error, RefusedError):
            behind_another = error.status == Status.OUT_OF_ORDER and not sent.leads
            return error.status == Status.UNAVAILABLE or behind_another
        return True
