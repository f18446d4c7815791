"""The streams of a cluster on this node: their partitions' logs, and the way to those who decide.

Every node has all of every stream, with a vote or as a learner, and readers read what is near.
Groups, transactions and producer ids are decided where their log leads, which all nodes have too.
What is asked of another node begins with what it is for (kind STREAM):

    0   uid of a partition's log, 16 bytes; then a request of queues.stream.forwarding
    1   a request of broker.streams.routed_service
    2   u16 and the name of a vhost; then a request of broker.streams.group_participant
    3   the same; then the name of a group in which something moved, which members should look at
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from broker.cluster.asking import Asking, Then
from broker.cluster.kinds import Kind
from broker.cluster.placement import Placement
from broker.cluster.requests import no_quorum
from broker.streams.group_book import SEGMENT_BYTES
from broker.streams.group_host import GroupHost
from broker.streams.host import partition_uid
from broker.streams.producer_registry import REGISTRY_UID, ProducerRegistry
from broker.streams.remote_groups import RemoteGroups
from broker.streams.routed_service import RoutedService
from broker.streams.streams_service import StreamsService
from broker.streams.transaction_host import TransactionHost
from broker.streams.transaction_log import coordinator_uid
from queues.declared import parse_arguments
from queues.live_log import Log
from queues.raft.ready import NotLeaderError
from queues.stream.arguments import StreamQueueOptions
from queues.stream.names import INTERNAL, OFFSETS_STREAM
from queues.stream.partition import StreamPartition
from queues.stream.stream import Stream

if TYPE_CHECKING:
    from broker.cluster.cluster_storage import ClusterStorage
    from broker.hosted_log import MemberLog, MemberMachine
    from broker.vhost import VHost
    from queues.raft.messages import NodeId
    from queues.seams import AnyQueue

LOOK_MS: Final = 1000  # between looks at what waits without a majority, and at what is damaged
MINORITY_MS: Final = 3000  # without one for so long, publishes are refused
LEADERLESS_MS: Final = 10_000  # the same without a leader: longer than any election takes
LOST: Final = "most of its replicas are damaged"

_PARTITION, _SERVICE, _GROUPS, _MOVED = range(4)
_OFFSETS: Final = {
    "x-queue-type": "stream",
    "x-compact": True,
    "x-stream-max-segment-size-bytes": SEGMENT_BYTES,
}


class ClusterStream(Stream):
    """A stream that knows where it is."""

    __slots__ = ("placement",)

    placement: Placement

    def placed(self, placement: Placement) -> None:
        self.placement = placement

    def is_lost(self, lost: bool) -> None:  # noqa: FBT001 - the state, as the node sees it
        """What this node has of it is sound, but it has no leader, and gets none; or it has."""
        if lost and self.damaged is None:
            self.damage(LOST)
        elif not lost and self.damaged == LOST:
            self.damaged = None


class ClusterStreams:
    """One per node; to the streams it is their `Replication`, to the service its `Routes`."""

    def __init__(self, storage: "ClusterStorage") -> None:
        self._storage = storage
        self.node = storage.me
        self.boot = storage.peers.boot
        self._timers = storage.timers
        self._asking = Asking(storage.peers, Kind.STREAM, self._timers, self._asked)
        self._alone_since: dict[bytes, int] = {}  # partitions without a majority, or a leader
        self._lost: set[bytes] = set()  # partitions that get no leader
        self._members: dict[str, RemoteGroups] = {}
        self._to_tell: dict[tuple[str, str], None] = {}  # vhosts and groups in which things moved
        self.received = self._asking.received
        self.node_down = self._asking.node_down
        self.leader_of = storage.book.leader_of
        self.watch = storage.book.watch
        self.unwatch = storage.book.unwatch
        self.forget = storage.book.forget
        storage.streams.replication = self

    # Its logs

    @property
    def shared_uids(self) -> list[bytes]:
        """Of the logs that all nodes have, beside those of streams."""
        vhosts = self._storage.state.vhosts.values()
        return [REGISTRY_UID, *(coordinator_uid(vhost.name, vhost.uid) for vhost in vhosts)]

    def _join_coordinator(
        self, vhost: "VHost", uid: bytes, make: "Callable[[MemberLog], MemberMachine]"
    ) -> None:
        """A vhost that was made since has the members that there were then, if they stay."""
        storage = self._storage
        voters = vhost.members or storage.founders
        may_be_new = not vhost.members or storage.catalog.ready
        storage.host.join(uid, voters, make, first=min(voters), may_be_new=may_be_new)

    def join(
        self, stream: Stream, number: int, uid: bytes, make: Callable[[Log], StreamPartition]
    ) -> None:
        assert isinstance(stream, ClusterStream)
        members = stream.placement.groups[number]
        may_be_new = self._storage.catalog.ready
        host = self._storage.host
        log = host.join(uid, members, make, first=members[0], may_be_new=may_be_new)
        partition = log.machine
        assert isinstance(partition, StreamPartition)
        log.is_full = lambda: partition.is_full
        log.on_disk = partition.on_disk

    def entries(self, log: Log, indexes: list[int]) -> Iterable[tuple[int, bytes]]:
        return self._storage.host.entries(log, indexes)  # type: ignore[arg-type]

    def make_stream(
        self,
        vhost: "VHost",
        name: str,
        uid: bytes,
        options: StreamQueueOptions,
        arguments: Mapping[str, Any],
        placement: Placement,
    ) -> ClusterStream:
        stream = ClusterStream(name, vhost, options, arguments=arguments)
        stream.uid = uid
        stream.placement = placement
        self._storage.streams.make(stream)
        return stream

    # What is decided somewhere

    def open(self) -> None:
        """Bring back who decides, and make the service that finds them."""
        storage = self._storage
        node = storage.node
        voters = storage.founders
        registry = storage.host.join(REGISTRY_UID, voters, self._registry, first=min(voters))
        producers = registry.machine
        assert isinstance(producers, ProducerRegistry)
        groups = GroupHost(node, replicated=True)
        self._groups = groups
        self._transactions = TransactionHost(
            node,
            groups,
            storage.host,
            lost_logs=storage.lost_logs,
            join=self._join_coordinator,
            elsewhere=_GroupsElsewhere(self),
            definitions=self._definitions_barrier,
        )
        local = StreamsService(
            node.vhosts,
            producers,
            groups,
            self._transactions,
            self._leader_address,
            self._definitions_barrier,
        )
        self.service = RoutedService(local, self)

    def attach(self, vhost: "VHost") -> None:
        """A vhost was made."""
        name = vhost.name
        self._groups.attach(vhost)
        book = self._groups.books[name]
        book.on_moved = partial(self._moved, name)
        book.barrier = partial(self._groups_barrier, name)
        book.definitions = self._definitions_barrier
        self._transactions.attach(vhost)
        members = RemoteGroups(name, self.service, self._timers, book)
        vhost.groups = self._members[name] = members

    def detach(self, vhost: "VHost") -> None:
        """It is deleted."""
        del self._members[vhost.name]
        self._transactions.detach(vhost)
        self._groups.detach(vhost)

    def transactions_log(self, vhost: str) -> bytes | None:
        found = self._storage.state.vhosts.get(vhost)
        return None if found is None else coordinator_uid(vhost, found.uid)

    def _registry(self, log: "MemberLog") -> ProducerRegistry:
        return ProducerRegistry(log, self._timers.now_ms, replicated=True)

    def start(self) -> None:
        self._groups.start()
        self._transactions.start()
        self._look()

    def _leader_address(self, uid: bytes) -> str:
        leader = self.leader_of(uid)
        known = self._storage.state.nodes.by_number.get(leader or 0)
        return known.amqp if known is not None and leader != self.node else ""

    def groups_log(self, vhost: str, then: Callable[[bytes | None], None]) -> None:
        found = self._offsets(vhost)
        if found is not None:
            then(partition_uid(found.uid, 0))
            return

        def made(_: object) -> None:
            stream = self._offsets(vhost)
            then(partition_uid(stream.uid, 0) if stream is not None else None)

        catalog = self._storage.catalog
        options = parse_arguments(_OFFSETS, default="stream")
        place = catalog.place(options, _OFFSETS, lasting=True).encode()
        details = (uuid4().bytes, False, "stream", _OFFSETS, True, None, place)
        catalog.request(["queue", vhost, OFFSETS_STREAM, *details], made)

    def _offsets(self, vhost: str) -> "AnyQueue | None":
        found = self._storage.state.vhosts.get(vhost)
        return None if found is None else found.queues.get(OFFSETS_STREAM)

    def _groups_barrier(self, vhost: str, then: Callable[[Exception | None], None]) -> None:
        """Whether this node has the groups still, and all that is known of them."""
        stream = self._offsets(vhost)
        log = None
        if stream is not None:
            log = self._storage.replication.logs.get(partition_uid(stream.uid, 0))
        if log is None:
            then(NotLeaderError(None))
        else:
            log.read_index(then)

    def _definitions_barrier(self, then: Callable[[Exception | None], None]) -> None:
        """Whether this node has made all definitions that were there when it was asked."""
        catalog = self._storage.catalog
        if not catalog.ready:
            then(no_quorum())
        else:
            catalog.read(then)

    # To other nodes

    def forward(self, uid: bytes, node: int, body: bytes, then: Then) -> None:
        self._asking.ask(node, bytes([_PARTITION]) + uid + body, then)

    def ask(self, node: int, body: bytes, then: Then) -> None:
        self._asking.ask(node, bytes([_SERVICE]) + body, then)

    def ask_groups(self, vhost: str, body: bytes, then: Then) -> None:
        """The node that has the groups of a vhost."""

        def found(uid: bytes | None) -> None:
            leader = None if uid is None else self.leader_of(uid)
            if leader is None:
                self._timers.call_at(self._timers.now_ms(), partial(then, None))
                return
            self._asking.ask(leader, _about(_GROUPS, vhost) + body, then)

        self.groups_log(vhost, found)

    def _moved(self, vhost: str, group: str) -> None:
        """This node has the groups: members look, here and elsewhere, when it has done its part."""
        if not self._to_tell:
            self._timers.call_at(self._timers.now_ms(), self._tell)
        self._to_tell[vhost, group] = None

    def _tell(self) -> None:
        moved, self._to_tell = self._to_tell, {}
        for vhost, group in moved:
            for node in self._storage.peers.up():
                self._asking.ask(node, _about(_MOVED, vhost) + group.encode(), lambda _: None)
            self._look_at(vhost, group)

    def _asked(self, _node: "NodeId", body: bytes, answer: Callable[[bytes], None]) -> None:
        what, rest = body[0], body[1:]
        if what == _PARTITION:
            self._storage.streams.handle_forwarded(rest[:16], rest[16:], answer)
        elif what == _SERVICE:
            self.service.handle_forwarded(rest, answer)
        elif what == _GROUPS:
            end = 2 + int.from_bytes(rest[:2], "big")
            self._transactions.handle_group(rest[2:end].decode(), rest[end:], answer)
        elif what == _MOVED:
            end = 2 + int.from_bytes(rest[:2], "big")
            answer(b"")
            self._look_at(rest[2:end].decode(), rest[end:].decode())
        else:
            raise ValueError(f"unknown question {what} about streams")

    def _look_at(self, vhost: str, group: str) -> None:
        members = self._members.get(vhost)
        if members is not None:  # else the vhost was deleted meanwhile
            members.look(group)

    # Without a majority

    def _look(self) -> None:
        now_ms = self._timers.now_ms()
        self._timers.call_at(now_ms + LOOK_MS, self._look)
        alone: dict[bytes, int] = {}
        for uid in self._storage.streams.waiting():
            majority = self._storage.sees_quorum(uid)
            if not majority or self.leader_of(uid) is None:
                alone[uid] = self._alone_since.get(uid, now_ms)
                if now_ms - alone[uid] >= (LEADERLESS_MS if majority else MINORITY_MS):
                    self._storage.streams.refuse(uid)
        self._alone_since = alone
        self._look_at_lost()
        for uid in self._storage.streams.unsound():
            self._storage.repair(uid)

    def _look_at_lost(self) -> None:
        """Streams that have no leader and get none say so, here as where they are damaged."""
        hopeless = self._storage.mending.hopeless()
        if not hopeless and not self._lost:
            return
        self._lost = hopeless
        for vhost in self._storage.state.vhosts.values():
            for queue in list(vhost.queues.values()):
                if isinstance(queue, ClusterStream) and queue.name not in INTERNAL:
                    count = queue.options.partitions
                    uids = [partition_uid(queue.uid, number) for number in range(count)]
                    queue.is_lost(not hopeless.isdisjoint(uids))


def _about(what: int, vhost: str) -> bytes:
    name = vhost.encode()
    return bytes([what]) + len(name).to_bytes(2, "big") + name


class _GroupsElsewhere:
    """See broker.streams.group_participant."""

    def __init__(self, streams: ClusterStreams) -> None:
        self.ask = streams.ask_groups
