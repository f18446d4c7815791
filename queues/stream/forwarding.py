"""What nodes say to the leader of a partition, and what it answers.

    request   kind B, then
                APPEND   a chunk
                SAY      an entry of staged_entries.py
                ON_DISK  producer Q, epoch Q, sequence Q of a chunk that was sent before
                END      -
    answer    to APPEND: verdict b (-1: lost, ask whoever leads now), first offset q (-1: unknown),
              expected sequence Q
              to SAY: CBOR [kind, value]
              to ON_DISK: B, 1 once the leader has it on its own disk, 0 if it may never have
              to END: the next offset Q; nothing if it does not lead

Little-endian.
"""

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

import cbor2

from broker.protocol.chunk import Producer, read_header
from broker.protocol.stream_errors import CorruptChunkError
from queues.stream.participant import Vote
from queues.stream.partition import StreamPartition
from queues.stream.staged_rows import Answer, Lost, Then
from queues.stream.staging import StageAnswer
from queues.stream.verdict import Verdict

_ANSWER: Final = struct.Struct("<bqQ")
_OFFSET: Final = struct.Struct("<Q")
_NUMBERS: Final = struct.Struct("<QQQ")
_VERDICTS: Final = tuple(Verdict)


class _Kind(IntEnum):
    APPEND = 1
    SAY = 2
    ON_DISK = 3
    END = 4


class AppendAnswer(NamedTuple):
    verdict: Verdict | None  # None: lost
    first_offset: int | None


def encode_append(chunk: bytes) -> bytes:
    return bytes([_Kind.APPEND]) + chunk


def encode_say(entry: bytes) -> bytes:
    return bytes([_Kind.SAY]) + entry


def encode_on_disk(producer: Producer) -> bytes:
    return bytes([_Kind.ON_DISK]) + _NUMBERS.pack(*producer)


def is_on_disk(answer: bytes | None) -> bool:
    return answer == b"\1"


def encode_ask_end() -> bytes:
    return bytes([_Kind.END])


def read_end(answer: bytes | None) -> int | None:
    """None: nobody knows."""
    return int(_OFFSET.unpack(answer)[0]) if answer else None


def read_append_answer(answer: bytes) -> AppendAnswer:
    verdict, offset, _ = _ANSWER.unpack(answer)
    return AppendAnswer(None if verdict < 0 else _VERDICTS[verdict], None if offset < 0 else offset)


def expected_sequence(answer: bytes) -> int:
    """What should have come instead, of a chunk that was out of order."""
    return int(_ANSWER.unpack(answer)[2])


class _Reporting:
    """Tells the node that forwarded a chunk."""

    __slots__ = ("_answer", "_partition", "_producer")

    def __init__(
        self, partition: StreamPartition, producer: Producer | None, answer: Callable[[bytes], None]
    ) -> None:
        self._partition = partition
        self._producer = producer
        self._answer = answer

    def appended(self, verdict: Verdict, first_offset: int | None) -> None:
        expected = 0
        if verdict is Verdict.OUT_OF_ORDER and self._producer is not None:
            expected = self._partition.expected_sequence(self._producer)
        offset = -1 if first_offset is None else first_offset
        self._answer(_ANSWER.pack(_VERDICTS.index(verdict), offset, expected))

    def dropped(self) -> None:
        self.lost()

    def lost(self) -> None:
        self._answer(_ANSWER.pack(-1, -1, 0))


def handle_forwarded(
    partition: StreamPartition, body: bytes, answer: Callable[[bytes], None]
) -> None:
    """At the leader, or at who was it. Raises CorruptChunkError or ValueError for nonsense."""
    if not body:
        raise CorruptChunkError("an empty request")
    kind, rest = _Kind(body[0]), bytes(body[1:])
    if kind is _Kind.APPEND:
        header = read_header(rest)
        partition.append_forwarded(rest, _Reporting(partition, header.producer, answer))
    elif kind is _Kind.END:
        answer(_OFFSET.pack(partition.next_offset) if partition.leads else b"")
    elif kind is _Kind.ON_DISK:
        producer = Producer(*_NUMBERS.unpack(rest))
        partition.when_on_disk(producer, lambda found: answer(bytes([found is not None])))
    else:
        partition.say(rest, lambda said: answer(encode_said_answer(said)))


def answer_lost(body: bytes, answer: Callable[[bytes], None]) -> None:
    """For a partition that is not here (any more)."""
    if body[:1] == bytes([_Kind.APPEND]):
        answer(_ANSWER.pack(-1, -1, 0))
    elif body[:1] == bytes([_Kind.END]):
        answer(b"")
    elif body[:1] == bytes([_Kind.ON_DISK]):
        answer(b"\0")
    else:
        answer(encode_said_answer(Lost.LOST))


def encode_said_answer(answer: Answer) -> bytes:
    match answer:
        case StageAnswer() | Vote() | Lost():
            return cbor2.dumps([type(answer).__name__, answer.value])
        case _:
            return cbor2.dumps(["", answer])


def read_said_answer(answer: bytes | None) -> Answer:
    """None, where none came, is as good as lost."""
    if answer is None:
        return Lost.LOST
    kind, value = cbor2.loads(answer)
    match kind:
        case "StageAnswer":
            return StageAnswer(value)
        case "Vote":
            return Vote(value)
        case "Lost":
            return Lost(value)
        case _:
            return None if value is None else int(value)


def said_then(then: Then) -> Callable[[bytes | None], None]:
    """For `Forwarder.forward`."""
    return lambda answer: then(read_said_answer(answer))
