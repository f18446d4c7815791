"""The nodes of the cluster, as the definitions have them."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from broker.protocol.errors import ChannelError, precondition_failed
from queues.raft.messages import NodeId


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node. Numbers are given once and never again."""

    number: NodeId
    name: str
    uuid: bytes  # of its data directory
    address: str  # where it listens for other nodes
    amqp: str  # where clients reach it
    http: str
    draining: bool = False  # leads nothing, and gets nothing new
    leaving: bool = False  # its replicas are being replaced; then it is removed


class NodeTable:
    """Changes to it are made by every node in the order of the log."""

    def __init__(self) -> None:
        self.by_number: dict[NodeId, NodeRecord] = {}
        self.next_number = 1
        self.removed: set[NodeId] = set()  # they do not come back under the same number

    def clear(self) -> None:
        self.by_number.clear()
        self.next_number = 1
        self.removed.clear()

    def put(
        self,
        number: NodeId,
        name: str,
        uuid: bytes,
        address: str,
        amqp: str,
        http: str,
        *marks: bool,
    ) -> None:
        """Add a node (number 0: the next one that is free), or note where it is now."""
        if number in self.removed:
            raise precondition_failed(f"node {number} was removed")
        for other in self.by_number.values():
            if other.uuid == uuid and number not in (0, other.number):
                raise precondition_failed(f"node '{name}' is number {other.number}")
            if other.name == name and other.uuid != uuid:
                raise precondition_failed(f"another node is called '{name}': remove it first")
        known = next((n for n in self.by_number.values() if n.uuid == uuid), None)
        if number == 0:
            number = self.next_number if known is None else known.number
        if known is not None and not marks:
            marks = (known.draining, known.leaving)
        self.by_number[number] = NodeRecord(number, name, uuid, address, amqp, http, *marks)
        self.next_number = max(self.next_number, number + 1)

    def found(self, founders: list[list[Any]]) -> None:
        """Add those that a cluster was formed with, where they are not known better."""
        for number, name, uuid, address in founders:
            if number not in self.by_number and number not in self.removed:
                with suppress(ChannelError):  # a name that is another's by now
                    self.put(number, name, uuid, address, "", "")

    def remove(self, number: NodeId) -> None:
        self.by_number.pop(number, None)
        self.removed.add(number)

    def mark(
        self, number: NodeId, *, draining: bool | None = None, leaving: bool | None = None
    ) -> None:
        known = self.by_number.get(number)
        if known is None:
            raise precondition_failed(f"there is no node {number}")
        if draining is not None:
            known = replace(known, draining=draining)
        if leaving is not None:
            known = replace(known, leaving=leaving)
        self.by_number[number] = known

    def usable(self) -> list[NodeId]:
        """Those that may get something new."""
        return [n.number for n in self.by_number.values() if not (n.draining or n.leaving)]

    def changes(self) -> Iterator[list[Any]]:
        """What makes this table from an empty one."""
        for node in self.by_number.values():
            yield [
                *("node", node.number, node.name, node.uuid, node.address, node.amqp, node.http),
                *(node.draining, node.leaving),
            ]
        for number in sorted(self.removed):
            yield ["removed-node", number]
        yield ["next-node", self.next_number]
