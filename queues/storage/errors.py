"""What can go wrong between the store and the disk, by what the host has to do about it."""


class StorageError(Exception):
    """Anything wrong with the data directory."""


class DirectoryInUseError(StorageError):
    """Another process holds the data directory."""


class FormatVersionError(StorageError):
    """A file was written by a version that this one cannot read."""


class StoreFailedError(StorageError):
    """A write or a sync failed: nothing is durable any more, and the node has to stop."""


class OutOfSpaceError(StorageError):
    """There is no room for another file; nothing was written, so trying again later is safe."""


class MissingEntryError(StorageError):
    """A log has a gap: an entry is lost of which the disk says nothing."""

    def __init__(self, gid: int, index: int) -> None:
        super().__init__(f"entry {index} of group {gid} is missing")


class CorruptRecordError(StorageError):
    """Stored bytes fail their checksum; the group must not be served from here."""

    def __init__(self, gid: int, file: str, offset: int) -> None:
        super().__init__(f"corrupt record of group {gid} in {file} at byte {offset}")
        self.gid = gid
        self.file = file
        self.offset = offset
