"""A place in a consumer group: join, heartbeats, commits, and what to do when it is lost.

Plans, to be carried out one at a time: a commit must not cross a heartbeat on the way, since that
may tell of a new generation.
"""

from collections.abc import Iterable

from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Status
from clients.stream_errors import RefusedError
from clients.stream_plans import Plan, asked
from clients.stream_questions import NOT_YET


class Membership:
    def __init__(
        self, group: str, streams: Iterable[str], *, label: str, instance: str = ""
    ) -> None:
        self.group = group
        self._streams = tuple(sorted(streams))
        self._label = label
        self._instance = instance
        self._fenced: RefusedError | None = None
        self._told = wire.Assignment("", 0, (), ())
        self.lost = False  # given up by the group; what it had is others' now

    @property
    def assignment(self) -> wire.Assignment:
        """What the group said last. Raises FencedError if another has taken the place."""
        if self._fenced is not None:
            raise self._fenced
        return self._told

    def join(self) -> Plan[wire.Assignment]:
        """As a new member; also after the place was lost."""
        self._told = yield from self._join("")
        self.lost = False
        return self._told

    def heartbeat(self, released: tuple[wire.Partition, ...] = ()) -> Plan[wire.Assignment]:
        """Still here, and done with `released`."""
        try:
            self._told = yield from self._beat(released)
        except RefusedError as error:
            yield from self._put_right(error)
            if released and not self.lost:
                self._told = yield from self._beat(released)
        return self._told

    def commit(self, positions: Iterable[wire.Position]) -> Plan[None]:
        """Raises RefusedError: NOT_ASSIGNED if a partition is not this member's any more."""
        positions = tuple(positions)
        try:
            yield from self._commit(positions)
        except RefusedError as error:
            if error.status != Status.STALE_GENERATION:
                raise
            yield from self._put_right(error)
            yield from self._commit(positions)

    def part(self, positions: Iterable[wire.Position]) -> wire.GroupPart:
        """Of a transaction that commits these."""
        told = self.assignment
        return wire.GroupPart(self.group, told.member, told.generation, tuple(positions))

    @property
    def goodbye(self) -> wire.Leave:
        return wire.Leave(self.group, self._told.member)

    def _join(self, member: str) -> Plan[wire.Assignment]:
        request = wire.Join(self.group, self._label, member, self._instance, self._streams)
        return asked(request, wire.Assignment)

    def _beat(self, released: tuple[wire.Partition, ...]) -> Plan[wire.Assignment]:
        told = self._told
        request = wire.Heartbeat(self.group, told.member, told.generation, released)
        return asked(request, wire.Assignment)

    def _commit(self, positions: tuple[wire.Position, ...]) -> Plan[wire.Empty]:
        told = self._told
        request = wire.CommitOffsets(self.group, told.member, told.generation, positions)
        return asked(request, wire.Empty, unless=NOT_YET)

    def _put_right(self, error: RefusedError) -> Plan[None]:
        """The group has moved on: hear where it is, or that it goes without this member."""
        if error.status == Status.STALE_GENERATION:
            try:
                self._told = yield from self._join(self._told.member)
            except RefusedError as again:
                if again.status == Status.STALE_GENERATION:
                    raise
                yield from self._put_right(again)
        elif error.status == Status.UNKNOWN_MEMBER:
            self.lost = True
            self._told = self._told._replace(assigned=(), leaving=())
        elif error.status == Status.MEMBER_FENCED:
            self._fenced = error
            raise error
        else:
            raise error
