"""The coordinator of a vhost's transactions, on a log of its own.

Entries are commands of queues.stream.transaction_commands, a checkpoint is the coordinator's state.
"""

from collections import deque
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Final, Protocol, TypeAlias

from broker import logs
from queues.live_log import Log
from queues.stream.staged_rows import Lost
from queues.stream.transaction_commands import (
    Command,
    Effect,
    Opened,
    Outcome,
    decode_command,
    encode_command,
)
from queues.stream.transactions import TransactionCoordinator

CHECKPOINT_ENTRIES: Final = 4096  # above the last checkpoint: replayed at a start

# Lost: another node decides now; whoever asked may ask there again.
Asker: TypeAlias = Callable[[Outcome | Opened | Lost], None]

_log = logs.get("transactions")


def coordinator_uid(vhost: str, uid: bytes) -> bytes:
    """The name of its log: another for each vhost that is made under the same name."""
    return blake2b(vhost.encode() + uid, digest_size=16, person=b"transactions").digest()


class Decider(Protocol):
    """Who carries out what the log says."""

    def carry_out(self, effects: list[Effect], asker: Asker | None) -> None: ...

    def lead(self) -> None:
        """Go on with what is unfinished."""
        ...

    def follow(self) -> None:
        """Nobody who waits gets an answer here any more."""
        ...


class TransactionLog:
    """For the loop's thread."""

    def __init__(self, log: Log, decider: Decider, *, replicated: bool = False) -> None:
        """`replicated`: it takes commands where its log leads."""
        self._log = log
        self._decider = decider
        self.leads = not replicated
        self.coordinator = TransactionCoordinator()
        self.trouble: str | None = None  # why nothing may be decided
        self._arriving: deque[tuple[Command, Asker | None]] = deque()
        self._proposed: deque[tuple[Command, Asker | None]] = deque()
        self._entries: list[int] = []  # above the checkpoint
        self._checkpointing = False

    def propose(self, command: Command, asker: Asker | None = None) -> None:
        """Effects come when it is applied; the asker goes with them."""
        if not self.leads:
            if asker is not None:
                asker(Lost.LOST)
            return
        self._arriving.append((command, asker))
        self._log.changed(urgent=True)

    # What the log says

    def next_entry(self) -> bytes | None:
        if not self._arriving:
            return None
        self._proposed.append(self._arriving.popleft())
        return encode_command(self._proposed[-1][0])

    def applied(self, index: int) -> None:
        command, asker = self._proposed.popleft()
        self._entries.append(index)
        self._decider.carry_out(self.coordinator.apply(command), asker)
        self._checkpoint_if_due(index)

    def apply(self, index: int, entry: bytes) -> None:
        """Decided by another node, which carries it out."""
        self._entries.append(index)
        self.coordinator.apply(decode_command(entry))
        self._checkpoint_if_due(index)

    def lead(self) -> None:
        self.leads = True
        self._decider.lead()

    def follow(self) -> None:
        self.leads = False
        lost = [asker for _, asker in (*self._proposed, *self._arriving) if asker is not None]
        self._proposed.clear()
        self._arriving.clear()
        for asker in lost:
            asker(Lost.LOST)
        self._decider.follow()

    def delete(self) -> None:
        self._log.delete()

    def state(self) -> bytes:
        return self.coordinator.encode()

    def install(self, index: int, state: bytes) -> list[int]:
        """As another node's checkpoint says, or this one's at the start."""
        self.coordinator = TransactionCoordinator.decode(state)
        self._entries = [each for each in self._entries if each > index]
        return []

    def _checkpoint_if_due(self, index: int) -> None:
        if len(self._entries) < CHECKPOINT_ENTRIES or self._checkpointing:
            return
        self._checkpointing = True
        covered, self._entries = self._entries, []

        def durable() -> None:
            self._checkpointing = False
            self._log.release(covered)

        self._log.checkpoint(index, self.state(), durable)

    def damaged(self, reason: str) -> None:
        """What was decided is not known."""
        _log.error("transactions_lost", reason=reason)
        self.trouble = reason

    def begin_anew(self) -> bool:
        """Be as a new one, for a log that begins again."""
        self.coordinator = TransactionCoordinator()
        self._entries, self._checkpointing = [], False
        self.trouble = None
        return True

    def recover(
        self, checkpoint: tuple[int, bytes] | None, entries: Iterable[tuple[int, bytes]]
    ) -> None:
        covered = 0
        if checkpoint is not None:
            covered, state = checkpoint
            self.coordinator = TransactionCoordinator.decode(state)
        for index, entry in entries:
            if index > covered:
                self._entries.append(index)
                self.coordinator.apply(decode_command(entry))
