"""The staged rows of a partition on its log: what is said of them, and what comes of it.

A staged chunk stays in memory, so that it can be appended in the moment of its marker; the entry
that staged it stays in the log until that is in a checkpoint. Memory is what bounds it: a leader
refuses to stage more than a partition, or all of the node together, may hold.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from broker.protocol.chunk import NULL_KEYS, NULL_VALUES, read_header
from broker.protocol.stream_errors import CorruptChunkError
from queues.stream.errors import DamagedSegmentsError
from queues.stream.participant import Marker, TransactionKey, Vote, WriterRows
from queues.stream.staged_entries import (
    Discard,
    Expire,
    Forget,
    Mark,
    Prepare,
    Renew,
    Said,
    Stage,
    decode_said,
    encode_said,
)
from queues.stream.staging import STAGED_MS, Share, StageAnswer, StagedChunk, Staging
from queues.stream.tail import TailBudget

# Appended at once when they are committed: twice what the tail holds before publishers wait.
STAGED_BYTES_MAX: Final = 64 * 1024 * 1024
NODE_BYTES_MAX: Final = 256 * 1024 * 1024
# Of all those who say that a transaction is alive one in this time is enough.
RENEWED_MS: Final = 20 * 1000
# Where nobody added anything for so long, rows may go if others need the room. Who is alive renews
# well within it; if one was taken for dead all the same, its commit is refused, never cut short.
ABANDONED_MS: Final = 60 * 1000


class Lost(Enum):
    LOST = "another node may lead now"


# To a Stage, a Prepare, a Mark (the last decision carried out), and others; None: no partition.
Answer: TypeAlias = StageAnswer | Vote | int | Lost | None
Then: TypeAlias = Callable[[Answer], None]
Fetch: TypeAlias = Callable[[list[int]], Iterable[tuple[int, bytes]]]


class Applied(NamedTuple):
    answer: Answer
    appended: list[bytes]  # chunks, to be given their offsets in this order
    stays: bool  # the log has to keep this entry
    done: list[int]  # and need not keep these any longer


class StagedRows:
    def __init__(
        self,
        propose: Callable[[bytes, Then], None],
        now_ms: Callable[[], int],
        budget: TailBudget,
    ) -> None:
        self._propose = propose
        self._now_ms = now_ms
        self._budget = budget  # of the node
        self._staging = Staging()
        self._chunks: dict[int, bytes] = {}
        self._expiring = False

    # What the leader is asked for

    def stage(
        self, key: TransactionKey, writer: str, number: int, chunk: bytes, then: Then
    ) -> None:
        """A chunk that a producer made, and that was checked. Raises CorruptChunkError."""
        header = read_header(chunk)
        if header.flags & ~(NULL_KEYS | NULL_VALUES) or not header.records:
            raise CorruptChunkError("a staged chunk holds records, and has no producer of its own")
        going = self._staging.size_of(key, self._staging.superseded(key, writer))
        held = self._staging.size_bytes - going
        excess = max(
            held + len(chunk) - STAGED_BYTES_MAX, self._budget.used - going - self._budget.limit
        )
        if excess > 0 and not self._make_room(key, excess):
            then(StageAnswer.FULL)
        else:
            self._say(Stage(key, writer, number, self._now_ms(), chunk), then)

    def _make_room(self, key: TransactionKey, excess: int) -> bool:
        """Drop what was abandoned, the oldest first and no more than needed, if that is enough."""
        going: list[Discard] = []
        for other, writers in self._staging.abandoned(self._now_ms() - ABANDONED_MS):
            if excess > 0 and other != key:
                going.append(Discard(other, writers))
                excess -= self._staging.size_of(other, writers)
        if excess > 0:
            return False
        for each in going:
            self._say(each, _nobody)
        return True

    def renew(self, key: TransactionKey, then: Then) -> None:
        """Somebody is still at work on this transaction, maybe in other partitions."""
        now_ms = self._now_ms()
        if self._staging.needs_renewal(key, now_ms - RENEWED_MS):
            self._say(Renew(key, now_ms), then)
        else:
            then(StageAnswer.STAGED)

    def prepare(
        self, transaction: int, key: TransactionKey, writers: tuple[WriterRows, ...], then: Then
    ) -> None:
        self._say(Prepare(transaction, key, writers, self._now_ms()), then)

    def mark(self, markers: tuple[Marker, ...], settled: int, then: Then) -> None:
        self._say(Mark(settled, markers), then)

    def discard(self, key: TransactionKey, writers: tuple[str, ...]) -> None:
        self._say(Discard(key, writers), _nobody)

    def drop(self, share: Share, then: Then) -> None:
        """Somebody is sure that nobody will commit these, which are not prepared."""
        assert share.key is not None, share
        self._say(Discard(share.key, share.writers), then)

    def forget(self, transaction: int) -> None:
        self._say(Forget(transaction), _nobody)

    def expire(self, now_ms: int) -> None:
        """Now and then: drop what belongs to nobody any more."""
        before_ms = now_ms - STAGED_MS
        if self._staging.is_stale(before_ms) and not self._expiring:
            self._expiring = True
            self._say(Expire(before_ms), _nobody)

    def _say(self, said: Said, then: Then) -> None:
        self._propose(encode_said(said), then)

    # What the log says

    def apply(self, index: int, entry: bytes, next_offset: int) -> Applied:
        staging = self._staging
        match decode_said(entry):
            case Stage(key, writer, number, at_ms, chunk):
                dropped = staging.discard(key, staging.superseded(key, writer))
                staged = StagedChunk(index, read_header(chunk).records, len(chunk))
                answer = staging.stage(key, writer, number, staged, at_ms)
                stays = answer is StageAnswer.STAGED
                if stays:
                    self._keep(index, chunk)
                return self._drop(dropped, answer)._replace(stays=stays)
            case Prepare(transaction, key, writers, at_ms):
                return _nothing_moved(staging.prepare(transaction, key, writers, at_ms))
            case Mark(_, markers):
                appended, dropped = staging.mark(markers, next_offset)
                chunks = [self._chunks[each.ref] for each in appended]
                done = [each.ref for each in appended] + dropped
                return self._drop(done, staging.decided)._replace(appended=chunks)
            case Discard(key, names):
                return self._drop(staging.discard(key, names))
            case Renew(key, at_ms):
                staging.renew(key, at_ms)
                return _nothing_moved(StageAnswer.STAGED)
            case Forget(transaction):
                return self._drop(staging.forget(transaction))
            case Expire(before_ms):
                self._expiring = False
                return self._drop(staging.expire(before_ms))

    def _keep(self, index: int, chunk: bytes) -> None:
        self._chunks[index] = chunk
        self._budget.used += len(chunk)

    def _drop(self, refs: list[int], answer: Answer = None) -> Applied:
        for ref in refs:
            self._budget.used -= len(self._chunks.pop(ref))
        return Applied(answer, [], stays=False, done=refs)

    def follow(self) -> None:
        """What was proposed is void."""
        self._expiring = False

    def clear(self) -> None:
        """The partition is deleted, or another replica's rows take the place of these."""
        self._drop(list(self._chunks))
        self._staging = Staging()

    # What there is

    def shares(self) -> list[Share]:
        """Who has how much staged, the largest first."""
        return self._staging.shares()

    @property
    def held(self) -> list[int]:
        """Transactions whose rows are prepared."""
        return list(self._staging.held)

    @property
    def decided(self) -> int:
        """The last decision that was carried out here."""
        return self._staging.decided

    @property
    def forgotten(self) -> int:
        """Where commits up to this decision begin may not be known any more."""
        return self._staging.visibility.forgotten

    def whole_end(self, settled: int, next_offset: int) -> int | None:
        """Up to where there are only transactions up to this one; None: nobody remembers."""
        return self._staging.visibility.end(settled, next_offset)

    def refs(self) -> list[int]:
        """The entries of the log that are still needed."""
        return sorted(self._staging.refs())

    # Checkpoints

    def encode(self) -> bytes:
        return self._staging.encode()

    def restore(self, state: bytes, fetch: Fetch | None) -> list[int]:
        """As in a checkpoint: the entries of the log that are still needed."""
        self._staging = Staging.decode(state)
        refs = self.refs()
        if refs:
            assert fetch is not None, "staged chunks are in the log"
            for index, entry in fetch(refs):
                said = decode_said(entry)
                assert isinstance(said, Stage), index
                self._keep(index, said.chunk)
            if len(self._chunks) < len(refs):
                raise DamagedSegmentsError("staged rows are missing in the log")
        return refs


def refs_of(state: bytes) -> list[int]:
    """The entries that a state of staged rows refers to."""
    return sorted(Staging.decode(state).refs())


def _nothing_moved(answer: Answer) -> Applied:
    return Applied(answer, [], stays=False, done=[])


def _nobody(answer: Answer) -> None:
    """Waits for this one."""
