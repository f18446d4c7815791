"""Where work waits for the disk: in a few threads, or at once where there are none."""

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import trio

COLD_READS_MAX: Final = 2  # threads that read messages back

T = TypeVar("T")


class OffLoop(Protocol):
    """Does what waits for the disk away from the loop."""

    async def __call__(self, work: Callable[[], T]) -> T: ...


class Threads:
    """In a thread, as few at a time as do not disturb each other on one disk."""

    def __init__(self, count: int = COLD_READS_MAX) -> None:
        self._limiter = trio.CapacityLimiter(count)

    async def __call__(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._limiter)


async def at_once(work: Callable[[], T]) -> T:
    """Here and now, where there are no threads."""
    await trio.lowlevel.checkpoint()
    return work()
