"""Arguments of stream queues (`x-max-age` …) parsed once, at declare, into typed options."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from queues.arguments import (
    InvalidArgumentError,
    InvalidValueError,
    boolean,
    bounded,
    one_of,
    read,
    text,
)
from queues.options import ARGUMENTS as FIFO_ARGUMENTS
from queues.options import QueueType
from queues.stream.options import DAY_MS, MIB, StreamOptions

PARTITIONS_MAX: Final = 1024
SIZE_BYTES_MAX: Final = 2**62
SEGMENT_BYTES_MAX: Final = 3_000_000_000  # RabbitMQ's bound too
# Whole segments are taken away: without a size of their own they are small beside the limit.
SEGMENTS_IN_LIMIT: Final = 4
SEGMENT_BYTES_FLOOR: Final = MIB

_UNITS_MS: Final = {
    "Y": 365 * DAY_MS,
    "M": 30 * DAY_MS,
    "D": DAY_MS,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
}
_AGE: Final = re.compile(r"([0-9]{1,12})([YMDhms])")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamQueueOptions:
    """What a stream was declared to do."""

    partitions: int = 1
    storage: StreamOptions = field(default_factory=StreamOptions)  # of each partition
    type: QueueType = "stream"


def age_ms(value: object) -> int:
    """Milliseconds from RabbitMQ's text form of a length of time, as `7D` or `12h`."""
    found = _AGE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidValueError("expected a number and one of Y, M, D, h, m, s")
    return int(found[1]) * _UNITS_MS[found[2]]


# Argument → the option it sets, and how its value is read.
_PARSERS: Final[dict[str, tuple[str, Callable[[object], object]]]] = {
    "x-partitions": ("partitions", bounded(1, PARTITIONS_MAX)),
    "x-max-age": ("max_age_ms", age_ms),
    "x-max-length-bytes": ("max_bytes", bounded(0, SIZE_BYTES_MAX)),
    "x-stream-max-segment-size-bytes": ("segment_bytes", bounded(1, SEGMENT_BYTES_MAX)),
    "x-compact": ("compact", boolean),
    "x-acks": ("acks", one_of("1", "all")),
}
# Arguments that RabbitMQ's clients send and that choose nothing here, but must be well-formed.
_ACCEPTED: Final[dict[str, Callable[[object], object]]] = {
    "x-queue-type": one_of("stream"),
    "x-initial-cluster-size": bounded(1, 99),
    "x-queue-leader-locator": text,
}

ARGUMENTS: Final = (*_PARSERS, *_ACCEPTED)
# What a policy may set too, under the same name without "x-".
POLICY_ARGUMENTS: Final = frozenset(
    {"x-acks", "x-max-age", "x-max-length-bytes", "x-stream-max-segment-size-bytes"}
)


def parse_stream_options(arguments: Mapping[str, object]) -> StreamQueueOptions:
    """Typed options from a declare's arguments; raises InvalidArgumentError."""
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        option, parse = _PARSERS.get(name, (None, _ACCEPTED.get(name)))
        if parse is None:
            if name in FIFO_ARGUMENTS:
                raise InvalidArgumentError(name, "not an argument of queue type stream")
            continue  # unknown to every type of queue: ignored, as AMQP clients expect
        parsed = read(name, value, parse)
        if option is not None:
            values[option] = parsed
    partitions = values.get("partitions") or 1
    storage = StreamOptions(
        segment_bytes=_segment_bytes(values, partitions),
        max_age_ms=values.get("max_age_ms"),
        max_bytes=_share(values.get("max_bytes"), partitions),
        compact=bool(values.get("compact")),
        leader_acks=values.get("acks") == "1",
    )
    return StreamQueueOptions(partitions=partitions, storage=storage)


def _share(max_bytes: int | None, partitions: int) -> int | None:
    """Of one partition, of what the stream as a whole may keep."""
    return None if max_bytes is None else -(-max_bytes // partitions)


def _segment_bytes(values: Mapping[str, int | None], partitions: int) -> int:
    given = values.get("segment_bytes")
    if given is not None:
        return given
    usual = StreamOptions().segment_bytes
    share = _share(values.get("max_bytes"), partitions)
    if share is None:
        return usual
    return min(usual, max(SEGMENT_BYTES_FLOOR, share // SEGMENTS_IN_LIMIT))
