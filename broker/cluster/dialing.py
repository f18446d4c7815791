"""The connections that this node opens: links to nodes of higher numbers, and questions."""

import os
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import trio

from broker.cluster import forming, hello
from broker.cluster.door import Door, told
from broker.cluster.hello import HelloFailedError, Opening, RefusedByPeerError, RefusedError
from broker.cluster.kinds import Lane
from broker.cluster.link import Link
from broker.cluster.network import Network
from broker.cluster.table import UUID_BYTES
from broker.cluster.wire import Wire, wire_of
from queues.raft.messages import NodeId

if TYPE_CHECKING:
    from broker.cluster.peers import Peers

_FAILURES = (
    OSError,
    ValueError,
    HelloFailedError,
    RefusedError,
    RefusedByPeerError,
    trio.TooSlowError,
)


class Dialer:
    """Dials, again and again, with pauses that grow while it fails."""

    def __init__(self, peers: "Peers", door: Door, network: Network, random: Random) -> None:
        self._peers = peers
        self._door = door
        self._network = network
        self._random = random

    async def keep_linked(self, node: NodeId) -> None:
        """For as long as the node belongs to the cluster."""
        options = self._peers.options
        pause_s = options.backoff_min_s
        while True:
            address = self._peers.address_of(node)
            try:
                wires = await self._open_lanes(node, address)
            except _FAILURES as error:
                reason = _reason(error)
                self._peers.refusals[node] = reason
                self._door.complain(address, reason, node)
            else:
                self._peers.refusals.pop(node, None)
                self._door.content_with(address)
                link = Link(self._peers, node, wires)
                await self._peers.run_link(link)
                if link.was_up:
                    pause_s = options.backoff_min_s
            await trio.sleep(pause_s * self._random.uniform(1.0, 1.5))
            pause_s = min(2 * pause_s, options.backoff_max_s)

    async def _open_lanes(self, node: NodeId, address: str) -> tuple[Wire, Wire]:
        link = os.urandom(UUID_BYTES)
        streams: list[trio.abc.Stream] = []
        try:
            with trio.fail_after(self._peers.options.hello_timeout_s):
                for lane in Lane:
                    streams.append(await self._network.connect(address))
                    opening = Opening(lane, link, node, self._door.claim())
                    approve = partial(self._door.approve, expected=node)
                    await hello.dial(streams[-1], self._peers.options.secret, opening, approve)
        except BaseException:
            for stream in streams:
                await _close(stream)
            raise
        control, bulk = map(wire_of, streams)
        return control, bulk

    async def ask(self, address: str) -> forming.Card:
        """The card of whoever is at an address; an exception of `_FAILURES` if there is none."""
        with trio.fail_after(self._peers.options.hello_timeout_s):
            stream = await self._network.connect(address)
            try:
                opening = Opening(hello.FORMING_LANE, bytes(UUID_BYTES), 0, self._door.claim())
                await hello.dial(stream, self._peers.options.secret, opening, _anyone)
                return await forming.exchange(stream, self._door.card())
            finally:
                await _close(stream)

    async def ask_all(self) -> dict[str, forming.Card]:
        """One round over all that are listed: the cards of those that answered as they should."""
        cards: dict[str, forming.Card] = {}

        async def ask_one(name: str, address: str) -> None:
            try:
                card = await self.ask(address)
                if card.info.name != name:
                    raise RefusedError(f"the node there is called {card.info.name}, not {name}")
            except _FAILURES as error:
                self._door.complain(address, _reason(error))
            else:
                self._door.content_with(address)
                cards[name] = card

        async with trio.open_nursery() as nursery:
            for name, address in self._peers.options.listed.items():
                if name != self._peers.name:
                    nursery.start_soon(ask_one, name, address)
        return cards


async def _close(stream: trio.abc.Stream) -> None:
    with trio.CancelScope(shield=True):
        await trio.aclose_forcefully(stream)


async def _anyone(_claim: hello.Claim) -> None:
    """Whoever knows the secret may be asked."""


def _reason(error: Exception) -> str:
    if isinstance(error, trio.TooSlowError):
        return "it does not answer"
    if isinstance(error, OSError):
        return f"cannot connect: {error.strerror or error}"
    return told(error)
