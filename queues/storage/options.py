"""How big the store's pieces are and what it tells its host."""

from collections.abc import Callable
from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoreOptions:
    # Big enough that changing files does not show, small enough that a few of them are no loss.
    wal_file_bytes: int = 64 * MIB
    # Below this much free space the store is full: what is left is for settles and for copying
    # the little that pins old files.
    free_bytes_min: int = 256 * MIB
    # Preallocated files at hand. One is the reserve that stays writable when the disk is full.
    spare_files: int = 1
    # Dead bytes are left alone up to so many log files, or this share of the live bytes.
    slack_files: int = 2
    slack_share: float = 0.5


@dataclass(frozen=True, slots=True)
class StoreEvents:
    """Called from the writer thread: hand over to the loop and return at once."""

    durable: Callable[[int], None]  # this submit and all before it are on disk
    failed: Callable[[BaseException], None]  # once; nothing is reported durable after it
    full: Callable[[bool], None]  # the state from now on
