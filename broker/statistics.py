"""What a node, its connections and their channels say of themselves, for those who watch it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queues.statistics import ConsumerStatistics


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """What one channel holds, and what is held back of it."""

    number: int
    prefetch: int  # of consumers to come; 0: no limit
    prefetch_global: int  # shared by all its consumers; 0: no limit
    unacked: int
    suspended: bool  # waits for the disk
    kept_back: int  # batches that wait for their turn
    consumers: "tuple[ConsumerStatistics, ...]"


@dataclass(frozen=True, slots=True)
class ConnectionStatistics:
    """Where a connection stands between its client and the node."""

    name: str
    state: str
    channels: int
    unacked: int
    outbox_bytes: int  # not yet taken by the client
    congested: bool  # so many that its consumers get nothing now
    kept_back: int  # batches of publishes, and of what must not overtake them
    kept_back_bytes: int
    publishes: bool  # has published at least once
    blocked: str | None  # why what it publishes waits: an alarm
    reading: bool  # False while its socket is not read
    publish_rate: int  # messages a second; 0: no limit
    over_rate: bool  # publishes wait because of it


@dataclass(frozen=True, slots=True)
class StorageStatistics:
    """The disk, and what waits for it or lies there for want of memory."""

    disk_free_bytes: int
    disk_free_bytes_min: int
    pending_bytes: int  # on their way to the disk
    pending_bytes_max: int
    hot_bytes: int  # ready messages of durable queues in memory
    hot_bytes_max: int
    spilled_bytes: int  # messages of queues in memory on disk


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """Alarms and what leads to them."""

    alarms: dict[str, str]  # what is short, and the words for it
    memory_used_bytes: int
    memory_limit_bytes: int
    paging: bool  # memory is so short that messages go to disk
    kept_back_bytes: int  # of all connections
    kept_back_bytes_max: int
    connections: int
    queues: int
    storage: StorageStatistics | None  # None without a data directory
