"""Commands of the transaction coordinator, as they stand in its log, and what comes out of them.

An entry is a CBOR array: [version, kind, fields …]. A key is [producer, epoch, sequence]; parts are

    [0, stream, partition, [[writer, rows], …], uid of the stream]   without uid if it is not known
    [1, group, member, generation, [[stream, partition, offset, metadata], …]]
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

import cbor2

from queues.stream.group_records import Position
from queues.stream.names import GroupId, PartitionId
from queues.stream.participant import (
    Decision,
    GroupPart,
    Marker,
    Part,
    Participant,
    PartitionPart,
    TransactionKey,
    WriterRows,
)

FORMAT_VERSION: Final = 1
OPENING: Final = -1  # the sequence in the answer to an Open that is refused


@dataclass(frozen=True, slots=True)
class Open:
    """A producer starts: a new epoch, and what an older one has not decided is aborted."""

    producer: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Commit:
    key: TransactionKey
    parts: tuple[Part, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class Abort:
    """`parts` say where something may be staged; the rest of it expires."""

    key: TransactionKey
    parts: tuple[Part, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class Decide:
    transaction: int
    decision: Decision
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Finish:
    """All participants have carried out the decision."""

    transaction: int


@dataclass(frozen=True, slots=True)
class Expire:
    """Forget producers that did nothing since, and those that have nothing more to commit."""

    before_ms: int
    done_before_ms: int


Command: TypeAlias = Open | Commit | Abort | Decide | Finish | Expire


@dataclass(frozen=True, slots=True)
class Committed:
    """`number` is that of the decision: 'settled' at this number means visible everywhere."""

    number: int
    rows: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """Nothing of it is visible. The same key may be tried again, staged anew by other writers."""

    reason: str


class Refusal(Enum):
    FENCED = "another epoch of the producer is the current one"
    PASSED = "the producer has committed a later sequence; what became of this is not known"
    BUSY = "the producer's last transaction, or the abort of this one, is under way: ask again"
    FULL = "too many transactions or producers"
    MALFORMED = "a participant or a writer is named twice, or there are too many"


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was done."""

    refusal: Refusal


Outcome: TypeAlias = Committed | Aborted | Refused


@dataclass(frozen=True, slots=True)
class Reply:
    """For everyone who waits for this key."""

    key: TransactionKey
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Told:
    """For whoever asked, and for nobody else who waits for the key."""

    key: TransactionKey
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Opened:
    producer: str
    epoch: int
    last: int  # the last sequence that was committed; -1 if none


@dataclass(frozen=True, slots=True)
class Prepare:
    participant: Participant
    transaction: int
    key: TransactionKey
    part: Part


@dataclass(frozen=True, slots=True)
class Mark:
    """All that this participant has not confirmed, in order. It answers with its `decided`."""

    participant: Participant
    markers: tuple[Marker, ...]
    settled: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Drop staged rows early. May be lost: they expire."""

    participant: Participant
    key: TransactionKey
    writers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Propose:
    """For the coordinator's own log."""

    command: Command


Effect: TypeAlias = Reply | Told | Opened | Prepare | Mark | Discard | Propose


def encode_command(command: Command) -> bytes:
    return cbor2.dumps([FORMAT_VERSION, *_fields(command)])


def _fields(command: Command) -> list[Any]:
    match command:
        case Open(producer, at_ms):
            return ["open", producer, at_ms]
        case Commit(key, parts, at_ms):
            return ["commit", list(key), [part_row(each) for each in parts], at_ms]
        case Abort(key, parts, at_ms):
            return ["abort", list(key), [part_row(each) for each in parts], at_ms]
        case Decide(transaction, decision, reason):
            return ["decide", transaction, decision.value, reason]
        case Finish(transaction):
            return ["finish", transaction]
        case Expire(before_ms, done_before_ms):
            return ["expire", before_ms, done_before_ms]


def decode_command(entry: bytes) -> Command:
    version, *fields = cbor2.loads(entry)
    assert version == FORMAT_VERSION, version
    match fields:
        case ["open", producer, at_ms]:
            return Open(producer, at_ms)
        case ["commit", key, rows, at_ms]:
            return Commit(TransactionKey(*key), parts_of(rows), at_ms)
        case ["abort", key, rows, at_ms]:
            return Abort(TransactionKey(*key), parts_of(rows), at_ms)
        case ["decide", transaction, decision, reason]:
            return Decide(transaction, Decision(decision), reason)
        case ["finish", transaction]:
            return Finish(transaction)
        case ["expire", before_ms, *later]:  # an older version wrote one time only
            return Expire(before_ms, *(later or [before_ms]))
    raise AssertionError(fields)


def part_row(part: Part) -> list[Any]:
    match part:
        case PartitionPart(partition, writers, uid):
            return [0, *partition, [list(each) for each in writers], *([uid] if uid else [])]
        case GroupPart(group, member, generation, positions):
            rows = [[*partition, *position] for partition, position in sorted(positions.items())]
            return [1, group.name, member, generation, rows]


def parts_of(rows: list[list[Any]]) -> tuple[Part, ...]:
    return tuple(_part(*row) for row in rows)


def _part(kind: int, *fields: Any) -> Part:
    if kind == 0:
        stream, number, writers, *uid = fields
        rows_of = tuple(WriterRows(*w) for w in writers)
        return PartitionPart(PartitionId(stream, number), rows_of, *uid)
    name, member, generation, rows = fields
    positions = {PartitionId(s, n): Position(offset, text) for s, n, offset, text in rows}
    return GroupPart(GroupId(name), member, generation, positions)
