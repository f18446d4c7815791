"""Who is let in, by either side of a hello, and the connections that others open to this node."""

import contextlib
from typing import TYPE_CHECKING, Final

import trio

from broker.cluster import forming, hello
from broker.cluster.complaints import Complaints
from broker.cluster.hello import Claim, HelloFailedError, Opening, RefusedByPeerError, RefusedError
from broker.cluster.identity import Identity, IdentityError, IdentityKeeper, Start
from broker.cluster.kinds import Lane
from broker.cluster.link import Link
from broker.cluster.strangers import Strangers
from broker.cluster.table import PeerInfo, number_of
from broker.cluster.wire import Wire, wire_of
from queues.raft.messages import NodeId

if TYPE_CHECKING:
    from broker.cluster.peers import Peers

WAITING_MAX: Final = 256  # fresh nodes that ask to be added


class _HalfLink:
    """A control lane that waits for its bulk lane."""

    def __init__(self, link: bytes) -> None:
        self.link = link
        self.bulk: Wire | None = None
        self.complete = trio.Event()
        self.joined = trio.Event()
        self.over = trio.Event()


class Door:
    """Checks claims against the identity and what was seen, and remembers before it lets in."""

    def __init__(self, peers: "Peers", identity: Identity, keeper: IdentityKeeper) -> None:
        self._peers = peers
        self._identity = identity
        self._keeper = keeper
        self._complaints = Complaints()
        options = peers.options
        self._strangers = Strangers(options.strangers_max, options.strangers_per_address)
        self._halves: dict[NodeId, _HalfLink] = {}
        self.waiting: dict[str, PeerInfo] = {}

    def claim(self) -> Claim:
        mine = self._identity
        cluster = mine.cluster or hello.NO_CLUSTER
        return Claim(mine.number, mine.uuid, cluster, Start(mine.boot, mine.run), mine.name)

    def card(self) -> forming.Card:
        mine, options = self._identity, self._peers.options
        info = PeerInfo(mine.name, mine.uuid, options.address)
        return forming.Card(info, tuple(sorted(options.listed)), mine.cluster, mine.table)

    async def approve(self, claim: Claim, *, expected: NodeId | None = None) -> None:
        """Let a proven node in: RefusedError says why not. What it shows is on disk after this."""
        if reason := self._objection(claim, expected):
            raise RefusedError(reason)
        if self._identity.see(claim.number, claim.start):
            self._keeper.changed()
        try:
            await self._keeper.durable()
        except IdentityError as error:
            raise RefusedError(f"node {self._identity.name} {error}") from error

    def _objection(self, claim: Claim, expected: NodeId | None) -> str | None:
        mine = self._identity
        known = mine.table.get(claim.number)
        if mine.cluster is None:
            return f"node {mine.name} is not part of a cluster yet"
        if mine.number not in mine.table:
            return f"node {mine.number} ({mine.name}) was removed from the cluster"
        if claim.cluster == hello.NO_CLUSTER:
            return f"node {claim.name} is not part of a cluster yet"
        if claim.cluster != mine.cluster:
            return (
                f"node {claim.name} belongs to cluster {claim.cluster.hex()}, "
                f"node {mine.name} to {mine.cluster.hex()}"
            )
        if expected is not None and claim.number != expected:
            return f"node {expected} was expected, and it is node {claim.number}"
        if known is None:
            return f"node {claim.number} ({claim.name}) is not a member of the cluster"
        if claim.number == mine.number:
            return f"node {claim.number} ({claim.name}) is this very node, or a copy of it"
        if known.uuid != claim.uuid:
            return (
                f"node {claim.number} ({claim.name}) has another uuid than the member of that "
                f"number: its data directory was replaced"
            )
        return mine.staleness(claim.number, claim.start)

    async def accepted(self, stream: trio.abc.Stream) -> None:
        """One connection that someone opened, to its end."""
        opening, source = None, _source(stream)
        with self._strangers.hear(source, known=source in self._known_addresses()):
            opening = await self._met(stream, source)
        if opening is None:
            return
        if opening.lane == Lane.CONTROL:
            await self._first_lane(opening, wire_of(stream))
        elif opening.lane == Lane.BULK:
            await self._second_lane(opening, wire_of(stream))

    async def _met(self, stream: trio.abc.Stream, source: str) -> Opening | None:
        """What it wants, once it has proven who it is; None if it is not let in."""
        try:
            with trio.fail_after(self._peers.options.hello_timeout_s):
                opening = await hello.accept(
                    stream, self._peers.options.secret, self.claim(), self._admit
                )
                if opening.lane == hello.FORMING_LANE:
                    await self._show_card(stream)
        except trio.TooSlowError:
            self.complain(source, "it was too slow to say who it is")
            return None
        except (RefusedError, RefusedByPeerError, HelloFailedError) as error:
            self.complain(source, told(error))
            return None
        return opening

    def _known_addresses(self) -> set[str]:
        """Hosts of members as they are written; names among them match no source."""
        listed = self._peers.options.listed.values()
        addresses = (*listed, *[info.address for info in self._identity.table.values()])
        return {address.rpartition(":")[0].strip("[]") for address in addresses}

    async def _admit(self, opening: Opening) -> None:
        claim = opening.claim
        if opening.lane == hello.FORMING_LANE:
            return
        await self.approve(claim)
        mine = self._identity.number
        if opening.to != mine:
            raise RefusedError(f"node {opening.to} was to be reached, and this is node {mine}")
        if claim.number > mine:
            raise RefusedError(f"node {mine} dials node {claim.number}, not the other way")
        if opening.lane == Lane.CONTROL:
            # Before the dialer learns that it is let in: its bulk lane may be heard first.
            if half := self._halves.get(claim.number):
                half.over.set()
            self._halves[claim.number] = _HalfLink(opening.link)
        elif opening.lane != Lane.BULK:
            raise RefusedError(f"there is no lane {opening.lane}")
        elif self._half(opening) is None:
            raise RefusedError("there is no control lane of this link")

    def _half(self, opening: Opening) -> _HalfLink | None:
        half = self._halves.get(opening.claim.number)
        return half if half is not None and half.link == opening.link else None

    async def _first_lane(self, opening: Opening, wire: Wire) -> None:
        half, node = self._half(opening), opening.claim.number
        if half is None:
            return
        try:
            with trio.move_on_after(self._peers.options.hello_timeout_s):
                await half.complete.wait()
            if self._halves.get(node) is half:
                del self._halves[node]
            if half.bulk is not None and not half.over.is_set():
                half.joined.set()
                await self._peers.run_link(Link(self._peers, node, (wire, half.bulk)))
        finally:
            half.over.set()

    async def _second_lane(self, opening: Opening, wire: Wire) -> None:
        half = self._half(opening)
        if half is not None and half.bulk is None:
            half.bulk = wire
            half.complete.set()
            # The dialer may go away between the last words on one lane and on the other.
            with trio.move_on_after(self._peers.options.hello_timeout_s):
                await half.joined.wait()
            if half.joined.is_set():
                await half.over.wait()

    async def _show_card(self, stream: trio.abc.Stream) -> None:
        asking = await forming.exchange(stream, self.card())
        name, uuid = asking.info.name, asking.info.uuid
        mine = self._identity
        to_add = not mine.fresh and asking.cluster is None and number_of(mine.table, uuid) is None
        if to_add and (name in self.waiting or len(self.waiting) < WAITING_MAX):
            self.waiting[name] = asking.info
        with contextlib.suppress(HelloFailedError):
            await hello.receive_exactly(stream, 1)  # it closes, having read all

    def forget_waiting(self) -> None:
        """Those that have a number by now."""
        uuids = {info.uuid for info in self._identity.table.values()}
        for name, info in list(self.waiting.items()):
            if info.uuid in uuids:
                del self.waiting[name]

    def complain(self, source: object, reason: str, node: NodeId | None = None) -> None:
        self._complaints.tell("link_refused", source, reason, peer=source, node=node)

    def content_with(self, source: object) -> None:
        self._complaints.forget(source)


def told(error: Exception) -> str:
    """Whose refusal it was, in words for the log."""
    return f"refused by it: {error}" if isinstance(error, RefusedByPeerError) else str(error)


def _source(stream: trio.abc.Stream) -> str:
    while isinstance(stream, trio.SSLStream):
        stream = stream.transport_stream
    if not isinstance(stream, trio.SocketStream):
        return "memory"
    try:
        return str(stream.socket.getpeername()[0])
    except OSError:
        return "gone"
