"""How big the store's pieces are and what it tells its host."""

from collections.abc import Callable
from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoreOptions:
    # Big enough that changing files does not show, small enough that a few of them are no loss.
    wal_file_bytes: int = 64 * MIB
    # Below this much free space the store is full: what is left is for settles and for copying
    # the little that pins old files. RabbitMQ's default.
    free_bytes_min: int = 50_000_000
    # Preallocated files at hand. When none can be made the store is full, and the last one takes
    # what was accepted before everybody knew that.
    spare_files: int = 1
    # A small spare that is used only when there is no room for a file at all: half a million acks,
    # and all the hard state there is.
    reserve_bytes: int = 8 * MIB
    # Dead bytes are left alone up to so many log files, or this share of the live bytes.
    slack_files: int = 2
    slack_share: float = 0.5

    def __post_init__(self) -> None:
        assert self.reserve_bytes < self.wal_file_bytes, "it would be taken for any other spare"


@dataclass(frozen=True, slots=True)
class StoreEvents:
    """Called from the writer thread: hand over to the loop and return at once."""

    durable: Callable[[int], None]  # this submit and all before it are on disk
    failed: Callable[[BaseException], None]  # once; nothing is reported durable after it
    full: Callable[[bool], None]  # the state from now on
    low: Callable[[], None] = lambda: None  # the last spare is in use: it is time to check space
