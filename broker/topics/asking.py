"""The stream service, awaited, for callers whose permissions are those of the stream protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from broker.http.auth import require_entry
from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Refused, Status
from broker.streams.permissions import needed
from broker.streams.records import find_stream
from broker.topics.problems import UNAVAILABLE, TopicError, from_refusal, no_topic
from queues.stream.names import INTERNAL
from queues.stream.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.http.admin import Call
    from broker.node import Node
    from broker.streams.service import Caller, StreamService, Then

T = TypeVar("T")

WAIT_S: Final = 50.0  # for the disk, or another node


class Asker:
    """One for a node."""

    def __init__(self, node: Node, service: StreamService) -> None:
        self.node = node
        self.service = service

    async def ask(
        self, caller: Caller, method: Callable[[Caller, Any, Then[T]], None], request: Any
    ) -> T:
        """The answer. Raises TopicError for a refusal; permissions are the caller's business."""
        (found,) = await self.ask_all(caller, method, [request])
        if isinstance(found, Refused):
            raise from_refusal(found)
        return found

    async def ask_all(
        self, caller: Caller, method: Callable[[Caller, Any, Then[T]], None], requests: list[Any]
    ) -> list[T | Refused]:
        """Ask for all of these at once, in this order, and wait for all answers."""
        answers: dict[int, T | Refused] = {}
        done = trio.Event()

        def ask(place: int, request: Any) -> None:
            def answer(found: T | Refused) -> None:
                answers[place] = found
                if len(answers) == len(requests):
                    done.set()

            method(caller, request, answer)

        for place, request in enumerate(requests):
            ask(place, request)
        self.node.flush()  # this is the end of a turn: nobody else will
        with trio.move_on_after(WAIT_S):
            await done.wait()
        late = Refused(Status.UNAVAILABLE, "no answer in time: nobody can say what became of it")
        return [answers.get(place, late) for place in range(len(requests))]

    async def offsets_at(self, caller: Caller, request: wire.OffsetFor) -> dict[int, int]:
        """By partition. In a cluster the end is not before what was answered anywhere."""
        stream = find_stream(self.node.vhosts, caller.vhost, request.stream)
        if isinstance(stream, Stream) and request.place != wire.FIRST:
            done = trio.Event()
            stream.when_current(request.partitions or range(len(stream.partitions)), done.set)
            self.node.flush()
            await done.wait()
        found = await self.ask(caller, self.service.offset_for, request)
        return {each.partition: each.offset for each in found.offsets}


def allow(call: Call, *messages: Any) -> None:
    """Raises TopicError unless the user may ask for all of these."""
    vhost = call.vhost().name
    require_entry(call.user, vhost)
    for message in messages:
        for action, name in needed(message):
            is_internal = action == "write" and name in INTERNAL
            if is_internal or not call.user.may(vhost, action, name):
                text = f"{action} access to '{name}' refused for user '{call.user.name}'"
                raise TopicError(403, text, code="access_refused")


def find_topic(call: Call) -> Stream:
    """The topic that the path names."""
    name = call.parameter("topic")
    found = call.vhost().queues.get(name)
    if not isinstance(found, Stream):
        raise no_topic(name)
    return found


def must_be_sound(stream: Stream) -> None:
    if stream.deleted:
        raise no_topic(stream.name)
    if stream.damaged is not None:
        text = f"topic {stream.name!r} is damaged: {stream.damaged}"
        raise TopicError(UNAVAILABLE, text, code="stream_damaged")
