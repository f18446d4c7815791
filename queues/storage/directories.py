"""Many directories side by side, each made with its first file: most of them never get one."""

from pathlib import Path
from typing import Protocol

from queues.storage.disk import Disk, File, RealDisk


class Directories(Protocol):
    def names(self) -> list[str]:
        """Those that are there."""
        ...

    def disk(self, name: str) -> Disk:
        """One of them, whether it is there or not."""
        ...


class LateDisk:
    """A directory that need not be there: then it is empty."""

    __slots__ = ("_disk", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._disk: RealDisk | None = None

    def _existing(self) -> RealDisk | None:
        if self._disk is None and self._path.is_dir():
            self._disk = RealDisk(self._path)
        return self._disk

    def _made(self) -> RealDisk:
        if self._disk is None:
            self._disk = RealDisk(self._path)
        return self._disk

    def create(self, name: str, size_bytes: int) -> File:
        return self._made().create(name, size_bytes)

    def open(self, name: str) -> File:
        return self._made().open(name)

    def rename(self, old: str, new: str) -> None:
        self._made().rename(old, new)

    def unlink(self, name: str) -> None:
        self._made().unlink(name)

    def list(self) -> list[str]:
        disk = self._existing()
        return [] if disk is None else disk.list()

    def sync_directory(self) -> None:
        if disk := self._existing():
            disk.sync_directory()

    def remove(self) -> None:
        if disk := self._existing():
            disk.remove()
            self._disk = None

    def free_bytes(self) -> int:
        return self._made().free_bytes()

    def lock(self) -> None:
        self._made().lock()

    def unlock(self) -> None:
        self._made().unlock()


class RealDirectories:
    """Those under one path of the operating system."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> list[str]:
        if not self._path.is_dir():
            return []
        return sorted(path.name for path in self._path.iterdir() if path.is_dir())

    def disk(self, name: str) -> Disk:
        return LateDisk(self._path / name)
