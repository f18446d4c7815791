"""Segments: live committed entries and snapshots, sorted by group, in a file that is never changed.

The format is that of the log (see frames.py) with sequences from 1. The last frame holds a SEAL. A
segment gets its name only when all of it is on disk, so that one without its end is corrupt.
"""

from array import array
from typing import Final

from queues.storage.disk import Disk
from queues.storage.files import UNFINISHED_SUFFIX, StoredFile
from queues.storage.frames import (
    FILE_HEADER_BYTES,
    RECORD_BYTES,
    SEAL,
    SEGMENT_FILE,
    FileHeader,
    FramePlanner,
    Record,
    encode_file_header,
    encode_gids,
    position_of,
    seed_of,
)

# One write: big enough for the disk, small enough for a slice of work.
SEGMENT_FRAME_BYTES: Final = 1024 * 1024


class SegmentWriter:
    """Writes one segment. Nothing of it counts before `seal` has returned."""

    def __init__(self, disk: Disk, number: int, store_id: bytes, next_gid: int) -> None:
        self._disk = disk
        self.number = number
        self._seed = seed_of(store_id, number)
        self._planner = FramePlanner(1)
        self._gids: set[int] = set()
        self._records: list[Record] = []
        self._bytes = 0
        self._offset = FILE_HEADER_BYTES
        self._name = StoredFile(SEGMENT_FILE, number, 0).name
        self._file = disk.create(self._name + UNFINISHED_SUFFIX, 0)
        self._header = encode_file_header(FileHeader(SEGMENT_FILE, next_gid, number, store_id))
        self.named = False
        self.positions: list[int] = []  # of the records written so far, in their order

    def add(self, record: Record) -> bool:
        """True if this one filled a frame, which was written."""
        self._records.append(record)
        self._gids.add(record[1])
        self._bytes += RECORD_BYTES + len(record[4])
        if self._bytes < SEGMENT_FRAME_BYTES:
            return False
        self._write_frame()
        return True

    def _write_frame(self) -> None:
        frame = self._planner.plan(self._records, self.number, self._offset, 0)
        data = frame.encode(self._seed, frame.sequence - 1)
        if self._offset == FILE_HEADER_BYTES:
            self._file.pwritev([self._header, data], 0)
        else:
            self._file.pwritev([data], self._offset)
        self.positions += [position_of(self.number, offset) for offset in frame.offsets]
        self._offset += frame.size_bytes
        self._records = []
        self._bytes = 0

    def seal(self) -> StoredFile:
        """Make it durable under its name."""
        if self._records:
            self._write_frame()
        gids = sorted(self._gids)
        self._records.append((SEAL, 0, 0, 0, encode_gids(gids)))
        self._write_frame()
        self.positions.pop()
        self._file.datasync()
        self._disk.rename(self._name + UNFINISHED_SUFFIX, self._name)
        self.named = True
        self._disk.sync_directory()
        return StoredFile(
            SEGMENT_FILE,
            self.number,
            self._offset,
            gids=array("I", gids),
            handle=self._file,
        )

    def close(self) -> None:
        """Leave it unfinished; recovery removes it."""
        self._file.close()

    def abandon(self) -> None:
        self.close()
        self._disk.unlink(self._name + UNFINISHED_SUFFIX)
