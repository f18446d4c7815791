"""A memory limit for a broker: a control group of its own where one can be made."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOUNT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """How a broker is to be started so that the limit holds, and what the limit is called."""

    words: str
    prefix: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@contextmanager
def memory_limit(limit_bytes: int) -> Iterator[MemoryLimit]:
    """A group inside our own, removed in the end; without one, the broker is told the limit."""
    group = _make_group(limit_bytes)
    if group is None:
        share = int(limit_bytes * 0.4)
        yield MemoryLimit("told to the broker", flags=("--memory-limit", str(share)))
        return
    enter = ("sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh")
    try:
        yield MemoryLimit(f"control group, version {_version(group)}", prefix=enter)
    finally:
        with suppress(OSError):
            group.rmdir()


def _version(group: Path) -> int:
    return 2 if (group / "memory.max").exists() else 1


def _make_group(limit_bytes: int) -> Path | None:
    for parent, name in _candidates():
        group = parent / f"leveret-pressure-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / name).write_text(str(limit_bytes))
        except OSError:
            group.rmdir()
            continue
        return group
    return None


def _candidates() -> Iterator[tuple[Path, str]]:
    """Our own groups, and the name of the limit in them."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield _MOUNT / path.lstrip("/"), "memory.max"
        elif "memory" in controllers.split(","):
            yield _MOUNT / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
