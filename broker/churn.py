"""What came and went since the node started."""

from dataclasses import dataclass


@dataclass(slots=True)
class Churn:
    """Counters that only grow."""

    connection_created: int = 0
    connection_closed: int = 0
    channel_created: int = 0
    channel_closed: int = 0
    queue_declared: int = 0
    queue_created: int = 0
    queue_deleted: int = 0
