"""What a vhost asks of those who keep its consumer groups."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from queues.consumers import Consumer
from queues.stream.wishes import ReaderWishes

if TYPE_CHECKING:
    from queues.stream.stream import Stream


class Groups(Protocol):
    def when_ready(self, action: Callable[[], None]) -> None:
        """Call back, at once or later, when the groups are known."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why they cannot be served, if so."""
        ...

    def consume(
        self,
        stream: "Stream",
        consumer: Consumer,
        wishes: ReaderWishes,
        group: str,
        instance: str,
        then: Callable[[str | None], None],
    ) -> None:
        """Let a consumer read for a group; `then`, at once or later, gets why it may not, or None.

        By then it has its share of the partitions, as far as others let go of it at once.
        """
        ...

    def stream_changed(self, stream: str, partitions: int) -> None:
        """A stream was declared, or deleted (0)."""
        ...
