"""Who gives out producer ids: a machine on a log of its own, so that none is ever given twice.

entry        CBOR [version, time ms, [name, …]]: so many ids, at this time by the leader's clock
checkpoint   the state of queues.stream.producers.ProducerIds
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

import cbor2

from broker import logs
from queues.live_log import Log
from queues.stream.producers import ProducerId, ProducerIds
from queues.stream.staged_rows import Lost

REGISTRY_UID: Final = b"leveret producer"  # sixteen bytes, as every log's name
FORMAT_VERSION: Final = 1
CHECKPOINT_ENTRIES: Final = 4096  # above the last checkpoint: replayed at a start
ENTRY_NAMES_MAX: Final = 1000
# A name that nobody asked for in so long is forgotten; whoever has its last epoch is not fenced.
NAME_IDLE_MS: Final = 7 * 24 * 3600 * 1000

# Lost: another node gives them out now, and may have given one.
Then: TypeAlias = Callable[[ProducerId | Lost | None], None]

_log = logs.get("streams")


class _Asked(NamedTuple):
    name: str
    then: Then


class ProducerRegistry:
    """For the loop's thread."""

    def __init__(self, log: Log, now_ms: Callable[[], int], *, replicated: bool = False) -> None:
        """`replicated`: it gives out ids where its log leads."""
        self._log = log
        self.leads = not replicated
        self._now_ms = now_ms
        self._ids = ProducerIds()
        self._asked: deque[_Asked] = deque()
        self._proposed: deque[tuple[bytes, list[Then]]] = deque()
        self._entries: list[int] = []  # above the checkpoint
        self._checkpointing = False
        self.damage: str | None = None  # why it must not give out any: they may be others'

    def allocate(self, name: str, then: Then) -> None:
        """A new id, or for a known name the next epoch of it; None if there are too many names."""
        assert self.damage is None, self.damage
        if not self.leads:
            then(Lost.LOST)
            return
        self._asked.append(_Asked(name, then))
        self._log.changed(urgent=True)

    # What the log says

    def next_entry(self) -> bytes | None:
        if not self._asked:
            return None
        count = min(len(self._asked), ENTRY_NAMES_MAX)
        asked = [self._asked.popleft() for _ in range(count)]
        entry = cbor2.dumps([FORMAT_VERSION, self._now_ms(), [each.name for each in asked]])
        self._proposed.append((entry, [each.then for each in asked]))
        return entry

    def applied(self, index: int) -> None:
        entry, thens = self._proposed.popleft()
        given = self._apply(index, entry)
        for then, one in zip(thens, given, strict=True):
            then(one)
        self._checkpoint_if_due(index)

    def apply(self, index: int, entry: bytes) -> None:
        """Given out by another node."""
        self._apply(index, entry)
        self._checkpoint_if_due(index)

    def lead(self) -> None:
        self.leads = True

    def follow(self) -> None:
        """What was proposed may be given or not: whoever asked has to ask again."""
        self.leads = False
        lost = [then for _, thens in self._proposed for then in thens]
        lost += [each.then for each in self._asked]
        self._proposed.clear()
        self._asked.clear()
        for then in lost:
            then(Lost.LOST)

    def state(self) -> bytes:
        return self._ids.encode()

    def install(self, index: int, state: bytes) -> list[int]:
        """As another node's checkpoint says, or this one's at the start."""
        self._ids = ProducerIds.decode(state)
        self._entries = [each for each in self._entries if each > index]
        return []

    def _apply(self, index: int, entry: bytes) -> list[ProducerId | None]:
        version, at_ms, names = cbor2.loads(entry)
        assert version == FORMAT_VERSION, version
        self._entries.append(index)
        self._ids.expire(at_ms - NAME_IDLE_MS)
        return [self._ids.allocate(name, at_ms) for name in names]

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
        """Which ids were given is not known."""
        _log.error("producers_damaged", reason=reason)
        self.damage = reason

    def begin_anew(self) -> bool:
        """Be as a new one, for a log that begins again."""
        self._ids = ProducerIds()
        self._entries, self._checkpointing = [], False
        self.damage = None
        return True

    def recover(
        self, checkpoint: tuple[int, bytes] | None, entries: Iterable[tuple[int, bytes]]
    ) -> None:
        covered = 0
        if checkpoint is not None:
            covered, state = checkpoint
            self._ids = ProducerIds.decode(state)
        for index, entry in entries:
            if index > covered:
                self._apply(index, entry)
