"""Which partitions a transaction was committed to: what a cut through replicas has to know.

A node shows a transaction when all its replicas of the transaction's partitions have carried it
out, however far behind any of them is. The coordinator's log tells every node which partitions
those are. Decisions are numbered, and a partition carries them out in that order, so a cut is a
number: everything up to it is whole on this node, everything above it is hidden.

Only streams that had transactions in common hold each other back. A stream is known by its uid: a
new one of the same name waits for nothing.

    state   [[[stream, partition, uid, [number, …]], …], [[uid, …], …]]
            the last commits to each partition, and which streams belong together
"""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from queues.stream.names import PartitionId

# Of a partition. Between the oldest of these and what was before, a replica is taken to lack
# whatever it has not carried out: it shows less for a while.
NUMBERS_MAX: Final = 16
# Streams; of those without a transaction for the longest time the numbers are forgotten.
STREAMS_MAX: Final = 10_000
NOTHING: Final = -1  # the cut above which all transactions are


class Standing(NamedTuple):
    """How far the replica of a partition is."""

    decided: int  # it has carried out its decisions up to this one
    forgotten: int  # it does not know any more where those up to this one begin


# What this node has of a partition; None: nothing that could be read.
Look: TypeAlias = Callable[[PartitionId, bytes], Standing | None]


class Cuts:
    def __init__(self) -> None:
        self._numbers: dict[bytes, dict[PartitionId, list[int]]] = {}  # by stream
        self._kin: dict[bytes, frozenset[bytes]] = {}

    def committed(self, number: int, partitions: Iterable[tuple[PartitionId, bytes]]) -> None:
        """A decision to commit to these partitions, each with the uid of its stream."""
        named = list(partitions)
        uids = {uid for _, uid in named}
        if not uids <= self._kin.get(min(uids, default=b""), frozenset()):
            self._join(uids)
        for name, uid in named:
            numbers = self._numbers[uid].setdefault(name, [])
            numbers.append(number)
            del numbers[:-NUMBERS_MAX]
        for uid in sorted(uids):
            self._numbers[uid] = self._numbers.pop(uid)
        while len(self._numbers) > STREAMS_MAX:
            self._forget(next(iter(self._numbers)))

    def _join(self, uids: set[bytes]) -> None:
        kin = uids.union(*(self._kin.get(uid, ()) for uid in uids))
        self._kin.update(dict.fromkeys(kin, frozenset(kin)))
        for uid in sorted(uids):
            self._numbers.setdefault(uid, {})

    def _forget(self, uid: bytes) -> None:
        del self._numbers[uid]
        left = self._kin.pop(uid) - {uid}
        self._kin.update(dict.fromkeys(left, left))

    def settled(self, uid: bytes, decisions: int, look: Look) -> int:
        """Up to which decision all that concerns a stream is whole on a node.

        `decisions` are all that the node's coordinator has heard of.
        """
        settled, forgotten = decisions, 0
        for each in self._kin.get(uid, ()):
            for name, numbers in self._numbers[each].items():
                standing = look(name, each)
                if standing is not None:
                    settled = min(settled, _whole_up_to(numbers, standing.decided, decisions))
                    forgotten = max(forgotten, standing.forgotten)
        return NOTHING if settled < forgotten else settled

    def rows(self) -> list[Any]:
        numbers = [
            [*name, uid, found]
            for uid, partitions in self._numbers.items()
            for name, found in partitions.items()
        ]
        return [numbers, [sorted(kin) for kin in dict.fromkeys(self._kin.values())]]

    @classmethod
    def of_rows(cls, numbers: list[Any], kin: list[list[bytes]]) -> "Cuts":
        found = cls()
        for uids in kin:
            found._kin.update(dict.fromkeys(uids, frozenset(uids)))
        for stream, number, uid, committed in numbers:
            found._numbers.setdefault(uid, {})[PartitionId(stream, number)] = list(committed)
        for uid in chain.from_iterable(kin):
            found._numbers.setdefault(uid, {})
        return found


def _whole_up_to(numbers: list[int], decided: int, decisions: int) -> int:
    missing = next((each for each in numbers if each > decided), None)
    if missing is None:
        return decisions
    if missing == numbers[0] and len(numbers) == NUMBERS_MAX:
        return decided  # there may have been others before
    return missing - 1
