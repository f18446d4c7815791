"""How many connections and channels other nodes have of users and vhosts that have a limit.

Each node tells all others whenever that changes (kind COUNT), in CBOR:

    [["user" or "vhost", name, connections, channels], …]
"""

from typing import TYPE_CHECKING

import cbor2

from broker.cluster.kinds import Kind
from broker.cluster.mail import Mail
from broker.security.limits import Count
from queues.raft.messages import NodeId

if TYPE_CHECKING:
    from broker.node import Node


class Headcounts:
    """One per node of a cluster. What is told together is told once, at the end of a turn."""

    def __init__(self, node: "Node", mail: Mail) -> None:
        self._node = node
        self._mail = mail
        self._telling = False
        node.headcount.changed = self._changed
        node.registry.on_change.append(self._changed)  # there may be a limit that was not there

    def _changed(self) -> None:
        if not self._telling:
            self._telling = True
            timers = self._node.timers
            timers.call_at(timers.now_ms(), self._tell_all)

    def _tell_all(self) -> None:
        self._telling = False
        counted = self._counted()
        for node in self._mail.up():
            self._mail.send(node, Kind.COUNT, counted)

    def _counted(self) -> bytes:
        users = self._node.registry.users.values()
        vhosts = self._node.vhosts.values()
        rows = [["user", u.name, u.connections, u.channels] for u in users if u.limits]
        rows += [["vhost", v.name, v.connections, 0] for v in vhosts if v.limits]
        return cbor2.dumps(rows)

    def received(self, node: NodeId, body: bytes | memoryview) -> None:
        """A message of kind COUNT."""
        counts = {(kind, name): Count(*both) for kind, name, *both in cbor2.loads(bytes(body))}
        self._node.headcount.elsewhere[node] = counts

    def node_up(self, node: NodeId) -> None:
        self._mail.send(node, Kind.COUNT, self._counted())

    def node_down(self, node: NodeId) -> None:
        """Its connections are gone with it."""
        self._node.headcount.elsewhere.pop(node, None)
