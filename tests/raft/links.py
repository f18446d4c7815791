"""A network of connections, as nodes really have: in order and whole between up and down.

Nobody tells a node what another thinks of the group: only that links break and come back. A break
loses what is under way, each end hears of it in its own time, and a link comes back only after.
"""

from functools import partial
from typing import TYPE_CHECKING

from queues.raft.messages import Message

if TYPE_CHECKING:
    from tests.raft.sim import Simulation

CONNECT_S = 0.1
NOTICE_S = 1.0  # without a word for so long, the other end is gone


class Link:
    """Between two nodes. `up`: the ends that believe it up; those of a broken one hear later."""

    def __init__(self) -> None:
        self.session = 0  # one for each time that it is up
        self.whole = False
        self.up: set[int] = set()
        self.arrivals: dict[int, float] = {}  # of the last message to each end

    def is_gone(self) -> bool:
        return not self.up


class Links:
    def __init__(self, sim: "Simulation") -> None:
        self.sim = sim
        self.links: dict[frozenset[int], Link] = {}

    def started(self, node: int) -> None:
        """A node with its first boot or a later one; all its links are yet to be made."""
        for other in self.sim.members:
            if other != node:
                self.links.setdefault(frozenset((node, other)), Link())
        self.sim.members[node].down.update(other for other in self.sim.members if other != node)

    def stopped(self, node: int) -> None:
        for ends, link in self.links.items():
            if node in ends:
                link.up.discard(node)
                self._break(ends, link, 0.01)

    def cut(self, one: int, other: int) -> None:
        ends = frozenset((one, other))
        if ends in self.links:
            self._break(ends, self.links[ends], NOTICE_S)

    def paused(self, node: int) -> None:
        for ends, link in self.links.items():
            if node in ends and self.sim.random.random() < 0.5:
                self._break(ends, link, 0.01)

    def _break(self, ends: frozenset[int], link: Link, notice_s: float) -> None:
        link.whole = False
        link.arrivals.clear()
        for node in sorted(link.up):
            (peer,) = ends - {node}
            delay = self.sim.random.random() * notice_s
            self.sim.at(delay, node, partial(self._down, node, peer, link.session))

    def _down(self, node: int, peer: int, session: int) -> None:
        link = self.links[frozenset((node, peer))]
        member = self.sim.members[node]
        if link.session != session or node not in link.up:
            return
        link.up.discard(node)
        assert member.core is not None
        self.sim.say(f"{node} lost {peer}")
        member.down.add(peer)
        member.core.peer_down(peer, self.sim.now)
        if member.core.leader == peer:
            member.core.suspect_leader(self.sim.now)
        member.pump()

    def connect(self) -> None:
        """From time to time: all that can be linked."""
        sim = self.sim
        sim.at(sim.spread(CONNECT_S), 0, self.connect)
        for ends, link in self.links.items():
            one, other = sorted(ends)
            apart = (one, other) in sim.cuts or (other, one) in sim.cuts
            if apart or not link.is_gone() or not all(self._is_awake(node) for node in ends):
                continue
            link.session += 1
            link.whole = True
            link.up = {one, other}
            for node, peer in ((one, other), (other, one)):
                boot = sim.members[node].boots
                sim.at(0.0, node, partial(self._up, node, peer, boot, link.session))

    def _is_awake(self, node: int) -> bool:
        sim = self.sim
        return sim.members[node].core is not None and sim.paused_until[node] <= sim.now

    def _up(self, node: int, peer: int, boot: int, session: int) -> None:
        link = self.links[frozenset((node, peer))]
        member = self.sim.members[node]
        if member.core is None or member.boots != boot or link.session != session:
            return
        self.sim.say(f"{node} has {peer}")
        member.down.discard(peer)
        member.core.peer_up(peer, self.sim.now)
        member.pump()

    def transmit(self, message: Message) -> None:
        sim = self.sim
        link = self.links.get(frozenset((message.frm, message.to)))
        if link is None or not link.whole or message.to in sim.members[message.frm].down:
            return
        when = max(link.arrivals.get(message.to, 0.0), sim.now + sim.spread(sim.weather.delay_s))
        link.arrivals[message.to] = when
        sim.at(when - sim.now, message.to, partial(self._arrive, link, link.session, message))

    def _arrive(self, link: Link, session: int, message: Message) -> None:
        member = self.sim.members[message.to]
        if link.whole and link.session == session and member.core is not None:
            member.step(message, self.sim.now)
