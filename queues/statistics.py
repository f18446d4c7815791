"""What queues and their consumers say of themselves, for those who watch a node."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """Messages are ready, unacked or pending; those ready are in memory or on disk only."""

    ready: int
    ready_bytes: int  # of bodies; at least so many, where a restart left messages unread
    unacked: int
    pending: int  # published, and not yet durable
    in_memory: int
    on_disk: int
    consumers: int
    dying: int = 0  # died, and kept until their dead letters are safe: none of the above


@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """`lag` is how many messages of its queue wait for a consumer; in a stream, for this one."""

    tag: str
    queue: str
    no_ack: bool
    prefetch: int  # 0: no limit of its own
    unacked: int
    lag: int
