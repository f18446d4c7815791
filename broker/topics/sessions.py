"""Sessions of consumers: each is a member of a group, kept between requests until it is idle.

Its id begins with the number of the node that keeps it, so that any node can find that. A session
beats for its member; when nobody has asked for anything in its time, the member leaves the group.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import trio

from broker.internal_errors import BACKGROUND
from broker.protocol import stream_messages as wire
from broker.topics.problems import TopicError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from broker.streams.service import Caller
    from broker.topics.asking import Asker

SESSIONS_MAX: Final = 1000  # of a node; each beats once a second
SESSIONS_OF_ONE_USER_MAX: Final = 500  # so that one user cannot have them all
BEAT_S: Final = 1.0
ID_BYTES: Final = 16
# A client that never sends its session back makes a member with each request, which has partitions
# and reads no more. So many of them a user may have in a group; they go first, and sooner.
UNRETURNED_MAX: Final = 8
UNRETURNED_MS: Final = 5000
LABEL: Final = "http"
# The group goes on without this member.
_GIVEN_UP: Final = frozenset({"unknown_member", "member_fenced"})


@dataclass(frozen=True, slots=True)
class Place:
    """What a session is for."""

    caller: Caller
    topic: str
    group: str


class Session:
    """A member of a group, and how far it got."""

    def __init__(
        self,
        session_id: str,
        place: Place,
        asker: Asker,
        *,
        idle_ms: int,
        start: Literal["first", "next"],
    ) -> None:
        self.id = session_id
        self.place = place
        self.idle_ms = idle_ms
        self._start = start
        self._asker = asker
        self._told = wire.Assignment("", 0, (), ())
        self._lost = True
        # A commit must not cross a heartbeat on the way: that may tell of a new generation.
        self._talking = trio.Lock()
        self.positions: dict[int, int] = {}  # of the partitions it has: what to read next
        self.turn = trio.Lock()  # for one request that moves the positions
        self._requests = 0
        self._first = -1  # partition to be read before the others
        self.polling = 0
        self.nudged = trio.Event()  # whoever waits for records makes it anew
        self.used_ms = asker.node.timers.now_ms()
        self.over = False
        self.returned = False  # its client knows of it, and came back

    # Requests

    def touch(self) -> None:
        self.used_ms = self._asker.node.timers.now_ms()

    def begin(self) -> int:
        """A request that wants the turn: whoever waits for records gives up for it."""
        self._requests += 1
        self.nudged.set()
        return self._requests

    def is_last(self, request: int) -> bool:
        return request == self._requests and not self.over

    def next_numbers(self) -> list[int]:
        """The partitions it has, another one first each time, so that none has to wait for ever."""
        numbers = sorted(self.positions)
        self._first += 1
        split = self._first % len(numbers) if numbers else 0
        return numbers[split:] + numbers[:split]

    def advance(self, following: Mapping[int, int]) -> None:
        """Go on there, in partitions that it still has."""
        for number, offset in following.items():
            if number in self.positions:
                self.positions[number] = offset

    # The group

    async def follow(self) -> None:
        """Be a member; take and let go of partitions as the group says."""
        if not self._lost:
            await self.beat()
        if self._lost:
            await self._join()
        if self._told.leaving:
            for partition in self._told.leaving:
                self.positions.pop(partition.number, None)
            await self.beat(self._told.leaving)
        assigned = {partition.number for partition in self._told.assigned}
        for number in self.positions.keys() - assigned:
            del self.positions[number]
        new = sorted(assigned - self.positions.keys())
        if new:
            self.positions |= await self.committed(new)

    async def beat(self, released: tuple[wire.Partition, ...] = ()) -> None:
        async with self._talking:
            await self._beat(released)

    async def _beat(self, released: tuple[wire.Partition, ...]) -> None:
        if self._lost:
            return
        told, service = self._told, self._asker.service
        request = wire.Heartbeat(self.place.group, told.member, told.generation, released)
        try:
            self._told = await self._asker.ask(self.place.caller, service.heartbeat, request)
        except TopicError as problem:
            await self._put_right(problem)

    async def _put_right(self, problem: TopicError) -> None:
        """The group has moved on: hear where it is, or that it goes without this member."""
        if problem.code in _GIVEN_UP:
            self._lost = True
            self.positions.clear()
        elif problem.code == "stale_generation" and self._told.member:
            try:
                self._told = await self._ask_to_join(self._told.member)
            except TopicError as again:
                if again.code == "stale_generation":
                    raise
                await self._put_right(again)
        else:
            raise problem

    async def _join(self) -> None:
        async with self._talking:
            self.positions.clear()
            self._told = await self._ask_to_join("")
            self._lost = False

    async def _ask_to_join(self, member: str) -> wire.Assignment:
        place = self.place
        request = wire.Join(place.group, LABEL, member, "", (place.topic,))
        return await self._asker.ask(place.caller, self._asker.service.join, request)

    async def commit(self, offsets: dict[int, int]) -> None:
        """Raises TopicError, 409 if a partition is not this member's any more."""
        async with self._talking:
            try:
                await self._commit(offsets)
            except TopicError as problem:
                if problem.code != "stale_generation":
                    raise
                await self._put_right(problem)
                await self._commit(offsets)

    async def _commit(self, offsets: dict[int, int]) -> None:
        told, place = self._told, self.place
        positions = positions_of(place.topic, offsets)
        request = wire.CommitOffsets(place.group, told.member, told.generation, positions)
        await self._asker.ask(place.caller, self._asker.service.commit_offsets, request)

    async def committed(self, numbers: list[int]) -> dict[int, int]:
        """Where the group left off, or where to begin."""
        place, service = self.place, self._asker.service
        partitions = tuple(wire.Partition(place.topic, number) for number in numbers)
        asked = wire.FetchOffsets(place.group, partitions)
        found = await self._asker.ask(place.caller, service.fetch_offsets, asked)
        offsets = {each.partition.number: each.offset for each in found.offsets}
        rest = tuple(number for number in numbers if number not in offsets)
        if rest:
            edge = wire.FIRST if self._start == "first" else wire.NEXT
            request = wire.OffsetFor(place.topic, edge, 0, rest)
            offsets |= await self._asker.offsets_at(place.caller, request)
        return offsets

    async def leave(self) -> None:
        async with self._talking:
            if not self._lost:
                self._lost = True
                request = wire.Leave(self.place.group, self._told.member)
                await self._asker.ask(self.place.caller, self._asker.service.leave, request)


def positions_of(topic: str, offsets: dict[int, int]) -> tuple[wire.Position, ...]:
    return tuple(
        wire.Position(wire.Partition(topic, number), offset)
        for number, offset in sorted(offsets.items())
    )


class Sessions:
    """Those that a node keeps; `run` looks after them."""

    def __init__(self, asker: Asker, me: int) -> None:
        self._asker = asker
        self._me = me
        self._sessions: dict[str, Session] = {}
        self._nursery: trio.Nursery | None = None

    def keeper_of(self, session_id: str) -> int | None:
        """The number of the node that keeps it, if that is another one."""
        number = session_id.partition("-")[0]
        if not number.isascii() or not number.isdigit() or len(number) > 18:
            raise unknown_session(session_id)
        return None if int(number) == self._me else int(number)

    def find(self, session_id: str, place: Place) -> Session:
        """Raises TopicError: another's session is as good as none."""
        found = self._sessions.get(session_id)
        if found is None or found.place != place:
            raise unknown_session(session_id)
        found.touch()
        found.returned = True
        return found

    def make(self, place: Place, *, idle_ms: int, start: Literal["first", "next"]) -> Session:
        self._make_room(place)
        own = sum(each.place.caller.user == place.caller.user for each in self._sessions.values())
        if own >= SESSIONS_OF_ONE_USER_MAX:
            text = f"user {place.caller.user!r} has {SESSIONS_OF_ONE_USER_MAX} sessions already"
            raise TopicError(429, text, code="too_many_sessions")
        if len(self._sessions) >= SESSIONS_MAX:
            text = f"this node keeps {SESSIONS_MAX} sessions already"
            raise TopicError(429, text, code="too_many_sessions")
        assert self._nursery is not None
        session_id = f"{self._me}-{secrets.token_urlsafe(ID_BYTES)}"
        session = Session(session_id, place, self._asker, idle_ms=idle_ms, start=start)
        self._sessions[session_id] = session
        self._nursery.start_soon(self._guarded, self._keep, session)
        return session

    def _make_room(self, place: Place) -> None:
        """End sessions of the same user and group to which nobody came back."""
        assert self._nursery is not None
        unreturned = [
            each
            for each in self._sessions.values()
            if each.place == place and not each.returned and not each.polling
        ]
        before_ms = self._asker.node.timers.now_ms() - UNRETURNED_MS
        excess = len(unreturned) - UNRETURNED_MAX + 1
        for number, each in enumerate(unreturned):  # the oldest first
            if number < excess or each.used_ms <= before_ms:
                self.drop(each)
                self._nursery.start_soon(self._guarded, self.end, each)

    def drop(self, session: Session) -> None:
        """It is not to be found any more, and whoever waits in it gives up."""
        self._sessions.pop(session.id, None)
        session.over = True
        session.begin()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    async def _guarded(self, work: Callable[[Session], Awaitable[None]], session: Session) -> None:
        """What goes wrong with one session ends that one."""
        try:
            await work(session)
        except Exception as error:  # noqa: BLE001 - it is nobody else's business
            self._asker.node.errors.note(BACKGROUND, error, group=session.place.group)
            self.drop(session)

    async def _keep(self, session: Session) -> None:
        timers = self._asker.node.timers
        while not session.over:
            await trio.sleep(BEAT_S)
            if session.over or session.polling:
                continue
            if timers.now_ms() - session.used_ms >= session.idle_ms:
                self.drop(session)
                await self.end(session)
            else:
                await _quietly(session.beat)

    async def end(self, session: Session) -> None:
        """The member leaves; if that cannot be said now, the group's own time-out does it."""
        await _quietly(session.leave)


async def _quietly(act: Callable[[], Awaitable[None]]) -> None:
    """What is wrong is met by the next request too."""
    with suppress(TopicError):
        await act()


def unknown_session(session_id: str) -> TopicError:
    text = (
        f"there is no session {session_id!r}, or it was idle too long: begin a new one without any"
    )
    return TopicError(404, text, code="session_unknown")
