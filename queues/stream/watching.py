"""Who wants to know when a partition has more than it had."""

from collections.abc import Callable
from typing import TypeAlias

Wake: TypeAlias = Callable[[], None]


class Watchers:
    """Each is woken once."""

    __slots__ = ("_next", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[int, Wake]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, beyond: int, wake: Wake) -> Callable[[], None]:
        """Wake when the next offset is above `beyond`; the answer ends the watch."""
        number = self._next
        self._next += 1
        self._waiting[number] = (beyond, wake)
        return lambda: self._end(number)

    def _end(self, number: int) -> None:
        self._waiting.pop(number, None)

    def advanced(self, next_offset: int) -> None:
        if self._waiting:
            self._wake([n for n, (beyond, _) in self._waiting.items() if next_offset > beyond])

    def gone(self) -> None:
        """There will be no more."""
        self._wake(list(self._waiting))

    def _wake(self, numbers: list[int]) -> None:
        for number in numbers:
            found = self._waiting.pop(number, None)
            if found is not None:  # one that was woken before may have ended it
                found[1]()
