"""Looking at the messages of a queue without consuming them, and taking single ones out."""

import heapq
from collections.abc import Callable, Collection
from typing import TypeAlias

from queues.message import Message
from queues.ready import Ready
from queues.seams import Store

Then: TypeAlias = Callable[[list[Message]], None]


class Browser:
    """The ready messages of a queue in memory and on disk, by sequence."""

    def __init__(self, ready: Ready, store: Store | None) -> None:
        self._ready = ready
        self._store = store

    def peek(self, after: int, count: int, then: Then) -> None:
        """The first messages behind a sequence, in order: up to `count`, none if there are none."""
        behind = (message for message in self._ready if message.sequence > after)
        hot = heapq.nsmallest(count, behind, key=lambda message: message.sequence)
        left = count - len(hot)
        cold = self._store.cold_after(after, left) if self._store is not None and left else []
        if self._store is None or not cold:
            then(hot)
            return

        def found(read: list[Message]) -> None:
            messages = {message.sequence: message for message in [*read, *hot]}
            then([messages[sequence] for sequence in sorted(messages)])

        self._store.read(cold, found)

    def take(self, sequences: Collection[int], then: Then) -> None:
        """Take these out, as many of them as are ready; more may be had by asking again."""
        hot = self._ready.remove(sequences)
        left = set(sequences) - {message.sequence for message in hot}
        if self._store is None or not left:
            then(hot)
            return
        store = self._store

        def found(read: list[Message]) -> None:
            then([*hot, *[message for message in read if store.take_apart(message)]])

        cold = [s for s in left if store.cold_after(s - 1, 1) == [s]]
        store.read(cold, found)
