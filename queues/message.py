"""A message as one queue holds it. Queues never share one: a fan-out makes a copy per queue."""

from typing import Final

from broker.protocol.constants import FLAG_DELIVERY_MODE
from broker.protocol.content import split_properties

PERSISTENT: Final = b"\x02"


class Message:
    """Content as raw frames (see broker.protocol.content), and its life in this queue."""

    __slots__ = (
        "address",
        "body_bytes",
        "channel",
        "delivery_count",
        "expires_at",
        "flags",
        "frames",
        "header_bytes",
        "priority",
        "redelivered",
        "sequence",
    )

    def __init__(
        self,
        address: bytes,
        frames: bytes,
        header_bytes: int,
        flags: int,
        body_bytes: int,
        channel: int,
    ) -> None:
        self.address = address  # exchange and routing key as two short strings
        self.frames = frames
        self.header_bytes = header_bytes
        self.flags = flags
        self.body_bytes = body_bytes
        self.channel = channel  # the channel number written in `frames`
        self.sequence = (
            0  # place in the queue; before it is enqueued, the publisher's number for it
        )
        self.priority = 0
        self.expires_at: int | None = None  # ms; as published: the message's own TTL until enqueued
        self.delivery_count = 0  # failed deliveries: returned by reject, nack or a lost consumer
        self.redelivered = False

    def copy(self) -> "Message":
        twin = Message(
            self.address,
            self.frames,
            self.header_bytes,
            self.flags,
            self.body_bytes,
            self.channel,
        )
        twin.sequence = self.sequence
        twin.priority = self.priority
        twin.expires_at = self.expires_at
        return twin

    def properties(self) -> dict[int, bytes]:
        """Raw property values by flag (see split_properties). They were checked at publish."""
        return split_properties(self.flags, self.frames, self.header_bytes)

    @property
    def persistent(self) -> bool:
        if not self.flags & FLAG_DELIVERY_MODE:
            return False
        return self.properties()[FLAG_DELIVERY_MODE] == PERSISTENT
