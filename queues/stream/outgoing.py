"""What a node of a cluster publishes to one partition, until that is stored, wherever that leads.

Batches are gathered into chunks. Those that no producer numbered get a number from this node: its
own producer id (of this life of the node), an epoch, and a sequence for this partition, by which
the producer table at the leader knows what it has already. All that is not answered is kept and, in
order, sent again to the next leader: nothing is stored twice, nothing is overtaken. Publishers of a
stream with `leader_acks` are told earlier, when the leader has it on its disk; it is kept even so.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias

from broker.protocol.chunk import HEADER_BYTES, PRODUCER, Producer, encode_chunk, read_header
from broker.protocol.chunk_columns import size_of
from queues.stream.arrivals import Made, Receipt, Records
from queues.stream.forwarding import (
    encode_append,
    encode_on_disk,
    is_on_disk,
    read_append_answer,
)
from queues.stream.made_chunks import check_made
from queues.stream.partition import ENTRY_BYTES_MAX, ENTRY_RECORDS_MAX, StreamPartition
from queues.stream.producers import EPOCH_MAX, NODE_PRODUCERS
from queues.stream.tail import TailBudget
from queues.stream.verdict import Verdict

# Kept for one partition; publishers are held back beyond it.
OUTGOING_BYTES_MAX: Final = 16 * 1024 * 1024
NODE_BYTES_MAX: Final = 64 * 1024 * 1024  # for all partitions together
# On the way to another node; what comes meanwhile gathers to larger chunks.
WINDOW_BYTES_MAX: Final = 4 * 1024 * 1024
SEQUENCE_MAX: Final = 2**32 - 1
# The partition's table forgets who wrote nothing for long (partition_producers.CROWDED_IDLE_MS):
# whoever begins a new epoch before that need not know.
RENEW_MS: Final = 5 * 60 * 1000

ForwardThen: TypeAlias = Callable[[bytes | None], None]


class Forwarder(Protocol):
    """The way to other nodes."""

    def forward(self, uid: bytes, node: int, body: bytes, then: ForwardThen) -> None:
        """Ask the leader of a partition, by the name of its log. In order for each node.

        `then` gets its answer, or None as soon as it is known that none will come: never within
        this call.
        """
        ...


def node_producer(node: int, boot: int, life: int = 0) -> int:
    """The producer id of a node in one of its lives; `life` counts when its epochs are used up."""
    assert node < 2**15
    return NODE_PRODUCERS | node << 48 | (boot & 0xFFFFFFFF) << 16 | life


class Batch:
    """A chunk that is numbered and not stored yet."""

    __slots__ = ("chunk", "is_ours", "receipts", "records")

    def __init__(
        self, chunk: bytes, receipts: list[tuple[int, Receipt]], records: int, *, is_ours: bool
    ) -> None:
        self.chunk = chunk
        self.receipts = receipts
        self.records = records
        self.is_ours = is_ours  # numbered by this node, and not by its publisher


class Attempt:
    """To store a batch: what becomes of it counts as long as it is the last one."""

    __slots__ = ("_batch", "_number", "_outgoing")

    def __init__(self, outgoing: "Outgoing", batch: Batch) -> None:
        self._outgoing = outgoing
        self._batch = batch
        self._number = outgoing.attempt

    def appended(self, verdict: Verdict, first_offset: int | None) -> None:
        if self._number == self._outgoing.attempt:
            self._outgoing.answered(self._batch, verdict, first_offset)

    def lost(self) -> None:
        if self._number == self._outgoing.attempt:
            self._outgoing.interrupted()

    def dropped(self) -> None:
        """With its stream; `close` tells whoever waits."""

    def forwarded(self, answer: bytes | None) -> None:
        verdict, offset = (None, None) if answer is None else read_append_answer(answer)
        if verdict is None:
            self.lost()
        else:
            self.appended(verdict, offset)


class Outgoing:
    """For the loop's thread. To the partition, where this node leads it, it is its `Source`."""

    def __init__(
        self,
        uid: bytes,
        node: int,
        boot: int,
        forwarder: Forwarder,
        now_ms: Callable[[], int],
        wanted: Callable[["Outgoing"], None] = lambda _: None,
        relieved: Callable[[], None] = lambda: None,
        budget: TailBudget | None = None,
    ) -> None:
        """`wanted`: there is something to `flush`; `relieved`: it is no longer congested.

        The budget is that of the node.
        """
        self._budget = budget or TailBudget(NODE_BYTES_MAX)
        self._uid = uid
        self._node = node
        self._boot = boot
        self._forwarder = forwarder
        self._now_ms = now_ms
        self._wanted = wanted
        self._relieved = relieved
        self.tells_early: Callable[[], bool] = lambda: (
            False
        )  # publishers are told when the leader's disk has it
        self._leader: int | None = None
        self._local: StreamPartition | None = None  # where this node leads
        self._pending: deque[Records | Made] = deque()  # to be gathered
        self._again: deque[Batch] = deque()  # numbered, to be sent before those
        self._sent: deque[Batch] = deque()  # to the leader of now, without an answer yet
        self._sent_bytes = 0
        self.attempt = 1
        self._waits = False  # for news of the leader
        self._life = self._epoch = self._sequence = 0
        self._answered_ms = now_ms()
        self.size_bytes = 0

    @property
    def congested(self) -> bool:
        too_much = self._budget.exceeded and self.size_bytes > 0
        return too_much or self.size_bytes > OUTGOING_BYTES_MAX

    def _charge(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._budget.used += size_bytes

    # What publishers say

    def append(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        properties: Sequence[bytes],
        receipt: Receipt | None,
    ) -> None:
        """As `StreamPartition.append`; the records' time is that of this node."""
        size = size_of(keys) + size_of(values) + size_of(properties)
        self._take(Records(keys, values, properties, size, receipt), size)

    def append_chunk(self, chunk: bytes, receipt: Receipt | None) -> None:
        """As `StreamPartition.append_chunk`. Raises CorruptChunkError."""
        check_made(chunk, self._now_ms())
        self._take(Made(chunk, receipt), len(chunk))

    def _take(self, arrival: Records | Made, size_bytes: int) -> None:
        self._pending.append(arrival)
        self._charge(size_bytes)
        if self._local is not None:
            self._local.source_ready(size_bytes)
        else:
            self._wanted(self)

    # Who leads

    def leader_changed(self, node: int | None, local: StreamPartition | None = None) -> None:
        """Whoever leads now; `local` if that is this node, and the partition knows it."""
        if self._local is not None and self._local is not local:
            self._local.source = None
        self._leader, self._local = node, local
        self._rewind()
        self._waits = False
        if local is not None:
            local.source = self
        self._want()

    def _want(self) -> None:
        """There may be something to send."""
        if not self._again and not self._pending:
            return
        if self._local is not None:
            self._local.source_ready(0)
        else:
            self._wanted(self)

    def interrupted(self) -> None:
        """What was sent will not be answered: all of it goes again to the next leader."""
        self._rewind()
        self._waits = True

    def _rewind(self) -> None:
        self.attempt += 1
        self._again.extendleft(reversed(self._sent))
        self._sent.clear()
        self._sent_bytes = 0

    def retry(self) -> None:
        """Now and then: the leader may be the same as before."""
        if self._waits:
            self._waits = False
            self._want()

    # Sending

    def next_chunk(self) -> tuple[bytes, Attempt] | None:
        batch = self._next()
        if batch is None:
            return None
        if self._local is not None and self._waits_for_disk(batch):
            numbers = read_header(batch.chunk).producer
            assert numbers is not None
            self._local.when_on_disk(numbers, partial(self._on_disk, batch))
        return batch.chunk, Attempt(self, batch)

    def flush(self) -> None:
        """At the end of a turn: what is there goes to the leader, if that is another node."""
        if self._leader is None or self._local is not None or self._waits:
            return
        leader = self._leader
        while self._sent_bytes < WINDOW_BYTES_MAX and (batch := self._next()) is not None:
            attempt = Attempt(self, batch)
            body = encode_append(batch.chunk)
            self._forwarder.forward(self._uid, leader, body, attempt.forwarded)
            if self._waits_for_disk(batch):
                self._ask_for_disk(leader, batch)

    def _waits_for_disk(self, batch: Batch) -> bool:
        """Who numbers its records itself wants to know their offsets: that takes a majority."""
        return bool(batch.receipts) and batch.is_ours and self.tells_early()

    def _ask_for_disk(self, leader: int, batch: Batch) -> None:
        numbers = read_header(batch.chunk).producer
        assert numbers is not None

        def answered(answer: bytes | None) -> None:
            self._on_disk(batch, Verdict.NEW if is_on_disk(answer) else None)

        self._forwarder.forward(self._uid, leader, encode_on_disk(numbers), answered)

    def _on_disk(self, batch: Batch, verdict: Verdict | None) -> None:
        if verdict is not None:
            receipts, batch.receipts = batch.receipts, []
            for _, receipt in receipts:
                receipt.appended(verdict, None)

    def _next(self) -> Batch | None:
        if self._again:
            batch = self._again.popleft()
        elif self._pending:
            batch = self._gathered()
        else:
            return None
        self._sent.append(batch)
        self._sent_bytes += len(batch.chunk)
        return batch

    def _gathered(self) -> Batch:
        """The next chunk of what is pending, numbered."""
        first = self._pending[0]
        if isinstance(first, Made):
            self._pending.popleft()
            receipts = [(0, first.receipt)] if first.receipt is not None else []
            header = read_header(first.chunk)
            if header.producer is not None:
                return Batch(first.chunk, receipts, header.records, is_ours=False)
            producer = self._numbers(header.records)
            chunk = with_producer(first.chunk, producer)
            return Batch(chunk, receipts, header.records, is_ours=True)
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        properties: list[bytes] = []
        receipts = []
        size = 0
        while self._pending and size < ENTRY_BYTES_MAX and len(keys) < ENTRY_RECORDS_MAX:
            batch = self._pending[0]
            if isinstance(batch, Made):
                break
            self._pending.popleft()
            if batch.receipt is not None:
                receipts.append((len(keys), batch.receipt))
            keys += batch.keys
            values += batch.values
            properties += batch.properties
            size += batch.size_bytes
        producer = self._numbers(len(keys))
        chunk = encode_chunk(keys, values, properties, self._now_ms(), producer=producer)
        self._charge(len(chunk) - size)
        return Batch(chunk, receipts, len(keys), is_ours=True)

    # Numbers

    def _numbers(self, records: int) -> Producer:
        idle = not self._sent and not self._again
        forgotten = idle and self._now_ms() - self._answered_ms >= RENEW_MS
        if forgotten or self._sequence + records > SEQUENCE_MAX:
            self._new_epoch()
        producer = Producer(
            node_producer(self._node, self._boot, self._life), self._epoch, self._sequence
        )
        self._sequence += records
        return producer

    def _new_epoch(self) -> None:
        if self._sequence or self._epoch:
            self._epoch += 1
            if self._epoch > EPOCH_MAX:
                self._life, self._epoch = self._life + 1, 0
        self._sequence = 0
        self._answered_ms = self._now_ms()

    def _number_again(self) -> None:
        """The partition does not know this epoch (any more)."""
        self._rewind()
        self._new_epoch()
        for batch in self._again:
            if batch.is_ours:
                batch.chunk = with_producer(batch.chunk, self._numbers(batch.records))

    # Answers

    def answered(self, batch: Batch, verdict: Verdict, first_offset: int | None) -> None:
        self._answered_ms = self._now_ms()
        if batch.is_ours and verdict not in (Verdict.NEW, Verdict.DUPLICATE):
            if batch is self._sent[0]:
                self._number_again()
            else:  # one before it is not stored
                self._rewind()
            self._want()
            return
        self._sent.remove(batch)
        self._sent_bytes -= len(batch.chunk)
        self._forget(batch)
        self._want()
        for place, receipt in batch.receipts:
            offset = None if first_offset is None else first_offset + place
            receipt.appended(Verdict.NEW if batch.is_ours else verdict, offset)

    def _forget(self, batch: Batch) -> None:
        was_congested = self.congested
        self._charge(-len(batch.chunk))
        if was_congested and not self.congested:
            self._relieved()

    # The end

    def refuse(self) -> None:
        """There will be no leader for long: whoever waits is told that nothing is known."""
        for receipt in self._void():
            receipt.lost()

    def close(self) -> None:
        """The stream is deleted."""
        for receipt in self._void():
            receipt.dropped()

    def _void(self) -> list[Receipt]:
        self._rewind()
        if self._again:
            self._new_epoch()  # the next one must not wait for what is given up
        receipts = [receipt for batch in self._again for _, receipt in batch.receipts]
        receipts += [each.receipt for each in self._pending if each.receipt is not None]
        was_congested = self.congested
        self._again.clear()
        self._pending.clear()
        self._charge(-self.size_bytes)
        if was_congested:
            self._relieved()
        return receipts


def with_producer(chunk: bytes, producer: Producer) -> bytes:
    """The same chunk with these numbers in its header."""
    header = read_header(chunk)
    header = header._replace(
        flags=header.flags | PRODUCER,
        producer_id=producer.id,
        epoch=producer.epoch,
        sequence=producer.sequence,
    )
    return header.encode() + chunk[HEADER_BYTES:]
