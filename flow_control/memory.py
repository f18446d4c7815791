"""The memory alarm: how much there is, how much is too much, and when it is over."""

import ctypes
import ctypes.util
from pathlib import Path
from typing import Final

import psutil

# The alarm ends this far under the limit, so that it does not flicker.
CLEAR_SHARE: Final = 0.9
# Version 2 and version 1 of control groups: a container's own limit, seen from inside.
CGROUP_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def memory_bytes(limits: tuple[Path, ...] = CGROUP_LIMITS) -> int:
    """The memory this process may use: the machine's, or its container's if that is less."""
    total = int(psutil.virtual_memory().total)
    for path in limits:
        try:
            text = path.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():  # "max" where there is no limit
            total = min(total, int(text))
    return total


class MemoryAlarm:
    """Tells by the memory in use whether publishers have to wait."""

    __slots__ = ("limit_bytes", "on")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.on = False

    def update(self, used_bytes: int) -> bool:
        """Take a reading; whether the alarm changed."""
        threshold = self.limit_bytes * CLEAR_SHARE if self.on else self.limit_bytes
        on = used_bytes > threshold
        changed = on != self.on
        self.on = on
        return changed


class Process:
    """This process's memory, as the system counts it."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        name = ctypes.util.find_library("c")
        self._trim = getattr(ctypes.CDLL(name), "malloc_trim", None) if name else None

    def used_bytes(self) -> int:
        return int(self._process.memory_info().rss)

    def give_back(self) -> None:
        """Return freed memory to the system, which the C library does not do of itself."""
        if self._trim is not None:
            self._trim(0)
