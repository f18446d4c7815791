"""How long a stream keeps what, parsed once from its queue's arguments."""

from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024
DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class StreamOptions:
    # Retention takes whole segments away: small enough for that, big enough to be few.
    segment_bytes: int = 128 * MIB
    max_age_ms: int | None = None
    max_bytes: int | None = None
    compact: bool = False  # keep the last record of each key
    # Publishes are confirmed when the leader has them on its own disk, and not a majority of nodes.
    leader_acks: bool = False
    tombstone_ms: int = DAY_MS  # how long a deleted key's last record is there for readers to see
