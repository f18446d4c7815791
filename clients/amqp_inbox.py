"""Messages that came for a consumer and were not read yet."""

from collections import deque
from typing import TYPE_CHECKING, Final

from clients.amqp_message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

UNREAD_MAX: Final = 1000  # messages nobody read, of a consumer without prefetch; then not read on
UNREAD_BYTES_MAX: Final = 8 * 1024 * 1024  # or as many bytes of them


class Inbox:
    """What came for one consumer and was not read yet, oldest first."""

    __slots__ = ("_bounded", "bytes", "error", "messages", "no_ack", "tag", "wake")

    def __init__(self, tag: str, *, no_ack: bool, bounded: bool) -> None:
        self.tag = tag
        self.no_ack = no_ack
        self._bounded = bounded  # by its prefetch, that is
        self.messages: deque[Message] = deque()
        self.bytes = 0  # of an inbox that is not bounded
        self.error: Exception | None = None
        self.wake: Callable[[], object] | None = None

    @property
    def full(self) -> bool:
        """It is time to wait for whoever reads it. Prefetch makes this unnecessary."""
        return self.bytes > UNREAD_BYTES_MAX or (
            not self._bounded and len(self.messages) > UNREAD_MAX
        )

    def put(self, messages: list[Message]) -> None:
        self.messages.extend(messages)
        if not self._bounded:
            self.bytes += sum([message.raw_size for message in messages])
        if self.wake is not None:
            self.wake()

    def take(self) -> Message:
        message = self.messages.popleft()
        if not self._bounded:
            self.bytes -= message.raw_size
        return message

    def cancelled(self, error: Exception) -> None:
        """Nothing comes any more, but what did can be read."""
        self.error = error
        if self.wake is not None:
            self.wake()

    def fail(self, error: Exception) -> None:
        """Nothing comes any more; what was not read cannot be acked any more."""
        if self.error is None:
            self.error = error
        self.messages.clear()
        self.bytes = 0
        if self.wake is not None:
            self.wake()
