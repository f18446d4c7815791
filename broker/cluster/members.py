"""Nodes come and go: what operators ask for, and the plan that is carried out for it.

What they ask for becomes part of the definitions. The metadata leader plans one change after the
other from that (`plan`), and each group's leader carries it out (`broker.cluster.keeper`); both go
on where they were when another node comes to lead.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from broker.cluster.catalog import Catalog
from broker.cluster.keeper import Wish
from broker.cluster.moves import GroupId, Lead, even_leaders, even_replicas, without
from broker.cluster.placement import group_size
from broker.cluster.requests import Clock
from broker.cluster.seams import Result, Then
from broker.cluster.state import Placed, State
from broker.protocol.errors import ChannelError, not_found, precondition_failed
from queues.raft.config import Config
from queues.raft.messages import NodeId

MOVES_MAX: Final = 4  # groups that get new members at the same time: copying costs the others
PLAN_MS: Final = 500


class Members:
    """The membership operations of a node. Any node takes them; the metadata leader plans.

    `leader_of` is the leader book's; `group_uid` names the group of a stream's partition.
    """

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        *,
        metadata_uid: bytes,
        shared_uids: Callable[[], list[bytes]] = list,
        metadata_config: Callable[[], Config],
        up: Callable[[], set[NodeId]],
        leader_of: Callable[[bytes], NodeId | None],
        group_uid: Callable[[bytes, int], bytes],
    ) -> None:
        self._catalog = catalog
        self._state: State = catalog.state
        self._clock = clock
        self._metadata_uid = metadata_uid
        self._shared_uids = shared_uids  # of groups that all nodes are members of
        self._metadata_config = metadata_config
        self._others_up = up
        self._leader_of = leader_of
        self._group_uid = group_uid
        self._planning = False  # a change is on its way
        self._ticking = False
        self._by_uid: dict[bytes, GroupId] | None = None
        self._leads_to_move: list[tuple[GroupId, NodeId]] = []
        catalog.on_change.append(self._forget_groups)
        catalog.on_members.append(self.look)

    def _up(self) -> set[NodeId]:
        return {*self._others_up(), self._catalog.me}

    # What operators ask for

    def add(self, name: str, uuid: bytes, address: str, then: Then) -> None:
        """Make a node part of the cluster: it learns the definitions and then has a vote."""
        self._catalog.request(["node", 0, name, uuid, address, "", ""], then)

    def remove(self, name: str, then: Then, *, lose_classic: bool = False) -> None:
        """Have a node's replicas replaced by others, then be rid of it; it may be dead."""

        def decide() -> None:
            node = self._node(name)
            self._check_remaining(node)
            homed = self._homed(node)
            if homed and not lose_classic:
                raise precondition_failed(
                    f"{len(homed)} classic queues live on node '{name}' alone and would be lost, "
                    f"among them '{homed[0].name}' in vhost '{homed[0].vhost}'"
                )
            self._catalog.request(["leaving", node, True], then)

        self._decide(decide, then)

    def keep(self, name: str, then: Then) -> None:
        """Take a removal back that has not come to its end."""
        change = ["leaving", None, False]
        self._decide(lambda: self._request_for(change, name, then), then)

    def drain(self, name: str, then: Then, *, on: bool = True) -> None:
        """Have a node lead nothing and get nothing new, until it is started anew or told so."""
        change = ["draining", None, on]
        self._decide(lambda: self._request_for(change, name, then), then)

    def transfer(self, vhost: str, queue: str, name: str, then: Then, *, group: int = 0) -> None:
        """Have a node lead a queue, or a partition of a stream; it must be a member."""

        def decide() -> None:
            there = self._state.vhosts.get(vhost)
            found = there.queues.get(queue) if there is not None else None
            if found is None:
                raise not_found(f"no queue '{queue}' in vhost '{vhost}'")
            self._catalog.request(["lead", found.uid, group, self._node(name)], then)

        self._decide(decide, then)

    def rebalance(self, then: Then) -> None:
        """Even out how many replicas nodes have, then how many groups they lead."""
        self._catalog.request(["rebalance", True], then)

    def _decide(self, decide: Callable[[], None], then: Then) -> None:
        """With what is known to all by now."""

        def known(error: Result) -> None:
            if error is not None:
                then(error)
                return
            try:
                decide()
            except ChannelError as refusal:
                then(refusal)

        self._catalog.read(known)

    def _request_for(self, change: list[Any], name: str, then: Then) -> None:
        change[1] = self._node(name)
        self._catalog.request(change, then)

    def _node(self, name: str) -> NodeId:
        for number, node in self._state.nodes.by_number.items():
            if node.name == name:
                return number
        raise not_found(f"there is no node '{name}'")

    def _check_remaining(self, node: NodeId) -> None:
        """Those that stay must be able to go on, and to agree on its removal."""
        nodes = self._state.nodes.by_number
        staying = [n for n, one in nodes.items() if n != node and not one.leaving]
        up = self._up()
        alive = [n for n in staying if n in up]
        if not staying or 2 * len(alive) <= len(staying):
            raise precondition_failed(
                f"without node '{nodes[node].name}' only {len(alive)} of {len(staying)} nodes "
                "would be up: no quorum"
            )

    def _homed(self, node: NodeId) -> list[Placed]:
        found = []
        for placed in self._state.placed.values():
            queue = self._state.vhosts[placed.vhost].queues[placed.name]
            if placed.placement.home == node and queue.durable:
                found.append(placed)
        return found

    # How each group should be, for the keeper of its leader

    def wish_of(self, uid: bytes) -> Wish | None:
        """None of a group that is not in the definitions, or while these know no nodes."""
        nodes = self._state.nodes.by_number
        shunned = frozenset(n for n, one in nodes.items() if one.draining or one.leaving)
        if uid == self._metadata_uid or uid in self._state.members or uid in self._shared_uids():
            members = self._state.members.get(uid, tuple(self._shared_by(uid)))
            return Wish(members, shunned=shunned) if members else None
        group = self._groups_by_uid().get(uid)
        if group is None:
            return None
        placement = self._state.placed[group.queue].placement
        members = placement.groups[group.number]
        wanted = self._state.transfers.get(group)

        def settled() -> bool:
            if not placement.former_of(group.number):
                return False
            self._catalog.request(["moved", *group, list(members)])
            return True

        def led() -> bool:
            self._catalog.request(["led", *group, wanted])
            return True

        return Wish(members, (), wanted, shunned, settled, led)

    def _shared_by(self, uid: bytes) -> Iterator[NodeId]:
        """All nodes; one that leaves is a member of the metadata group till the rest is done."""
        for number, node in self._state.nodes.by_number.items():
            if not node.leaving or (uid == self._metadata_uid and self._holds_any(number)):
                yield number

    def _holds_any(self, node: NodeId) -> bool:
        return any(
            placed.placement.home is None and node in placed.placement.nodes
            for placed in self._state.placed.values()
        )

    def _groups_by_uid(self) -> dict[bytes, GroupId]:
        if self._by_uid is None:
            self._by_uid = {self.uid_of(group): group for group in self._groups()}
        return self._by_uid

    def _groups(self) -> dict[GroupId, tuple[NodeId, ...]]:
        return {
            GroupId(uid, number): members
            for uid, placed in self._state.placed.items()
            for number, members in enumerate(placed.placement.groups)
        }

    def uid_of(self, group: GroupId) -> bytes:
        """The name of a group's log."""
        placed = self._state.placed[group.queue]
        queue = self._state.vhosts[placed.vhost].queues[placed.name]
        is_stream = queue.options.type == "stream"
        return self._group_uid(group.queue, group.number) if is_stream else group.queue

    # The plan

    def _forget_groups(self) -> None:
        self._by_uid = None

    def look(self) -> None:
        """On the metadata leader: have the next change made, if there is one."""
        if not self._catalog.leads or self._planning:
            return
        change = self.plan()
        if change is not None:
            self._planning = True
            self._catalog.request(change, self._planned)
        elif self._is_under_way():
            self._look_in(PLAN_MS)

    def _planned(self, error: Result) -> None:
        self._planning = False
        self._look_in(1 if error is None else PLAN_MS)

    def _look_in(self, ms: int) -> None:
        if not self._ticking:
            self._ticking = True
            self._clock.call_at(self._clock.now_ms() + ms, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        self.look()

    def _is_under_way(self) -> bool:
        leaving = any(node.leaving for node in self._state.nodes.by_number.values())
        return leaving or self._state.rebalancing or any(self._short())

    def _short(self) -> Iterator[tuple[GroupId, tuple[NodeId, ...]]]:
        """Groups with fewer replicas than were asked for, though there are nodes for more."""
        usable = self._state.nodes.usable()
        for group, members in self._groups().items():
            placed = self._state.placed[group.queue]
            queue = self._state.vhosts[placed.vhost].queues[placed.name]
            wanted = min(group_size(queue.arguments), len(usable))
            if len(members) < wanted and not placed.placement.former_of(group.number):
                yield group, members

    def _grow(self) -> list[Any] | None:
        """A replica more for one of them."""
        replicas, up = self._state.load.replicas, self._usable_up()
        for group, members in self._short():
            free = [node for node in up if node not in members]
            if free:
                new = min(free, key=lambda node: (replicas[node], node))
                return ["place", *group, [*members, new]]
        return None

    def plan(self) -> list[Any] | None:
        """The next change to the definitions; None if there is nothing to do, or to wait for it."""
        state = self._state
        if not self._is_under_way():
            return None
        groups = self._groups()
        moving = sum(
            bool(former) for placed in state.placed.values() for former in placed.placement.former
        )
        if moving >= MOVES_MAX:
            return None
        for node, record in state.nodes.by_number.items():
            if record.leaving:
                return self._empty(node, groups)
        grown = self._grow()
        if grown is not None or not state.rebalancing:
            return grown
        move = even_replicas(groups, self._usable_up())
        if move is not None:
            group, members = move
            return ["place", *group, list(members)]
        if moving:
            return None
        if not self._leads_to_move and not state.transfers:
            leads = {g: Lead(m, self._leader_of(self.uid_of(g))) for g, m in groups.items()}
            self._leads_to_move = even_leaders(leads, self._usable_up())
            if not self._leads_to_move:
                return ["rebalance", False]
        while self._leads_to_move:
            group, to = self._leads_to_move.pop()
            if to in groups.get(group, ()):
                return ["lead", *group, to]
        return None

    def _usable_up(self) -> list[NodeId]:
        up = self._up()
        return [node for node in self._state.nodes.usable() if node in up]

    def _empty(self, node: NodeId, groups: dict[GroupId, tuple[NodeId, ...]]) -> list[Any] | None:
        """The next step towards a node that holds nothing."""
        state = self._state
        for group, members in groups.items():
            if node in members:
                others = without(
                    members,
                    node,
                    usable=state.nodes.usable(),
                    replicas=state.load.replicas,
                    up=self._up(),
                )
                if others:
                    return ["place", *group, list(others)]
        config = self._metadata_config()
        if self._holds_any(node) or node in (*config.voters, *config.learners):
            return None
        return ["-node", node]

    # What is to be seen

    def status(self) -> dict[str, Any]:
        """The cluster as plain data."""
        up = self._up()
        replicas: Counter[NodeId] = Counter()
        leaders: Counter[NodeId] = Counter()
        troubled = []
        for group, members in self._groups().items():
            replicas.update(members)
            leader = self._leader_of(self.uid_of(group))
            if leader is not None:
                leaders[leader] += 1
            alive = [node for node in members if node in up]
            if leader is None or 2 * len(alive) <= len(members):
                placed = self._state.placed[group.queue]
                troubled.append(
                    {
                        "vhost": placed.vhost,
                        "queue": placed.name,
                        "group": group.number,
                        "members": [self.name_of(node) for node in members],
                        "up": [self.name_of(node) for node in alive],
                        "leader": None if leader is None else self.name_of(leader),
                        "quorum": 2 * len(alive) > len(members),
                    }
                )
        metadata_leader = self._leader_of(self._metadata_uid)
        return {
            "nodes": [
                {
                    "number": node.number,
                    "name": node.name,
                    "address": node.address,
                    "amqp": node.amqp,
                    "http": node.http,
                    "up": node.number in up,
                    "draining": node.draining,
                    "leaving": node.leaving,
                    "replicas": replicas[node.number],
                    "leaders": leaders[node.number],
                    "classic_queues": len(self._homed(node.number)),
                }
                for node in self._state.nodes.by_number.values()
            ],
            "metadata_leader": None if metadata_leader is None else self.name_of(metadata_leader),
            "rebalancing": self._state.rebalancing,
            "moving": sum(bool(p.placement.former) for p in self._state.placed.values()),
            "troubled": troubled,
        }

    def groups(self) -> "Iterator[tuple[GroupId, bytes, Placed]]":
        """Every group of a queue that is replicated, the name of its log, and the queue."""
        for group in self._groups():
            yield group, self.uid_of(group), self._state.placed[group.queue]

    def name_of(self, node: NodeId) -> str:
        """The number, where its name is not known."""
        known = self._state.nodes.by_number.get(node)
        return str(node) if known is None else known.name
