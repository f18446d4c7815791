"""How far a member of a group is done with a partition, though its acks come in any order.

Offsets before `next` were looked at. Of those some are *held* (delivered and not settled) and some
are to go out *again* (given back); all the others are done with: acked, filtered out, or never
there. The first that is held or to go again is the member's position, and what is before it may be
committed: whoever reads on from there misses nothing.
"""

from collections.abc import Iterable
from itertools import chain


class Watermark:
    """At most as many offsets as the consumer has credit for."""

    __slots__ = ("_again", "_held", "next", "seen")

    def __init__(self, offset: int, seen: int = 0) -> None:
        """`seen`: up to there records may have been delivered to the group before."""
        self.next = offset
        self.seen = max(seen, offset)
        self._held: set[int] = set()
        self._again: set[int] = set()

    @property
    def position(self) -> int:
        return min(chain(self._held, self._again), default=self.next)

    @property
    def resume(self) -> int:
        """Where to look on."""
        return min(self._again, default=self.next)

    @property
    def held(self) -> int:
        return len(self._held)

    def wants(self, offset: int) -> bool:
        """Whether a record is to be delivered, if it is looked at now."""
        return offset >= self.next or offset in self._again

    def passed(self, delivered: Iterable[int], end: int) -> None:
        """Everything up to `end` was looked at, and these records were delivered.

        What should go out again and was not among them is there no more.
        """
        self._held.update(delivered)
        if self._again:
            self._again = {offset for offset in self._again if offset >= end}
        self.next = max(self.next, end)
        self.seen = max(self.seen, end)

    def ack(self, offsets: Iterable[int]) -> None:
        """What is not held, because it is somebody else's by now, does not count."""
        self._held.difference_update(offsets)

    def requeue(self, offsets: Iterable[int]) -> None:
        """These are to be delivered again, if they are held: look on from `resume`."""
        back = self._held.intersection(offsets)
        self._held -= back
        self._again |= back
