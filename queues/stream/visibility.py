"""Up to where a partition may be read so that no transaction is seen in part.

Staged rows get their offsets only when their transaction is committed (see transactions.py), so a
partition holds no aborted rows, and no reader waits for an open transaction: within a partition a
transaction appears in one entry. Across partitions the parts appear one after another. Who reads
several and wants a cut through all of them asks the coordinator for its `settled` number first (all
transactions up to it are in all their partitions) and then each partition for `end(settled)`.
"""

from collections import deque
from typing import NamedTuple


class _Commit(NamedTuple):
    number: int  # of the decision; a partition carries them out in this order
    first: int  # offset


class Visibility:
    """Which commits of a partition may not be everywhere yet, and where they begin.

    At most as many as the coordinator has unfinished transactions.
    """

    def __init__(self, settled: int = 0) -> None:
        self._settled = settled
        self._commits: deque[_Commit] = deque()

    def __len__(self) -> int:
        return len(self._commits)

    def committed(self, number: int, first: int) -> None:
        assert not self._commits or number > self._commits[-1].number, number
        if number > self._settled:
            self._commits.append(_Commit(number, first))

    def settle(self, settled: int) -> None:
        """All transactions up to this number are everywhere, says the coordinator."""
        self._settled = max(self._settled, settled)
        while self._commits and self._commits[0].number <= self._settled:
            self._commits.popleft()

    @property
    def first(self) -> int | None:
        """Where the first commit begins that may not be everywhere, if there is one."""
        return self._commits[0].first if self._commits else None

    def end(self, settled: int, next_offset: int) -> int | None:
        """The offset behind the last record that is not after a transaction above `settled`.

        None: this partition has moved on; the reader must ask the coordinator again.
        """
        if settled < self._settled:
            return None
        return next((each.first for each in self._commits if each.number > settled), next_offset)

    def rows(self) -> tuple[int, list[tuple[int, int]]]:
        """For a checkpoint."""
        return self._settled, [(number, first) for number, first in self._commits]

    @classmethod
    def of_rows(cls, settled: int, commits: list[tuple[int, int]]) -> "Visibility":
        found = cls(settled)
        found._commits.extend(_Commit(*each) for each in commits)
        return found
