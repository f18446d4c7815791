"""The other nodes of the cluster, as this one reaches them.

    peers = Peers(identity, options)            # identity: opened, its boot number already raised
    peers.handlers[Kind.RAFT] = got_bundle      # before `run`, like the callbacks
    await nursery.start(peers.run)              # listens; forms or joins the cluster, dials, serves
    await peers.formed.wait()                   # from here on `me` is this node's number

Between on_up(node) and on_down(node), messages of one lane arrive once and in order. At down all
that was on its way is lost and nothing is sent again; what was built on the link starts anew at the
next up.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

import trio

from broker import logs
from broker.cluster.dialing import Dialer
from broker.cluster.door import Door
from broker.cluster.enrolment import Enrolment, Membership, insist
from broker.cluster.heartbeats import DIGEST_BYTES_MAX
from broker.cluster.identity import Identity, IdentityKeeper
from broker.cluster.kinds import Kind
from broker.cluster.link import Link
from broker.cluster.mail import Key, Piece
from broker.cluster.network import Network
from broker.cluster.options import PeersOptions
from broker.cluster.pipe import Pipe
from broker.cluster.table import PeerInfo, Table
from broker.off_loop import OffLoop, Threads
from queues.raft.messages import NodeId

_log = logs.get("cluster")

Handler: TypeAlias = Callable[[NodeId, bytes], None]
NodeCallback: TypeAlias = Callable[[NodeId], None]


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """What is known of one other node."""

    node: NodeId
    up: bool
    boot: int  # highest boot number seen
    round_trip_s: float | None
    bytes_sent: int  # on this link
    bytes_received: int
    bytes_waiting: int
    refusal: str | None  # why the last attempt to link failed, as long as it is not up


class Peers:
    """One per node. All calls and callbacks are in the loop's thread."""

    def __init__(
        self,
        identity: Identity,
        options: PeersOptions,
        network: Network,
        *,
        off_loop: OffLoop | None = None,
        random: Random | None = None,
    ) -> None:
        assert options.secret, "without a secret everyone is let in"
        self.options = options
        self.name = identity.name
        self.boot = identity.boot  # this node's boot number
        self.formed = trio.Event()  # this node has a number, on disk
        # One that raises ends the link, not the node. All are to be there before `run`.
        self.handlers: dict[Kind, Handler] = {}
        # Called in order of the lists, never inside `send`, `flush`, `drop` or a handler. They must
        # not raise.
        self.on_up: list[NodeCallback] = []
        self.on_down: list[NodeCallback] = []
        self.on_relief: list[NodeCallback] = []  # a node that was `congested` takes more
        # Rides on heartbeats to that node, and is given to on_digest over there.
        self.digest: Callable[[NodeId], bytes] = lambda _: b""
        self.on_digest: list[Callable[[NodeId, bytes], None]] = []
        # After all messages of one read have been handled; it is to call `flush` in the end.
        self.end_of_turn: Callable[[], None] = self.flush
        self.refusals: dict[NodeId, str] = {}  # why nodes cannot be dialed
        self._identity = identity
        self._keeper = IdentityKeeper(identity, off_loop or Threads(1))
        self._network = network
        self._door = Door(self, identity, self._keeper)
        self._dialer = Dialer(self, self._door, network, random or Random())  # noqa: S311 - pauses
        self._enrolment = Enrolment(
            identity, self._keeper, self._door.card, self._dialer.ask_all, options
        )
        self._dialing: dict[NodeId, trio.CancelScope] = {}
        self._links: dict[NodeId, Link] = {}  # up or not yet
        self._up: dict[NodeId, Link] = {}
        self._dirty: list[tuple[Link, Pipe]] = []
        self._table_changed = trio.Event()

    # What the node calls.

    @property
    def me(self) -> NodeId:
        """This node's number; 0 until `formed`."""
        return self._identity.number

    @property
    def membership(self) -> Membership:
        return self._enrolment.membership

    @property
    def joined(self) -> bool:
        """Whether it became a member in this run, of a cluster that was there before."""
        return self._enrolment.joined

    @property
    def cluster(self) -> bytes | None:
        return self._identity.cluster

    @property
    def table(self) -> Table:
        """All members, this node too; a dict of the caller's own."""
        return dict(self._identity.table)

    @property
    def waiting(self) -> dict[str, PeerInfo]:
        """Fresh nodes by name that ask to be added; a dict of the caller's own."""
        return dict(self._door.waiting)

    def forget_waiting(self, name: str) -> None:
        """Hear anew what that node asks: its directory may have been emptied again since."""
        self._door.waiting.pop(name, None)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Started as soon as it listens."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._network.serve, self._door.accepted)
            task_status.started()
            await self._enrolment.run()
            self.formed.set()
            await self._follow_table(nursery)

    def send(self, node: NodeId, kind: Kind, *pieces: Piece) -> None:
        """Send a message at the next `flush`; dropped if that node is not up.

        At most FRAME_BYTES_MAX together; whoever has more than 256 KiB to say should cut it.
        """
        link = self._up.get(node)
        if link is None or link.ended is not None:
            return
        pipe = link.pipes[kind.lane]
        pipe.put(kind, pieces)
        if not pipe.dirty:
            pipe.dirty = True
            self._dirty.append((link, pipe))

    def send_large(self, node: NodeId, key: Key, *pieces: Piece) -> None:
        """As `send`, in a line that other messages pass; see Mail.

        The pieces are not copied before they go out. Also dropped if that node is not up.
        """
        link = self._up.get(node)
        if link is None or link.ended is not None:
            return
        pipe = link.pipes[key[0].lane]
        if link.lets_pass:
            pipe.put_large(key, pieces)
        else:
            pipe.put(key[0], pieces)
        self.mark_dirty(link, pipe)

    def carries(self, node: NodeId, key: Key) -> bool:
        link = self._up.get(node)
        return link is not None and link.carries(key)

    def flush(self) -> None:
        """End of a turn: one write per link and lane."""
        dirty = self._dirty
        while dirty:
            link, pipe = dirty.pop()
            try:
                pipe.flush()
            except trio.BrokenResourceError as error:
                link.end(f"the connection broke: {error}")

    def is_up(self, node: NodeId) -> bool:
        return node in self._up

    def up(self) -> set[NodeId]:
        """The other nodes that are up; a set of the caller's own."""
        return set(self._up)

    def congested(self, node: NodeId, key: Key) -> bool:
        """Whether enough waits for it; if so, on_relief is called once there is room.

        Something large counts for what belongs to it, and for all once too many have some.
        """
        link = self._up.get(node)
        if link is None or not link.has_enough(key):
            return False
        for pipe in link.pipes:
            pipe.turned_away = True
        return True

    def answered_at(self, node: NodeId) -> float:
        """When (trio.current_time) the newest heartbeat that it answered was *sent*; -inf if down.

        What a lease may count from.
        """
        link = self._up.get(node)
        return link.pulse.answered_at if link is not None else float("-inf")

    def boot_of(self, node: NodeId) -> int:
        """The highest boot number seen of a node; 0 if none, its own for `me`."""
        if node == self.me:
            return self.boot
        seen = self._identity.seen.get(node)
        return seen.boot if seen is not None else 0

    async def keep_identity(self) -> None:
        """Until what was changed in this node's identity is on disk."""
        self._keeper.changed()
        await self._keeper.durable()

    def drop(self, node: NodeId, reason: str) -> None:
        """End the link to a node soon; it is dialed again."""
        if link := self._links.get(node):
            link.end(reason)

    def set_table(self, table: Mapping[NodeId, PeerInfo]) -> None:
        """Who belongs to the cluster from now on, as the metadata says.

        Removed nodes go down soon; new ones are dialed or let in once they are on disk.
        """
        if table == self._identity.table:
            return
        self._identity.set_table(table)
        self._keeper.changed()
        self._door.forget_waiting()
        members = table if self.me in table else {}
        for node in self._dialing.keys() - members.keys():
            self._dialing.pop(node).cancel()
            self.refusals.pop(node, None)
        for node, link in self._links.items():
            if node not in members:
                link.end("it was removed from the cluster")
        self._table_changed.set()

    def statistics(self) -> list[LinkStatistics]:
        return [self._statistics(node) for node in sorted(self._identity.table) if node != self.me]

    def _statistics(self, node: NodeId) -> LinkStatistics:
        link = self._links.get(node)
        pipes = link.pipes if link is not None else ()
        return LinkStatistics(
            node=node,
            up=node in self._up,
            boot=self.boot_of(node),
            round_trip_s=link.pulse.round_trip_s if link is not None else None,
            bytes_sent=sum(pipe.written_bytes for pipe in pipes),
            bytes_received=sum(pipe.received_bytes for pipe in pipes),
            bytes_waiting=sum(pipe.waiting_bytes for pipe in pipes),
            refusal=self.refusals.get(node),
        )

    async def _follow_table(self, nursery: trio.Nursery) -> None:
        """Dial whom the table says, once it is on disk."""
        while True:
            self._table_changed = trio.Event()
            await insist(self._keeper.durable)
            table = self._identity.table
            wanted = {node for node in table if node > self.me and self.me in table}
            for node in sorted(wanted - self._dialing.keys()):
                scope = self._dialing[node] = trio.CancelScope()
                nursery.start_soon(self._dial, node, scope)
            await self._table_changed.wait()

    async def _dial(self, node: NodeId, scope: trio.CancelScope) -> None:
        with scope:
            await self._dialer.keep_linked(node)

    def address_of(self, node: NodeId) -> str:
        """As configured, if it is: a node may have moved since the table was made."""
        info = self._identity.table[node]
        return self.options.listed.get(info.name, info.address)

    # What links call.

    async def run_link(self, link: Link) -> None:
        """From its hello to its end, instead of any older one to that node."""
        if link.node not in self._identity.table:
            return
        if old := self._links.get(link.node):
            old.end("it was linked anew")
            self.went_down(old, "it was linked anew")
        self._links[link.node] = link
        await link.run()

    def came_up(self, link: Link) -> None:
        self._up[link.node] = link
        self.refusals.pop(link.node, None)
        _log.info("node_up", node=link.node, name=self._name_of(link.node))
        for callback in self.on_up:
            callback(link.node)

    def went_down(self, link: Link, reason: str) -> None:
        """Once for each link that came up, whoever calls this first."""
        if self._links.get(link.node) is link:
            del self._links[link.node]
        if not link.up:
            return
        link.up = False
        del self._up[link.node]
        _log.warning("node_down", node=link.node, name=self._name_of(link.node), reason=reason)
        for callback in self.on_down:
            callback(link.node)

    def _name_of(self, node: NodeId) -> str | None:
        info = self._identity.table.get(node)
        return info.name if info is not None else None

    def expire(self, now: float) -> None:
        """Whoever has not answered in time is down."""
        late = [link for link in self._up.values() if link.is_late(now)]
        for link in late:
            link.lost(f"no answer for {self.options.timeout_s:g} s")

    def relieved(self, link: Link) -> None:
        if link.up:
            for callback in self.on_relief:
                callback(link.node)

    def digest_for(self, node: NodeId) -> bytes:
        digest = self.digest(node)
        assert len(digest) <= DIGEST_BYTES_MAX
        return digest

    def got_digest(self, link: Link, digest: bytes) -> None:
        for callback in self.on_digest:
            callback(link.node, digest)

    def mark_dirty(self, link: Link, pipe: Pipe) -> None:
        if not pipe.dirty:
            pipe.dirty = True
            self._dirty.append((link, pipe))
