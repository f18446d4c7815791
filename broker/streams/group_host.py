"""Consumer groups as the stream protocol asks for them: each vhost has its own, AMQP's too."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from broker.node import Node
from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Refused, Status
from broker.streams.group_book import GroupBook
from broker.streams.service import Caller, Then
from broker.vhost import VHost
from queues.stream import group_errors
from queues.stream.group_records import Committed, Position
from queues.stream.groups import Assignment, ConsumerGroup
from queues.stream.names import PartitionId

GROUP_STATUS: Final[Mapping[type[group_errors.GroupError], Status]] = {
    group_errors.UnknownMemberError: Status.UNKNOWN_MEMBER,
    group_errors.FencedMemberError: Status.MEMBER_FENCED,
    group_errors.StaleGenerationError: Status.STALE_GENERATION,
    group_errors.NotAssignedError: Status.NOT_ASSIGNED,
    group_errors.OffsetUnstableError: Status.OFFSET_UNSTABLE,
    group_errors.GroupNotEmptyError: Status.GROUP_NOT_EMPTY,
    group_errors.GroupFullError: Status.GROUP_FULL,
    group_errors.InvalidCommitError: Status.INVALID_COMMIT,
}

_GONE: Final = Refused(Status.VHOST_REFUSED, "the vhost was deleted")
_MOVED: Final = Refused(Status.UNAVAILABLE, "another node has the groups of this vhost now")

T = TypeVar("T")


class GroupHost:
    """The half of `StreamService` that is about groups. For the loop's thread."""

    def __init__(self, node: Node, *, replicated: bool = False) -> None:
        self._timers = node.timers
        self._replicated = replicated
        self._started = False
        self.books: dict[str, GroupBook] = {}
        for vhost in node.vhosts.values():
            self.attach(vhost)

    def attach(self, vhost: VHost) -> None:
        book = GroupBook(vhost, self._timers, replicated=self._replicated)
        vhost.groups = self.books[vhost.name] = book
        if self._started:
            book.start()

    def detach(self, vhost: VHost) -> None:
        vhost.groups = None
        self.books.pop(vhost.name).close()

    def start(self) -> None:
        """Read the groups back, once streams can be read."""
        self._started = True
        for book in self.books.values():
            book.start()

    # Members

    def join(self, caller: Caller, request: wire.Join, then: Then[wire.Assignment]) -> None:
        def call(book: GroupBook) -> wire.Assignment | Refused:
            for stream in request.streams:
                if book.partition(PartitionId(stream, 0)) is None:
                    return Refused(Status.STREAM_NOT_FOUND, f"no stream '{stream}'")
            group = book.group(request.group)
            book.subscribed(group, request.streams)
            return _told(
                group.join(
                    request.label,
                    frozenset(request.streams),
                    self._timers.now_ms(),
                    member=request.member,
                    instance=request.instance,
                )
            )

        self._change(caller, request.group, call, then)

    def heartbeat(
        self, caller: Caller, request: wire.Heartbeat, then: Then[wire.Assignment]
    ) -> None:
        released = [PartitionId(*each) for each in request.released]

        def call(book: GroupBook) -> wire.Assignment:
            group = _known(book, request.group, request.member)
            now_ms = self._timers.now_ms()
            told = group.heartbeat(request.member, request.generation, now_ms, released=released)
            return _told(told)

        self._change(caller, request.group, call, then)

    def leave(self, caller: Caller, request: wire.Leave, then: Then[wire.Empty]) -> None:
        def call(book: GroupBook) -> wire.Empty:
            group = _known(book, request.group, request.member)
            group.leave(request.member, self._timers.now_ms())
            return wire.Empty()

        self._change(caller, request.group, call, then)

    # Offsets

    def commit_offsets(
        self, caller: Caller, request: wire.CommitOffsets, then: Then[wire.Empty]
    ) -> None:
        def call(book: GroupBook) -> wire.Empty | Refused:
            group = _known(book, request.group, request.member)
            positions = positions_of(request.positions)
            for name in positions:
                if book.partition(name) is None:  # asked before its stream was deleted
                    return Refused(Status.PARTITION_NOT_FOUND, f"no partition {name}")
            group.commit(request.member, request.generation, positions, self._timers.now_ms())
            return wire.Empty()

        self._change(caller, request.group, call, then)

    def fetch_offsets(
        self, caller: Caller, request: wire.FetchOffsets, then: Then[wire.CommittedOffsets]
    ) -> None:
        def call(book: GroupBook) -> wire.CommittedOffsets:
            group = book.groups.get(request.group)
            if group is None:
                return wire.CommittedOffsets(())
            asked = [PartitionId(*each) for each in request.partitions] or sorted(group.offsets)
            found = [(name, group.committed(name)) for name in asked]
            return wire.CommittedOffsets(
                tuple(_committed(name, each) for name, each in found if each is not None)
            )

        self._look(caller, request.group, call, then)

    def reset_offsets(
        self, caller: Caller, request: wire.ResetOffsets, then: Then[wire.Empty]
    ) -> None:
        def call(book: GroupBook) -> wire.Empty | Refused:
            positions = positions_of(request.positions)
            for name in positions:
                if book.partition(name) is None:
                    return Refused(Status.PARTITION_NOT_FOUND, f"no partition {name}")
            book.group(request.group).reset(positions, self._timers.now_ms())
            return wire.Empty()

        self._change(caller, request.group, call, then)

    # Those who look on

    def list_groups(
        self,
        caller: Caller,
        request: wire.Empty,  # noqa: ARG002 - as every operation
        then: Then[wire.GroupList],
    ) -> None:
        def call(book: GroupBook) -> wire.GroupList:
            listed = [
                wire.GroupListed(name, group.generation, len(group.members()))
                for name, group in sorted(book.groups.items())
            ]
            return wire.GroupList(tuple(listed))

        self._look(caller, None, call, then)

    def describe_group(
        self, caller: Caller, request: wire.DescribeGroup, then: Then[wire.GroupDescription]
    ) -> None:
        def call(book: GroupBook) -> wire.GroupDescription | Refused:
            group = book.groups.get(request.group)
            if group is None:
                return Refused(Status.GROUP_NOT_FOUND, f"no group '{request.group}'")
            return _description(book, group)

        self._look(caller, request.group, call, then)

    # Within

    def _look(
        self,
        caller: Caller,
        group: str | None,
        call: Callable[[GroupBook], T | Refused],
        then: Then[T],
    ) -> None:
        """The same without a change: what is answered is not older than the question."""
        book = self.books.get(caller.vhost)
        if book is None:
            then(_GONE)
            return

        def passed(error: Exception | None) -> None:
            if error is not None:
                then(_MOVED)
            else:
                self._change(caller, group, call, then)

        if book.barrier is None:
            passed(None)
        else:
            book.barrier(passed)

    def _change(
        self,
        caller: Caller,
        group: str | None,
        call: Callable[[GroupBook], T | Refused],
        then: Then[T],
    ) -> None:
        """Decide; answer when everything that the answer tells of is durable."""
        book = self.books.get(caller.vhost)
        if book is None:
            then(_GONE)
            return
        if not book.leads:
            then(_MOVED)
            return

        def act() -> None:
            if not book.leads:
                then(_MOVED)
                return
            if book.trouble is not None:
                then(Refused(Status.STREAM_DAMAGED, book.trouble))
                return
            try:
                answer = call(book)
            except group_errors.GroupError as error:
                answer = Refused(GROUP_STATUS[type(error)], str(error))
            found = book.groups.get(group) if group is not None else None
            if found is None:
                then(answer)
            else:
                book.changed(found, lambda: then(answer), lambda: then(_MOVED))

        book.when_ready(act)


def _known(book: GroupBook, group: str, member: str) -> ConsumerGroup:
    found = book.groups.get(group)
    if found is None:
        raise group_errors.UnknownMemberError(f"no member {member} in group {group}")
    return found


def positions_of(positions: Iterable[wire.Position]) -> dict[PartitionId, Position]:
    return {
        PartitionId(*each.partition): Position(each.offset, each.metadata) for each in positions
    }


def _partitions(found: Iterable[PartitionId]) -> tuple[wire.Partition, ...]:
    return tuple(wire.Partition(*each) for each in sorted(found))


def _told(told: Assignment) -> wire.Assignment:
    assigned, leaving = _partitions(told.assigned), _partitions(told.leaving)
    return wire.Assignment(told.member, told.generation, assigned, leaving)


def _committed(name: PartitionId, found: Committed) -> wire.CommittedOffset:
    partition = wire.Partition(*name)
    return wire.CommittedOffset(partition, found.offset, found.metadata, found.at_ms)


def _description(book: GroupBook, group: ConsumerGroup) -> wire.GroupDescription:
    members = [
        wire.MemberDescription(
            each.member,
            each.instance,
            tuple(sorted(each.streams)),
            _partitions(each.assigned),
            _partitions(each.leaving),
        )
        for each in group.members()
    ]
    offsets = []
    for name, found in sorted(group.offsets.items()):
        partition = book.partition(name)
        if partition is not None:
            committed = _committed(name, found)
            offsets.append(wire.OffsetDescription(committed, partition.stable_end))
    return wire.GroupDescription(group.generation, tuple(members), tuple(offsets))
