"""A node among others: links, storage and definitions put together, and kept informed."""

from random import Random
from typing import Final, Protocol

import cbor2
import trio

from broker import logs
from broker.cluster.cluster_storage import ClusterStorage
from broker.cluster.errands import Errands
from broker.cluster.headcounts import Headcounts
from broker.cluster.identity import FILE_NAME, Identity
from broker.cluster.kinds import Kind
from broker.cluster.network import Network, TcpNetwork
from broker.cluster.nodes import NodeRecord
from broker.cluster.options import PeersOptions
from broker.cluster.peers import Peers
from broker.cluster.seams import Result
from broker.cluster.table import PeerInfo
from broker.cluster.tls import load_contexts
from broker.config import Config
from broker.node import Node
from broker.off_loop import OffLoop
from broker.security.sasl import is_loopback
from broker.startup import StartupError
from queues.raft.messages import NodeId
from queues.storage.files import parse_name

WAITING_S: Final = 5.0  # for the others, before that is told again

_log = logs.get("cluster")


class MakeStorage(Protocol):
    """ClusterStorage, or that on another disk than the machine's."""

    def __call__(self, node: Node, peers: Peers, *, founder: bool) -> ClusterStorage: ...


class Cluster:
    """One per node that was started with the setting `cluster`."""

    def __init__(
        self,
        node: Node,
        *,
        network: Network | None = None,
        off_loop: OffLoop | None = None,
        random: Random | None = None,
        make_storage: MakeStorage = ClusterStorage,
    ) -> None:
        """Raises StartupError. The machine's network and disk are used if no others are given."""
        config = node.config
        self._node = node
        self.identity = _identity(config)
        self.peers = Peers(
            self.identity,
            _options(config),
            network or _network(config),
            off_loop=off_loop,
            random=random,
        )
        self._make_storage = make_storage
        self.storage: ClusterStorage  # from `join` on
        self._joined = False
        self.errands = Errands(self.peers, self._name_of, node.errors)
        self.errands.flush = node.flush
        self._boots: dict[NodeId, int] = {}  # of nodes when they were last up
        self._alarms: dict[NodeId, dict[str, str]] = {}  # theirs
        node.others = self

    async def join(self) -> ClusterStorage:
        """Wait until this node has its place, then open what it has on disk."""
        await self.peers.formed.wait()
        peers = self.peers
        storage = self.storage = self._make_storage(self._node, peers, founder=not peers.joined)
        peers.handlers.update(storage.replication.handlers())
        peers.handlers[Kind.QUEUE] = storage.fronts.received
        peers.handlers[Kind.META] = storage.catalog.received
        peers.handlers[Kind.STREAM] = storage.shared_streams.received
        peers.handlers[Kind.REPLY] = storage.replies.received
        peers.handlers[Kind.MEND] = storage.mending.received
        peers.handlers[Kind.ALARM] = self._heard_alarms
        self._headcounts = Headcounts(self._node, peers)
        peers.handlers[Kind.COUNT] = self._headcounts.received
        peers.handlers[Kind.CALL] = self.errands.called
        peers.handlers[Kind.ANSWER] = self.errands.answered
        peers.end_of_turn = self._node.flush
        storage.open()
        bound_now = self.identity.bind(storage.host.store.store_id)
        self._joined = True
        peers.on_up.append(self._up)
        peers.on_down.append(self._down)
        peers.on_relief.append(self._relieved)
        storage.catalog.on_members.append(self._nodes_changed)
        for other in peers.up():
            self._up(other)
        if bound_now:
            await peers.keep_identity()
        return storage

    async def start(self, amqp: str, http: str) -> None:
        """Tell the others where clients find this node; returns when it is up to date."""
        started = trio.Event()
        result: list[Result] = []

        def done(error: Result) -> None:
            result.append(error)
            started.set()

        peers = self.peers
        address = peers.options.address
        record = NodeRecord(peers.me, peers.name, self.identity.uuid, address, amqp, http)
        self.storage.catalog.start(record, self._boots_now, done, table=peers.table)
        self._node.flush()
        while not started.is_set():
            with trio.move_on_after(WAITING_S):
                await started.wait()
            if not started.is_set():
                up = [self._name_of(node) for node in sorted(peers.up())]
                _log.warning("waiting_for_others", reason="no quorum of nodes yet", up=up)
        if result[0] is not None:
            raise StartupError(f"the cluster does not take this node: {result[0].text}")
        await self.storage.seed()

    def _name_of(self, node: NodeId) -> str:
        info = self.peers.table.get(node)
        return repr(info.name) if info is not None else str(node)

    def _boots_now(self) -> dict[NodeId, int]:
        return {node: self.peers.boot_of(node) for node in self.peers.up()}

    def _nodes_changed(self) -> None:
        """Nodes were added or removed. Founders need not have said yet where they are."""
        nodes = self.storage.state.nodes
        table = {n: info for n, info in self.peers.table.items() if n not in nodes.removed}
        for record in nodes.by_number.values():
            table[record.number] = PeerInfo(record.name, record.uuid, record.address)
        if table != self.peers.table:
            self.peers.set_table(table)

    # The ends of a turn

    def end_turn(self) -> None:
        self._node.flush()

    def gather(self) -> None:
        if self._joined:
            self.storage.fronts.flush()
            self.storage.streams.flush()

    def send(self) -> None:
        self.peers.flush()

    # Nodes that come and go

    def _up(self, node: NodeId) -> None:
        boot = self.peers.boot_of(node)
        restarted = self._boots.get(node, boot) != boot
        self._boots[node] = boot
        _log.info("node_up", node=node, restarted=restarted)
        self.storage.host.node_up(node, restarted=restarted)
        self.storage.catalog.node_up(node)
        self.storage.fronts.node_up(node)
        self.storage.keeper.look()
        self._tell_alarms([node])
        self._headcounts.node_up(node)
        self._node.flush()

    def _down(self, node: NodeId) -> None:
        _log.warning("node_down", node=node)
        self.storage.host.node_down(node)
        self.storage.fronts.node_down(node)
        self.storage.shared_streams.node_down(node)
        self.storage.catalog.node_down(node)
        self.storage.replies.node_down(node)
        self._headcounts.node_down(node)
        self.errands.node_down(node)
        self.storage.mending.node_down(node)
        self._set_alarms(node, {})
        self._node.flush()

    def _relieved(self, node: NodeId) -> None:
        self.storage.host.relieved()
        self.storage.fronts.relieved(node)
        self._node.flush()

    # Alarms: publishers wait on all nodes when one is short of something

    def alarms_changed(self) -> None:
        self._tell_alarms(self.peers.up())

    def _tell_alarms(self, nodes: "set[NodeId] | list[NodeId]") -> None:
        own = {name: text for name, text in self._node.alarms.items() if "@" not in name}
        for node in nodes:
            self.peers.send(node, Kind.ALARM, cbor2.dumps(own))

    def _heard_alarms(self, node: NodeId, body: bytes) -> None:
        told = cbor2.loads(body)
        self._set_alarms(node, {str(name): str(text) for name, text in told.items()})

    def _set_alarms(self, node: NodeId, alarms: dict[str, str]) -> None:
        before = self._alarms.pop(node, {})
        if alarms:
            self._alarms[node] = alarms
        for name in before.keys() - alarms.keys():
            self._node.clear_alarm(f"{name}@{node}")
        for name, text in alarms.items():
            if before.get(name) != text:
                self._node.raise_alarm(f"{name}@{node}", text)


def refuse_lone(config: Config) -> None:
    """For a node that is to stand alone: what a member has is not for it alone to change."""
    if (config.data_dir / FILE_NAME).exists():
        raise StartupError(
            f"{config.data_dir} belongs to a node of a cluster: start it with the setting cluster"
        )


def _identity(config: Config) -> Identity:
    directory = config.data_dir
    used = any(parse_name(path.name) is not None for path in directory.iterdir())
    if used and not (directory / FILE_NAME).exists():
        raise StartupError(
            f"{directory} was used by a node without a cluster: start this one with an empty "
            f"directory, and let clients move what is in the other"
        )
    return Identity.open(directory, config.node_name)


def _options(config: Config) -> PeersOptions:
    listed = {member.name: str(member.address) for member in config.cluster}
    secret = config.cluster_secret.encode() or b"\x00no others"
    return PeersOptions(secret=secret, address=listed[config.node_name], listed=listed)


def in_the_clear(config: Config) -> list[str]:
    """Addresses of members beyond this machine, to which links would be without TLS."""
    if config.cluster_tls_certificate:
        return []
    return [str(member.address) for member in config.cluster if not _is_here(member.address.host)]


def _is_here(host: str) -> bool:
    try:
        return is_loopback(host)
    except ValueError:  # a name
        return host == "localhost"


def _network(config: Config) -> TcpNetwork:
    if clear := in_the_clear(config):
        _log.warning(
            "links_without_tls",
            members=", ".join(clear),
            hint="what nodes say can be read on the way; see cluster_tls_certificate",
        )
    tls = None
    if config.cluster_tls_certificate and config.cluster_tls_key and config.cluster_tls_ca:
        tls = load_contexts(
            config.cluster_tls_certificate, config.cluster_tls_key, config.cluster_tls_ca
        )
    return TcpNetwork(config.peer_address.host, config.peer_address.port, tls)
