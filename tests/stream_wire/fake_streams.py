"""Streams in memory, or in files, behind the interface that the stream protocol asks."""

import os
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import Chunk, Header, read_header
from broker.protocol.stream_errors import CorruptChunkError
from broker.protocol.stream_wire import UNKNOWN_OFFSET, Refused, Status
from broker.streams.service import Found
from queues.storage.disk import RealFile
from queues.stream import group_errors
from queues.stream.group_records import Position
from queues.stream.groups import ConsumerGroup
from queues.stream.names import PartitionId
from queues.stream.producers import Answer, ProducerIds, ProducerTable
from queues.stream.ranges import ByteRange

GROUP_STATUS = {
    group_errors.UnknownMemberError: Status.UNKNOWN_MEMBER,
    group_errors.FencedMemberError: Status.MEMBER_FENCED,
    group_errors.StaleGenerationError: Status.STALE_GENERATION,
    group_errors.NotAssignedError: Status.NOT_ASSIGNED,
    group_errors.OffsetUnstableError: Status.OFFSET_UNSTABLE,
    group_errors.GroupNotEmptyError: Status.GROUP_NOT_EMPTY,
    group_errors.GroupFullError: Status.GROUP_FULL,
    group_errors.InvalidCommitError: Status.INVALID_COMMIT,
}


class FakePartition:
    def __init__(self, file: RealFile | None = None) -> None:
        self.chunks: list[tuple[Header, bytes]] = []
        self.ends: list[int] = []  # in the file, if there is one
        self.file = file
        self.first_offset = 0
        self.next_offset = 0
        self.producers = ProducerTable()
        self.watchers: list[tuple[int, Callable[[], None]]] = []

    def append(self, chunk: bytes) -> int:
        base = self.next_offset
        placed = Chunk.placed(chunk, read_header(chunk), base)
        header, data = placed.header, placed.encode()
        self.chunks.append((header, data))
        if self.file is not None:
            position = self.ends[-1] if self.ends else 0
            self.file.pwritev([data], position)
            self.ends.append(position + len(data))
        self.next_offset = header.end_offset
        self.wake()
        return base

    def wake(self, *, gone: bool = False) -> None:
        woken = [each for each in self.watchers if gone or each[0] < self.next_offset]
        self.watchers = [each for each in self.watchers if each not in woken]
        for _, wake in woken:
            wake()

    def find(self, start: int, end: int, max_bytes: int) -> tuple[int, int]:
        """Places of the chunks: from, to."""
        first = bisect_right(self.chunks, start, key=lambda each: each[0].end_offset)
        last, size = first, 0
        while last < len(self.chunks) and self.chunks[last][0].base_offset < end:
            size += len(self.chunks[last][1])
            if size > max_bytes and last > first:
                break
            last += 1
        return first, last


class FakeStreams:
    """A StreamService that answers at once; `later` can hold answers back."""

    def __init__(self, directory: Path | None = None) -> None:
        self.streams: dict[str, list[FakePartition]] = {}
        self.groups: dict[str, ConsumerGroup] = {}
        self.ids = ProducerIds()
        self.epochs: dict[str, int] = {}
        self.results: dict[tuple[str, int], wire.Committed] = {}
        self.staged: dict[tuple[wire.Key, wire.Partition, str], list[bytes]] = {}
        self.open_files = 0  # fetches that were not closed
        self.fetches = 0
        self.callers: set[Any] = set()
        self.held: list[Callable[[], None]] | None = None
        self._directory = directory

    # For tests

    def declare(self, name: str, partitions: int = 1) -> list[FakePartition]:
        made = [FakePartition(self._file(name, number)) for number in range(partitions)]
        self.streams[name] = made
        return made

    def delete(self, name: str) -> None:
        for partition in self.streams.pop(name):
            partition.wake(gone=True)

    def hold(self) -> None:
        """Keep answers to appends and fetches back until `release`."""
        self.held = []

    def release(self) -> None:
        held, self.held = self.held or [], None
        for answer in held:
            answer()

    def _file(self, name: str, number: int) -> RealFile | None:
        if self._directory is None:
            return None
        path = self._directory / f"{name}-{number}"
        return RealFile(os.open(path, os.O_RDWR | os.O_CREAT))

    def _later(self, answer: Callable[[], None]) -> None:
        if self.held is None:
            answer()
        else:
            self.held.append(answer)

    def _partition(self, stream: str, number: int) -> FakePartition | Refused:
        partitions = self.streams.get(stream)
        if partitions is None:
            return Refused(Status.STREAM_NOT_FOUND, f"no stream {stream!r}")
        if number >= len(partitions):
            return Refused(Status.PARTITION_NOT_FOUND, f"{stream!r} has {len(partitions)}")
        return partitions[number]

    # Streams

    def metadata(self, caller, request, then):
        self.callers.add(caller)
        then(wire.MetadataAnswer(tuple(self._describe(name) for name in request.streams)))

    def _describe(self, name: str) -> wire.StreamMetadata:
        if name not in self.streams:
            return wire.StreamMetadata(name, Status.STREAM_NOT_FOUND, ())
        partitions = tuple(
            wire.PartitionMetadata(
                number,
                each.first_offset,
                each.next_offset,
                each.next_offset,
                sum(len(data) for _, data in each.chunks),
                "",
            )
            for number, each in enumerate(self.streams[name])
        )
        return wire.StreamMetadata(name, Status.OK, partitions)

    def identify(self, caller, request, then):
        found = [
            wire.StreamIdentity(name, Status.OK, f"uid of {name}")
            if name in self.streams
            else wire.StreamIdentity(name, Status.STREAM_NOT_FOUND, "")
            for name in request.streams
        ]
        then(wire.Identities(tuple(found)))

    def list_streams(self, caller, request, then):
        listed = [wire.StreamListed(name, len(each)) for name, each in sorted(self.streams.items())]
        then(wire.StreamList(tuple(listed)))

    def offset_for(self, caller, request, then):
        if request.stream not in self.streams:
            then(Refused(Status.STREAM_NOT_FOUND, request.stream))
            return
        partitions = self.streams[request.stream]
        numbers = request.partitions or range(len(partitions))
        found = [
            wire.PartitionOffset(number, self._place(partitions[number], request))
            for number in numbers
        ]
        then(wire.OffsetsFound(tuple(found)))

    def _place(self, partition: FakePartition, request: wire.OffsetFor) -> int:
        if request.place == wire.FIRST:
            return partition.first_offset
        if request.place == wire.LAST:
            return max(partition.first_offset, partition.next_offset - 1)
        if request.place == wire.TIMESTAMP:
            for _, data in partition.chunks:
                for record in Chunk(data):
                    if record.timestamp_ms >= request.timestamp_ms:
                        return record.offset
        return partition.next_offset

    # Records

    def fetch(self, caller, request, then):
        self.fetches += 1
        self._later(lambda: then(self._find(request)))

    def _find(self, request: wire.Fetch) -> Found | Refused:
        partition = self._partition(request.stream, request.partition)
        if isinstance(partition, Refused):
            return partition
        bounds = (partition.first_offset, partition.next_offset)
        if not bounds[0] <= request.start <= bounds[1]:
            return Refused(Status.OFFSET_OUT_OF_RANGE, "out of range", bounds)
        first, last = partition.find(request.start, request.end, request.max_bytes)
        chosen = partition.chunks[first:last]
        resume = chosen[-1][0].end_offset if chosen else request.start
        pieces: list[Any] = [memoryview(data) for _, data in chosen]
        if partition.file is not None and chosen:
            start = partition.ends[first - 1] if first else 0
            pieces = [ByteRange(partition.file, start, partition.ends[last - 1] - start)]
        size = sum(header.size_bytes for header, _ in chosen)
        self.open_files += 1
        head = wire.FetchHead(*bounds, partition.next_offset, resume)
        return Found(head, pieces, size, self._closed)

    def _closed(self) -> None:
        self.open_files -= 1

    def watch(self, caller, partition, beyond, wake):
        found = self._partition(*partition)
        if isinstance(found, Refused) or found.next_offset > beyond:
            wake()
            return lambda: None
        entry = (beyond, wake)
        found.watchers.append(entry)

        def unwatch():
            if entry in found.watchers:
                found.watchers.remove(entry)

        return unwatch

    @property
    def watchers(self) -> int:
        return sum(len(each.watchers) for found in self.streams.values() for each in found)

    def append(self, caller, request, then):
        self._later(lambda: then(self._append(request)))

    def _append(self, request: wire.Append) -> wire.Appended | Refused:
        partition = self._partition(request.stream, request.partition)
        if isinstance(partition, Refused):
            return partition
        try:
            chunk = Chunk(request.chunk)
            chunk.check()
        except CorruptChunkError as error:
            return Refused(Status.CORRUPT_CHUNK, str(error))
        producer = chunk.header.producer
        if producer is not None:
            verdict = partition.producers.apply(
                *producer, len(chunk), offset=partition.next_offset, at_ms=0
            )
            if verdict.answer is Answer.DUPLICATE:
                known = verdict.offset
                return wire.Appended(True, UNKNOWN_OFFSET if known is None else known)
            if verdict.answer is Answer.FENCED:
                return Refused(Status.PRODUCER_FENCED, "a newer epoch is known")
            if verdict.answer is Answer.OUT_OF_ORDER:
                return Refused(Status.OUT_OF_ORDER, "chunks are missing", (verdict.expected,))
        return wire.Appended(False, partition.append(request.chunk))

    def allocate_producer(self, caller, request, then):
        given = self.ids.allocate(request.name, 0)
        then(wire.ProducerAllocated(given.pid, given.epoch))

    # Groups

    def _group(self, name: str) -> ConsumerGroup:
        if name not in self.groups:
            self.groups[name] = ConsumerGroup(name)
        group = self.groups[name]
        for stream, partitions in self.streams.items():
            group.set_partitions(stream, len(partitions), 0)
        return group

    def _of_group(self, then: Any, name: str, call: Callable[[ConsumerGroup], Any]) -> None:
        try:
            answer = call(self._group(name))
        except group_errors.GroupError as error:
            answer = Refused(GROUP_STATUS[type(error)], str(error))
        then(answer)

    def join(self, caller, request, then):
        def call(group):
            return told(
                group.join(
                    request.label,
                    set(request.streams),
                    0,
                    member=request.member,
                    instance=request.instance,
                )
            )

        self._of_group(then, request.group, call)

    def heartbeat(self, caller, request, then):
        released = [PartitionId(*each) for each in request.released]
        self._of_group(
            then,
            request.group,
            lambda group: told(
                group.heartbeat(request.member, request.generation, 0, released=released)
            ),
        )

    def leave(self, caller, request, then):
        self._of_group(
            then, request.group, lambda group: group.leave(request.member, 0) or wire.Empty()
        )

    def commit_offsets(self, caller, request, then):
        self._of_group(
            then,
            request.group,
            lambda group: (
                group.commit(request.member, request.generation, positions(request.positions), 0)
                or wire.Empty()
            ),
        )

    def fetch_offsets(self, caller, request, then):
        self._of_group(then, request.group, lambda group: committed(group, request.partitions))

    def reset_offsets(self, caller, request, then):
        self._of_group(
            then,
            request.group,
            lambda group: group.reset(positions(request.positions), 0) or wire.Empty(),
        )

    def list_groups(self, caller, request, then):
        listed = [
            wire.GroupListed(name, each.generation, len(each.members()))
            for name, each in sorted(self.groups.items())
        ]
        then(wire.GroupList(tuple(listed)))

    def describe_group(self, caller, request, then):
        if request.group not in self.groups:
            then(Refused(Status.GROUP_NOT_FOUND, request.group))
            return
        group = self.groups[request.group]
        members = [
            wire.MemberDescription(
                each.member,
                each.instance,
                tuple(sorted(each.streams)),
                partitions(each.assigned),
                partitions(each.leaving),
            )
            for each in group.members()
        ]
        offsets = [
            wire.OffsetDescription(each, self.streams[each.partition.stream][0].next_offset)
            for each in committed(group, ()).offsets
        ]
        then(wire.GroupDescription(group.generation, tuple(members), tuple(offsets)))

    # Transactions

    def open_transactions(self, caller, request, then):
        self.epochs[request.producer] = epoch = self.epochs.get(request.producer, 0) + 1
        last = max((s for name, s in self.results if name == request.producer), default=-1)
        then(wire.TransactionsOpened(epoch, last))

    def stage(self, caller, request, then):
        key = (request.key, wire.Partition(request.stream, request.partition), request.writer)
        chunks = self.staged.setdefault(key, [])
        if request.number > len(chunks):
            then(Refused(Status.STAGED_OUT_OF_ORDER, "a chunk before it is missing"))
            return
        if request.number == len(chunks):
            chunks.append(request.chunk)
            then(wire.Staged(False))
        else:
            then(wire.Staged(True))

    def commit(self, caller, request, then):
        key = request.key
        known = self.results.get((key.producer, key.sequence))
        if known is not None:
            then(known)
        elif self.epochs.get(key.producer) != key.epoch:
            then(Refused(Status.TRANSACTION_FENCED, "another epoch is the current one"))
        else:
            then(self._commit(request))

    def _commit(self, request: wire.Commit) -> wire.Committed | Refused:
        found: list[tuple[FakePartition, bytes]] = []
        rows = 0
        for (stream, number), writers in request.partitions:
            for writer in writers:
                key = (request.key, wire.Partition(stream, number), writer.writer)
                chunks = self.staged.get(key, [])
                if sum(read_header(chunk).records for chunk in chunks) != writer.rows:
                    return Refused(Status.TRANSACTION_ABORTED, "staged rows are missing")
                found += [(self.streams[stream][number], chunk) for chunk in chunks]
                rows += writer.rows
        for part in request.groups:
            group = self._group(part.group)
            if part.member:
                group.commit(part.member, part.generation, positions(part.positions), 0)
            else:
                group.reset(positions(part.positions), 0)
        for partition, chunk in found:
            partition.append(chunk)
        outcome = wire.Committed(len(self.results) + 1, rows)
        self.results[request.key.producer, request.key.sequence] = outcome
        return outcome

    def abort(self, caller, request, then):
        self.staged = {key: each for key, each in self.staged.items() if key[0] != request.key}
        then(wire.Empty())


def told(assignment: Any) -> wire.Assignment:
    return wire.Assignment(
        assignment.member,
        assignment.generation,
        partitions(assignment.assigned),
        partitions(assignment.leaving),
    )


def partitions(found: Any) -> tuple[wire.Partition, ...]:
    return tuple(wire.Partition(*each) for each in sorted(found))


def positions(found: tuple[wire.Position, ...]) -> dict[PartitionId, Position]:
    return {PartitionId(*each.partition): Position(each.offset, each.metadata) for each in found}


def committed(group: ConsumerGroup, asked: tuple[wire.Partition, ...]) -> wire.CommittedOffsets:
    names = [PartitionId(*each) for each in asked] or sorted(group.offsets)
    found = [(name, group.committed(name)) for name in names]
    return wire.CommittedOffsets(
        tuple(
            wire.CommittedOffset(wire.Partition(*name), each.offset, each.metadata, each.at_ms)
            for name, each in found
            if each is not None
        )
    )
