"""Rows of a partition that wait for their transaction: durable, invisible, without offsets.

Part of the state of a partition: every method that changes it is the effect of an entry of the
partition's log, and its answer may leave when that entry is committed. A chunk itself stays with
the caller, who names it by `ref` (its place in the log) and keeps it until it is appended or
dropped.

A writer is one attempt to write (a uuid, never used again); its chunks are numbered from 0. What
was not asked for when the transaction commits is dropped: attempts that failed leave nothing. A
writer named `attempt/uuid` belongs to an attempt at the whole transaction, which ends those before.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import Any, Final, NamedTuple

import cbor2

from queues.stream.participant import (
    Decision,
    Held,
    Marker,
    TransactionKey,
    Vote,
    WriterRows,
)
from queues.stream.visibility import Visibility

FORMAT_VERSION: Final = 1
CHUNKS_MAX: Final = 50_000  # about 10 MB of memory
STAGED_BYTES_MAX: Final = 8 << 30  # rows that nobody may ever read should not fill the disk
STAGED_MS: Final = 3600 * 1000  # a transaction to which nothing was added for so long is stale


class StagedChunk(NamedTuple):
    ref: int
    rows: int
    size_bytes: int


class Appended(NamedTuple):
    ref: int
    offset: int
    rows: int


class StageAnswer(Enum):
    STAGED = "staged"
    DUPLICATE = "staged before"
    OUT_OF_ORDER = "a chunk before it is missing"
    FULL = "too much is staged"


@dataclass(slots=True)
class _Open:
    """What is staged under one key."""

    at_ms: int
    writers: dict[str, list[StagedChunk]] = field(default_factory=dict)


class Share(NamedTuple):
    """What one transaction has in a partition, for people."""

    key: TransactionKey | None  # None: it is prepared, and only its number is known here
    transaction: int | None
    writers: tuple[str, ...]
    rows: int
    size_bytes: int
    at_ms: int  # when something was added, or when it was prepared


class HeldRows(NamedTuple):
    """What a prepared transaction will append."""

    at_ms: int
    chunks: tuple[StagedChunk, ...]


class Marked(NamedTuple):
    appended: list[Appended]
    dropped: list[int]  # refs


class Staging:
    def __init__(self) -> None:
        self._open: dict[TransactionKey, _Open] = {}
        self._held: Held[HeldRows] = Held()
        self._chunks = 0
        self.size_bytes = 0
        self.visibility = Visibility()

    def stage(
        self, key: TransactionKey, writer: str, number: int, chunk: StagedChunk, at_ms: int
    ) -> StageAnswer:
        if self._chunks >= CHUNKS_MAX or self.size_bytes + chunk.size_bytes > STAGED_BYTES_MAX:
            return StageAnswer.FULL
        staged = self._open.get(key)
        known = len(staged.writers.get(writer, ())) if staged else 0
        if number != known:
            return StageAnswer.DUPLICATE if number < known else StageAnswer.OUT_OF_ORDER
        if staged is None:
            staged = self._open[key] = _Open(at_ms)
        staged.at_ms = max(staged.at_ms, at_ms)
        staged.writers.setdefault(writer, []).append(chunk)
        self._count(chunk, 1)
        return StageAnswer.STAGED

    def superseded(self, key: TransactionKey, writer: str) -> list[str]:
        """Writers of other attempts at the transaction than this one's: nobody will commit them."""
        staged = self._open.get(key)
        if staged is None or writer in staged.writers:
            return []
        attempt = _attempt_of(writer)
        return [each for each in staged.writers if _attempt_of(each) != attempt]

    def size_of(self, key: TransactionKey, writers: Iterable[str]) -> int:
        """Bytes that these have staged."""
        staged = self._open[key].writers if key in self._open else {}
        return sum(chunk.size_bytes for each in writers for chunk in staged.get(each, ()))

    def abandoned(self, before_ms: int) -> list[tuple[TransactionKey, tuple[str, ...]]]:
        """Transactions to which nothing was added since, the oldest first, and their writers."""
        found = [(each.at_ms, key) for key, each in self._open.items() if each.at_ms < before_ms]
        return [(key, tuple(self._open[key].writers)) for _, key in sorted(found)]

    def shares(self) -> list[Share]:
        """Who has how much staged, the largest first."""
        found = [
            Share(
                *(key, None, tuple(staged.writers)),
                *_sums(chain.from_iterable(staged.writers.values())),
                staged.at_ms,
            )
            for key, staged in self._open.items()
        ]
        found += [
            Share(None, transaction, (), *_sums(held.chunks), held.at_ms)
            for transaction, held in self._held.parts.items()
        ]
        return sorted(found, key=lambda share: -share.size_bytes)

    def prepare(
        self,
        transaction: int,
        key: TransactionKey,
        writers: Iterable[WriterRows],
        at_ms: int,
    ) -> Vote:
        """Hold on to the rows of these writers, if all of them are here."""
        if transaction in self._held:
            return Vote.YES
        staged = self._open.get(key) or _Open(at_ms)
        chunks: list[StagedChunk] = []
        asked = tuple(writers)
        for writer, rows in asked:
            found = staged.writers.get(writer, [])
            if sum(chunk.rows for chunk in found) != rows:
                return Vote.MISSING
            chunks += found
        for writer, _ in asked:
            staged.writers.pop(writer, None)
        if not staged.writers:
            self._open.pop(key, None)
        self._held.hold(transaction, HeldRows(at_ms, tuple(chunks)))
        return Vote.YES

    def mark(self, markers: Iterable[Marker], next_offset: int) -> Marked:
        """Carry out decisions; what was committed goes to `next_offset` and on, in one entry."""
        appended: list[Appended] = []
        dropped: list[int] = []
        for marker, held in self._held.resolve(markers):
            chunks = held.chunks if held is not None else ()
            self._uncount(chunks)
            if marker.decision is Decision.COMMIT:
                self.visibility.committed(marker.number, next_offset)
                for chunk in chunks:
                    appended.append(Appended(chunk.ref, next_offset, chunk.rows))
                    next_offset += chunk.rows
                dropped += self._drop(marker.key, None)
            else:
                dropped += [chunk.ref for chunk in chunks]
                dropped += self._drop(marker.key, marker.writers)
        return Marked(appended, dropped)

    def discard(self, key: TransactionKey, writers: Iterable[str]) -> list[int]:
        """The producer does not want these rows; what is prepared waits for its marker."""
        return self._drop(key, writers)

    def renew(self, key: TransactionKey, at_ms: int) -> None:
        """The transaction is alive, though nothing is added to it here."""
        if staged := self._open.get(key):
            staged.at_ms = max(staged.at_ms, at_ms)

    def needs_renewal(self, key: TransactionKey, before_ms: int) -> bool:
        """Whether nothing was added to it since, and there is something that could expire."""
        staged = self._open.get(key)
        return staged is not None and staged.at_ms < before_ms

    def is_stale(self, before_ms: int) -> bool:
        """Whether there is anything to `expire`."""
        return any(staged.at_ms < before_ms for staged in self._open.values())

    def expire(self, before_ms: int) -> list[int]:
        """Drop what nothing was added to since, by the leader's clock. What is held stays."""
        stale = [key for key, staged in self._open.items() if staged.at_ms < before_ms]
        return [ref for key in stale for ref in self._drop(key, None)]

    def forget(self, transaction: int) -> list[int]:
        """The coordinator does not know this transaction (any more): nothing is held for it."""
        held = self._held.forget(transaction)
        chunks = held.chunks if held is not None else ()
        self._uncount(chunks)
        return [chunk.ref for chunk in chunks]

    @property
    def decided(self) -> int:
        return self._held.decided

    @property
    def strays(self) -> int:
        return self._held.strays

    @property
    def held(self) -> Mapping[int, HeldRows]:
        return self._held.parts

    def refs(self) -> Iterator[int]:
        """The chunks that must be kept."""
        return (chunk.ref for chunk in self._all_chunks())

    def encode(self) -> bytes:
        open_rows = [
            [*key, staged.at_ms, {w: [list(c) for c in cs] for w, cs in staged.writers.items()}]
            for key, staged in self._open.items()
        ]
        held_rows = [
            [transaction, held.at_ms, [list(chunk) for chunk in held.chunks]]
            for transaction, held in self._held.parts.items()
        ]
        state = [FORMAT_VERSION, self.decided, self.visibility.rows(), open_rows, held_rows]
        return cbor2.dumps(state)

    @classmethod
    def decode(cls, state: bytes) -> "Staging":
        version, decided, visibility, open_rows, held_rows = cbor2.loads(state)
        assert version == FORMAT_VERSION, version
        found = cls()
        found.visibility = Visibility.of_rows(*visibility)
        for producer, epoch, sequence, at_ms, writers in open_rows:
            staged = {writer: _chunks(rows) for writer, rows in writers.items()}
            found._open[TransactionKey(producer, epoch, sequence)] = _Open(at_ms, staged)
        held = {number: HeldRows(at, tuple(_chunks(rows))) for number, at, rows in held_rows}
        found._held = Held(decided, held)
        for chunk in found._all_chunks():
            found._count(chunk, 1)
        return found

    def _all_chunks(self) -> Iterator[StagedChunk]:
        for staged in self._open.values():
            for chunks in staged.writers.values():
                yield from chunks
        for held in self._held.parts.values():
            yield from held.chunks

    def _drop(self, key: TransactionKey, writers: Iterable[str] | None) -> list[int]:
        """What is staged under the key by these writers, or by all."""
        staged = self._open.get(key)
        if staged is None:
            return []
        dropped: list[int] = []
        for writer in list(staged.writers) if writers is None else writers:
            chunks = staged.writers.pop(writer, [])
            self._uncount(chunks)
            dropped += [chunk.ref for chunk in chunks]
        if not staged.writers:
            del self._open[key]
        return dropped

    def _count(self, chunk: StagedChunk, sign: int) -> None:
        self._chunks += sign
        self.size_bytes += sign * chunk.size_bytes

    def _uncount(self, chunks: Iterable[StagedChunk]) -> None:
        for chunk in chunks:
            self._count(chunk, -1)


def _sums(chunks: Iterable[StagedChunk]) -> tuple[int, int]:
    """Rows and bytes."""
    found = list(chunks)
    return sum(chunk.rows for chunk in found), sum(chunk.size_bytes for chunk in found)


def _attempt_of(writer: str) -> str:
    return writer.rpartition("/")[0]


def _chunks(rows: list[list[Any]]) -> list[StagedChunk]:
    return [StagedChunk(*row) for row in rows]
