"""What all nodes of a cluster agree on, and how each change of the log is made.

Every node makes the same changes in the same order to its vhosts and tables, and comes to the same
results. So nothing here may look at a clock, at the network or at what this node alone knows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from broker import logs
from broker.cluster.nodes import NodeTable
from broker.cluster.placement import Load, Placement
from broker.cluster.seams import Change, Result
from broker.declaring import check_same, locked
from broker.global_parameters import GlobalParameters
from broker.policies import Kind, Policy
from broker.protocol.errors import ChannelError, not_found, precondition_failed
from broker.protocol.tables import Table
from broker.registry.state import KINDS as SCHEMA_KINDS
from broker.registry.state import REQUEST as SCHEMAS_REQUEST
from broker.registry.state import Schemas
from broker.security.registry import CHANGES, Registry
from broker.vhost import VHost
from exchanges.exchange import Exchange
from queues.arguments import InvalidArgumentError
from queues.declared import parse_arguments
from queues.options import NOTHING_ALTERED, altered
from queues.raft.messages import NodeId
from queues.seams import AnyQueue

ASK: Final = "ask"

_log = logs.get("catalog")


@dataclass(slots=True)
class Asked:
    """What one start of a node has asked for: `last` is the newest number that was applied."""

    boot: int
    last: int = 0
    results: dict[int, Result] = field(default_factory=dict)  # those it may not know yet


@dataclass(slots=True)
class Placed:
    """A queue of the cluster, found by its uid."""

    vhost: str
    name: str
    placement: Placement


class State:
    """The vhosts, and the tables beside them."""

    def __init__(
        self, vhosts: Mapping[str, VHost], vhost_of: Callable[[str], VHost], registry: Registry
    ) -> None:
        self.vhosts = vhosts
        self.vhost = vhost_of  # by name; raises ChannelError if there is none
        self.registry = registry
        self.global_parameters = GlobalParameters()
        self.schemas = Schemas()
        self.nodes = NodeTable()
        self.boots: dict[NodeId, int] = {}
        self.asked: dict[NodeId, Asked] = {}
        self.placed: dict[bytes, Placed] = {}
        # Members of groups that are no queue's, where they are not simply all nodes.
        self.members: dict[bytes, tuple[NodeId, ...]] = {}
        self.transfers: dict[tuple[bytes, int], NodeId] = {}  # group of a queue → who is to lead
        self.rebalancing = False
        self.load = Load()
        self._handlers: Final[dict[str, Callable[..., None]]] = {
            "exchange": self._exchange,
            "-exchange": self._delete_exchange,
            "queue": self._queue,
            "-queue": self._delete_queue,
            "settings": self._alter_queue,
            "binding": self._bind,
            "-binding": self._unbind,
            "policy": lambda *details: self._policy("policy", *details),
            "-policy": lambda *details: self._remove_policy("policy", *details),
            "operator-policy": lambda *details: self._policy("operator-policy", *details),
            "-operator-policy": lambda *details: self._remove_policy("operator-policy", *details),
            "global-parameter": partial(self._global_parameter, "global-parameter"),
            "-global-parameter": partial(self._global_parameter, "-global-parameter"),
            "-owner": self._forget_owner,
            "boot": self._boot,
            "gone": self._gone,
            "founders": self.nodes.found,
            "node": self.nodes.put,
            "-node": self._remove_node,
            "draining": lambda node, on: self.nodes.mark(node, draining=on),
            "leaving": lambda node, on: self.nodes.mark(node, leaving=on),
            "removed-node": self.nodes.removed.add,
            "next-node": self._next_node,
            "place": self._place,
            "moved": self._moved,
            "lead": self._lead,
            "led": self._led,
            "rebalance": self._rebalance,
            "members": self._members,
            "booted": self.boots.__setitem__,
            "asked": self._asked,
            **{kind: partial(self._define, kind) for kind in CHANGES},
            SCHEMAS_REQUEST: self._change_schemas,
            **{kind: partial(self._schema, kind) for kind in SCHEMA_KINDS},
        }

    # Applying

    def apply(self, change: Change) -> Result:
        """Make a change; None, or why it was not made. Everywhere the same."""
        kind, *details = change
        try:
            self._handlers[cast("str", kind)](*details)
        except ChannelError as error:
            return error
        except Exception as error:  # noqa: BLE001 - one entry must not end all nodes for ever
            _log.exception("change_failed", error, kind=kind)
            return ChannelError(541, f"internal error: {kind} could not be made")
        return None

    def apply_asked(
        self, node: NodeId, boot: int, number: int, low: int, change: Change
    ) -> tuple[Result] | None:
        """A request; None if it is one that was made before, or of a life that is over.

        A node numbers its requests, and sends them in order again where it has to. So all that
        are not above the last one are old. `low` is the oldest that it still waits for.
        """
        asked = self.asked.get(node)
        if asked is None or asked.boot < boot:
            asked = self.asked[node] = Asked(boot)
        if boot < asked.boot or number <= asked.last:
            return None
        asked.last = number
        result = self.apply(change)
        for old in [n for n in asked.results if n < low]:
            del asked.results[old]
        if node in self.asked:  # else it has just been removed
            asked.results[number] = result
        return (result,)

    def _define(self, kind: str, *details: Any) -> None:
        """Users, vhosts, permissions, limits."""
        self.registry.apply([kind, *details])

    # Exchanges

    def _exchange(
        self,
        vhost: str,
        name: str,
        kind: str,
        auto_delete: bool,  # noqa: FBT001 - fields of a change
        internal: bool,  # noqa: FBT001
        arguments: Table,
        durable: bool = True,  # noqa: FBT001, FBT002
    ) -> None:
        self.vhost(vhost).declare_exchange(
            name,
            kind,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
        )

    def _delete_exchange(
        self,
        vhost: str,
        name: str,
        if_unused: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        self.vhost(vhost).delete_exchange(name, if_unused=if_unused)

    # Queues

    def _queue(
        self,
        vhost_name: str,
        name: str,
        uid: bytes,
        auto_delete: bool,  # noqa: FBT001
        queue_type: Any,
        arguments: Table,
        durable: bool,  # noqa: FBT001
        owner: list[int] | None,
        place: list[Any],
        settings: Table = NOTHING_ALTERED,
    ) -> None:
        vhost = self.vhost(vhost_name)
        thing = f"queue '{name}' in vhost '{vhost_name}'"
        owned_by = None if owner is None else cast("tuple[int, int, int]", tuple(owner))
        existing = vhost.queues.get(name)
        if existing is not None:
            check_same(
                existing,
                thing,
                durable=durable,
                auto_delete=auto_delete,
                owner=owned_by,
                arguments=arguments,
                user_of=owned_by,
            )
            return
        placement = Placement.decode(place)
        try:
            options = parse_arguments(altered(arguments, settings), default=queue_type)
        except InvalidArgumentError as error:
            text = f"invalid arg '{error.name}' for {thing}: {error.reason}"
            raise precondition_failed(text) from None
        vhost.place_queue(
            name,
            uid,
            options,
            arguments,
            durable=durable,
            auto_delete=auto_delete,
            owner=owned_by,
            placement=placement,
            settings=settings,
        )
        self.placed[uid] = Placed(vhost_name, name, placement)
        self._count(placement, 1)

    def _count(self, placement: Placement, by: int) -> None:
        groups = placement.groups or ((placement.home or 0,),)
        for group in groups:
            self.load.leaders[group[0]] += by
            for node in group:
                self.load.replicas[node] += by

    def _delete_queue(self, vhost: str, name: str, uid: bytes) -> None:
        self.vhost(vhost).refuse_internal(name)
        queue = self.vhost(vhost).queues.get(name)
        if queue is not None and queue.uid == uid:  # else that one is gone already
            self.drop_queue(self.vhost(vhost), queue)

    def _alter_queue(self, vhost: str, name: str, uid: bytes, settings: Table) -> None:
        queue = self.vhost(vhost).queues.get(name)
        if queue is None or queue.uid != uid:
            raise not_found(f"no queue '{name}' in vhost '{vhost}'")
        self.vhost(vhost).policies.alter(queue, settings)

    def drop_queue(self, vhost: VHost, queue: AnyQueue) -> None:
        placement = self.placed.pop(queue.uid).placement
        self._count(placement, -1)
        for group in range(len(placement.groups)):
            self.transfers.pop((queue.uid, group), None)
        vhost.drop_queue(queue)

    def _drop_queues(self, wanted: Callable[[AnyQueue, Placement], bool]) -> None:
        for uid, placed in list(self.placed.items()):
            vhost = self.vhosts[placed.vhost]
            queue = vhost.queues[placed.name]
            assert queue.uid == uid
            if wanted(queue, placed.placement):
                self.drop_queue(vhost, queue)

    def _forget_owner(self, *owner: int) -> None:
        for vhost in self.vhosts.values():
            for queue in vhost.owned_by(owner):
                self.drop_queue(vhost, queue)

    # Bindings

    def _bind(
        self,
        vhost_name: str,
        source: str,
        what: str,
        name: str,
        key: str,
        arguments: Table,
        user: list[int] | None = None,
    ) -> None:
        vhost = self.vhost(vhost_name)
        vhost.bind(source, self._destination(vhost, what, name, user), key, arguments)

    def _unbind(
        self,
        vhost_name: str,
        source: str,
        what: str,
        name: str,
        key: str,
        arguments: Table,
    ) -> None:
        vhost = self.vhost(vhost_name)
        there: Mapping[str, AnyQueue | Exchange]
        there = vhost.queues if what == "queue" else vhost.exchanges
        destination = there.get(name)
        if destination is not None:
            vhost.unbind(source, destination, key, arguments)

    @staticmethod
    def _destination(
        vhost: VHost, what: str, name: str, user: list[int] | None
    ) -> AnyQueue | Exchange:
        if what == "exchange":
            return vhost.exchange(name)
        queue = vhost.queues.get(name)
        thing = f"queue '{name}' in vhost '{vhost.name}'"
        if queue is None:
            raise not_found(f"no {thing}")
        if queue.owner is not None and queue.owner != tuple(user or ()):
            raise locked(thing)
        return queue

    # Policies

    def _policy(self, kind: Kind, vhost: str, name: str, *details: Any) -> None:
        self.vhost(vhost).policies.put(kind, Policy.make(name, *details))

    def _remove_policy(self, kind: Kind, vhost: str, name: str) -> None:
        self.vhost(vhost).policies.remove(kind, name)

    # Parameters

    def _global_parameter(self, kind: str, name: str, value: Any = None) -> None:
        self.global_parameters.make(kind, name, value)

    # Schemas

    def _change_schemas(self, seen: Any, changes: Any) -> None:
        self.schemas.carry_out(seen, changes)

    def _schema(self, kind: str, *details: Any) -> None:
        """In checkpoints."""
        self.schemas.make([kind, *details])

    # Nodes

    def _boot(self, node: NodeId, boot: int, up: dict[NodeId, int]) -> None:
        """A node was started anew: what it had in memory is no more.

        `up` are the nodes, and their boot numbers, that it met. If none of them carries on from
        before, all were stopped, and transient exchanges ended with that.
        """
        if boot <= self.boots.get(node, 0):
            return
        carried_on = any(self.boots.get(other) == number for other, number in up.items())
        self.boots[node] = boot
        self._end_life(node, boot - 1)
        if node in self.nodes.by_number:
            self.nodes.mark(node, draining=False)
        if not carried_on:
            for vhost in self.vhosts.values():
                for exchange in [e for e in vhost.exchanges.values() if not e.durable]:
                    if vhost.exchanges.get(exchange.name) is exchange:
                        vhost.drop_exchange(exchange)

    def _gone(self, node: NodeId, boot: int) -> None:
        """Others have not heard of a node for a while: what needs it to be up ends."""
        if boot == self.boots.get(node):
            self._end_life(node, boot)

    def has_passing(self, node: NodeId, boot: int) -> bool:
        """Whether there is something that ends with this life of a node."""
        found = ((self.vhosts[p.vhost].queues[p.name], p.placement) for p in self.placed.values())
        return any(_ends_with(node, boot, *each) for each in found)

    def _end_life(self, node: NodeId, boot: int) -> None:
        self._drop_queues(lambda *each: _ends_with(node, boot, *each))

    def _remove_node(self, node: NodeId) -> None:
        """What lives there alone ends with it; all else must have been moved before."""
        for placed in self.placed.values():
            if placed.placement.home is None and node in placed.placement.nodes:
                raise precondition_failed(
                    f"node {node} still holds a part of queue '{placed.name}' "
                    f"in vhost '{placed.vhost}'"
                )
        self._drop_queues(lambda _, placement: placement.home == node)
        self._end_life(node, self.boots.get(node, 0))
        self.nodes.remove(node)
        self.boots.pop(node, None)
        self.asked.pop(node, None)
        self.members = {
            uid: tuple(member for member in members if member != node)
            for uid, members in self.members.items()
        }

    def _next_node(self, number: NodeId) -> None:
        self.nodes.next_number = max(self.nodes.next_number, number)

    def _place(self, uid: bytes, group: int, members: list[NodeId]) -> None:
        """Who should hold a group of a queue: the nodes get there one step at a time."""
        placed = self.placed.get(uid)
        if placed is None:
            return  # deleted meanwhile
        placement = placed.placement
        known = self.nodes.by_number
        if (
            not members
            or group >= len(placement.groups)
            or len(set(members)) < len(members)
            or not all(member in known for member in members)
        ):
            raise precondition_failed(f"queue '{placed.name}' cannot be placed so")
        former = [node for node in placement.holders(group) if node not in members]
        self.replace(uid, placement.moved(group, members, former))

    def _moved(self, uid: bytes, group: int, members: list[NodeId]) -> None:
        """The members that a group should have are those that it has."""
        placed = self.placed.get(uid)
        if placed is not None and placed.placement.groups[group] == tuple(members):
            self.replace(uid, placed.placement.moved(group, members))

    def _lead(self, uid: bytes, group: int, node: NodeId) -> None:
        """Who should lead a group from now on."""
        placed = self.placed.get(uid)
        if placed is None:
            return
        members = placed.placement.groups[group] if group < len(placed.placement.groups) else ()
        if node not in members:
            raise precondition_failed(f"node {node} has no part of queue '{placed.name}'")
        others = [member for member in members if member != node]
        former = placed.placement.former_of(group)
        self.replace(uid, placed.placement.moved(group, [node, *others], former))
        self.transfers[uid, group] = node

    def _led(self, uid: bytes, group: int, node: NodeId) -> None:
        """It does, or somebody has said otherwise since."""
        if self.transfers.get((uid, group)) == node:
            del self.transfers[uid, group]

    def _rebalance(self, on: bool) -> None:  # noqa: FBT001
        self.rebalancing = on

    def replace(self, uid: bytes, placement: Placement) -> None:
        placed = self.placed[uid]
        self._count(placed.placement, -1)
        self._count(placement, 1)
        placed.placement = placement
        queue: Any = self.vhosts[placed.vhost].queues[placed.name]
        queue.placed(placement)

    def _members(self, uid: bytes, members: list[NodeId]) -> None:
        self.members[uid] = tuple(members)

    def _asked(self, node: NodeId, boot: int, last: int, results: list[list[Any]]) -> None:
        known = {n: ChannelError(*error) if error else None for n, *error in results}
        self.asked[node] = Asked(boot, last, known)


def _ends_with(node: NodeId, boot: int, queue: AnyQueue, placement: Placement) -> bool:
    """Whether a queue is in the memory of a node, or its owner connected to it."""
    if queue.owner is not None:
        owner_node, owner_boot, _ = cast("tuple[int, int, int]", queue.owner)
        if owner_node == node and owner_boot <= boot:
            return True
    return placement.home == node and placement.boot <= boot and not queue.durable
