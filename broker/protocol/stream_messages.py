"""What the requests of the stream protocol and their answers say, field by field.

A message is a NamedTuple; `_LAYOUTS` tells how its fields stand in a body, in their order.
docs/stream-protocol.md is the same for those who write a client.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from broker.protocol.stream_fields import (
    BLOB,
    FLAG,
    I64,
    LAST_TEXT,
    REST,
    TEXT,
    U8,
    U16,
    U32,
    U64,
    Buffer,
    Cursor,
    Field,
    MalformedError,
    list_of,
    record,
)
from broker.protocol.stream_wire import Operation

# Most streams of one metadata request: each may have many partitions in the answer.
STREAMS_MAX: Final = 1000

M = TypeVar("M")


class Empty(NamedTuple):
    """A request or answer that says nothing more."""


# The connection


class Authenticate(NamedTuple):
    mechanism: str  # PLAIN
    response: bytes
    vhost: str
    client: str  # a name for the log; may be empty


class Authenticated(NamedTuple):
    node: str
    request_bytes_max: int
    requests_max: int  # in flight
    idle_ms: int  # silence after which the server closes; 0: it does not


# Streams


class Partition(NamedTuple):
    stream: str
    number: int


class Metadata(NamedTuple):
    streams: tuple[str, ...]


class PartitionMetadata(NamedTuple):
    number: int
    first_offset: int
    next_offset: int
    stable_offset: int  # up to here every transaction is whole in all its partitions
    size_bytes: int
    address: str  # host:port of the node to ask; empty: this one


class StreamMetadata(NamedTuple):
    stream: str
    status: int
    partitions: tuple[PartitionMetadata, ...]  # none with a status other than OK


class MetadataAnswer(NamedTuple):
    streams: tuple[StreamMetadata, ...]


class Identify(NamedTuple):
    streams: tuple[str, ...]


class StreamIdentity(NamedTuple):
    """Of a name there may be one stream after the other; each has a uid of its own."""

    stream: str
    status: int
    uid: str  # empty with a status other than OK


class Identities(NamedTuple):
    streams: tuple[StreamIdentity, ...]


class StreamListed(NamedTuple):
    stream: str
    partitions: int


class StreamList(NamedTuple):
    streams: tuple[StreamListed, ...]


FIRST: Final = 0  # of OffsetFor.place
LAST: Final = 1  # of the last record; the next offset if there is none
NEXT: Final = 2
TIMESTAMP: Final = 3  # of the first record of that time or later; the next offset if none is
PLACES: Final = frozenset({FIRST, LAST, NEXT, TIMESTAMP})


class OffsetFor(NamedTuple):
    stream: str
    place: int
    timestamp_ms: int
    partitions: tuple[int, ...]  # none: all


class PartitionOffset(NamedTuple):
    partition: int
    offset: int


class OffsetsFound(NamedTuple):
    offsets: tuple[PartitionOffset, ...]


# Records


class Fetch(NamedTuple):
    stream: str
    partition: int
    start: int
    end: int  # stream_wire.END: no end
    max_bytes: int
    min_bytes: int  # wait until there is so much …
    wait_ms: int  # … or this time is over
    uid: str = ""  # of the stream that is meant; empty: whichever has the name


class FetchHead(NamedTuple):
    """In front of the chunks; 32 bytes, so that these are aligned as they should be."""

    first_offset: int
    next_offset: int
    stable_offset: int
    resume_offset: int  # where to read on


class Append(NamedTuple):
    stream: str
    partition: int
    chunk: bytes


class Appended(NamedTuple):
    duplicate: bool
    offset: int  # stream_wire.UNKNOWN_OFFSET for a duplicate of long ago


class AllocateProducer(NamedTuple):
    name: str  # may be empty: a number that nobody else gets


class ProducerAllocated(NamedTuple):
    producer_id: int
    epoch: int


# Groups


class Join(NamedTuple):
    group: str
    label: str
    member: str  # empty: become one
    instance: str  # may be empty
    streams: tuple[str, ...]


class Heartbeat(NamedTuple):
    group: str
    member: str
    generation: int
    released: tuple[Partition, ...]


class Assignment(NamedTuple):
    member: str
    generation: int
    assigned: tuple[Partition, ...]
    leaving: tuple[Partition, ...]


class Leave(NamedTuple):
    group: str
    member: str


class Position(NamedTuple):
    partition: Partition
    offset: int
    metadata: str = ""


class CommitOffsets(NamedTuple):
    group: str
    member: str
    generation: int
    positions: tuple[Position, ...]


class FetchOffsets(NamedTuple):
    group: str
    partitions: tuple[Partition, ...]  # none: all that are committed


class CommittedOffset(NamedTuple):
    partition: Partition
    offset: int
    metadata: str
    at_ms: int


class CommittedOffsets(NamedTuple):
    offsets: tuple[CommittedOffset, ...]  # nothing for what was never committed


class ResetOffsets(NamedTuple):
    group: str
    positions: tuple[Position, ...]


class GroupListed(NamedTuple):
    group: str
    generation: int
    members: int


class GroupList(NamedTuple):
    groups: tuple[GroupListed, ...]


class DescribeGroup(NamedTuple):
    group: str


class MemberDescription(NamedTuple):
    member: str
    instance: str
    streams: tuple[str, ...]
    assigned: tuple[Partition, ...]
    leaving: tuple[Partition, ...]


class OffsetDescription(NamedTuple):
    committed: CommittedOffset
    next_offset: int  # of the partition; the lag is the difference


class GroupDescription(NamedTuple):
    generation: int
    members: tuple[MemberDescription, ...]
    offsets: tuple[OffsetDescription, ...]


# Transactions


class OpenTransactions(NamedTuple):
    producer: str


class TransactionsOpened(NamedTuple):
    epoch: int
    last: int  # the last sequence that was committed; -1 if none


class Key(NamedTuple):
    producer: str
    epoch: int
    sequence: int


class Stage(NamedTuple):
    key: Key
    stream: str
    partition: int
    writer: str
    number: int  # of the writer's chunk, from 0
    chunk: bytes


class Staged(NamedTuple):
    duplicate: bool


class WriterRows(NamedTuple):
    writer: str
    rows: int


class PartitionPart(NamedTuple):
    partition: Partition
    writers: tuple[WriterRows, ...]


class GroupPart(NamedTuple):
    group: str
    member: str  # empty: the group has no members
    generation: int
    positions: tuple[Position, ...]


class Commit(NamedTuple):
    key: Key
    partitions: tuple[PartitionPart, ...]
    groups: tuple[GroupPart, ...]


class Committed(NamedTuple):
    number: int
    rows: int


class Abort(NamedTuple):
    key: Key
    partitions: tuple[PartitionPart, ...]
    groups: tuple[GroupPart, ...]


_PARTITION: Final = record(Partition, TEXT, U32)
_PARTITIONS: Final = list_of(_PARTITION)
_POSITIONS: Final = list_of(record(Position, _PARTITION, U64, TEXT))
_COMMITTED: Final = record(CommittedOffset, _PARTITION, U64, TEXT, I64)
_KEY: Final = record(Key, TEXT, U32, U64)
_NAMES: Final = list_of(TEXT, STREAMS_MAX)
_PARTITION_PARTS: Final = list_of(
    record(PartitionPart, _PARTITION, list_of(record(WriterRows, TEXT, U64)))
)
_GROUP_PARTS: Final = list_of(record(GroupPart, TEXT, TEXT, U64, _POSITIONS))
_PARTITION_METADATA: Final = record(PartitionMetadata, U32, U64, U64, U64, U64, TEXT)
_MEMBER: Final = record(MemberDescription, TEXT, TEXT, list_of(TEXT), _PARTITIONS, _PARTITIONS)

_LAYOUTS: Final[dict[type, tuple[Field[Any], ...]]] = {
    Empty: (),
    Authenticate: (TEXT, BLOB, TEXT, TEXT),
    Authenticated: (TEXT, U32, U32, U32),
    Metadata: (_NAMES,),
    MetadataAnswer: (list_of(record(StreamMetadata, TEXT, U16, list_of(_PARTITION_METADATA))),),
    Identify: (_NAMES,),
    Identities: (list_of(record(StreamIdentity, TEXT, U16, TEXT)),),
    StreamList: (list_of(record(StreamListed, TEXT, U32)),),
    OffsetFor: (TEXT, U8, I64, list_of(U32)),
    OffsetsFound: (list_of(record(PartitionOffset, U32, U64)),),
    Fetch: (TEXT, U32, U64, U64, U32, U32, U32, LAST_TEXT),
    FetchHead: (U64, U64, U64, U64),
    Append: (TEXT, U32, REST),
    Appended: (FLAG, U64),
    AllocateProducer: (TEXT,),
    ProducerAllocated: (U64, U16),
    Join: (TEXT, TEXT, TEXT, TEXT, _NAMES),
    Heartbeat: (TEXT, TEXT, U64, _PARTITIONS),
    Assignment: (TEXT, U64, _PARTITIONS, _PARTITIONS),
    Leave: (TEXT, TEXT),
    CommitOffsets: (TEXT, TEXT, U64, _POSITIONS),
    FetchOffsets: (TEXT, _PARTITIONS),
    CommittedOffsets: (list_of(_COMMITTED),),
    ResetOffsets: (TEXT, _POSITIONS),
    GroupList: (list_of(record(GroupListed, TEXT, U64, U32)),),
    DescribeGroup: (TEXT,),
    GroupDescription: (
        U64,
        list_of(_MEMBER),
        list_of(record(OffsetDescription, _COMMITTED, U64)),
    ),
    OpenTransactions: (TEXT,),
    TransactionsOpened: (U32, I64),
    Stage: (_KEY, TEXT, U32, TEXT, U32, REST),
    Staged: (FLAG,),
    Commit: (_KEY, _PARTITION_PARTS, _GROUP_PARTS),
    Committed: (U64, U64),
    Abort: (_KEY, _PARTITION_PARTS, _GROUP_PARTS),
}

# What is asked and what is answered. The answer to FETCH is the head alone; chunks follow.
MESSAGES: Final[dict[Operation, tuple[type, type]]] = {
    Operation.AUTHENTICATE: (Authenticate, Authenticated),
    Operation.PING: (Empty, Empty),
    Operation.METADATA: (Metadata, MetadataAnswer),
    Operation.LIST_STREAMS: (Empty, StreamList),
    Operation.IDENTIFY: (Identify, Identities),
    Operation.OFFSET_FOR: (OffsetFor, OffsetsFound),
    Operation.FETCH: (Fetch, FetchHead),
    Operation.APPEND: (Append, Appended),
    Operation.ALLOCATE_PRODUCER: (AllocateProducer, ProducerAllocated),
    Operation.JOIN: (Join, Assignment),
    Operation.HEARTBEAT: (Heartbeat, Assignment),
    Operation.LEAVE: (Leave, Empty),
    Operation.COMMIT_OFFSETS: (CommitOffsets, Empty),
    Operation.FETCH_OFFSETS: (FetchOffsets, CommittedOffsets),
    Operation.RESET_OFFSETS: (ResetOffsets, Empty),
    Operation.LIST_GROUPS: (Empty, GroupList),
    Operation.DESCRIBE_GROUP: (DescribeGroup, GroupDescription),
    Operation.OPEN_TRANSACTIONS: (OpenTransactions, TransactionsOpened),
    Operation.STAGE: (Stage, Staged),
    Operation.COMMIT: (Commit, Committed),
    Operation.ABORT: (Abort, Empty),
}

FETCH_HEAD_BYTES: Final = 32


def encode_body(message: tuple[Any, ...]) -> list[Buffer]:
    """The pieces of a body. Raises MalformedError for what has no place in one."""
    pieces: list[Buffer] = []
    for field, value in zip(_LAYOUTS[type(message)], message, strict=True):
        field.write(pieces, value)
    return pieces


def decode_body(kind: Callable[..., M], body: Buffer) -> M:
    """Raises MalformedError unless this is such a message and nothing else."""
    cursor = Cursor(body)
    message = decode_front(kind, cursor)
    if cursor.left:
        raise MalformedError(f"{cursor.left} bytes behind the message")
    return message


def decode_front(kind: Callable[..., M], cursor: Cursor) -> M:
    """The message at the cursor, whatever is behind it."""
    layout = _LAYOUTS[kind]  # type: ignore[index]
    return kind(*[field.read(cursor) for field in layout])
