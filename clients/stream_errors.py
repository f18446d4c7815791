"""What can go wrong for a client of the stream protocol, beside what is wrong with a stream."""

from typing import Final

from broker.protocol.stream_errors import OffsetOutOfRangeError, StreamError
from broker.protocol.stream_wire import Refused, Status


class ConnectionLostError(StreamError):
    """The socket failed; what became of the requests in flight is not known."""


class NoBrokerError(ConnectionLostError):
    """Something else answers at that port: asking again does not help."""


class LoginTimeoutError(ConnectionLostError):
    """Somebody takes connections there and does not answer: another port, or a broker in trouble.

    Each attempt takes long, so that it is for the caller to decide about another.
    """


class ClientClosedError(StreamError):
    """It was used after it had been closed here."""


class RefusedError(StreamError):
    """The server's answer is an error."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(f"{_name(refused.status)}: {refused.text}")
        self.status = refused.status
        self.text = refused.text
        self.numbers = refused.numbers


class FencedError(RefusedError):
    """Another process took over under the same name: this one has to end."""


class StreamReplacedError(RefusedError):
    """The stream was deleted and declared again: offsets of the former mean nothing in this one."""


_FENCED: Final = frozenset(
    {Status.PRODUCER_FENCED, Status.MEMBER_FENCED, Status.TRANSACTION_FENCED}
)


def _name(status: int) -> str:
    return Status(status).name if status in Status.__members__.values() else f"status {status}"


def error_of(refused: Refused, offset: int | None = None) -> StreamError:
    """As an exception; `offset` is what a fetch asked for."""
    if refused.status == Status.OFFSET_OUT_OF_RANGE and offset is not None:
        first, following = refused.numbers
        return OffsetOutOfRangeError(offset, first, following)
    if refused.status == Status.STREAM_REPLACED:
        return StreamReplacedError(refused)
    return FencedError(refused) if refused.status in _FENCED else RefusedError(refused)
