"""The coordinator of one consumer group: members, generations, fencing, committed offsets.

Requests in, answers or typed errors out; what must be durable is gathered for `take_records`, and
an answer may leave only when the records of its call are durable. Members live here alone: a new
coordinator knows the offsets and the generation, and lets members join anew.

A commit counts only from the member that holds the partition, in a generation in which it held it:
whoever was given up for dead, replaced or revoked is refused, whatever it still believes.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from queues.stream.assignment import assign
from queues.stream.group_errors import (
    FencedMemberError,
    GroupError,
    GroupFullError,
    GroupNotEmptyError,
    InvalidCommitError,
    NotAssignedError,
    OffsetUnstableError,
    StaleGenerationError,
    UnknownMemberError,
)
from queues.stream.group_records import (
    Committed,
    GroupChange,
    GroupGone,
    GroupRecord,
    HeldOffsets,
    HeldRecord,
    OffsetRecord,
    Positions,
    Record,
    decode_change,
    encode_change,
)
from queues.stream.handover import Handover
from queues.stream.names import PartitionId
from queues.stream.participant import Decision, GroupPart, Held, Marker, Vote

# Assignment with mixed subscriptions looks at every pair of members: here it is still well under a
# second.
MEMBERS_MAX: Final = 256
METADATA_CHARACTERS_MAX: Final = 4096  # as Kafka


@dataclass(frozen=True, slots=True)
class GroupOptions:
    session_timeout_ms: int = 45_000  # silence after which a member is given up, as Kafka
    release_timeout_ms: int = 60_000  # time to finish with a partition that is to move


class Assignment(NamedTuple):
    """What a member is told: what it may read, and what it must finish with and release."""

    member: str
    generation: int
    assigned: frozenset[PartitionId]
    leaving: frozenset[PartitionId]


@dataclass(slots=True)
class _Member:
    name: str
    instance: str
    streams: frozenset[str]
    generation: int  # the last that it was told
    session_ends_ms: int
    release_by_ms: int | None = None
    replaced: str = ""  # the name that a static member had before its restart


class MemberInfo(NamedTuple):
    member: str
    instance: str
    streams: frozenset[str]
    assigned: frozenset[PartitionId]
    leaving: frozenset[PartitionId]


# The uid of the stream that has a name now; empty if there is none.
Identify: TypeAlias = Callable[[str], bytes]


def _unknown(_stream: str) -> bytes:
    return b""


class ConsumerGroup:
    def __init__(
        self, name: str, options: GroupOptions | None = None, identify: Identify = _unknown
    ) -> None:
        self.name = name
        self._identify = identify
        self.generation = 0
        self._options = options or GroupOptions()
        self._members: dict[str, _Member] = {}
        self._instances: dict[str, str] = {}  # instance id → member
        self._members_ever = 0
        self._partitions: dict[str, int] = {}  # of each stream
        self._handover = Handover()
        self._offsets: dict[PartitionId, Committed] = {}
        self._held: Held[HeldOffsets] = Held()
        self._changes: list[GroupChange] = []

    # Membership

    def join(
        self, label: str, streams: Set[str], now_ms: int, *, member: str = "", instance: str = ""
    ) -> Assignment:
        """Become a member, or, as `member`, ask for the present assignment or other streams.

        A member with an instance id that joins again is the same member under a new name: it has
        what it had, and nobody else notices.
        """
        if member:
            found = self._member(member)
        elif instance in self._instances:
            found = self._restart(self._instances[instance], label, now_ms)
        else:
            found = self._new_member(label, instance, now_ms)
        if found.streams != streams:
            found.streams = frozenset(streams)
            self._rebalance(now_ms)
        return self._told(found, now_ms)

    def heartbeat(
        self, member: str, generation: int, now_ms: int, *, released: Iterable[PartitionId] = ()
    ) -> Assignment:
        """Still here; done with `released`. The answer may hold a new generation."""
        found = self._member(member, generation)
        self._handover.release(member, released, self.generation)
        if not self._handover.leaving(member):
            found.release_by_ms = None
        return self._told(found, now_ms)

    def leave(self, member: str, now_ms: int) -> None:
        self._remove([self._member(member)], now_ms)

    def tick(self, now_ms: int) -> None:
        """Give up members that are silent or that hold on to what they should release."""
        gone = [each for each in self._members.values() if _deadline_ms(each) <= now_ms]
        if gone:
            self._remove(gone, now_ms)

    @property
    def moves(self) -> int:
        """Grows whenever a member may have to be told something."""
        return self._handover.moves

    @property
    def next_deadline_ms(self) -> int | None:
        return min(map(_deadline_ms, self._members.values()), default=None)

    def set_partitions(self, stream: str, count: int, now_ms: int) -> None:
        """How many partitions a stream has; 0: it is deleted, and with it the offsets in it."""
        if self._partitions.get(stream) == count:
            return
        self._partitions[stream] = count
        if count == 0:
            del self._partitions[stream]
            self.drop_offsets(stream)
        if any(stream in each.streams for each in self._members.values()):
            self._rebalance(now_ms)

    def replaced(self) -> set[str]:
        """Streams in whose place there are others now: their offsets mean nothing any more."""
        found = set()
        for partition, committed in self._offsets.items():
            now = self._identify(partition.stream)
            if committed.uid and now and committed.uid != now:
                found.add(partition.stream)
        return found

    def drop_offsets(self, stream: str) -> None:
        """The stream that they were committed in is deleted."""
        for partition in [each for each in self._offsets if each.stream == stream]:
            self._note(OffsetRecord(self.name, partition, None))
        self._unhold(stream)

    def members(self) -> list[MemberInfo]:
        handover = self._handover
        return [
            MemberInfo(
                each.name,
                each.instance,
                each.streams,
                handover.assigned(each.name),
                handover.leaving(each.name),
            )
            for each in self._members.values()
        ]

    # Offsets

    def commit(self, member: str, generation: int, positions: Positions, now_ms: int) -> None:
        """All of them or, with an error, none."""
        self._may_commit(member, generation, positions)
        self._must_be_stable(positions)
        self._place(positions, now_ms)

    def reset(self, positions: Positions, now_ms: int) -> None:
        """Put offsets where the caller says; also how a reader that is no member keeps its own."""
        self._must_be_empty()
        _must_be_valid(positions)
        self._must_be_stable(positions)
        self._place(positions, now_ms)

    def committed(self, partition: PartitionId) -> Committed | None:
        self._must_be_stable([partition])
        return self._offsets.get(partition)

    @property
    def offsets(self) -> Mapping[PartitionId, Committed]:
        """All of them as they are, for those who look on; a reader asks `committed`."""
        return self._offsets

    def lag(self, partition: PartitionId, next_offset: int) -> int | None:
        """Records still to be read; None if nothing was ever committed."""
        found = self._offsets.get(partition)
        return None if found is None else max(0, next_offset - found.offset)

    def delete(self) -> None:
        self._must_be_empty()
        if len(self._held):
            raise OffsetUnstableError(f"a transaction holds offsets of group {self.name}")
        for partition in list(self._offsets):
            self._note(OffsetRecord(self.name, partition, None))
        self._changes.append(GroupGone(self.name))

    # Transactions

    def prepare(self, transaction: int, part: GroupPart, now_ms: int) -> Vote:
        """Hold on to offsets that a transaction commits, if this member may commit them."""
        if transaction in self._held:
            return Vote.YES
        try:
            if part.member:
                self._may_commit(part.member, part.generation, part.positions)
            else:
                self._must_be_empty()
                _must_be_valid(part.positions)
            self._must_be_stable(part.positions)
        except OffsetUnstableError:
            return Vote.BUSY
        except GroupError:
            return Vote.FENCED
        held = HeldOffsets(now_ms, dict(part.positions))
        self._note(HeldRecord(self.name, transaction, held))
        return Vote.YES

    def mark(self, markers: Iterable[Marker]) -> None:
        for marker, held in self._held.resolve(markers):
            self._note_group()
            if held is not None:
                self._changes.append(HeldRecord(self.name, marker.transaction, None))
                if marker.decision is Decision.COMMIT:
                    self._place(held.positions, held.at_ms)

    def forget(self, transaction: int) -> None:
        """The coordinator does not know this transaction (any more): nothing is held for it."""
        if self._held.forget(transaction) is not None:
            self._changes.append(HeldRecord(self.name, transaction, None))

    @property
    def decided(self) -> int:
        return self._held.decided

    @property
    def strays(self) -> int:
        return self._held.strays

    @property
    def held(self) -> Mapping[int, HeldOffsets]:
        return self._held.parts

    # Records

    def take_records(self) -> list[Record]:
        """What must be written, as one chunk, before anything that was answered leaves."""
        changes, self._changes = self._changes, []
        return [encode_change(each) for each in changes]

    def all_records(self) -> list[Record]:
        """Records that build this group, its members excepted."""
        changes: list[GroupChange] = [self._group_record()]
        changes += [OffsetRecord(self.name, *each) for each in sorted(self._offsets.items())]
        changes += [HeldRecord(self.name, *each) for each in sorted(self._held.parts.items())]
        return [encode_change(each) for each in changes]

    def replay(self, change: GroupChange) -> None:
        match change:
            case OffsetRecord(_, partition, None):
                self._offsets.pop(partition, None)
            case OffsetRecord(_, partition, Committed() as value):
                self._offsets[partition] = value
            case HeldRecord(_, transaction, None):
                self._held.forget(transaction)
            case HeldRecord(_, transaction, HeldOffsets() as held):
                self._held.forget(transaction)
                self._held.hold(transaction, held)
            case GroupRecord(_, generation, members_ever, decided):
                self.generation = generation
                self._members_ever = members_ever
                self._held.decided = decided

    # Within

    def _member(self, name: str, generation: int | None = None) -> _Member:
        found = self._members.get(name)
        if found is None:
            if any(name == each.replaced for each in self._members.values()):
                raise FencedMemberError(f"{name} was replaced in group {self.name}")
            raise UnknownMemberError(f"no member {name} in group {self.name}")
        if generation is not None and generation != found.generation:
            raise StaleGenerationError(f"{name}: generation {generation}, not {found.generation}")
        return found

    def _name_member(self, label: str, now_ms: int) -> str:
        """A name that nobody had before, not even in a group of this name that was deleted."""
        self._members_ever += 1
        self._note_group()
        return f"{label}-{now_ms:x}-{self._members_ever}"

    def _new_member(self, label: str, instance: str, now_ms: int) -> _Member:
        if len(self._members) >= MEMBERS_MAX:
            raise GroupFullError(f"group {self.name} has {MEMBERS_MAX} members")
        name = self._name_member(label, now_ms)
        found = _Member(name, instance, frozenset(), self.generation, now_ms)
        self._members[name] = found
        if instance:
            self._instances[instance] = name
        return found

    def _restart(self, old: str, label: str, now_ms: int) -> _Member:
        """Its process is a new one: what should leave it has left, the rest stays."""
        name = self._name_member(label, now_ms)
        found = replace(self._members.pop(old), name=name, replaced=old, release_by_ms=None)
        self._members[name] = found
        self._instances[found.instance] = name
        self._handover.release(old, self._handover.leaving(old), self.generation)
        self._handover.rename(old, name)
        return found

    def _told(self, member: _Member, now_ms: int) -> Assignment:
        member.session_ends_ms = now_ms + self._options.session_timeout_ms
        member.generation = self.generation
        assigned = self._handover.assigned(member.name)
        leaving = self._handover.leaving(member.name)
        return Assignment(member.name, self.generation, assigned, leaving)

    def _remove(self, members: list[_Member], now_ms: int) -> None:
        for member in members:
            del self._members[member.name]
            self._instances.pop(member.instance, None)
        self._rebalance(now_ms)
        for member in members:
            self._handover.drop(member.name, self.generation)

    def _rebalance(self, now_ms: int) -> None:
        self.generation += 1
        self._note_group()
        subscriptions = {each.name: each.streams for each in self._members.values()}
        partitions = [
            PartitionId(stream, number)
            for stream, count in self._partitions.items()
            for number in range(count)
        ]
        target = assign(partitions, subscriptions, self._handover.holders)
        self._handover.aim(target, self.generation)
        for member in self._members.values():
            if not self._handover.leaving(member.name):
                member.release_by_ms = None
            elif member.release_by_ms is None:
                member.release_by_ms = now_ms + self._options.release_timeout_ms

    def _may_commit(self, member: str, generation: int, positions: Positions) -> None:
        self._member(member, generation)
        for partition in positions:
            since = self._handover.held_since(partition, member)
            if since is None or since > generation:
                raise NotAssignedError(f"{partition} is not {member}'s in generation {generation}")
        _must_be_valid(positions)

    def _unhold(self, stream: str) -> None:
        """A transaction must not bring back offsets of a stream that is no more."""
        for transaction, held in list(self._held.parts.items()):
            left = {each: at for each, at in held.positions.items() if each.stream != stream}
            if len(left) < len(held.positions):
                self._note(HeldRecord(self.name, transaction, HeldOffsets(held.at_ms, left)))

    def _must_be_empty(self) -> None:
        if self._members:
            raise GroupNotEmptyError(f"group {self.name} has {len(self._members)} members")

    def _must_be_stable(self, partitions: Iterable[PartitionId]) -> None:
        held = self._held.parts.values()
        for partition in partitions:
            if any(partition in each.positions for each in held):
                raise OffsetUnstableError(f"{partition} in group {self.name} is being decided")

    def _place(self, positions: Positions, at_ms: int) -> None:
        for partition, (offset, metadata) in sorted(positions.items()):
            committed = Committed(offset, metadata, at_ms, self._identify(partition.stream))
            self._note(OffsetRecord(self.name, partition, committed))

    def _note(self, change: GroupChange) -> None:
        self.replay(change)
        self._changes.append(change)

    def _group_record(self) -> GroupRecord:
        return GroupRecord(self.name, self.generation, self._members_ever, self._held.decided)

    def _note_group(self) -> None:
        self._changes.append(self._group_record())


def _deadline_ms(member: _Member) -> int:
    if member.release_by_ms is None:
        return member.session_ends_ms
    return min(member.session_ends_ms, member.release_by_ms)


def _must_be_valid(positions: Positions) -> None:
    for partition, (offset, metadata) in positions.items():
        if offset < 0:
            raise InvalidCommitError(f"offset {offset} of {partition}")
        if len(metadata) > METADATA_CHARACTERS_MAX:
            raise InvalidCommitError(f"metadata of {len(metadata)} characters for {partition}")


def load_groups(
    records: Iterable[Record], options: GroupOptions | None = None
) -> dict[str, ConsumerGroup]:
    """The groups as they were when the last of these records was written, without members."""
    groups: dict[str, ConsumerGroup] = {}
    replay_into(groups, records, options)
    return groups


def replay_into(
    groups: dict[str, ConsumerGroup],
    records: Iterable[Record],
    options: GroupOptions | None = None,
    identify: Identify = _unknown,
) -> None:
    """Go on with loading groups."""
    for record in records:
        change = decode_change(record)
        if isinstance(change, GroupGone):
            groups.pop(change.group, None)
        else:
            if change.group not in groups:
                groups[change.group] = ConsumerGroup(change.group, options, identify)
            groups[change.group].replay(change)
