"""What to move where, so that nodes have about the same to do. Pure: it decides, others act."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from queues.raft.messages import NodeId


class GroupId(NamedTuple):
    """A Raft group of a queue."""

    queue: bytes  # its uid
    number: int  # of the partition; 0 for queues that have only one


class Lead(NamedTuple):
    members: tuple[NodeId, ...]
    leader: NodeId | None


def without(
    members: Sequence[NodeId],
    node: NodeId,
    *,
    usable: Iterable[NodeId],
    replicas: Mapping[NodeId, int],
    up: Iterable[NodeId],
) -> tuple[NodeId, ...]:
    """Members instead of these, with another in the place of `node` if there is one to be had."""
    alive = set(up)
    spare = [other for other in usable if other not in members]
    spare.sort(key=lambda n: (n not in alive, replicas.get(n, 0), n))
    rest = [other for other in members if other != node]
    # A node that is down may be back soon, or never: as a member it would only cost a vote.
    return (*rest, *(spare[:1] if spare and spare[0] in alive else ()))


def even_replicas(
    groups: Mapping[GroupId, tuple[NodeId, ...]], usable: Iterable[NodeId]
) -> tuple[GroupId, tuple[NodeId, ...]] | None:
    """One move that makes the number of replicas on nodes more even; None if there is none."""
    nodes = sorted(usable)
    replicas = Counter(dict.fromkeys(nodes, 0))
    for members in groups.values():
        replicas.update(node for node in members if node in replicas)
    for to in sorted(nodes, key=lambda n: (replicas[n], n)):
        for source in sorted(nodes, key=lambda n: (-replicas[n], n)):
            if replicas[source] - replicas[to] < 2:
                break
            for group, members in groups.items():
                if source in members and to not in members:
                    return group, tuple(to if n == source else n for n in members)
    return None


def even_leaders(
    groups: Mapping[GroupId, Lead], usable: Iterable[NodeId]
) -> list[tuple[GroupId, NodeId]]:
    """Who should lead instead, so that no node leads two groups more than another that could.

    Groups without a leader are left alone: they will find one.
    """
    nodes = set(usable)
    leaders = {group: lead.leader for group, lead in groups.items() if lead.leader is not None}
    count = Counter(dict.fromkeys(nodes, 0))
    count.update(leaders.values())
    changed = True
    while changed:  # every move makes it more even, so that this ends
        changed = False
        for group, leader in leaders.items():
            others = [node for node in groups[group].members if node in nodes and node != leader]
            to = min(others, key=lambda n: (count[n], n), default=None)
            if to is not None and (leader not in nodes or count[leader] - count[to] >= 2):
                count[leader] -= 1
                count[to] += 1
                leaders[group] = to
                changed = True
    return [(group, to) for group, to in leaders.items() if to != groups[group].leader]
