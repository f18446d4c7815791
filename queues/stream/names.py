"""What the parts of a stream queue are called."""

from typing import Final, NamedTuple

OFFSETS_STREAM: Final = "__consumer_offsets"
# Streams of the broker's own: clients may read them, and nothing else.
INTERNAL: Final = frozenset({OFFSETS_STREAM})


class PartitionId(NamedTuple):
    """One log of a stream; `stream` is the caller's full name of the queue, vhost included."""

    stream: str
    number: int


class GroupId(NamedTuple):
    """A consumer group; `name` is the caller's full name of it, vhost included."""

    name: str
