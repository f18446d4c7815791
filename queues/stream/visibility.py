"""Up to where a partition may be read so that no transaction is seen in part.

Staged rows get their offsets only when their transaction is committed (see transactions.py), so a
partition holds no aborted rows, and no reader waits for an open transaction: within a partition a
transaction appears in one entry. Across partitions the parts appear one after another, and later
on a node that lags. Who reads several and wants a cut through all of them asks for the number up to
which all transactions are whole on this node (see cuts.py), and each partition for `end` of it.
"""

from collections import deque
from typing import Final, NamedTuple

# A node that restarts may know less than it did of what is committed, and a cut then lies before
# the last commits: this many are remembered. If it lies before those, none is shown for a while.
COMMITS_MAX: Final = 128


class _Commit(NamedTuple):
    number: int  # of the decision; a partition carries them out in this order
    first: int  # offset


class Visibility:
    """Where the last commits of a partition begin."""

    def __init__(self, forgotten: int = 0) -> None:
        self.forgotten = forgotten  # commits up to this number may not be remembered
        self._commits: deque[_Commit] = deque()

    def committed(self, number: int, first: int) -> None:
        assert not self._commits or number > self._commits[-1].number, number
        self._commits.append(_Commit(number, first))
        if len(self._commits) > COMMITS_MAX:
            self.forgotten = max(self.forgotten, self._commits.popleft().number)

    def end(self, settled: int, next_offset: int) -> int | None:
        """The offset behind the last record that is not after a transaction above `settled`.

        None: that is so long ago that nobody remembers.
        """
        if settled < self.forgotten:
            return None
        if not self._commits or self._commits[-1].number <= settled:
            return next_offset
        return next(each.first for each in self._commits if each.number > settled)

    def rows(self) -> tuple[int, list[tuple[int, int]]]:
        """For a checkpoint."""
        return self.forgotten, [(number, first) for number, first in self._commits]

    @classmethod
    def of_rows(cls, forgotten: int, commits: list[tuple[int, int]]) -> "Visibility":
        found = cls(forgotten)
        found._commits.extend(_Commit(*each) for each in commits)
        return found
