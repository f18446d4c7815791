"""A message as one queue holds it. Queues never share one: a fan-out makes a copy per queue."""

from typing import TYPE_CHECKING, Final

from broker.protocol.constants import FLAG_DELIVERY_MODE
from broker.protocol.content import split_properties

if TYPE_CHECKING:
    from broker.protocol.runs import ContentRun

PERSISTENT: Final = b"\x02"


class Wishes:
    """What the headers of a published message ask of its queues, where they ask for anything."""

    __slots__ = ("dedup_id", "delay_ms")

    def __init__(self, delay_ms: int | None = None, dedup_id: bytes | None = None) -> None:
        self.delay_ms = delay_ms  # None: whatever the queue says
        self.dedup_id = dedup_id  # digest of x-dedup-id


class Message:
    """Content as raw frames (see broker.protocol.content), and its life in this queue."""

    __slots__ = (
        "address",
        "body_bytes",
        "channel",
        "delivery_count",
        "due_ms",
        "enqueued_ms",
        "expires_at",
        "flags",
        "frames",
        "group",
        "header_bytes",
        "priority",
        "redelivered",
        "sequence",
        "tag",
        "wishes",
    )
    # These are set only where a feature of the queue needs them, and unset in all other messages.
    due_ms: int  # delayed: when it is to be ready
    enqueued_ms: int  # since when it ages, in queues with aging
    group: bytes | None  # see queues.groups, in queues with message groups
    tag: int  # leased: its delivery tag on the channel that holds it

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
        self.wishes: Wishes | None = None

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
        twin.wishes = self.wishes
        return twin

    @classmethod
    def stand_in(cls, sequence: int) -> "Message":
        """Somebody holds a message that was not read here: all that is known of it."""
        message = cls(b"", b"", 0, 0, 0, 0)
        message.sequence = sequence
        message.redelivered = True
        return message

    @property
    def is_stand_in(self) -> bool:
        """Its content is in the log only."""
        return not self.frames

    def fill(self, read: "Message") -> None:
        """The content of a stand-in, which it is from now on."""
        self.address = read.address
        self.frames = read.frames
        self.header_bytes = read.header_bytes
        self.flags = read.flags
        self.body_bytes = read.body_bytes
        self.channel = read.channel
        self.priority = read.priority
        self.expires_at = read.expires_at
        self.enqueued_ms = read.enqueued_ms

    def properties(self) -> dict[int, bytes]:
        """Raw property values by flag (see split_properties). They were checked at publish."""
        return split_properties(self.flags, self.frames, self.header_bytes)

    @property
    def body(self) -> memoryview:
        """The body without its frame; empty where there is none."""
        start = self.header_bytes + 15  # header frame: 7 + payload + 1; then 7 of the body frame
        return memoryview(self.frames)[start : start + self.body_bytes]

    @property
    def persistent(self) -> bool:
        if not self.flags & FLAG_DELIVERY_MODE:
            return False
        return self.properties()[FLAG_DELIVERY_MODE] == PERSISTENT


def messages_of(run: "ContentRun", address: bytes, first: int) -> list[Message]:
    """The publishes of a run, numbered by their publisher from `first` on."""
    messages = [
        Message(address, frames, run.header_bytes, run.flags, run.body_bytes, run.channel)
        for frames in run.contents()
    ]
    for sequence, message in enumerate(messages, first):
        message.sequence = sequence
    return messages
