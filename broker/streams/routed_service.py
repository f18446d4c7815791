"""The streams of a cluster: requests are carried out here, or at the node that has to decide.

Records are read here, and appended by the streams' own way to the leaders. Groups, transactions and
producer ids are each where their log leads; who calls has been let in here, and is believed there.

    request   0           2         4        6
              +-----------+---------+--------+-------+------+------+
              |operation H|vhost   H|user   H| vhost | user | body |
              +-----------+---------+--------+-------+------+------+
    answer    as to a client, without its length

Little-endian; vhost and user by their sizes first. Bodies are those of the stream protocol.
"""

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from broker.protocol import stream_messages as wire
from broker.protocol.stream_fields import MalformedError
from broker.protocol.stream_wire import (
    LENGTH_BYTES,
    Operation,
    Refused,
    Status,
    decode_refusal,
    encode_answer,
    encode_refusal,
    read_answer,
)
from broker.streams.producer_registry import REGISTRY_UID
from broker.streams.service import Caller, StreamService, Then

_HEAD: Final = struct.Struct("<HHH")

_GROUPS: Final = frozenset(
    {
        Operation.JOIN,
        Operation.HEARTBEAT,
        Operation.LEAVE,
        Operation.COMMIT_OFFSETS,
        Operation.FETCH_OFFSETS,
        Operation.RESET_OFFSETS,
        Operation.LIST_GROUPS,
        Operation.DESCRIBE_GROUP,
    }
)
_TRANSACTIONS: Final = frozenset({Operation.OPEN_TRANSACTIONS, Operation.COMMIT, Operation.ABORT})
ROUTED: Final = _GROUPS | _TRANSACTIONS | {Operation.ALLOCATE_PRODUCER}


class Routes(Protocol):
    """Where to go, and how."""

    node: int

    def leader_of(self, uid: bytes) -> int | None: ...

    def groups_log(self, vhost: str, then: Callable[[bytes | None], None]) -> None:
        """The uid of the log of the vhost's groups, made if need be; None if that cannot be now."""
        ...

    def transactions_log(self, vhost: str) -> bytes | None:
        """The uid of the log of the vhost's transactions; None if there is no such vhost."""
        ...

    def ask(self, node: int, body: bytes, then: Callable[[bytes | None], None]) -> None:
        """`RoutedService.handle_forwarded` there; None: no answer will come."""
        ...


class RoutedService:
    """A `StreamService` around that of this node."""

    def __init__(self, local: StreamService, routes: Routes) -> None:
        self._routes = routes
        self._calls: dict[Operation, Callable[[Caller, Any, Callable[[Any], None]], None]] = {
            operation: getattr(local, operation.name.lower()) for operation in ROUTED
        }
        self.metadata = local.metadata
        self.identify = local.identify
        self.list_streams = local.list_streams
        self.offset_for = local.offset_for
        self.fetch = local.fetch
        self.watch = local.watch
        self.append = local.append
        self.stage = local.stage

    # As a StreamService

    def allocate_producer(
        self, caller: Caller, request: wire.AllocateProducer, then: Then[wire.ProducerAllocated]
    ) -> None:
        self._at(REGISTRY_UID, Operation.ALLOCATE_PRODUCER, caller, request, then)

    def join(self, caller: Caller, request: wire.Join, then: Then[wire.Assignment]) -> None:
        self._at_groups(Operation.JOIN, caller, request, then)

    def heartbeat(
        self, caller: Caller, request: wire.Heartbeat, then: Then[wire.Assignment]
    ) -> None:
        self._at_groups(Operation.HEARTBEAT, caller, request, then)

    def leave(self, caller: Caller, request: wire.Leave, then: Then[wire.Empty]) -> None:
        self._at_groups(Operation.LEAVE, caller, request, then)

    def commit_offsets(
        self, caller: Caller, request: wire.CommitOffsets, then: Then[wire.Empty]
    ) -> None:
        self._at_groups(Operation.COMMIT_OFFSETS, caller, request, then)

    def fetch_offsets(
        self, caller: Caller, request: wire.FetchOffsets, then: Then[wire.CommittedOffsets]
    ) -> None:
        self._at_groups(Operation.FETCH_OFFSETS, caller, request, then)

    def reset_offsets(
        self, caller: Caller, request: wire.ResetOffsets, then: Then[wire.Empty]
    ) -> None:
        self._at_groups(Operation.RESET_OFFSETS, caller, request, then)

    def list_groups(self, caller: Caller, request: wire.Empty, then: Then[wire.GroupList]) -> None:
        self._at_groups(Operation.LIST_GROUPS, caller, request, then)

    def describe_group(
        self, caller: Caller, request: wire.DescribeGroup, then: Then[wire.GroupDescription]
    ) -> None:
        self._at_groups(Operation.DESCRIBE_GROUP, caller, request, then)

    def open_transactions(
        self, caller: Caller, request: wire.OpenTransactions, then: Then[wire.TransactionsOpened]
    ) -> None:
        self._at_transactions(Operation.OPEN_TRANSACTIONS, caller, request, then)

    def commit(self, caller: Caller, request: wire.Commit, then: Then[wire.Committed]) -> None:
        self._at_transactions(Operation.COMMIT, caller, request, then)

    def abort(self, caller: Caller, request: wire.Abort, then: Then[wire.Empty]) -> None:
        self._at_transactions(Operation.ABORT, caller, request, then)

    # To the node that decides

    def _at_transactions(
        self, operation: Operation, caller: Caller, request: Any, then: Callable[[Any], None]
    ) -> None:
        uid = self._routes.transactions_log(caller.vhost)
        if uid is None:
            then(Refused(Status.VHOST_REFUSED, "the vhost was deleted"))
        else:
            self._at(uid, operation, caller, request, then)

    def _at_groups(
        self, operation: Operation, caller: Caller, request: Any, then: Callable[[Any], None]
    ) -> None:
        def found(uid: bytes | None) -> None:
            if uid is None:
                then(Refused(Status.UNAVAILABLE, "the groups of this vhost cannot be kept now"))
            else:
                self._at(uid, operation, caller, request, then)

        self._routes.groups_log(caller.vhost, found)

    def _at(
        self,
        uid: bytes,
        operation: Operation,
        caller: Caller,
        request: Any,
        then: Callable[[Any], None],
    ) -> None:
        leader = self._routes.leader_of(uid)
        if leader is None:
            then(Refused(Status.UNAVAILABLE, "no node can decide that now: ask again"))
        elif leader == self._routes.node:
            self._calls[operation](caller, request, then)
        else:
            body = encode_forwarded(operation, caller, request)
            self._routes.ask(leader, body, partial(_answered, operation, then))

    # At the node that decides

    def handle_forwarded(self, body: bytes, answer: Callable[[bytes], None]) -> None:
        """Carry out a request for a client of another node. Raises MalformedError for nonsense.

        Not sent on from here: who was asked and does not lead says that it is unavailable.
        """
        operation, caller, request = decode_forwarded(body)

        def answered(found: Any) -> None:
            if not isinstance(found, Refused):
                try:
                    data = encode_answer(0, operation, wire.encode_body(found))
                except MalformedError as error:  # more than an answer can hold
                    found = Refused(Status.INTERNAL_ERROR, str(error))
            if isinstance(found, Refused):
                data = encode_refusal(0, operation, found)
            answer(data[LENGTH_BYTES:])

        self._calls[operation](caller, request, answered)


def encode_forwarded(operation: Operation, caller: Caller, request: Any) -> bytes:
    vhost, user = caller.vhost.encode(), caller.user.encode()
    head = _HEAD.pack(operation, len(vhost), len(user))
    return b"".join((head, vhost, user, *wire.encode_body(request)))


def decode_forwarded(body: bytes) -> tuple[Operation, Caller, Any]:
    """Raises MalformedError."""
    try:
        code, vhost, user = _HEAD.unpack_from(body)
        operation = Operation(code)
        names = body[_HEAD.size : _HEAD.size + vhost + user]
        caller = Caller(names[:vhost].decode(), names[vhost:].decode())
    except (struct.error, ValueError) as error:
        raise MalformedError(str(error)) from None
    if operation not in ROUTED:
        raise MalformedError(f"{operation.name} is not for another node")
    kind, _ = wire.MESSAGES[operation]
    return operation, caller, wire.decode_body(kind, body[_HEAD.size + vhost + user :])


def _answered(operation: Operation, then: Callable[[Any], None], answer: bytes | None) -> None:
    if answer is None:
        then(Refused(Status.UNAVAILABLE, "the node that decides that was lost: ask again"))
        return
    found = read_answer(memoryview(answer))
    if found.status != Status.OK:
        then(decode_refusal(found))
    else:
        then(wire.decode_body(wire.MESSAGES[operation][1], found.body))
