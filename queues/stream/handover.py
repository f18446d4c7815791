"""Who holds each partition of a group now, and who is to: one lets go before another takes.

A partition that moves is *leaving* its holder until that one has let go of it, has left, or has
been timed out; only then its new holder has it. From the moment of the grant it counts as held,
whether the holder has heard of it or not, so that no two ever hold the same.
"""

from collections.abc import Iterable, Mapping

from queues.stream.names import PartitionId


class Handover:
    def __init__(self) -> None:
        self._target: dict[PartitionId, str] = {}
        self._holder: dict[PartitionId, str] = {}
        self._granted: dict[PartitionId, int] = {}  # the generation in which the holder got it
        self._held: dict[str, set[PartitionId]] = {}
        self.moves = 0  # grows with whatever somebody may have to be told of

    @property
    def holders(self) -> Mapping[PartitionId, str]:
        return self._holder

    @property
    def target(self) -> Mapping[PartitionId, str]:
        return self._target

    def held_since(self, partition: PartitionId, member: str) -> int | None:
        """The generation in which `member` got it; None if it does not hold it."""
        return self._granted[partition] if self._holder.get(partition) == member else None

    def assigned(self, member: str) -> frozenset[PartitionId]:
        target = self._target
        return frozenset(p for p in self._held.get(member, ()) if target.get(p) == member)

    def leaving(self, member: str) -> frozenset[PartitionId]:
        """What it holds and must let go of."""
        target = self._target
        return frozenset(p for p in self._held.get(member, ()) if target.get(p) != member)

    def aim(self, target: Mapping[PartitionId, str], generation: int) -> None:
        """Who is to hold what from this generation on; what nobody holds is granted at once."""
        self.moves += 1
        self._target = dict(target)
        for partition in self._target:
            self._grant(partition, generation)

    def release(self, member: str, partitions: Iterable[PartitionId], generation: int) -> None:
        """It let go of these; what it does not hold is none of its business."""
        for partition in partitions:
            if self._holder.get(partition) == member:
                self._take(partition, member)
                self._grant(partition, generation)

    def drop(self, member: str, generation: int) -> None:
        """It is gone, and nothing is aimed at it any more: others get what it held."""
        assert member not in self._target.values(), member
        self.release(member, sorted(self._held.get(member, ())), generation)

    def rename(self, old: str, new: str) -> None:
        """The same reader under a new name: what was `old`'s is `new`'s."""
        self.moves += 1
        for partition, member in self._target.items():
            if member == old:
                self._target[partition] = new
        held = self._held.pop(old, set())
        for partition in held:
            self._holder[partition] = new
        if held:
            self._held[new] = held

    def _take(self, partition: PartitionId, member: str) -> None:
        self.moves += 1
        del self._holder[partition], self._granted[partition]
        held = self._held[member]
        held.remove(partition)
        if not held:
            del self._held[member]

    def _grant(self, partition: PartitionId, generation: int) -> None:
        member = self._target.get(partition)
        if member is not None and partition not in self._holder:
            self._holder[partition] = member
            self._granted[partition] = generation
            self._held.setdefault(member, set()).add(partition)
