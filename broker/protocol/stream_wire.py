"""The stream protocol's frames, sans-IO: what bulk readers and writers speak on the AMQP port.

    opening   "LVST" 0 0 1 0, from the client, in place of AMQP's header
    request   0          4               8             10
              +----------+---------------+-------------+----------------+
              |length u32|correlation u32|operation u16| body           |
              +----------+---------------+-------------+----------------+
    answer    0          4               8             10         12
              +----------+---------------+-------------+----------+-----+
              |length u32|correlation u32|operation u16|status u16| body|
              +----------+---------------+-------------+----------+-----+

Numbers are little-endian; `length` counts what is behind it. A status other than 0 is an error, and
the body is a text and numbers (see `Refused`). Correlation 0 is the server's last word: it closes
the connection. Bodies are in broker.protocol.stream_messages; docs/stream-protocol.md has it all.
"""

import struct
from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from broker.protocol.stream_fields import TEXT, U64, Buffer, Cursor, MalformedError, list_of

PROTOCOL_HEADER: Final = b"LVST\0\0\1\0"
HEADER_MARK: Final = PROTOCOL_HEADER[:4]  # any version of it

MIB: Final = 1024 * 1024
# A request holds one chunk of at most 8 MiB and some names.
REQUEST_BYTES_MAX: Final = 8 * MIB + 64 * 1024
# Before a client is known: room for a long password, little for a stranger to hold.
OPENING_BYTES_MAX: Final = 8192
# What one fetch brings. A chunk is sent whole, so that one more may come on top.
FETCH_BYTES_MAX: Final = 16 * MIB
# Segments merge small chunks to some megabytes; beyond this an answer is not from this server.
ANSWER_BYTES_MAX: Final = 256 * MIB
WAIT_MS_MAX: Final = 60_000  # a long poll; a reader that wants to wait longer asks again

END: Final = 2**64 - 1  # as the end of a fetch: as far as there is anything
UNKNOWN_OFFSET: Final = 2**64 - 1

LAST_WORD: Final = 0  # the correlation of what the server says unasked

_LENGTH: Final = struct.Struct("<I")
_REQUEST: Final = struct.Struct("<IIH")
_ANSWER: Final = struct.Struct("<IIHH")
_REQUEST_REST: Final = struct.Struct("<IH")
_ANSWER_REST: Final = struct.Struct("<IHH")
ANSWER_HEAD_BYTES: Final = _ANSWER.size
LENGTH_BYTES: Final = _LENGTH.size


class Operation(IntEnum):
    CLOSING = 0  # in a last word
    AUTHENTICATE = 1
    PING = 2
    METADATA = 16
    LIST_STREAMS = 17
    OFFSET_FOR = 18
    IDENTIFY = 19
    FETCH = 32
    APPEND = 33
    ALLOCATE_PRODUCER = 34
    JOIN = 48
    HEARTBEAT = 49
    LEAVE = 50
    COMMIT_OFFSETS = 51
    FETCH_OFFSETS = 52
    RESET_OFFSETS = 53
    LIST_GROUPS = 54
    DESCRIBE_GROUP = 55
    OPEN_TRANSACTIONS = 64
    STAGE = 65
    COMMIT = 66
    ABORT = 67


# In the text of STAGING_FULL where others have staged what could make room: they may be done, or
# be taken for dead, within a minute, so that it is worth asking again.
STAGED_BY_OTHERS: Final = "in the way are rows of others"


class Status(IntEnum):
    OK = 0
    # The connection
    MALFORMED = 1
    UNKNOWN_OPERATION = 2
    FRAME_TOO_LARGE = 3
    NOT_AUTHENTICATED = 4
    LOGIN_REFUSED = 5
    VHOST_REFUSED = 6
    TOO_MANY_CONNECTIONS = 7
    ACCESS_REFUSED = 8
    SHUTTING_DOWN = 9
    INTERNAL_ERROR = 10
    UNAVAILABLE = 11
    IDLE = 12
    # Streams
    STREAM_NOT_FOUND = 20
    PARTITION_NOT_FOUND = 21
    OFFSET_OUT_OF_RANGE = 22
    CORRUPT_CHUNK = 23
    STREAM_DAMAGED = 24
    STREAM_REPLACED = 25
    # Producers
    PRODUCER_FENCED = 30
    OUT_OF_ORDER = 31
    TOO_MANY_PRODUCERS = 32
    # Groups
    UNKNOWN_MEMBER = 40
    MEMBER_FENCED = 41
    STALE_GENERATION = 42
    NOT_ASSIGNED = 43
    OFFSET_UNSTABLE = 44
    GROUP_NOT_EMPTY = 45
    GROUP_FULL = 46
    INVALID_COMMIT = 47
    GROUP_NOT_FOUND = 48
    # Transactions
    TRANSACTION_ABORTED = 50
    TRANSACTION_FENCED = 51
    TRANSACTION_PASSED = 52
    TRANSACTION_BUSY = 53
    TOO_MANY_TRANSACTIONS = 54
    TRANSACTION_MALFORMED = 55
    STAGED_OUT_OF_ORDER = 56
    STAGING_FULL = 57


class Refused(NamedTuple):
    """An error as an answer.

    The numbers are: OFFSET_OUT_OF_RANGE: first and next offset; OUT_OF_ORDER: the sequence that is
    expected; for other codes there are none.
    """

    status: int
    text: str
    numbers: tuple[int, ...] = ()


class Request(NamedTuple):
    correlation: int
    operation: int
    body: memoryview


class Answer(NamedTuple):
    correlation: int
    operation: int
    status: int
    body: memoryview


class FrameTooLargeError(MalformedError):
    """A frame beyond the reader's limit; what follows it cannot be read."""


class FrameBuffer:
    """Bytes as they come in, taken out frame by frame. A frame is copied at most once."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._pieces: deque[memoryview] = deque()
        self._have = 0

    def feed(self, data: Buffer) -> None:
        if data:
            self._pieces.append(memoryview(data))
            self._have += len(data)

    @property
    def size_bytes(self) -> int:
        return self._have

    def take(self) -> memoryview | None:
        """The next frame without its length; None if it is not there in whole."""
        if self._have < LENGTH_BYTES:
            return None
        if len(self._pieces[0]) < LENGTH_BYTES:
            self._join(LENGTH_BYTES)
        (length,) = _LENGTH.unpack_from(self._pieces[0])
        if length > self.frame_bytes_max:
            raise FrameTooLargeError(f"a frame of {length} bytes; {self.frame_bytes_max} are taken")
        whole = LENGTH_BYTES + length
        if self._have < whole:
            return None
        if len(self._pieces[0]) < whole:
            self._join(whole)
        first = self._pieces[0]
        if len(first) == whole:
            self._pieces.popleft()
        else:
            self._pieces[0] = first[whole:]
        self._have -= whole
        return first[LENGTH_BYTES:whole]

    def _join(self, count: int) -> None:
        """Make the first piece that long at least."""
        taken = [self._pieces.popleft()]
        size = len(taken[0])
        while size < count:
            taken.append(self._pieces.popleft())
            size += len(taken[-1])
        self._pieces.appendleft(memoryview(b"".join(taken)))


def read_request(frame: memoryview) -> Request:
    if len(frame) < _REQUEST_REST.size:
        raise MalformedError("a request without correlation and operation")
    correlation, operation = _REQUEST_REST.unpack_from(frame)
    return Request(correlation, operation, frame[_REQUEST_REST.size :])


def read_answer(frame: memoryview) -> Answer:
    if len(frame) < _ANSWER_REST.size:
        raise MalformedError("an answer without correlation, operation and status")
    correlation, operation, status = _ANSWER_REST.unpack_from(frame)
    return Answer(correlation, operation, status, frame[_ANSWER_REST.size :])


def request_head(correlation: int, operation: int, body_bytes: int) -> bytes:
    return _REQUEST.pack(_REQUEST_REST.size + body_bytes, correlation, operation)


def answer_head(correlation: int, operation: int, status: int, body_bytes: int) -> bytes:
    return _ANSWER.pack(_ANSWER_REST.size + body_bytes, correlation, operation, status)


def encode_request(correlation: int, operation: int, body: Iterable[Buffer]) -> bytes:
    joined = b"".join(body)
    return request_head(correlation, operation, len(joined)) + joined


def encode_answer(correlation: int, operation: int, body: Iterable[Buffer]) -> bytes:
    joined = b"".join(body)
    return answer_head(correlation, operation, Status.OK, len(joined)) + joined


_NUMBERS: Final = list_of(U64, items_max=16)


def encode_refusal(correlation: int, operation: int, refused: Refused) -> bytes:
    pieces: list[Buffer] = []
    TEXT.write(pieces, refused.text.encode(errors="replace")[:4096].decode(errors="ignore"))
    _NUMBERS.write(pieces, refused.numbers)
    body = b"".join(pieces)
    return answer_head(correlation, operation, refused.status, len(body)) + body


def decode_refusal(answer: Answer) -> Refused:
    cursor = Cursor(answer.body)
    return Refused(answer.status, TEXT.read(cursor), _NUMBERS.read(cursor))
