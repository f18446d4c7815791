"""One partition of a stream: a machine on a replicated log, with segments for what is old.

Records become chunks, one chunk per log entry. A chunk gets its offsets when its entry is applied,
which is when it is committed: only then it can be read, and only then its publisher is told. The
chunk stays in memory, in the tail, until it is moved to a segment; see keeper.py.

    entry   a chunk; behind one that a publisher made, the leader's time: ms, i64, little-endian
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol

from broker.protocol.chunk import (
    Chunk,
    Header,
    Producer,
    encode_chunk,
    read_header,
)
from broker.protocol.chunk_columns import size_of
from broker.protocol.stream_errors import StreamError
from queues.live_log import Log
from queues.storage.disk import Disk
from queues.stream.arrivals import Asked, Made, Proposal, Receipt, Records, Said, Source
from queues.stream.checkpoint import PartitionState
from queues.stream.cutting import cut
from queues.stream.errors import DamagedSegmentsError
from queues.stream.index import Summary, empty_summary
from queues.stream.keeper import MOVE_BYTES_FLOOR, Keeper, OffLoop
from queues.stream.made_chunks import check_made, proposed_at, stamped
from queues.stream.options import StreamOptions
from queues.stream.participant import TransactionKey
from queues.stream.reading import PartitionReader
from queues.stream.recovery import open_segments, wipe
from queues.stream.snapshot import MORE, have_of, parts_for, store_part
from queues.stream.staged_entries import is_said
from queues.stream.staged_rows import NODE_BYTES_MAX, Answer, Fetch, StagedRows, Then, refs_of
from queues.stream.tail import Tail, TailBudget
from queues.stream.verdict import AnyProducer, Producers, Ruling, Verdict

# An entry is written, replicated and read back as a whole.
ENTRY_RECORDS_MAX: Final = 8192
ENTRY_BYTES_MAX: Final = 1024 * 1024
# Beyond this much in memory nothing new is taken into the log until some of it is moved.
TAIL_BYTES_MAX: Final = 32 * 1024 * 1024
# A follower's, whose disk may be full while the leader's is not; less if the node holds too much.
FOLLOWER_BYTES_MAX: Final = 2 * TAIL_BYTES_MAX
FOLLOWER_BYTES_FLOOR: Final = 1024 * 1024


class Holder(Protocol):
    """The stream, as its partition sees it."""

    def advanced(self) -> None:
        """There may be more to read than before."""
        ...

    def damage(self, reason: str) -> None: ...

    def repaired(self) -> None:
        """It is what it should be again, by the records of another replica."""
        ...


class StreamPartition:
    """Use it after `recover`, which a new one takes as well."""

    def __init__(
        self,
        log: Log,
        holder: Holder,
        disk: Disk,
        options: StreamOptions,
        budget: TailBudget,
        now_ms: Callable[[], int],
        off_loop: OffLoop,
        producers: Producers | None = None,
        staged_budget: TailBudget | None = None,
        *,
        replicated: bool = False,
    ) -> None:
        """`replicated`: it leads when it is told to, and others may store what it does not."""
        self._log = log
        self._holder = holder
        self._disk = disk
        self._options = options
        self._budget = budget
        self._now_ms = now_ms
        self._off_loop = off_loop
        self._producers: Producers = producers if producers is not None else AnyProducer()
        self.staged = StagedRows(self._say, now_ms, staged_budget or TailBudget(NODE_BYTES_MAX))
        self._replicated = replicated
        self.leads = not replicated
        self.source: Source | None = None
        self.on_leading: Callable[[StreamPartition], None] | None = None  # it leads, or no more
        # Takes what is said of transactions to whoever leads, where that is another node.
        self.elsewhere: Callable[[bytes, Then], None] | None = None
        # Asks whoever leads, where that is another node, for its next offset; None: nobody knows.
        self.ask_end: Callable[[Callable[[int | None], None]], None] | None = None
        self.applied_index = 0
        # Why it cannot be served before another replica's state is installed, if so.
        self.unsound: str | None = None
        self.fetch: Fetch | None = None  # reads entries of the log, for `install`
        self._taken = bytearray()  # pieces of the next part
        self._arriving: deque[Records | Made | Said] = deque()
        self._arriving_bytes = 0
        self._proposed: deque[Proposal] = deque()
        # Who waits for chunks of theirs to be on this node's disk.
        self._on_disk: dict[Producer, Callable[[Verdict | None], None]] = {}
        self._held_back = False  # there is something to propose, and the tail is full
        self._keeper: Keeper | None = None  # none where it could not be recovered
        self._tail = Tail(budget)
        self._no_producers = self._producers.checkpoint()
        self.next_offset = 0

    # What publishers say

    def append(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        properties: Sequence[bytes],
        receipt: Receipt | None,
    ) -> None:
        """Records of one turn, to be stored together in this order; their time is now."""
        size = size_of(keys) + size_of(values) + size_of(properties)
        self._arrive(Records(keys, values, properties, size, receipt), size)

    def append_chunk(self, chunk: bytes, receipt: Receipt | None) -> None:
        """A chunk that a publisher made, to be stored as it is. Raises CorruptChunkError."""
        check_made(chunk, self._now_ms())
        self._arrive(Made(chunk, receipt), len(chunk))

    def stage(
        self, key: TransactionKey, writer: str, number: int, chunk: bytes, then: Then
    ) -> None:
        """A chunk of a transaction. Raises CorruptChunkError."""
        check_made(chunk, self._now_ms())
        self.staged.stage(key, writer, number, chunk, then)

    def _say(self, entry: bytes, then: Then) -> None:
        if not self.leads and self.elsewhere is not None:
            self.elsewhere(entry, then)
        else:
            self.say(entry, then)

    def say(self, entry: bytes, then: Then) -> None:
        """What a node has to say of a transaction; see staged_entries.py."""
        self._arrive(Said(entry, Asked(then)), len(entry))

    def append_forwarded(self, chunk: bytes, receipt: Receipt) -> None:
        """A chunk that another node has checked. Raises CorruptChunkError if it got damaged."""
        Chunk(chunk)
        self._arrive(Made(chunk, receipt), len(chunk))

    def when_on_disk(self, producer: Producer, then: Callable[[Verdict | None], None]) -> None:
        """Tell when this node, which leads, has the chunk with these numbers on its own disk.

        None: it is not known whether it will. The chunk itself has come before.
        """
        if not self.leads:
            then(None)
        else:
            self._on_disk[producer] = then

    def on_disk(self, proposals: int) -> None:
        """So many of the oldest proposals are on this node's disk, committed or not."""
        if not self._on_disk:
            return
        for proposal in islice(self._proposed, proposals):
            self._found_on_disk(proposal.entry)

    def _found_on_disk(self, entry: bytes) -> None:
        producer = None if is_said(entry) else read_header(entry).producer
        then = self._on_disk.pop(producer, None) if producer is not None else None
        if then is not None:
            then(Verdict.NEW)

    def source_ready(self, size_bytes: int) -> None:
        """The source has so much more to propose."""
        self._log.changed(urgent=True, size_bytes=size_bytes)

    def _arrive(self, arrival: Records | Made | Said, size_bytes: int) -> None:
        if not self.leads:
            if arrival.receipt is not None:
                arrival.receipt.lost()
            return
        self._arriving.append(arrival)
        self._arriving_bytes += size_bytes
        self._log.changed(urgent=True, size_bytes=size_bytes)

    @property
    def _tail_bytes_max(self) -> int:
        """Less if the node holds too much: but so much that it is worth a move."""
        return MOVE_BYTES_FLOOR if self._budget.exhausted else TAIL_BYTES_MAX

    @property
    def congested(self) -> bool:
        """Publishers should wait: what they send would only pile up."""
        return self._tail.size_bytes + self._arriving_bytes > self._tail_bytes_max

    @property
    def is_full(self) -> bool:
        """A follower that has to move some of its tail before it takes more from the leader."""
        limit = FOLLOWER_BYTES_FLOOR if self._budget.exhausted else FOLLOWER_BYTES_MAX
        return not self.leads and self._tail.size_bytes > limit

    def close(self) -> list[Receipt]:
        """The stream is deleted: the receipts that wait for nothing now."""
        proposed, arriving = self._void()
        self._tail.clear()
        self.staged.clear()
        self._log.delete()
        if self._keeper is not None:
            self._keeper.halt()
        return arriving + proposed

    def _void(self) -> tuple[list[Receipt], list[Receipt]]:
        """Nothing comes of what is not applied: receipts of what was proposed, and of the rest."""
        proposed = [receipt for proposal in self._proposed for _, receipt in proposal.receipts]
        arriving = [arrival.receipt for arrival in self._arriving if arrival.receipt is not None]
        self._arriving.clear()
        self._arriving_bytes = 0
        self._proposed.clear()
        waiting, self._on_disk = self._on_disk, {}
        for then in waiting.values():
            then(None)
        return proposed, arriving

    def remove(self) -> None:
        """After `close`: the files go as well."""
        if self._keeper is not None:
            self._keeper.close(remove=True)
        else:
            self._off_loop(self._disk.remove, lambda _: None)

    def stop(self) -> None:
        """The node stops; what is in the tail is in the log."""
        if self._keeper is not None:
            self._keeper.close(remove=False)

    def configure(self, options: StreamOptions) -> None:
        """Keep what these options say from now on."""
        self._options = options
        if self._keeper is not None:
            self._segments.options = options

    # What the log says

    def next_entry(self) -> bytes | None:
        """The next entry to propose, if there is anything to say."""
        if not self._arriving and self.source is None:
            return None
        if self._tail.size_bytes > self._tail_bytes_max:
            self._held_back = True
            self.start()  # a move may have become due by what others hold
            return None
        if not self._arriving:
            return self._from_source()
        first = self._arriving[0]
        if isinstance(first, Made):
            self._arriving.popleft()
            self._arriving_bytes -= len(first.chunk)
            receipts = [(0, first.receipt)] if first.receipt is not None else []
            entry = stamped(first.chunk, self._now_ms())
            self._proposed.append(Proposal(entry, receipts))
            return entry
        if isinstance(first, Said):
            self._arriving.popleft()
            self._arriving_bytes -= len(first.entry)
            self._proposed.append(Proposal(first.entry, [(0, first.receipt)]))
            return first.entry
        return self._gathered()

    def _from_source(self) -> bytes | None:
        found = self.source.next_chunk() if self.source is not None and self.leads else None
        if found is None:
            return None
        chunk, receipt = found
        entry = stamped(chunk, self._now_ms())
        self._proposed.append(Proposal(entry, [(0, receipt)]))
        return entry

    def _gathered(self) -> bytes:
        """A chunk of the batches in front."""
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        properties: list[bytes] = []
        receipts: list[tuple[int, Receipt]] = []
        size = 0
        while self._arriving and size < ENTRY_BYTES_MAX and len(keys) < ENTRY_RECORDS_MAX:
            batch = self._arriving[0]
            if not isinstance(batch, Records):
                break
            self._arriving.popleft()
            if batch.receipt is not None:
                receipts.append((len(keys), batch.receipt))
            keys += batch.keys
            values += batch.values
            properties += batch.properties
            size += batch.size_bytes
        self._arriving_bytes -= size
        entry = encode_chunk(keys, values, properties, self._now_ms())
        self._proposed.append(Proposal(entry, receipts))
        return entry

    def applied(self, index: int) -> None:
        """The oldest proposal is committed and durable, at this index."""
        if not self._proposed:
            return  # deleted meanwhile
        keeper = self._keeper
        assert keeper is not None, "recovered before anything is proposed"
        proposal = self._proposed.popleft()
        self.applied_index = index
        if self._on_disk:
            self._found_on_disk(proposal.entry)
        if is_said(proposal.entry):
            self._heard(index, proposal, keeper)
        else:
            verdict, offset = self._apply(index, proposal.entry, keeper)
            self._holder.advanced()
            for place, receipt in proposal.receipts:
                receipt.appended(verdict, None if offset is None else offset + place)
        keeper.work()

    def _heard(self, index: int, proposal: Proposal, keeper: Keeper) -> None:
        answer = self._apply_said(index, proposal.entry, keeper)
        self._holder.advanced()
        for _, receipt in proposal.receipts:
            assert isinstance(receipt, Asked)
            receipt.then(answer)

    def apply(self, index: int, entry: bytes) -> None:
        """A committed entry that another node proposed, or this one before it led."""
        if index <= self.applied_index:
            return
        if self._keeper is None and self.unsound is None:
            self.recover(None, [])
        keeper = self._keeper
        if keeper is not None and self._segments.anew and self.unsound is None:
            self.unsound = "it waits for the state that goes with its records"
        if keeper is None or self.unsound is not None:
            self._holder.damage(self.unsound or "")
            return
        self._apply_any(index, entry, keeper)
        self._holder.advanced()
        keeper.work()

    def lead(self) -> None:
        """Every committed entry is applied, and what arrives from now on is proposed."""
        if self._keeper is None and self.unsound is None:
            self.recover(None, [])
        if self.unsound is None and (
            self._segments.anew or self._segments.end.end > self.next_offset
        ):
            self.unsound = "its segments are not those of its log"
        if self.unsound is not None:
            self._holder.damage(self.unsound)
            return
        self.leads = True
        if self.source is not None:
            self._log.changed(urgent=True)
        if self.on_leading is not None:
            self.on_leading(self)

    def follow(self) -> None:
        """Another may lead: what was proposed and not applied is void, whatever becomes of it."""
        self.leads = False
        self._held_back = False
        self.staged.follow()
        proposed, arriving = self._void()
        for receipt in proposed + arriving:
            receipt.lost()
        if self.on_leading is not None:
            self.on_leading(self)

    def damaged(self, reason: str) -> None:
        """The log cannot be trusted: the partition must not be served."""
        self.unsound = reason
        self._holder.damage(reason)

    def _apply_any(self, index: int, entry: bytes, keeper: Keeper) -> None:
        self.applied_index = index
        if is_said(entry):
            self._apply_said(index, entry, keeper)
        else:
            self._apply(index, entry, keeper)

    def _apply(self, index: int, entry: bytes, keeper: Keeper) -> Ruling:
        header = read_header(entry)
        base = self.next_offset
        ruling = self._producers.apply(header, base, proposed_at(entry, header))
        if ruling.verdict is Verdict.NEW:
            ruling = ruling._replace(offset=base)
            self._place(index, entry, header)
        keeper.applied(index, len(entry), self.next_offset)
        return ruling

    def _place(self, index: int, chunk: bytes, header: Header) -> None:
        """Give a chunk its offsets."""
        base = self.next_offset
        self.next_offset += header.span
        stored = self._segments.end.end
        if base >= stored:
            self._tail.append(Chunk.placed(chunk, header, base))
            return
        if self._replicated:
            self._tail.clear()  # the segments have all of it, from another replica
        if self.next_offset > stored:
            if not self._replicated:
                raise DamagedSegmentsError(f"half of a chunk of entry {index} is in the segments")
            self._tail.append(Chunk(cut(Chunk.placed(chunk, header, base), stored)))

    def _apply_said(self, index: int, entry: bytes, keeper: Keeper) -> Answer:
        answer, appended, stays, done = self.staged.apply(index, entry, self.next_offset)
        for chunk in appended:
            self._place(index, chunk, read_header(chunk))
        if stays:
            keeper.staged(index)
        else:
            size = len(entry) + sum(map(len, appended))
            keeper.applied(index, size, self.next_offset)
        keeper.done(done)
        return answer

    def _moved(self) -> None:
        if self._held_back:
            self._held_back = False
            self._log.changed(urgent=True)

    # Recovery

    def recover(
        self,
        checkpoint: tuple[int, bytes] | None,
        entries: Iterable[tuple[int, bytes]],
        fetch: Fetch | None = None,
    ) -> list[int]:
        """Rebuild from log and segments: the entries under the checkpoint that are still needed.

        Those are of staged rows, and `fetch` reads them. Raises a StreamError if all this does not
        fit together: the partition must not be served then.
        """
        try:
            self._keeper, kept = self._recovered(checkpoint, entries, fetch)
        except StreamError as error:
            self._tail.clear()
            self.unsound = str(error)
            raise
        return kept

    def _recovered(
        self,
        checkpoint: tuple[int, bytes] | None,
        entries: Iterable[tuple[int, bytes]],
        fetch: Fetch | None,
    ) -> tuple[Keeper, list[int]]:
        covered, known, kept = 0, None, list[int]()
        if checkpoint is not None:
            covered, state = checkpoint
            self.next_offset, known, producers, staged = PartitionState.decode(state)
            self._producers.restore(producers)
            kept = self.staged.restore(staged, fetch)
        self.applied_index = covered
        keeper = self._open(known)
        stored = self._segments.end.end
        if stored < self.next_offset:
            raise DamagedSegmentsError(
                f"the segments end at offset {stored}, the checkpoint at {self.next_offset}"
            )
        for index, entry in entries:
            if index > covered:
                self._apply_any(index, entry, keeper)
        # A replica may know less of what is committed than it did: the log brings the rest again.
        if stored > self.next_offset and not self._replicated:
            raise DamagedSegmentsError(
                f"the segments end at offset {stored}, the log at {self.next_offset}"
            )
        return keeper, kept

    def _open(self, known: Summary | None) -> Keeper:
        self._segments = open_segments(self._disk, self._options, known)
        self.reader = PartitionReader(
            self._tail, self._segments, self._producers, self._off_loop, self._ends
        )
        return Keeper(
            self._log,
            self._tail,
            self._segments,
            self._producers,
            self.staged,
            self._budget,
            self._off_loop,
            self._moved,
            self.next_offset,
        )

    def _ends(self) -> tuple[int, bool]:
        return self.next_offset, self.leads

    def begin_anew(self) -> bool:
        """For a log that begins again. Records that are here need not be written again.

        False while somebody is at the files.
        """
        assert not self.leads
        if self._keeper is not None:
            self._keeper.halt()
            if self._keeper.at_work:
                return False
            self._segments.rest()
            self._keeper = None
        self._tail.clear()
        self.staged.clear()
        self._taken.clear()
        self._producers.restore(self._no_producers)
        self.applied_index = self.next_offset = 0
        self.unsound = None
        try:
            self.recover(None, [])
        except StreamError:
            wipe(self._disk)
            self.unsound = None
            self.recover(None, [])
        self._holder.repaired()
        return True

    # The records of another replica

    def state(self) -> bytes:
        """All that is applied, but for records: those are in segments and tail."""
        end = empty_summary(0)  # of no use to another, whose segments end elsewhere
        producers, staged = self._producers.checkpoint(), self.staged.encode()
        return PartitionState(self.next_offset, end, producers, staged).encode()

    def have(self) -> bytes:
        """What is here of use, for the leader to send the rest; see snapshot.py."""
        self._taken.clear()
        if self._keeper is None or (self.unsound is not None and not self._segments.anew):
            return b""
        try:
            return have_of(self._segments).encode()
        except StreamError:
            return b""

    def parts(self, index: int, have: bytes) -> Iterator[bytes]:  # noqa: ARG002 - all are above it
        """What a replica lacks, to be read off the loop; see snapshot.py. Raises StreamError."""
        if self.unsound is not None:
            raise DamagedSegmentsError(self.unsound)
        return parts_for(self._segments, have)

    def take(self, part: bytes) -> None:
        """The next of those pieces, off the loop; durable when this returns.

        Raises CorruptChunkError, and OutOfSpaceError.
        """
        self._taken += part[1:]
        if part[:1] == MORE:
            return
        whole, self._taken = bytes(self._taken), bytearray()
        if self._keeper is None:
            self.unsound = self.unsound or "its log was damaged"
            wipe(self._disk)
            self._keeper = self._open(None)
            self._segments.anew = True
        with self._segments.writing:
            store_part(self._segments, whole)

    def install(self, index: int, state: bytes) -> list[int]:
        """The state at an index: at the start, or after all parts. The entries that it refers to.

        Where that does not fit the records that are here, it is `unsound` and not served.
        """
        try:
            if self._keeper is None and self.unsound is None:
                return self.recover((index, state), [], self.fetch)
            return self._install(index, state)
        except StreamError as error:
            if self._keeper is not None:
                self._keeper.abandon()  # the log has that state in place of what led to this one
            self.unsound = str(error)
            self._holder.damage(self.unsound)
            return refs_of(PartitionState.decode(state).staging)

    def _install(self, index: int, state: bytes) -> list[int]:
        next_offset, _, producers, staged = PartitionState.decode(state)
        stored = self._segments.end.end if self._keeper is not None else 0
        if self._keeper is None or stored < next_offset:
            raise DamagedSegmentsError(
                f"the segments end at offset {stored}, the state at {next_offset}"
            )
        self._tail.clear()
        self.staged.clear()
        kept = self.staged.restore(staged, self.fetch)
        self.next_offset, self.applied_index = next_offset, index
        self._producers.restore(producers)
        self._keeper.installed(index, next_offset)
        self.unsound = None
        self._segments.anew = False
        self._holder.repaired()
        self._holder.advanced()
        return kept

    def start(self) -> None:
        """Begin what is due: after a crash, there may be much to let go of."""
        if self._keeper is not None:
            self._keeper.work()

    def tick(self, now_ms: int) -> bool:
        """Now and then: retention, compaction, what waited long enough.

        Whether the next time should be soon, in a second or so; in a minute is enough otherwise.
        """
        if self._keeper is None:
            return False
        if self.leads:
            self.staged.expire(now_ms)
        return self._keeper.tick(now_ms)

    # What there is

    @property
    def is_open(self) -> bool:
        """Whether it was recovered, or is being refilled."""
        return self._keeper is not None

    @property
    def first_offset(self) -> int:
        return self._segments.first_offset

    def expected_sequence(self, producer: Producer) -> int:
        """Of the record that is to come next in this producer's epoch."""
        return self._producers.expected(producer)

    @property
    def stable_end(self) -> int:
        """The next offset, as far as all transactions before it are decided."""
        return self.reader.stable_end()

    def whole_end(self, settled: int) -> int:
        """Where a cut through all partitions is: all transactions up to this number are whole."""
        end = self.staged.whole_end(settled, self.next_offset)
        return self.first_offset if end is None else max(end, self.first_offset)

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes + self._tail.size_bytes

    def segments(self) -> list[Summary]:
        """The oldest first; the last one grows."""
        return self._segments.summaries()

    @property
    def trouble(self) -> str | None:
        """Why nothing is compacted any more, if so."""
        return None if self._keeper is None else self._keeper.trouble
