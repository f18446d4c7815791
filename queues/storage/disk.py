"""The disk as the store sees it, and the real one; simulation brings its own."""

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from queues.storage.errors import DirectoryInUseError, OutOfSpaceError

LOCK_NAME: Final = "lock"
IOV_MAX: Final = 1024  # buffers in one pwritev; the limit of Linux
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class File(Protocol):
    """An open file. Bytes are durable after `datasync`, names after `Disk.sync_directory`."""

    def pwritev(self, buffers: Sequence[bytes | memoryview], offset: int) -> None: ...
    def pread(self, length: int, offset: int) -> bytes:
        """Fewer bytes than asked for only at the end of the file."""
        ...

    def extend(self, size_bytes: int) -> None:
        """Allocate bytes up to this size; OutOfSpaceError changes nothing."""
        ...

    def datasync(self) -> None: ...
    def size_bytes(self) -> int: ...
    def fileno(self) -> int:
        """For sendfile; a simulated file has none."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """One flat directory. Everything raises OSError as the system does, but for want of room."""

    def create(self, name: str, size_bytes: int) -> File:
        """Make a file with its bytes allocated; OutOfSpaceError leaves nothing behind."""
        ...

    def open(self, name: str) -> File: ...
    def rename(self, old: str, new: str) -> None: ...
    def unlink(self, name: str) -> None: ...
    def list(self) -> list[str]: ...
    def sync_directory(self) -> None: ...
    def remove(self) -> None:
        """The directory goes, with all that is in it."""
        ...

    def free_bytes(self) -> int: ...
    def lock(self) -> None:
        """Hold the directory until `unlock` or the end of the process."""
        ...

    def unlock(self) -> None: ...


class RealFile:
    """A file descriptor with whole reads and writes."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def pwritev(self, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        for start in range(0, len(buffers), IOV_MAX):
            offset = self._write_all(buffers[start : start + IOV_MAX], offset)

    def _write_all(self, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        end = offset + sum(map(len, buffers))
        offset += os.pwritev(self._fd, buffers, offset)
        if offset < end:
            rest = memoryview(b"".join(buffers))
            start = end - len(rest)
            while offset < end:
                offset += os.pwrite(self._fd, rest[offset - start :], offset)
        return end

    def pread(self, length: int, offset: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        if len(data) == length or not data:
            return data
        pieces = [data]
        missing = length - len(data)
        while missing and (data := os.pread(self._fd, missing, offset + length - missing)):
            pieces.append(data)
            missing -= len(data)
        return b"".join(pieces)

    def extend(self, size_bytes: int) -> None:
        before = self.size_bytes()
        try:
            os.posix_fallocate(self._fd, before, size_bytes - before)
        except OSError as error:
            os.ftruncate(self._fd, before)  # some of it may have been allocated
            if is_no_room(error):
                raise OutOfSpaceError(f"no room for {size_bytes} bytes") from error
            raise

    def datasync(self) -> None:
        os.fdatasync(self._fd)

    def size_bytes(self) -> int:
        return os.fstat(self._fd).st_size

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


class RealDisk:
    """A directory of the operating system; made, with its parents, if it is not there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock_fd = -1
        missing = [path for path in (directory, *directory.parents) if not path.exists()]
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in missing:
            _sync_directory(path.parent)

    def create(self, name: str, size_bytes: int) -> RealFile:
        path = self._directory / name
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if is_no_room(error):
                raise OutOfSpaceError(f"no room for {name}") from error
            raise
        try:
            if size_bytes:
                os.posix_fallocate(fd, 0, size_bytes)
        except OSError as error:
            os.close(fd)
            path.unlink()
            if is_no_room(error):
                raise OutOfSpaceError(f"no room for {size_bytes} bytes of {name}") from error
            raise
        return RealFile(fd)

    def open(self, name: str) -> RealFile:
        return RealFile(os.open(self._directory / name, os.O_RDWR | os.O_CLOEXEC))

    def rename(self, old: str, new: str) -> None:
        (self._directory / old).rename(self._directory / new)

    def unlink(self, name: str) -> None:
        (self._directory / name).unlink()

    def list(self) -> list[str]:
        with os.scandir(self._directory) as found:
            return [one.name for one in found if one.is_file() and one.name != LOCK_NAME]

    def sync_directory(self) -> None:
        _sync_directory(self._directory)

    def remove(self) -> None:
        for name in self.list():
            self.unlink(name)
        self._directory.rmdir()
        _sync_directory(self._directory.parent)

    def free_bytes(self) -> int:
        status = os.statvfs(self._directory)
        return status.f_bavail * status.f_frsize

    def lock(self) -> None:
        path = self._directory / LOCK_NAME
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise DirectoryInUseError(
                f"data directory {self._directory} is in use by process {holder}"
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        self._lock_fd = fd

    def unlock(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


def is_no_room(error: OSError) -> bool:
    return error.errno in _NO_ROOM


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
