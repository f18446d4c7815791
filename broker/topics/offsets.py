"""How far a group got in a topic: commit, seek, lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.http.messages import Response, json_response
from broker.protocol import stream_messages as wire
from broker.topics.asking import find_topic
from broker.topics.consuming import elsewhere, place_of
from broker.topics.fields import checked_name, name_in, offset_rows, offsets_in, only, text_asked
from broker.topics.problems import TopicError, bad_request
from broker.topics.sessions import Place, positions_of

if TYPE_CHECKING:
    from broker.http.admin import Call
    from broker.topics.asking import Asker
    from broker.topics.sessions import Session, Sessions

COMMITTED: Final = "committed"
TIME_MS_MAX: Final = 2**53
_EDGES: Final = {"first": wire.FIRST, "last": wire.LAST, "next": wire.NEXT}


class Offsets:
    """One for a node."""

    def __init__(self, asker: Asker, sessions: Sessions) -> None:
        self._asker = asker
        self._sessions = sessions

    async def commit(self, call: Call) -> Response:
        """As a session's member, by default all that it got; without, of a group with no members.

        An offset is that of the record to go on with.
        """
        body = call.json()
        only(body, ("group", "session", "offsets"))
        place = place_of(call, name_in(body, "group"))
        offsets = offsets_in(body)
        _must_exist(call, offsets)
        if "session" in body:
            answer = await self._elsewhere(call, body)
            if answer is not None:
                return answer
            session = self._session(body, place)
            offsets = dict(session.positions) if offsets is None else offsets
            await session.commit(offsets)
        elif offsets is None:
            raise bad_request("offsets: they are needed where there is no session")
        else:
            await self._reset(place, offsets)
        return _answer(place, offsets)

    async def seek(self, call: Call) -> Response:
        """Move a session, without a commit; or, without one, what a group has committed."""
        body = call.json()
        only(body, ("group", "session", "offsets", "to"))
        place = place_of(call, name_in(body, "group"))
        offsets, to = offsets_in(body), body.get("to")
        if (offsets is None) == (to is None):
            raise bad_request('either "offsets" or "to" is needed')
        _must_exist(call, offsets)
        if "session" not in body:
            if offsets is None:
                offsets = await self._at(place, to, ())
            await self._reset(place, offsets)
            return _answer(place, offsets)
        answer = await self._elsewhere(call, body)
        if answer is not None:
            return answer
        session = self._session(body, place)
        session.begin()
        async with session.turn:
            await session.follow()
            await self._move(session, offsets, to)
            return _answer(place, dict(session.positions))

    async def _move(self, session: Session, offsets: dict[int, int] | None, to: object) -> None:
        has = sorted(session.positions)
        if offsets is None and to == COMMITTED:
            offsets = await session.committed(has)
        elif offsets is None:
            offsets = await self._at(session.place, to, tuple(has)) if has else {}
        for number in offsets:
            if number not in session.positions:
                text = f"partition {number} is not this session's now"
                raise TopicError(409, text, code="not_assigned")
        session.advance(offsets)

    async def lag(self, call: Call) -> Response:
        """By partition; what was never committed lags behind as a whole."""
        place = place_of(call, checked_name("group", text_asked(call.request, "group")))
        group = await self._group(place)
        first = await self._at(place, "first", ())
        following = await self._at(place, "next", ())
        numbers = sorted(first.keys() & following.keys())
        committed = {
            each.committed.partition.number: each.committed.offset
            for each in group.offsets
            if each.committed.partition.stream == place.topic
        }
        holders = {
            partition.number: each.member
            for each in group.members
            for partition in (*each.assigned, *each.leaving)
            if partition.stream == place.topic
        }
        lags = {
            number: max(0, following[number] - max(committed.get(number, 0), first[number]))
            for number in numbers
        }
        rows = [
            {
                "partition": number,
                "committed": committed.get(number),
                "next": following[number],
                "lag": lags[number],
                "member": holders.get(number),
            }
            for number in numbers
        ]
        total = sum(lags.values())
        return json_response(
            {"topic": place.topic, "group": place.group, "lag": total, "partitions": rows}
        )

    async def _group(self, place: Place) -> wire.GroupDescription:
        service = self._asker.service
        request = wire.DescribeGroup(place.group)
        try:
            return await self._asker.ask(place.caller, service.describe_group, request)
        except TopicError as problem:
            if problem.code != "group_not_found":
                raise
            return wire.GroupDescription(0, (), ())

    async def _at(self, place: Place, to: object, numbers: tuple[int, ...]) -> dict[int, int]:
        """Offsets at an edge or a time in ms, of these partitions; of all if there are none."""
        if isinstance(to, str) and to in _EDGES:
            request = wire.OffsetFor(place.topic, _EDGES[to], 0, numbers)
        elif isinstance(to, int) and not isinstance(to, bool) and 0 <= to <= TIME_MS_MAX:
            request = wire.OffsetFor(place.topic, wire.TIMESTAMP, to, numbers)
        else:
            raise bad_request(f"to: {to!r} is neither first, last, next nor a time in milliseconds")
        return await self._asker.offsets_at(place.caller, request)

    async def _reset(self, place: Place, offsets: dict[int, int]) -> None:
        request = wire.ResetOffsets(place.group, positions_of(place.topic, offsets))
        await self._asker.ask(place.caller, self._asker.service.reset_offsets, request)

    async def _elsewhere(self, call: Call, body: dict[str, Any]) -> Response | None:
        return await elsewhere(call, self._sessions, checked_name("session", body["session"]))

    def _session(self, body: dict[str, Any], place: Place) -> Session:
        return self._sessions.find(body["session"], place)


def _must_exist(call: Call, offsets: dict[int, int] | None) -> None:
    stream = find_topic(call)
    count = len(stream.partitions)
    for number in offsets or ():
        if number >= count:
            text = f"topic {stream.name!r} has {count} partitions, and no {number}"
            raise TopicError(404, text, code="partition_not_found")


def _answer(place: Place, offsets: dict[int, int]) -> Response:
    return json_response(
        {"topic": place.topic, "group": place.group, "offsets": offset_rows(offsets)}
    )
