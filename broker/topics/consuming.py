"""`GET /api/topics/{topic}/consume`: the next records for a group, waited for if there are none.

The first answer names a session; who sends that back is the same member of the group, and goes on
behind what it got. Nothing is committed by reading.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import trio

from broker.http.long_poll import while_connected
from broker.http.messages import Response, json_response
from broker.protocol import stream_messages as wire
from broker.streams.service import Caller
from broker.topics.asking import allow, find_topic, must_be_sound
from broker.topics.fields import checked_name, number_asked, offset_rows, text_asked
from broker.topics.problems import UNAVAILABLE, TopicError, bad_request
from broker.topics.reading import Found, read_some
from broker.topics.sessions import BEAT_S, Place, unknown_session

if TYPE_CHECKING:
    from broker.http.admin import Call
    from broker.topics.sessions import Session, Sessions
    from queues.stream.stream import Stream

RECORDS: Final = 100  # in one answer, unless the client says otherwise
RECORDS_MAX: Final = 1000
WAIT_MS_MAX: Final = 30_000  # whoever wants to wait longer asks again
IDLE_MS: Final = 30_000
IDLE_MS_MAX: Final = 600_000
AGAIN_S: Final = 0.1  # until a group that cannot be reached is asked again


class _Order(NamedTuple):
    """What a consumer wants."""

    group: str
    most: int  # records
    wait_s: float
    idle_ms: int
    start: Literal["first", "next"]


def _order(call: Call) -> _Order:
    asked = call.request
    start = text_asked(asked, "from", "first")
    if start not in ("first", "next"):
        raise bad_request(f"from: {start!r} is neither first nor next")
    return _Order(
        checked_name("group", text_asked(asked, "group")),
        number_asked(asked, "maxMessages", RECORDS, least=1, most=RECORDS_MAX),
        number_asked(asked, "timeoutMs", 0, least=0, most=WAIT_MS_MAX) / 1000,
        number_asked(asked, "sessionTimeoutMs", IDLE_MS, least=1000, most=IDLE_MS_MAX),
        "first" if start == "first" else "next",
    )


def place_of(call: Call, group: str) -> Place:
    """For a user who may read the topic for that group; raises TopicError otherwise."""
    stream = find_topic(call)
    allow(call, wire.Join(group, "", "", "", (stream.name,)))
    return Place(Caller(call.vhost().name, call.user.name), stream.name, group)


async def elsewhere(call: Call, sessions: Sessions, session_id: str) -> Response | None:
    """The answer of the node that keeps the session, if that is another one."""
    keeper = sessions.keeper_of(session_id)
    if keeper is None:
        return None
    nodes = call.elsewhere
    if nodes is None or call.passed_on or keeper not in nodes.others():
        raise unknown_session(session_id)
    carry = partial(nodes.carry, keeper, call.request, call.user)
    return await while_connected(call.request.hangup, carry)


class Consuming:
    """One for a node."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def consume(self, call: Call) -> Response:
        order = _order(call)
        place = place_of(call, order.group)
        session_id = text_asked(call.request, "session")
        if session_id:
            answer = await elsewhere(call, self._sessions, session_id)
            if answer is not None:
                return answer
            session = self._sessions.find(session_id, place)
            if "sessionTimeoutMs" in call.request.query:
                session.idle_ms = order.idle_ms
            return await self._next(call, session, order)
        session = self._sessions.make(place, idle_ms=order.idle_ms, start=order.start)
        try:
            return await self._next(call, session, order)
        except TopicError:  # nobody knows of the session
            self._sessions.drop(session)
            await self._sessions.end(session)
            raise

    async def leave(self, call: Call) -> Response:
        """End a session at once: others of the group get its partitions."""
        place = place_of(call, checked_name("group", text_asked(call.request, "group")))
        session_id = text_asked(call.request, "session")
        answer = await elsewhere(call, self._sessions, session_id)
        if answer is not None:
            return answer
        session = self._sessions.find(session_id, place)
        self._sessions.drop(session)
        await self._sessions.end(session)
        return Response(status=204)

    async def _next(self, call: Call, session: Session, order: _Order) -> Response:
        stream = find_topic(call)
        session.polling += 1
        try:
            request = session.begin()
            async with session.turn:
                poll = partial(_poll, session, stream, order, request)
                found = await while_connected(call.request.hangup, poll)
                if not session.is_last(request):
                    found = Found([], {})  # its client has asked anew, and gets them there
                session.advance(found.following)
                following = dict(session.positions)
        finally:
            session.polling -= 1
            session.touch()
        return json_response(
            {
                "session": session.id,
                "topic": stream.name,
                "group": order.group,
                "records": found.rows,
                "next": offset_rows(following),
            }
        )


async def _poll(session: Session, stream: Stream, order: _Order, request: int) -> Found:
    """Records as soon as there are any, or none when the time is over."""
    until = trio.current_time() + order.wait_s
    while True:
        try:
            await session.follow()
        except TopicError as problem:
            if problem.status != UNAVAILABLE or trio.current_time() >= until:
                raise
            await trio.sleep(AGAIN_S)
            continue
        must_be_sound(stream)
        ends = {n: max(at, stream.partitions[n].next_offset) for n, at in session.positions.items()}
        found = await read_some(stream, session.positions, session.next_numbers(), order.most)
        left_s = until - trio.current_time()
        if found.rows or left_s <= 0 or not session.is_last(request):
            return found
        session.advance(found.following)
        await _more(session, stream, ends, min(left_s, BEAT_S))


async def _more(session: Session, stream: Stream, ends: dict[int, int], wait_s: float) -> None:
    """Until there is more than that, or another request, or the time is over."""
    woken = session.nudged = trio.Event()
    watches = [stream.watch(number, end, woken.set) for number, end in ends.items()]
    try:
        with trio.move_on_after(wait_s):
            await woken.wait()
    finally:
        for unwatch in watches:
            unwatch()
