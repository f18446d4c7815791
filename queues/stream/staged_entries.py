"""What a partition's log says of transactions, beside plain chunks.

    stage     0       4             8
              +-------+-------------+------+-------+
              |"LVSG" |head bytes I | head | chunk |
              +-------+-------------+------+-------+
    head      CBOR [version, producer, epoch, sequence, writer, number, at ms]
    others    "LVTX", then CBOR [version, kind, fields …]:
                prepare, transaction, [producer, epoch, sequence], [[writer, rows], …], at ms
                mark, settled, [[number, transaction, [key], decision, [writer, …]], …]
                discard, [key], [writer, …]
                renew, [key], at ms
                forget, transaction
                expire, before ms

Little-endian. Times are the leader's.
"""

import struct
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import cbor2

from queues.stream.participant import Decision, Marker, TransactionKey, WriterRows

FORMAT_VERSION: Final = 1
STAGE_MAGIC: Final = b"LVSG"
MAGIC: Final = b"LVTX"

_SIZE: Final = struct.Struct("<I")
_HEAD_AT: Final = len(STAGE_MAGIC) + _SIZE.size


@dataclass(frozen=True, slots=True)
class Stage:
    key: TransactionKey
    writer: str
    number: int
    at_ms: int
    chunk: bytes


@dataclass(frozen=True, slots=True)
class Prepare:
    transaction: int
    key: TransactionKey
    writers: tuple[WriterRows, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class Mark:
    settled: int
    markers: tuple[Marker, ...]


@dataclass(frozen=True, slots=True)
class Discard:
    key: TransactionKey
    writers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Renew:
    key: TransactionKey
    at_ms: int


@dataclass(frozen=True, slots=True)
class Forget:
    transaction: int


@dataclass(frozen=True, slots=True)
class Expire:
    before_ms: int


Said: TypeAlias = Stage | Prepare | Mark | Discard | Renew | Forget | Expire


def is_said(entry: bytes) -> bool:
    """Whether an entry is one of these, and not a chunk."""
    return entry[:4] in (STAGE_MAGIC, MAGIC)


def encode_said(said: Said) -> bytes:
    if isinstance(said, Stage):
        head = cbor2.dumps([FORMAT_VERSION, *said.key, said.writer, said.number, said.at_ms])
        return b"".join((STAGE_MAGIC, _SIZE.pack(len(head)), head, said.chunk))
    return MAGIC + cbor2.dumps([FORMAT_VERSION, *_fields(said)])


def _fields(said: Prepare | Mark | Discard | Renew | Forget | Expire) -> list[Any]:
    match said:
        case Prepare(transaction, key, writers, at_ms):
            return ["prepare", transaction, list(key), [list(each) for each in writers], at_ms]
        case Mark(settled, markers):
            return ["mark", settled, [marker_row(each) for each in markers]]
        case Discard(key, writers):
            return ["discard", list(key), list(writers)]
        case Renew(key, at_ms):
            return ["renew", list(key), at_ms]
        case Forget(transaction):
            return ["forget", transaction]
        case Expire(before_ms):
            return ["expire", before_ms]


def decode_said(entry: bytes) -> Said:
    if entry[:4] == STAGE_MAGIC:
        (size,) = _SIZE.unpack_from(entry, len(STAGE_MAGIC))
        version, *key, writer, number, at_ms = cbor2.loads(entry[_HEAD_AT : _HEAD_AT + size])
        assert version == FORMAT_VERSION, version
        return Stage(TransactionKey(*key), writer, number, at_ms, entry[_HEAD_AT + size :])
    version, *fields = cbor2.loads(entry[len(MAGIC) :])
    assert version == FORMAT_VERSION, version
    match fields:
        case ["prepare", transaction, key, writers, at_ms]:
            rows = tuple(WriterRows(*each) for each in writers)
            return Prepare(transaction, TransactionKey(*key), rows, at_ms)
        case ["mark", settled, markers]:
            return Mark(settled, tuple(marker_of(*each) for each in markers))
        case ["discard", key, writers]:
            return Discard(TransactionKey(*key), tuple(writers))
        case ["renew", key, at_ms]:
            return Renew(TransactionKey(*key), at_ms)
        case ["forget", transaction]:
            return Forget(transaction)
        case ["expire", before_ms]:
            return Expire(before_ms)
    raise AssertionError(fields)


def marker_row(marker: Marker) -> list[Any]:
    decision = marker.decision.value
    return [marker.number, marker.transaction, list(marker.key), decision, list(marker.writers)]


def marker_of(
    number: int, transaction: int, key: list[Any], decision: str, writers: list[str]
) -> Marker:
    return Marker(number, transaction, TransactionKey(*key), Decision(decision), tuple(writers))
