"""What a request of the stream protocol needs permission for, by the patterns for queues.

Who reads a stream needs `read` on it, who appends or stages `write`; a group is read by its name,
and its members read their streams.
"""

from collections.abc import Iterator
from typing import Any

from broker.protocol import stream_messages as wire
from broker.security.permissions import Action


def needed(message: Any) -> Iterator[tuple[Action, str]]:
    """Actions and names. What is answered for several streams each for itself is not here."""
    match message:
        case wire.Fetch() | wire.OffsetFor():
            yield "read", message.stream
        case wire.Append() | wire.Stage():
            yield "write", message.stream
        case wire.Join():
            yield "read", message.group
            for stream in message.streams:
                yield "read", stream
        case wire.Heartbeat() | wire.Leave() | wire.DescribeGroup():
            yield "read", message.group
        case wire.CommitOffsets() | wire.ResetOffsets():
            yield from _group_offsets(message.group, message.positions)
        case wire.FetchOffsets():
            yield "read", message.group
            for partition in message.partitions:
                yield "read", partition.stream
        case wire.Commit() | wire.Abort():
            for part in message.partitions:
                yield "write", part.partition.stream
            for group in message.groups:
                yield from _group_offsets(group.group, group.positions)


def _group_offsets(
    group: str, positions: tuple[wire.Position, ...]
) -> Iterator[tuple[Action, str]]:
    yield "read", group
    for position in positions:
        yield "read", position.partition.stream
