"""What a node of a cluster has on its disk: its members of replicated logs, and what lives on them.

Which those are is said by the definitions, themselves a log that all nodes have. A queue that is
declared, here or anywhere, is made by `make_front`: a front on every node, and behind it a replica
where this node is a member, or the queue itself where this node is its home.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import trio

from broker import logs
from broker.cluster.catalog import Catalog
from broker.cluster.cluster_streams import ClusterStreams
from broker.cluster.front import QueueFront
from broker.cluster.fronts import Fronts
from broker.cluster.keeper import Keeper, Wish
from broker.cluster.leaders import LeaderBook
from broker.cluster.members import Members
from broker.cluster.mending import Mending
from broker.cluster.peers import Peers
from broker.cluster.placement import Placement
from broker.cluster.replies import Replies
from broker.cluster.seams import Owner, Result
from broker.cluster.state import State
from broker.hosted_log import MemberLog
from broker.journal import DEFINITIONS_UID
from broker.node import Node
from broker.protocol.errors import not_found
from broker.security.seeding import seeds
from broker.storage import Storage
from broker.streams.host import partition_uid
from broker.vhost import VHost
from queues.declared import Options
from queues.queue import Queue
from queues.raft.config import PATIENT, Config
from queues.raft.messages import NodeId
from queues.raft.ready import NotLeaderError
from queues.replica import QueueReplica
from queues.seams import AnyQueue
from queues.storage.disk import Disk
from queues.storage.options import StoreOptions
from queues.stream.arguments import StreamQueueOptions

HAND_OVER_S: Final = 3.0  # for what this node leads, when it stops

_log = logs.get("cluster")


class ClusterStorage(Storage):
    """One per node of a cluster, made once the node has a number in it."""

    def __init__(
        self,
        node: Node,
        peers: Peers,
        *,
        founder: bool,
        disk: Disk | None = None,
        threaded: bool = True,
        options: StoreOptions | None = None,
    ) -> None:
        """`founder`: the cluster was formed with it, so that it votes on the definitions."""
        super().__init__(node, disk=disk, threaded=threaded, options=options)
        self.node = node
        self.timers = node.timers
        self.me = peers.me
        self.peers = peers
        self.book = LeaderBook(self.me, peers)
        self.replication = self.host.connect(self.me, peers, self.book)
        self.fronts = Fronts(
            self.me, peers, self.book, node.timers, self.has_quorum, crowd=self._crowd
        )
        self.replies = Replies(self.me, peers, node.vhosts)
        self.state = State(node.vhosts, self._vhost, node.registry)
        self.state.global_parameters = node.global_parameters
        self.state.schemas = node.schemas
        self.catalog = Catalog(
            self.me, peers.boot, peers, node.timers, self.state, leaders=self._leaders
        )
        self.members = Members(
            self.catalog,
            node.timers,
            metadata_uid=DEFINITIONS_UID,
            shared_uids=lambda: self.shared_streams.shared_uids,
            metadata_config=self._definitions_config,
            up=peers.up,
            leader_of=self.book.leader_of,
            group_uid=partition_uid,
        )
        self.keeper = Keeper(
            self.me,
            node.timers,
            groups=lambda: list(self.replication.logs.values()),
            wish_of=self.wish_of,
            is_up=peers.is_up,
            leads=self._leaders,
        )
        self.book.on_lead = self.keeper.led
        self.mending = Mending(
            self.replication,
            node.timers,
            others_of=self._others_of,
            look=self.keeper.look,
            spared=DEFINITIONS_UID,
        )
        # Who votes in logs that all nodes have, as they begin.
        self.founders = tuple(n for n in sorted(peers.table) if founder or n != self.me)
        self._replicas: dict[bytes, QueueReplica] = {}
        self.shared_streams = ClusterStreams(self)

    # The definitions

    def _bring_back(self) -> None:
        self.replication.lost_logs = self.lost_logs
        self.shared_streams.open()
        self._node.catalog = self.catalog
        self._node.keepers.append(self)
        log = self.host.join(
            DEFINITIONS_UID, self.founders, lambda _: self.catalog, first=min(self.founders)
        )
        self.catalog.use(log)
        self.book.watch(DEFINITIONS_UID, self.catalog.leader_changed)
        self.catalog.on_members.append(self._members_changed)

    def _definitions_config(self) -> Config:
        config = self.replication.logs[DEFINITIONS_UID].config
        assert config is not None, "a node whose definitions are damaged does not run"
        return config

    def _vhost(self, name: str) -> VHost:
        vhost = self._node.vhosts.get(name)
        if vhost is not None:
            return vhost
        if self._node.registry.seeded:
            raise not_found(f"no vhost '{name}'")
        return self._node.open_vhost(name)  # written before vhosts were part of the definitions

    def attach(self, vhost: VHost) -> None:
        """A vhost was made."""
        vhost.catalog = self.catalog
        vhost.make_front = partial(self._make_front, vhost)
        vhost.replies = self.replies
        self.shared_streams.attach(vhost)

    def detach(self, vhost: VHost) -> None:
        """It is deleted, with all that is in it."""
        self.shared_streams.detach(vhost)
        for queue in list(vhost.queues.values()):
            self.state.drop_queue(vhost, queue)

    async def seed(self) -> None:
        """Have all nodes make what the configuration has, and was never made before."""
        wanted = seeds(self._node.config, self._node.registry)
        for change in await self._off_loop(lambda: [*wanted]):
            done = trio.Event()
            self.catalog.request(change, partial(_let_know, done), lasting=True)
            self._node.flush()
            await done.wait()

    def _leaders(self) -> Mapping[NodeId, int]:
        return Counter(self.book.leaders())

    # Queues

    def _make_front(
        self,
        vhost: VHost,
        name: str,
        uid: bytes,
        options: Options,
        arguments: Mapping[str, Any],
        *,
        durable: bool,
        auto_delete: bool,
        owner: Owner | None,
        placement: Placement,
    ) -> AnyQueue:
        if isinstance(options, StreamQueueOptions):
            return self.shared_streams.make_stream(vhost, name, uid, options, arguments, placement)
        front = QueueFront(
            name,
            uid,
            self.fronts,
            options,
            vhost=vhost.name,
            arguments=arguments,
            durable=durable,
            auto_delete=auto_delete,
            owner=owner,
            placement=placement,
        )
        make_queue = partial(self._make_queue, vhost, front)
        if placement.home is not None:
            self.book.fix(uid, placement.home)
        front.start()
        if self.me in placement.nodes:
            if placement.home is None or durable:
                self._join(
                    front, placement.groups[0] if placement.groups else (self.me,), make_queue
                )
            elif placement.boot == self.peers.boot:
                queue = front.part = make_queue()
                self.fronts.lead(uid, queue, alone=True)
        return front

    def _make_queue(self, vhost: VHost, front: QueueFront) -> Queue:
        queue = Queue(
            front.name,
            vhost,
            front.options,
            arguments=front.arguments,
            durable=front.durable,
            auto_delete=front.auto_delete,
            owner=front.owner,
        )
        queue.uid = front.uid
        queue.policy, queue.operator_policy = front.policy, front.operator_policy
        queue.settings = front.settings
        return queue

    def _join(
        self, front: QueueFront, members: tuple[NodeId, ...], make_queue: Callable[[], Queue]
    ) -> None:
        uid = front.uid

        def make(log: MemberLog) -> QueueReplica:
            replica = self._replicas[uid] = front.part = QueueReplica(
                log,
                make_queue,
                self._budget,
                self._node.timers.now_ms,
                on_lead=lambda queue: self.fronts.lead(uid, queue, log.lead_term),
                on_follow=lambda: self.fronts.follow(uid),
            )
            return replica

        # What the definitions said before this start may be on a disk that lost it.
        first, may_be_new = members[0], self.catalog.ready
        self.host.join(uid, members, make, first=first, may_be_new=may_be_new, tunables=PATIENT)

    def wish_of(self, uid: bytes) -> Wish | None:
        """Streams can be read on all nodes: those that have no vote follow."""
        wish = self.members.wish_of(uid)
        if wish is None or not self.streams.has(uid):
            return wish
        nodes = self.state.nodes.by_number.values()
        rest = (n.number for n in nodes if not n.leaving and n.number not in wish.members)
        return wish._replace(readers=tuple(rest))

    def _others_of(self, uid: bytes) -> tuple[NodeId, ...]:
        wish = self.wish_of(uid)
        return tuple(node for node in wish.members if node != self.me) if wish is not None else ()

    def _members_changed(self) -> None:
        """Replicas are made where the definitions want them now, and go where they do not."""
        for placed in list(self.state.placed.values()):
            vhost = self.state.vhosts[placed.vhost]
            queue = vhost.queues[placed.name]
            if isinstance(queue, QueueFront) and placed.placement.home is None:
                self._replace(vhost, queue, placed.placement)
        self.keeper.look()

    def _replace(self, vhost: VHost, front: QueueFront, placement: Placement) -> None:
        holders = placement.holders(0)
        if self.me in holders and front.part is None:
            others = tuple(node for node in holders if node != self.me)
            self._join(front, others, partial(self._make_queue, vhost, front))
        elif self.me not in holders and front.part is not None:
            self._replicas.pop(front.uid).follow()
            front.part_gone()

    def has_quorum(self, uid: bytes) -> bool:
        """Whether this node sees enough of those that hold a queue."""
        placed = self.state.placed.get(uid)
        if placed is None:
            return False
        if placed.placement.home is not None:
            return placed.placement.home in (self.me, *self.peers.up())
        return self.sees_quorum(uid)

    def sees_quorum(self, uid: bytes) -> bool:
        """The same of a log."""
        log = self.replication.logs.get(uid)
        if log is not None and log.config is not None:
            members = log.config.voters
        elif uid in self.state.placed:
            members = self.state.placed[uid].placement.groups[0]
        else:
            return True
        return 2 * len((self.peers.up() | {self.me}).intersection(members)) > len(members)

    def repair(self, uid: bytes) -> None:
        """The files of a machine here are damaged, its log is not: who leads has others."""
        log = self.replication.logs.get(uid)
        if log is None or log.raft is None:
            return
        if log.lead_term:
            self._give_away(log)
        else:
            self.replication.snapshots.need(log)

    def _crowd(self, crowded: bool) -> None:  # noqa: FBT001 - the state, as the fronts tell it
        if crowded:
            self.host.crowded.add(self.fronts)
        else:
            self.host.crowded.discard(self.fronts)
            self.host.relieve_if_light()

    def _queues(self) -> Iterable[object]:
        for queue in super()._queues():
            yield queue.queue if isinstance(queue, QueueFront) else queue

    # Its life

    async def _begin(self, nursery: trio.Nursery) -> None:
        self.streams.start(nursery)
        self.shared_streams.start()

    async def _last_words(self) -> None:
        """Others lead from now on; they know what was never delivered."""
        with trio.move_on_after(HAND_OVER_S):
            await self._hand_over()
        await self.host.drain()

    async def _hand_over(self) -> None:
        for uid, log in list(self.replication.logs.items()):
            replica = self._replicas.get(uid)
            if log.leads and replica is not None and replica.queue is not None:
                replica.prepare_transfer(partial(self._give_away, log))
            elif log.leads:
                self._give_away(log)
        while any(log.leads and self._heir_of(log) for log in self.replication.logs.values()):
            self._node.flush()
            await trio.sleep(0.01)

    def _heir_of(self, log: MemberLog) -> NodeId | None:
        """Another voter that is up."""
        config = log.config
        others = sorted(self.peers.up().intersection(config.voters)) if config is not None else []
        return others[log.uid[0] % len(others)] if others else None

    def _give_away(self, log: MemberLog) -> None:
        heir = self._heir_of(log)
        if heir is not None and log.lead_term:
            with suppress(NotLeaderError):  # then somebody has it
                log.transfer(heir)


def _let_know(done: trio.Event, _: Result) -> None:
    done.set()
