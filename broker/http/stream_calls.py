"""What calls about streams and groups have in common: the node's stream service, awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from broker.http.admin import Call, bad_request, not_found
from broker.http.messages import HttpError
from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Refused, Status
from broker.streams.service import Caller
from queues.stream.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.streams.service import StreamService, Then

T = TypeVar("T")

_PLACES: Final = {"first": wire.FIRST, "last": wire.LAST, "next": wire.NEXT}
_MISSING: Final = frozenset(
    {Status.STREAM_NOT_FOUND, Status.PARTITION_NOT_FOUND, Status.GROUP_NOT_FOUND}
)


class Asker:
    """Asks the stream service on behalf of whoever calls."""

    def __init__(self, service: StreamService) -> None:
        self.service = service

    async def ask(
        self, call: Call, method: Callable[[Caller, Any, Then[T]], None], request: object
    ) -> T:
        """The answer; HttpError if it is a refusal."""
        answers: list[T | Refused] = []

        def ask(then: Callable[[], None]) -> None:
            def answer(given: T | Refused) -> None:
                answers.append(given)
                then()

            method(Caller(call.vhost().name, call.user.name), request, answer)

        await call.happens(ask)
        found = answers[0]
        if isinstance(found, Refused):
            raise _http_error(found)
        return found


def _http_error(refused: Refused) -> HttpError:
    if refused.status in _MISSING:
        return not_found(refused.text)
    if refused.status == Status.UNAVAILABLE:
        return HttpError(503, refused.text)
    return bad_request(refused.text)


def find_stream(call: Call) -> Stream:
    """The stream that the path names."""
    queue = call.vhost().queue(call.parameter("name"), user_of=call)
    if not isinstance(queue, Stream):
        raise bad_request(f"queue {queue.name!r} is not a stream")
    return queue


async def offsets_at(asker: Asker, call: Call, stream: str, at: str) -> dict[int, int]:
    """At first, last, next, or at a time in ms since the epoch; by partition."""
    if at in _PLACES:
        request = wire.OffsetFor(stream, _PLACES[at], 0, ())
    elif at.isascii() and at.isdigit() and len(at) <= 15:
        request = wire.OffsetFor(stream, wire.TIMESTAMP, int(at), ())
    else:
        raise bad_request(f"{at!r} is neither first, last, next nor a time in milliseconds")
    found = await asker.ask(call, asker.service.offset_for, request)
    return {each.partition: each.offset for each in found.offsets}
