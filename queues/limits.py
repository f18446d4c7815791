"""How long a queue may get, in messages and bytes, and what happens then."""

from queues.message import Message
from queues.options import QueueOptions
from queues.ready import Ready


class LengthLimit:
    """x-max-length and x-max-length-bytes; both count ready messages only."""

    __slots__ = ("_messages", "_size_bytes", "drops_head", "refuses")

    def __init__(self, options: QueueOptions) -> None:
        self._messages = options.max_length
        self._size_bytes = options.max_length_bytes
        limited = self._messages is not None or self._size_bytes is not None
        self.drops_head = limited and options.overflow == "drop-head"
        self.refuses = limited and options.overflow != "drop-head"

    def fits(self, message: Message, ready: int, ready_bytes: int) -> bool:
        """Whether one more may come to so many."""
        if self._messages is not None and ready + 1 > self._messages:
            return False
        return self._size_bytes is None or ready_bytes + message.body_bytes <= self._size_bytes

    def exceeded(self, ready: Ready) -> bool:
        if self._messages is not None and len(ready) > self._messages:
            return True
        return self._size_bytes is not None and ready.size_bytes > self._size_bytes
