"""What a member of a consumer group knows and does, for the blocking consumer and for Trio's.

`positions` is how far the program got: what it was given, and so what a commit commits. Reading may
be ahead of that. Partitions are let go of by `follow` alone, so never while records are worked on.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from broker.protocol import stream_messages as wire
from broker.protocol.chunk import Record
from broker.protocol.stream_errors import StreamError
from broker.protocol.stream_wire import END
from clients.stream_conversation import Fetched
from clients.stream_errors import ConnectionLostError, RefusedError
from clients.stream_membership import Membership
from clients.stream_plans import Alone, Ask, Call, Plan
from clients.stream_questions import committed, identities, offsets
from clients.stream_reader import FETCH_BYTES, Slice, slices

HEARTBEAT_S: Final = 3.0  # many within a session's time-out
# Of all partitions together, asked for and not worked on; each chunk comes whole, whatever it has.
AHEAD_BYTES_MAX: Final = 64 * 1024 * 1024

Partitions: TypeAlias = tuple[wire.Partition, ...]


class Polled(NamedTuple):
    """Records of one partition, in order. `next_offset` is what to commit when they are done."""

    partition: wire.Partition
    slices: list[Slice]
    next_offset: int

    def records(self) -> list[Record]:
        return [record for piece in self.slices for record in piece.records()]


def ignore(_: Partitions) -> None:
    """Whoever wants to know says so."""


class Listeners(NamedTuple):
    """Told of what comes and goes. They may return something to be waited for."""

    on_assigned: Callable[[Partitions], Any]
    on_revoked: Callable[[Partitions], Any]
    on_lost: Callable[[Partitions], Any]


class GroupCore:
    def __init__(
        self,
        group: str,
        streams: Iterable[str],
        listeners: Listeners,
        *,
        label: str,
        instance: str,
        start: Literal["first", "next"],
        fetch_bytes: int = FETCH_BYTES,
    ) -> None:
        """`start`: where to read a partition from whose offset was never committed."""
        self.membership = Membership(group, streams, label=label, instance=instance)
        self.positions: dict[wire.Partition, int] = {}
        self._reading: dict[wire.Partition, int] = {}  # where to read on
        self._uids: dict[str, str] = {}  # of streams: offsets belong to one, not to a name
        self._followed: wire.Assignment | None = None
        self._listeners = listeners
        self._start = start
        self._fetch_bytes = fetch_bytes

    @property
    def group(self) -> str:
        return self.membership.group

    @property
    def assigned(self) -> Partitions:
        return tuple(sorted(self.positions))

    # Membership

    def join(self) -> Plan[None]:
        yield Alone(self.membership.join())

    def heartbeat(self) -> Plan[None]:
        yield Alone(self.membership.heartbeat())

    def beat(self) -> Plan[None]:
        """In the background: what is wrong will be met by the consumer's next call too."""
        try:
            yield from self.heartbeat()
        except (RefusedError, ConnectionLostError):
            return

    def leave(self) -> Plan[None]:
        try:
            yield Ask(self.membership.goodbye, wire.Empty)
        except StreamError:
            return  # the session's time-out does it

    @property
    def has_news(self) -> bool:
        """`follow` has something to do. Raises FencedError."""
        return self.membership.lost or self.membership.assignment != self._followed

    def follow(self) -> Plan[None]:
        """Take and let go of partitions as the group says. Cut short, it begins anew."""
        told = self.membership.assignment
        if self.membership.lost:
            gone = self.assigned
            self.positions.clear()
            if gone:
                yield Call(self._listeners.on_lost, (gone,))
            told = yield Alone(self.membership.join())
        leaving = tuple(each for each in told.leaving if each in self.positions)
        if leaving:
            yield Call(self._listeners.on_revoked, (leaving,))
            for partition in leaving:
                self.positions.pop(partition, None)
        if told.leaving:
            told = yield Alone(self.membership.heartbeat(told.leaving))
        new = tuple(each for each in told.assigned if each not in self.positions)
        if new:
            self._place((yield from self._starts(new)))
            yield Call(self._listeners.on_assigned, (new,))
        self._followed = told

    # Offsets

    def commit(self, positions: Mapping[wire.Partition, int] | None = None) -> Plan[None]:
        yield Alone(
            self.membership.commit(_sorted(self.positions if positions is None else positions))
        )

    def part(self, positions: Mapping[wire.Partition, int] | None = None) -> wire.GroupPart:
        """To be committed with a transaction instead."""
        return self.membership.part(_sorted(self.positions if positions is None else positions))

    def rewind(self) -> Plan[None]:
        """Read again whatever was not committed."""
        self._place((yield from self._starts(self.assigned)))

    def _place(self, starts: Mapping[wire.Partition, int]) -> None:
        self.positions.update(starts)
        self._reading.update(starts)

    def _starts(self, partitions: Partitions) -> Plan[dict[wire.Partition, int]]:
        """Where the group left off."""
        if not partitions:
            return {}
        self._uids |= yield from identities(sorted({each.stream for each in partitions}))
        known = yield from committed(self.group, partitions)
        starts = {partition: each.offset for partition, each in known.items()}
        for partition in partitions:
            if partition not in starts:
                starts[partition] = yield from self._first(partition)
        return starts

    def _first(self, partition: wire.Partition) -> Plan[int]:
        found = yield from offsets(partition.stream, self._start, (partition.number,))
        return found[partition.number]

    # Records

    def requests(
        self, under_way: Mapping[wire.Partition, int], wait_ms: int
    ) -> list[tuple[wire.Partition, wire.Fetch]]:
        """Fetches for the partitions that have none under way, or one behind where they are now."""
        fair = AHEAD_BYTES_MAX // max(1, len(self.positions))
        size = max(1, min(self._fetch_bytes, fair))
        return [
            (each, self._fetch(each, size, wait_ms))
            for each in self.positions
            if under_way.get(each, END) > self._reading[each]
        ]

    def _fetch(self, partition: wire.Partition, size: int, wait_ms: int) -> wire.Fetch:
        uid = self._uids.get(partition.stream, "")
        return wire.Fetch(*partition, self._reading[partition], END, size, 1, wait_ms, uid)

    def came(self, partition: wire.Partition, asked: int, fetched: Fetched) -> Polled | None:
        """What is new of it; None if it is not this member's, was put back, or nothing came."""
        start = self._reading.get(partition)
        resume = fetched.head.resume_offset
        if partition not in self.positions or start is None or not asked <= start < resume:
            return None
        found = slices(fetched, start, END)
        self._reading[partition] = resume
        if found:
            return Polled(partition, found, resume)
        if self.positions[partition] == start:
            self.positions[partition] = resume
        return None

    def given(self, partition: wire.Partition, next_offset: int) -> None:
        """The program has what is before."""
        self.positions[partition] = next_offset

    def put_back(self, partition: wire.Partition) -> None:
        """What was read of it and not given is to be read again."""
        if partition in self.positions:
            self._reading[partition] = self.positions[partition]

    def overtaken(self, partition: wire.Partition) -> Plan[None]:
        """Retention took what was to be read: go on where reading starts."""
        if partition in self.positions:
            start = yield from self._first(partition)
            if partition in self.positions:
                self._place({partition: start})


def _sorted(positions: Mapping[wire.Partition, int]) -> list[wire.Position]:
    return [wire.Position(*each) for each in sorted(positions.items())]
