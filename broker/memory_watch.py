"""Looks at the memory in use: pages messages out when it gets short, then stops publishers."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import trio

from broker import logs
from broker.internal_errors import WATCH
from flow_control.memory import PAGING_SHARE, MemoryAlarm, Stillness

if TYPE_CHECKING:
    from broker.node import Node

CHECK_S: Final = 0.25  # at a gigabit a second, 30 MB come between two looks
# While messages are paged out, freed memory is given back to the system once in so many looks:
# often enough for the readings to be true, while it takes milliseconds.
GIVE_BACK_LOOKS: Final = 4

_log = logs.get("memory")


class Meter(Protocol):
    """The process, as far as its memory goes."""

    def used_bytes(self) -> int: ...
    def give_back(self) -> None: ...


class MemoryWatch:
    """Calls `page_out` now and then while memory is short, and once when it is not any more."""

    def __init__(self, node: "Node", meter: Meter, page_out: Callable[[bool], None]) -> None:
        self._node = node
        self._meter = meter
        self._page_out = page_out
        self._paging = MemoryAlarm(int(node.memory_limit_bytes * PAGING_SHARE))
        self._alarm = MemoryAlarm(node.memory_limit_bytes)
        self._stillness = Stillness()
        self._looks = 0
        self._blind = False  # the last reading could not be taken
        node.look_at_memory = self.glance

    def glance(self) -> None:
        """Take a reading, and act if things have changed."""
        used = self._node.memory_used_bytes = self._read()
        if self._paging.update(used):
            self._node.paging = self._paging.on
            self._page_out(self._paging.on)
        if self._alarm.update(used):
            if self._alarm.on:
                self._node.raise_alarm("memory", "low on memory")
            else:
                self._node.clear_alarm("memory")

    def _read(self) -> int:
        """What is in use; if that cannot be told now, what was at the last reading.

        A reading opens a file, and there may be no descriptor left for it.
        """
        try:
            used = self._meter.used_bytes()
        except OSError as error:
            if not self._blind:
                _log.warning("not_read", reason=str(error))
            self._blind = True
            return self._node.memory_used_bytes
        self._blind = False
        return used

    def look(self) -> bool:
        """The same with care; whether it is time to give memory back to the system."""
        was_paging = self._paging.on
        self.glance()
        if was_paging and self._paging.on:
            self._page_out(self._paging.on)  # queues may have grown since
        self._looks += 1
        if self._alarm.on or self._paging.on:
            return self._alarm.on or self._looks % GIVE_BACK_LOOKS == 0
        return self._stillness.look(self._node.memory_used_bytes)

    async def run(self) -> None:
        while True:
            with self._node.errors.guard(WATCH, what="memory"):
                if self.look():
                    await trio.to_thread.run_sync(self._meter.give_back)
            await trio.sleep(CHECK_S)
