"""Where queues are: names of nodes for numbers, on a node alone and in a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from broker.cluster.front import QueueFront
from queues.queue import Queue
from queues.stream.stream import Stream

if TYPE_CHECKING:
    from broker.cluster.cluster import Cluster
    from broker.node import Node
    from queues.raft.messages import NodeId
    from queues.seams import AnyQueue


CRITICAL_SHOWN_MAX: Final = 100

Led: TypeAlias = Queue | Stream


class Whereabouts:
    """Of the queues of a node."""

    def __init__(self, node: Node, cluster: Cluster | None = None) -> None:
        self.me = node.config.node_name
        self._cluster = cluster

    @property
    def cluster_id(self) -> str | None:
        """What no other cluster has; None for a node alone."""
        cluster = None if self._cluster is None else self._cluster.peers.cluster
        return None if cluster is None else cluster.hex()

    def name_of(self, number: NodeId) -> str:
        assert self._cluster is not None
        return self._cluster.storage.members.name_of(number)

    def nodes(self) -> dict[str, bool]:
        """All nodes by name, and whether they are up."""
        if self._cluster is None:
            return {self.me: True}
        up = self._up()
        known = self._cluster.storage.state.nodes.by_number.values()
        return {one.name: one.number in up for one in known}

    def number_of(self, name: str) -> NodeId | None:
        """Of another node; None for this one, or one that is not there."""
        if self._cluster is None or name == self.me:
            return None
        known = self._cluster.storage.state.nodes.by_number.values()
        return next((one.number for one in known if one.name == name), None)

    def _up(self) -> set[NodeId]:
        assert self._cluster is not None
        return self._cluster.peers.up() | {self._cluster.peers.me}

    def leader(self, queue: AnyQueue) -> str:
        """The node that leads it; where nobody does, the one that should."""
        if self._cluster is None:
            return self.me
        if isinstance(queue, QueueFront):
            leader = queue.leader
            if leader is None:
                nodes = self._members(queue)
                return nodes[0] if nodes else self.me
            return self.name_of(leader)
        nodes = self._members(queue)
        return nodes[0] if nodes else self.me

    def counted_here(self, queue: AnyQueue) -> Led | None:
        """The queue itself, on the one node where it counts for sums over all nodes."""
        if (
            isinstance(queue, Stream)
            and self._cluster is not None
            and self.leader(queue) != self.me
        ):
            return None
        return led_here(queue)

    def members(self, queue: AnyQueue) -> list[str]:
        return [self.me] if self._cluster is None else self._members(queue)

    def online(self, queue: AnyQueue) -> list[str]:
        """Those of its members that are up."""
        if self._cluster is None:
            return [self.me]
        up = self.nodes()
        return [name for name in self._members(queue) if up.get(name)]

    def _members(self, queue: AnyQueue) -> list[str]:
        assert self._cluster is not None
        placed = self._cluster.storage.state.placed.get(queue.uid)
        if placed is None:
            return []
        placement = placed.placement
        if placement.home is not None:
            return [self.name_of(placement.home)]
        return [self.name_of(number) for number in placement.groups[0]]

    def critical(self) -> list[dict[str, str]]:
        """Queues that would lose their majority without this node."""
        if self._cluster is None:
            return []
        up, me = self._up(), self._cluster.peers.me
        found: dict[tuple[str, str], str] = {}
        for group, _, placed in self._cluster.storage.members.groups():
            members = placed.placement.groups[group.number]
            alive = [number for number in members if number in up]
            if me in alive and 2 * (len(alive) - 1) <= len(members):
                queue = self._cluster.storage.state.vhosts[placed.vhost].queues[placed.name]
                found[placed.vhost, placed.name] = queue.options.type
        return [
            {"name": name, "virtual_host": vhost, "type": kind}
            for (vhost, name), kind in sorted(found.items())[:CRITICAL_SHOWN_MAX]
        ]


def led_here(queue: AnyQueue) -> Led | None:
    """The queue itself, where this node can tell what is in it."""
    if isinstance(queue, QueueFront):
        return queue.queue
    assert isinstance(queue, Queue | Stream)
    return queue
