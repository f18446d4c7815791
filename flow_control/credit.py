"""Prefetch credit: how many unacked messages a consumer, or a channel, may hold."""

import sys
from typing import Final

UNLIMITED: Final = sys.maxsize


class Credit:
    """A window of `limit` messages (0: as many as `most`) of which `used` are out.

    What basic.get fetched is out as well but is no part of the window: only `most` counts it.
    """

    __slots__ = ("fetched", "limit", "most", "used")

    def __init__(self, limit: int = 0, *, most: int = UNLIMITED) -> None:
        self.limit = limit
        self.most = most
        self.used = 0
        self.fetched = 0

    @property
    def full(self) -> bool:
        """Nothing more may go out, not even what is fetched."""
        return self.used + self.fetched >= self.most

    @property
    def room(self) -> int:
        """How many more may go out; negative after the limit was lowered under what is out."""
        left = self.most - self.used - self.fetched
        return min(self.limit - self.used, left) if self.limit else left
