"""Prefetch credit: how many unacked messages a consumer, or a channel, may hold."""

import sys
from typing import Final

UNLIMITED: Final = sys.maxsize


class Credit:
    """A window of `limit` messages (0: no limit) of which `used` are out."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.used = 0

    @property
    def room(self) -> int:
        """How many more may go out; negative after the limit was lowered under what is out."""
        return self.limit - self.used if self.limit else UNLIMITED
