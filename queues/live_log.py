"""A durable queue's log and the machine on it: entries applied, checkpointed and let go."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

from queues.live import LiveSet

# Entries above the last checkpoint are kept even when dead: it is made when so much has piled up.
CHECKPOINT_ENTRIES: Final = 8192
CHECKPOINT_BYTES: Final = 4 * 1024 * 1024
# Checkpoints larger than this (a million delayed messages are 16 MB) wait for as many dead bytes.
STATE_BYTES_SMALL: Final = 1024 * 1024

Entries: TypeAlias = list[tuple[int, bytes]]  # index and payload, ascending


class Log(Protocol):
    """One replicated log, as far as a queue's storage goes."""

    def changed(self, *, urgent: bool, size_bytes: int = 0) -> None:
        """There is something to propose, so many bytes of it new: now, or when it suits."""
        ...

    def read(self, indexes: list[int], then: "Callable[[Entries], None]") -> None:
        """Read entries off the loop, as many of the first ones as are worth a read.

        Those that were released meanwhile are left out.
        """
        ...

    def release(self, indexes: list[int]) -> None:
        """Entries at or under the last checkpoint that are not needed any more."""
        ...

    def checkpoint(self, index: int, state: bytes, then: Callable[[], None]) -> None:
        """Keep the state up to `index`; `then` is called when it is durable."""
        ...

    def confirm(self, then: Callable[[bool], None]) -> None:
        """Say whether all that anybody was told of it is applied here, once that is known."""
        ...

    def spread(self, slices: Iterator[None], then: Callable[[], None]) -> None:
        """Do some work a slice at a time, with turns of others in between.

        `then` is called at its end, if the log is still there.
        """
        ...

    def delete(self) -> None:
        """The whole log may go."""
        ...


class LiveLog:
    """Which entries of a log are still needed, and the live set that they make."""

    __slots__ = (
        "_applied",
        "_checkpointed",
        "_checkpointing",
        "_dead",
        "_dead_bytes",
        "_life",
        "_log",
        "_sizes",
        "_state_bytes",
        "live",
    )

    def __init__(self, log: Log) -> None:
        self.live = LiveSet()
        self._log = log
        self._applied = 0
        self._checkpointed = 0
        self._checkpointing = False
        self._state_bytes = 0  # of the last checkpoint
        self._sizes: dict[int, int] = {}  # entries above the checkpoint → bytes, while alive
        self._dead: list[int] = []  # entries above the checkpoint that nobody needs
        self._dead_bytes = 0
        self._life = 0  # what was asked for before the state was replaced is not wanted any more

    @property
    def applied_index(self) -> int:
        """The last entry in it."""
        return max(self._applied, self._checkpointed)

    def apply(self, index: int, entry: bytes) -> None:
        enqueued = self.live.next_sequence
        released = self.live.apply(index, entry)
        self._applied = index
        if self.live.next_sequence == enqueued:
            self._dead.append(index)
            self._dead_bytes += len(entry)
        else:
            self._sizes[index] = len(entry)
        early = []
        for dead in released:
            if dead <= self._checkpointed:
                early.append(dead)
            else:
                self._dead.append(dead)
                self._dead_bytes += self._sizes.pop(dead, 0)
        if early:
            self._log.release(early)

    def checkpoint_if_due(self) -> None:
        due = self._dead_bytes > CHECKPOINT_BYTES or len(self._dead) > CHECKPOINT_ENTRIES
        if self._state_bytes > STATE_BYTES_SMALL:
            due = due and self._dead_bytes > self._state_bytes
        if due and not self._checkpointing:
            self._checkpoint()

    def _checkpoint(self) -> None:
        self._checkpointing = True
        index, dead = self._applied, self._dead
        self._dead, self._dead_bytes, self._sizes = [], 0, {}
        life = self._life

        def durable() -> None:
            if life != self._life:
                return
            self._checkpointing = False
            self._checkpointed = index
            late = [entry for entry in self._dead if entry <= index]  # died meanwhile
            self._dead = [entry for entry in self._dead if entry > index]
            self._log.release(dead + late)

        frozen = self.live.freeze()

        def encoded() -> None:
            if life == self._life:
                self._state_bytes = len(frozen.state)
                self._log.checkpoint(index, frozen.state, durable)

        if frozen.is_small:
            for _ in frozen.slices():
                pass
            encoded()
        else:
            self._log.spread(frozen.slices(), encoded)

    def abandon(self) -> None:
        """Another takes its place: what is under way is not wanted any more."""
        self._life += 1

    def recover(
        self, checkpoint: tuple[int, bytes] | None, entries: Iterable[tuple[int, bytes]]
    ) -> Sequence[int]:
        """Rebuild from what the log holds; the indexes of entries under the checkpoint in use."""
        if checkpoint is not None:
            self._checkpointed, state = checkpoint
            self._state_bytes = len(state)
            self.live = LiveSet.restore(state)
        for index, entry in entries:
            if index > self._checkpointed:
                self.apply(index, entry)
        return self.kept()

    def kept(self) -> Sequence[int]:
        """The indexes of all entries that hold live messages, ascending."""
        return self.live.indexes()

    def install(self, index: int, state: bytes) -> Sequence[int]:
        """Another replica's state takes the place of this one; which entries under it are in use.

        It is on disk as this log's checkpoint at `index`, and all that was applied here is in it.
        """
        self.live = LiveSet.restore(state)
        self._applied = self._checkpointed = index
        self._state_bytes = len(state)
        self._checkpointing = False
        self._sizes, self._dead, self._dead_bytes = {}, [], 0
        self._life += 1
        return self.kept()
