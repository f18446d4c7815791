"""The consumer groups of a vhost, and the compacted stream that remembers them.

A group changes at once; what has to be remembered of the change is appended to the stream, and no
answer leaves before that is durable. After a start the groups are read back from the stream; who
calls meanwhile waits. In a cluster that happens whenever this node begins to lead the stream, and
when it ceases to, it knows nothing any more: members join anew where the groups are. Members on
AMQP channels are told whenever something moves. Those of a lone node are looked after here, and
their heartbeat is that they are still there; in a cluster see remote_member.py.
"""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Final, TypeAlias

from broker import logs
from broker.internal_errors import GROUPS
from broker.protocol.stream_errors import StreamError
from broker.streams.members import Member
from broker.timers import Timers
from broker.vhost import VHost
from queues.consumers import Consumer
from queues.stream.group_errors import (
    GroupError,
    GroupFullError,
    UnknownRecordError,
)
from queues.stream.group_records import Record
from queues.stream.groups import ConsumerGroup, replay_into
from queues.stream.names import OFFSETS_STREAM, PartitionId
from queues.stream.partition import StreamPartition
from queues.stream.reading import Batch
from queues.stream.stream import Stream
from queues.stream.verdict import Verdict
from queues.stream.wishes import ReaderWishes

GROUPS_MAX: Final = 10_000  # of a vhost; some KB each, and all are in memory
TICK_MS: Final = 1000  # time-outs are of many seconds
COMMIT_MS: Final = 100  # acks of AMQP consumers are committed together; a crash repeats them
LOAD_BYTES: Final = 1024 * 1024  # read at once
# Small segments: only sealed ones are compacted, and all of it is read at a start.
SEGMENT_BYTES: Final = 4 * 1024 * 1024

# Calls back without an error once this node has all definitions that anybody may know of by now.
Barrier: TypeAlias = Callable[[Callable[[Exception | None], None]], None]

_log = logs.get("groups")


def _nothing() -> None:
    pass


def at_once(then: Callable[[Exception | None], None]) -> None:
    """A lone node has all definitions before anything is asked of it."""
    then(None)


class GroupBook:
    """For the loop's thread; to the vhost it is its `Groups`."""

    def __init__(self, vhost: VHost, timers: Timers, *, replicated: bool = False) -> None:
        """`replicated`: the groups are where the stream that remembers them leads."""
        self._replicated = replicated
        self.leads = not replicated
        self._loads = 0  # what was read for an earlier one is void
        self._vhost = vhost
        self._timers = timers
        self.groups: dict[str, ConsumerGroup] = {}
        # Up to where records may have been delivered to a group before.
        self.seen: dict[tuple[str, PartitionId], int] = {}
        self.trouble: str | None = None
        self._members: dict[str, dict[str, Member]] = {}  # by group and name
        self._partition: StreamPartition | None = None
        self._loaded = False
        self._callers: list[Callable[[], None]] = []  # they wait for the groups to be known
        # For each write who waits for it: what to do then, and what if it is lost.
        self._answers: deque[list[tuple[Callable[[], None], Callable[[], None]]]] = deque()
        self._dirty: dict[Member, None] = {}
        self._ticking = False
        # Passed before anything is read of them: another node may have them without a word to this.
        self.barrier: Barrier | None = None
        # Passed before a stream that is not here counts as deleted.
        self.definitions: Barrier = at_once
        # Told of groups in which something moved, for members that are not kept here.
        self.on_moved: Callable[[str], None] | None = None
        self._moves: dict[str, int] = {}  # how much of that was told
        self.on_loaded: Callable[[], None] | None = None  # all groups have been read

    # Loading

    def start(self) -> None:
        """Read the groups back, once streams can be read."""
        stream = self._vhost.queues.get(OFFSETS_STREAM)
        if self._replicated:
            if isinstance(stream, Stream) and stream.partitions:
                self._attach(stream)
        elif not isinstance(stream, Stream):
            self._ready()
        elif stream.damaged is not None:
            self._fail(stream.damaged)
        else:
            self._partition = stream.partitions[0]
            self._load(self._partition, self._partition.first_offset)

    def _attach(self, stream: Stream) -> None:
        partition = stream.partitions[0]
        if partition.on_leading is None:
            partition.on_leading = self._leading
            if partition.leads:
                self._leading(partition)

    def _leading(self, partition: StreamPartition) -> None:
        """This node begins to have the groups, or has them no more."""
        self._loads += 1
        self._loaded = False
        self.trouble = None
        self.groups, self._moves = {}, {}
        self.leads = partition.leads
        if self.leads:
            self._partition = partition
            self._load(partition, partition.first_offset)
        else:
            self._partition = None
            self._call()

    def _load(self, partition: StreamPartition, offset: int) -> None:
        loads = self._loads

        def loaded(result: Batch | StreamError) -> None:
            if loads != self._loads:
                return
            if isinstance(result, StreamError):
                self._fail(str(result))
                return
            try:
                for chunk in result.chunks:
                    records = chunk.slice(offset, chunk.header.end_offset)
                    read = [Record(each.key or b"", each.value) for each in records]
                    replay_into(self.groups, read, identify=self._uid_of)
            except UnknownRecordError as error:
                self._fail(str(error))
                return
            except Exception as error:  # noqa: BLE001 - whatever is in there, the node must start
                self._fail(f"a record cannot be read: {error!r}")
                return
            self._load(partition, result.next_offset)

        if offset < partition.next_offset:
            partition.reader.read(offset, LOAD_BYTES, loaded)
        else:
            self._look_around()

    def _all_read(self) -> None:
        self._ready()
        if self.on_loaded is not None:
            self.on_loaded()

    def _look_around(self) -> None:
        """What happened to streams without a word to the groups; what a lost life may have sent."""
        missing = False
        for group in self.groups.values():
            for partition in group.offsets:
                found = self.partition(partition)
                if found is not None:
                    self.seen[group.name, partition] = found.next_offset
                missing |= partition.stream not in self._vhost.queues
        if any(group.replaced() for group in self.groups.values()):
            self._look_for_missing(self._all_read)  # nobody may go on by such offsets
            return
        if missing:
            self._look_for_missing(_nothing)
        self._all_read()

    def _look_for_missing(self, then: Callable[[], None]) -> None:
        """Offsets go with their stream, once it is sure that this node does not merely lag."""
        loads = self._loads

        def passed(error: Exception | None) -> None:
            if loads != self._loads:
                return
            if error is not None:
                self.call_in(TICK_MS, lambda: self._look_for_missing(then))
                return
            for group in self.groups.values():
                for stream in {each.stream for each in group.offsets} - self._vhost.queues.keys():
                    group.set_partitions(stream, 0, self.now_ms())
                for stream in group.replaced():
                    group.drop_offsets(stream)
                self.write(group)
            then()

        self.definitions(passed)

    def _fail(self, reason: str) -> None:
        _log.error("groups_lost", vhost=self._vhost.name, reason=reason)
        self.trouble = reason
        self._ready()

    def _ready(self) -> None:
        self._loaded = True
        self._call()

    def _call(self) -> None:
        callers, self._callers = self._callers, []
        for call in callers:
            call()

    def when_ready(self, action: Callable[[], None]) -> None:
        if self._loaded or not self.leads:
            action()
        else:
            self._callers.append(action)

    def close(self) -> None:
        """The vhost is deleted: there is nobody to lead any more, and nobody to ask."""
        self._loads += 1
        self.leads = False
        self.groups, self._moves, self._dirty, self._members = {}, {}, {}, {}
        self._call()

    # Groups

    def group(self, name: str) -> ConsumerGroup:
        """A group of this name, made if need be. Raises GroupFullError."""
        found = self.groups.get(name)
        if found is None:
            if len(self.groups) >= GROUPS_MAX:
                raise GroupFullError(f"vhost {self._vhost.name} has {GROUPS_MAX} groups")
            found = self.groups[name] = ConsumerGroup(name, identify=self._uid_of)
        return found

    def _uid_of(self, stream: str) -> bytes:
        found = self._vhost.queues.get(stream)
        return found.uid if isinstance(found, Stream) else b""

    def subscribed(self, group: ConsumerGroup, streams: Iterable[str]) -> None:
        """Tell a group of the streams that it is about."""
        for name in streams:
            stream = self._vhost.queues.get(name)
            count = len(stream.partitions) if isinstance(stream, Stream) else 0
            group.set_partitions(name, count, self._timers.now_ms())

    def partition(self, name: PartitionId) -> StreamPartition | None:
        stream = self._vhost.queues.get(name.stream)
        if not isinstance(stream, Stream) or not 0 <= name.number < len(stream.partitions):
            return None
        return stream.partitions[name.number]

    def stream_changed(self, stream: str, partitions: int) -> None:
        def change() -> None:
            for group in list(self.groups.values()):
                if not partitions or any(stream in each.streams for each in group.members()):
                    group.set_partitions(stream, partitions, self._timers.now_ms())
                    self.changed(group)
            if not partitions:
                self.seen = {key: at for key, at in self.seen.items() if key[1].stream != stream}

        if stream != OFFSETS_STREAM:
            self.when_ready(change)
        elif self._replicated and partitions:
            found = self._vhost.queues.get(OFFSETS_STREAM)
            if isinstance(found, Stream) and found.partitions:
                self._attach(found)

    def changed(
        self,
        group: ConsumerGroup,
        answer: Callable[[], None] | None = None,
        lost: Callable[[], None] = _nothing,
    ) -> None:
        """Something was done to a group: tell its members; answer when all of it is durable.

        Or else, if this node has the groups no more before that, `lost` is called.
        """
        self._tell(group)
        self.write(group, answer, lost)
        if self.on_moved is not None and self._moves.get(group.name) != group.moves:
            self._moves[group.name] = group.moves
            self.on_moved(group.name)
        if group.next_deadline_ms is not None:
            self._set_tick()

    def _set_tick(self) -> None:
        if not self._ticking:
            self._ticking = True
            self._timers.call_at(self._timers.now_ms() + TICK_MS, self._tick)

    def _guard(self, group: ConsumerGroup) -> AbstractContextManager[None]:
        """What goes wrong with a group is not the business of other groups."""
        return self._timers.errors.guard(GROUPS, vhost=self._vhost.name, group=group.name)

    def _tick(self) -> None:
        now_ms = self._timers.now_ms()
        self._ticking = False
        if not self.leads:
            return
        for group in list(self.groups.values()):
            if group.next_deadline_ms is not None:
                with self._guard(group):
                    self._tell(group)  # whoever is here is alive
                    group.tick(now_ms)
                    self.changed(group)
        if any(group.next_deadline_ms is not None for group in self.groups.values()):
            self._set_tick()

    # Writing

    def write(
        self,
        group: ConsumerGroup,
        answer: Callable[[], None] | None = None,
        lost: Callable[[], None] = _nothing,
    ) -> None:
        """Make durable what changed; answer when it is."""
        records = group.take_records()
        if records:
            self._answers.append([])
            keys = [record.key for record in records]
            values = [record.value for record in records]
            self._stream().append(keys, values, [b""] * len(records), self)
        if answer is not None:
            if self._answers:
                self._answers[-1].append((answer, lost))
            else:
                answer()

    def _stream(self) -> StreamPartition:
        if self._partition is None:
            arguments = {
                "x-queue-type": "stream",
                "x-compact": True,
                "x-stream-max-segment-size-bytes": SEGMENT_BYTES,
            }
            stream = self._vhost.declare_internal(OFFSETS_STREAM, arguments)
            assert isinstance(stream, Stream)
            self._partition = stream.partitions[0]
        return self._partition

    def appended(self, verdict: Verdict, first_offset: int | None) -> None:
        """The oldest of the writes is durable."""
        assert verdict is Verdict.NEW, first_offset
        for answer, _ in self._answers.popleft():
            answer()

    def dropped(self) -> None:
        """The vhost is deleted, and the stream with it."""
        self.lost()

    def lost(self) -> None:
        """Another node has the groups now, and may have taken over this change."""
        for _, lost in self._answers.popleft():
            lost()

    # Members on AMQP channels

    def consume(
        self,
        stream: Stream,
        consumer: Consumer,
        wishes: ReaderWishes,
        group: str,
        instance: str,
        then: Callable[[str | None], None],
    ) -> None:
        self._commit()  # should it take the place of another, that one has committed all it can
        now_ms = self._timers.now_ms()
        try:
            found = self.group(group)
            self.subscribed(found, [stream.name])
            told = found.join(consumer.tag, {stream.name}, now_ms, instance=instance)
        except GroupError as error:
            then(str(error))
            return
        member = Member(self, found, stream, consumer, wishes, told, is_static=bool(instance))
        self._members.setdefault(group, {})[told.member] = member
        self.changed(found)
        then(None)

    def _tell(self, group: ConsumerGroup) -> None:
        """Let members know what is theirs, until nothing moves any more."""
        members = self._members.get(group.name, {})
        moving = bool(members)
        while moving:
            moving = False
            for member in list(members.values()):
                if members.get(member.name) is not member:
                    continue
                try:
                    moving |= member.refresh(self.now_ms())
                except GroupError as error:  # it was given up, or another took its place
                    _log.info("member_fenced", group=group.name, reason=str(error))
                    member.dismiss()

    def forget(self, member: Member) -> None:
        members = self._members.get(member.group.name, {})
        if members.get(member.name) is member:
            del members[member.name]
            if not members:
                del self._members[member.group.name]
        self._dirty.pop(member, None)

    def now_ms(self) -> int:
        return self._timers.now_ms()

    def call_in(self, milliseconds: int, action: Callable[[], None]) -> None:
        self._timers.call_at(self.now_ms() + milliseconds, action)

    def commit_soon(self, member: Member) -> None:
        if not self._dirty:
            self._timers.call_at(self.now_ms() + COMMIT_MS, self._commit)
        self._dirty[member] = None

    def _commit(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for member in dirty:
            with self._guard(member.group):
                member.commit()
                self.write(member.group)
