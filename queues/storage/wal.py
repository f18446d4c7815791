"""The write-ahead log: gives records their place in preallocated files, and writes them there.

A log file is made ready under the name of a spare (allocated, or recycled with its old bytes) and
gets a new number, header and seed before it is renamed. Frames of one file are on disk before the
first frame of the next is written, and files are never appended to after a restart.
"""

from collections.abc import Iterable
from itertools import count
from threading import Lock

from queues.storage.disk import Disk, File
from queues.storage.errors import OutOfSpaceError
from queues.storage.files import SPARE_PREFIX, StoredFile, spare_name
from queues.storage.frames import (
    DEL,
    FILE_BYTES_MAX,
    FILE_HEADER_BYTES,
    FRAME_BYTES_MAX,
    LOG_FILE,
    RECORD_BYTES,
    REG,
    FileHeader,
    Frame,
    FramePlanner,
    Record,
    Witnesses,
    encode_file_header,
    seed_of,
)
from queues.storage.manifest import ListedFile, Manifest
from queues.storage.options import StoreOptions
from queues.storage.state import State


class Spares:
    """Files that are allocated and hold nothing that counts."""

    def __init__(self, disk: Disk, names: Iterable[str]) -> None:
        self._disk = disk
        self._lock = Lock()
        self._spares: list[tuple[int, str]] = []  # size in bytes and name
        for name in names:
            file = disk.open(name)
            self._spares.append((file.size_bytes(), name))
            file.close()
        used = [int(name.removeprefix(SPARE_PREFIX)) for _, name in self._spares]
        self._numbers = count(max(used, default=0) + 1)

    def __len__(self) -> int:
        return len(self._spares)

    @property
    def size_bytes(self) -> int:
        return sum([size for size, _ in self._spares])

    def new_name(self) -> str:
        return spare_name(next(self._numbers))

    def make(self, size_bytes: int) -> None:
        """Allocate one more; OutOfSpaceError if that is not possible."""
        name = self.new_name()
        self._disk.create(name, size_bytes).close()
        self.put(size_bytes, name)

    def put(self, size_bytes: int, name: str) -> None:
        with self._lock:
            self._spares.append((size_bytes, name))

    def take(self, size_bytes: int) -> str | None:
        """The name of one that is at least so big."""
        with self._lock:
            for place, (size, name) in enumerate(self._spares):
                if size >= size_bytes:
                    del self._spares[place]
                    return name
        return None

    def take_largest(self) -> str | None:
        """The name of the largest one, however small."""
        with self._lock:
            if not self._spares:
                return None
            largest = max(self._spares)
            self._spares.remove(largest)
            return largest[1]

    def count(self, size_bytes: int) -> int:
        """How many of them are at least so big."""
        return sum([size >= size_bytes for size, _ in list(self._spares)])


class Wal:
    """Places frames on the loop's side (`plan`), writes them on the writer's (`write`)."""

    def __init__(
        self,
        disk: Disk,
        options: StoreOptions,
        state: State,
        spares: Spares,
        witnesses: Witnesses,
        manifest: Manifest,
    ) -> None:
        self._disk = disk
        self._options = options
        self._state = state
        self._spares = spares
        self._manifest = manifest
        self._planner = FramePlanner(state.next_sequence, witnesses)
        self.active: StoredFile | None = None
        self._offset = 0
        self._capacity = 0
        # The writer's side.
        self._handle: File | None = None
        self._handle_number = 0
        self._allocated = 0  # bytes of it that can be written without asking for room
        self._synced = state.next_sequence - 1

    def plan(self, records: Iterable[Record]) -> list[Frame]:
        """Place records in as few frames as will hold them. The first one may open a new file."""
        frames: list[Frame] = []
        pending: list[Record] = []
        size = 0
        room = self._room()
        for record in records:
            need = RECORD_BYTES + len(record[4])
            if (
                pending
                and size + need > min(room, FRAME_BYTES_MAX)
                # A group takes another's place in one frame: after a crash it has or it has not.
                and not (record[0] == DEL and pending[-1][0] == REG)
            ):
                frames.append(self._close(pending, size))
                pending, size, room = [], 0, self._room()
            pending.append(record)
            size += need
        if pending:
            frames.append(self._close(pending, size))
        return frames

    def plan_empty(self) -> Frame:
        """A frame that only says what is synced; for a clean end."""
        return self._close([], 0)

    def _room(self) -> int:
        """Bytes of records that fit in the active file or, if that is full, in a new one."""
        overhead = self._planner.overhead_bytes()
        room = self._capacity - self._offset - overhead
        new_room = self._options.wal_file_bytes - FILE_HEADER_BYTES - overhead
        return room if room > RECORD_BYTES else new_room

    def _close(self, records: list[Record], size: int) -> Frame:
        need = size + self._planner.overhead_bytes()
        if self._offset + need > self._capacity:
            self._next_file(need)
        assert self.active is not None
        frame = self._planner.plan(records, self.active.number, self._offset, self._capacity)
        assert frame.size_bytes == need
        self._offset += need
        return frame

    def _next_file(self, need: int) -> None:
        state = self._state
        self._capacity = max(self._options.wal_file_bytes, FILE_HEADER_BYTES + need)
        assert self._capacity <= FILE_BYTES_MAX, "one record is too big for a file"
        self.active = StoredFile(LOG_FILE, state.next_number, self._capacity)
        state.next_number += 1
        state.files.add(self.active)
        self._offset = FILE_HEADER_BYTES

    def write(self, frames: list[Frame]) -> list[Frame]:
        """Write frames of one file and sync them: those, from the first, that there is room for.

        OutOfSpaceError means that there is none, and that nothing was done.
        """
        first = frames[0]
        if first.number != self._handle_number:
            self._open(first)
        assert self._handle is not None
        frames = self._with_room(self._handle, frames)
        seed = seed_of(self._state.store_id, first.number)
        pieces = [piece for frame in frames for piece in frame.pieces(seed, self._synced)]
        self._handle.pwritev(pieces, first.offset)
        self._handle.datasync()
        self._synced = frames[-1].sequence
        return frames

    def _with_room(self, handle: File, frames: list[Frame]) -> list[Frame]:
        """The first of some frames, for which there is room or is made now."""
        if frames[-1].end <= self._allocated:
            return frames
        try:
            self._extend(handle, frames[0].number, frames[0].file_bytes)
        except OutOfSpaceError:
            fitting = [frame for frame in frames if frame.end <= self._allocated]
            if fitting:
                return fitting
            self._extend(handle, frames[0].number, frames[0].end)
            return frames[:1]
        return frames

    def _extend(self, handle: File, number: int, size_bytes: int) -> None:
        handle.extend(size_bytes)
        self._has_allocated(number, size_bytes)

    def _has_allocated(self, number: int, size_bytes: int) -> None:
        self._allocated = size_bytes
        self._state.files[number].size_bytes = size_bytes

    def _file_for(self, size_bytes: int) -> tuple[str, File]:
        """A file to be written over, of at least that size if there is room for one at all."""
        name = self._spares.take(size_bytes)
        if name is None:
            name = self._spares.new_name()
            try:
                return name, self._disk.create(name, size_bytes)
            except OutOfSpaceError:
                name = self._spares.take_largest()
                if name is None:
                    raise
        return name, self._disk.open(name)

    def _open(self, first: Frame) -> None:
        """Make the file of a frame that is the first one in it."""
        number, state = first.number, self._state
        self._manifest.make_room()
        name, handle = self._file_for(first.file_bytes)
        header = FileHeader(LOG_FILE, state.next_gid, number, state.store_id, first.sequence)
        handle.pwritev([encode_file_header(header)], 0)
        handle.datasync()
        self._disk.rename(name, StoredFile(LOG_FILE, number, 0).name)
        self._disk.sync_directory()
        self._manifest.add(ListedFile(LOG_FILE, number, first.sequence))
        self.close()
        self._handle, self._handle_number = handle, number
        self._has_allocated(number, handle.size_bytes())

    def close(self) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None


def keep_spares(spares: Spares, options: StoreOptions) -> bool:
    """Have the reserve and the wanted number of spares. False if there is no room for them."""
    try:
        if spares.count(options.reserve_bytes) == spares.count(options.wal_file_bytes):
            spares.make(options.reserve_bytes)
        while spares.count(options.wal_file_bytes) < options.spare_files:
            spares.make(options.wal_file_bytes)
    except OutOfSpaceError:
        return False
    return True
