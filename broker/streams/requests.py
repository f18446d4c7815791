"""The requests of a stream session: read, checked, carried out by the service, answered."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from broker.internal_errors import STREAM_SESSION
from broker.node import Node
from broker.protocol import stream_messages as wire
from broker.protocol.stream_fields import MalformedError
from broker.protocol.stream_wire import (
    FETCH_BYTES_MAX,
    WAIT_MS_MAX,
    Operation,
    Refused,
    Request,
    Status,
    answer_head,
    encode_answer,
    encode_refusal,
)
from broker.streams.login import Login
from broker.streams.permissions import needed
from broker.streams.polling import Poll
from broker.streams.sending import AnswerSender
from broker.streams.service import Caller, Found, StreamService
from queues.stream.names import INTERNAL
from queues.stream.wishes import NAME_CHARACTERS_MAX

# Enough to keep a fast link busy, and for a long poll on each of many partitions.
REQUESTS_MAX: Final = 256
# Chunks that wait for the disk or an alarm; a few of the largest.
IN_FLIGHT_BYTES_MAX: Final = 32 * 1024 * 1024

_WRITES: Final = frozenset({Operation.APPEND, Operation.STAGE})


class _Pending:
    """A request without an answer yet."""

    __slots__ = ("answered", "correlation", "operation", "size_bytes")

    def __init__(self, request: Request) -> None:
        self.correlation = request.correlation
        self.operation = request.operation
        self.size_bytes = len(request.body)
        self.answered = False


class Requests:
    """Of one client who has logged in; to its polls it is their `Reader`."""

    def __init__(
        self,
        service: StreamService,
        login: Login,
        node: Node,
        out: AnswerSender,
        on_answer: Callable[[], None],
    ) -> None:
        self._service = service
        self._user = login.user
        self._caller = Caller(login.vhost.name, login.user.name)
        self._node = node
        self._out = out
        self._on_answer = on_answer
        self._polls: dict[Poll, _Pending] = {}
        self._waiting_for_room: list[Poll] = []
        self._held: deque[tuple[_Pending, Any]] = deque()  # writes that an alarm keeps back
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._closed = False
        self.writes = False  # whether the client ever wrote
        self._calls: dict[int, Callable[[Caller, Any, Callable[[Any], None]], None]] = {
            Operation.LIST_STREAMS: service.list_streams,
            Operation.OFFSET_FOR: service.offset_for,
            Operation.APPEND: service.append,
            Operation.ALLOCATE_PRODUCER: service.allocate_producer,
            Operation.JOIN: service.join,
            Operation.HEARTBEAT: service.heartbeat,
            Operation.LEAVE: service.leave,
            Operation.COMMIT_OFFSETS: service.commit_offsets,
            Operation.FETCH_OFFSETS: service.fetch_offsets,
            Operation.RESET_OFFSETS: service.reset_offsets,
            Operation.LIST_GROUPS: service.list_groups,
            Operation.DESCRIBE_GROUP: service.describe_group,
            Operation.OPEN_TRANSACTIONS: service.open_transactions,
            Operation.STAGE: service.stage,
            Operation.COMMIT: service.commit,
            Operation.ABORT: service.abort,
        }

    @property
    def full(self) -> bool:
        """No more requests may be taken now."""
        return (
            self._in_flight >= REQUESTS_MAX
            or self._in_flight_bytes > IN_FLIGHT_BYTES_MAX
            or self._out.brimming
        )

    @property
    def idle(self) -> bool:
        return not self._in_flight

    def handle(self, request: Request) -> None:
        pending = _Pending(request)
        self._in_flight += 1
        self._in_flight_bytes += pending.size_bytes
        try:
            self._carry_out(pending, request)
        except MalformedError as error:
            self._refuse(pending, Status.MALFORMED, str(error))
        except Exception as error:  # noqa: BLE001 - a bug of ours must not end the node
            self._note(error)
            self._refuse(pending, Status.INTERNAL_ERROR, "internal error")

    def _carry_out(self, pending: _Pending, request: Request) -> None:
        try:
            operation = Operation(request.operation)
            kind, _ = wire.MESSAGES[operation]
        except (ValueError, KeyError):
            text = f"there is no operation {request.operation}"
            self._refuse(pending, Status.UNKNOWN_OPERATION, text)
            return
        message = wire.decode_body(kind, request.body)
        if len(getattr(message, "group", "")) > NAME_CHARACTERS_MAX:
            text = f"the name of a group has {NAME_CHARACTERS_MAX} characters at most"
            raise MalformedError(text)
        for action, name in needed(message):
            is_internal = action == "write" and name in INTERNAL
            if is_internal or not self._user.may(self._caller.vhost, action, name):
                text = f"{action} access to '{name}' refused for user '{self._user.name}'"
                self._refuse(pending, Status.ACCESS_REFUSED, text)
                return
        if operation in _WRITES:
            self.writes = True
            if self._node.blocked is not None or self._held:
                self._held.append((pending, message))
                return
        self._start(pending, operation, message)

    def _start(self, pending: _Pending, operation: Operation, message: Any) -> None:
        match operation:
            case Operation.PING:
                self._answer(pending, wire.Empty())
            case Operation.AUTHENTICATE:
                self._refuse(pending, Status.MALFORMED, "logged in already")
            case Operation.METADATA:
                self._metadata(pending, message)
            case Operation.IDENTIFY:
                self._identify(pending, message)
            case Operation.FETCH:
                self._fetch(pending, message)
            case _:
                self._calls[operation](self._caller, message, partial(self._answer, pending))

    def unblocked(self) -> None:
        """The alarm is over: what it kept back goes on, in order."""
        held, self._held = self._held, deque()
        for pending, message in held:
            try:
                self._start(pending, Operation(pending.operation), message)
            except Exception as error:  # noqa: BLE001 - as in `handle`
                self._note(error)
                self._refuse(pending, Status.INTERNAL_ERROR, "internal error")

    def close(self) -> None:
        """The client is gone: nothing is waited for any more."""
        self._closed = True
        self._held.clear()
        for poll in list(self._polls):
            poll.cancel()
        self._polls.clear()
        self._waiting_for_room.clear()

    # Fetches

    def _fetch(self, pending: _Pending, request: wire.Fetch) -> None:
        if request.end < request.start:
            raise MalformedError("a range that ends before it starts")
        request = request._replace(
            max_bytes=min(request.max_bytes, FETCH_BYTES_MAX),
            min_bytes=min(request.min_bytes, request.max_bytes, FETCH_BYTES_MAX),
            wait_ms=min(request.wait_ms, WAIT_MS_MAX),
        )
        poll = Poll(self._service, self._caller, request, self, self._node.timers)
        self._polls[poll] = pending
        poll.look()

    def has_room(self, poll: Poll) -> bool:
        if self._out.congested:
            self._waiting_for_room.append(poll)
            return False
        return True

    def relieved(self) -> None:
        """There is room in the way out again."""
        waiting, self._waiting_for_room = self._waiting_for_room, []
        for place, poll in enumerate(waiting):
            if self._out.congested:
                self._waiting_for_room += waiting[place:]
                return
            poll.look()

    def found(self, poll: Poll, found: Found | Refused) -> None:
        pending = self._polls.pop(poll)
        if isinstance(found, Refused):
            self._answer(pending, found)
            return
        self._done(pending)
        size = wire.FETCH_HEAD_BYTES + found.size_bytes
        head = answer_head(pending.correlation, Operation.FETCH, Status.OK, size)
        self._out.write_ranges(
            head + b"".join(wire.encode_body(found.head)),
            found.pieces,
            found.size_bytes,
            found.close,
        )

    # Answers

    def _metadata(self, pending: _Pending, request: wire.Metadata) -> None:
        """Each stream has a status of its own, also those that are not for this user.

        Who writes has to know the partitions, too.
        """
        allowed = self._known_to_user(request.streams)

        def answer(found: wire.MetadataAnswer | Refused) -> None:
            if isinstance(found, wire.MetadataAnswer) and len(allowed) < len(request.streams):
                known = {each.stream: each for each in found.streams}
                refused = partial(wire.StreamMetadata, status=Status.ACCESS_REFUSED, partitions=())
                streams = [known.get(name) or refused(name) for name in request.streams]
                found = wire.MetadataAnswer(tuple(streams))
            self._answer(pending, found)

        self._service.metadata(self._caller, wire.Metadata(allowed), answer)

    def _identify(self, pending: _Pending, request: wire.Identify) -> None:
        """As METADATA."""
        allowed = self._known_to_user(request.streams)

        def answer(found: wire.Identities | Refused) -> None:
            if isinstance(found, wire.Identities) and len(allowed) < len(request.streams):
                known = {each.stream: each for each in found.streams}
                refused = partial(wire.StreamIdentity, status=Status.ACCESS_REFUSED, uid="")
                streams = [known.get(name) or refused(name) for name in request.streams]
                found = wire.Identities(tuple(streams))
            self._answer(pending, found)

        self._service.identify(self._caller, wire.Identify(allowed), answer)

    def _known_to_user(self, streams: tuple[str, ...]) -> tuple[str, ...]:
        may, vhost = self._user.may, self._caller.vhost
        return tuple(
            name for name in streams if may(vhost, "read", name) or may(vhost, "write", name)
        )

    def _visible(self, answer: Any) -> Any:
        """Lists tell of what the user may read."""
        may = partial(self._user.may, self._caller.vhost, "read")
        match answer:
            case wire.StreamList(streams):
                return wire.StreamList(tuple(each for each in streams if may(each.stream)))
            case wire.GroupList(groups):
                return wire.GroupList(tuple(each for each in groups if may(each.group)))
        return answer

    def _answer(self, pending: _Pending, answer: Any) -> None:
        if self._closed or pending.answered:
            return
        correlation, operation = pending.correlation, pending.operation
        try:
            if not isinstance(answer, Refused):
                body = wire.encode_body(self._visible(answer))
                data = encode_answer(correlation, operation, body)
        except MalformedError as error:  # more than an answer can hold
            answer = Refused(Status.INTERNAL_ERROR, str(error))
        except Exception as error:  # noqa: BLE001 - whoever calls back has no part in it
            self._note(error)
            answer = Refused(Status.INTERNAL_ERROR, "internal error")
        if isinstance(answer, Refused):
            data = encode_refusal(correlation, operation, answer)
        self._done(pending)
        self._out.write(data)

    def _note(self, error: Exception) -> None:
        self._node.errors.note(STREAM_SESSION, error, user=self._user.name)

    def _refuse(self, pending: _Pending, status: Status, text: str) -> None:
        self._answer(pending, Refused(status, text))

    def _done(self, pending: _Pending) -> None:
        assert not pending.answered, pending.correlation
        pending.answered = True
        self._in_flight -= 1
        self._in_flight_bytes -= pending.size_bytes
        self._on_answer()
