"""The commands of a durable queue, as they stand in its log.

    entry     one or more commands, one behind another
    command   0      1            5
              +------+------------+------------------+
              | kind | length u32 | body             |
              +------+------------+------------------+
    ENQUEUE   time u64 (ms), count u32, then per message
              +-----------------+-------------+----------------+----------------+---------+--------+
              | address len u16 | priority u8 | expires i64 ms | frames len u32 | address | frames |
              +-----------------+-------------+----------------+----------------+---------+--------+
              expires is -1 for never; frames is the content as published (broker.protocol.content)
    SETTLE    ranges of sequences: (first u64, count u32) each
    RETURN    ranges of sequences, each message of which was returned once more. One that begins at
              2^63 + n is of no message: all before n may have been delivered. To those who do not
              know this it says nothing, so that nodes of earlier versions can follow
    DELIVERED u64: nothing from this sequence on was ever delivered (written at a clean stop)
    DELAY     (sequence u64, due u64 ms) each: these messages are not ready before they are due
    SEEN      time u64 (ms), then (digest 16 bytes, until u64 ms) each: ids of messages that are to
              be taken for duplicates until then; what was to be kept until `time` is forgotten
    ORIGIN    time u64 (ms), then per batch of a publisher that may repeat itself
              +------------------+---------+-------------+--------------------+
              | session 16 bytes | seq u64 | refused u32 | positions u32 each |
              +------------------+---------+-------------+--------------------+
              of which all messages that were taken are in this entry, or were duplicates

Messages are numbered by the order of their ENQUEUEs in the log, from 0: the sequence.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from queues.message import Message
from queues.publishers import Note, pack_places, unpack_places

ENQUEUE: Final = 1
SETTLE: Final = 2
RETURN: Final = 3
DELIVERED: Final = 4
DELAY: Final = 5
SEEN: Final = 6
ORIGIN: Final = 7

REACHED_FROM: Final = 2**63

_COMMAND = struct.Struct(">BI")
_BATCH = struct.Struct(">QI")
_MESSAGE = struct.Struct(">HBqI")
_RANGE = struct.Struct(">QI")
_DUE = struct.Struct(">QQ")
_ID = struct.Struct(">16sQ")
_NOTE = struct.Struct(">16sQI")
_U64 = struct.Struct(">Q")
_CONTENT = struct.Struct(">xHIxxxxQH")  # channel, header size, body size, flags of a header frame
_NEVER: Final = -1

Range: TypeAlias = tuple[int, int]  # first sequence, count
Due: TypeAlias = tuple[int, int]  # sequence, time in ms
Id: TypeAlias = tuple[bytes, int]  # digest, time in ms until which it counts


def encode_enqueue(messages: list[Message], time_ms: int) -> bytes:
    pieces = [b"", _BATCH.pack(time_ms, len(messages))]
    pack = _MESSAGE.pack
    for message in messages:
        address, frames, expires = message.address, message.frames, message.expires_at
        pieces += (
            pack(
                len(address),
                message.priority,
                _NEVER if expires is None else expires,
                len(frames),
            ),
            address,
            frames,
        )
    size = sum(map(len, pieces))
    pieces[0] = _COMMAND.pack(ENQUEUE, size)
    return b"".join(pieces)


def encode_ranges(kind: int, sequences: Iterable[int], ranges: Iterable[Range] = ()) -> bytes:
    """SETTLE or RETURN of these sequences and ranges, in any order."""
    body = b"".join([_RANGE.pack(*each) for each in (*ranges_of(sequences), *ranges)])
    return _COMMAND.pack(kind, len(body)) + body


def encode_reached(sequence: int) -> bytes:
    """The RETURN that says how far deliveries have come."""
    return encode_ranges(RETURN, (), [(REACHED_FROM + sequence, 1)])


def encode_delivered(sequence: int) -> bytes:
    return _COMMAND.pack(DELIVERED, 8) + _U64.pack(sequence)


def encode_delays(delays: Iterable[Due]) -> bytes:
    body = b"".join([_DUE.pack(*each) for each in delays])
    return _COMMAND.pack(DELAY, len(body)) + body


def encode_seen(ids: Iterable[Id], time_ms: int) -> bytes:
    body = _U64.pack(time_ms) + b"".join([_ID.pack(*each) for each in ids])
    return _COMMAND.pack(SEEN, len(body)) + body


def encode_origins(notes: Iterable[Note], time_ms: int) -> bytes:
    pieces = [_U64.pack(time_ms)]
    for session, seq, refused in notes:
        pieces += (_NOTE.pack(session, seq, len(refused)), pack_places(refused))
    body = b"".join(pieces)
    return _COMMAND.pack(ORIGIN, len(body)) + body


def ranges_of(sequences: Iterable[int]) -> list[Range]:
    """Runs of consecutive sequences, ascending."""
    ranges: list[Range] = []
    first = following = -1
    for sequence in sorted(sequences):
        if sequence != following:
            if first >= 0:
                ranges.append((first, following - first))
            first = sequence
        following = sequence + 1
    if first >= 0:
        ranges.append((first, following - first))
    return ranges


def split_commands(entry: bytes) -> Iterator[tuple[int, int, int]]:
    """(kind, start, end) of each command's body in an entry."""
    pos = 0
    while pos < len(entry):
        kind, size = _COMMAND.unpack_from(entry, pos)
        start = pos + _COMMAND.size
        pos = start + size
        yield kind, start, pos


def enqueued_count(entry: bytes, start: int) -> int:
    """How many messages an ENQUEUE body at `start` holds."""
    return int(_BATCH.unpack_from(entry, start)[1])


def decode_ranges(entry: bytes, start: int, end: int) -> list[Range]:
    return list(_RANGE.iter_unpack(entry[start:end]))


def decode_delivered(entry: bytes, start: int) -> int:
    return int(_U64.unpack_from(entry, start)[0])


def decode_delays(entry: bytes, start: int, end: int) -> list[Due]:
    return list(_DUE.iter_unpack(entry[start:end]))


def decode_seen(entry: bytes, start: int, end: int) -> tuple[int, list[Id]]:
    """The time, and the ids."""
    return decode_delivered(entry, start), list(_ID.iter_unpack(entry[start + 8 : end]))


def decode_origins(entry: bytes, start: int, end: int) -> tuple[int, list[Note]]:
    """The time, and the batches."""
    notes: list[Note] = []
    pos = start + _U64.size
    while pos < end:
        session, seq, count = _NOTE.unpack_from(entry, pos)
        refused, pos = unpack_places(entry, pos + _NOTE.size, count)
        notes.append(Note(session, seq, refused))
    return decode_delivered(entry, start), notes


def enqueued_ms(entry: bytes, start: int) -> int:
    """When an ENQUEUE body at `start` was written."""
    return int(_BATCH.unpack_from(entry, start)[0])


def decode_messages(entry: bytes, start: int) -> list[Message]:
    """The messages of an ENQUEUE body, as they were before they were enqueued."""
    count = enqueued_count(entry, start)
    pos = start + _BATCH.size
    messages = []
    for _ in range(count):
        address_bytes, priority, expires, frames_bytes = _MESSAGE.unpack_from(entry, pos)
        address_at = pos + _MESSAGE.size
        frames_at = address_at + address_bytes
        pos = frames_at + frames_bytes
        channel, header_bytes, body_bytes, flags = _CONTENT.unpack_from(entry, frames_at)
        message = Message(
            entry[address_at:frames_at],
            entry[frames_at:pos],
            header_bytes,
            flags,
            body_bytes,
            channel,
        )
        message.priority = priority
        message.expires_at = None if expires == _NEVER else expires
        messages.append(message)
    return messages
