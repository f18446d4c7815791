"""Moves a partition's tail to its segments, and keeps those: one job at a time, off the loop.

A move writes all that is in the tail, syncs it, and then has the log keep a checkpoint in place of
the entries. Until that is durable they are all still in the log.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeVar

from broker.protocol.chunk import Chunk
from broker.protocol.stream_errors import CorruptChunkError
from queues.live_log import Log
from queues.storage.errors import OutOfSpaceError
from queues.stream.checkpoint import PartitionState
from queues.stream.compaction import Compactor, compaction_due
from queues.stream.cutting import between
from queues.stream.index import Summary
from queues.stream.merging import resize
from queues.stream.segments import Segments
from queues.stream.staged_rows import StagedRows
from queues.stream.tail import Tail, TailBudget
from queues.stream.verdict import Producers

# One write to a segment: large for the disk, small beside the memory of a node.
MOVE_BYTES: Final = 4 * 1024 * 1024
# When all partitions of the node hold too much, this much is worth a move.
MOVE_BYTES_FLOOR: Final = 256 * 1024
MOVE_ENTRIES: Final = 8192  # entries are kept in the log, and replayed after a crash
MOVE_AGE_MS: Final = 60_000  # what comes in slowly must not pin the log for ever
COMPACTION_STEPS: Final = 4  # chunks in one job, so that a move never waits for long

T = TypeVar("T")


class OffLoop(Protocol):
    """Runs work in a thread and then hands its result over on the loop.

    An OSError of the work is the failure of the disk, which ends the node: nothing is called.
    """

    def __call__(self, work: Callable[[], T], then: Callable[[T], None]) -> None: ...


class Keeper:
    """For the loop's thread; what it hands to `off_loop` touches the segments only."""

    def __init__(
        self,
        log: Log,
        tail: Tail,
        segments: Segments,
        producers: Producers,
        staged: StagedRows,
        budget: TailBudget,
        off_loop: OffLoop,
        moved: Callable[[], None],
        next_offset: int,
    ) -> None:
        """`next_offset` is that of the checkpoint from which the partition starts."""
        self._log = log
        self._tail = tail
        self._segments = segments
        self._producers = producers
        self._staged = staged
        self._budget = budget
        self._off_loop = off_loop
        self._moved = moved
        self._applied = 0
        self._next_offset = next_offset
        self._entries: list[int] = []  # above the checkpoint
        self._entries_bytes = 0
        self._oldest_ms: int | None = None  # when the first of them was first seen waiting
        self._busy = False
        self._at_work = False  # off the loop, that is
        self._halted = False
        self._closed = False
        self._remove = False
        self._stalled = False  # the disk was full
        self._compactor: Compactor | None = None
        self._installs = 0  # a move that began before the last one is void
        self.trouble: str | None = None  # why nothing is compacted any more

    def applied(self, index: int, size_bytes: int, next_offset: int) -> None:
        """One more entry that the log has to keep for now."""
        self._applied = index
        self._next_offset = next_offset
        self._entries.append(index)
        self._entries_bytes += size_bytes

    def staged(self, index: int) -> None:
        """An entry that the log has to keep until it is among those that are done with."""
        self._applied = index

    def done(self, indexes: list[int]) -> None:
        """Entries that need not be kept when the last one applied need not."""
        self._entries += indexes

    def work(self) -> None:
        """Begin what is due, unless something is under way."""
        if self._busy or self._halted:
            return
        if self._move_is_due() and not self._stalled:
            self._move()
        elif self._compactor is not None:
            self._compact(self._compactor)

    def tick(self, now_ms: int) -> bool:
        """Now and then: what waits for time to pass. Whether something still does, or is done."""
        if not self._busy and not self._halted:
            self._begin_what_waited(now_ms)
            if not self._busy and not self._entries:
                self._segments.rest()
        return self._busy or bool(self._entries)

    def _begin_what_waited(self, now_ms: int) -> None:
        if not self._entries:
            self._oldest_ms = None
        elif self._oldest_ms is None:
            self._oldest_ms = now_ms
        waited = self._oldest_ms is not None and now_ms - self._oldest_ms >= MOVE_AGE_MS
        if self._entries and (self._stalled or waited or self._move_is_due()):
            self._move()
        elif self._segments.retention_due(now_ms):
            self._run(partial(self._segments.retain, now_ms), self._retained)
        else:
            self._begin_compaction(now_ms)
            self.work()

    @property
    def at_work(self) -> bool:
        """Somebody is at the files."""
        return self._at_work

    def halt(self) -> None:
        """Begin nothing more."""
        self._halted = True

    def close(self, *, remove: bool) -> None:
        """Nothing more is kept; the files go as well if the stream is deleted."""
        self._halted = self._closed = True
        self._remove = remove
        if not self._at_work:
            self._end()

    def _end(self) -> None:
        compactor, self._compactor = self._compactor, None

        def end() -> None:
            if compactor is not None:
                compactor.close()
            if self._remove:
                self._segments.remove()
            else:
                self._segments.close()

        self._off_loop(end, lambda _: None)

    def _run(self, work: Callable[[], T], then: Callable[[T | OutOfSpaceError], None]) -> None:
        """One job; only want of room is an answer too."""
        self._busy = self._at_work = True

        def attempt() -> T | OutOfSpaceError:
            try:
                with self._segments.writing:
                    return work()
            except OutOfSpaceError as error:
                return error

        def done(result: T | OutOfSpaceError) -> None:
            self._busy = self._at_work = False
            if self._closed:
                self._end()
            elif not self._halted:
                then(result)
                self.work()

        self._off_loop(attempt, done)

    # Moving

    def _move_is_due(self) -> bool:
        enough = MOVE_BYTES_FLOOR if self._budget.exceeded else MOVE_BYTES
        return self._entries_bytes >= enough or len(self._entries) >= MOVE_ENTRIES

    def _move(self) -> None:
        assert self._entries
        self._stalled = False
        chunks = self._tail.all()
        covered = partial(
            self._written,
            self._applied,
            len(self._entries),
            self._entries_bytes,
            self._next_offset,
            self._producers.checkpoint(),
            self._staged.encode(),
        )
        installs = self._installs

        def write() -> Summary | None:
            segments = self._segments
            if segments.anew:
                return None  # another replica's records take the place of all these
            end, new = segments.end.end, chunks
            if chunks and chunks[0].header.base_offset < end:  # some of it is there already
                new = [Chunk(chunk) for chunk in between(chunks, end)]
            return segments.append_chunks(resize(new, segments.options.segment_bytes))

        def written(end: Summary | OutOfSpaceError | None) -> None:
            if end is None:
                self.abandon()
            elif installs == self._installs:
                covered(end)

        self._run(write, written)

    def _written(
        self,
        index: int,
        entries: int,
        entries_bytes: int,
        next_offset: int,
        producers: bytes,
        staged: bytes,
        end: Summary | OutOfSpaceError,
    ) -> None:
        """The tail up to an entry is in the segments: the log need not keep it."""
        if isinstance(end, OutOfSpaceError):
            self._stalled = True
            return
        assert end.end >= next_offset, "a move takes all that was applied"
        self._tail.drop_before(end.end)
        self._busy = True
        installs = self._installs

        def durable() -> None:
            self._busy = False
            if installs != self._installs:
                self.work()
                return
            done = self._entries[:entries]
            del self._entries[:entries]
            self._entries_bytes -= entries_bytes
            self._oldest_ms = None
            self._log.release(sorted(done))
            if self._segments.replaced:
                self._run(self._segments.clear_replaced, lambda _: None)
            self.work()

        state = PartitionState(next_offset, end, producers, staged)
        self._log.checkpoint(index, state.encode(), durable)
        self._moved()

    # Records of another replica

    def installed(self, index: int, next_offset: int) -> None:
        """The segments hold all up to this index; what was to be moved is over."""
        self.abandon()
        self._applied = index
        self._next_offset = next_offset

    def abandon(self) -> None:
        """Nothing of what was applied is moved or checkpointed any more."""
        self._installs += 1
        self._entries, self._entries_bytes, self._oldest_ms = [], 0, None
        self._stalled = False

    # Retention and compaction

    def _retained(self, went: bool | OutOfSpaceError) -> None:  # noqa: FBT001 - as the job says
        if went is True:
            self._producers.forget_before(self._segments.first_offset)

    def _begin_compaction(self, now_ms: int) -> None:
        segments = self._segments
        if not segments.options.compact or self.trouble is not None or self._compactor is not None:
            return
        if compaction_due(segments.summaries()):
            unstable = self._producers.first_unstable()
            stable = self._next_offset if unstable is None else unstable
            hidden = self._producers.hidden(segments.first_offset, stable)
            self._compactor = Compactor(segments, now_ms=now_ms, stable_end=stable, hidden=hidden)

    def _compact(self, compactor: Compactor) -> None:
        def some() -> bool | CorruptChunkError:
            try:
                if self._segments.anew:
                    compactor.close()  # what it works on is gone
                    return False
                return all(compactor.step() for _ in range(COMPACTION_STEPS))
            except CorruptChunkError as error:
                return error

        self._run(some, self._compacted)

    def _compacted(self, more: "bool | CorruptChunkError | OutOfSpaceError") -> None:
        if isinstance(more, CorruptChunkError):
            self.trouble = str(more)
        if more is not True:
            self._compactor = None
