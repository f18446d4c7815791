"""Which nodes hold a queue: replicas spread evenly, and so are those who lead first."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from queues.raft.messages import NodeId

GROUP_SIZE: Final = 3  # replicas, where a declare does not say
SIZE_ARGUMENTS: Final = ("x-quorum-initial-group-size", "x-initial-cluster-size")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a queue is.

    Either it is replicated: `groups` has the members of each of its Raft groups (one, or one for
    each partition of a stream), the first of them to lead first; `former` those that were members
    of it and may still be, until the others have caught up. Or it lives on one node, its `home`,
    as it was started with number `boot`.
    """

    groups: tuple[tuple[NodeId, ...], ...] = ()
    home: NodeId | None = None
    boot: int = 0
    former: tuple[tuple[NodeId, ...], ...] = ()

    @property
    def nodes(self) -> frozenset[NodeId]:
        """All that have a part of it."""
        if self.home is not None:
            return frozenset((self.home,))
        return frozenset(node for group in (*self.groups, *self.former) for node in group)

    def holders(self, group: int) -> tuple[NodeId, ...]:
        """Who is to have a replica of a group now; whoever is not may delete the one it has."""
        return self.groups[group] + self.former_of(group)

    def former_of(self, group: int) -> tuple[NodeId, ...]:
        return self.former[group] if self.former else ()

    def moved(
        self, group: int, members: Sequence[NodeId], former: Sequence[NodeId] = ()
    ) -> "Placement":
        """With other members in one of its groups."""
        groups = list(self.groups)
        olds = [self.former_of(number) for number in range(len(groups))]
        groups[group], olds[group] = tuple(members), tuple(former)
        return Placement(tuple(groups), former=tuple(olds) if any(olds) else ())

    def encode(self) -> list[Any]:
        sets = [[list(group) for group in groups] for groups in (self.groups, self.former)]
        return [self.home, self.boot, *sets]

    @classmethod
    def decode(cls, value: Sequence[Any]) -> "Placement":
        home, boot, *sets = value
        groups, former = (tuple(tuple(group) for group in groups) for groups in sets)
        return cls(groups, home, boot, former)


@dataclass(slots=True)
class Load:
    """How much each node that may take something has already."""

    replicas: Counter[NodeId] = field(default_factory=Counter)
    leaders: Counter[NodeId] = field(default_factory=Counter)


def group_size(arguments: Mapping[str, object]) -> int:
    """How many replicas a declare asks for."""
    for name in SIZE_ARGUMENTS:
        wanted = arguments.get(name)
        if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted > 0:
            return wanted
    return GROUP_SIZE


def place_groups(
    count: int,
    size: int,
    *,
    me: NodeId,
    candidates: Iterable[NodeId],
    load: Load,
    up: Iterable[NodeId],
) -> tuple[tuple[NodeId, ...], ...]:
    """Members of `count` groups, to be led by the first of each.

    Nodes with the fewest replicas are taken, those that are up before others; of the members that
    are up the one with the fewest leaders is first. This node wins ties, then the lowest number.
    With each group the load grows, so that the groups of a stream rotate over the nodes.
    """
    nodes = sorted(candidates)
    alive = {*up, me}
    replicas, leaders = load.replicas.copy(), load.leaders.copy()
    groups = []
    for _ in range(count):
        by_replicas = sorted(nodes, key=lambda n: (n not in alive, replicas[n], n != me, n))
        members = by_replicas[: max(1, size)]
        first = min(members, key=lambda n: (n not in alive, leaders[n], n != me, n))
        replicas.update(members)
        leaders[first] += 1
        groups.append((first, *sorted(node for node in members if node != first)))
    return tuple(groups)
