"""What the stream protocol asks of the node's streams.

Requests and answers are those of the wire (broker.protocol.stream_messages). Every call is decided
in the loop's thread and answered once through `then`, there too, at once or later; whoever answers
later need not flush anything. Who calls has been let in: permissions were checked. Names of streams
and groups are those of the caller's vhost. Names of producers belong to the vhost and the user, so
that no user fences another's.

A `Refused` has one of the statuses of broker.protocol.stream_wire that the method names. Any method
about a stream may answer STREAM_NOT_FOUND, PARTITION_NOT_FOUND, STREAM_DAMAGED, and UNAVAILABLE if
another node has to be asked or nobody can answer now.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Refused
from queues.stream.ranges import ByteRange

T = TypeVar("T")
Then: TypeAlias = Callable[[T | Refused], None]


class Caller(NamedTuple):
    """On whose behalf."""

    vhost: str
    user: str


class Found(NamedTuple):
    """Whole chunks, to be sent as they are; the one that covers the start is the first.

    None if there is nothing to read yet; at least one otherwise, even beyond `max_bytes`. `close`
    lets the files go; it is called exactly once in any case.
    """

    head: wire.FetchHead
    pieces: list[ByteRange | memoryview]
    size_bytes: int
    close: Callable[[], None]


class StreamService(Protocol):
    # Streams

    def metadata(
        self, caller: Caller, request: wire.Metadata, then: Then[wire.MetadataAnswer]
    ) -> None:
        """Each stream that was asked for, in that order; what is wrong with one is its status."""
        ...

    def identify(self, caller: Caller, request: wire.Identify, then: Then[wire.Identities]) -> None:
        """As `metadata`: which stream has each name now."""
        ...

    def list_streams(
        self, caller: Caller, request: wire.Empty, then: Then[wire.StreamList]
    ) -> None:
        """All streams of the vhost, by name."""
        ...

    def offset_for(
        self, caller: Caller, request: wire.OffsetFor, then: Then[wire.OffsetsFound]
    ) -> None:
        """In the order of the partitions asked for; of all partitions if none is."""
        ...

    # Records

    def fetch(self, caller: Caller, request: wire.Fetch, then: Then[Found]) -> None:
        """What is there now; whoever wants to wait watches. `max_bytes` is within the limits.

        OFFSET_OUT_OF_RANGE with the first and the next offset, unless first ≤ start ≤ next.
        """
        ...

    def watch(
        self, caller: Caller, partition: wire.Partition, beyond: int, wake: Callable[[], None]
    ) -> Callable[[], None]:
        """Wake once, at once or when the next offset is above `beyond` or the stream is gone.

        The answer ends the watch; it may be called at any time, also after the wake.
        """
        ...

    def append(self, caller: Caller, request: wire.Append, then: Then[wire.Appended]) -> None:
        """A chunk as its producer made it; answered when it is durable.

        CORRUPT_CHUNK, PRODUCER_FENCED, OUT_OF_ORDER with the sequence expected, TOO_MANY_PRODUCERS.
        """
        ...

    def allocate_producer(
        self, caller: Caller, request: wire.AllocateProducer, then: Then[wire.ProducerAllocated]
    ) -> None:
        """A new number; for a known name the same with the next epoch. TOO_MANY_PRODUCERS."""
        ...

    # Groups. Statuses 40 to 48 are the errors of queues.stream.group_errors.

    def join(self, caller: Caller, request: wire.Join, then: Then[wire.Assignment]) -> None: ...

    def heartbeat(
        self, caller: Caller, request: wire.Heartbeat, then: Then[wire.Assignment]
    ) -> None: ...

    def leave(self, caller: Caller, request: wire.Leave, then: Then[wire.Empty]) -> None: ...

    def commit_offsets(
        self, caller: Caller, request: wire.CommitOffsets, then: Then[wire.Empty]
    ) -> None: ...

    def fetch_offsets(
        self, caller: Caller, request: wire.FetchOffsets, then: Then[wire.CommittedOffsets]
    ) -> None:
        """A group that is not known has committed nothing."""
        ...

    def reset_offsets(
        self, caller: Caller, request: wire.ResetOffsets, then: Then[wire.Empty]
    ) -> None:
        """Makes the group if it is not there."""
        ...

    def list_groups(self, caller: Caller, request: wire.Empty, then: Then[wire.GroupList]) -> None:
        """All groups of the vhost, by name."""
        ...

    def describe_group(
        self, caller: Caller, request: wire.DescribeGroup, then: Then[wire.GroupDescription]
    ) -> None: ...

    # Transactions. Statuses 50 to 57 are the refusals and outcomes of queues.stream.

    def open_transactions(
        self, caller: Caller, request: wire.OpenTransactions, then: Then[wire.TransactionsOpened]
    ) -> None:
        """A new epoch: older ones are fenced, what they have not decided is aborted."""
        ...

    def stage(self, caller: Caller, request: wire.Stage, then: Then[wire.Staged]) -> None: ...

    def commit(self, caller: Caller, request: wire.Commit, then: Then[wire.Committed]) -> None:
        """Answered when it is durable and visible; TRANSACTION_ABORTED says why in its text."""
        ...

    def abort(self, caller: Caller, request: wire.Abort, then: Then[wire.Empty]) -> None: ...
