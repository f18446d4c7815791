"""The memory alarm: how much there is, how much is too much, and when it is over."""

import ctypes
import ctypes.util
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

# The alarm ends this far under the limit, so that it does not flicker.
CLEAR_SHARE: Final = 0.9
# Messages begin to go to disk at this share of the limit, so that it is rarely reached. RabbitMQ's.
PAGING_SHARE: Final = 0.5
# Where control groups are mounted and what their limits are called, in version 2, in version 2
# beside version 1, and in version 1. Above memory.high a process is all but stopped.
_VERSION_2: Final = (
    ("sys/fs/cgroup", ("memory.max", "memory.high")),
    ("sys/fs/cgroup/unified", ("memory.max", "memory.high")),
)
_VERSION_1: Final = (("sys/fs/cgroup/memory", ("memory.limit_in_bytes",)),)


def memory_bytes(root: Path = Path("/")) -> int:
    """The memory this process may use: the machine's, or what its control groups leave of it."""
    total = int(psutil.virtual_memory().total)
    for path in _limit_files(root):
        try:
            text = path.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():  # "max" where there is no limit
            total = min(total, int(text))
    return total


def _limit_files(root: Path) -> Iterator[Path]:
    """The limits of this process's own group, and of all around it."""
    for mounts, group in _groups(root):
        for mount, names in mounts:
            top = root / mount
            own = top.joinpath(*group)
            for directory in (own, *own.parents[: len(group)]):
                yield from [directory / name for name in names]


def _groups(root: Path) -> Iterator[tuple[tuple[tuple[str, tuple[str, ...]], ...], list[str]]]:
    """The mounts of each version of control groups, and the path of this process below them."""
    yield _VERSION_2, []  # as a container sees its own group
    yield _VERSION_1, []
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        group = [part for part in path.split("/") if part]
        if ".." in group:
            continue  # outside of what can be seen from here
        if not controllers:
            yield _VERSION_2, group
        elif "memory" in controllers.split(","):
            yield _VERSION_1, group


def limit_bytes(setting: float) -> int:
    """What a share of the memory, or a number of bytes, amounts to."""
    return setting if isinstance(setting, int) else int(setting * memory_bytes())


class MemoryAlarm:
    """Tells by the memory in use whether there is too little of it."""

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


# What a node takes without messages, and then some: less is not worth giving back.
KEPT_BYTES: Final = 128 * 2**20
# As much more or less is a change, and what changes is being used.
CHANGE_SHARE: Final = 0.05
# Looks without a change: ten seconds at first, ten minutes at most. The C library holds up whoever
# needs memory for up to a tenth of a second, so that trying in vain is to be rare.
STILL_LOOKS: Final = 40
STILL_LOOKS_MAX: Final = 2400


class Stillness:
    """Tells by the memory in use when to give back what was freed, though it is not short."""

    __slots__ = ("_patience", "_still", "_used_bytes")

    def __init__(self) -> None:
        self._used_bytes = 0
        self._still = 0
        self._patience = STILL_LOOKS

    def look(self, used_bytes: int) -> bool:
        """Take a reading; whether it is time. In vain, the next time is twice as far away."""
        if used_bytes < KEPT_BYTES:
            return False
        if abs(used_bytes - self._used_bytes) > CHANGE_SHARE * used_bytes:
            self._used_bytes = used_bytes
            self._still = 0
            self._patience = STILL_LOOKS
            return False
        self._still += 1
        if self._still < self._patience:
            return False
        self._still = 0
        self._patience = min(2 * self._patience, STILL_LOOKS_MAX)
        return True


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
