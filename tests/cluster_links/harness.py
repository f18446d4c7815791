"""Nodes of a cluster in one loop, over a network that can be cut, cut one way, and delayed."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import trio
import trio.testing

from broker.cluster.identity import Identity
from broker.cluster.kinds import Kind
from broker.cluster.network import Accepted, Network
from broker.cluster.options import PeersOptions
from broker.cluster.peers import Peers
from broker.off_loop import at_once

DELAYS_S = (0.0, 0.01, 0.1, 0.3)
SECRET = b"hares sleep with open eyes"


class MemoryNet:
    """All nodes' network. Streams are memory; bytes on a cut way wait until it is healed."""

    def __init__(self) -> None:
        self.listening: dict[str, tuple[Accepted, trio.Nursery]] = {}
        self.cuts: set[tuple[str, str]] = set()  # (from, to), addresses
        self.delay_s = 0.0
        self.delays: Random | None = None  # one for each way of each connection, if given
        self.ends: list[list[trio.abc.Stream]] = []  # of each connection, in order of their making
        self._healed = trio.Event()

    def of(self, address: str) -> "MemoryNetwork":
        return MemoryNetwork(self, address)

    def cut(self, frm: str, to: str, *, one_way: bool = False) -> None:
        self.cuts.add((frm, to))
        if not one_way:
            self.cuts.add((to, frm))

    def heal(self) -> None:
        self.cuts.clear()
        self._healed.set()
        self._healed = trio.Event()

    async def break_newest(self) -> None:
        for end in self.ends[-1]:
            await trio.aclose_forcefully(end)

    async def open(self, frm: str, to: str) -> None:
        while (frm, to) in self.cuts:
            await self._healed.wait()

    async def carry(
        self, frm: str, to: str, source: trio.abc.Stream, target: trio.abc.Stream
    ) -> None:
        """One way of one connection."""
        delay_s = self.delays.choice(DELAYS_S) if self.delays else self.delay_s
        due, arrived = trio.open_memory_channel[tuple[float, bytes]](1_000_000)

        async def deliver() -> None:
            async for at, data in arrived:
                await trio.sleep_until(at)
                await self.open(frm, to)
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await target.send_all(data)
            await self.open(frm, to)
            await trio.aclose_forcefully(target)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(deliver)
            with due, suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                while data := await source.receive_some(1 << 20):
                    due.send_nowait((trio.current_time() + delay_s, bytes(data)))


class MemoryNetwork:
    """One node's."""

    def __init__(self, net: MemoryNet, address: str) -> None:
        self.net = net
        self.address = address

    async def connect(self, address: str) -> trio.abc.Stream:
        net, frm = self.net, self.address
        await net.open(frm, address)
        await net.open(address, frm)
        if address not in net.listening:
            raise ConnectionRefusedError(111, "Connection refused")
        accepted, nursery = net.listening[address]
        mine, near = trio.testing.memory_stream_pair()
        far, theirs = trio.testing.memory_stream_pair()
        net.ends.append([near, far])

        async def serve() -> None:
            try:
                async with trio.open_nursery() as inner:
                    inner.start_soon(net.carry, frm, address, near, far)
                    inner.start_soon(net.carry, address, frm, far, near)
                    await accepted(theirs)
                    await theirs.aclose()
            finally:
                # A process that dies closes its sockets, whatever its tasks were at.
                with trio.CancelScope(shield=True):
                    for end in (theirs, far, near):
                        await trio.aclose_forcefully(end)

        nursery.start_soon(serve)
        return mine

    async def serve(
        self, accepted: Accepted, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        listening = self.net.listening
        async with trio.open_nursery() as nursery:
            entry = listening[self.address] = (accepted, nursery)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                if listening.get(self.address) is entry:  # else it was started again meanwhile
                    del listening[self.address]


class Node:
    """A node that notes what it is told. It can be killed and started again."""

    def __init__(
        self,
        name: str,
        directory: Path,
        listed: dict[str, str],
        network: Callable[[str], Network],
        seed: int = 1,
        **options: object,
    ) -> None:
        self.name = name
        self.directory = directory
        self.options = PeersOptions(
            **{"secret": SECRET, "address": listed[name], "listed": listed, **options}  # type: ignore[arg-type]
        )
        self._network = network
        self._random = Random(f"{seed} {name}")
        self.events: list[tuple[object, ...]] = []  # ("up" | "down", node) or (kind, node, body)
        self.prepare: Callable[[Peers], None] = lambda _: None
        self.scope: trio.CancelScope | None = None
        self.peers: Peers

    def note(self, kind: Kind) -> Callable[[int, bytes], None]:
        return lambda node, body: self.events.append((kind, node, body))

    def of(self, word: object) -> list[tuple[object, ...]]:
        return [event for event in self.events if event[0] == word]

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self.directory.mkdir(exist_ok=True)
        with trio.CancelScope() as self.scope:
            identity = Identity.open(self.directory, self.name)
            network = self._network(self.options.address)
            peers = Peers(identity, self.options, network, off_loop=at_once, random=self._random)
            self.peers = peers
            for kind in (Kind.RAFT, Kind.QUEUE):
                peers.handlers[kind] = self.note(kind)
            peers.on_up.append(lambda node: self.events.append(("up", node)))
            peers.on_down.append(lambda node: self.events.append(("down", node)))
            self.prepare(peers)
            await peers.run(task_status)

    def kill(self) -> None:
        """Its tasks end, its sockets close, its disk stays."""
        assert self.scope is not None
        self.scope.cancel()


class Cluster:
    """Several nodes in one nursery."""

    def __init__(self, nursery: trio.Nursery, nodes: dict[str, Node]) -> None:
        self.nursery = nursery
        self.nodes = nodes

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    async def start(self, *names: str) -> None:
        for name in names or self.nodes:
            await self.nursery.start(self.nodes[name].run)

    async def until_up(self, *names: str) -> None:
        """Each of these sees all others of them."""
        wanted = names or tuple(self.nodes)
        await until(lambda: all(len(self.nodes[n].peers.up()) >= len(wanted) - 1 for n in wanted))


async def until(condition: Callable[[], bool]) -> None:
    """Poll on Trio's clock. A test's own time-out ends what never comes."""
    while not condition():  # noqa: ASYNC110 - of many kinds, none with an event of its own
        await trio.sleep(0.01)


@asynccontextmanager
async def cluster_of(
    names: str,
    directory: Path,
    network: Callable[[str], Network],
    *,
    addresses: dict[str, str] | None = None,
    started: bool = True,
    **options: object,
) -> AsyncIterator[Cluster]:
    listed = addresses or {name: f"{name}:1" for name in names}
    nodes = {n: Node(n, directory / n, listed, network, **options) for n in names}  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, nodes)
        if started:
            await cluster.start()
            await cluster.until_up()
        yield cluster
        nursery.cancel_scope.cancel()
