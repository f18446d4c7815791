"""The node's streams behind the stream protocol: records here, groups and transactions beside."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from broker.protocol import stream_messages as wire
from broker.protocol.stream_wire import Refused, Status
from broker.streams.group_book import Barrier, at_once
from broker.streams.producer_owners import owned
from broker.streams.producer_registry import ProducerRegistry
from broker.streams.records import Records
from broker.streams.service import Caller, Then
from broker.vhost import VHost
from queues.stream.producers import ProducerId
from queues.stream.staged_rows import Lost
from queues.stream.stream import Stream

NAME_BYTES_MAX: Final = 255  # of a producer: many of them are kept


class Groups(Protocol):
    """Consumer groups, as StreamService has them."""

    def join(self, caller: Caller, request: wire.Join, then: Then[wire.Assignment]) -> None: ...
    def heartbeat(
        self, caller: Caller, request: wire.Heartbeat, then: Then[wire.Assignment]
    ) -> None: ...
    def leave(self, caller: Caller, request: wire.Leave, then: Then[wire.Empty]) -> None: ...
    def commit_offsets(
        self, caller: Caller, request: wire.CommitOffsets, then: Then[wire.Empty]
    ) -> None: ...
    def fetch_offsets(
        self, caller: Caller, request: wire.FetchOffsets, then: Then[wire.CommittedOffsets]
    ) -> None: ...
    def reset_offsets(
        self, caller: Caller, request: wire.ResetOffsets, then: Then[wire.Empty]
    ) -> None: ...
    def list_groups(
        self, caller: Caller, request: wire.Empty, then: Then[wire.GroupList]
    ) -> None: ...
    def describe_group(
        self, caller: Caller, request: wire.DescribeGroup, then: Then[wire.GroupDescription]
    ) -> None: ...


class Transactions(Protocol):
    """Transactions, as StreamService has them."""

    def open_transactions(
        self, caller: Caller, request: wire.OpenTransactions, then: Then[wire.TransactionsOpened]
    ) -> None: ...
    def stage(self, caller: Caller, request: wire.Stage, then: Then[wire.Staged]) -> None: ...
    def commit(self, caller: Caller, request: wire.Commit, then: Then[wire.Committed]) -> None: ...
    def abort(self, caller: Caller, request: wire.Abort, then: Then[wire.Empty]) -> None: ...
    def settled(self, vhost: str, stream: Stream) -> int:
        """Up to which decision the transactions of a stream are whole on this node."""
        ...


class StreamsService:
    """A `StreamService`."""

    def __init__(
        self,
        vhosts: Mapping[str, VHost],
        producers: ProducerRegistry,
        groups: Groups,
        transactions: Transactions,
        leader_address: Callable[[bytes], str] = lambda _: "",
        definitions: Barrier = at_once,
    ) -> None:
        self._producers = producers
        records = Records(vhosts, transactions.settled, leader_address, definitions)
        self.metadata = records.metadata
        self.identify = records.identify
        self.list_streams = records.list_streams
        self.offset_for = records.offset_for
        self.fetch = records.fetch
        self.watch = records.watch
        self.append = records.append
        self.join = groups.join
        self.heartbeat = groups.heartbeat
        self.leave = groups.leave
        self.commit_offsets = groups.commit_offsets
        self.fetch_offsets = groups.fetch_offsets
        self.reset_offsets = groups.reset_offsets
        self.list_groups = groups.list_groups
        self.describe_group = groups.describe_group
        self.open_transactions = transactions.open_transactions
        self.stage = transactions.stage
        self.commit = transactions.commit
        self.abort = transactions.abort

    def allocate_producer(
        self, caller: Caller, request: wire.AllocateProducer, then: Then[wire.ProducerAllocated]
    ) -> None:
        def answer(given: ProducerId | Lost | None) -> None:
            if isinstance(given, Lost):
                then(Refused(Status.UNAVAILABLE, given.value))
            elif given is None:
                then(Refused(Status.TOO_MANY_PRODUCERS, "too many names of producers are known"))
            else:
                then(wire.ProducerAllocated(owned(given.pid, caller), given.epoch))

        if self._producers.damage is not None:
            text = f"it is not known which producer ids were given: {self._producers.damage}"
            then(Refused(Status.UNAVAILABLE, text))
        elif len(request.name.encode()) > NAME_BYTES_MAX:
            text = f"a producer's name of more than {NAME_BYTES_MAX} bytes"
            then(Refused(Status.MALFORMED, text))
        else:
            self._producers.allocate(_own_name(caller, request.name), answer)


def _own_name(caller: Caller, name: str) -> str:
    """A name that nobody else has: of the vhost and the user."""
    vhost, user = caller
    return f"{len(vhost)}:{vhost}{len(user)}:{user}{name}" if name else ""
