"""Files for what need not survive: pieces are written once, read once and given back.

A file has no name from the moment it is made, so that the system gives its space back when it is
closed, however the node ends. It is closed when the last of its pieces is given back. Queues share
files; one that is never read can keep files alive in which little else is left.
"""

from typing import Final

from queues.storage.disk import Disk, File

SPILL_PREFIX: Final = "spill-"
# Space is given back in steps of this size.
FILE_BYTES: Final = 16 * 1024 * 1024


class _SpillFile:
    __slots__ = ("file", "live_bytes")

    def __init__(self, file: File) -> None:
        self.file = file
        self.live_bytes = 0


class SpillFiles:
    """A place is a file's number and an offset, in one integer. All calls are for one thread."""

    def __init__(self, disk: Disk, *, file_bytes: int = FILE_BYTES) -> None:
        self._disk = disk
        self._file_bytes = file_bytes
        self._files: dict[int, _SpillFile] = {}
        self._number = 0  # of the file that is being filled
        self._offset = file_bytes  # where the next piece goes in it
        for name in disk.list():
            if name.startswith(SPILL_PREFIX):  # of a node that ended in the very moment
                disk.unlink(name)

    def __len__(self) -> int:
        return len(self._files)

    @property
    def live_bytes(self) -> int:
        return sum([file.live_bytes for file in self._files.values()])

    def place(self, length: int) -> int:
        """Where so many bytes can be written. OSError or OutOfSpaceError if there is no room."""
        if self._offset and self._offset + length > self._file_bytes:
            self._next_file()
        place = self._number << 32 | self._offset
        self._offset += length
        self._files[self._number].live_bytes += length
        return place

    def _next_file(self) -> None:
        name = f"{SPILL_PREFIX}{self._number + 1:010d}"
        file = self._disk.create(name, 0)
        self._disk.unlink(name)
        self._number += 1
        self._offset = 0
        self._files[self._number] = _SpillFile(file)

    def locate(self, place: int) -> tuple[File, int]:
        """The file and the offset of a piece; it stays open until the piece is given back."""
        return self._files[place >> 32].file, place & 0xFFFFFFFF

    def free(self, place: int, length: int) -> None:
        number = place >> 32
        self._files[number].live_bytes -= length
        assert self._files[number].live_bytes >= 0
        if not self._files[number].live_bytes:
            self._drop(number)

    def _drop(self, number: int) -> None:
        self._files.pop(number).file.close()
        if number == self._number:
            self._offset = self._file_bytes  # as if it were full

    def close(self) -> None:
        for number in list(self._files):
            self._drop(number)
