"""Ready messages of a durable queue: the first in memory, the rest in the log until their turn."""

import sys
from collections.abc import Callable, Iterator
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

    Whole batches are hot or cold, and everything behind a cold batch is cold.
    """

    __slots__ = (
        "_budget",
        "_charged",
        "_hot",
        "_low",
        "_request",
        "_unweighed",
        "cold",
        "cold_bytes",
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

    def __len__(self) -> int:
        return len(self._hot) + self.cold

    def __iter__(self) -> Iterator[Message]:
        return iter(self._hot)

    @property
    def available(self) -> int:
        """How many can be taken without waiting for the disk."""
        if self.cold and self._low == EVERYTHING:
            return 0  # the one to go first may be among those that are still on disk
        return len(self._hot)

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

    def loaded(self, messages: list[Message]) -> None:
        """The first cold messages came from the log."""
        unweighed = min(self._unweighed, len(messages))
        self._unweighed -= unweighed
        self.cold -= len(messages)
        self.cold_bytes -= sum([m.body_bytes for m in messages[unweighed:]])
        self._hot.push(messages)
        self._charge()

    def refill(self) -> None:
        """Ask for cold messages when few are left in memory and there is room for more."""
        left = self._hot.available
        if self.cold and (not left or (left < self._low and self._has_room(0))):
            self._request()

    def put_back(self, messages: list[Message]) -> None:
        self._hot.put_back(messages)
        self._charge()

    def head(self) -> Message | None:
        return self._hot.head()

    def oldest(self) -> Message | None:
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

    def first_fresh(self) -> int | None:
        return self._hot.first_fresh()

    def clear(self) -> None:
        self._hot.clear()
        self.cold = self.cold_bytes = self._unweighed = 0
        self._charge()
