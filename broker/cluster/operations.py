"""What operators see of a cluster and have done with it, through any of its nodes."""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import trio

from broker.http.cluster import ClusterOperationError
from broker.protocol.errors import ChannelError

if TYPE_CHECKING:
    from broker.cluster.cluster import Cluster
    from broker.cluster.seams import Result, Then
    from broker.cluster_settings import Address
    from queues.raft.messages import NodeId

LOOK_S: Final = 0.05  # between looks at whether it is done
STRANGER_S: Final = 5.0  # for a node that is to be added to ask for it
NO_QUORUM: Final = 506
_STATUS: Final = {404: 404, 406: 409, NO_QUORUM: 503}


class Operations:
    """A `broker.http.cluster.ClusterOperations`."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._storage = cluster.storage
        self._members = cluster.storage.members
        self._state = cluster.storage.state

    # What there is

    def status(self) -> dict[str, Any]:
        found = self._members.status()
        peers, behind = self._cluster.peers, self._behind()
        assert peers.cluster is not None
        return {
            "cluster": peers.cluster.hex(),
            "node": peers.name,
            "leader": found["metadata_leader"],
            "nodes": [
                {
                    **{key: one[key] for key in ("name", "number", "address", "amqp", "http")},
                    "state": "up" if one["up"] else "down",
                    **{key: one[key] for key in ("draining", "leaving", "leaders", "replicas")},
                    "behind_entries": behind[one["number"]],
                }
                for one in found["nodes"]
            ]
            + [_waiting(info.name, info.address) for info in peers.waiting.values()],
            "queues": len(self._state.placed),
            "queues_without_leader": sum(1 for one in found["troubled"] if one["leader"] is None),
            "incomplete_groups": self._incomplete(),
            "damaged_groups": sum(
                1 for log in self._storage.replication.logs.values() if log.damaged is not None
            ),
            "rebalancing": found["rebalancing"],
            "moving": found["moving"],
        }

    def _incomplete(self) -> int:
        """Logs led by this node that somebody has no vote in, or no copy of, who should."""
        count = 0
        for uid, log in self._storage.replication.logs.items():
            wish = self._storage.wish_of(uid) if log.leads else None
            if wish is not None and log.config is not None:
                voters = set(log.config.voters)
                here = voters.union(log.config.learners)
                count += not (voters.issuperset(wish.members) and here.issuperset(wish.readers))
        return count

    def _behind(self) -> "Counter[NodeId]":
        """How many entries of logs that this node leads are not at the others."""
        behind: Counter[NodeId] = Counter()
        for log in self._storage.replication.logs.values():
            raft = log.raft
            if log.leads and raft is not None and raft.progress is not None:
                for node, progress in raft.progress.items():
                    behind[node] += raft.log.last - progress.match
        return behind

    def queues(self) -> list[dict[str, Any]]:
        up = self._cluster.peers.up() | {self._cluster.peers.me}
        rows = []
        for group, uid, placed in self._members.groups():
            members = placed.placement.groups[group.number]
            leader = self._storage.book.leader_of(uid)
            queue = self._state.vhosts[placed.vhost].queues[placed.name]
            rows.append(
                {
                    "vhost": placed.vhost,
                    "name": placed.name,
                    "partition": group.number,
                    "type": queue.options.type,
                    "leader": None if leader is None else self._members.name_of(leader),
                    "members": [self._members.name_of(node) for node in members],
                    "up": [self._members.name_of(node) for node in members if node in up],
                }
            )
        return rows

    # What is to be done

    async def add(self, name: str, address: "Address") -> None:
        self._cluster.peers.forget_waiting(name)
        waiting = await self._await_stranger(name)
        await self._ask(lambda then: self._members.add(name, waiting.uuid, str(address), then))

    async def _await_stranger(self, name: str) -> Any:
        """It asks to be added a few times in a second, any node that it knows."""
        with trio.move_on_after(STRANGER_S):
            await self._until(lambda: name in self._cluster.peers.waiting)
            return self._cluster.peers.waiting[name]
        raise ClusterOperationError(
            f"no node called {name!r} asks this one to be added: start it with an empty data "
            f"directory, the cluster's secret, and this node in its setting cluster",
            status=409,
        )

    async def remove(self, name: str) -> None:
        await self._ask(lambda then: self._members.remove(name, then))
        await self._until(lambda: all(n.name != name for n in self._nodes()))

    async def transfer(self, vhost: str, queue: str, node: str) -> None:
        await self._ask(lambda then: self._members.transfer(vhost, queue, node, then))
        await self._until(lambda: not self._state.transfers)

    async def rebalance(self) -> int:
        before = self._leads()
        await self._ask(self._members.rebalance)
        await self._until(lambda: not self._state.rebalancing and not self._state.transfers)
        return self._moved(before)

    async def drain(self, name: str) -> int:
        before = self._leads()
        await self._ask(lambda then: self._members.drain(name, then))
        node = next(n.number for n in self._nodes() if n.name == name)
        await self._until(lambda: node not in self._leads().values())
        return self._moved(before)

    async def undrain(self, name: str) -> None:
        await self._ask(lambda then: self._members.drain(name, then, on=False))

    def _nodes(self) -> list[Any]:
        return list(self._state.nodes.by_number.values())

    def _leads(self) -> "dict[bytes, NodeId | None]":
        book = self._storage.book
        return {uid: book.leader_of(uid) for _, uid, _ in self._members.groups()}

    def _moved(self, before: "dict[bytes, NodeId | None]") -> int:
        return sum(before.get(uid) != leader for uid, leader in self._leads().items())

    async def _until(self, done: Callable[[], bool]) -> None:
        while not done():  # noqa: ASYNC110 - it depends on what many others tell
            await trio.sleep(LOOK_S)

    async def _ask(self, request: "Callable[[Then], None]") -> None:
        answered = trio.Event()
        results: list[Result] = []

        def answer(result: "Result") -> None:
            results.append(result)
            answered.set()

        try:
            request(answer)
        except ChannelError as error:
            results.append(error)
            answered.set()
        self._cluster.end_turn()
        await answered.wait()
        refusal = results[0]
        if refusal is not None:
            raise ClusterOperationError(refusal.text, status=_STATUS.get(refusal.code, 400))


def _waiting(name: str, address: str) -> dict[str, Any]:
    """A node that is not a member yet."""
    nothing = dict.fromkeys(("leaders", "replicas", "behind_entries"), 0)
    unknown = dict.fromkeys(("number", "amqp", "http"), None)
    marks = {"state": "joining", "draining": False, "leaving": False}
    return {"name": name, "address": address, **unknown, **marks, **nothing}
