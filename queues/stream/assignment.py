"""Which member of a group reads which partitions: balanced first, then as few moves as possible.

The answer is a best one, not a good one: no assignment has a smaller sum of squared loads (so loads
differ by at most one wherever subscriptions allow it), and none that is as balanced moves fewer
partitions away from a member that could have kept them. It is also the same for the same question.

With equal subscriptions dealing and levelling is enough. With different ones it is a flow of least
cost: while there is a cycle of hand-overs that makes it cheaper, go round it. The sink closes those
cycles that begin at one member and end at another, and so change two loads.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Final, TypeAlias

from queues.stream.names import PartitionId

Owners: TypeAlias = dict[PartitionId, str]
Subscriptions: TypeAlias = Mapping[str, Set[str]]  # member → streams

_SINK: Final = -1


def assign(
    partitions: Iterable[PartitionId],
    subscriptions: Subscriptions,
    owners: Mapping[PartitionId, str],
) -> Owners:
    """The new owner of each partition to which anyone subscribes; `owners` are the present ones."""
    deal = _Deal(subscriptions, owners)
    deal.hand_out(sorted(set(partitions)))
    if len({frozenset(streams) for streams in subscriptions.values()}) <= 1:
        deal.level()
    else:
        deal.refine()
    return deal.result()


class _Deal:
    """Members are numbered in the order of their names; -1 is nobody."""

    def __init__(self, subscriptions: Subscriptions, owners: Mapping[PartitionId, str]) -> None:
        self._names = sorted(subscriptions)
        self._takers: dict[str, list[int]] = {}  # of a stream
        for number, name in enumerate(self._names):
            for stream in subscriptions[name]:
                self._takers.setdefault(stream, []).append(number)
        self._held: list[set[PartitionId]] = [set() for _ in self._names]
        self._home: dict[PartitionId, int] = {}
        numbers = {name: number for number, name in enumerate(self._names)}
        for partition, owner in owners.items():
            number = numbers.get(owner, -1)
            if number in self._takers.get(partition.stream, ()):
                self._home[partition] = number

    def result(self) -> Owners:
        names = self._names
        found = {each: names[n] for n, held in enumerate(self._held) for each in held}
        return dict(sorted(found.items()))

    def hand_out(self, partitions: list[PartitionId]) -> None:
        """All that may stay stays; the others go where least is."""
        held = self._held
        orphans = []
        for partition in partitions:
            home = self._home.get(partition)
            if home is not None:
                held[home].add(partition)
            elif partition.stream in self._takers:
                orphans.append(partition)
        orphans.sort(key=lambda each: (len(self._takers[each.stream]), each))
        for partition in orphans:
            taker = min(self._takers[partition.stream], key=lambda n: (len(held[n]), n))
            held[taker].add(partition)

    def level(self) -> None:
        """Everyone may have everything: from the fullest to the emptiest until they are even.

        Whoever is too full was so before the orphans were dealt, so each of these moves must be.
        """
        held = self._held
        while held:
            fullest = max(range(len(held)), key=lambda n: (len(held[n]), -n))
            emptiest = min(range(len(held)), key=lambda n: (len(held[n]), n))
            if len(held[fullest]) - len(held[emptiest]) <= 1:
                return
            self._move(max(held[fullest]), fullest, emptiest)

    def refine(self) -> None:
        while cycle := self._cheaper():
            for giver, taker, partition in cycle:
                self._move(partition, giver, taker)

    def _move(self, partition: PartitionId, giver: int, taker: int) -> None:
        self._held[giver].remove(partition)
        self._held[taker].add(partition)

    def _hand_overs(self) -> dict[tuple[int, int], tuple[int, PartitionId]]:
        """For each two members the cheapest partition to hand over: (cost, partition).

        -1: it comes home. 0: it is not at home here nor there. 1: it leaves its home.
        """
        cheapest: dict[tuple[int, int], tuple[int, PartitionId]] = {}
        for giver, held in enumerate(self._held):
            best: dict[tuple[str, int], PartitionId] = {}  # by stream and home
            for partition in held:
                kind = (partition.stream, self._home.get(partition, -1))
                if kind not in best or partition > best[kind]:
                    best[kind] = partition
            for (stream, home), partition in sorted(best.items()):
                for taker in self._takers[stream]:
                    if taker != giver:
                        offer = (int(home == giver) - int(home == taker), partition)
                        if (giver, taker) not in cheapest or offer < cheapest[giver, taker]:
                            cheapest[giver, taker] = offer
        return cheapest

    def _cheaper(self) -> list[tuple[int, int, PartitionId]]:
        """Hand-overs that together cost less than nothing, by Bellman and Ford; empty if none."""
        hand_overs = self._hand_overs()
        # One step of balance outweighs all moves that a cycle can have.
        step = 2 * len(self._held) + 3
        edges = [(giver, taker, cost) for (giver, taker), (cost, _) in hand_overs.items()]
        for number, held in enumerate(self._held):
            edges.append((_SINK, number, step * (1 - 2 * len(held))))
            edges.append((number, _SINK, step * (1 + 2 * len(held))))
        cycle = _negative_cycle(edges, len(self._held) + 1)
        return [
            (giver, taker, hand_overs[giver, taker][1])
            for giver, taker in cycle
            if _SINK not in (giver, taker)
        ]


def _negative_cycle(edges: list[tuple[int, int, int]], nodes: int) -> list[tuple[int, int]]:
    """Nodes are numbered from -1. The cycle is looked for after each round, not after the last."""
    distance = [0] * nodes  # -1 is the last place of a list
    before: dict[int, int] = {}
    changed = True
    while changed:
        changed = False
        for start, end, cost in edges:
            if distance[start] + cost < distance[end]:
                distance[end] = distance[start] + cost
                before[end] = start
                changed = True
        if changed and (cycle := _cycle_in(before)):
            return cycle
    return []


def _cycle_in(before: dict[int, int]) -> list[tuple[int, int]]:
    """A cycle among the predecessors; whenever there is one, its cost is negative."""
    seen: dict[int, int] = {}  # node → the walk that came by
    for first in sorted(before):
        node = first
        while node in before and node not in seen:
            seen[node] = first
            node = before[node]
        if seen.get(node) == first and node in before:
            cycle = []
            end = node
            while True:
                cycle.append((before[node], node))
                node = before[node]
                if node == end:
                    return cycle
    return []
