"""Messages between a queue's fronts and its leader, byte by byte.

    every     0    1          17               21
    message   +----+----------+----------------+------+
              | op | uid 16 B | attachment u32 | body |
              +----+----------+----------------+------+
    `attachment` is the front's number for its present stay with the leader. What belongs to an
    earlier stay is ignored on both sides.

    From either
    PART      the next bytes of a message (with its own head) that is too long to be sent in one go
    LAST      the last bytes of it

    From a front
    ATTACH    session 16 B: a new stay begins; what was there of this node's earlier one is void
    PUBLISH   batches: number u64, count u32, then per message
              +----------+-----------------+-------------+----------------+----------------+
              | flags u8 | address len u16 | priority u8 | expires i64 ms | frames len u32 |
              +----------+-----------------+-------------+----------------+----------------+
              address, frames; with flag 1 a delay (i64 ms), with flag 2 a dedup id (16 B) behind
    CONSUME   consumer u32, flags u8 (see CONSUME_*), priority i64, lease u64 ms (0: the queue's),
              limit u32 (0: none), tag
    LIMIT     consumer u32, limit u32: how many messages it may hold from now on
    TAKEN     consumer u32, bytes u64: so much of what was delivered in this stay went on its way
    CANCEL    consumer u32
    RETURN    number u64, then groups: consumer u32, how u8 (see How), count u32, sequences u64
              each. Consumer 0 holds what was fetched with basic.get
    CLAIM     consumer u32, count u32, sequences: these it holds since before this stay
    ATTACHED  nothing: all that was there before this stay has been said
    CALL      number u32, what u8, arguments

    From the leader
    STORED    items: first number u64, batches u32, refused u32, then the places u32 of those
              refused in the batch (which is one batch then)
    DELIVER   consumer u32, count u32, then per message
              +--------------+------------+----------------+-----------------+----------------+
              | sequence u64 | failed u32 | redelivered u8 | address len u16 | frames len u32 |
              +--------------+------------+----------------+-----------------+----------------+
              address, frames
    RETURNED  number u64: all RETURNs up to this one are in the log, for good
    CONSUMING consumer u32, refused u8: it was taken, or the queue is in exclusive use
    CANCELLED consumer u32: by the broker
    REVOKE    consumer u32, count u32, sequences: their leases are over, and whatever its client has
              not settled yet is to come back
    ANSWER    number u32, what u8 (0: an error: code u16, text), value
    AWAY      nothing: it does not lead this queue, or knows of no such stay
    OPEN      term u64, to all nodes (attachment 0): it leads since that term, and fronts may come

Integers are big-endian.
"""

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, TypeAlias

from queues.message import Message, Wishes


class Op(IntEnum):
    """What a message says. The numbers are on the wire."""

    ATTACH = 1
    PUBLISH = 2
    CONSUME = 3
    LIMIT = 4
    TAKEN = 5
    CANCEL = 6
    RETURN = 7
    CLAIM = 8
    ATTACHED = 9
    CALL = 10

    PART = 21
    LAST = 22

    STORED = 33
    DELIVER = 34
    RETURNED = 35
    CONSUMING = 36
    CANCELLED = 37
    REVOKE = 38
    ANSWER = 39
    AWAY = 40
    OPEN = 41


FROM_LEADER: Final = Op.STORED  # this and higher ones


class How(IntEnum):
    """What became of messages that were delivered."""

    SETTLED = 0
    REQUEUED = 1
    LOST = 2  # requeued because their holder is gone
    DISCARDED = 3
    UNTOUCHED = 4  # never shown to anybody


class What(IntEnum):
    """What a call is about. Its arguments and its value are built by broker.cluster.calls."""

    COUNTS = 1
    PURGE = 2
    CHECK_DELETE = 3
    GET = 4
    EXTEND_LEASE = 5
    STATISTICS = 6
    TOUCH = 7
    STORED = 8  # argument: the first RETURN that it is about


CONSUME_NO_ACK: Final = 1
CONSUME_EXCLUSIVE: Final = 2
CONSUME_KNOWN: Final = 4  # a leader took it before
CONSUME_SERVED: Final = 8  # it has had deliveries: with a single active consumer, it is that one
CONSUME_GONE: Final = 16  # it was cancelled, and still holds messages

FETCHER: Final = 0  # the consumer that stands for basic.get

HEAD = struct.Struct(">B16sI")
_BATCH = struct.Struct(">QI")
_PUBLISHED = struct.Struct(">BHBqI")
_DELIVERED = struct.Struct(">QIBHI")
_DELIVER = struct.Struct(">II")
_CONSUME = struct.Struct(">IBqQI")
_GROUP = struct.Struct(">IBI")
_STORED = struct.Struct(">QII")
_PAIR = struct.Struct(">II")
_TAKEN = struct.Struct(">IQ")
_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")
_U64 = struct.Struct(">Q")
_CALL = struct.Struct(">IB")
_CONTENT = struct.Struct(">xHIxxxxQH")  # channel, header size, body size, flags of a header frame
_NEVER: Final = -1
_DELAY: Final = 1
_DEDUP: Final = 2
_DEDUP_BYTES: Final = 16

Batch: TypeAlias = tuple[int, list[Message]]  # number, messages
Group: TypeAlias = tuple[int, How, list[int]]  # consumer, how, sequences
Stored: TypeAlias = tuple[int, list[int]]  # number, places of those refused


def head(op: Op, uid: bytes, attachment: int) -> bytes:
    return HEAD.pack(op, uid, attachment)


# Publishing


def encode_batch(pieces: list[bytes], number: int, messages: Sequence[Message]) -> None:
    """Add a batch to a PUBLISH."""
    pieces.append(_BATCH.pack(number, len(messages)))
    pack = _PUBLISHED.pack
    for message in messages:
        address, frames, expires = message.address, message.frames, message.expires_at
        wishes = message.wishes
        pieces += (
            pack(
                0 if wishes is None else _flags(wishes),
                len(address),
                message.priority,
                _NEVER if expires is None else expires,
                len(frames),
            ),
            address,
            frames,
        )
        if wishes is not None:
            pieces.append(_encode_wishes(wishes))


def _flags(wishes: Wishes) -> int:
    delayed = 0 if wishes.delay_ms is None else _DELAY
    return delayed | (0 if wishes.dedup_id is None else _DEDUP)


def _encode_wishes(wishes: Wishes) -> bytes:
    delay = b"" if wishes.delay_ms is None else _I64.pack(wishes.delay_ms)
    return delay + (wishes.dedup_id or b"")


def decode_batches(body: bytes) -> list[Batch]:
    batches: list[Batch] = []
    pos, end = HEAD.size, len(body)
    unpack, content = _PUBLISHED.unpack_from, _CONTENT.unpack_from
    while pos < end:
        number, count = _BATCH.unpack_from(body, pos)
        pos += _BATCH.size
        messages: list[Message] = []
        for _ in range(count):
            flags, address_bytes, priority, expires, frames_bytes = unpack(body, pos)
            address_at = pos + _PUBLISHED.size
            frames_at = address_at + address_bytes
            pos = frames_at + frames_bytes
            channel, header_bytes, body_bytes, properties = content(body, frames_at)
            message = Message(
                body[address_at:frames_at],
                body[frames_at:pos],
                header_bytes,
                properties,
                body_bytes,
                channel,
            )
            message.priority = priority
            if expires != _NEVER:
                message.expires_at = expires
            if flags:
                pos = _decode_wishes(body, pos, flags, message)
            messages.append(message)
        batches.append((number, messages))
    return batches


def _decode_wishes(body: bytes, pos: int, flags: int, message: Message) -> int:
    message.wishes = Wishes()
    if flags & _DELAY:
        message.wishes.delay_ms = _I64.unpack_from(body, pos)[0]
        pos += _I64.size
    if flags & _DEDUP:
        message.wishes.dedup_id = body[pos : pos + _DEDUP_BYTES]
        pos += _DEDUP_BYTES
    return pos


def encode_stored(items: Sequence[Stored]) -> bytes:
    """Items in any order; runs of numbers without refusals become one."""
    pieces: list[bytes] = []
    first = following = -1
    for number, refused in items:
        if number == following and not refused:
            following += 1
            continue
        if first != following:
            pieces.append(_STORED.pack(first, following - first, 0))
        first = following = number
        if refused:
            pieces.append(_STORED.pack(number, 1, len(refused)))
            pieces.append(struct.pack(f">{len(refused)}I", *refused))
        else:
            following += 1
    if first != following:
        pieces.append(_STORED.pack(first, following - first, 0))
    return b"".join(pieces)


def decode_stored(body: bytes) -> list[Stored]:
    items: list[Stored] = []
    pos = HEAD.size
    while pos < len(body):
        first, batches, refused = _STORED.unpack_from(body, pos)
        pos += _STORED.size
        places = list(struct.unpack_from(f">{refused}I", body, pos))
        pos += 4 * refused
        items += [(number, places) for number in range(first, first + batches)]
    return items


# Delivering


def encode_deliver(consumer: int, messages: Sequence[Message]) -> list[bytes]:
    pieces = [_DELIVER.pack(consumer, len(messages))]
    pack = _DELIVERED.pack
    for message in messages:
        address, frames = message.address, message.frames
        pieces += (
            pack(
                message.sequence,
                message.delivery_count,
                message.redelivered,
                len(address),
                len(frames),
            ),
            address,
            frames,
        )
    return pieces


def decode_deliver(body: bytes, pos: int = HEAD.size) -> tuple[int, list[Message]]:
    """Consumer and messages."""
    consumer, count = _DELIVER.unpack_from(body, pos)
    pos += _DELIVER.size
    unpack, content = _DELIVERED.unpack_from, _CONTENT.unpack_from
    messages: list[Message] = []
    for _ in range(count):
        sequence, failed, redelivered, address_bytes, frames_bytes = unpack(body, pos)
        address_at = pos + _DELIVERED.size
        frames_at = address_at + address_bytes
        pos = frames_at + frames_bytes
        channel, header_bytes, body_bytes, properties = content(body, frames_at)
        message = Message(
            body[address_at:frames_at],
            body[frames_at:pos],
            header_bytes,
            properties,
            body_bytes,
            channel,
        )
        message.sequence = sequence
        if redelivered:
            message.redelivered = True
            message.delivery_count = failed
        messages.append(message)
    return consumer, messages


# Consumers


class ConsumeWish:
    """What a CONSUME says."""

    __slots__ = ("consumer", "flags", "lease_ms", "limit", "priority", "tag")

    def __init__(
        self, consumer: int, flags: int, priority: int, lease_ms: int | None, limit: int, tag: str
    ) -> None:
        self.consumer = consumer
        self.flags = flags
        self.priority = priority
        self.lease_ms = lease_ms
        self.limit = limit
        self.tag = tag

    def encode(self) -> bytes:
        fixed = (self.consumer, self.flags, self.priority, self.lease_ms or 0, self.limit)
        return _CONSUME.pack(*fixed) + self.tag.encode("utf-8", "surrogateescape")

    @classmethod
    def decode(cls, body: bytes) -> "ConsumeWish":
        consumer, flags, priority, lease_ms, limit = _CONSUME.unpack_from(body, HEAD.size)
        tag = body[HEAD.size + _CONSUME.size :].decode("utf-8", "surrogateescape")
        return cls(consumer, flags, priority, lease_ms or None, limit, tag)


def encode_pair(consumer: int, value: int) -> bytes:
    """LIMIT; and CONSUMING, CANCEL and CANCELLED, where the value says little or nothing."""
    return _PAIR.pack(consumer, value)


def decode_pair(body: bytes) -> tuple[int, int]:
    consumer, value = _PAIR.unpack_from(body, HEAD.size)
    return consumer, value


def encode_taken(consumer: int, size_bytes: int) -> bytes:
    return _TAKEN.pack(consumer, size_bytes)


def decode_taken(body: bytes) -> tuple[int, int]:
    consumer, size_bytes = _TAKEN.unpack_from(body, HEAD.size)
    return consumer, size_bytes


def encode_sequences(consumer: int, sequences: Sequence[int]) -> bytes:
    """CLAIM or REVOKE."""
    count = len(sequences)
    return _PAIR.pack(consumer, count) + struct.pack(f">{count}Q", *sequences)


def decode_sequences(body: bytes) -> tuple[int, list[int]]:
    consumer, count = _PAIR.unpack_from(body, HEAD.size)
    return consumer, list(struct.unpack_from(f">{count}Q", body, HEAD.size + _PAIR.size))


def encode_returns(number: int, groups: Iterable[Group]) -> bytes:
    pieces = [_U64.pack(number)]
    for consumer, how, sequences in groups:
        count = len(sequences)
        pieces.append(_GROUP.pack(consumer, how, count))
        pieces.append(struct.pack(f">{count}Q", *sequences))
    return b"".join(pieces)


def decode_returns(body: bytes) -> tuple[int, list[Group]]:
    number = decode_number(body)
    pos = HEAD.size + _U64.size
    groups: list[Group] = []
    while pos < len(body):
        consumer, how, count = _GROUP.unpack_from(body, pos)
        pos += _GROUP.size
        groups.append((consumer, How(how), list(struct.unpack_from(f">{count}Q", body, pos))))
        pos += 8 * count
    return number, groups


def encode_number(number: int) -> bytes:
    return _U64.pack(number)


def decode_number(body: bytes) -> int:
    return int(_U64.unpack_from(body, HEAD.size)[0])


# Calls


def encode_call(number: int, what: int) -> bytes:
    """The fixed part of a CALL; or of an ANSWER, where 0 stands for an error."""
    return _CALL.pack(number, what)


def decode_call(body: bytes) -> tuple[int, int, bytes]:
    number, what = _CALL.unpack_from(body, HEAD.size)
    return number, what, body[HEAD.size + _CALL.size :]
