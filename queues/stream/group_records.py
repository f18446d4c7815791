"""Consumer groups as records of the compacted stream `__consumer_offsets`.

Keys and values are CBOR arrays, the format's version first. A record without a value deletes.

    key                                     value
    [1, 1, group, stream, partition]        [1, offset, metadata, committed at (ms), stream's uid]
    [1, 2, group]                           [1, generation, members ever, last decision]
    [1, 3, group, transaction]              [1, at (ms), [[stream, partition, offset, metadata], …]]

Offsets of earlier versions have no uid.

All records that one call gives out belong into one chunk: half of them is not a state. All records
of a group belong into the same partition of that stream, so that their order is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import cbor2

from queues.stream.group_errors import UnknownRecordError
from queues.stream.names import PartitionId

FORMAT_VERSION: Final = 1

_OFFSET: Final = 1
_GROUP: Final = 2
_HELD: Final = 3


class Record(NamedTuple):
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Committed:
    """Up to where a group has read: `offset` is the next record that it wants."""

    offset: int
    metadata: str
    at_ms: int
    uid: bytes = b""  # of the stream that it was committed in; empty: not known


class Position(NamedTuple):
    """Where a member asks to put a group's offset."""

    offset: int
    metadata: str = ""


Positions: TypeAlias = Mapping[PartitionId, Position]


@dataclass(frozen=True, slots=True)
class HeldOffsets:
    """The offsets of a prepared transaction."""

    at_ms: int
    positions: Positions


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    group: str
    partition: PartitionId
    value: Committed | None


@dataclass(frozen=True, slots=True)
class GroupRecord:
    group: str
    generation: int
    members_ever: int
    decided: int


@dataclass(frozen=True, slots=True)
class GroupGone:
    group: str


@dataclass(frozen=True, slots=True)
class HeldRecord:
    group: str
    transaction: int
    value: HeldOffsets | None


GroupChange: TypeAlias = OffsetRecord | GroupRecord | GroupGone | HeldRecord


def encode_change(change: GroupChange) -> Record:
    match change:
        case OffsetRecord(group, partition, value):
            body = None if value is None else _committed_body(value)
            return _record([_OFFSET, group, *partition], body)
        case GroupRecord(group, generation, members_ever, decided):
            return _record([_GROUP, group], [generation, members_ever, decided])
        case GroupGone(group):
            return _record([_GROUP, group], None)
        case HeldRecord(group, transaction, held):
            body = None if held is None else _held_body(held)
            return _record([_HELD, group, transaction], body)


def decode_change(record: Record) -> GroupChange:
    version, kind, group, *rest = cbor2.loads(record.key)
    body = None
    if record.value is not None:
        value_version, *body = cbor2.loads(record.value)
        version = max(version, value_version)
    if version != FORMAT_VERSION:
        raise UnknownRecordError(f"record of version {version} of group {group!r}")
    match kind:
        case 1:
            return OffsetRecord(group, PartitionId(*rest), body and Committed(*body))
        case 2:
            return GroupRecord(group, *body) if body else GroupGone(group)
        case 3:
            return HeldRecord(group, rest[0], body and _held(*body))
    raise UnknownRecordError(f"record of kind {kind} of group {group!r}")


def _record(key: list[Any], value: list[Any] | None) -> Record:
    encoded = None if value is None else cbor2.dumps([FORMAT_VERSION, *value])
    return Record(cbor2.dumps([FORMAT_VERSION, *key]), encoded)


def _committed_body(value: Committed) -> list[Any]:
    body: list[Any] = [value.offset, value.metadata, value.at_ms]
    return [*body, value.uid] if value.uid else body


def _held_body(held: HeldOffsets) -> list[Any]:
    positions = sorted(held.positions.items())
    return [held.at_ms, [[*partition, *position] for partition, position in positions]]


def _held(at_ms: int, rows: list[list[Any]]) -> HeldOffsets:
    positions = {
        PartitionId(stream, number): Position(offset, metadata)
        for stream, number, offset, metadata in rows
    }
    return HeldOffsets(at_ms, positions)
