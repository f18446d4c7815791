"""Streams and records, as the stream protocol asks for them, from this node's partitions."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import ABORT_MARK, COMMIT_MARK, TRANSACTIONAL, Producer, read_header
from broker.protocol.stream_errors import CorruptChunkError, OffsetOutOfRangeError, StreamError
from broker.protocol.stream_wire import UNKNOWN_OFFSET, Refused, Status
from broker.streams.group_book import Barrier, at_once
from broker.streams.host import partition_uid
from broker.streams.producer_owners import may_use
from broker.streams.service import Caller, Found, Then
from broker.vhost import VHost
from queues.stream.errors import StreamDeletedError
from queues.stream.partition import StreamPartition
from queues.stream.producers import NODE_PRODUCERS
from queues.stream.reading import Located
from queues.stream.stream import Stream
from queues.stream.verdict import Verdict

# What only the broker says of a chunk.
_OWN_FLAGS: Final = TRANSACTIONAL | COMMIT_MARK | ABORT_MARK


def find_stream(vhosts: Mapping[str, VHost], vhost: str, name: str) -> Stream | Refused:
    found = vhosts[vhost].queues.get(name) if vhost in vhosts else None
    if not isinstance(found, Stream):
        return Refused(Status.STREAM_NOT_FOUND, f"no stream '{name}' in vhost '{vhost}'")
    if found.damaged is not None:
        return Refused(Status.STREAM_DAMAGED, f"stream '{name}' is damaged: {found.damaged}")
    return found


class Records:
    """That half of a `StreamService`."""

    def __init__(
        self,
        vhosts: Mapping[str, VHost],
        settled: Callable[[str, Stream], int],
        leader_address: Callable[[bytes], str] = lambda _: "",
        definitions: Barrier = at_once,
    ) -> None:
        """`leader_address`: where a partition is led, by its uid; empty if that is here.

        `settled`: up to which decision the transactions of a vhost's stream are whole here.
        `definitions` is passed before a stream counts as another one than was meant.
        """
        self._settled = settled
        self._definitions = definitions
        self._vhosts = vhosts
        self._leader_address = leader_address

    def _stream(self, caller: Caller, name: str) -> Stream | Refused:
        return find_stream(self._vhosts, caller.vhost, name)

    def _in(self, caller: Caller, name: str, number: int) -> Stream | Refused:
        """The stream, if it has that partition."""
        found = self._stream(caller, name)
        return found if isinstance(found, Refused) else _must_have(found, number) or found

    # Streams

    def metadata(
        self, caller: Caller, request: wire.Metadata, then: Then[wire.MetadataAnswer]
    ) -> None:
        described = [self._described(caller, name) for name in request.streams]
        then(wire.MetadataAnswer(tuple(described)))

    def _described(self, caller: Caller, name: str) -> wire.StreamMetadata:
        stream = self._stream(caller, name)
        if isinstance(stream, Refused):
            return wire.StreamMetadata(name, stream.status, ())
        settled = self._settled(caller.vhost, stream)
        partitions = [
            wire.PartitionMetadata(
                *(number, each.first_offset, each.next_offset, each.whole_end(settled)),
                each.size_bytes,
                address=self._leader_address(partition_uid(stream.uid, number)),
            )
            for number, each in enumerate(stream.partitions)
        ]
        return wire.StreamMetadata(name, Status.OK, tuple(partitions))

    def identify(self, caller: Caller, request: wire.Identify, then: Then[wire.Identities]) -> None:
        def answer(error: Exception | None) -> None:
            if error is not None:
                then(_unknown_definitions(error))
                return
            found = [self._identity(caller, name) for name in request.streams]
            then(wire.Identities(tuple(found)))

        self._definitions(answer)

    def _identity(self, caller: Caller, name: str) -> wire.StreamIdentity:
        stream = self._stream(caller, name)
        if isinstance(stream, Refused):
            return wire.StreamIdentity(name, stream.status, "")
        return wire.StreamIdentity(name, Status.OK, stream.uid.hex())

    def list_streams(
        self,
        caller: Caller,
        request: wire.Empty,  # noqa: ARG002
        then: Then[wire.StreamList],
    ) -> None:
        found = [
            wire.StreamListed(name, queue.options.partitions)
            for name, queue in sorted(self._vhosts[caller.vhost].queues.items())
            if isinstance(queue, Stream)
        ]
        then(wire.StreamList(tuple(found)))

    def offset_for(
        self, caller: Caller, request: wire.OffsetFor, then: Then[wire.OffsetsFound]
    ) -> None:
        stream = self._stream(caller, request.stream)
        if isinstance(stream, Refused):
            then(stream)
            return
        if request.place not in wire.PLACES:
            then(Refused(Status.MALFORMED, f"there is no place {request.place}"))
            return
        numbers = request.partitions or tuple(range(len(stream.partitions)))
        refused = _must_have(stream, max(numbers))
        if refused is not None:
            then(refused)
        elif request.place == wire.TIMESTAMP:
            _Search(stream, numbers, then).start(request.timestamp_ms)
        else:
            then(
                _offsets({n: _edge(stream.partitions[n], request.place) for n in numbers}, numbers)
            )

    # Records

    def fetch(self, caller: Caller, request: wire.Fetch, then: Then[Found]) -> None:
        stream = self._in(caller, request.stream, request.partition)
        if isinstance(stream, Refused):
            then(stream)
        elif request.uid and request.uid != stream.uid.hex():
            self._another(caller, request, then)
        else:
            self._fetch(caller, stream, request, then)

    def _another(self, caller: Caller, request: wire.Fetch, then: Then[Found]) -> None:
        """It is not the stream that is meant, unless this node merely lags."""

        def passed(error: Exception | None) -> None:
            stream = self._in(caller, request.stream, request.partition)
            if error is not None:
                then(_unknown_definitions(error))
            elif isinstance(stream, Refused):
                then(stream)
            elif request.uid != stream.uid.hex():
                text = f"stream '{request.stream}' was deleted and declared again"
                then(Refused(Status.STREAM_REPLACED, text))
            else:
                self._fetch(caller, stream, request, then)

        self._definitions(passed)

    def _fetch(
        self, caller: Caller, stream: Stream, request: wire.Fetch, then: Then[Found]
    ) -> None:
        partition = stream.partitions[request.partition]

        def answer(located: Located | StreamError) -> None:
            if isinstance(located, StreamError):
                then(_refusal(located))
            elif stream.deleted:
                located.close()
                then(_refusal(StreamDeletedError()))
            else:
                end = partition.whole_end(self._settled(caller.vhost, stream))
                then(_found(partition, located, end))

        partition.reader.locate(request.start, request.end, request.max_bytes, answer)

    def watch(
        self, caller: Caller, partition: wire.Partition, beyond: int, wake: Callable[[], None]
    ) -> Callable[[], None]:
        stream = self._in(caller, *partition)
        if isinstance(stream, Refused):
            wake()
            return lambda: None
        return stream.watch(partition.number, beyond, wake)

    def append(self, caller: Caller, request: wire.Append, then: Then[wire.Appended]) -> None:
        stream = self._in(caller, request.stream, request.partition)
        if isinstance(stream, Refused):
            then(stream)
            return
        try:
            header = read_header(request.chunk)
            if header.flags & _OWN_FLAGS or not header.records:
                raise CorruptChunkError("a new chunk holds records, and no marks")
            if header.producer is not None and header.producer.id >= NODE_PRODUCERS:
                raise CorruptChunkError("a producer id that was not given to anybody")
            if header.producer is not None and not may_use(header.producer.id, caller):
                then(Refused(Status.ACCESS_REFUSED, "the producer id was given to another user"))
                return
            partition = stream.partitions[request.partition]
            receipt = _Appending(partition, header.producer, then)
            stream.append_chunk(request.partition, request.chunk, receipt)
        except CorruptChunkError as error:
            then(Refused(Status.CORRUPT_CHUNK, str(error)))


class _Appending:
    """Tells the client what became of its chunk."""

    __slots__ = ("_partition", "_producer", "_then")

    def __init__(
        self, partition: StreamPartition, producer: Producer | None, then: Then[wire.Appended]
    ) -> None:
        self._partition = partition
        self._producer = producer
        self._then = then

    def appended(self, verdict: Verdict, first_offset: int | None) -> None:
        match verdict:
            case Verdict.NEW | Verdict.DUPLICATE:
                offset = UNKNOWN_OFFSET if first_offset is None else first_offset
                self._then(wire.Appended(verdict is Verdict.DUPLICATE, offset))
            case Verdict.OUT_OF_ORDER:
                assert self._producer is not None
                expected = self._partition.expected_sequence(self._producer)
                text = f"sequence {self._producer.sequence} where {expected} is expected"
                self._then(Refused(Status.OUT_OF_ORDER, text, (expected,)))
            case Verdict.FENCED:
                self._then(Refused(Status.PRODUCER_FENCED, "the producer has a newer epoch"))
            case Verdict.FULL:
                text = "the partition knows too many producers"
                self._then(Refused(Status.TOO_MANY_PRODUCERS, text))

    def dropped(self) -> None:
        self._then(_refusal(StreamDeletedError()))

    def lost(self) -> None:
        self._then(Refused(Status.UNAVAILABLE, "nobody can say whether the chunk is stored"))


class _Search:
    """The offsets of a time in several partitions, answered together."""

    def __init__(
        self, stream: Stream, numbers: tuple[int, ...], then: Then[wire.OffsetsFound]
    ) -> None:
        self._stream = stream
        self._numbers = numbers
        self._then = then
        self._found: dict[int, int] = {}
        self._failure: StreamError | None = None
        self._open = 0

    def start(self, time_ms: int) -> None:
        partitions = {number: self._stream.partitions[number] for number in self._numbers}
        self._open = len(partitions)
        for number, partition in partitions.items():
            partition.reader.seek_time(time_ms, partial(self._sought, number))

    def _sought(self, number: int, offset: int | StreamError) -> None:
        if isinstance(offset, StreamError):
            self._failure = offset
        else:
            self._found[number] = offset
        self._open -= 1
        if self._open:
            return
        if self._failure is not None:
            self._then(_refusal(self._failure))
        else:
            self._then(_offsets(self._found, self._numbers))


def _unknown_definitions(error: Exception) -> Refused:
    return Refused(Status.UNAVAILABLE, f"this node may not know all streams: {error}")


def _must_have(stream: Stream, number: int) -> Refused | None:
    if number < len(stream.partitions):
        return None
    text = f"stream '{stream.name}' has {len(stream.partitions)} partitions, and no {number}"
    return Refused(Status.PARTITION_NOT_FOUND, text)


def _edge(partition: StreamPartition, place: int) -> int:
    if place == wire.FIRST:
        return partition.first_offset
    end = partition.stable_end
    return max(partition.first_offset, end - 1) if place == wire.LAST else end


def _offsets(found: Mapping[int, int], numbers: tuple[int, ...]) -> wire.OffsetsFound:
    return wire.OffsetsFound(tuple(wire.PartitionOffset(each, found[each]) for each in numbers))


def _found(partition: StreamPartition, located: Located, end: int) -> Found:
    head = wire.FetchHead(partition.first_offset, partition.next_offset, end, located.next_offset)
    return Found(head, located.pieces, located.size_bytes, located.close)


def _refusal(error: StreamError) -> Refused:
    if isinstance(error, OffsetOutOfRangeError):
        numbers = (error.first_offset, error.next_offset)
        return Refused(Status.OFFSET_OUT_OF_RANGE, str(error), numbers)
    if isinstance(error, StreamDeletedError):
        return Refused(Status.STREAM_NOT_FOUND, str(error))
    return Refused(Status.STREAM_DAMAGED, str(error))
