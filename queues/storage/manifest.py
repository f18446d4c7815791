"""Which files a store has: what is listed here and not in the directory has vanished.

    manifest-a, manifest-b, each:
    0        8         10      16           24        40       44    48
    +--------+---------+-------+------------+---------+--------+-----+--------------------
    |magic 8s|version H| pad 6x|generation Q|store 16s|length I|crc I| files, `length` bytes
    +--------+---------+-------+------------+---------+--------+-----+--------------------
    file     kind B, pad 3x, gids I, number Q, first sequence Q, then its gids, I each

All numbers are little-endian; the crc covers what is before and behind it. Both copies are written
one after the other, so that one of them is whole whatever happens, and the one with the higher
generation counts. A log file is listed before anything in it is durable, a segment before any file
is dropped whose records it may hold, and a file is taken from the list before it is dropped: what
is in the directory and not listed is a file whose making or dropping a crash interrupted.

The first sequence of a log file is 0 where that is not known, as it is of all segments. The number
of gids of a segment with very many, and of every log file, is all ones: they are not listed.
"""

import struct
from collections.abc import Collection, Iterable
from threading import Lock
from typing import Final, NamedTuple
from zlib import crc32

from queues.storage.disk import Disk, File
from queues.storage.errors import FormatVersionError
from queues.storage.files import StoredFile, file_name
from queues.storage.frames import LOG_FILE, decode_gids, encode_gids

MANIFEST_NAMES: Final = ("manifest-a", "manifest-b")
MANIFEST_VERSION: Final = 1
MANIFEST_MAGIC: Final = b"LEVERETM"
# A segment with more groups than this is listed without them: if it vanishes, all are suspect.
GIDS_MAX: Final = 256
# Copies grow by so much: some hundred files.
GROWTH_BYTES: Final = 4096

_HEAD: Final = struct.Struct("<8sH6xQ16sI")
_CRC: Final = struct.Struct("<I")
_FILE: Final = struct.Struct("<B3xIQQ")
_UNKNOWN: Final = 2**32 - 1
_BODY: Final = _HEAD.size + _CRC.size


class ListedFile(NamedTuple):
    """A file that has to be there. `gids` is None if it may have records of any group."""

    kind: int
    number: int
    first_sequence: int = 0
    gids: tuple[int, ...] | None = None

    @property
    def name(self) -> str:
        return file_name(self.kind, self.number)


def listed(file: StoredFile, first_sequence: int = 0) -> ListedFile:
    """How a file is listed."""
    if file.kind == LOG_FILE or len(file.gids) > GIDS_MAX:
        return ListedFile(file.kind, file.number, first_sequence)
    return ListedFile(file.kind, file.number, 0, tuple(file.gids))


class Listing(NamedTuple):
    """A copy of the manifest, as read."""

    generation: int
    store_id: bytes
    files: list[ListedFile]


def read_manifest(disk: Disk, names: Iterable[str]) -> Listing | None:
    """The copy that counts of those in the directory, None if there is none that can be read."""
    copies = [_read(disk, name) for name in MANIFEST_NAMES if name in names]
    return max((copy for copy in copies if copy is not None), default=None)


def _read(disk: Disk, name: str) -> Listing | None:
    file = disk.open(name)
    try:
        return decode_manifest(file.pread(file.size_bytes(), 0), name)
    finally:
        file.close()


def encode_manifest(listing: Listing) -> bytes:
    body = b"".join([_encode_file(file) for file in listing.files])
    head = _HEAD.pack(
        MANIFEST_MAGIC, MANIFEST_VERSION, listing.generation, listing.store_id, len(body)
    )
    return head + _CRC.pack(crc32(body, crc32(head))) + body


def _encode_file(file: ListedFile) -> bytes:
    count = _UNKNOWN if file.gids is None else len(file.gids)
    return _FILE.pack(file.kind, count, file.number, file.first_sequence) + encode_gids(
        file.gids or ()
    )


def decode_manifest(data: bytes, name: str) -> Listing | None:
    """None if the bytes are no manifest; FormatVersionError if they are one of another version."""
    if len(data) < _BODY:
        return None
    magic, version, generation, store_id, length = _HEAD.unpack_from(data)
    body = data[_BODY : _BODY + length]
    crc = crc32(body, crc32(data[: _HEAD.size]))
    if (
        magic != MANIFEST_MAGIC
        or len(body) != length
        or _CRC.unpack_from(data, _HEAD.size) != (crc,)
    ):
        return None
    if version != MANIFEST_VERSION:
        raise FormatVersionError(
            f"{name} has format version {version}; this program reads {MANIFEST_VERSION}"
        )
    files = []
    place = 0
    while place < length:
        kind, count, number, first = _FILE.unpack_from(body, place)
        place += _FILE.size
        end = place + (0 if count == _UNKNOWN else 4 * count)
        gids = None if count == _UNKNOWN else decode_gids(body[place:end])
        files.append(ListedFile(kind, number, first, gids))
        place = end
    return Listing(generation, store_id, files)


class Manifest:
    """Keeps both copies. The writer adds log files; the reclaimer takes files from the list."""

    def __init__(self, disk: Disk, store_id: bytes, generation: int = 0) -> None:
        self._disk = disk
        self._store_id = store_id
        self._generation = generation
        self._files: dict[int, ListedFile] = {}
        self._lock = Lock()

    def make_room(self) -> None:
        """For one more log file: OutOfSpaceError if there is none, and nothing was done."""
        with self._lock:
            for copy in self._copies(self._encoded(self._files), room_bytes=_FILE.size):
                copy.close()

    def add(self, file: ListedFile) -> None:
        """A log file for which there is room. Durable when this returns."""
        with self._lock:
            self._write({**self._files, file.number: file}, room_bytes=0)

    def change(self, added: Iterable[ListedFile], dropped: Collection[int]) -> None:
        """List some files, and others no more. Durable when this returns.

        OutOfSpaceError means that nothing was done.
        """
        with self._lock:
            files = {**self._files, **{file.number: file for file in added}}
            kept = {number: file for number, file in files.items() if number not in dropped}
            self._write(kept, room_bytes=_FILE.size)

    def _encoded(self, files: dict[int, ListedFile]) -> bytes:
        listing = Listing(self._generation + 1, self._store_id, list(files.values()))
        return encode_manifest(listing)

    def _copies(self, data: bytes, room_bytes: int) -> list[File]:
        return [self._grown(name, len(data) + room_bytes) for name in MANIFEST_NAMES]

    def _write(self, files: dict[int, ListedFile], *, room_bytes: int) -> None:
        data = self._encoded(files)
        for copy in self._copies(data, room_bytes):
            copy.pwritev([data], 0)
            copy.datasync()
            copy.close()
        self._generation += 1
        self._files = files

    def _grown(self, name: str, size_bytes: int) -> File:
        """A copy with at least that much room, made if it is not there."""
        size = -(-size_bytes // GROWTH_BYTES) * GROWTH_BYTES
        if name not in self._disk.list():
            file = self._disk.create(name, size)
            self._disk.sync_directory()
            return file
        file = self._disk.open(name)
        if file.size_bytes() < size:
            file.extend(size)
        return file
