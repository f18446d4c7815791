"""Idempotent producers: who they are, and which of their records a partition already has.

A producer has a number (pid, u64, never given twice) and an epoch. Asking again by the same name
raises the epoch, and the newest epoch that a partition has seen fences those before it. In an epoch
records are numbered per partition from 0 without gaps: the sequence.

`ProducerTable` belongs to the state of a partition: every replica calls `apply` for every entry, in
the order of the log, so that all come to the same verdict, and appends only what was accepted.
`check` answers the same without changing anything: a leader may refuse early with it, but what is
still on its way through the log is not known to it.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

import cbor2

FORMAT_VERSION: Final = 1
# A client with more unconfirmed batches than this gets no offset with the answer to an older one.
BATCHES_MAX: Final = 5
# About 0.5 KB each, so that 64 partitions stay within 64 MB.
PRODUCERS_MAX: Final = 2000
NAMES_MAX: Final = 100_000
IDLE_MS: Final = 24 * 3600 * 1000  # as long as Kafka remembers a producer
EPOCH_MAX: Final = 2**16 - 1  # as a chunk can say
# From here on ids are the nodes' own (outgoing.py): no client gets one. There are few of them, and
# they are always let in.
NODE_PRODUCERS: Final = 2**63


class ProducerId(NamedTuple):
    pid: int
    epoch: int


class ProducerIds:
    """Gives out producer ids. Its commands are `allocate` and `expire`, as they stand in a log."""

    def __init__(self) -> None:
        self._next = 1
        self._named: OrderedDict[str, tuple[ProducerId, int]] = OrderedDict()  # id, last asked (ms)

    def allocate(self, name: str, at_ms: int) -> ProducerId | None:
        """A new id; for a known name the same with the next epoch. None: too many names."""
        if not name:
            return self._fresh()
        found = self._named.get(name)
        if found is None and len(self._named) >= NAMES_MAX:
            return None
        if found is None or found[0].epoch >= EPOCH_MAX:
            given = self._fresh()
        else:
            given = found[0]._replace(epoch=found[0].epoch + 1)
        self._named[name] = (given, at_ms)
        self._named.move_to_end(name)
        return given

    def expire(self, before_ms: int) -> None:
        """Forget the names that nobody asked for since; their numbers are never used again."""
        while self._named and next(iter(self._named.values()))[1] < before_ms:
            self._named.popitem(last=False)

    def encode(self) -> bytes:
        named = [[name, *given, at_ms] for name, (given, at_ms) in self._named.items()]
        return cbor2.dumps([FORMAT_VERSION, self._next, named])

    @classmethod
    def decode(cls, state: bytes) -> "ProducerIds":
        found = cls()
        found._next, named = _body(state)
        for name, pid, epoch, at_ms in named:
            found._named[name] = (ProducerId(pid, epoch), at_ms)
        return found

    def _fresh(self) -> ProducerId:
        given = ProducerId(self._next, 0)
        self._next += 1
        return given


class Answer(Enum):
    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    OUT_OF_ORDER = "out of order"
    FENCED = "fenced by a newer epoch"
    FULL = "too many producers"


@dataclass(frozen=True, slots=True)
class Verdict:
    answer: Answer
    # DUPLICATE: where the first record got, if that is still known.
    offset: int | None = None
    # The sequence that comes next. A batch that begins before it and ends behind it is out of
    # order too; whoever can cut it may offer the rest.
    expected: int = 0


class _Batch(NamedTuple):
    first: int
    records: int
    offset: int


@dataclass(slots=True)
class _Producer:
    epoch: int
    next: int
    seen_ms: int
    batches: list[_Batch]  # the last few, oldest first


class ProducerTable:
    """What one partition knows of its producers."""

    def __init__(self) -> None:
        self._producers: OrderedDict[int, _Producer] = OrderedDict()  # longest idle first

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, pid: int, epoch: int, first: int, count: int) -> Verdict:
        assert count > 0, count
        known = self._producers.get(pid)
        if known is None and pid < NODE_PRODUCERS and len(self._producers) >= PRODUCERS_MAX:
            return Verdict(Answer.FULL)
        if known is not None and epoch < known.epoch:
            return Verdict(Answer.FENCED, expected=known.next)
        expected = known.next if known is not None and epoch == known.epoch else 0
        if first == expected:
            return Verdict(Answer.ACCEPTED, expected=expected)
        if known is not None and first + count <= expected:
            return Verdict(Answer.DUPLICATE, _offset_of(known, first, count), expected)
        return Verdict(Answer.OUT_OF_ORDER, expected=expected)

    def apply(
        self, pid: int, epoch: int, first: int, count: int, *, offset: int, at_ms: int
    ) -> Verdict:
        """`offset` is where the batch goes if it is accepted."""
        verdict = self.check(pid, epoch, first, count)
        if verdict.answer is Answer.ACCEPTED:
            known = self._producers.get(pid)
            if known is None or known.epoch != epoch:
                known = self._producers[pid] = _Producer(epoch, 0, at_ms, [])
            known.next = first + count
            known.seen_ms = max(known.seen_ms, at_ms)
            known.batches.append(_Batch(first, count, offset))
            del known.batches[:-BATCHES_MAX]
            self._producers.move_to_end(pid)
        return verdict

    def expire(self, before_ms: int) -> None:
        """Forget producers that wrote nothing since, by the leader's clock.

        Each may start again at 0 and is out of order elsewhere, so that it notices.
        """
        for pid in list(self._idle(before_ms)):
            del self._producers[pid]

    def _idle(self, before_ms: int) -> Iterator[int]:
        for pid, producer in self._producers.items():
            if producer.seen_ms >= before_ms:
                return
            yield pid

    def encode(self) -> bytes:
        rows = [
            [pid, each.epoch, each.next, each.seen_ms, [list(batch) for batch in each.batches]]
            for pid, each in self._producers.items()
        ]
        return cbor2.dumps([FORMAT_VERSION, rows])

    @classmethod
    def decode(cls, state: bytes) -> "ProducerTable":
        found = cls()
        (rows,) = _body(state)
        for pid, epoch, following, seen_ms, batches in rows:
            kept = [_Batch(*batch) for batch in batches]
            found._producers[pid] = _Producer(epoch, following, seen_ms, kept)
        return found


def _offset_of(known: _Producer, first: int, count: int) -> int | None:
    for batch in known.batches:
        if batch.first <= first and first + count <= batch.first + batch.records:
            return batch.offset + first - batch.first
    return None


def _body(state: bytes) -> list[Any]:
    version, *body = cbor2.loads(state)
    assert version == FORMAT_VERSION, version
    return list(body)
