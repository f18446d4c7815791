"""Ready messages of a durable queue: the first in memory, the rest in the log until their turn."""

import sys
from collections.abc import Callable, Collection, Iterator
from typing import Final

from queues.message import Message
from queues.ready import Ready

# What a message costs in memory beside its body.
MESSAGE_OVERHEAD_BYTES: Final = 400
# All durable queues of a node together keep about this much in memory before they leave messages in
# the log only: enough to hide the disk from busy queues, little beside the interpreter.
HOT_BYTES_MAX: Final = 64 * 1024 * 1024
# Any queue may keep this much however full the budget is, so that each of many can make headway.
HOT_BYTES_FLOOR: Final = 64 * 1024
# Messages are read back when fewer than this are left in memory: a prefetch window or two.
LOW_MESSAGES: Final = 1024
EVERYTHING: Final = sys.maxsize  # as `low`: nothing is taken before all of it is in memory


class HotBudget:
    """Bytes of ready messages that the durable queues of a node hold in memory."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int = HOT_BYTES_MAX) -> None:
        self.limit = limit
        self.used = 0


class PagedReady:
    """Returned messages, then hot ones, then cold ones; only the order of delivery, as in `Ready`.

    Whole batches are hot or cold, and everything behind a cold batch is cold. Overdue messages,
    which were delayed, are cold as well; they are asked for first and stand among returned ones.
    """

    __slots__ = (
        "_budget",
        "_charged",
        "_hot",
        "_low",
        "_request",
        "_unweighed",
        "closed",
        "cold",
        "cold_bytes",
        "held",
        "overdue",
    )

    def __init__(
        self,
        hot: Ready,
        budget: HotBudget,
        request: Callable[[], None],
        *,
        low: int = LOW_MESSAGES,
    ) -> None:
        self._hot = hot
        self._low = low
        self._budget = budget
        self._charged = 0
        self._request = request  # asks for the first cold messages; they come through `loaded`
        self._unweighed = 0  # the first so many cold ones come from before a restart
        self.cold = 0
        self.cold_bytes = 0  # without those
        self.overdue = 0
        self.closed = False  # nothing may be taken until it is known which groups are blocked
        self.held = 0  # so many wish that nothing be taken for now

    def __len__(self) -> int:
        return len(self._hot) + self.cold + self.overdue

    def __iter__(self) -> Iterator[Message]:
        return iter(self._hot)

    @property
    def available(self) -> int:
        """How many can be taken without waiting for the disk."""
        return 0 if self._is_incomplete else self._hot.available

    @property
    def is_loading(self) -> bool:
        """There are messages, but the first of them is still on its way from the disk."""
        waiting = self.cold or self.overdue or self.closed or (self.held and len(self._hot))
        return bool(waiting) and not self.available

    @property
    def _is_incomplete(self) -> bool:
        """The one to go first may be among those that are still on disk."""
        return bool(self.closed or self.held or (self.cold > 0 and self._low == EVERYTHING))

    @property
    def on_disk(self) -> int:
        """Messages that are not in memory."""
        return self.cold + self.overdue

    @property
    def size_bytes(self) -> int:
        """At least so much: a limit must not drop anything because of a guess."""
        return self._hot.size_bytes + self.cold_bytes

    def push(self, messages: list[Message]) -> None:
        size = sum([m.body_bytes for m in messages])
        if self.cold or not self._has_room(size):
            self.cold += len(messages)
            self.cold_bytes += size
            self.refill()
        else:
            self._hot.push(messages)
            self._charge()

    def _has_room(self, size: int) -> bool:
        budget = self._budget
        return self._charged + size <= HOT_BYTES_FLOOR or budget.used + size <= budget.limit

    def _charge(self) -> None:
        """Keep the budget true to what is in memory now."""
        cost = self._hot.size_bytes + MESSAGE_OVERHEAD_BYTES * len(self._hot)
        self._budget.used += cost - self._charged
        self._charged = cost

    def recovered(self, count: int) -> None:
        """Cold messages that a restart found."""
        self.cold += count
        self._unweighed += count
        self.refill()

    def loaded_overdue(self, messages: list[Message]) -> None:
        """Overdue messages came from the log."""
        self.overdue -= len(messages)
        self._hot.put_back(messages)
        self._charge()

    def took_apart(self, size_bytes: int) -> None:
        """One of the cold messages was taken out of the log by itself."""
        self.cold -= 1
        self.cold_bytes = max(0, self.cold_bytes - size_bytes) if self.cold else 0

    def claimed(self) -> None:
        """One of the cold messages from before a restart is with somebody, unread."""
        self.cold -= 1
        self._unweighed -= 1

    def reorder(self, hot: Ready, budget: HotBudget, *, low: int) -> None:
        """Keep what is in memory in another order from now on."""
        hot.push(sorted(self._hot, key=lambda message: message.sequence))
        self._hot = hot
        self._low = low
        self._budget.used -= self._charged
        self._budget, self._charged = budget, 0
        self._charge()
        self.refill()

    def loaded(self, messages: list[Message], fresh: list[Message]) -> None:
        """The first cold messages came from the log; those that may be taken in their turn."""
        unweighed = min(self._unweighed, len(messages))
        self._unweighed -= unweighed
        self.cold -= len(messages)
        self.cold_bytes -= sum([m.body_bytes for m in messages[unweighed:]])
        self._hot.push(fresh)
        self._charge()

    def refill(self) -> None:
        """Ask for cold messages when few are left in memory and there is room for more.

        Overdue ones do not wait for that: their places are before those in memory.
        """
        left = self._hot.available
        if not self.cold and not self.overdue:
            return
        if not left or ((self.overdue or left < self._low) and self._has_room(0)):
            self._request()

    def put_back(self, messages: list[Message]) -> None:
        self._hot.put_back(messages)
        self._charge()

    def head(self) -> Message | None:
        return None if self._is_incomplete else self._hot.head()

    def oldest(self) -> Message | None:
        """None also while older ones may be on their way."""
        if self._is_incomplete or (self.overdue and self._has_room(0)):
            return None
        return self._hot.oldest()

    def pop(self) -> Message:
        message = self._hot.pop()
        self._charge()
        self.refill()
        return message

    def pop_oldest(self) -> Message:
        message = self._hot.pop_oldest()
        self._charge()
        self.refill()
        return message

    def take(self, count: int, size_bytes: int) -> list[Message]:
        taken = self._hot.take(count, size_bytes)
        self._charge()
        self.refill()
        return taken

    def remove(self, sequences: Collection[int]) -> list[Message]:
        """Only such as are in memory."""
        removed = self._hot.remove(sequences)
        self._charge()
        self.refill()
        return removed

    def first_fresh(self) -> int | None:
        return self._hot.first_fresh()

    def clear(self) -> None:
        self._hot.clear()
        self.cold = self.cold_bytes = self._unweighed = self.overdue = 0
        self._charge()
