"""What can be wrong with a stream where it is kept."""

from broker.protocol.stream_errors import StreamError


class DamagedSegmentsError(StreamError):
    """What the segments of a partition should hold is not there: it must not be served."""


class StreamDeletedError(StreamError):
    """The stream was deleted while somebody read it."""

    def __init__(self) -> None:
        super().__init__("the stream is deleted")
