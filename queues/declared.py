"""What a declare asks for, whatever the type of the queue."""

from collections.abc import Mapping
from typing import Final, TypeAlias, cast

from queues.arguments import one_of, read
from queues.options import ARGUMENTS as FIFO_ARGUMENTS
from queues.options import QueueOptions, QueueType, parse_options
from queues.stream.arguments import ARGUMENTS as STREAM_ARGUMENTS
from queues.stream.arguments import StreamQueueOptions, parse_stream_options

Options: TypeAlias = QueueOptions | StreamQueueOptions

# What has to be the same when a queue is declared again.
EQUIVALENCE_ARGUMENTS: Final = tuple(dict.fromkeys((*FIFO_ARGUMENTS, *STREAM_ARGUMENTS)))

_type: Final = one_of("classic", "quorum", "stream")


def type_of(arguments: Mapping[str, object], *, default: QueueType) -> QueueType:
    """The type of queue that is declared; raises InvalidArgumentError."""
    if "x-queue-type" not in arguments:
        return default
    return cast("QueueType", read("x-queue-type", arguments["x-queue-type"], _type))


def parse_arguments(arguments: Mapping[str, object], *, default: QueueType) -> Options:
    """Typed options; raises InvalidArgumentError."""
    queue_type = type_of(arguments, default=default)
    if queue_type == "stream":
        return parse_stream_options(arguments)
    return parse_options(arguments, default=queue_type)
