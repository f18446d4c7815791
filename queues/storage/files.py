"""The files of a store: what is live in each, who is reading it, and its open handle."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from queues.storage.disk import Disk, File
from queues.storage.frames import LOG_FILE, RECORD_BYTES, SEGMENT_FILE

LOG_PREFIX: Final = "wal-"
SEGMENT_PREFIX: Final = "seg-"
SPARE_PREFIX: Final = "spare-"
CORRUPT_PREFIX: Final = "corrupt-"
UNFINISHED_SUFFIX: Final = ".tmp"


def file_name(kind: int, number: int) -> str:
    return f"{SEGMENT_PREFIX if kind == SEGMENT_FILE else LOG_PREFIX}{number:010d}"


def spare_name(number: int) -> str:
    return f"{SPARE_PREFIX}{number:010d}"


def parse_name(name: str) -> tuple[int, int] | None:
    """Kind and number of a log file or a segment, None for anything else."""
    for prefix, kind in ((LOG_PREFIX, LOG_FILE), (SEGMENT_PREFIX, SEGMENT_FILE)):
        if name.startswith(prefix) and name[len(prefix) :].isdecimal():
            return kind, int(name[len(prefix) :])
    return None


@dataclass(slots=True)
class StoredFile:
    """A log file or a segment."""

    kind: int
    number: int
    size_bytes: int
    live_bytes: int = 0
    pins: int = 0  # reads under way; a pinned file is not dropped
    gids: "array[int]" = field(default_factory=lambda: array("I"))  # of a segment, sorted
    corrupt: bool = False  # its bytes are evidence: put aside instead of dropped
    handle: File | None = None

    @property
    def name(self) -> str:
        return file_name(self.kind, self.number)

    def names_group(self, gid: int) -> bool:
        """Whether this segment has records of the group, dead or alive."""
        place = bisect_left(self.gids, gid)
        return place < len(self.gids) and self.gids[place] == gid


class FileTable:
    """All log files and segments by number. Numbers are never used twice."""

    __slots__ = ("_disk", "_files")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: dict[int, StoredFile] = {}

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, number: int) -> bool:
        return number in self._files

    def __getitem__(self, number: int) -> StoredFile:
        return self._files[number]

    def add(self, file: StoredFile) -> None:
        assert file.number not in self._files
        self._files[file.number] = file

    def remove(self, number: int) -> StoredFile:
        file = self._files.pop(number)
        assert not file.pins
        if file.handle is not None:
            file.handle.close()
            file.handle = None
        return file

    def logs(self) -> list[StoredFile]:
        """Log files, oldest first."""
        logs = [file for file in self._files.values() if file.kind == LOG_FILE]
        return sorted(logs, key=lambda file: file.number)

    def segments(self) -> list[StoredFile]:
        return [file for file in self._files.values() if file.kind == SEGMENT_FILE]

    def handle(self, number: int) -> File:
        file = self._files[number]
        if file.handle is None:
            file.handle = self._disk.open(file.name)
        return file.handle

    def close(self) -> None:
        for file in self._files.values():
            if file.handle is not None:
                file.handle.close()
                file.handle = None

    def live(self, position: int, length: int) -> None:
        """A record is needed from now on."""
        self._files[position >> 32].live_bytes += length + RECORD_BYTES

    def dead(self, records: Iterable[tuple[int, int]]) -> None:
        """Records, as position and length, are needed no more."""
        files = self._files
        number = -1
        for position, length in records:
            if position >> 32 != number:
                number = position >> 32
                file = files[number]
            file.live_bytes -= length + RECORD_BYTES
            assert file.live_bytes >= 0, file
