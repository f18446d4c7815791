"""A disk in memory that forgets what was not synced, and fails when told to."""

import errno
from collections.abc import Callable, Sequence
from random import Random

from queues.storage.errors import DirectoryInUseError, OutOfSpaceError

SECTOR_BYTES = 512
Fault = Callable[[str, str], None]  # operation and file name; raises to make it fail


class Inode:
    """The bytes of a file: those on the platter, and what was written since, in order."""

    def __init__(self, size_bytes: int) -> None:
        self.durable = bytearray(size_bytes)
        self.current = bytearray(size_bytes)
        self.writes: list[tuple[int, bytes]] = []

    def write(self, offset: int, data: bytes) -> None:
        _put(self.current, offset, data)
        self.writes.append((offset, data))

    def sync(self) -> None:
        self.durable[:] = self.current
        self.writes.clear()

    def crash(self, random: Random) -> None:
        """Keep a prefix of the unsynced writes and tear the next; or any of them, in any state."""
        in_order = random.random() < 0.5
        kept = random.randint(0, len(self.writes))
        for number, (offset, data) in enumerate(self.writes):
            if number < kept if in_order else random.random() < 0.5:
                _put(self.durable, offset, data)
            elif number == kept or not in_order:
                self._tear(random, offset, data)
        self.current[:] = self.durable
        self.writes.clear()

    def _tear(self, random: Random, offset: int, data: bytes) -> None:
        if random.random() < 0.5:
            _put(self.durable, offset, data[: random.randint(0, len(data))])
            return
        for start in range(0, len(data), SECTOR_BYTES):
            if random.random() < 0.5:
                _put(self.durable, offset + start, data[start : start + SECTOR_BYTES])


def _put(target: bytearray, offset: int, data: bytes) -> None:
    if len(target) < offset:
        target.extend(bytes(offset - len(target)))
    target[offset : offset + len(data)] = data


class SimFile:
    def __init__(self, disk: "SimDisk", name: str, inode: Inode) -> None:
        self._disk = disk
        self._name = name
        self._inode = inode

    def pwritev(self, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        self._disk.happens("write", self._name)
        self._disk.allocate(offset + sum(map(len, buffers)) - self.size_bytes())
        for buffer in buffers:
            self._inode.write(offset, bytes(buffer))
            offset += len(buffer)

    def pread(self, length: int, offset: int) -> bytes:
        self._disk.happens("read", self._name)
        return bytes(self._inode.current[offset : offset + length])

    def extend(self, size_bytes: int) -> None:
        self._disk.happens("extend", self._name)
        try:
            self._disk.allocate(size_bytes - self.size_bytes())
        except OSError as error:
            raise OutOfSpaceError(f"no room for {size_bytes} bytes") from error
        self._inode.write(self.size_bytes(), bytes(size_bytes - self.size_bytes()))

    def datasync(self) -> None:
        self._disk.happens("sync", self._name)
        self._inode.sync()

    def size_bytes(self) -> int:
        return len(self._inode.current)

    def fileno(self) -> int:
        raise OSError(errno.EBADF, f"{self._name} is in memory")

    def close(self) -> None:
        pass


class SimDisk:
    """One directory. After `crash` open a new store on it; handles from before are dead."""

    def __init__(self, capacity_bytes: int = 1 << 40) -> None:
        self.capacity_bytes = capacity_bytes
        self.fault: Fault | None = None
        self.log: list[tuple[str, str]] = []
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._changes: list[Callable[[dict[str, Inode]], object]] = []
        self._locked = False

    def happens(self, operation: str, name: str) -> None:
        self.log.append((operation, name))
        if self.fault is not None:
            self.fault(operation, name)

    def _change(self, change: Callable[[dict[str, Inode]], object]) -> None:
        change(self._names)
        self._changes.append(change)

    def create(self, name: str, size_bytes: int) -> SimFile:
        self.happens("create", name)
        assert name not in self._names
        if size_bytes > self.free_bytes():
            raise OutOfSpaceError(f"no room for {name}")
        inode = Inode(size_bytes)
        self._change(lambda names: names.__setitem__(name, inode))
        return SimFile(self, name, inode)

    def open(self, name: str) -> SimFile:
        self.happens("open", name)
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, f"no {name}")
        return SimFile(self, name, self._names[name])

    def rename(self, old: str, new: str) -> None:
        self.happens("rename", new)
        self._change(lambda names: names.__setitem__(new, names.pop(old)))

    def unlink(self, name: str) -> None:
        self.happens("unlink", name)
        self._change(lambda names: names.pop(name))

    def list(self) -> list[str]:
        return list(self._names)

    def sync_directory(self) -> None:
        self.happens("sync directory", "")
        self._durable_names = dict(self._names)
        self._changes.clear()

    def allocate(self, more_bytes: int) -> None:
        if more_bytes > max(self.free_bytes(), 0):
            raise OSError(errno.ENOSPC, "no room")

    def remove(self) -> None:
        for name in self.list():
            self.unlink(name)
        self.sync_directory()

    def used_bytes(self) -> int:
        return sum([len(inode.current) for inode in self._names.values()])

    def free_bytes(self) -> int:
        return self.capacity_bytes - self.used_bytes()

    def lock(self) -> None:
        if self._locked:
            raise DirectoryInUseError("in use")
        self._locked = True

    def unlock(self) -> None:
        self._locked = False

    # What befalls it.

    def crash(self, random: Random) -> None:
        """Power loss: any prefix of the changes to names survives, and what the inodes keep."""
        names = dict(self._durable_names)
        for change in self._changes[: random.randint(0, len(self._changes))]:
            change(names)
        for inode in {id(i): i for i in [*names.values(), *self._names.values()]}.values():
            inode.crash(random)
        self._names = names
        self._durable_names = dict(names)
        self._changes.clear()
        self._locked = False
        self.fault = None

    def kill(self) -> None:
        """The process dies; the system lives and loses nothing."""
        self._locked = False
        self.fault = None

    def flip(self, name: str, offset: int, bit: int = 0) -> None:
        inode = self._names[name]
        inode.durable[offset] ^= 1 << bit
        inode.current[offset] ^= 1 << bit

    def content(self, name: str) -> bytes:
        return bytes(self._names[name].current)


def input_output_error(operation: str, name: str) -> None:
    raise OSError(errno.EIO, f"{operation} of {name} failed")
