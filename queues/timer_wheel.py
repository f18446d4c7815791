"""Very many timers in little memory: a hierarchical wheel, to the millisecond, for any due time.

A timer lies in a slot, which is named by the time at which it starts and holds its timers in any
order. The further off a timer is, the wider its slot: a power of two, between a 64th and a 128th of
the time left, and 1 ms at the end. When the start of a slot has come, what is due rings and the
rest goes on into narrower slots. As the width follows the time left rather than fixed levels, many
timers set for about the same delay lie in 64 slots at least, and moving one on is a short stall.
"""

from array import array
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Final

KEY_MAX: Final = 2**64 - 1
TIME_MS_MAX: Final = 2**64 - 1
# A slot is at most 2^-6 of the time left. Then a timer set for 30 days, 32 bits of milliseconds,
# moves four times, and there are 129 slots of each of 26 widths at most.
SLOT_BITS: Final = 6

# By the length in bits of the time left: what of a due time names its slot.
_SLOT_MASKS: Final = tuple(
    TIME_MS_MAX >> low << low for low in [max(0, bits - 1 - SLOT_BITS) for bits in range(65)]
)


class TimerWheel:
    """Keys and when they are due. There is no cancel: who owns the keys knows which still count.

    A timer that was due before it was added rings at the next `advance`.
    """

    __slots__ = ("_count", "_now", "_slots", "_starts")

    def __init__(self, now_ms: int) -> None:
        assert 0 <= now_ms <= TIME_MS_MAX
        self._now = now_ms
        self._count = 0
        self._slots: dict[int, array[int]] = {}  # by start; key and due time in turn
        self._starts: list[int] = []  # a heap of the slots there are

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(key, due_ms) of every timer, in no order."""
        for slot in self._slots.values():
            yield from zip(slot[0::2], slot[1::2], strict=True)

    def add(self, key: int, due_ms: int) -> None:
        self.fill(((key, due_ms),))

    def fill(self, timers: Iterable[tuple[int, int]]) -> None:
        """Add many (key, due_ms) at once."""
        now, slots, masks = self._now, self._slots, _SLOT_MASKS
        for key, due_ms in timers:
            assert 0 <= key <= KEY_MAX
            assert 0 <= due_ms <= TIME_MS_MAX
            start = due_ms & masks[(due_ms - now).bit_length()]
            slot = slots.get(start)
            if slot is None:
                slot = slots[start] = array("Q")
                heappush(self._starts, start)
            slot.append(key)
            slot.append(due_ms)
            self._count += 1

    def advance(self, now_ms: int) -> list[tuple[int, int]]:
        """(key, due_ms) of all that is due by now, by due time and then by key.

        Time never goes back: an earlier `now_ms` counts as the last one.
        """
        now = self._now = max(self._now, now_ms)
        starts = self._starts
        rung: list[tuple[int, int]] = []
        while starts and starts[0] <= now:
            slot = self._slots.pop(heappop(starts))
            keys, dues = slot[0::2], slot[1::2]
            self._count -= len(keys)
            if max(dues) <= now:
                rung += zip(dues, keys, strict=True)
            else:
                rung += [(due, key) for due, key in zip(dues, keys, strict=True) if due <= now]
                # A slot is narrower than the time left: these start after now, and the loop ends.
                self.fill([(key, due) for key, due in zip(keys, dues, strict=True) if due > now])
        rung.sort()
        return [(key, due) for due, key in rung]

    def next_ms(self) -> int | None:
        """When to call `advance` next: at the first due time, or before it to move some on.

        Each such call leaves the first timer less than a 64th of the time it had: one that is 30
        days off rings at the fifth.
        """
        return self._starts[0] if self._starts else None
